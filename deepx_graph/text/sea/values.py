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
from deepx_graph.text.sea.cursor import STRING, Cursor
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
    """Reads types and values at a cursor; `function` reads a function there, given the depth of nesting."""

    def __init__(self, cursor: Cursor, max_rank: int, function: Callable[[int], Function]) -> None:
        self.cursor, self.max_rank, self.function = cursor, max_rank, function
        self._known: dict[str, Type] = {}

    # --- types

    def known_type(self, text: str, end: int) -> Type:
        """The tensor type written as `text`, which ends at `end` and which the tensor pattern matched."""
        found = self._known.get(text)
        if found is None:
            self.cursor.at = end - len(text)
            found = self._known[text] = self.type(0)
            self.cursor.at = end
        return found

    def type(self, depth: int) -> Type:
        """Passes a type. Raises ParseError, LimitError."""
        c = self.cursor
        found = c.match(_TENSOR)
        if found is not None:
            return self._tensor(found)
        if c.peek("("):
            items = self._types(c.nested(depth))
            if c.accept("->"):
                return FunctionType(items, self._types(c.nested(depth)))
            return TupleType(items)
        if c.accept_word("state"):
            return STATE
        if c.accept("$"):
            return VarType(c.name("the name of a type variable"))
        if c.accept("@"):
            return self._data(c.nested(depth))
        if c.accept_word("tape"):
            return TAPE
        if c.accept_word("ref"):
            c.expect("(")
            item = self.type(c.nested(depth))
            c.expect(")")
            return RefType(item)
        return c.fail(f"found {c.next_word()}", expected="a type, like f32[2,3]")

    def _data(self, depth: int) -> DataType:
        """Passes a data type, behind its `@`."""
        c, args = self.cursor, list[Type]()
        name = c.name("the name of a data type")
        if c.accept("<"):
            while not c.accept(">"):
                args.append(self.type(depth))
                if not c.peek(">"):
                    c.expect(",", "or '>'")
        return DataType(name, tuple(args))

    def tensor(self) -> TensorType:
        """Passes a tensor type."""
        found = self.cursor.match(_TENSOR)
        if found is None:
            self.cursor.fail(f"found {self.cursor.next_word()}", expected="a tensor type, like f32[2,3]")
        return self._tensor(found)

    def _types(self, depth: int) -> tuple[Type, ...]:
        c, items = self.cursor, []
        c.expect("(")
        while not c.accept(")"):
            items.append(self.type(depth))
            if not c.peek(")"):
                c.expect(",", "or ')'")
        return tuple(items)

    def _tensor(self, found: re.Match[str]) -> TensorType:
        dtype, dims = self._dtype(found[1], found.start()), found[2].strip()
        return tensor(dtype, None if dims == "*" else self._dims(dims, found.start(2)))

    def _dtype(self, name: str, at: int) -> DType:
        try:
            return dtype_named(name)
        except KeyError:
            self.cursor.fail(f"unknown dtype '{name}'", start=at, end=at + len(name), expected="a dtype, like f32",
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
                self.cursor.fail(f"'{word}' is no dimension", start=at, end=at + len(text), expected="a size or a symbol")
            place = found.end() if found else len(text)
        if len(dims) > self.max_rank:
            raise LimitError(Diagnostic(f"a tensor of rank {len(dims)}", self.cursor.span(at, at + len(text)),
                                        expected=f"at most {self.max_rank} dimensions"))
        return tuple(dims)

    # --- attribute values

    def attributes(self, depth: int) -> dict[str, Any]:
        """Passes `{name = value, ...}`. Raises ParseError for a name that is given twice."""
        c, attrs = self.cursor, dict[str, Any]()
        c.expect("{")
        while not c.accept("}"):
            name = c.name("an attribute, like axis = 1")
            c.expect("=")
            if name in attrs:
                c.fail(f"the attribute '{name}' is given twice")
            attrs[name] = self.value(depth)
            if not c.peek("}"):
                c.expect(",", "or '}'")
        return attrs

    def value(self, depth: int) -> Any:
        """Passes an attribute value. Raises ParseError, LimitError."""
        c = self.cursor
        if c.peek('"'):
            return c.string()
        if c.peek("["):
            return self._list(c.nested(depth))
        if c.peek("func") and not c.text[c.at + 4].isalnum():
            return self.function(c.nested(depth))
        if c.peek("dense<"):
            return self._dense()
        number = c.match(_NUMBER)
        if number is not None:
            return self._number(number)
        return self._word_or_type(depth)

    def _word_or_type(self, depth: int) -> Any:
        c = self.cursor
        start = c.skip()
        found = c.match(_WORD)
        if found is not None and found[0] in _CONSTANTS:
            return _CONSTANTS[found[0]]
        if found is not None and c.text[c.at : c.at + 1] not in ("[", "(") and found[0] != "state":
            return self._dtype(found[0], start)
        c.at = start
        return self.type(depth)

    def _list(self, depth: int) -> tuple[Any, ...]:
        c, items = self.cursor, []
        c.expect("[")
        while not c.accept("]"):
            items.append(self.value(depth))
            if not c.peek("]"):
                c.expect(",", "or ']'")
        return tuple(items)

    def _number(self, found: re.Match[str]) -> int | float:
        text = found[0]
        if text.lstrip("-").isdecimal():
            if len(text) > 40:
                self.cursor.fail("this number is too long", start=found.start(), end=found.end())
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
            c.fail(e.message, start=found.start(), end=min(found.end(), found.start() + 200), expected=e.expected)
