"""Names, types and attribute values of MLIR text on demand: a cursor over the text that matches regular expressions."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NoReturn

from deepx_graph.errors import ParseError, Source
from deepx_graph.text.common.cursor import TextCursor
from deepx_graph.text.stablehlo.literals import MLIR_DTYPES
from deepx_graph.text.stablehlo.quantised import QuantisedType, parse_uniform
from deepx_graph.text.stablehlo.syntax import Dense, EnumWord, Noted, Symbol, Typed, future_of
from deepx_graph.text.xla.mlir_text import unescaped
from deepx_graph.types import STATE, Dim, FunctionType, TupleType, Type, tensor

_TENSOR = re.compile(r"(?:tensor|memref)<((?:(?:\d+|\?)x)*)([^<>,]+(?:<(?:[^<>]|<[^<>]*>)*>)?)(?:,[^<>]*(?:<[^<>]*>)?)?>")
"""A tensor; a buffer is read as the tensor that it holds."""
IDENT = re.compile(r"[A-Za-z_][\w$.\-]*")
"""A bare name."""
_VALUE = re.compile(r"%[\w$.\-]+(?:#\d+)?")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
"""A string in quotes."""
_SYMBOL = re.compile(r'@(?:([\w$.\-]+)|"((?:[^"\\]|\\.)*)")')
CONFIG = "backend_config"
"""The attribute that has its value as it stands."""
_NUMBER = re.compile(r"[-+]?(?:0x[0-9a-fA-F]+|(?:\d+\.?\d*(?:[eE][-+]?\d+)?))")
_ENUM = re.compile(r"#(?:stablehlo|chlo|mhlo)<\s*([\w$.]+)\s+([\w.]+)\s*>")
_STRUCT = re.compile(r"#(?:stablehlo|chlo|mhlo)\.([\w]+)\s*<")
_ALIAS = re.compile(r"#[\w$.]+")
_CONV = re.compile(r"\[[^\]]*\]\s*x\s*\[[^\]]*\]\s*->\s*\[[^\]]*\]")
_SUB_AXIS = re.compile(r"\(\d+\)\d+")
"""`(1)2`, a part of an axis of a mesh: the parts before it, and its size."""
MAX_DEPTH = 100
"""How deep regions, types and attributes may stand inside one another: types take some six frames of Python for each level."""


@lru_cache(maxsize=65536)
def _tensor(dims: str, element: str) -> Type | None:
    return tensor_type(tuple(None if d == "?" else int(d) for d in dims.split("x")[:-1]), element)


@lru_cache(maxsize=65536)
def tensor_type(known: tuple[int | None, ...], element: str) -> Type | None:
    """The tensor of these sizes, None for one that is not known, and an element type by its name; None for an unknown name."""
    sizes: tuple[Dim, ...] = tuple(f"?{k}" if d is None else d for k, d in enumerate(known))
    dtype = MLIR_DTYPES.get(element.strip())
    if dtype is not None:
        return tensor(dtype, sizes)
    uniform = parse_uniform(element)
    return None if uniform is None else QuantisedType(tensor(uniform.storage, sizes), uniform)


class MlirCursor(TextCursor):
    """A position in a text of MLIR."""

    def __init__(self, source: Source) -> None:
        super().__init__(source, MAX_DEPTH)

    def word_range(self, start: int | None = None) -> tuple[int, int]:
        at = min(self.at if start is None else start, max(0, len(self.text) - 1))
        return at, at + 1

    def missing(self, word: str, what: str) -> NoReturn:
        self.fail(f"expected '{word}'{' ' + what if what else ''}", expected=f"'{word}'")

    def name(self, what: str) -> str:
        found = self.match(IDENT)
        if not found:
            self.fail(f"expected {what}", expected=what)
        return found[0]

    def value_name(self) -> tuple[str, int] | None:
        """`%x` or `%x#1`, with its offset."""
        found = self.match(_VALUE)
        return (found[0], found.start()) if found else None

    def need_value(self, what: str, form: str) -> tuple[str, int]:
        """The same. Raises ParseError where none stands."""
        return self.value_name() or self.fail(f"expected {what}", expected=form)

    def symbol(self) -> str | None:
        found = self.match(_SYMBOL)
        return (found[1] if found[1] is not None else found[2]) if found else None

    # --- types

    def type(self) -> Type:
        found = self.match(_TENSOR)
        if found:
            type = _tensor(found[1], found[2])
            if type is None:
                self.fail(f"unknown element type '{found[2]}'", found.start(2), found.end(2),
                          expected=", ".join(MLIR_DTYPES))
            return type
        with self.nested():
            return self._other_type()

    def _other_type(self) -> Type:
        """A type that is no tensor of the usual form."""
        if self.accept("!stablehlo.token") or self.accept("!mhlo.token"):
            return STATE
        if self.accept("!stablehlo.future<"):
            return future_of(self.list_of_types(">"))
        if self.accept("tuple<"):
            return TupleType(tuple(self.list_of_types(">")))
        if self.accept("("):
            params = tuple(self.list_of_types(")"))
            self.expect("->", "in a function type")
            return FunctionType(params, tuple(self.result_types()))
        word = self.match(IDENT)
        if word and word[0] in MLIR_DTYPES:
            return tensor(MLIR_DTYPES[word[0]])
        if word and word[0] == "complex" and (inner := self.match(re.compile(r"<f(32|64)>"))):
            return tensor(MLIR_DTYPES["complex" + inner[0]])
        return self.fail("expected a type", word.start() if word else None, word.end() if word else None,
                         expected="tensor<2x3xf32>, tuple<...> or !stablehlo.token")

    def types(self) -> list[Type]:
        """One or more, between commas."""
        found = [self.type()]
        while self.accept(","):
            found.append(self.type())
        return found

    def list_of_types(self, close: str) -> list[Type]:
        return self.items(close, self._listed_type)

    def _listed_type(self) -> Type:
        type = self.type()
        self.location()
        return type

    def result_types(self) -> list[Type]:
        return self.list_of_types(")") if self.accept("(") else [self.type()]

    def closing(self, open_: str, close: str) -> int:
        """The offset after the bracket that closes the one at the cursor."""
        depth, at = 0, self.at
        for found in re.compile(f"->|[{re.escape(open_ + close)}]|{STRING.pattern}").finditer(self.text, self.at):
            depth += (found[0] == open_) - (found[0] == close)
            if depth == 0:
                return found.end()
        return self.fail(f"'{open_}' does not close", at)

    def location(self) -> str:
        """`loc(...)` if one stands here; its text."""
        self.skip()
        if not self.text.startswith("loc(", self.at):
            return ""
        self.at += 3
        start = self.at
        self.at = self.closing("(", ")")
        return self.text[start + 1 : self.at - 1]

    # --- attribute values

    def dictionary(self, close: str) -> dict[str, Any]:
        """`name = value, ...` up to `close`; the opening bracket is already read."""
        return dict(self.items(close, self._entry))

    def _entry(self) -> tuple[str, Any]:
        quoted = self.match(STRING)
        name = quoted[1] if quoted else self.name("an attribute's name")
        return name, self._value(name) if self.accept("=") or self.accept(":") else True

    def _value(self, name: str) -> Any:
        """An attribute's value; as it stands when another dialect gives its meaning, and a configuration that is no string."""
        if "." not in name and name != CONFIG:
            return self.attribute()
        self.skip()
        start = self.at
        value = self.attribute()
        text = self.text[start : self.at]
        if name == CONFIG:
            return value if isinstance(value, str) else text
        return Noted(text)

    def attribute(self, bare: bool = False) -> Any:
        """An attribute value; `bare` leaves a type after a number unread."""
        with self.nested():
            value = self._attribute()
            return value if bare else self._typed(value)

    def _attribute(self) -> Any:
        self.skip()
        first = self.text[self.at : self.at + 1]
        if first == "[":
            if conv := self.match(_CONV):
                return conv[0]
            self.at += 1
            items = self.items("]", self.attribute)
            if self.text.startswith(" x [", self.at) or self.text.startswith("x[", self.at):
                self.accept("x")
                return items, self.attribute()
            return items
        if first in "{<" and first:
            self.at += 1
            return self.dictionary("}" if first == "{" else ">")
        if first == '"':
            string = self.match(STRING)
            if not string:
                self.fail("a string that does not end", expected='"')
            return unescaped(string[1])
        if first == "@":
            return Symbol(self.symbol() or "")
        if first == "#":
            return self._hash()
        if number := self.match(_NUMBER):
            return _number(number[0])
        if part := self.match(_SUB_AXIS):
            return EnumWord(part[0])
        return self._word()

    def _hash(self) -> Any:
        if enum := self.match(_ENUM):
            return EnumWord(enum[2], enum[1])
        if struct := self.match(_STRUCT):
            if struct[1] == "conv":
                found = self.match(_CONV)
                self.expect(">")
                return found[0] if found else ""
            return self.dictionary(">")
        start = self.at
        if self.match(_ALIAS) and self.peek("<"):
            self.at = self.closing("<", ">")
        return EnumWord(self.text[start : max(self.at, start + 1)])

    def _typed(self, value: Any) -> Any:
        if isinstance(value, (int, float)) and self.peek(":") and not self.peek("::"):
            mark = self.at
            self.accept(":")
            try:
                return Typed(value, self.type())
            except ParseError:
                self.at = mark
        return value

    def _word(self) -> Any:
        mark = self.at
        if self.accept("dense<"):
            return self.dense()
        if self.accept("array<"):
            self.name("an element type")
            if self.accept(":"):
                return self.items(">", self.attribute)
            self.expect(">")
            return []
        if self.accept("dense_resource<"):
            self.fail("the constant's values are in a resource that this text does not hold", mark)
        word = self.match(IDENT)
        if word and word[0] in ("true", "false"):
            return word[0] == "true"
        if word and word[0] not in ("tensor", "tuple", "complex"):
            return EnumWord(word[0])
        self.at = mark
        return self.type()

    def dense(self) -> Dense:
        """After `dense<`: the text up to the closing bracket, and the type that follows."""
        start = self.at
        self.skip()
        string = STRING.match(self.text, self.at)
        end = string.end() if string else self.text.find(">", start)
        if string:
            self.at = end
            self.expect(">")
        elif end < 0:
            self.fail("dense< does not close", start)
        else:
            self.at = end + 1
        type = self.type() if self.accept(":") else None
        return Dense(self.text[start:end].strip(), type, start)


def _number(text: str) -> int | float:
    if "x" in text:
        return int(text, 16)
    return float(text) if any(c in text for c in ".eE") else int(text)
