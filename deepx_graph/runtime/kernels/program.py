"""`KernelProgram`: a kernel as a straight line of steps over numbered registers, ready to be cut into blocks.

Every register lives in one space of loop axes: its shape has an extent of 1 along each axis on which it does not depend, so
numpy's broadcasting joins them. A step writes its target and nothing else, and each register is written once. Programs are
plain frozen data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Op

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
    """`target = call(sources)`.

    `primitive` names the kernel primitive, "" where the op is none. `make` gives the callable, which may be the op's own eval
    all the same, a new one for each workspace where it has state of its own. `in_place` tells that the target may take the
    memory of a source of the same shape.
    """

    target: int
    sources: tuple[int, ...]
    make: Callable[[], Call]
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
