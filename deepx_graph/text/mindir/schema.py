"""The messages of MindIR (`mind_ir.ModelProto`) as plain data, and their fields by number.

Only what a program means is kept; other fields are skipped. Source: MindSpore 2.7, mindspore/core/proto/mind_ir.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from deepx_graph.errors import LimitError, Source
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.mindir.wire import BYTES, FIXED32, FIXED64, Field, WireReader, signed


@dataclass(slots=True)
class TensorData:
    """A tensor type, with its elements where it has any. `data_type` is a number of TensorProto.DataType."""

    dims: list[int] = field(default_factory=list)
    data_type: int = 0
    name: str = ""
    raw: bytes | None = None
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


_Setter = Callable[["_Decoder", Any, Field, int], None]


class _Decoder:
    """Decodes messages; counts them against a bound."""

    def __init__(self, wire: WireReader, options: ReadOptions) -> None:
        self.wire, self.left, self.max_depth = wire, 8 * options.max_nodes, options.max_depth

    def message(self, kind: type, start: int, end: int, at: int, depth: int) -> Any:
        self.left -= 1
        if self.left < 0 or depth > self.max_depth:
            what = "too many messages" if self.left < 0 else f"messages nest more than {self.max_depth} deep"
            raise LimitError(self.wire.fail(at, what).diagnostics[0])
        made = kind()
        made.at = at
        setters = _FIELDS[kind]
        for f in self.wire.fields(start, end):
            setter = setters.get(f.number)
            if setter is not None:
                setter(self, made, f, depth)
        return made

    def bytes(self, f: Field) -> bytes:
        if f.kind != BYTES:
            raise self.wire.fail(f.at, f"field {f.number} is not bytes")
        return self.wire.data[f.start : f.end]

    def text(self, f: Field) -> str:
        try:
            return self.bytes(f).decode()
        except UnicodeDecodeError:
            raise self.wire.fail(f.at, "a name is not UTF-8 text") from None

    def numbers(self, f: Field) -> list[int]:
        """One integer, or a packed list of them."""
        if f.kind != BYTES:
            return [signed(f.value)]
        found, at = [], f.start
        while at < f.end:
            value, at = self.wire.varint(at, f.end)
            found.append(signed(value))
        return found

    def reals(self, f: Field, code: str) -> list[float]:
        """One float or double, or a packed list of them."""
        size = struct.calcsize(code)
        length = f.end - f.start
        if f.kind not in (BYTES, FIXED32 if size == 4 else FIXED64) or length % size:
            raise self.wire.fail(f.at, f"field {f.number} is not a list of numbers of {size} bytes")
        return list(struct.unpack(f"<{length // size}{code[-1]}", self.wire.data[f.start : f.end]))


def _text(name: str, d: _Decoder, m: Any, f: Field, depth: int) -> None:
    setattr(m, name, d.text(f))


def _texts(name: str, d: _Decoder, m: Any, f: Field, depth: int) -> None:
    getattr(m, name).append(d.text(f))


def _number(name: str, d: _Decoder, m: Any, f: Field, depth: int) -> None:
    setattr(m, name, (d.numbers(f) or [0])[-1])


def _numbers(name: str, d: _Decoder, m: Any, f: Field, depth: int) -> None:
    getattr(m, name).extend(d.numbers(f))


def _real(name: str, code: str, d: _Decoder, m: Any, f: Field, depth: int) -> None:
    setattr(m, name, (d.reals(f, code) or [0.0])[-1])


def _reals(name: str, code: str, d: _Decoder, m: Any, f: Field, depth: int) -> None:
    getattr(m, name).extend(d.reals(f, code))


def _bytes(name: str, d: _Decoder, m: Any, f: Field, depth: int) -> None:
    setattr(m, name, d.bytes(f))


def _flag(name: str, d: _Decoder, m: Any, f: Field, depth: int) -> None:
    setattr(m, name, True)


def _part(name: str, kind: type, d: _Decoder, m: Any, f: Field, depth: int) -> None:
    d.bytes(f)
    setattr(m, name, d.message(kind, f.start, f.end, f.at, depth + 1))


def _parts(name: str, kind: type, d: _Decoder, m: Any, f: Field, depth: int) -> None:
    d.bytes(f)
    getattr(m, name).append(d.message(kind, f.start, f.end, f.at, depth + 1))


def _tensor_values(code: str, d: _Decoder, m: Any, f: Field, depth: int) -> None:
    """Elements as numbers of their own instead of raw bytes."""
    values: list[Any] = d.reals(f, code) if code in "fd" else d.numbers(f)
    mask = (1 << 8 * struct.calcsize("<" + code)) - 1
    packed = [v if code in "fd" else v & mask for v in values]
    m.raw = (m.raw or b"") + struct.pack(f"<{len(packed)}{code if code in 'fd' else code.upper()}", *packed)


_FIELDS: dict[type, dict[int, _Setter]] = {
    TensorData: {
        1: partial(_numbers, "dims"), 2: partial(_number, "data_type"), 3: partial(_tensor_values, "f"),
        4: partial(_tensor_values, "i"), 6: partial(_tensor_values, "q"), 7: partial(_text, "name"), 9: partial(_bytes, "raw"),
        10: partial(_tensor_values, "d"), 11: partial(_tensor_values, "q"), 12: partial(_flag, "external"),
    },
    Attribute: {
        1: partial(_text, "name"), 2: partial(_real, "f", "<f"), 3: partial(_number, "i"), 4: partial(_real, "d", "<d"),
        5: partial(_text, "s"), 6: partial(_parts, "tensors", TensorData), 8: partial(_reals, "floats", "<f"),
        9: partial(_reals, "doubles", "<d"), 10: partial(_numbers, "ints"), 11: partial(_texts, "strings"),
        12: partial(_parts, "tensors", TensorData), 16: partial(_number, "type"), 17: partial(_parts, "values", Attribute),
    },
    CallMessage: {
        1: partial(_texts, "inputs"), 2: partial(_texts, "outputs"), 3: partial(_text, "name"), 4: partial(_text, "op_type"),
        5: partial(_parts, "attributes", Attribute), 7: partial(_text, "domain"),
    },
    ValueInfo: {
        1: partial(_text, "name"), 2: partial(_parts, "tensors", TensorData), 4: partial(_text, "denotation"),
        5: partial(_part, "info", Attribute),
    },
    Graph: {
        1: partial(_parts, "nodes", CallMessage), 2: partial(_text, "name"), 3: partial(_parts, "weights", TensorData),
        5: partial(_parts, "inputs", ValueInfo), 6: partial(_parts, "outputs", ValueInfo),
    },
    Primitive: {1: partial(_text, "name"), 2: partial(_text, "op_type"), 3: partial(_parts, "attributes", Attribute)},
    Model: {
        5: partial(_text, "version"), 7: partial(_part, "graph", Graph), 8: partial(_parts, "functions", Graph),
        10: partial(_number, "little_endian"), 12: partial(_parts, "primitives", Primitive),
    },
}  # fmt: skip


def decode_model(source: Source, options: ReadOptions) -> Model:
    """The model in a binary source. Raises ParseError at the byte that is wrong, LimitError for too much of anything."""
    wire = WireReader(source)
    model = _Decoder(wire, options).message(Model, 0, len(wire.data), 0, 0)
    assert isinstance(model, Model)
    if model.graph is None:
        raise wire.fail(0, "the model has no graph")
    return model
