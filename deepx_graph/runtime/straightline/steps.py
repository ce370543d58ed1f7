"""What `StraightLine` walks: single kernels, and runs of kernels that are one call.

A run keeps its kernels, for arguments that the call does not take. Views around a run that nothing in it needs stay outside of it:
they cost little, and their results need not be told from what they view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.runtime.engines.base import EntryFn, KernelFn
from deepx_graph.runtime.faults import fail
from deepx_graph.runtime.program import Outs, Unit
from deepx_graph.runtime.straightline.segment import makes_kernel


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
