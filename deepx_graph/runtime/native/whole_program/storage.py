"""Where the storages of a plan lie: in results from the start, in one another, and else in the memory of the plan.

What a result lies in is used for other values and temporaries of kernels, too, while the result is not there yet. Where arguments
are given away, not so early that the one which is expected could not be given for it, if less memory is taken then. Storages that
exchange buffers have memory of one size for as long as any of them is there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deepx_graph.analysis.disjoint_sets import DisjointSets
from deepx_graph.loops.in_place import LEAST_BYTES
from deepx_graph.runtime.memory.donation import chosen
from deepx_graph.runtime.memory.sharing import Room, Sharing, packed
from deepx_graph.runtime.native.call_image import rounded
from deepx_graph.runtime.native.machine_kernel import MachineKernel
from deepx_graph.runtime.native.whole_program.plan import Action, Called, Copied, Home, ProgramPlan, called, swapped


def assign(plan: ProgramPlan, sharing: Sharing, *, is_function: bool, is_recursive: bool) -> None:
    """Decides where storages and the memory of kernels are. A function gives its results by copies; the kernels of a recursive one
    have memory apart from its activations'."""
    _StorageAssignment(plan, sharing).assign(is_function, is_recursive)


class _StorageAssignment:
    def __init__(self, plan: ProgramPlan, sharing: Sharing) -> None:
        self.plan = plan
        calls = [(at, c.kernel) for at, c in called(plan.actions)]
        self.unit = 1 + max((last for _, kernel in calls for _, last in kernel.own_spans), default=0)
        """The parts of a position: spans are of these."""
        self.sizes = {k: s.nbytes for k, s in enumerate(plan.storages) if s.is_owned and sharing.group(k) == k}
        self.spans = {k: (first * self.unit, (last + 1) * self.unit - 1)
                      for k in range(len(plan.storages)) for first, last in [sharing.span(k)]}
        self.temporaries = [list(self._numbered(kernel, at * self.unit)) for at, kernel in calls]
        """The numbers of each call's temporaries, which follow those of storages, and last of what its threads have."""
        self.families = DisjointSets[int]()
        self.exchanging = {s for a in swapped(plan.actions) for s in (a.one, a.other)}
        self.in_pieces = {s.inside for s in plan.storages}
        self.params: dict[tuple[Any, tuple[int, ...]], list[int]] = {}
        for k, s in enumerate(plan.storages):
            if s.param is not None:
                self.params.setdefault((s.dtype, s.shape), []).append(k)
        for alike in self.params.values():
            alike.sort(key=lambda k: self.spans[k][1])

    def _numbered(self, kernel: MachineKernel, start: int) -> Iterator[int]:
        """New numbers for a kernel's temporaries, with their sizes and spans."""
        whole = 0, self.unit - 1
        spans = *(kernel.own_spans or [whole] * len(kernel.own_bytes)), whole
        for (first, last), nbytes in zip(spans, (*kernel.own_bytes, kernel.thread_bytes), strict=True):
            number = len(self.spans)
            self.sizes[number], self.spans[number] = nbytes, (start + first, start + last)
            yield number

    def assign(self, is_function: bool, is_recursive: bool) -> None:
        self._find_families()
        if is_function:
            homes: dict[int, Home] = {}
            self.plan.nbytes, self.plan.record_bytes = self._packed(homes, is_recursive)
            self._settle(self.plan, homes)
            return
        least = giving = self._placed(keeps_gifts=True, is_recursive=is_recursive)
        if any(giving.in_place):
            plan = self._placed(keeps_gifts=False, is_recursive=is_recursive)
            least = giving if giving.nbytes <= plan.nbytes else plan
        for name in ("nbytes", "record_bytes", "homes", "workspaces", "exchanged", "in_place"):
            setattr(self.plan, name, getattr(least, name))
        if giving.nbytes - self._given_bytes(giving) < least.nbytes - self._given_bytes(least):
            self.plan.giving = giving

    def _placed(self, *, keeps_gifts: bool, is_recursive: bool) -> ProgramPlan:
        """The plan with homes for all that is not a function's."""
        homes = self._at_home()
        self._use_results(homes, keeps_gifts=keeps_gifts)
        nbytes, record_bytes = self._packed(homes, is_recursive)
        found = replace(self.plan, nbytes=nbytes, record_bytes=record_bytes, in_place=self._gifts(homes))
        self._settle(found, homes)
        return found

    def _settle(self, plan: ProgramPlan, homes: dict[int, Home]) -> None:
        plan.workspaces = [tuple(homes.pop(k) for k in temporaries) for temporaries in self.temporaries]
        plan.homes = homes
        borrowed = {self.families.find(k) for k, h in homes.items() if h.result is not None and k in self.exchanging}
        plan.exchanged = frozenset(k for k in self.exchanging if self.families.find(k) in borrowed)

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

    # --- results

    def _at_home(self) -> dict[int, Home]:
        """The results that are made where they are wanted."""
        homes, borrowed = dict[int, Home](), set[int]()
        for number, s in enumerate(self.plan.results):
            family = self.families.find(s)
            if s in self.sizes and s not in homes and family not in borrowed:
                homes[s] = Home(0, number)
                borrowed |= {family} & set(map(self.families.find, self.exchanging))
        return homes

    def _use_results(self, homes: dict[int, Home], *, keeps_gifts: bool) -> None:
        """Puts other values and temporaries into results while these are not there, the largest first; where it `keeps_gifts` not
        so early that no argument could be given away for a result. What threads have is told by an offset in the plan's memory."""
        plan = self.plan
        rooms, behind = [Room(plan.storages[s].nbytes) for s in plan.results], [-1] * len(plan.results)
        expected = self._expected(homes) if keeps_gifts else {}
        for s, home in homes.items():
            assert home.result is not None
            rooms[home.result].take(self.spans[s], self.sizes[s])
            if s in expected:
                behind[home.result] = self.spans[expected[s]][1]
        end, of_threads = self.unit * (len(plan.actions) - 1), {numbers[-1] for numbers in self.temporaries}
        others = [k for k, n in self.sizes.items() if n >= LEAST_BYTES and self.spans[k][1] < end
                  and k not in homes and k not in self.exchanging and k not in of_threads]
        for k in sorted(others, key=lambda k: (-self.sizes[k], -self.spans[k][0])):
            for number, room in enumerate(rooms):
                fits = self.spans[k][0] > behind[number] and (behind[number] < 0 or not self._is_wider(k, number))
                offset = room.take(self.spans[k], self.sizes[k]) if fits else None
                if offset is not None:
                    homes[k] = Home(offset, number)
                    break

    def _expected(self, results: Iterable[int]) -> dict[int, int]:
        """For the results that may be made over arguments, an argument of its own each: of those that may be given for it the one
        that ends last, as who comes later may have the others."""
        found, taken = dict[int, int](), set[int]()
        for s in sorted(results, key=lambda s: self.spans[s]):
            last = next((k for k in reversed(self._alike(s)) if k not in taken and self._may_be_over(s, k)), None)
            if last is not None:
                found[s] = last
                taken.add(last)
        return found

    def _gifts(self, homes: Mapping[int, Home]) -> tuple[frozenset[int], ...]:
        """For each result the numbers of the arguments over which it may be made."""
        own: dict[int | None, int] = {
            h.result: s for s, h in homes.items() if h.result is not None and s == self.plan.results[h.result]}
        begin: dict[int, float] = {}
        for k, h in homes.items():
            if h.result is not None and k != own.get(h.result):
                there = 0 if self._is_wider(k, h.result) else self.spans[k][0]
                begin[h.result] = min(there, begin.get(h.result, math.inf))
        storages = self.plan.storages
        over: list[frozenset[int]] = []
        for number in range(len(self.plan.results)):
            s, first = own.get(number), begin.get(number, math.inf)
            over.append(frozenset[int]() if s is None else frozenset(
                storages[k].param or 0 for k in self._alike(s) if self.spans[k][1] < first and self._may_be_over(s, k)))
        return tuple(over)

    def _given_bytes(self, plan: ProgramPlan) -> int:
        """The bytes of the results that lie over arguments where all of these are given away."""
        over = chosen(tuple(tuple(sorted(params)) for params in plan.in_place), frozenset[int]().union(*plan.in_place))
        return sum(plan.storages[s].nbytes for s, param in zip(plan.results, over, strict=True) if param is not None)

    def _is_wider(self, value: int, result: int) -> bool:
        """Whether the elements of a value are, or may be, wider than those of a result, as whose an argument is aligned."""
        storages = self.plan.storages
        return value >= len(storages) or storages[value].dtype.itemsize > storages[self.plan.results[result]].dtype.itemsize

    def _alike(self, result: int) -> Sequence[int]:
        """The arguments of a result's type, in the order in which they end."""
        made = self.plan.storages[result]
        return self.params.get((made.dtype, made.shape), ())

    def _may_be_over(self, result: int, param: int) -> bool:
        """Whether a result that has a home of its own may be made over an argument that is alike."""
        if result not in self.sizes:
            return False
        first, last = self.spans[result][0], self.spans[param][1]
        at = first // self.unit
        if last // self.unit != at or param in self.in_pieces:
            return last < first
        return all(_keeps(a, result, param) for a in self.plan.actions[at])

    # --- everything else

    def _packed(self, homes: dict[int, Home], is_recursive: bool) -> tuple[int, int]:
        """Puts all that has no home yet into the memory of the plan: the bytes of that memory and of an activation."""
        free, record_bytes = [k for k in self.sizes if k not in homes], 0
        if is_recursive:
            values = [k for k in free if k < len(self.plan.storages)]
            record_bytes, free = self._put(homes, values), free[len(values) :]
        return self._put(homes, free), rounded(record_bytes)

    def _put(self, homes: dict[int, Home], values: Sequence[int]) -> int:
        """Gives values homes in memory of their own, and its size."""
        offsets, nbytes = packed([self.spans[k] for k in values], [self.sizes[k] for k in values])
        homes.update(zip(values, map(Home, offsets), strict=True))
        return nbytes


def _keeps(action: Action, result: int, param: int) -> bool:
    """Whether an action that writes a result in the memory of an argument leaves what it, and who comes after it, reads."""
    match action:
        case Called(_, objects):
            return result in objects and action.may_write(result, param)
        case Copied(source, target):
            return (param == source) == (result == target)
    return False
