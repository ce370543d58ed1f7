"""The messages of a model, whatever a source has them in: the wire format, or the text syntax of the standard."""

from __future__ import annotations

from collections import defaultdict

from deepx_graph.errors import Source
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.common.protobuf import Decoder, Field
from deepx_graph.text.common.protobuf_writer import delimited
from deepx_graph.text.onnx.schema import SCHEMA, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

FORMS = ("onnx", "onnxtxt")
"""The formats of modules that come from a model: binary, and in the text syntax."""


def model_in(source: Source, options: ReadOptions) -> ModelProto:
    """The model that a source holds. Raises ParseError, LimitError."""
    if source.data is not None:
        return Decoder(source, SCHEMA, options).whole(ModelProto)
    from deepx_graph.text.onnx.syntax.parser import OnnxTextParser

    return OnnxTextParser(source, options).model()


def beginning_in(source: Source, operators: int) -> bytes | None:
    """The bytes of a model of the first operators of the one in a source, which gives what the last of them does; None where it has
    no more. Its other messages stand in it as they are. Raises ParseError."""
    decoder = Decoder(source, SCHEMA, ReadOptions())
    data, model = decoder.wire.data, list(decoder.wire.fields(0, len(decoder.wire.data)))
    graph = next((f for f in model if f.number == _number(ModelProto, "graph")), None)
    fields: dict[int, list[Field]] = defaultdict(list)
    for f in decoder.wire.fields(graph.start, graph.end) if graph is not None else ():
        fields[f.number].append(f)
    of_nodes = fields[_number(GraphProto, "nodes")]
    if len(of_nodes) <= operators:
        return None
    nodes = [decoder.message(NodeProto, f.start, f.end, f.at, 1) for f in of_nodes[:operators]]
    reads = {name.encode() for node in nodes for name in node.inputs}
    weights = [f for f in fields[_number(GraphProto, "initializers")] if _name(decoder, f) in reads]
    inputs = fields[_number(GraphProto, "inputs")]
    result = b"".join(delimited(_number(ValueInfoProto, "name"), [nodes[-1].outputs[0].encode()]))
    kept = [data[f.at : f.end] for f in (*of_nodes[:operators], *weights, *inputs)]
    whole = b"".join([*kept, *delimited(_number(GraphProto, "outputs"), [result])])
    left_out = {_number(ModelProto, "graph"), _number(ModelProto, "training")}
    others = [data[f.at : f.end] for f in model if f.number not in left_out]
    return b"".join([*others, *delimited(_number(ModelProto, "graph"), [whole])])


def _number(message: type, attribute: str) -> int:
    """The number of a field."""
    return next(number for number, (name, _) in SCHEMA[message].items() if name == attribute)


def _name(decoder: Decoder, tensor: Field) -> bytes:
    number = _number(TensorProto, "name")
    named = (f for f in decoder.wire.fields(tensor.start, tensor.end) if f.number == number)
    return next((bytes(decoder.wire.data[f.start : f.end]) for f in named), b"")
