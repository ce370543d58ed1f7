"""The messages of ONNX (`onnx.proto`, IR version 14) as plain data, and their fields by number (`text/common/protobuf.py`).

Source: onnx/onnx.proto and onnx/onnx-data.proto of ONNX 1.23.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deepx_graph.text.common.protobuf import Schema, elements, messages, numbers, raw_bytes, reals, text

Bytes = bytes | memoryview


@dataclass(slots=True)
class StringStringEntry:
    """A key and its value, both text."""

    key: str = ""
    value: str = ""
    at: int = 0


@dataclass(slots=True)
class DimensionProto:
    """A size, or the name of one that is not known; neither where nothing is."""

    value: int | None = None
    name: str = ""
    denotation: str = ""
    at: int = 0


@dataclass(slots=True)
class TensorShape:
    """The dimensions of a tensor."""

    dims: list[DimensionProto] = field(default_factory=list)
    at: int = 0


@dataclass(slots=True)
class TensorTypeProto:
    """The type of a tensor; without a shape not even its rank is known."""

    dtype: int = 0
    shape: TensorShape | None = None
    at: int = 0


@dataclass(slots=True)
class ItemsTypeProto:
    """What a sequence holds, or an optional value."""

    item: TypeProto | None = None
    at: int = 0


@dataclass(slots=True)
class MapTypeProto:
    """What a map holds; its keys are integers or texts."""

    key: int = 0
    value: TypeProto | None = None
    at: int = 0


@dataclass(slots=True)
class TypeProto:
    """One of the kinds of types, and what a value of it means in the standard's words."""

    tensor: TensorTypeProto | None = None
    sequence: ItemsTypeProto | None = None
    optional: ItemsTypeProto | None = None
    sparse: TensorTypeProto | None = None
    map: MapTypeProto | None = None
    denotation: str = ""
    at: int = 0


@dataclass(slots=True)
class ValueInfoProto:
    """A name and its type."""

    name: str = ""
    type: TypeProto | None = None
    doc_string: str = ""
    metadata: list[StringStringEntry] = field(default_factory=list)
    at: int = 0


@dataclass(slots=True)
class TensorProto:
    """A tensor with its elements: `raw`, or numbers of their own in the field of its type, or in another file."""

    dims: list[int] = field(default_factory=list)
    dtype: int = 0
    name: str = ""
    raw: Bytes | None = None
    floats: list[bytes] = field(default_factory=list)
    int32s: list[bytes] = field(default_factory=list)
    int64s: list[bytes] = field(default_factory=list)
    doubles: list[bytes] = field(default_factory=list)
    uint64s: list[bytes] = field(default_factory=list)
    strings: list[Bytes] = field(default_factory=list)
    external: list[StringStringEntry] = field(default_factory=list)
    location: int = 0
    doc_string: str = ""
    at: int = 0


@dataclass(slots=True)
class SparseTensorProto:
    """The elements of a tensor that are not zero, and where they are."""

    values: TensorProto | None = None
    indices: TensorProto | None = None
    dims: list[int] = field(default_factory=list)
    at: int = 0


@dataclass(slots=True)
class AttributeProto:
    """A named value of a node; `reference` names the attribute of the function around it that is meant."""

    name: str = ""
    type: int = 0
    f: float = 0.0
    i: int = 0
    s: Bytes = b""
    tensor: TensorProto | None = None
    graph: GraphProto | None = None
    floats: list[float] = field(default_factory=list)
    ints: list[int] = field(default_factory=list)
    strings: list[Bytes] = field(default_factory=list)
    tensors: list[TensorProto] = field(default_factory=list)
    graphs: list[GraphProto] = field(default_factory=list)
    sparse: SparseTensorProto | None = None
    type_info: TypeProto | None = None
    reference: str = ""
    doc_string: str = ""
    at: int = 0


@dataclass(slots=True)
class NodeProto:
    """A call of an operator, or of a function of the model."""

    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    name: str = ""
    op_type: str = ""
    attributes: list[AttributeProto] = field(default_factory=list)
    doc_string: str = ""
    domain: str = ""
    overload: str = ""
    metadata: list[StringStringEntry] = field(default_factory=list)
    at: int = 0


@dataclass(slots=True)
class TensorAnnotation:
    """The names of the tensors that say how one is quantised (`SCALE_TENSOR`, `ZERO_POINT_TENSOR`)."""

    name: str = ""
    tensors: list[StringStringEntry] = field(default_factory=list)
    at: int = 0


@dataclass(slots=True)
class GraphProto:
    """Nodes in order, with what they read and give."""

    nodes: list[NodeProto] = field(default_factory=list)
    name: str = ""
    initializers: list[TensorProto] = field(default_factory=list)
    sparse_initializers: list[SparseTensorProto] = field(default_factory=list)
    inputs: list[ValueInfoProto] = field(default_factory=list)
    outputs: list[ValueInfoProto] = field(default_factory=list)
    infos: list[ValueInfoProto] = field(default_factory=list)
    quantizations: list[TensorAnnotation] = field(default_factory=list)
    doc_string: str = ""
    metadata: list[StringStringEntry] = field(default_factory=list)
    at: int = 0


@dataclass(slots=True)
class OperatorSetId:
    """A set of operators and its version."""

    domain: str = ""
    version: int = 0
    at: int = 0


@dataclass(slots=True)
class FunctionProto:
    """A function of the model: nodes may call it like an operator."""

    name: str = ""
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    attribute_names: list[str] = field(default_factory=list)
    attribute_defaults: list[AttributeProto] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    opsets: list[OperatorSetId] = field(default_factory=list)
    domain: str = ""
    overload: str = ""
    doc_string: str = ""
    at: int = 0


@dataclass(slots=True)
class TrainingInfoProto:
    """How a model is trained: graphs whose results become its weights, by the names of both."""

    initialization: GraphProto | None = None
    algorithm: GraphProto | None = None
    initialized: list[StringStringEntry] = field(default_factory=list)
    updated: list[StringStringEntry] = field(default_factory=list)
    at: int = 0


@dataclass(slots=True)
class ModelProto:
    """A program."""

    ir_version: int = 0
    producer: str = ""
    producer_version: str = ""
    domain: str = ""
    version: int = 0
    doc_string: str = ""
    graph: GraphProto | None = None
    opsets: list[OperatorSetId] = field(default_factory=list)
    metadata: list[StringStringEntry] = field(default_factory=list)
    training: list[TrainingInfoProto] = field(default_factory=list)
    functions: list[FunctionProto] = field(default_factory=list)
    at: int = 0


SCHEMA: Schema = {
    StringStringEntry: {1: ("key", text), 2: ("value", text)},
    DimensionProto: {1: ("value", numbers), 2: ("name", text), 3: ("denotation", text)},
    TensorShape: {1: ("dims", messages(DimensionProto))},
    TensorTypeProto: {1: ("dtype", numbers), 2: ("shape", messages(TensorShape))},
    ItemsTypeProto: {1: ("item", messages(TypeProto))},
    MapTypeProto: {1: ("key", numbers), 2: ("value", messages(TypeProto))},
    TypeProto: {
        1: ("tensor", messages(TensorTypeProto)), 4: ("sequence", messages(ItemsTypeProto)), 5: ("map", messages(MapTypeProto)),
        6: ("denotation", text), 8: ("sparse", messages(TensorTypeProto)),
        9: ("optional", messages(ItemsTypeProto)),
    },
    ValueInfoProto: {
        1: ("name", text), 2: ("type", messages(TypeProto)), 3: ("doc_string", text), 4: ("metadata", messages(StringStringEntry)),
    },
    TensorProto: {
        1: ("dims", numbers), 2: ("dtype", numbers), 4: ("floats", elements("f")), 5: ("int32s", elements("i")),
        6: ("strings", raw_bytes), 7: ("int64s", elements("q")), 8: ("name", text), 9: ("raw", raw_bytes),
        10: ("doubles", elements("d")), 11: ("uint64s", elements("Q")), 12: ("doc_string", text),
        13: ("external", messages(StringStringEntry)), 14: ("location", numbers),
    },
    SparseTensorProto: {1: ("values", messages(TensorProto)), 2: ("indices", messages(TensorProto)), 3: ("dims", numbers)},
    AttributeProto: {
        1: ("name", text), 2: ("f", reals("f")), 3: ("i", numbers), 4: ("s", raw_bytes), 5: ("tensor", messages(TensorProto)),
        6: ("graph", messages(GraphProto)), 7: ("floats", reals("f")), 8: ("ints", numbers), 9: ("strings", raw_bytes),
        10: ("tensors", messages(TensorProto)), 11: ("graphs", messages(GraphProto)), 13: ("doc_string", text),
        14: ("type_info", messages(TypeProto)),
        20: ("type", numbers), 21: ("reference", text), 22: ("sparse", messages(SparseTensorProto)),
    },
    NodeProto: {
        1: ("inputs", text), 2: ("outputs", text), 3: ("name", text), 4: ("op_type", text),
        5: ("attributes", messages(AttributeProto)), 6: ("doc_string", text), 7: ("domain", text), 8: ("overload", text),
        9: ("metadata", messages(StringStringEntry)),
    },
    TensorAnnotation: {1: ("name", text), 2: ("tensors", messages(StringStringEntry))},
    GraphProto: {
        1: ("nodes", messages(NodeProto)), 2: ("name", text), 5: ("initializers", messages(TensorProto)),
        10: ("doc_string", text), 11: ("inputs", messages(ValueInfoProto)), 12: ("outputs", messages(ValueInfoProto)),
        13: ("infos", messages(ValueInfoProto)), 14: ("quantizations", messages(TensorAnnotation)),
        15: ("sparse_initializers", messages(SparseTensorProto)),
        16: ("metadata", messages(StringStringEntry)),
    },
    OperatorSetId: {1: ("domain", text), 2: ("version", numbers)},
    FunctionProto: {
        1: ("name", text), 4: ("inputs", text), 5: ("outputs", text), 6: ("attribute_names", text),
        7: ("nodes", messages(NodeProto)), 8: ("doc_string", text), 9: ("opsets", messages(OperatorSetId)), 10: ("domain", text),
        11: ("attribute_defaults", messages(AttributeProto)), 13: ("overload", text),
    },
    TrainingInfoProto: {
        1: ("initialization", messages(GraphProto)), 2: ("algorithm", messages(GraphProto)),
        3: ("initialized", messages(StringStringEntry)), 4: ("updated", messages(StringStringEntry)),
    },
    ModelProto: {
        1: ("ir_version", numbers), 2: ("producer", text), 3: ("producer_version", text), 4: ("domain", text),
        5: ("version", numbers), 6: ("doc_string", text), 7: ("graph", messages(GraphProto)),
        8: ("opsets", messages(OperatorSetId)), 14: ("metadata", messages(StringStringEntry)),
        20: ("training", messages(TrainingInfoProto)), 25: ("functions", messages(FunctionProto)),
    },
}  # fmt: skip
