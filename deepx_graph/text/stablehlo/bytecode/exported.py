"""Files of `jax.export`: a FlatBuffer that has a portable artifact, what its arguments and results are in JAX, and maybe its
derivative, which is such a table again.

Source: jax/_src/export/serialization.fbs of https://github.com/jax-ml/jax, versions 1 to 11 of the serialization;
https://flatbuffers.dev/internals/. Every offset is held against the bytes that there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span
from deepx_graph.text.common.options import Exported, ReadOptions, ReadResult
from deepx_graph.text.stablehlo.bytecode.bytes import text_of
from deepx_graph.text.stablehlo.bytecode.operations import parse
from deepx_graph.text.stablehlo.reader.lower import MlirLowering

FIELDS = {
    name: slot for slot, name in (
        (0, "version"), (1, "name"), (2, "in_tree"), (3, "in_avals"), (4, "out_tree"), (5, "out_avals"), (9, "platforms"),
        (13, "module"), (14, "calling_convention"), (15, "kept"), (17, "vjp"), (19, "avals"), (22, "in_numbers"),
        (23, "out_numbers"), (26, "jax"),
    )
}  # fmt: skip
"""The slots of an exported function that are read."""

_DTYPES = (
    "bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64", "c64", "c128", "bf16", "i4",
    "u4", "f8e4m3b11fnuz", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "float0", "f8e4m3", "f8e3m4", "f8e8m0fnu",
    "f4e2m1fn", "key<fry>", "key<rbg>", "key<unsafe_rbg>", "i2", "u2",
)  # fmt: skip
_LEAF, _NONE, _TUPLE, _LIST, _DICT, _CUSTOM = range(6)
MAX_DEPTH = 50
"""How deep trees of arguments and derivatives may nest."""


@dataclass(frozen=True)
class FlatTable:
    """A table of a FlatBuffer, which begins at an offset."""

    source: Source
    data: memoryview
    start: int

    def fail(self, message: str, at: int) -> ParseError:
        place = min(max(at, 0), max(0, len(self.data) - 1))
        return ParseError(Diagnostic(f"file of jax.export: {message}", Span(self.source, place, place + 1)))

    def number(self, at: int, size: int) -> int:
        """An unsigned number of so many bytes."""
        if at < 0 or size > len(self.data) - at:
            raise self.fail("an offset leads out of the file", at)
        return int.from_bytes(self.data[at : at + size], "little")

    def slot(self, name: int) -> int | None:
        """Where a field lies; None where it is missing."""
        back = self.number(self.start, 4)
        table = self.start - (back - (1 << 32) if back >> 31 else back)
        entry = 4 + 2 * name
        offset = self.number(table + entry, 2) if entry < self.number(table, 2) else 0
        return self.start + offset if offset else None

    def small(self, name: int, size: int = 2, default: int = 0) -> int:
        """A field that is a number."""
        at = self.slot(name)
        return default if at is None else self.number(at, size)

    def follow(self, at: int) -> int:
        """Where an offset leads."""
        return at + self.number(at, 4)

    def table(self, name: int) -> FlatTable | None:
        at = self.slot(name)
        return None if at is None else FlatTable(self.source, self.data, self.follow(at))

    def vector(self, name: int, size: int) -> tuple[int, int]:
        """Where the elements of a field begin, each of so many bytes, and how many there are."""
        at = self.slot(name)
        if at is None:
            return 0, 0
        start = self.follow(at)
        count = self.number(start, 4)
        if count * size > len(self.data) - start - 4:
            raise self.fail(f"{count} elements are announced and {len(self.data) - start - 4} bytes follow", start)
        return start + 4, count

    def numbers(self, name: int, size: int) -> list[int]:
        start, count = self.vector(name, size)
        return [self.number(start + k * size, size) for k in range(count)]

    def tables(self, name: int) -> list[FlatTable]:
        start, count = self.vector(name, 4)
        return [FlatTable(self.source, self.data, self.follow(start + 4 * k)) for k in range(count)]

    def text(self, name: int) -> str:
        start, count = self.vector(name, 1)
        return text_of(self.data[start : start + count])

    def texts(self, name: int) -> list[str]:
        start, count = self.vector(name, 4)
        found: list[str] = []
        for k in range(count):
            at = self.follow(start + 4 * k)
            length = self.number(at, 4)
            self.number(at + 4, min(length, len(self.data) + 1))
            found.append(text_of(self.data[at + 4 : at + 4 + length]))
        return found


def is_exported(head: bytes) -> bool:
    """Whether a file that begins like this is one: its table has the slots of a module and of the calling convention."""
    root = int.from_bytes(head[:4], "little")
    if len(head) < 64 or not 4 <= root <= len(head) - 4:
        return False
    table = root - int.from_bytes(head[root : root + 4], "little", signed=True)
    if not 4 <= table <= len(head) - 36:
        return False
    size, room = (int.from_bytes(head[table + k : table + k + 2], "little") for k in (0, 2))
    offsets = [int.from_bytes(head[table + 4 + 2 * k : table + 6 + 2 * k], "little") for k in range(15)]
    wanted = [offsets[FIELDS[name]] for name in ("version", "name", "module", "calling_convention")]
    at = root + wanted[-1]
    version = int.from_bytes(head[at : at + 2], "little")
    return size in range(34, 100, 2) and all(4 <= offset < room for offset in wanted) and 1 <= version < 100


def read_exported(source: Source, options: ReadOptions) -> ReadResult:
    """The program of a file of jax.export, and what the file says of it. Raises ParseError, VerifyError, LimitError."""
    assert source.data is not None
    data = source.data
    return _read(FlatTable(source, data, FlatTable(source, data, 0).follow(0)), options, 0)


def _read(table: FlatTable, options: ReadOptions, depth: int) -> ReadResult:
    start, size = table.vector(FIELDS["module"], 1)
    program = parse(table.source, options, start, start + size)
    lowering = MlirLowering(table.source, program)
    vjp = table.table(FIELDS["vjp"])
    if vjp is not None and depth >= MAX_DEPTH:
        raise LimitError(vjp.fail(f"derivatives of more than {MAX_DEPTH} orders", vjp.start).diagnostics[0])
    inputs, outputs = (_avals(table, at, numbers) for at, numbers in (("in_avals", "in_numbers"), ("out_avals", "out_numbers")))
    exported = Exported(
        table.text(FIELDS["name"]), table.small(FIELDS["calling_convention"]), tuple(table.texts(FIELDS["platforms"])), inputs,
        outputs, _tree(table.table(FIELDS["in_tree"]), inputs), _tree(table.table(FIELDS["out_tree"]), outputs),
        tuple(table.numbers(FIELDS["kept"], 2)), table.text(FIELDS["jax"]),
        None if vjp is None else lambda: _read(vjp, options, depth + 1))  # fmt: skip
    return ReadResult(lowering.module(), tuple(lowering.kept.values()), exported=exported)


def _avals(table: FlatTable, written: str, numbers: str) -> tuple[str, ...]:
    """What each argument or result is; files since 2026 have each sort once."""
    chosen = table.numbers(FIELDS[numbers], 4)
    rows = table.tables(FIELDS["avals"] if chosen else FIELDS[written])
    said = [_aval(row) for row in rows]
    if any(k >= len(said) for k in chosen):
        raise table.fail("an argument or result is of a sort that is not there", table.start)
    return tuple(said[k] for k in chosen) if chosen else tuple(said)


def _aval(row: FlatTable) -> str:
    dtype = row.small(2, 1)
    return f"{_DTYPES[dtype] if dtype < len(_DTYPES) else f'dtype {dtype}'}[{', '.join(row.texts(1))}]"


def _tree(root: FlatTable | None, leaves: tuple[str, ...]) -> str:
    """A tree of arguments with what its leaves are, as Python writes it."""
    rest, left = iter(leaves), [10 * len(leaves) + 1000]

    def text(node: FlatTable, depth: int) -> str:
        left[0] -= 1
        if depth > MAX_DEPTH or left[0] < 0:
            raise LimitError(node.fail("a tree of arguments is too large", node.start).diagnostics[0])
        kind = node.small(0, 1)
        if kind == _LEAF:
            return next(rest, "*")
        if kind == _NONE:
            return "None"
        parts = [text(child, depth + 1) for child in node.tables(1)]
        if kind == _DICT:
            names = node.texts(2)
            return "{" + ", ".join(f"{name!r}: {part}" for name, part in zip(names, parts, strict=False)) + "}"
        if kind == _TUPLE:
            return f"({', '.join(parts)}{',' * (len(parts) == 1)})"
        return f"{node.text(3) if kind == _CUSTOM else ''}[{', '.join(parts)}]"

    return "*" if root is None else text(root, 0)
