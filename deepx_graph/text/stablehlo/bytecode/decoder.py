"""Attributes, types and locations of a file of bytecode, decoded when something refers to them, each once.

Values are those that the parser of text gives: numbers with their types, words, lists, dictionaries, constants. An element type
is its name in text, which a tensor of it, or an attribute, makes something of. What a dialect encodes is in a table of its own, by
code.
An entry may be used many times, so the size of what it stands for, all that it refers to included, is bounded, and so is nesting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deepx_graph.errors import DeepxGraphError, LimitError, Source
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.stablehlo.bytecode.bytes import ByteReader
from deepx_graph.text.stablehlo.bytecode.container import Container, EncodedEntry
from deepx_graph.text.stablehlo.reader.scanner import MlirCursor, tensor_type
from deepx_graph.text.stablehlo.syntax import DialectAttribute, EnumWord, Struct
from deepx_graph.text.xla.mlir_text import string_text
from deepx_graph.types import FunctionType, TupleType, Type

MAX_PARTS = 1_000_000
"""Of how many parts an attribute or type may consist, a part counted wherever it is used."""
PART = 64
"""Characters of a text that count as one more."""
DYNAMIC = -(1 << 63)
"""A size that is not known."""

_ELEMENT = re.compile(r"\w+|complex<\w+>|!quant\..*")
"""An element type as text."""

Read = Callable[["EntryDecoder", ByteReader], Any]


@dataclass(frozen=True)
class Dialect:
    """How a dialect encodes its attributes and types, by code; a type is a Type, or the name of an element type."""

    attributes: Mapping[int, Read]
    types: Mapping[int, Read]


LOCATIONS = frozenset({10, 11, 12, 13, 14, 15, 22})
"""The codes of the builtin dialect that are locations."""


class EntryDecoder:
    """The attributes, types and locations of one file."""

    def __init__(self, container: Container, dialects: Mapping[str, Dialect], options: ReadOptions) -> None:
        self.container, self.dialects, self.options = container, dialects, options
        self.aliases: dict[str, str] = {}
        """The locations that were met, as text, each naming only earlier ones."""
        self._done: dict[tuple[str, int], tuple[Any, int]] = {}
        self._open: set[tuple[str, int]] = set()
        self._parts = 0

    # --- entries

    def attribute(self, r: ByteReader, index: int | None = None) -> Any:
        """The attribute of that number, which is the next one to read where it is not given."""
        return self._entry(r, "attribute", self.container.attributes, index)

    def optional(self, r: ByteReader) -> Any:
        """An attribute that may be missing, None then."""
        index, present = r.flagged()
        return self.attribute(r, index) if present else None

    def attributes(self, r: ByteReader) -> list[Any]:
        return r.several(lambda: self.attribute(r))

    def ints(self, r: ByteReader) -> list[int]:
        return r.several(r.signed)

    def string(self, r: ByteReader) -> str:
        return self.container.string(r)

    def element(self, r: ByteReader, index: int | None = None) -> Type | str:
        """A type, or the name of an element type."""
        found: Type | str = self._entry(r, "type", self.container.types, index)
        return found

    def type(self, r: ByteReader, index: int | None = None) -> Type:
        """The type of a value; a scalar for an element type."""
        at = r.at
        found = self.element(r, index)
        return found if isinstance(found, Type) else self.tensor(r, [], found, at)

    def types(self, r: ByteReader) -> tuple[Type, ...]:
        return tuple(r.several(lambda: self.type(r)))

    def word(self, r: ByteReader) -> str:
        """The name of an element type. Raises ParseError for another type."""
        at = r.at
        found = self.element(r)
        if not isinstance(found, str):
            raise r.fail(f"{found} stands where an element type must", at=at)
        return found

    def tensor(self, r: ByteReader, dims: list[int], element: str, at: int | None = None) -> Type:
        """The tensor of these dimensions."""
        if any(d < 0 and d != DYNAMIC for d in dims):
            raise r.fail("a tensor with a negative size", at=at)
        found = tensor_type(tuple(None if d == DYNAMIC else d for d in dims), element)
        if found is None:
            raise r.fail(f"unknown element type '{element}'", at=at)
        return found

    def _entry(self, r: ByteReader, what: str, entries: list[EncodedEntry], index: int | None) -> Any:
        at = r.at
        k = r.varint() if index is None else index
        entry = self.container.named(r, entries, what, k)
        key = (what, k)
        if key not in self._done:
            if key in self._open:
                raise r.fail(f"{what} {k} refers to itself", at=at)
            if len(self._open) > self.options.max_depth:
                raise LimitError(r.fail(f"attributes nest more than {self.options.max_depth} deep", at=at).diagnostics[0])
            self._open.add(key)
            around, self._parts = self._parts, 1
            value = self._decoded(what, entry)
            text = value.form if isinstance(value, DialectAttribute) else value
            self._parts += len(text) // PART if isinstance(text, str) else 0
            self._done[key] = value, self._parts
            self._parts = around
            self._open.remove(key)
        value, parts = self._done[key]
        self._parts += parts
        if self._parts > MAX_PARTS:
            raise LimitError(r.fail(f"{what} {k} consists of more than {MAX_PARTS} parts", at=at).diagnostics[0])
        return value

    def _decoded(self, what: str, entry: EncodedEntry) -> Any:
        r = self.reader(entry, what)
        if not entry.custom:
            text = r.word()
            r.done()
            return self._from_text(r, what, text)
        dialect = self.dialects.get(entry.dialect)
        code = r.varint()
        tables = {"attribute": dialect.attributes, "type": dialect.types} if dialect else {}
        read = tables.get(what, {}).get(code)
        if read is None:
            raise r.fail(f"{what} {code} of the dialect '{entry.dialect}' is not read", at=entry.start,
                         hint=f"the file was written by {self.container.producer}")
        value = read(self, r)
        r.done()
        return value

    def reader(self, entry: EncodedEntry, what: str) -> ByteReader:
        c = self.container
        return ByteReader(c.source, c.data, entry.start, entry.end, f"{what} of the dialect '{entry.dialect}'")

    def _from_text(self, r: ByteReader, what: str, text: str) -> Any:
        """What stands as text, as MLIR prints it."""
        if what == "type" and _ELEMENT.fullmatch(text):
            return text
        cursor = MlirCursor(Source(r.where, text))
        try:
            return cursor.type() if what == "type" else cursor.attribute()
        except DeepxGraphError:
            if what == "attribute" and text[:1] == "#" and not text.startswith("#stablehlo"):
                return DialectAttribute(*_named(text))
            raise r.fail(f"{what} '{text[:60]}' is not read", at=r.end - len(text) - 1) from None

    # --- locations

    def location(self, r: ByteReader) -> str:
        """The location that is named here: an alias of `aliases`."""
        at = r.at
        first = r.varint()
        stack, opened = [first], set[int]()
        while stack:
            k = stack[-1]
            if f"#loc{k}" in self.aliases:
                stack.pop()
                continue
            entry = self.container.named(r, self.container.attributes, "location", k)
            text, needs = self._location(entry)
            missing = [n for n in needs if f"#loc{n}" not in self.aliases]
            if missing and k in opened:
                raise r.fail(f"location {k} refers to itself", at=at)
            opened.add(k)
            stack += missing
            if not missing:
                self.aliases[f"#loc{k}"] = text
        return f"#loc{first}"

    def _location(self, entry: EncodedEntry) -> tuple[str, list[int]]:
        """A location as text, and those that it names."""
        r = self.reader(entry, "location")
        if not entry.custom:
            return r.word().removeprefix("loc(").removesuffix(")"), []
        code = r.varint()
        if entry.dialect != "builtin" or code not in LOCATIONS:
            raise r.fail("an attribute stands where a location must", at=entry.start)
        if code == 10:
            callee, caller = r.varint(), r.varint()
            return f"callsite(#loc{callee} at #loc{caller})", [callee, caller]
        if code in (12, 13):
            parts = r.several(r.varint)
            return f"fused[{', '.join(f'#loc{k}' for k in parts)}]", parts
        if code == 15:
            return "unknown", []
        name = string_text(str(self.attribute(r)))
        if code == 14:
            inner = r.varint()
            return f"{name}(#loc{inner})", [inner]
        numbers = r.several(r.varint) if code == 22 else [r.varint(), r.varint()]
        line, column = [*numbers, 0, 0][:2]
        return f"{name}:{line}:{column}", []


def _named(text: str) -> tuple[str, str]:
    """The name of an attribute of a dialect, and its form."""
    name, bracket, rest = text[1:].partition("<")
    return name, bracket + rest


def attribute_value(found: Type | str) -> Any:
    """A type as the value of an attribute: the word where it is an element type."""
    return EnumWord(found) if isinstance(found, str) else found


def struct(kind: str, **fields: Read) -> Read:
    """A struct of a dialect, its fields in order."""
    return lambda d, r: Struct(kind, {name: read(d, r) for name, read in fields.items()})


def words(kind: str, *names: str, start: int = 0) -> Read:
    """A word of a kind, by its number."""

    def read(d: EntryDecoder, r: ByteReader) -> EnumWord:
        at = r.at
        k = r.varint() - start
        if not 0 <= k < len(names):
            raise r.fail(f"{kind} {k + start} is not known", ", ".join(names), at=at)
        return EnumWord(names[k], kind)

    return read


def function_type(d: EntryDecoder, r: ByteReader) -> Type:
    return FunctionType(d.types(r), d.types(r))


def tuple_type(d: EntryDecoder, r: ByteReader) -> Type:
    return TupleType(d.types(r))


def tensor(d: EntryDecoder, r: ByteReader) -> Type:
    """A tensor: its sizes, then its element type."""
    at, dims = r.at, d.ints(r)
    return d.tensor(r, dims, d.word(r), at)


def encoded_tensor(d: EntryDecoder, r: ByteReader) -> Type:
    """A tensor with an encoding, which is read over."""
    d.attribute(r)
    return tensor(d, r)


def complex_type(d: EntryDecoder, r: ByteReader) -> str:
    return f"complex<{d.word(r)}>"


def sub_axis(d: EntryDecoder, r: ByteReader) -> EnumWord:
    """`(1)2`, a part of an axis of a mesh."""
    return EnumWord(f"({r.signed()}){r.signed()}")


def named_type(name: str) -> Read:
    """An element type that its code tells."""
    return lambda d, r: name
