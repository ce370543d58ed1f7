"""Bytes of a file, read from the front: numbers, lists and sections as MLIR's bytecode has them.

Every length is held against the bytes that are left before anything is taken, and every count too, as each of its elements takes a
byte at least. What is wrong is told with the offset of its byte and the name of its section.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from deepx_graph.errors import Diagnostic, ParseError, Source, Span

T = TypeVar("T")
PADDING = 0xCB
"""What stands before something that is aligned."""


class ByteReader:
    """The bytes `[at, end)` of a source; `where` is the name of what they are. Alignment counts from `origin`."""

    __slots__ = ("at", "data", "end", "origin", "source", "where")

    def __init__(self, source: Source, data: memoryview, at: int, end: int, where: str, origin: int = 0) -> None:
        self.source, self.data, self.at, self.end, self.where, self.origin = source, data, at, end, where, origin

    def fail(self, message: str, expected: str | None = None, hint: str | None = None, at: int | None = None) -> ParseError:
        """The error for something at a byte, by default the next one."""
        start = min(self.at if at is None else at, max(0, len(self.data) - 1))
        return ParseError(Diagnostic(f"{self.where}: {message}", Span(self.source, start, start + 1), expected=expected, hint=hint))

    @property
    def left(self) -> int:
        """How many bytes there are to read."""
        return self.end - self.at

    def done(self) -> None:
        """Raises ParseError where something is left."""
        if self.left:
            raise self.fail(f"{self.left} bytes are left over")

    def inner(self, length: int, where: str = "") -> ByteReader:
        """The next bytes, to be read by themselves."""
        return ByteReader(self.source, self.data, self.skip(length), self.at, where or self.where, self.origin)

    def skip(self, length: int) -> int:
        """The offset of the next bytes, which are passed over."""
        if length > self.left:
            raise self.fail(f"{length} bytes are announced and {self.left} are left")
        self.at += length
        return self.at - length

    def take(self, length: int) -> memoryview:
        start = self.skip(length)
        return self.data[start : self.at]

    def byte(self) -> int:
        return self.data[self.skip(1)]

    def varint(self) -> int:
        """An unsigned number of 64 bits: as many zeros end its first byte as bytes follow."""
        first = self.byte()
        if first & 1:
            return first >> 1
        if first == 0:
            return int.from_bytes(self.take(8), "little")
        more = (first & -first).bit_length() - 1
        return (first | int.from_bytes(self.take(more), "little") << 8) >> (more + 1)

    def signed(self) -> int:
        """A signed number, its sign in the lowest bit."""
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def flagged(self) -> tuple[int, bool]:
        """A number, and the flag that is its lowest bit."""
        value = self.varint()
        return value >> 1, bool(value & 1)

    def double(self) -> float:
        """An f64, its bits as a signed number."""
        value: float = struct.unpack("<d", struct.pack("<Q", self.signed() & (1 << 64) - 1))[0]
        return value

    def counted(self, count: int) -> int:
        """A count of things that follow, each at least a byte."""
        if count > self.left:
            raise self.fail(f"{count} things are announced and {self.left} bytes are left")
        return count

    def count(self) -> int:
        """How many things follow, each at least a byte."""
        return self.counted(self.varint())

    def several(self, read: Callable[[], T]) -> list[T]:
        """A list: how many, then each."""
        return [read() for _ in range(self.count())]

    def blob(self) -> memoryview:
        return self.take(self.varint())

    def word(self) -> str:
        """The text up to a zero byte."""
        length = next((k for k, byte in enumerate(self.data[self.at : self.end]) if byte == 0), -1)
        if length < 0:
            raise self.fail("a word does not end", "a zero byte")
        return text_of(self.take(length + 1)[:-1])

    def align(self, to: int) -> None:
        """Over the padding up to an offset that is a multiple."""
        if to == 0 or to & (to - 1):
            raise self.fail(f"an alignment of {to}", "a power of two")
        while (self.at - self.origin) % to:
            if self.byte() != PADDING:
                raise self.fail("the padding before something aligned is damaged", f"bytes 0x{PADDING:x}", at=self.at - 1)


def text_of(data: memoryview) -> str:
    """UTF-8 text; what is none is marked."""
    return str(data, "utf-8", "replace")
