"""The messages of MindIR (`mind_ir.ModelProto`) as plain data, their fields by number, and the wire format that they come in.

Only what a program means is kept; other fields are skipped. Every length is held against the bytes that are there before anything
is cut out, and nesting against a bound; what is wrong is told with the offset of its byte. Sources: MindSpore 2.7,
mindspore/core/proto/mind_ir.proto; https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span
from deepx_graph.text.common.options import ReadOptions

# --- messages -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class TensorData:
    """A tensor type, with its elements where it has any. `data_type` is a number of TensorProto.DataType."""

    dims: list[int] = field(default_factory=list)
    data_type: int = 0
    name: str = ""
    raw: bytes | None = None
    elements: list[bytes] = field(default_factory=list)
    """Elements that stand behind `raw`, or instead of it."""
    external: bool = False
    at: int = 0


@dataclass(slots=True)
class Attribute:
    """A value or type. `type` is a number of AttributeProto.AttributeType; `values` are the parts of a tuple or list."""

    name: str = ""
    type: int = 0
    f: float = 0.0
    i: int = 0
    d: float = 0.0
    s: str = ""
    floats: list[float] = field(default_factory=list)
    doubles: list[float] = field(default_factory=list)
    ints: list[int] = field(default_factory=list)
    strings: list[str] = field(default_factory=list)
    tensors: list[TensorData] = field(default_factory=list)
    values: list[Attribute] = field(default_factory=list)
    at: int = 0


@dataclass(slots=True)
class CallMessage:
    """A node: an operation, or a call of a graph or a value, under the name that others read it by."""

    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    name: str = ""
    op_type: str = ""
    attributes: list[Attribute] = field(default_factory=list)
    domain: str = ""
    at: int = 0

    def attribute(self, name: str) -> Attribute | None:
        return next((a for a in self.attributes if a.name == name), None)


@dataclass(slots=True)
class ValueInfo:
    """A parameter or result: its name and type."""

    name: str = ""
    tensors: list[TensorData] = field(default_factory=list)
    denotation: str = ""
    info: Attribute | None = None
    at: int = 0


@dataclass(slots=True)
class Graph:
    """A func graph. `weights` are tensors with values that it, and every graph within it, reads by name."""

    name: str = ""
    nodes: list[CallMessage] = field(default_factory=list)
    weights: list[TensorData] = field(default_factory=list)
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    at: int = 0


@dataclass(slots=True)
class Primitive:
    """An operation with fixed attributes; calls name it."""

    name: str = ""
    op_type: str = ""
    attributes: list[Attribute] = field(default_factory=list)
    at: int = 0


@dataclass(slots=True)
class Model:
    """A program: its entry, the other func graphs, the primitives."""

    graph: Graph | None = None
    functions: list[Graph] = field(default_factory=list)
    primitives: list[Primitive] = field(default_factory=list)
    version: str = ""
    little_endian: bool = True
    elided: list[str] = field(default_factory=list)
    """What a dump leaves out, in words."""
    is_dump: bool = False
    at: int = 0


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


# --- decoding -------------------------------------------------------------------------------------------------------

_Reader = Callable[["_Decoder", Field, int], list[Any]]
"""The values of a field in a message at some depth: one, or a packed list of them."""


class _Decoder:
    """Decodes messages; counts them against a bound."""

    def __init__(self, wire: WireReader, options: ReadOptions) -> None:
        self.wire, self.left, self.max_depth = wire, 8 * options.max_nodes, options.max_depth

    def message(self, kind: type, start: int, end: int, at: int, depth: int) -> Any:
        """The message in a range of bytes. A field that is a list gets all values, any other the last one."""
        self.left -= 1
        if self.left < 0 or depth > self.max_depth:
            what = "too many messages" if self.left < 0 else f"messages nest more than {self.max_depth} deep"
            raise LimitError(self.wire.fail(at, what).diagnostics[0])
        made = kind()
        made.at = at
        known = _FIELDS[kind]
        for f in self.wire.fields(start, end):
            if f.number in known:
                name, read = known[f.number]
                values = read(self, f, depth)
                held = getattr(made, name)
                if isinstance(held, list):
                    held += values
                else:
                    setattr(made, name, values[-1] if values else 0)
        return made

    def bytes(self, f: Field, depth: int = 0) -> list[bytes]:
        if f.kind != BYTES:
            raise self.wire.fail(f.at, f"field {f.number} is not bytes")
        return [self.wire.data[f.start : f.end]]

    def text(self, f: Field, depth: int) -> list[str]:
        try:
            return [self.bytes(f)[0].decode()]
        except UnicodeDecodeError:
            raise self.wire.fail(f.at, "a name is not UTF-8 text") from None

    def numbers(self, f: Field, depth: int) -> list[int]:
        if f.kind != BYTES:
            return [signed(f.value)]
        found, at = [], f.start
        while at < f.end:
            value, at = self.wire.varint(at, f.end)
            found.append(signed(value))
        return found

    def flag(self, f: Field, depth: int) -> list[bool]:
        return [True]


def _reals(code: str) -> _Reader:
    """Floats or doubles."""
    size = struct.calcsize(code)

    def read(d: _Decoder, f: Field, depth: int) -> list[float]:
        length = f.end - f.start
        if f.kind not in (BYTES, FIXED32 if size == 4 else FIXED64) or length % size:
            raise d.wire.fail(f.at, f"field {f.number} is not a list of numbers of {size} bytes")
        return list(struct.unpack(f"<{length // size}{code}", d.wire.data[f.start : f.end]))

    return read


def _elements(code: str) -> _Reader:
    """Elements of a tensor as numbers of their own instead of raw bytes."""

    def read(d: _Decoder, f: Field, depth: int) -> list[bytes]:
        if code in "fd":
            values = _reals(code)(d, f, depth)
            return [struct.pack(f"<{len(values)}{code}", *values)]
        mask = (1 << 8 * struct.calcsize("<" + code)) - 1
        return [struct.pack("<" + code.upper(), v & mask) for v in d.numbers(f, depth)]

    return read


def _messages(kind: type) -> _Reader:
    def read(d: _Decoder, f: Field, depth: int) -> list[Any]:
        d.bytes(f)
        return [d.message(kind, f.start, f.end, f.at, depth + 1)]

    return read


_BYTES, _TEXT, _NUMBERS, _FLAG, _TENSORS = _Decoder.bytes, _Decoder.text, _Decoder.numbers, _Decoder.flag, _messages(TensorData)

_FIELDS: dict[type, dict[int, tuple[str, _Reader]]] = {
    TensorData: {
        1: ("dims", _NUMBERS), 2: ("data_type", _NUMBERS), 3: ("elements", _elements("f")), 4: ("elements", _elements("i")),
        6: ("elements", _elements("q")), 7: ("name", _TEXT), 9: ("raw", _BYTES), 10: ("elements", _elements("d")),
        11: ("elements", _elements("q")), 12: ("external", _FLAG),
    },
    Attribute: {
        1: ("name", _TEXT), 2: ("f", _reals("f")), 3: ("i", _NUMBERS), 4: ("d", _reals("d")), 5: ("s", _TEXT),
        6: ("tensors", _TENSORS), 8: ("floats", _reals("f")), 9: ("doubles", _reals("d")), 10: ("ints", _NUMBERS),
        11: ("strings", _TEXT), 12: ("tensors", _TENSORS), 16: ("type", _NUMBERS), 17: ("values", _messages(Attribute)),
    },
    CallMessage: {
        1: ("inputs", _TEXT), 2: ("outputs", _TEXT), 3: ("name", _TEXT), 4: ("op_type", _TEXT),
        5: ("attributes", _messages(Attribute)), 7: ("domain", _TEXT),
    },
    ValueInfo: {1: ("name", _TEXT), 2: ("tensors", _TENSORS), 4: ("denotation", _TEXT), 5: ("info", _messages(Attribute))},
    Graph: {
        1: ("nodes", _messages(CallMessage)), 2: ("name", _TEXT), 3: ("weights", _TENSORS), 5: ("inputs", _messages(ValueInfo)),
        6: ("outputs", _messages(ValueInfo)),
    },
    Primitive: {1: ("name", _TEXT), 2: ("op_type", _TEXT), 3: ("attributes", _messages(Attribute))},
    Model: {
        5: ("version", _TEXT), 7: ("graph", _messages(Graph)), 8: ("functions", _messages(Graph)), 10: ("little_endian", _NUMBERS),
        12: ("primitives", _messages(Primitive)),
    },
}  # fmt: skip
"""The fields by their numbers, each with how its values are read."""


def decode_model(source: Source, options: ReadOptions) -> Model:
    """The model in a binary source. Raises ParseError at the byte that is wrong, LimitError for too much of anything."""
    wire = WireReader(source)
    model = _Decoder(wire, options).message(Model, 0, len(wire.data), 0, 0)
    assert isinstance(model, Model)
    if model.graph is None:
        raise wire.fail(0, "the model has no graph")
    return model
