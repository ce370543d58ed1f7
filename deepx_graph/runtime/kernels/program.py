"""`KernelProgram`: a kernel as a straight line of steps over numbered registers; `BlockPlan`: how it is cut into blocks.

Every register lives in one space of loop axes: its shape has an extent of 1 along each axis on which it does not depend, so
numpy's broadcasting joins them. A step writes its target and nothing else, and each register is written once.

A plan says which axis is split into blocks, and what runs before, in and after them. Level 0 runs once, before the blocks, and
depends on none of the split axes; level 1 runs on every block; level 2 runs once, after them, on reductions across blocks.
Programs and plans are plain frozen data; every plan gives the same values up to the order of sums.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Op
from deepx_graph.runtime.kernels.costs import BLOCK_ELEMENTS, THREADED_ELEMENTS

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]
Call = Callable[..., Any]
"""`call(*sources, target)`: computes into the target array."""


@dataclass(frozen=True, slots=True)
class Register:
    """A value: its dtype and its extent along every axis of the space (the axis' size, or 1)."""

    dtype: np.dtype[Any]
    shape: Shape

    @property
    def size(self) -> int:
        size = 1
        for extent in self.shape:
            size *= extent
        return size


@dataclass(frozen=True, slots=True)
class Reduction:
    """How a step reduces: the monoid, and the axes that go."""

    op: Op
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """`call(*sources, target)`.

    `primitive` names the kernel primitive, "" where the op is none; the callable may be the op's own eval all the same. `in_place`
    tells that the target may take the memory of a source of the same shape.
    """

    target: int
    sources: tuple[int, ...]
    call: Call
    primitive: str = ""
    in_place: bool = False
    reduction: Reduction | None = None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A register filled from argument `param`: through some view ops, axes put into `order`, then reshaped to the register."""

    register: int
    param: int
    views: tuple[tuple[Op, tuple[Any, ...]], ...] = ()
    order: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class KernelProgram:
    """A whole kernel. `results` are registers written by a step each, `result_shapes` what the caller gets them as."""

    space: Shape
    registers: tuple[Register, ...]
    leaves: tuple[Leaf, ...]
    constants: tuple[tuple[int, Array], ...]
    steps: tuple[Step, ...]
    results: tuple[int, ...]
    result_shapes: tuple[Shape, ...]


BEFORE, BLOCK, AFTER = 0, 1, 2
_EXACT_PARTIALS = frozenset("?biuf")
"""Kinds whose partial results can be combined later without rounding twice; narrow floats are checked by size."""


@dataclass(frozen=True)
class BlockPlan:
    """`axis` is the split axis, -1 when the whole space is one piece; `rows` how much of it a block takes."""

    axis: int
    rows: int
    levels: tuple[tuple[Step, ...], ...]
    """Steps before, in and after the blocks; a reduction across blocks is in the middle and its total wanted after."""
    level_of: tuple[int, ...]
    """For each register, the level at which its value exists."""
    partial: frozenset[int]
    """Targets of reductions across blocks."""

    def blocks(self, space: Shape) -> Iterator[tuple[slice, ...]]:
        """The index of every block, in order, over axes 0 to `axis`."""
        outer = [[slice(k, k + 1) for k in range(n)] for n in space[: self.axis]]
        size = space[self.axis]
        along = [slice(k, min(size, k + self.rows)) for k in range(0, size, self.rows)]
        return itertools.product(*outer, along)

    def block_count(self, space: Shape) -> int:
        """How many blocks there are."""
        return 1 if self.axis < 0 else math.prod(space[: self.axis]) * -(-space[self.axis] // self.rows)


def plan(program: KernelProgram, block_elements: int = BLOCK_ELEMENTS) -> BlockPlan:
    """The plan with blocks of about that many elements, or the nearest one that the reductions allow."""
    space, size = program.space, math.prod(program.space)
    if size >= THREADED_ELEMENTS:  # enough for two threads
        block_elements = min(block_elements, -(-size // 2))
    if size > block_elements:
        first = next(k for k in range(len(space)) if math.prod(space[k + 1 :]) <= block_elements)
        for axis in range(first, -1, -1):
            found = _split(program, axis, _rows(space, axis, block_elements))
            if found is not None:
                return found
    return BlockPlan(-1, 0, (program.steps, (), ()), (BEFORE,) * len(program.registers), frozenset())


def _rows(space: Shape, axis: int, block_elements: int) -> int:
    """How much of the axis a block takes: as much as fits, all blocks alike. Never a matter of the number of threads,
    on which no sum may depend."""
    most = max(1, block_elements // math.prod(space[axis + 1 :]))
    return -(-space[axis] // -(-space[axis] // most))


def _split(program: KernelProgram, axis: int, rows: int) -> BlockPlan | None:
    """The plan with that split axis; None when something is needed in a block that is known only after all of them."""
    split = range(axis + 1)
    varies = [any(r.shape[k] > 1 for k in split) for r in program.registers]
    level = [BLOCK if v else BEFORE for v in varies]
    steps: tuple[list[Step], ...] = ([], [], [])
    partial: set[int] = set()
    for step in program.steps:
        at = max(level[s] for s in step.sources)
        if varies[step.target]:
            if at == AFTER:
                return None
            at = BLOCK
        crosses = at == BLOCK and step.reduction is not None and any(k in split for k in step.reduction.axes)
        if crosses:
            if not _can_cross(program, step, axis):
                return None
            partial.add(step.target)
        steps[at].append(step)
        level[step.target] = AFTER if crosses else at
    return BlockPlan(axis, rows, tuple(map(tuple, steps)), tuple(level), frozenset(partial))


def _can_cross(program: KernelProgram, step: Step, axis: int) -> bool:
    """All split axes go, and the dtype can hold partial results."""
    dtype = program.registers[step.target].dtype
    assert step.reduction is not None
    whole = all(k in step.reduction.axes for k in range(axis + 1))
    return whole and dtype.kind in _EXACT_PARTIALS and not (dtype.kind == "f" and dtype.itemsize < 4)


def wider(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """The dtype in which partial results of `dtype` are combined: double for single precision."""
    return np.dtype(np.float64) if dtype == np.float32 else dtype
