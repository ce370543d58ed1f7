"""Protocol buffers: the wire format, and messages decoded by tables of fields.

A format declares its messages as dataclasses of plain data and a `Schema`: for each of them the fields by number, each with how its
values are read. Fields that the schema does not have are skipped. Every length is held against the bytes that are there before
anything is cut out, nesting and the number of messages against bounds; what is wrong is told with the offset of its byte. Bytes are
views of the source, never copies. Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span
from deepx_graph.text.common.options import ReadOptions

Message = TypeVar("Message")

# --- the wire format ------------------------------------------------------------------------------------------------

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message: its number, wire type and place; a number for VARINT, else the bounds of its bytes."""

    number: int
    kind: int
    at: int
    value: int
    start: int
    end: int


class WireReader:
    """The bytes of a binary source."""

    def __init__(self, source: Source) -> None:
        assert source.data is not None
        self.source, self.data = source, source.data

    def fail(self, at: int, message: str, expected: str | None = None) -> ParseError:
        """The error for something at a byte."""
        return ParseError(Diagnostic(message, Span(self.source, at, at + 1), expected=expected))

    def fields(self, start: int, end: int) -> Iterator[Field]:
        """The fields of the message in a range of bytes. Raises ParseError for what is cut short or malformed."""
        at = start
        while at < end:
            first = at
            key, at = self.varint(at, end)
            number, kind = key >> 3, key & 7
            if not number:
                raise self.fail(first, "a field has the number 0", "a message of protocol buffers")
            value, begin = 0, at
            if kind == VARINT:
                value, at = self.varint(at, end)
            elif kind == BYTES:
                length, begin = self.varint(at, end)
                if length > end - begin:
                    raise self.fail(first, f"field {number} has {length} bytes, but its message ends after {end - begin}")
                at = begin + length
            elif kind in (FIXED64, FIXED32):
                at += 8 if kind == FIXED64 else 4
                if at > end:
                    raise self.fail(first, f"field {number} is cut short")
            else:
                raise self.fail(first, f"field {number} has wire type {kind}", "0, 1, 2 or 5")
            yield Field(number, kind, first, value, begin, at)

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """An unsigned number of at most 64 bits, and where it ends."""
        value = shift = 0
        first = at
        while at < end and shift < 70:
            byte = self.data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
            shift += 7
        raise self.fail(first, "a number has more than 64 bits" if at < end else "the file ends within a number")


def signed(value: int) -> int:
    """A varint as an int64."""
    return value - (1 << 64) if value >> 63 else value


# --- decoding by a schema -------------------------------------------------------------------------------------------

Values = Callable[["Decoder", Field, int], list[Any]]
"""The values of a field in a message at some depth: one, or a packed list of them."""

Schema = Mapping[type, Mapping[int, tuple[str, Values]]]
"""For each message its fields by number: the attribute that holds them, and how their values are read.

An attribute that is a list gets all values, any other the last one. Each message has an attribute `at`, the offset of its field.
"""


class Decoder:
    """Decodes the messages of a schema; counts them against a bound."""

    def __init__(self, source: Source, schema: Schema, options: ReadOptions) -> None:
        self.wire, self.schema = WireReader(source), schema
        self.left, self.max_depth = 8 * options.max_nodes, options.max_depth

    def whole(self, kind: type[Message]) -> Message:
        """The message that all bytes are."""
        return self.message(kind, 0, len(self.wire.data), 0, 0)

    def delimited(self, at: int) -> tuple[int, int]:
        """The bounds of the message whose length stands at an offset. Raises ParseError where it ends beyond the bytes."""
        length, start = self.wire.varint(at, len(self.wire.data))
        if length > len(self.wire.data) - start:
            raise self.wire.fail(at, f"a message of {length} bytes is announced and {len(self.wire.data) - start} follow")
        return start, start + length

    def message(self, kind: type[Message], start: int, end: int, at: int, depth: int) -> Message:
        """The message in a range of bytes. Raises ParseError, or LimitError for too many messages or too deep ones."""
        self.left -= 1
        if self.left < 0 or depth > self.max_depth:
            what = "too many messages" if self.left < 0 else f"messages nest more than {self.max_depth} deep"
            raise LimitError(self.wire.fail(at, what).diagnostics[0])
        made: Any = kind()
        made.at = at
        known = self.schema[kind]
        for f in self.wire.fields(start, end):
            if f.number in known:
                name, read = known[f.number]
                values = read(self, f, depth)
                held = getattr(made, name)
                if isinstance(held, list):
                    held += values
                elif values:
                    setattr(made, name, values[-1])
        return made  # type: ignore[no-any-return]


def raw_bytes(d: Decoder, f: Field, depth: int = 0) -> list[memoryview]:
    """Bytes as they stand in the source."""
    if f.kind != BYTES:
        raise d.wire.fail(f.at, f"field {f.number} is not bytes")
    return [d.wire.data[f.start : f.end]]


def text(d: Decoder, f: Field, depth: int) -> list[str]:
    """A string."""
    try:
        return [str(raw_bytes(d, f)[0], "utf-8")]
    except UnicodeDecodeError:
        raise d.wire.fail(f.at, "a name is not UTF-8 text") from None


def text_or_bytes(d: Decoder, f: Field, depth: int) -> list[str]:
    """A string that need not be text."""
    return [str(raw_bytes(d, f)[0], "utf-8", "replace")]


def numbers(d: Decoder, f: Field, depth: int) -> list[int]:
    """Integers, one or packed, as int64."""
    if f.kind != BYTES:
        return [signed(f.value)]
    found, at = [], f.start
    while at < f.end:
        value, at = d.wire.varint(at, f.end)
        found.append(signed(value))
    return found


def present(d: Decoder, f: Field, depth: int) -> list[bool]:
    """That the field is there, whatever it holds."""
    return [True]


@dataclass(frozen=True, slots=True)
class Reals:
    """Floats (`f`) or doubles (`d`), one or packed."""

    code: str

    def __call__(self, d: Decoder, f: Field, depth: int) -> list[float]:
        size, length = struct.calcsize(self.code), f.end - f.start
        if f.kind not in (BYTES, FIXED32 if size == 4 else FIXED64) or length % size:
            raise d.wire.fail(f.at, f"field {f.number} is not a list of numbers of {size} bytes")
        return list(struct.unpack(f"<{length // size}{self.code}", d.wire.data[f.start : f.end]))


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of a tensor that stand as numbers of their own, as their bytes; `code` as in `struct`."""

    code: str

    def __call__(self, d: Decoder, f: Field, depth: int) -> list[bytes]:
        if self.code in "fd":
            values = Reals(self.code)(d, f, depth)
            return [struct.pack(f"<{len(values)}{self.code}", *values)]
        mask = (1 << 8 * struct.calcsize("<" + self.code)) - 1
        whole = numbers(d, f, depth)
        return [struct.pack(f"<{len(whole)}{self.code.upper()}", *(v & mask for v in whole))]


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of the schema."""

    kind: type

    def __call__(self, d: Decoder, f: Field, depth: int) -> list[Any]:
        raw_bytes(d, f)
        return [d.message(self.kind, f.start, f.end, f.at, depth + 1)]


reals, elements, messages = Reals, Elements, Messages
