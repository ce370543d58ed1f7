"""Memory of a function over the time of its run, as the plan has it: known before anything runs.

Time is counted in instructions of the schedule's code. Sizes must be known; nothing is allocated here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from deepx_graph.analysis.schedule import schedule
from deepx_graph.errors import DeepxGraphError, InferError
from deepx_graph.ir import Function, Node
from deepx_graph.runtime.memory.assignment import BufferAssignment, changes, no_scratch, plan


@dataclass(frozen=True)
class Life:
    """When a node's value is in memory: from its instruction to the last that may read it; and how many bytes it has."""

    first: int
    last: int
    bytes: int
    buffer: int | None
    in_place: bool


@dataclass(frozen=True)
class Memory:
    """Bytes alive at each instruction (`alive`), the most at once, with and without the scratch memory of kernels, and the life of
    each node's value."""

    alive: tuple[int, ...]
    peak_bytes: int
    value_bytes: int
    lives: dict[Node, Life]

    @property
    def peak_at(self) -> int:
        """The instruction at which most bytes are alive."""
        return max(range(len(self.alive)), key=self.alive.__getitem__, default=0)

    def at_peak(self, count: int = 10) -> list[tuple[Node, Life]]:
        """The largest values that are alive at the peak."""
        at = self.peak_at
        alive = [(n, life) for n, life in self.lives.items() if life.first <= at <= life.last]
        return sorted(alive, key=lambda item: -item[1].bytes)[:count]


def memory(function: Function) -> Memory | None:
    """The memory of a function's values, on any engine; None where a size is not known or it has no schedule."""
    try:
        return from_plan(plan(schedule(function), scratch=no_scratch))
    except (InferError, DeepxGraphError):
        return None


def from_plan(found: BufferAssignment) -> Memory:
    """The memory that a plan stands for, with the scratch memory of its kernels."""
    lives = {p.node: Life(p.first, p.last, p.bytes, p.buffer, p.in_place) for p in found.pieces}
    return Memory(tuple(accumulate(changes(found)[:-1])), found.peak_bytes, found.value_bytes, lives)
