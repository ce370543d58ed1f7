"""ONNX's text syntax to the messages of a model; each holds the offset of its text where one of a file holds that of its byte.

Source: onnx/docs/Syntax.md and `onnx.parser` of ONNX 1.23.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from deepx_graph.errors import Diagnostic, LimitError, Source
from deepx_graph.text.common.cursor import whole
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.onnx.schema import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetId,
    StringStringEntry,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)
from deepx_graph.text.onnx.syntax.words import ATTRIBUTE_TYPES, FIELDS, INTEGER, NUMBER, OnnxCursor


class OnnxTextParser:
    """A text being read. Raises ParseError at what does not fit, LimitError for too many nodes or too deep ones."""

    def __init__(self, source: Source, options: ReadOptions) -> None:
        self.c = OnnxCursor(source, options.max_depth)
        self.left = options.max_nodes

    # --- models and functions

    def model(self) -> ModelProto:
        """The whole text."""
        made = ModelProto(at=self.c.skip())
        self.c.expect("<", "the header of a model: <ir_version: 8, opset_import: [\"\": 18]>")
        self.c.items(">", lambda: self._header_field(made, {
            "ir_version": ("ir_version", self.c.integer), "producer_name": ("producer", self.c.string),
            "producer_version": ("producer_version", self.c.string), "domain": ("domain", self.c.string),
            "model_version": ("version", self.c.integer), "doc_string": ("doc_string", self.c.string),
            "opset_import": ("opsets", self._opsets), "metadata_props": ("metadata", self._entries)}))
        made.graph = self.graph()
        while self.c.skip() < len(self.c.text):
            made.functions.append(self._function())
        return made

    def _header_field(self, made: Any, fields: dict[str, tuple[str, Callable[[], Any]]]) -> None:
        at = self.c.skip()
        key = self.c.name("a field of the header")
        if key not in fields:
            self.c.fail(f"there is no field '{key}'", at, at + len(key), expected=" | ".join(fields))
        self.c.expect(":")
        name, read = fields[key]
        setattr(made, name, read())

    def _opsets(self) -> list[OperatorSetId]:
        def one() -> OperatorSetId:
            at = self.c.skip()
            domain = self.c.string("a domain in quotes")
            self.c.expect(":", "and a version")
            return OperatorSetId(domain, self.c.integer(), at)

        return self.c.several("[", one, "]")

    def _entries(self) -> list[StringStringEntry]:
        def one() -> StringStringEntry:
            at = self.c.skip()
            key = self.c.string()
            self.c.expect(":")
            return StringStringEntry(key, self.c.string(), at)

        return self.c.several("[", one, "]")

    def _function(self) -> FunctionProto:
        made = FunctionProto(at=self.c.skip())
        self.c.expect("<", "the header of a function, or the end of the text")
        self.c.items(">", lambda: self._header_field(made, {
            "domain": ("domain", self.c.string), "overload": ("overload", self.c.string),
            "doc_string": ("doc_string", self.c.string), "opset_import": ("opsets", self._opsets)}))
        made.name = self.c.name("the name of a function")
        if self.c.accept("<"):
            self.c.items(">", lambda: self._parameter(made))
        made.inputs = self.c.several("(", lambda: self._formal(), ")")
        self.c.expect("=>")
        made.outputs = self.c.several("(", lambda: self._formal(), ")")
        if self.c.accept("<"):
            self.c.items(">", lambda: self._declared([], []))
        made.nodes = self._nodes()
        return made

    def _parameter(self, made: FunctionProto) -> None:
        """An attribute of a function, with its default where it has one."""
        start = self.c.skip()
        name = self.c.name("an attribute")
        if self.c.peek(":") or self.c.peek("="):
            self.c.at = start
            made.attribute_defaults.append(self._attribute())
        else:
            made.attribute_names.append(name)

    def _formal(self) -> str:
        """A name, maybe behind its type."""
        self.c.type_if_any()
        return self.c.name("a name")

    # --- graphs

    def graph(self) -> GraphProto:
        """`name (inputs) => (outputs) <constants and types> { nodes }`"""
        with self.c.nested():
            made = GraphProto(at=self.c.skip())
            made.name = self.c.name("the name of a graph")
            made.inputs = self.c.several("(", lambda: self._info(made.initializers), ")")
            self.c.expect("=>", "and the results")
            made.outputs = self.c.several("(", lambda: self._info(None), ")")
            if self.c.accept("<"):
                self.c.items(">", lambda: self._declared(made.initializers, made.infos))
            made.nodes = self._nodes()
            return made

    def _info(self, weights: list[TensorProto] | None) -> ValueInfoProto:
        """An input or result; an input may have a value."""
        at = self.c.skip()
        type = self.c.type_if_any()
        made = ValueInfoProto(self.c.name("a name"), type, at=at)
        if weights is not None and self.c.accept("="):
            weights.append(self._constant(type, made.name, at))
        return made

    def _declared(self, weights: list[TensorProto], infos: list[ValueInfoProto]) -> None:
        """A constant, or the type of a value."""
        at = self.c.skip()
        type = self.c.type_if_any()
        name = self.c.name("a name")
        if self.c.accept("="):
            weights.append(self._constant(type, name, at))
        else:
            infos.append(ValueInfoProto(name, type, at=at))

    def _nodes(self) -> list[NodeProto]:
        self.c.expect("{", "and nodes")
        found = []
        while not self.c.accept("}"):
            found.append(self._node())
        return found

    def _node(self) -> NodeProto:
        """`[label] results = domain.Operator:overload <attributes> (operands)`, attributes before or behind the operands."""
        made = NodeProto(at=self.c.skip())
        self.left -= 1
        if self.left < 0:
            raise LimitError(Diagnostic("too many nodes", self.c.span(*self.c.word_range())))
        if self.c.accept("["):
            made.name = self.c.name("the name of a node")
            self.c.expect("]")
        if not self.c.peek("="):
            made.outputs = [self.c.name("a node, or '}'")]
            while self.c.accept(","):
                made.outputs.append(self.c.name("a result"))
        self.c.expect("=", "and an operator")
        words = [self.c.name("an operator")]
        while self.c.accept("."):
            words.append(self.c.name("an operator"))
        *domain, made.op_type = words
        made.domain = ".".join(domain)
        if self.c.accept(":"):
            made.overload = self.c.name("an overload")
        if self.c.accept("<"):
            made.attributes = self.c.items(">", self._attribute)
        made.inputs = self.c.several("(", lambda: self.c.name("an operand"), ")")
        if self.c.accept("<"):
            made.attributes += self.c.items(">", self._attribute)
        return made

    # --- constants

    def _constant(self, type: TypeProto | None, name: str, at: int) -> TensorProto:
        """The value of a tensor: `{1, 2}`, or where it is in another file, `["location": "w.bin"]`."""
        if type is None or type.tensor is None:
            self.c.fail(f"'{name}' has a value and no type of a tensor", at)
        shape = type.tensor.shape
        if shape is None or any(d.value is None or d.value < 0 for d in shape.dims):
            self.c.fail(f"the shape of '{name}' is not known", at, expected="sizes")
        made = TensorProto(dims=[d.value or 0 for d in shape.dims], dtype=type.tensor.dtype, name=name, at=at)
        if self.c.peek("["):
            made.external, made.location = self._entries(), 1
            return made
        self.c.expect("{", "and elements")
        field, code = FIELDS[made.dtype]
        if code == "s":
            made.strings = [t.encode() for t in self.c.items("}", self.c.string)]
        else:
            values: list[Any] = self.c.items("}", self._real if code in "fd" else self._whole)
            try:
                setattr(made, field, [struct.pack(f"<{len(values)}{code}", *values)] if values else [])
            except (struct.error, OverflowError):
                self.c.fail(f"an element of '{name}' is out of range", at)
        expected = math.prod(made.dims) * (2 if made.dtype in (14, 15) else 1)
        if made.dtype not in PACKED and code != "s" and len(values) != expected:
            self.c.fail(f"'{name}' has {len(values)} elements", at, expected=f"{expected}")
        return made

    def _real(self) -> float:
        found = self.c.match(NUMBER)
        if found is None:
            self.c.mismatch("a number")
        return float(found[0])

    def _whole(self) -> int:
        for word, value in (("true", 1), ("false", 0)):
            if self.c.accept(word):
                return value
        return self.c.integer()

    # --- attributes

    def _attribute(self) -> AttributeProto:
        """`name: type = value`, the type left out where the value tells it."""
        made = AttributeProto(at=self.c.skip())
        made.name = self.c.name("an attribute")
        if self.c.accept(":"):
            at = self.c.skip()
            word = self.c.name("the type of an attribute")
            if word not in ATTRIBUTE_TYPES:
                self.c.fail(f"there is no type '{word}' of attributes", at, at + len(word), expected=" | ".join(ATTRIBUTE_TYPES))
            made.type = ATTRIBUTE_TYPES[word]
        self.c.expect("=")
        if self.c.accept("@"):
            made.reference = self.c.name("an attribute of the function")
            return made
        if made.type == ATTRIBUTE_TYPES["type_proto"]:
            made.type_info = self.c.type()
            return made
        if self.c.peek("["):
            self._values(made)
        else:
            kind, value = self._value(made.type)
            made.type = made.type or kind
            setattr(made, {1: "f", 2: "i", 3: "s", 4: "tensor", 5: "graph"}[kind], value)
        return made

    def _values(self, made: AttributeProto) -> None:
        """A list of values of one kind; of integers and reals, of reals."""
        found = self.c.several("[", lambda: self._value(made.type and made.type - 5), "]")
        kinds = {k for k, _ in found}
        kind = made.type - 5 if made.type else 1 if kinds == {1, 2} else next(iter(kinds), 2)
        if any(k != kind and (k, kind) != (2, 1) for k in kinds):
            self.c.fail(f"the values of '{made.name}' are of several kinds", made.at)
        made.type = kind + 5
        values = [float(v) if kind == 1 else v for _, v in found]
        setattr(made, {1: "floats", 2: "ints", 3: "strings", 4: "tensors", 5: "graphs"}[kind], values)

    def _value(self, wanted: int) -> tuple[int, Any]:
        """A value and its kind, by the number of the type."""
        start = self.c.skip()
        if wanted == 5:
            return 5, self.graph()
        if self.c.peek('"'):
            text = self.c.string()
            if not self.c.peek("("):
                return 3, text.encode()
            self.c.at = start
            return 5, self.graph()
        number = self.c.match(NUMBER)
        if number is not None:
            plain = INTEGER.fullmatch(number[0]) is not None and whole(number[0].lstrip("+-"), 19) is not None
            return (2, int(number[0])) if plain and wanted != 1 else (1, float(number[0]))
        type = self.c.type_if_any()
        if type is None:
            return 5, self.graph()
        name = "" if self.c.peek("{") or self.c.peek("=") or self.c.peek("[") else self.c.name("a tensor")
        self.c.accept("=")
        return 4, self._constant(type, name, start)


PACKED = frozenset((21, 22, 23, 25, 26))
"""Element types of which one number has several."""
