"""The syntax tree of MLIR text, as far as StableHLO programs use it: operations with regions, and attribute values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from deepx_graph.types import TupleType, Type

VJP = "deepx.vjp"
"""The attribute by which a function names its own derivative."""


@dataclass(frozen=True)
class Symbol:
    """`@name`."""

    name: str


@dataclass(frozen=True)
class EnumWord:
    """A bare word, or the word inside `#stablehlo<kind WORD>`."""

    text: str
    kind: str = ""


@dataclass(frozen=True)
class Typed:
    """`value : type`."""

    value: Any
    type: Type


@dataclass(frozen=True)
class Dense:
    """`dense<text> : type`; `text` is what stands between the brackets, at offset `start`.

    Of bytecode there are the bytes instead: those of one element for all, or of each in row-major order.
    """

    text: str
    type: Type | None
    start: int
    raw: memoryview | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Noted:
    """The value of an attribute of another dialect, as it stands."""

    text: str


@dataclass(frozen=True)
class DialectAttribute:
    """`#dialect.kind<form>` of another dialect; `form` has the brackets."""

    kind: str
    form: str


class Struct(dict[str, Any]):
    """`#stablehlo.kind<field = value, ...>`: its fields, and its kind, where a reader kept it."""

    def __init__(self, kind: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.kind = kind


class DenseArray(list[Any]):
    """`array<element: value, ...>`: its values, and the name of its element type."""

    def __init__(self, element: str, values: Iterable[Any]) -> None:
        super().__init__(values)
        self.element = element


class BlockArgument(NamedTuple):
    """An argument of a block: `start` is the offset of its name."""

    name: str
    type: Type
    start: int
    location: str = ""
    attributes: dict[str, Any] = {}  # noqa: RUF012 - never changed


@dataclass(slots=True)
class RegionBlock:
    """Arguments and operations."""

    args: list[BlockArgument]
    operations: list[Operation]


@dataclass(slots=True)
class Operation:
    """One operation in either form. `operands` are names with their offsets; `words` the bare words of the pretty form."""

    name: str
    results: list[str]
    start: int
    end: int
    operands: list[tuple[str, int]] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)
    regions: list[list[RegionBlock]] = field(default_factory=list)
    operand_types: list[Type] = field(default_factory=list)
    result_types: list[Type] = field(default_factory=list)
    location: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


class ParsedProgram(NamedTuple):
    """The functions of a program, with other operations beside them; its locations by alias, `#loc3` and what stands between the
    parentheses; the operation that holds it.
    """

    functions: list[Operation]
    aliases: Mapping[str, str]
    module: Operation | None


def future_of(types: Sequence[Type]) -> Type:
    """What a future of values is here: what is begun is done, so that they are there; several of them are a tuple."""
    return types[0] if len(types) == 1 else TupleType(tuple(types))


def unwrapped(operations: list[Operation]) -> tuple[Operation | None, list[Operation]]:
    """The module that some operations are, the innermost where several stand in one another, and what is in it."""
    module = None
    while len(operations) == 1 and operations[0].name == "builtin.module":
        module = operations[0]
        operations = [op for region in module.regions[:1] for block in region for op in block.operations]
    return module, operations


def plain(value: Any) -> Any:
    """Words and typed numbers without their wrapping."""
    if isinstance(value, Typed):
        return plain(value.value)
    if isinstance(value, EnumWord):
        return value.text
    if isinstance(value, list):
        return [plain(v) for v in value]
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value
