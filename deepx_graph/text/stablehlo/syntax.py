"""The syntax tree of MLIR text, as far as StableHLO programs use it: operations with regions, and attribute values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from deepx_graph.types import Type

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


@dataclass(frozen=True)
class Typed:
    """`value : type`."""

    value: Any
    type: Type


@dataclass(frozen=True)
class Dense:
    """`dense<text> : type`; `text` is what stands between the brackets, at offset `start`."""

    text: str
    type: Type | None
    start: int


@dataclass(frozen=True)
class Noted:
    """The value of an attribute of another dialect, as it stands."""

    text: str


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
