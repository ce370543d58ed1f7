"""A body with loops and branches as steps on storages: what one machine function does from end to end.

Every value that is no view of another has a storage. Storages share memory where one is written over another that ends there: by a
kernel that may, by a move to what a loop or a branch carries on (`memory/sharing.py`). A move between others swaps
their buffers, where the old value ends with it, and nothing is copied; else the elements are. Arguments and constants belong to
others and are only read. Takes time linear in the code, and in storages for what is alive where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deepx_graph.analysis.schedule import schedule
from deepx_graph.errors import an
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CALL, CONSTANT, PARAM, PROJ, TUPLE, callee_of, index_of, value_of
from deepx_graph.literal import Array
from deepx_graph.lowering.bytecode import Code, Instruction, Move, Pack, Return, Run, Select, Test, alive_behind, lower
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.memory.order import StorageAccess, StorageBytes, blocks, ordered
from deepx_graph.runtime.memory.sharing import Handover, Ranges, Sharing, bits_of, most_alive, ranges_of
from deepx_graph.runtime.native.machine_kernel import MachineKernel
from deepx_graph.runtime.native.whole_program.plan import (
    Action,
    Called,
    Copied,
    Invoked,
    MachineOf,
    ProgramPlan,
    Storage,
    Swapped,
    Tree,
    on_storages,
)
from deepx_graph.runtime.native.whole_program.storage import assign
from deepx_graph.types import TensorType, TupleType

MOST_REPEATED = 1 << 20
"""Bytes of a broadcast that may be put in memory: who reads it as a view needs none."""

MOST_STEPS, MOST_BYTES, MOST_PROGRAM_BYTES = 4000, 24 << 20, 1 << 32
"""Of a body: instructions, and memory of all its values; of a whole program it is its memory anyway, which the plan counts."""


def planned(body: Function, machine_of: MachineOf, most_bytes: int = MOST_BYTES, calls: Mapping[str, int] | None = None, *,
            is_function: bool = False, is_recursive: bool = False) -> ProgramPlan:
    """The plan of a body whose values take at most so many bytes, or of a function that it calls; `calls` has the numbers of the
    functions that it may call. Raises Declined."""
    code = lower(schedule(body))
    if len(code.instructions) > MOST_STEPS:
        raise Declined("too many steps")
    planner = _Planner(code, machine_of, most_bytes, calls or {}, is_alone=not calls and not is_function)
    sharing = planner.plan()
    assign(planner.loops, sharing, is_function=is_function, is_recursive=is_recursive)
    if planner.loops.nbytes > most_bytes:
        raise Declined("values too large")
    return planner.loops


class _Planner:
    def __init__(self, code: Code, machine_of: MachineOf, most_bytes: int, calls: Mapping[str, int], *, is_alone: bool) -> None:
        self.code, self.machine_of, self.most_bytes, self.calls, self.is_alone = code, machine_of, most_bytes, calls, is_alone
        self.loops = ProgramPlan(code)
        self.tree: dict[int, Tree] = {}
        self.handovers: list[Handover] = []
        """What may be, where the value that is written over ends there."""

    def plan(self) -> Sharing:
        """Everything but where storages lie; which of them share memory."""
        self._assign_storages()
        alive, ranges = self._lives()
        self._check_size(ranges)
        if self._reorder(alive):
            alive, ranges = self._lives()
        steps = [self._actions(i, at) for at, i in enumerate(self.code.instructions)]
        sharing = self._shared(ranges, alive)
        self.group = sharing.group
        for at, (i, actions) in enumerate(zip(self.code.instructions, steps, strict=True)):
            done = self._move(i, alive[at]) if isinstance(i, Move) else [on_storages(a, self.group) for a in actions]
            self.loops.actions.append([a for a in done if not _is_nothing(a)])
            if isinstance(i, (Select, Test)):
                self.loops.tested[at] = self.group(self._leaf(i.source))
        final = self.code.instructions[-1]
        assert isinstance(final, Return)
        self.loops.results = tuple(self.group(self._leaf(s)) for s in final.sources)
        return sharing

    def _check_size(self, ranges: Sequence[Ranges]) -> None:
        """Raises Declined before kernels are made for values that are too large together."""
        there = ((*r, s.nbytes) for s, found in zip(self.loops.storages, ranges, strict=True) if s.is_owned for r in found)
        if most_alive(there) > 2 * self.most_bytes:  # those that one writes over another count twice
            raise Declined("values too large")

    def _shared(self, ranges: Sequence[Ranges], alive: Sequence[int]) -> Sharing:
        """Which storages share memory: of one type, so that what is written over another one fits."""
        handovers = [h for h in self.handovers if not alive[h.at] >> h.over & 1]
        sharing, storages = Sharing(ranges, handovers), self.loops.storages
        for h in handovers:
            one, other = storages[h.value], storages[h.over]
            if one.is_owned and other.is_owned and (one.dtype, one.nbytes) == (other.dtype, other.nbytes):
                sharing.join(h.value, h.over)
        self._share_spares(sharing, handovers)
        return sharing

    def _share_spares(self, sharing: Sharing, handovers: Sequence[Handover]) -> None:
        """Loops that follow one another double-buffer a value in one and the same spare buffer."""
        spares: dict[tuple[int, Any, int], int] = {}
        for h in handovers:
            target, spare, found = sharing.group(h.value), sharing.group(h.over), self.loops.storages[h.over]
            if target != spare and found.is_owned and isinstance(self.code.instructions[h.at], Move):
                sharing.join(spares.setdefault((target, found.dtype, found.nbytes), spare), spare)

    # --- storages

    def _assign_storages(self) -> None:
        for k, number in enumerate(self.code.params):
            self.tree[number] = self._storage(self.code.slots[number].type, param=k)
        for number, node in self.code.constants:
            array = value_of(node).array
            if array.nbytes > self.most_bytes:  # one element repeated, say: nothing of that size is made to plan
                raise Declined("values too large")
            self.tree[number] = self._storage(node.type, array=np.ascontiguousarray(array).reshape(array.shape))
        for i in self.code.instructions:
            if isinstance(i, Run):
                self.tree[i.target] = self._placed(i)
            elif isinstance(i, Pack):
                self.tree[i.target] = tuple(self.tree[s] for s in i.sources)
            elif isinstance(i, Move):
                for t in i.targets:
                    if t not in self.tree:
                        self.tree[t] = self._storage(self.code.slots[t].type)

    def _storage(self, type: Any, param: int | None = None, array: Array | None = None, inside: int | None = None,
                 start: int = 0) -> int:
        if not isinstance(type, TensorType) or not type.is_static:
            raise Declined(f"a value of type {type}")
        assert type.dtype.np is not None
        self.loops.storages.append(Storage(type.dtype.np, type.shape, param, array, inside, start))
        return len(self.loops.storages) - 1

    def _placed(self, run: Run) -> Tree:
        """The storages of a run. Raises Declined with its node."""
        try:
            return self._of_run(run)
        except Declined as e:
            raise Declined(str(e), run.node) from None

    def _of_run(self, run: Run) -> Tree:
        node = run.node
        if node.op is PROJ:
            items = self.tree[run.sources[0]]
            assert isinstance(items, tuple)
            item: Tree = items[index_of(node)]
            return item
        if node.op is TUPLE:
            return tuple(self.tree[s] for s in run.sources)
        if _is_view(node):
            source = self.tree[run.sources[0]]
            seen, whole = self._seen(node)
            if seen.flags.c_contiguous and seen.nbytes == whole.nbytes and seen.ctypes.data == whole.ctypes.data:
                return source
            if seen.flags.c_contiguous and isinstance(source, int) and np.may_share_memory(seen, whole):
                piece = self._piece(source, seen.ctypes.data - whole.ctypes.data, node.type)
                if piece is not None:
                    return piece
        if isinstance(node.type, TensorType):
            return self._storage(node.type)
        if not isinstance(node.type, TupleType) or not all(isinstance(t, TensorType) for t in node.type.items):
            raise Declined(an(node.type))
        return tuple(self._storage(t) for t in node.type.items)

    def _piece(self, source: int, start: int, type: Any) -> int | None:
        """The storage of a piece of an argument, where it lies: nobody writes there; None for one of something else."""
        storage = self.loops.storages[source]
        if not self.is_alone or (storage.param is None and storage.inside is None):
            return None
        return self._storage(type, inside=self._whole(source), start=storage.start + start)

    def _whole(self, storage: int) -> int:
        """The storage in which one lies: itself, but for pieces of arguments."""
        inside = self.loops.storages[storage].inside
        return storage if inside is None else inside

    def _leaf(self, slot: int) -> int:
        found = self.tree[slot]
        if not isinstance(found, int):
            raise Declined("a tuple as a value")
        return found

    def _leaves(self, slot: int) -> list[int]:
        found, stack = [], [self.tree[slot]]
        while stack:
            tree = stack.pop()
            if isinstance(tree, int):
                found.append(tree)
            else:
                stack.extend(reversed(tree))
        return found

    def _is_alias(self, run: Run) -> bool:
        """Whether the run gives a name to what is there, and does nothing."""
        target = self.tree[run.target]
        is_piece = isinstance(target, int) and self.loops.storages[target].inside is not None
        named = _is_view(run.node) and (is_piece or target == self.tree[run.sources[0]])
        return named or run.node.op is PROJ or run.node.op is TUPLE

    def _unused(self, type: TensorType) -> Array:
        """An array of a type, to look at what views see of it. Raises Declined for a large one."""
        if type.nbytes > self.most_bytes:
            raise Declined("a large tensor")
        return np.empty(type.shape, type.dtype.np)

    def _seen(self, node: Node) -> tuple[Array, Array]:
        """What the view sees of an array, and the array."""
        type = node.inputs[0].type
        assert isinstance(type, TensorType) and type.dtype.np is not None and node.op.eval is not None
        array = self._unused(type)
        return np.asarray(node.op.eval([array], *node.attrs)), array

    # --- what is alive where

    def _lives(self) -> tuple[list[int], list[Ranges]]:
        """What is alive behind each instruction, as bits, and where each storage is there."""
        code = self.code.instructions
        read, written = [self._bits(self._read(i)) for i in code], [self._bits(self._written(i)) for i in code]
        alive = alive_behind(code, read, written)
        there = [behind | own | others for behind, own, others in zip(alive, written, read, strict=True)]
        return alive, ranges_of(there, len(self.loops.storages))

    def _reorder(self, alive: Sequence[int]) -> bool:
        """Puts instructions between jumps in an order that takes less memory; whether there is one."""
        code = list(self.code.instructions)
        sizes = [s.nbytes if s.is_owned else 0 for s in self.loops.storages]
        results = self._bits(self._read(code[-1]))
        for block in blocks(code):
            accesses = [self._access(i, results) for i in code[block.start : block.stop]]
            order = ordered(accesses, StorageBytes(sizes, alive[block.stop - 1], results))
            code[block.start : block.stop] = [code[block.start + k] for k in order]
        if code == list(self.code.instructions):
            return False
        self.loops.code = self.code = replace(self.code, instructions=tuple(code))
        return True

    def _access(self, i: Instruction, results: int) -> StorageAccess:
        read, made = frozenset(self._read(i)), frozenset(self._written(i))
        kernel = None
        if isinstance(i, Run) and not (self._is_alias(i) or _is_view(i.node) or i.node.op is CALL):
            kernel = self.machine_of(i.node)
        if kernel is None:
            return StorageAccess(read, made)
        assert isinstance(i, Run)
        sources = [self._leaf(s) for s in i.sources]
        over = {sources[k] for result, may in zip(self._leaves(i.target), kernel.in_place, strict=True)
                if results >> result & 1 for k in may}
        return StorageAccess(read, made, kernel.workspace_bytes,
                             frozenset(s for s in over if self.loops.storages[s].param is not None))

    def _bits(self, storages: Sequence[int]) -> int:
        bits = 0
        for s in storages:
            bits |= 1 << self._whole(s)
        return bits

    def _read(self, i: Instruction) -> list[int]:
        if isinstance(i, Run):
            return [] if self._is_alias(i) else [leaf for s in i.sources for leaf in self._leaves(s)]
        if isinstance(i, (Move, Return)):
            return [leaf for s in i.sources for leaf in self._leaves(s)]
        return self._leaves(i.source) if isinstance(i, (Select, Test)) else []

    def _written(self, i: Instruction) -> list[int]:
        if isinstance(i, Run):
            return [] if self._is_alias(i) else self._leaves(i.target)
        return [leaf for t in i.targets for leaf in self._leaves(t)] if isinstance(i, Move) else []

    # --- actions

    def _actions(self, i: Instruction, at: int) -> list[Action]:
        """What an instruction does, as if each storage had memory of its own; what may share it is noted."""
        if isinstance(i, Move):
            self.handovers += [Handover(at, self._leaf(t), self._leaf(s)) for t, s in zip(i.targets, i.sources, strict=True)]
        if not isinstance(i, Run) or self._is_alias(i):
            return []
        node, target = i.node, self._leaves(i.target)
        if node.op is CALL and callee_of(node) in self.calls:
            return [Invoked(self.calls[callee_of(node)], tuple(self._leaf(s) for s in i.sources), tuple(target), node)]
        if _is_view(node) and _repeats(node):
            raise Declined(f"{node.op.name}, which repeats elements of a large tensor")
        kernel = self.machine_of(node)
        if kernel is None:
            raise Declined(f"{node.op.name}, which is no machine code", node)
        if kernel.is_program:
            raise Declined("a whole program within another one", node)
        return [self._called(kernel, [self._leaf(s) for s in i.sources], target, at)]

    def _called(self, kernel: MachineKernel, sources: Sequence[int], target: Sequence[int], at: int) -> Called:
        for result, over in zip(target, kernel.in_place, strict=True):
            self.handovers += [Handover(at, result, sources[k]) for k in sorted(over) if sources.count(sources[k]) == 1]
        return Called(kernel, (*(sources[p] for p in kernel.params), *target))

    def _move(self, i: Move, alive: int) -> list[Action]:
        """All at once: buffers of what ends here are swapped, everything else is copied afterwards."""
        pairs = [(self.group(self._leaf(t)), self.group(self._leaf(s))) for t, s in zip(i.targets, i.sources, strict=True)]
        stay = {t for t, s in pairs if t == s}
        targets = {t for t, s in pairs if t != s}
        lives = {self.group(k) for k in bits_of(alive)} - targets
        moved: dict[int, int] = {}
        held: dict[int, int] = {}
        swaps: list[Action] = []
        late: list[tuple[int, int]] = []
        taken: set[int] = set()
        for t, s in pairs:
            if t == s:
                continue
            if not self.loops.storages[s].is_owned or s in lives or s in stay or s in taken:
                late.append((t, s))
                continue
            taken.add(s)
            at = moved.get(s, s)
            if at != t:
                swaps.append(Swapped(t, at))
                mine, its = held.get(t, t), held.get(at, at)
                held[t], held[at] = its, mine
                moved[its], moved[mine] = t, at
        return [*swaps, *(Copied(moved.get(s, s), t) for t, s in late)]


def _is_nothing(action: Action) -> bool:
    """Whether an action copies memory onto itself."""
    return isinstance(action, Copied) and action.source == action.target


def _is_view(node: Node) -> bool:
    """Whether the node views its one operand as types alone tell."""
    return node.op.view and len(node.inputs) == 1 and node.op not in (PROJ, TUPLE, PARAM, CONSTANT)


def _repeats(node: Node) -> bool:
    """Whether a view is large only because elements stand in it more than once."""
    type, source = node.type, node.inputs[0].type
    assert isinstance(type, TensorType) and isinstance(source, TensorType)
    return type.nbytes > MOST_REPEATED and type.nbytes > source.nbytes
