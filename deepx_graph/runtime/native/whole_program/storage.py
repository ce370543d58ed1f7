"""Where the storages of a plan lie: in results from the start, in one another, and else in the memory of the plan.

What a result lies in is used for other values, too, while the result is not there yet; but not so early that no argument of its
type could be given away for it. Storages that exchange buffers have memory of one size for as long as any of them is there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deepx_graph.analysis.disjoint_sets import DisjointSets
from deepx_graph.runtime.memory.sharing import Room, Sharing, packed
from deepx_graph.runtime.native.machine_kernel import workspace_bytes
from deepx_graph.runtime.native.whole_program.plan import Action, Called, Copied, Home, ProgramPlan, RowCopy, called, swapped

LEAST_BYTES = 4096
"""Smaller values are not put into what results lie in."""


@dataclass(frozen=True)
class Part:
    """At a position a storage becomes a piece of another one, so many bytes from its start."""

    at: int
    source: int
    target: int
    start: int


def place(plan: ProgramPlan, sharing: Sharing, parts: Sequence[Part], *, is_function: bool, is_recursive: bool) -> None:
    """Decides where storages and the memory of kernels are. A function gives its results by copies; the kernels of a recursive one
    have memory apart from its activations'."""
    _Placing(plan, sharing, parts).place(is_function, is_recursive)


class _Placing:
    def __init__(self, plan: ProgramPlan, sharing: Sharing, parts: Sequence[Part]) -> None:
        self.plan, self.parts, self.last = plan, parts, len(plan.actions) - 1
        self.sizes = {k: s.nbytes for k, s in enumerate(plan.storages) if s.is_owned and sharing.group(k) == k}
        self.spans = {k: sharing.span(k) for k in range(len(plan.storages))}
        self.families = DisjointSets[int]()
        self.exchanging = {s for a in swapped(plan.actions) for s in (a.one, a.other)}
        self.inside: dict[int, tuple[int, int]] = {}
        self.homes: dict[int, Home] = {}
        self.group = sharing.group

    def place(self, is_function: bool, is_recursive: bool) -> None:
        self._find_families()
        self._put_parts_inside()
        if not is_function:
            self._use_results()
        self._pack(is_recursive)
        for k, (around, start) in reversed(self.inside.items()):
            home = self.homes[around]
            self.homes[k] = replace(home, offset=home.offset + start)
        self.plan.homes = self.homes
        lent = {self.families.find(k) for k, h in self.homes.items() if h.result is not None and k in self.exchanging}
        self.plan.exchanged = frozenset(k for k in self.exchanging if self.families.find(k) in lent)

    def _find_families(self) -> None:
        for a in swapped(self.plan.actions):
            self.families.union(a.one, a.other)
        hulls: dict[int, tuple[int, int]] = {}
        for k in self.exchanging:
            first, last = self.spans[k]
            low, high = hulls.get(self.families.find(k), (first, last))
            hulls[self.families.find(k)] = min(low, first), max(high, last)
        for k in self.exchanging:
            self.spans[k] = hulls[self.families.find(k)]

    def _put_parts_inside(self) -> None:
        """What ends where it becomes a piece of what begins there is made in that piece."""
        begin = {k: first for k, (first, _) in self.spans.items()}
        for part in self.parts:
            k, around = self.group(part.source), self.group(part.target)
            fits = self.spans[k][1] == part.at == begin[around] and k in self.sizes and k not in self.inside
            if fits and self.exchanging.isdisjoint((k, around)):
                self.inside[k] = around, part.start
                self.spans[around] = min(self.spans[k][0], self.spans[around][0]), self.spans[around][1]

    # --- results

    def _use_results(self) -> None:
        """Puts storages into results: those that they are, and others while they are not there."""
        plan, lent, rooms = self.plan, set[int](), list[tuple[Room, int, int]]()
        firsts: list[int | None] = []
        for number, s in enumerate(plan.results):
            family = self.families.find(s)
            is_at_home = s in self.sizes and s not in self.homes and s not in self.inside and family not in lent
            room = Room(plan.storages[s].nbytes)
            if is_at_home:
                self.homes[s] = Home(0, number)
                room.take(self.spans[s], self.sizes[s])
                lent |= {family} & set(map(self.families.find, self.exchanging))
            firsts.append(self.spans[s][0] if is_at_home else None)
            given = [self.spans[k][1] for k, p in enumerate(plan.storages) if p.param is not None and self._may_be_over(s, k)]
            rooms.append((room, plan.storages[s].dtype.itemsize, min(given, default=-1) if is_at_home else -1))
        others = self._put_into(rooms)
        plan.in_place = tuple(frozenset(
            p.param for k, p in enumerate(plan.storages) if p.param is not None and first is not None
            and self._may_be_over(s, k) and self.spans[k][1] < others.get(number, math.inf))
            for number, (s, first) in enumerate(zip(plan.results, firsts, strict=True)))

    def _put_into(self, rooms: Sequence[tuple[Room, int, int]]) -> dict[int, int]:
        """Puts storages, the largest first, into results that have room for them, each used behind a position; where the first of
        them begins in each."""
        first = dict[int, int]()
        free = [k for k, n in self.sizes.items() if n >= LEAST_BYTES and self.spans[k][1] < self.last
                and k not in self.homes and k not in self.inside and k not in self.exchanging]
        for k in sorted(free, key=lambda k: -self.sizes[k]):
            for number, (room, itemsize, behind) in enumerate(rooms):
                fits = self.spans[k][0] > behind and self.plan.storages[k].dtype.itemsize <= itemsize
                offset = room.take(self.spans[k], self.sizes[k]) if fits else None
                if offset is not None:
                    self.homes[k] = Home(offset, number)
                    first[number] = min(first.get(number, self.last), self.spans[k][0])
                    break
        return first

    def _may_be_over(self, result: int, param: int) -> bool:
        """Whether a result that has a home of its own may be made over an argument."""
        made, given = self.plan.storages[result], self.plan.storages[param]
        if (made.dtype, made.nbytes) != (given.dtype, given.nbytes) or result not in self.sizes:
            return False
        first, last = self.spans[result][0], self.spans[param][1]
        return last < first or (last == first and all(_keeps(a, result, param) for a in self.plan.actions[first]))

    # --- everything else

    def _pack(self, is_recursive: bool) -> None:
        free = [k for k in self.sizes if k not in self.homes and k not in self.inside]
        calls = list(called(self.plan.actions))
        own = [workspace_bytes([c.kernel]) for _, c in calls]
        spans, sizes = [self.spans[k] for k in free], [self.sizes[k] for k in free]
        if is_recursive:
            offsets, self.plan.record_bytes = packed(spans, sizes)
            self.plan.workspaces, self.plan.nbytes = [0] * len(own), max(own, default=0)
        else:
            offsets, self.plan.nbytes = packed([*spans, *((at, at) for at, _ in calls)], [*sizes, *own])
            self.plan.workspaces = offsets[len(free) :]
        self.homes |= {k: Home(offset) for k, offset in zip(free, offsets, strict=False)}


def _keeps(action: Action, result: int, param: int) -> bool:
    """Whether an action that writes a result in the memory of an argument leaves what it, and who comes after it, reads."""
    match action:
        case Called(_, objects):
            return result in objects and action.may_write(result, param)
        case Copied(source, target, runs) if param == source and result == target:
            return len(runs) == 1 and runs[0][:2] == (0, 0)
        case Copied(source, target):
            return param != source and result != target
        case RowCopy(source, target, at):
            return target == result and param not in {source, *(i.storage for i in at)}
    return False
