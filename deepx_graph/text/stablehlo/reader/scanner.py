"""Tokens of MLIR text on demand: a cursor over the text that matches regular expressions and reads types."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NoReturn

from deepx_graph.errors import Source
from deepx_graph.text.common.cursor import TextCursor
from deepx_graph.text.stablehlo.quantised import QuantisedType, parse_uniform
from deepx_graph.types import ANY, DTYPES, I64, STATE, Dim, DType, FunctionType, TupleType, Type, tensor


def _dtype_words(dtype: DType) -> tuple[str, ...]:
    """What MLIR calls an element type, the usual word first."""
    match dtype.kind:
        case "bool":
            return ("i1",)
        case "int":
            return dtype.name, f"s{dtype.name}"
        case "uint":
            return (f"ui{dtype.bits}",)
        case "complex":
            return (f"complex<f{dtype.bits // 2}>",)
        case _:
            return (dtype.name[:2] + dtype.name[2:].upper(),)  # f8E4M3FN


MLIR_DTYPES: dict[str, DType] = {word: d for d in DTYPES if d is not ANY for word in _dtype_words(d)} | {"index": I64}
"""MLIR's names of the element types."""

_TENSOR = re.compile(r"tensor<((?:(?:\d+|\?)x)*)([^<>,]+(?:<(?:[^<>]|<[^<>]*>)*>)?)(?:,[^<>]*(?:<[^<>]*>)?)?>")
IDENT = re.compile(r"[A-Za-z_][\w$.\-]*")
"""A bare name."""
_VALUE = re.compile(r"%[\w$.\-]+(?:#\d+)?")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
"""A string in quotes."""
_SYMBOL = re.compile(r'@(?:([\w$.\-]+)|"((?:[^"\\]|\\.)*)")')
MAX_DEPTH = 200


@lru_cache(maxsize=65536)
def _tensor(dims: str, element: str) -> Type | None:
    sizes: tuple[Dim, ...] = tuple(f"?{k}" if d == "?" else int(d) for k, d in enumerate(dims.split("x")[:-1]))
    dtype = MLIR_DTYPES.get(element.strip())
    if dtype is not None:
        return tensor(dtype, sizes)
    uniform = parse_uniform(element)
    return None if uniform is None else QuantisedType(tensor(uniform.storage, sizes), uniform)


class Scanner(TextCursor):
    """A cursor over a text."""

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
        if self.accept("!stablehlo.future<"):  # what is begun is done, so that its value is there
            value = self.type()
            self.expect(">")
            return value
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

    def list_of_types(self, close: str) -> list[Type]:
        types: list[Type] = []
        while not self.accept(close):
            types.append(self.type())
            self.location()
            if not self.accept(","):
                self.expect(close)
                break
        return types

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
