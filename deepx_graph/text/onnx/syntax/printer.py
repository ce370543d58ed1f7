"""The messages of a model as ONNX's text syntax, which `onnx.parser` reads.

What the syntax has no words for is left out: documentation and metadata of nodes and values, names of the sizes of sparse tensors.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from deepx_graph.errors import InferError
from deepx_graph.text.onnx.schema import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorTypeProto,
    TypeProto,
    ValueInfoProto,
)
from deepx_graph.text.onnx.syntax.words import ATTRIBUTE_TYPES, ELEMENT_TYPES, FIELDS, quoted

_WORDS = {number: word for word, number in ELEMENT_TYPES.items()}
_KINDS = {number: word for word, number in ATTRIBUTE_TYPES.items()}
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)

Numbers = Callable[[TensorProto], Iterable[Any]]
"""The elements of a tensor as the numbers of its field, whatever form it has."""


def name_text(name: str) -> str:
    """A name, in quotes where it is no word or a word for a type."""
    return name if _PLAIN.fullmatch(name) and name not in ELEMENT_TYPES else quoted(name)


def names_text(names: Iterable[str]) -> str:
    return ", ".join(map(name_text, names))


class OnnxTextPrinter:
    """Writes messages. `numbers` gives the elements of a constant. Raises InferError for what the syntax cannot say."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers

    def model(self, model: ModelProto) -> str:
        header = [f"ir_version: {model.ir_version}", f"opset_import: [{self._opsets(model)}]"]
        for key, value in (("producer_name", model.producer), ("producer_version", model.producer_version),
                           ("domain", model.domain), ("doc_string", model.doc_string)):
            header += [f"{key}: {quoted(value)}"] if value else []
        header += [f"model_version: {model.version}"] if model.version else []
        if model.metadata:
            header.append(f"metadata_props: [{self._entries(model.metadata)}]")
        assert model.graph is not None
        parts = ["<\n   " + ",\n   ".join(header) + "\n>", self.graph(model.graph, ""), *map(self._function, model.functions)]
        return "\n".join(parts) + "\n"

    def _opsets(self, of: ModelProto | FunctionProto) -> str:
        return ", ".join(f"{quoted(o.domain)} : {o.version}" for o in of.opsets)

    def _entries(self, entries: Iterable[Any]) -> str:
        return ", ".join(f"{quoted(e.key)}: {quoted(e.value)}" for e in entries)

    def _function(self, function: FunctionProto) -> str:
        header = [f"domain: {quoted(function.domain)}", f"opset_import: [{self._opsets(function)}]"]
        header += [f"overload: {quoted(function.overload)}"] if function.overload else []
        header += [f"doc_string: {quoted(function.doc_string)}"] if function.doc_string else []
        attributes = [*map(name_text, function.attribute_names), *(self._attribute(a, "") for a in function.attribute_defaults)]
        given = f" <{', '.join(attributes)}>" if attributes else ""
        head = f"{name_text(function.name)}{given} ({names_text(function.inputs)}) => ({names_text(function.outputs)})"
        return "<\n  " + ",\n  ".join(header) + f"\n>\n{head}\n{self._nodes(function.nodes, '')}"

    # --- graphs

    def graph(self, graph: GraphProto, indent: str) -> str:
        """A graph, its nodes on lines of their own."""
        if graph.sparse_initializers:
            raise InferError("the text syntax of ONNX has no sparse constants")
        values = [self._constant(w) for w in graph.initializers] + [self._info(i) for i in graph.infos]
        told = f"\n{indent}   <{', '.join(values)}>" if values else ""
        sides = [", ".join(map(self._info, side)) for side in (graph.inputs, graph.outputs)]
        return f"{name_text(graph.name or 'g')} ({sides[0]}) => ({sides[1]}) {told}\n{indent}{self._nodes(graph.nodes, indent)}"

    def _info(self, info: ValueInfoProto) -> str:
        return f"{type_text(info.type)} {name_text(info.name)}" if info.type is not None else name_text(info.name)

    def _nodes(self, nodes: Sequence[NodeProto], indent: str) -> str:
        lines = [f"{indent}   {self._node(n, indent + '   ')}" for n in nodes]
        return "\n".join(["{", *lines, f"{indent}}}"])

    def _node(self, node: NodeProto, indent: str) -> str:
        label = f"[{name_text(node.name)}] " if node.name else ""
        operator = ".".join(map(name_text, filter(None, (*node.domain.split("."), node.op_type))))
        overload = f":{name_text(node.overload)}" if node.overload else ""
        attributes = ", ".join(self._attribute(a, indent) for a in node.attributes)
        given = f" <{attributes}>" if attributes else ""
        return f"{label}{names_text(node.outputs)} = {operator}{overload}{given} ({names_text(node.inputs)})"

    # --- constants

    def _constant(self, data: TensorProto) -> str:
        """`float[2] w = {1, 2}`"""
        return f"{self._tensor_type(data)} {name_text(data.name)} = {self._elements(data)}"

    def _tensor_type(self, data: TensorProto) -> str:
        return _word(data.dtype) + (f"[{','.join(map(str, data.dims))}]" if data.dims else "")

    def _elements(self, data: TensorProto) -> str:
        if data.location == 1:
            return f"[{self._entries(data.external)}]"
        if data.dtype == ELEMENT_TYPES["string"]:
            return "{" + ", ".join(quoted(str(s, "utf-8", "replace")) for s in data.strings) + "}"
        code = FIELDS[data.dtype][1]
        write: Callable[[Any], str] = float_text if code == "f" else repr if code == "d" else str
        return "{" + ", ".join(write(v) for v in self.numbers(data)) + "}"

    # --- attributes

    def _attribute(self, a: AttributeProto, indent: str) -> str:
        kind = _KINDS.get(a.type)
        if kind is None:
            raise InferError(f"the attribute '{a.name}' has the kind {a.type}", expected="a kind that the text syntax of ONNX has")
        if a.reference:
            return f"{name_text(a.name)}: {kind} = @{name_text(a.reference)}"
        return f"{name_text(a.name)}: {kind} = {self._value(a, kind, indent)}"

    def _value(self, a: AttributeProto, kind: str, indent: str) -> str:
        match kind:
            case "float":
                return float_text(a.f)
            case "int":
                return str(a.i)
            case "string":
                return quoted(str(a.s, "utf-8", "replace"))
            case "tensor" if a.tensor is not None:
                return self._literal(a.tensor)
            case "graph" if a.graph is not None:
                return self.graph(a.graph, indent)
            case "type_proto" if a.type_info is not None:
                return type_text(a.type_info)
            case "floats":
                parts = [float_text(v) for v in a.floats]
            case "ints":
                parts = [str(v) for v in a.ints]
            case "strings":
                parts = [quoted(str(s, "utf-8", "replace")) for s in a.strings]
            case "tensors":
                parts = [self._literal(t) for t in a.tensors]
            case "graphs":
                parts = [self.graph(g, indent) for g in a.graphs]
            case _:
                raise InferError(f"the attribute '{a.name}' is a {kind}", expected="what the text syntax of ONNX has words for")
        return f"[{', '.join(parts)}]"

    def _literal(self, data: TensorProto) -> str:
        name = f" {name_text(data.name)}" if data.name else ""
        return f"{self._tensor_type(data)}{name} {self._elements(data)}"


def float_text(value: float) -> str:
    """The shortest text of a number in single precision."""
    for digits in range(6, 10):
        short = f"{value:.{digits}g}"
        if value != value or struct.pack("<f", float(short)) == struct.pack("<f", value):
            break
    return short if not short.lstrip("-").isdigit() else f"{short}.0"


def _word(number: int) -> str:
    if number not in _WORDS:
        raise InferError(f"the element type has the number {number}", expected="the number of an element type, 1 to 28")
    return _WORDS[number]


def type_text(type: TypeProto) -> str:
    """`float[N,3]`, `seq(float)`, `optional(int64[2])`."""
    if type.tensor is not None:
        return _tensor_type(type.tensor)
    if type.sparse is not None:
        return f"sparse_tensor({_tensor_type(type.sparse)})"
    if type.map is not None and type.map.value is not None:
        return f"map({_word(type.map.key)}, {type_text(type.map.value)})"
    for word, items in (("seq", type.sequence), ("optional", type.optional)):
        if items is not None and items.item is not None:
            return f"{word}({type_text(items.item)})"
    raise InferError("a type that the text syntax of ONNX has no words for")


def _tensor_type(type: TensorTypeProto) -> str:
    word = _word(type.dtype)
    if type.shape is None:
        return f"{word}[]"
    dims = [str(d.value) if d.value is not None and not d.name else name_text(d.name) if d.name else "?" for d in type.shape.dims]
    return f"{word}[{','.join(dims)}]" if dims else word
