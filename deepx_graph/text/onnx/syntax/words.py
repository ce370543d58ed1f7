"""The words of ONNX's text syntax: types, texts in quotes, and a position in a text that passes names, numbers and types."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from deepx_graph.text.common.cursor import TextCursor
from deepx_graph.text.onnx.schema import DimensionProto, ItemsTypeProto, MapTypeProto, TensorShape, TensorTypeProto, TypeProto

ELEMENT_TYPES = {
    "float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "string": 8, "bool": 9, "float16": 10,
    "double": 11, "uint32": 12, "uint64": 13, "complex64": 14, "complex128": 15, "bfloat16": 16, "float8e4m3fn": 17,
    "float8e4m3fnuz": 18, "float8e5m2": 19, "float8e5m2fnuz": 20, "uint4": 21, "int4": 22, "float4e2m1": 23, "float8e8m0": 24,
    "uint2": 25, "int2": 26, "float6e2m3": 27, "float6e3m2": 28,
}  # fmt: skip
"""The number of each element type."""

FIELDS = {
    **dict.fromkeys(ELEMENT_TYPES.values(), ("int32s", "i")), 1: ("floats", "f"), 14: ("floats", "f"), 7: ("int64s", "q"),
    11: ("doubles", "d"), 15: ("doubles", "d"), 12: ("uint64s", "Q"), 13: ("uint64s", "Q"), 8: ("strings", "s"),
}  # fmt: skip
"""The field of a tensor in which its elements stand, by their type, and the form of a number there; `s` for texts.

Narrow floats stand as their bits, several elements of less than a byte as one.
"""

ATTRIBUTE_TYPES = {
    "float": 1, "int": 2, "string": 3, "tensor": 4, "graph": 5, "floats": 6, "ints": 7, "strings": 8, "tensors": 9, "graphs": 10,
    "sparse_tensor": 11, "sparse_tensors": 12, "type_proto": 13, "type_protos": 14,
}  # fmt: skip
"""The number of each type of attributes."""


def unescaped(text: str) -> str:
    """What stands between quotes, each backslash before the character that is meant."""
    return re.sub(r"\\(.)", r"\1", text, flags=re.DOTALL)


def quoted(text: str) -> str:
    """The text in quotes."""
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


# --- a position in a text ----------------------------------------------------------------------------------------

NAME = re.compile(r"[^\W\d]\w*")
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:inf|nan|infinity)\b", re.IGNORECASE)
INTEGER = re.compile(r"[-+]?\d{1,20}")

COMPOUND = ("seq", "optional", "sparse_tensor", "map")
"""Words before types in parentheses."""

Item = TypeVar("Item")


class OnnxCursor(TextCursor):
    """Stands before a word of the syntax. Raises ParseError where another comes than is asked for."""

    BLANK = re.compile(r"(?:\s|#[^\n]*)*+")
    COMMENT = "#"

    def name(self, what: str) -> str:
        """A name, in quotes where it is no word."""
        if self.peek('"'):
            return self.string(what)
        found = self.match(NAME)
        if found is None:
            self.mismatch(what)
        return found[0]

    def string(self, what: str = "a text in quotes") -> str:
        found = self.match(QUOTED)
        if found is None:
            self.mismatch(what)
        return unescaped(found[1])

    def integer(self, what: str = "a whole number") -> int:
        found = self.match(INTEGER)
        if found is None:
            self.mismatch(what)
        value = int(found[0])
        if not -(1 << 63) <= value < 1 << 64:
            self.fail(f"{found[0]} has more than 64 bits", found.start(), found.end())
        return value

    def several(self, open: str, item: Callable[[], Item], close: str) -> list[Item]:
        """Items between signs, commas between them."""
        self.expect(open)
        return self.items(close, item)

    def type_if_any(self) -> TypeProto | None:
        """The type that comes next; None where a name does."""
        start = self.skip()
        found = self.match(NAME)
        self.at = start
        if found is None:
            return None
        compound = found[0] in COMPOUND and self.text.startswith("(", found.end())
        return self.type() if compound or found[0] in ELEMENT_TYPES else None

    def type(self) -> TypeProto:
        with self.nested():
            at = self.skip()
            word = self.name("a type")
            if word in ("seq", "optional"):
                self.expect("(")
                item = ItemsTypeProto(self.type(), at)
                self.expect(")")
                return TypeProto(sequence=item, at=at) if word == "seq" else TypeProto(optional=item, at=at)
            if word == "sparse_tensor":
                self.expect("(")
                inner = self.type()
                self.expect(")")
                return TypeProto(sparse=inner.tensor, at=at)
            if word == "map":
                self.expect("(")
                key = self.type().tensor
                self.expect(",")
                value = self.type()
                self.expect(")")
                return TypeProto(map=MapTypeProto(0 if key is None else key.dtype, value, at), at=at)
            if word not in ELEMENT_TYPES:
                self.fail(f"there is no type '{word}'", at, at + len(word), expected=" | ".join(ELEMENT_TYPES))
            return TypeProto(TensorTypeProto(ELEMENT_TYPES[word], self.shape(), at), at=at)

    def shape(self) -> TensorShape | None:
        """`[2,N,?]`; none for rank 0, `[]` for an unknown rank."""
        at = self.skip()
        if not self.accept("["):
            return TensorShape(at=at)
        dims = self.items("]", self.size)
        return TensorShape(dims, at) if dims else None

    def size(self) -> DimensionProto:
        at = self.skip()
        if self.accept("?"):
            return DimensionProto(at=at)
        found = self.match(INTEGER)
        if found is not None:
            return DimensionProto(value=int(found[0]), at=at)
        return DimensionProto(name=self.name("a size"), at=at)
