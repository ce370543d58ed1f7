"""The sections of a file of MLIR bytecode: strings, dialects with the names of their operations, entries of attributes and types,
properties, resources, and the operations themselves.

Entries of attributes and types are only located here; `attributes` decodes them when something refers to them.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from deepx_graph.errors import Source
from deepx_graph.text.stablehlo.bytecode.bytes import ByteReader, text_of

T = TypeVar("T")
MAGIC = b"ML\xefR"
NEWEST = 6
"""The newest version of the format that is read."""

STRINGS, DIALECTS, ENTRIES, OFFSETS, IR, RESOURCES, RESOURCE_OFFSETS, DIALECT_VERSION, PROPERTIES = range(9)
SECTIONS = ("strings", "dialects", "attributes and types", "offsets of attributes and types", "operations", "resources",
            "offsets of resources", "version of a dialect", "properties")
"""What the sections are, by number."""
_ALIGNED = 0x80
_BLOB = 0


class EncodedEntry(NamedTuple):
    """Where an attribute or type lies; `custom` where its dialect encodes it, else it is text."""

    dialect: str
    custom: bool
    start: int
    end: int


class OperationName(NamedTuple):
    """An operation that a file uses; `registered` is None where the file does not say how its properties lie."""

    name: str
    registered: bool | None


class Container:
    """One file. Raises ParseError where it is damaged or of a newer version."""

    def __init__(self, source: Source, data: memoryview, start: int, end: int) -> None:
        self.source, self.data = source, data
        self._start = start
        r = ByteReader(source, data, start, end, "MLIR bytecode", start)
        if r.take(min(4, r.left)) != MAGIC:
            raise r.fail("it does not begin as bytecode does", "the bytes 4d 4c ef 52", at=start)
        self.version = r.varint()
        if self.version > NEWEST:
            raise r.fail(f"version {self.version} of the format", f"versions 0 to {NEWEST}", "write it with an older MLIR")
        self.producer = r.word()
        self._sections: dict[int, tuple[int, int]] = {}
        while r.left:
            number, body = section(r)
            if number in self._sections or number == DIALECT_VERSION:
                raise r.fail(f"a second section of {SECTIONS[number]}")
            self._sections[number] = (body.at, body.end)
        self.strings = self._strings(self.section(STRINGS))
        self.dialects: list[str] = []
        self.operations: list[OperationName] = []
        self._dialects(self.section(DIALECTS))
        self.properties = self._properties()
        self.resources = self._resources()
        self.attributes: list[EncodedEntry] = []
        self.types: list[EncodedEntry] = []
        self._entries(self.section(OFFSETS))

    def section(self, number: int) -> ByteReader:
        """The bytes of a section. Raises ParseError where it is missing."""
        start, end = self._sections.get(number, (-1, -1))
        r = ByteReader(self.source, self.data, start, end, f"section of {SECTIONS[number]}", self._start)
        if start < 0:
            raise ByteReader(self.source, self.data, 0, 0, "MLIR bytecode").fail(f"the section of {SECTIONS[number]} is missing")
        return r

    def string(self, r: ByteReader, index: int | None = None) -> str:
        """A string, by its number, which is the next one to read where it is not given."""
        return self.named(r, self.strings, "string", index)

    @staticmethod
    def named(r: ByteReader, things: list[T], what: str, index: int | None = None) -> T:
        """The thing of that number. Raises ParseError where there are not so many."""
        at = r.at
        k = r.varint() if index is None else index
        if k >= len(things):
            raise r.fail(f"{what} {k} is named and there are {len(things)}", at=at)
        return things[k]

    def _strings(self, r: ByteReader) -> list[str]:
        sizes = r.several(r.varint)
        found = [text_of(r.take(size)[:-1]) for size in reversed(sizes)]
        r.done()
        return found

    def _dialects(self, r: ByteReader) -> None:
        for _ in range(r.count()):
            if self.version < 1:
                self.dialects.append(self.string(r))
                continue
            index, versioned = r.flagged()
            self.dialects.append(self.string(r, index))
            if versioned:
                section(r)
        if self.version >= 4:
            r.varint()
        while r.left:
            dialect = self.named(r, self.dialects, "dialect")
            for _ in range(r.count()):
                index, registered = r.flagged() if self.version >= 5 else (r.varint(), None)
                self.operations.append(OperationName(f"{dialect}.{self.string(r, index)}", registered))

    def _properties(self) -> list[tuple[int, int]]:
        if PROPERTIES not in self._sections:
            return []
        r = self.section(PROPERTIES)
        found = r.several(lambda: (r.skip(r.varint()), r.at))
        r.done()
        return found

    def _resources(self) -> list[tuple[str, memoryview | None]]:
        """Those of dialects, in order, each a name and its bytes where it has any."""
        if RESOURCE_OFFSETS not in self._sections:
            return []
        offsets, data = self.section(RESOURCE_OFFSETS), self.section(RESOURCES)
        found: list[tuple[str, memoryview | None]] = []
        for _ in range(offsets.count()):  # of others than dialects
            self.string(offsets)
            self._group(offsets, data)
        while offsets.left:
            self.named(offsets, self.dialects, "dialect")
            found += self._group(offsets, data)
        return found

    def _group(self, offsets: ByteReader, data: ByteReader) -> list[tuple[str, memoryview | None]]:
        found: list[tuple[str, memoryview | None]] = []
        for _ in range(offsets.count()):
            key, size, kind = self.string(offsets), offsets.varint(), offsets.byte()
            r = data.inner(size)
            value = None
            if size and kind == _BLOB:
                alignment, length = r.varint(), r.varint()
                r.align(alignment)
                value = r.take(length)
                r.done()
            found.append((key, value))
        return found

    def _entries(self, offsets: ByteReader) -> None:
        data = self.section(ENTRIES)
        counts = offsets.varint(), offsets.varint()
        for entries, count in zip((self.attributes, self.types), counts, strict=True):
            offsets.counted(count)
            while len(entries) < count:
                dialect = self.named(offsets, self.dialects, "dialect")
                for _ in range(offsets.count()):
                    size, custom = offsets.flagged()
                    entries.append(EncodedEntry(dialect, custom, data.skip(size), data.at))
            if len(entries) > count:
                raise offsets.fail(f"{len(entries)} entries are located and {count} are announced")
        offsets.done()


def section(r: ByteReader) -> tuple[int, ByteReader]:
    """The section that begins here, which is passed over: its number and its bytes."""
    at = r.at
    head, length = r.byte(), r.varint()
    number = head & ~_ALIGNED
    if number >= len(SECTIONS):
        raise r.fail(f"a section of the unknown kind {number}", at=at)
    if head & _ALIGNED:
        r.align(r.varint())
    return number, r.inner(length, f"section of {SECTIONS[number]}")
