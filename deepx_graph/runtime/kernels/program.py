"""`KernelProgram`: a kernel as a straight line of steps over numbered registers; and which of them run once, which on every block.

Every register has the rank of what it holds, with an extent of 1 along axes on which it does not depend, and no axes at all where
it is one element: numpy's broadcasting does the rest. A step writes its target and nothing else, and each register is written once.
Programs are plain data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]


class StepFunction(NamedTuple):
    """How a step is computed: `into(*sources, target)` fills memory, `value(*sources)` gives a value. Views have no `into`."""

    into: Callable[..., Any] | None
    value: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Register:
    """A value: its dtype, its extents, and the axis along which blocks cut it, None where every block has all of it."""

    dtype: np.dtype[Any]
    shape: Shape
    cut: int | None = None

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def block(self, rows: int) -> Shape:
        """The extents in a block of so many rows."""
        return self.shape if self.cut is None else (*self.shape[: self.cut], rows, *self.shape[self.cut + 1 :])


@dataclass(frozen=True, slots=True)
class Step:
    """What computes a register from others.

    `primitive` names the kernel primitive, "" where the op is none. `in_place` tells that its value is always new, and that it may
    be written over a source of the same shape. `total` makes the value of a reduction along the axis that is cut from those of all
    blocks.
    """

    target: int
    sources: tuple[int, ...]
    call: StepFunction
    primitive: str = ""
    in_place: bool = False
    total: Callable[[Array], Any] | None = None

    @property
    def is_view(self) -> bool:
        return self.call.into is None


@dataclass(frozen=True, slots=True)
class KernelProgram:
    """A whole kernel. `params` are the registers of the arguments; `results` are written by a step each, full along the axes of
    `result_shapes`, what the caller gets them as."""

    registers: tuple[Register, ...]
    params: tuple[int, ...]
    constants: Mapping[int, Array]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    result_shapes: tuple[Shape, ...]


class Levels(NamedTuple):
    """The steps that run once before all blocks, on every block, and once after them on what these have reduced."""

    before: tuple[Step, ...]
    block: tuple[Step, ...]
    after: tuple[Step, ...]

    @property
    def crossing(self) -> tuple[Step, ...]:
        """The reductions across blocks."""
        return tuple(s for s in self.block if s.total is not None)


BEFORE, BLOCK, AFTER = range(3)


def leveled(program: KernelProgram, is_cut: bool) -> Levels | None:
    """When each step runs; None where a block would need what is known only after all of them. Uncut, all is one block."""
    level = dict.fromkeys((*program.params, *program.constants), BEFORE)
    steps: tuple[list[Step], ...] = ([], [], [])
    for step in program.steps:
        at, target = max((level[s] for s in step.sources), default=BEFORE), program.registers[step.target]
        if not (step.is_view and at == BEFORE) and any(program.registers[r].cut is not None for r in (step.target, *step.sources)):
            if at == AFTER or (target.cut is None and step.total is None):
                return None
            at = BLOCK
        elif not is_cut and not (step.is_view and at == BEFORE):
            at = BLOCK
        steps[at].append(step)
        level[step.target] = AFTER if at == BLOCK and step.total is not None else at
    return Levels(*map(tuple, steps)) if steps[BLOCK] else None


def lives(steps: Sequence[Step]) -> dict[int, int]:
    """The last step that reads each register, or a view of it."""
    last = {s: at for at, step in enumerate(steps) for s in step.sources}
    for step in reversed(steps):
        if step.is_view:
            last |= {s: max(last[s], last.get(step.target, 0)) for s in step.sources}
    return last
