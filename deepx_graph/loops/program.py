"""A loop program: buffers, and structured statements that fill them.

Nothing else is in one: no Python objects, no jumps. A variable is seen in its block behind where it is assigned, and in the blocks
within; what changes from iteration to iteration is in buffers and cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from deepx_graph.literal import Array
from deepx_graph.loops.scalar import Affine, Scalar, ScalarVar
from deepx_graph.types import DType

Role = Literal["argument", "result", "constant", "scratch", "local"]


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Memory for elements of one dtype in the order of C. A complex element is two numbers, along a last axis of its own.

    `local` memory is small, and each thread's own; `array` are the elements of a constant. Where there are `parts`, the real
    and the imaginary numbers are in these, and nothing is in the buffer itself.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    role: Role
    array: Array | None = None
    parts: tuple[Buffer, ...] = ()

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """In elements."""
        found, stride = list[int](), 1
        for size in reversed(self.shape):
            found.append(stride)
            stride *= size
        return tuple(reversed(found))

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A scalar that is assigned again and again; each thread's own."""

    number: int
    dtype: DType

    def __repr__(self) -> str:
        return f"${self.number}"


@dataclass(slots=True, eq=False)
class Let:
    """`target = primitive(args)`. The primitives are those of kernel expressions, and `loops.primitives.MORE`."""

    target: ScalarVar
    primitive: str
    args: tuple[Scalar, ...]


@dataclass(slots=True, eq=False)
class Load:
    """`target = buffer[index]`; the subscripts lie within the shape. One alone counts all elements in the order of C."""

    target: ScalarVar
    buffer: Buffer
    index: tuple[Affine, ...]


@dataclass(slots=True, eq=False)
class Store:
    """`buffer[index] = value`."""

    buffer: Buffer
    index: tuple[Affine, ...]
    value: Scalar


@dataclass(slots=True, eq=False)
class Copy:
    """All elements of a buffer into another of its size, which may be the same memory. Stands at the top level only."""

    target: Buffer
    source: Buffer


@dataclass(slots=True, eq=False)
class Get:
    """`target = cell`."""

    target: ScalarVar
    cell: Cell


@dataclass(slots=True, eq=False)
class Set:
    """`cell = value`."""

    cell: Cell
    value: Scalar


@dataclass(slots=True, eq=False)
class Combine:
    """`cell = primitive(cell, value)`, where the order in which a loop combines values is free."""

    cell: Cell
    primitive: str
    value: Scalar


@dataclass(slots=True, eq=False)
class For:
    """The body for `axis` from `low` up to below `high`. The iterations of a `parallel` loop may run in any order, and at once."""

    axis: ScalarVar
    low: Affine
    high: Affine
    body: list[Statement] = field(default_factory=list)
    parallel: bool = False


@dataclass(slots=True, eq=False)
class While:
    """`test`, which computes `condition`, and the body while that is true, which sees what `test` has assigned."""

    test: list[Statement]
    condition: Scalar
    body: list[Statement]


@dataclass(slots=True, eq=False)
class Conditional:
    """One of two blocks."""

    condition: Scalar
    then: list[Statement]
    otherwise: list[Statement]
    usual: bool = False
    """Whether the first one is what is asked for as a rule: the other one is left out where costs are counted."""


Statement = Let | Load | Store | Copy | Get | Set | Combine | For | While | Conditional


@dataclass(eq=False)
class LoopProgram:
    """Arguments and results are buffers that the caller gives; each result is filled whole, and shares memory with no argument."""

    arguments: tuple[Buffer, ...]
    results: tuple[Buffer, ...]
    constants: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]
    body: list[Statement]
    last: int | None = None
    """No variable, cell or buffer has a greater number, once a pass has asked for a new one."""


def position_in(buffer: Buffer, index: Sequence[Affine]) -> Affine:
    """Where an element lies, in elements from the beginning."""
    if len(index) == 1:
        return index[0]
    factors: dict[ScalarVar, int] = {}
    constant = 0
    for i, stride in zip(index, buffer.strides, strict=True):
        constant += i.constant * stride
        for var, factor in i.terms:
            factors[var] = factors.get(var, 0) + factor * stride
    return Affine(tuple([(v, f) for v, f in factors.items() if f]), constant)


def needed_index(buffer: Buffer, index: Sequence[Affine]) -> tuple[Affine, ...]:
    """Subscripts, or the position alone where that depends on fewer variables: x[q, 64 i + k - 256 q] of rows of 256 elements is at
    64 i + k, whatever row q is."""
    at = position_in(buffer, index)
    return (at,) if len(index) > 1 and len(at.terms) < len(set(variables(index))) else tuple(index)


def blocks_of(s: Statement) -> tuple[list[Statement], ...]:
    """The blocks within a statement."""
    if isinstance(s, For):
        return (s.body,)
    if isinstance(s, Conditional):
        return (s.then, s.otherwise)
    return (s.test, s.body) if isinstance(s, While) else ()


_NESTED = (For, Conditional, While)


def walk(body: Sequence[Statement]) -> Iterator[Statement]:
    """All statements, each before those within it."""
    rest = list(reversed(body))
    while rest:
        s = rest.pop()
        yield s
        if isinstance(s, _NESTED):
            for block in reversed(blocks_of(s)):
                rest += reversed(block)


def free(s: Statement) -> set[ScalarVar | Cell]:
    """The variables and cells that a statement reads and does not assign."""
    read: set[ScalarVar | Cell] = set()
    made: set[ScalarVar | Cell] = set()
    for each in walk([s]):
        read.update(reads(each))
        made.update(assigns(each))
    return read - made


def reads(s: Statement) -> list[ScalarVar | Cell]:
    """The variables and cells that a statement itself reads, without the blocks within it."""
    if isinstance(s, Let):
        return variables(s.args)
    if isinstance(s, Load):
        return variables(s.index)
    if isinstance(s, Store):
        return variables((*s.index, s.value))
    if isinstance(s, For):
        return variables((s.low, s.high))
    if isinstance(s, Combine):
        return [s.cell, *variables((s.value,))]
    if isinstance(s, Get):
        return [s.cell]
    if isinstance(s, Copy):
        return []
    return variables((s.value,) if isinstance(s, Set) else (s.condition,))


def operands(s: Statement) -> Sequence[Scalar]:
    """The values that a statement computes with, stores or combines."""
    if isinstance(s, Let):
        return s.args
    return (s.value,) if isinstance(s, (Store, Set, Combine)) else ()


def variables(scalars: Sequence[Scalar]) -> list[ScalarVar | Cell]:
    """The variables in some scalars."""
    found: list[ScalarVar | Cell] = []
    for x in scalars:
        if isinstance(x, ScalarVar):
            found.append(x)
        elif isinstance(x, Affine):
            found += [v for v, _ in x.terms]
    return found


def assigns(s: Statement) -> tuple[ScalarVar | Cell, ...]:
    """Those that it assigns itself. `Combine` only changes a cell."""
    if isinstance(s, (Let, Load, Get)):
        return (s.target,)
    if isinstance(s, Set):
        return (s.cell,)
    return (s.axis,) if isinstance(s, For) else ()
