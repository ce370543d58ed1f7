"""The messages of MindIR (`mind_ir.ModelProto`) as plain data, and their fields by number (`text/common/protobuf.py`).

Only what a program means is kept. Source: MindSpore 2.7, mindspore/core/proto/mind_ir.proto.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deepx_graph.errors import Source
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.common.protobuf import (
    Decoder,
    Schema,
    elements,
    messages,
    numbers,
    present,
    raw_bytes,
    reals,
    text,
)

# --- messages -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class TensorData:
    """A tensor type, with its elements where it has any. `data_type` is a number of TensorProto.DataType."""

    dims: list[int] = field(default_factory=list)
    data_type: int = 0
    name: str = ""
    raw: bytes | memoryview | None = None
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


# --- fields by number -------------------------------------------------------------------------------------------------

SCHEMA: Schema = {
    TensorData: {
        1: ("dims", numbers), 2: ("data_type", numbers), 3: ("elements", elements("f")), 4: ("elements", elements("i")),
        6: ("elements", elements("q")), 7: ("name", text), 9: ("raw", raw_bytes), 10: ("elements", elements("d")),
        11: ("elements", elements("q")), 12: ("external", present),
    },
    Attribute: {
        1: ("name", text), 2: ("f", reals("f")), 3: ("i", numbers), 4: ("d", reals("d")), 5: ("s", text),
        6: ("tensors", messages(TensorData)), 8: ("floats", reals("f")), 9: ("doubles", reals("d")), 10: ("ints", numbers),
        11: ("strings", text), 12: ("tensors", messages(TensorData)), 16: ("type", numbers), 17: ("values", messages(Attribute)),
    },
    CallMessage: {
        1: ("inputs", text), 2: ("outputs", text), 3: ("name", text), 4: ("op_type", text),
        5: ("attributes", messages(Attribute)), 7: ("domain", text),
    },
    ValueInfo: {1: ("name", text), 2: ("tensors", messages(TensorData)), 4: ("denotation", text), 5: ("info", messages(Attribute))},
    Graph: {
        1: ("nodes", messages(CallMessage)), 2: ("name", text), 3: ("weights", messages(TensorData)),
        5: ("inputs", messages(ValueInfo)), 6: ("outputs", messages(ValueInfo)),
    },
    Primitive: {1: ("name", text), 2: ("op_type", text), 3: ("attributes", messages(Attribute))},
    Model: {
        5: ("version", text), 7: ("graph", messages(Graph)), 8: ("functions", messages(Graph)), 10: ("little_endian", numbers),
        12: ("primitives", messages(Primitive)),
    },
}  # fmt: skip


def decode_model(source: Source, options: ReadOptions) -> Model:
    """The model in a binary source. Raises ParseError at the byte that is wrong, LimitError for too much of anything."""
    decoder = Decoder(source, SCHEMA, options)
    model = decoder.whole(Model)
    if model.graph is None:
        raise decoder.wire.fail(0, "the model has no graph")
    return model
