"""The syntax tree of HLO text: what the parser gives and the lowering takes. Names are not resolved yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from deepx_graph.errors import Diagnostic, ParseError, Source, Span
from deepx_graph.text.hlo.reader.metadata import Places
from deepx_graph.types import Type


@dataclass(slots=True)
class Raw:
    """A piece of the text: an attribute's value as it stands, and where."""

    text: str
    start: int


@dataclass(slots=True)
class HloInstruction:
    """`name = type opcode(operands), attributes`. `payload` is the text between the parentheses."""

    name: str
    type: Type
    opcode: str
    payload: Raw
    operands: list[Raw]
    attributes: dict[str, Raw]
    is_root: bool
    start: int
    end: int
    operand_types: list[Type | None] = field(default_factory=list)
    shape: str = ""
    """The shape as it stands, where its layout is not the row-major one."""


@dataclass(slots=True)
class Computation:
    """A named list of instructions."""

    name: str
    instructions: list[HloInstruction]
    is_entry: bool
    start: int
    end: int
    params: list[Type] | None = None
    result: Type | None = None

    @property
    def root(self) -> HloInstruction:
        return next((i for i in self.instructions if i.is_root), self.instructions[-1])


@dataclass
class HloProgram:
    """A module's text."""

    source: Source
    name: str
    attributes: dict[str, Raw]
    computations: list[Computation]
    tables: dict[str, dict[int, str]]

    @cached_property
    def places(self) -> Places:
        """The places in the user's program that `metadata` tells."""
        return Places(self.tables)

    def place(self, i: HloInstruction) -> Span:
        """Where an instruction stands, and what it was made from."""
        metadata = i.attributes.get("metadata")
        return Span(self.source, i.start, i.end, self.places.of(metadata.text) if metadata else None)

    def span(self, start: int, end: int) -> Span:
        return Span(self.source, start, end)

    def error(self, message: str, at: Raw | HloInstruction, expected: str | None = None, hint: str | None = None) -> ParseError:
        """A ParseError placed at a piece of the text."""
        span = self.place(at) if isinstance(at, HloInstruction) else self.span(at.start, at.start + len(at.text))
        return ParseError(Diagnostic(message, span, expected=expected, hint=hint))
