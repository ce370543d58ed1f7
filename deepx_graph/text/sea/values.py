"""Reading types and attribute values of the sea form: everything in a line but names and operands.

A type that was met before is taken from a table by its text. Functions as values are read through the callback that the reader
gives, as they hold whole graphs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from deepx_graph.errors import Diagnostic, InferError, LimitError, suggest
from deepx_graph.ir import Function
from deepx_graph.text.sea.cursor import STRING, SeaCursor
from deepx_graph.text.sea.words import float_of, is_bare_dim, literal_of
from deepx_graph.types import (
    STATE,
    TAPE,
    DataType,
    DType,
    FunctionType,
    RefType,
    TensorType,
    TupleType,
    Type,
    VarType,
    dtype_named,
    dtype_names,
    tensor,
)

_TENSOR = re.compile(rf"(\w+)\[((?:{STRING}|[^\]\"\n])*)\]", re.ASCII)
_WORD = re.compile(r"\w+", re.ASCII)
_DIM = re.compile(rf"\s*({STRING}|[^,\"\s]+)\s*(?:,|\Z)")
_DENSE = re.compile(r"dense<([^>]*)>")
_NUMBER = re.compile(r"-?(?:inf|nan(?:<0x[0-9a-f]{16}>)?|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.\[])", re.ASCII)
_CONSTANTS = {"true": True, "false": False, "none": None}


class Values:
    """Reads types and values at a cursor; `function` reads a function there."""

    def __init__(self, cursor: SeaCursor, max_rank: int, function: Callable[[], Function]) -> None:
        self.cursor, self.max_rank, self.function = cursor, max_rank, function
        self._known: dict[str, Type] = {}

    # --- types

    def known_type(self, text: str, end: int) -> Type:
        """The tensor type written as `text`, which ends at `end` and which the tensor pattern matched."""
        found = self._known.get(text)
        if found is None:
            self.cursor.at = end - len(text)
            found = self._known[text] = self.type()
            self.cursor.at = end
        return found

    def type(self) -> Type:
        """Passes a type. Raises ParseError, LimitError."""
        c = self.cursor
        found = c.match(_TENSOR)
        if found is not None:
            return self._tensor(found)
        if c.peek("("):
            items = self._types()
            return FunctionType(items, self._types()) if c.accept("->") else TupleType(items)
        if c.accept_word("state"):
            return STATE
        if c.accept("$"):
            return VarType(c.name("the name of a type variable"))
        if c.accept("@"):
            return self._data()
        if c.accept_word("tape"):
            return TAPE
        if c.accept_word("ref"):
            c.expect("(")
            with c.nested():
                item = self.type()
            c.expect(")")
            return RefType(item)
        return c.mismatch("a type, like f32[2,3]")

    def _data(self) -> DataType:
        """Passes a data type, behind its `@`."""
        c = self.cursor
        name = c.name("the name of a data type")
        with c.nested():
            return DataType(name, tuple(c.items(">", self.type)) if c.accept("<") else ())

    def tensor(self) -> TensorType:
        """Passes a tensor type."""
        found = self.cursor.match(_TENSOR)
        if found is None:
            self.cursor.mismatch("a tensor type, like f32[2,3]")
        return self._tensor(found)

    def _types(self) -> tuple[Type, ...]:
        with self.cursor.nested():
            self.cursor.expect("(")
            return tuple(self.cursor.items(")", self.type))

    def _tensor(self, found: re.Match[str]) -> TensorType:
        dtype, dims = self._dtype(found[1], found.start()), found[2].strip()
        return tensor(dtype, None if dims == "*" else self._dims(dims, found.start(2)))

    def _dtype(self, name: str, at: int) -> DType:
        try:
            return dtype_named(name)
        except KeyError:
            self.cursor.fail(f"unknown dtype '{name}'", at, at + len(name), expected="a dtype, like f32",
                             hint=suggest(name, dtype_names()))

    def _dims(self, text: str, at: int) -> tuple[int | str, ...]:
        dims: list[int | str] = []
        place = 0
        while place < len(text):
            found = _DIM.match(text, place)
            word = found[1] if found else text[place:]
            if word.isdecimal() and word.isascii() and len(word) < 20:
                dims.append(int(word))
            elif found and (word.startswith('"') or is_bare_dim(word)):
                dims.append(self.cursor.unquote(word, at))
            else:
                self.cursor.fail(f"'{word}' is no dimension", at, at + len(text), expected="a size or a symbol")
            place = found.end() if found else len(text)
        if len(dims) > self.max_rank:
            raise LimitError(Diagnostic(f"a tensor of rank {len(dims)}", self.cursor.span(at, at + len(text)),
                                        expected=f"at most {self.max_rank} dimensions"))
        return tuple(dims)

    # --- attribute values

    def attributes(self) -> dict[str, Any]:
        """Passes `{name = value, ...}`. Raises ParseError for a name that is given twice."""
        c, attrs = self.cursor, dict[str, Any]()

        def attribute() -> None:
            name = c.name("an attribute, like axis = 1")
            c.expect("=")
            if name in attrs:
                c.fail(f"the attribute '{name}' is given twice")
            attrs[name] = self.value()

        c.expect("{")
        c.items("}", attribute)
        return attrs

    def value(self) -> Any:
        """Passes an attribute value. Raises ParseError, LimitError."""
        c = self.cursor
        if c.peek('"'):
            return c.string()
        if c.peek("["):
            return self._list()
        if c.peek("func") and not c.text[c.at + 4].isalnum():
            with c.nested():
                return self.function()
        if c.peek("dense<"):
            return self._dense()
        number = c.match(_NUMBER)
        if number is not None:
            return self._number(number)
        return self._word_or_type()

    def _word_or_type(self) -> Any:
        c = self.cursor
        start = c.skip()
        found = c.match(_WORD)
        if found is not None and found[0] in _CONSTANTS:
            return _CONSTANTS[found[0]]
        if found is not None and c.text[c.at : c.at + 1] not in ("[", "(") and found[0] != "state":
            return self._dtype(found[0], start)
        c.at = start
        return self.type()

    def _list(self) -> tuple[Any, ...]:
        with self.cursor.nested():
            self.cursor.expect("[")
            return tuple(self.cursor.items("]", self.value))

    def _number(self, found: re.Match[str]) -> int | float:
        text = found[0]
        if text.lstrip("-").isdecimal():
            if len(text) > 40:
                self.cursor.fail("this number is too long", found.start(), found.end())
            return int(text)
        return float_of(text)

    def _dense(self) -> Any:
        c = self.cursor
        found = c.match(_DENSE)
        if found is None:
            c.fail("this literal does not end", expected="'>'")
        c.expect(":", "and the type of the literal")
        type = self.tensor()
        try:
            return literal_of(found[1], type)
        except InferError as e:
            c.fail(e.message, found.start(), min(found.end(), found.start() + 200), expected=e.expected)
