"""The wire format of protocol buffers, as much of it as messages of known fields need.

Every length is held against the bytes that are there before anything is cut out, and nesting against a bound; what is wrong is told
with the offset of its byte. Source: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from deepx_graph.errors import Diagnostic, ParseError, Source, Span

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def looks_like_model(head: bytes) -> bool:
    """Whether a file begins as MindSpore's models do: field 1, a short version, then the name of the producer."""
    return head[:1] == b"\x0a" and 0 < len(head) > 2 and head[1] < 32 and b"MindSpore" in head[:96]


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
    """The bytes of a source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.data = source.text.encode("latin-1")

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
