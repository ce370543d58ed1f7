"""A function without control flow, calls and effects, run with the least between its kernels.

It computes what `execute` computes, and fails as that does, for arguments that need no conversion; whatever else comes is left to
`execute`. Where the engine joins kernels, those that follow each other are one call, and a function of nothing else is
that call. `KernelStep` and `SegmentCall` are what is run, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np

from deepx_graph.ir import Function, Node
from deepx_graph.literal import Array
from deepx_graph.runtime.bytecode.code import Return, Run
from deepx_graph.runtime.engines.base import EntryFn, KernelFn
from deepx_graph.runtime.faults import fail
from deepx_graph.runtime.memory.donation import DonatedBuffers, donated_buffers
from deepx_graph.runtime.memory.pool import owned
from deepx_graph.runtime.program import Outs, Unit
from deepx_graph.runtime.straightline.segment import SegmentGroup, joins, makes_kernel, segment
from deepx_graph.types import TensorType


@dataclass(frozen=True, slots=True)
class KernelStep:
    """The kernel at a position of the code. `takes`: its first operand leaves the frame before the call."""

    node: Node
    kernel: KernelFn
    sources: tuple[int, ...]
    target: int
    at: int
    takes: bool
    frees: tuple[int, ...]

    def run(self, slots: list[Any], outs: Outs) -> None:
        """Computes the target, and drops what ends here."""
        values = [slots[s] for s in self.sources]
        if self.takes:
            slots[self.sources[0]] = None
        try:
            slots[self.target] = self.kernel(values, outs[self.at])
        except Exception as e:  # told with its place, or raised again
            fail(e, self.node)
        for s in self.frees:
            slots[s] = None


@dataclass(frozen=True, slots=True)
class Partition:
    """Steps that follow each other, cut for one call: views before and after it, the steps inside, and slots in and out."""

    before: tuple[KernelStep, ...]
    inside: tuple[KernelStep, ...]
    after: tuple[KernelStep, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SegmentCall:
    """The steps of a cut as one call."""

    partition: Partition
    entry: EntryFn
    frees: tuple[int, ...]

    def run(self, slots: list[Any], outs: Outs) -> None:
        """Computes all targets that are read elsewhere, and drops what ends within."""
        partition = self.partition
        for step in partition.before:
            _compute(step, slots, outs)
        try:
            found = self.entry(*[slots[s] for s in partition.inputs])
        except MemoryError:  # for one of its results, before it began: the steps will say which
            found = None
        if found is None:
            for step in partition.inside:
                _compute(step, slots, outs)
        else:
            for slot, value in zip(partition.outputs, found, strict=True):
                slots[slot] = value
        for step in partition.after:
            _compute(step, slots, outs)
        for s in self.frees:
            slots[s] = None


def _compute(step: KernelStep, slots: list[Any], outs: Outs) -> None:
    try:
        slots[step.target] = step.kernel([slots[s] for s in step.sources], outs[step.at])
    except Exception as e:  # told with its place, or raised again
        fail(e, step.node)


def partition(unit: Unit, steps: Sequence[KernelStep]) -> Partition | None:
    """Steps that join, in order, cut for one call. None where there is no kernel among them."""
    before, rest, made = list[KernelStep](), list[KernelStep](), set[int]()
    for step in steps:
        if makes_kernel(step.node) or step.sources[0] in made:
            rest.append(step)
            made.add(step.target)
        else:
            before.append(step)
    inside, after, read = list[KernelStep](), list[KernelStep](), set[int]()
    for step in reversed(rest):
        if step.node.op.view and step.target not in read:
            after.append(step)
        else:
            inside.append(step)
            read.update(step.sources)
    own = {s.at for s in inside}
    inputs = dict.fromkeys(s for step in reversed(inside) for s in step.sources if s not in made and s not in unit.constants)
    outputs = tuple(s.target for s in reversed(inside) if any(at not in own for at in unit.readers.get(s.target, ())))
    found = Partition(tuple(before), tuple(reversed(inside)), tuple(reversed(after)), tuple(inputs), outputs)
    return found if made else None


NONE: frozenset[int] = frozenset()


class StraightLine:
    """The instructions of one unit. Not to be run by two threads at once; what `entry` gives may be."""

    def __init__(self, unit: Unit, last: Return) -> None:
        self._unit, self._params, self._last = unit, unit.plan.code.params, last.sources
        self._copied = tuple(k in unit.plan.copied for k in range(len(last.sources)))
        self._types = tuple((p.type.dtype.np, p.type.shape) for p in unit.function.params if isinstance(p.type, TensorType))
        self._steps = tuple(KernelStep(i.node, kernel, i.sources, i.target, at, at in unit.taken, i.frees) for at, (i, kernel) in
                            enumerate(zip(unit.instructions, unit.kernels, strict=True)) if isinstance(i, Run) and kernel)
        self._calls = 0
        self._shared = SegmentGroup()
        self._donated_buffers: dict[frozenset[int], DonatedBuffers] = {NONE: {}}
        self._entries: dict[frozenset[int], EntryFn | None] = {}
        self._programs: dict[frozenset[int], Sequence[KernelStep | SegmentCall]] = {}

    @cached_property
    def _joins(self) -> tuple[bool, ...]:
        """The steps that join. To find out may compile kernels, so nobody asks before the second call."""
        return tuple(joins(self._unit, s.at) for s in self._steps)

    @cached_property
    def _memory(self) -> Outs:
        """The arrays between kernels, those of joined ones with them."""
        return self._unit.take_outs()

    def takes(self, arrays: Sequence[Any]) -> bool:
        """Whether the arguments are arrays of the very types of the parameters, in the order of C."""
        if len(arrays) != len(self._types):
            return False
        for array, (dtype, shape) in zip(arrays, self._types, strict=True):
            if type(array) is not np.ndarray or array.dtype != dtype or array.shape != shape or not array.flags.c_contiguous:
                return False
        return True

    def entry(self, donated: frozenset[int] = NONE) -> EntryFn | None:
        """All of it as one call, with the arguments `donated` away; None where there is more to it than kernels that join.

        It is made for what has been called once. It gives None, with nothing done, for arguments that `takes` would refuse, and
        for some others.
        """
        if not self._calls:
            return None
        if donated not in self._entries:
            self._entries[donated] = (
                self._joined(self._steps, self._params, self._last, donated, whole=True) if all(self._joins) else None)
        return self._entries[donated]

    def __call__(self, arrays: Sequence[Array], donated: frozenset[int] = NONE) -> tuple[Array, ...]:
        """The results, arrays of the caller's own; they may lie in the memory of the arguments `donated` away."""
        unit = self._unit
        alone = not self._calls or all(self._joins)  # another thread may be in the entry, whose memory is `_memory`
        self._calls += 1
        free = self._free(arrays, donated) if donated else NONE
        slots: list[Any] = unit.frame.copy()
        for number, array in zip(self._params, arrays, strict=True):
            slots[number] = array
        arena = unit.take_outs() if alone else self._memory
        outs = self._with_donated(arena, arrays, free) if free else arena
        for item in self._steps if alone else self._program(free):
            item.run(slots, outs)
        if alone:
            unit.give_back(arena)
        return tuple([owned(slots[s]) if copied else np.asarray(slots[s])
                      for s, copied in zip(self._last, self._copied, strict=True)])

    def _free(self, arrays: Sequence[Array], donated: frozenset[int]) -> frozenset[int]:
        """Those of the arguments donated that share no memory with another."""
        return frozenset(k for k in donated if arrays[k].flags.writeable and not any(
            j != k and np.may_share_memory(arrays[k], a) for j, a in enumerate(arrays)))

    def _over(self, free: frozenset[int]) -> DonatedBuffers:
        """Where results go over those arguments."""
        if free not in self._donated_buffers:
            self._donated_buffers[free] = donated_buffers(self._unit, free)
        return self._donated_buffers[free]

    def _with_donated(self, outs: Outs, arrays: Sequence[Array], free: frozenset[int]) -> Outs:
        found = self._over(free)
        return [o if at not in found else tuple(None if k is None else arrays[k] for k in found[at])  # type: ignore[misc]
                for at, o in enumerate(outs)]

    def _joined(self, steps: Sequence[KernelStep], inputs: Sequence[int], outputs: Sequence[int], free: frozenset[int], *,
                whole: bool = False) -> EntryFn | None:
        """Some steps as one call, from slots to slots."""
        engine, positions = self._unit.joining, [s.at for s in steps]
        number = {slot: k for k, slot in enumerate(inputs)}
        over = self._over(free)
        donated = {at: tuple(None if k is None else number[self._params[k]] for k in over[at]) for at in positions if at in over}
        if engine is None:
            return None
        found = segment(self._unit, positions, inputs, outputs, self._memory, donated, whole=whole)
        return None if found is None else engine.joined(found, self._shared)

    def _program(self, free: frozenset[int]) -> Sequence[KernelStep | SegmentCall]:
        """The steps, those joined that follow each other."""
        if free not in self._programs:
            program: list[KernelStep | SegmentCall] = []
            for together, group in groupby(zip(self._joins, self._steps, strict=True), key=lambda pair: pair[0]):
                steps = [s for _, s in group]
                found = partition(self._unit, steps) if together else None
                entry = None if found is None else self._joined(found.inside, found.inputs, found.outputs, free)
                frees = tuple(slot for s in steps for slot in s.frees)
                program += steps if found is None or entry is None else [SegmentCall(found, entry, frees)]
            self._programs[free] = program
        return self._programs[free]


def straight_line(unit: Unit) -> StraightLine | None:
    """The unit's function that way, or None where it has more than kernels in it or is donated anything but tensors."""
    *body, last = unit.instructions
    kernels_alone = all(isinstance(i, Run) and k is not None for i, k in zip(body, unit.kernels, strict=False))
    if not isinstance(last, Return) or not kernels_alone:
        return None
    return StraightLine(unit, last) if _has_tensors_alone(unit.function) else None


def _has_tensors_alone(function: Function) -> bool:
    return all(isinstance(n.type, TensorType) for n in (*function.params, *function.results))
