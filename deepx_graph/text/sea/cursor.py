"""Position in a text of the sea form, or of one with its words: names, strings, types and attribute values.

The form needs no separate list of tokens: the reader asks for the word or the pattern that it expects where it stands.
A type that was met before is taken from a table by its text. Functions as values are read through the callback that the reader
gives, as they hold whole graphs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from deepx_graph.errors import Diagnostic, InferError, LimitError, Source, suggest
from deepx_graph.ir import Function
from deepx_graph.text.common.cursor import TextCursor
from deepx_graph.text.sea.words import float_of, is_bare_dim, literal_of, name_text
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

STRING = r'"(?:[^"\\\n]|\\.)*"'
BARE = r"[A-Za-z_][\w.$-]*"
VALUE = rf"%(?:\d+|{BARE}|{STRING})(?:\#\d+)?"
NAME = rf"(?:{BARE}|{STRING})"

_VALUE = re.compile(VALUE, re.ASCII)
_WORD = re.compile(rf"{STRING}|[%@]?[\w.$?#-]+|->|.", re.ASCII | re.DOTALL)
_NAME = re.compile(NAME, re.ASCII)
_STRING = re.compile(STRING)
_TENSOR = re.compile(rf"(\w+)\[((?:{STRING}|[^\]\"\n])*)\]", re.ASCII)
_PLAIN = re.compile(r"\w+", re.ASCII)
_DIM = re.compile(rf"\s*({STRING}|[^,\"\s]+)\s*(?:,|\Z)")
_DENSE = re.compile(r"dense<([^>]*)>")
_NUMBER = re.compile(r"-?(?:inf|nan(?:<0x[0-9a-f]{16}>)?|\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\w.\[])", re.ASCII)
_CONSTANTS = {"true": True, "false": False, "none": None}
_FUNCTION = re.compile(r"func\b")


class SeaCursor(TextCursor):
    """A position in a text whose comments begin with `comment`; `function` reads a function where `begins` matches."""

    def __init__(self, source: Source, max_depth: int, max_rank: int, function: Callable[[], Function], *, comment: str = "//",
                 begins: re.Pattern[str] = _FUNCTION) -> None:
        super().__init__(source, max_depth)
        self.max_rank, self.function, self.begins = max_rank, function, begins
        self.BLANK, self.COMMENT = re.compile(rf"(?:\s|{comment}[^\n]*)*+"), comment[0]
        self._known: dict[str, Type] = {}

    # --- words and names

    def word_range(self, start: int | None = None) -> tuple[int, int]:
        at = self.skip() if start is None else start
        found = _WORD.match(self.text, at)
        return at, found.end() if found else at

    def accept_word(self, word: str) -> bool:
        """Passes `word`, made of letters, if it comes next as a whole."""
        after = self.skip() + len(word)
        if not self.peek(word) or self.text[after : after + 1].isalnum():
            return False
        self.at = after
        return True

    def expect_word(self, word: str) -> None:
        """Passes `word`, made of letters. Raises ParseError."""
        if not self.accept_word(word):
            self.missing(word, "")

    def name(self, what: str) -> str:
        """Passes a name, bare or quoted. Raises ParseError."""
        found = self.match(_NAME)
        if found is None:
            self.mismatch(what)
        return self.unquote(found[0], found.start())

    def at_name(self, what: str) -> str:
        """Passes `@` and a name. Raises ParseError."""
        self.expect("@", f"and {what}")
        return self.name(what)

    def type_param(self) -> str:
        """Passes `$` and the name of a type parameter. Raises ParseError."""
        self.expect("$", "and the name of a type parameter")
        return self.name("the name of a type parameter")

    def value_name(self) -> str:
        """Passes the name of a value; gives its key. Raises ParseError."""
        found = self.match(_VALUE)
        if found is None:
            self.mismatch("a value, like %x")
        return self.key(found[0], found.start())

    def key(self, word: str, at: int) -> str:
        """The one spelling of a value's name: quoted only where it must be."""
        if '"' not in word:
            return word
        quoted, _, number = word[1:].rpartition('"')
        return f"%{name_text(self.unquote(quoted + chr(34), at))}{number}"

    def plain_name(self, word: str) -> str:
        """The name a value had where it came from: without `%`, quotes and number; empty for a value that is only numbered."""
        if '"' in word:
            return self.unquote(word[1 : word.rindex('"') + 1], self.at)
        name = word[1:].partition("#")[0]
        return "" if name.isdecimal() else name

    def string(self) -> str:
        """Passes a quoted string. Raises ParseError."""
        found = self.match(_STRING)
        if found is None:
            end = self.text.find("\n", self.at)
            self.fail("this string does not end", self.at, None if end < 0 else end, expected='"')
        return self.unquote(found[0], found.start())

    def unquote(self, word: str, at: int) -> str:
        """The meaning of a word: without quotes and escapes."""
        if not word.startswith('"'):
            return word
        try:
            return str(json.loads(word))
        except ValueError as e:
            self.fail(f"not a string: {str(e).split(':')[0]}", at, at + len(word), expected="a JSON string")

    # --- types

    def known_type(self, text: str, end: int) -> Type:
        """The tensor type written as `text`, which ends at `end` and which the tensor pattern matched."""
        found = self._known.get(text)
        if found is None:
            self.at = end - len(text)
            found = self._known[text] = self.type()
            self.at = end
        return found

    def type(self) -> Type:
        """Passes a type. Raises ParseError, LimitError."""
        found = self.match(_TENSOR)
        if found is not None:
            return self._tensor(found)
        if self.peek("("):
            items = self._types()
            return FunctionType(items, self._types()) if self.accept("->") else TupleType(items)
        if self.accept_word("state"):
            return STATE
        if self.accept("$"):
            return VarType(self.name("the name of a type variable"))
        if self.accept("@"):
            return self._data()
        if self.accept_word("tape"):
            return TAPE
        if self.accept_word("ref"):
            self.expect("(")
            with self.nested():
                item = self.type()
            self.expect(")")
            return RefType(item)
        return self.mismatch("a type, like f32[2,3]")

    def _data(self) -> DataType:
        """Passes a data type, behind its `@`."""
        name = self.name("the name of a data type")
        with self.nested():
            return DataType(name, tuple(self.items(">", self.type)) if self.accept("<") else ())

    def tensor(self) -> TensorType:
        """Passes a tensor type."""
        found = self.match(_TENSOR)
        if found is None:
            self.mismatch("a tensor type, like f32[2,3]")
        return self._tensor(found)

    def _types(self) -> tuple[Type, ...]:
        with self.nested():
            self.expect("(")
            return tuple(self.items(")", self.type))

    def _tensor(self, found: re.Match[str]) -> TensorType:
        dtype, dims = self._dtype(found[1], found.start()), found[2].strip()
        return tensor(dtype, None if dims == "*" else self._dims(dims, found.start(2)))

    def _dtype(self, name: str, at: int) -> DType:
        try:
            return dtype_named(name)
        except KeyError:
            self.fail(f"unknown dtype '{name}'", at, at + len(name), expected="a dtype, like f32",
                             hint=suggest(name, dtype_names()))

    def _dims(self, text: str, at: int) -> tuple[int | str, ...]:
        dims: list[int | str] = []
        start = 0
        while start < len(text):
            found = _DIM.match(text, start)
            word = found[1] if found else text[start:]
            if word.isdecimal() and word.isascii() and len(word) < 20:
                dims.append(int(word))
            elif found and (word.startswith('"') or is_bare_dim(word)):
                dims.append(self.unquote(word, at))
            else:
                self.fail(f"'{word}' is no dimension", at, at + len(text), expected="a size or a symbol")
            start = found.end() if found else len(text)
        if len(dims) > self.max_rank:
            raise LimitError(Diagnostic(f"a tensor of rank {len(dims)}", self.span(at, at + len(text)),
                                        expected=f"at most {self.max_rank} dimensions"))
        return tuple(dims)

    # --- attributes

    def function_attributes(self, *ends: str) -> tuple[tuple[str, str], ...]:
        """Passes `with name = "text" ...` if it comes, up to one of these signs. Raises ParseError."""
        found = []
        if self.accept_word("with"):
            while not any(map(self.peek, ends)):
                name = self.name(f"the name of an attribute of the function, or '{ends[0]}'")
                self.expect("=")
                found.append((name, self.string()))
        return tuple(found)

    def attributes(self) -> dict[str, Any]:
        """Passes `{name = value, ...}`. Raises ParseError for a name that is given twice."""
        attrs = dict[str, Any]()

        def attribute() -> None:
            name = self.name("an attribute, like axis = 1")
            self.expect("=")
            if name in attrs:
                self.fail(f"the attribute '{name}' is given twice")
            attrs[name] = self.value()

        self.expect("{")
        self.items("}", attribute)
        return attrs

    def value(self) -> Any:
        """Passes an attribute value. Raises ParseError, LimitError."""
        if self.peek('"'):
            return self.string()
        if self.peek("["):
            return self._list()
        if self.begins.match(self.text, self.at):
            with self.nested():
                return self.function()
        if self.peek("dense<"):
            return self._dense()
        number = self.match(_NUMBER)
        if number is not None:
            return self._number(number)
        return self._word_or_type()

    def _word_or_type(self) -> Any:
        start = self.skip()
        found = self.match(_PLAIN)
        if found is not None and found[0] in _CONSTANTS:
            return _CONSTANTS[found[0]]
        if found is not None and self.text[self.at : self.at + 1] not in ("[", "(") and found[0] != "state":
            return self._dtype(found[0], start)
        self.at = start
        return self.type()

    def _list(self) -> tuple[Any, ...]:
        with self.nested():
            self.expect("[")
            return tuple(self.items("]", self.value))

    def _number(self, found: re.Match[str]) -> int | float:
        text = found[0]
        if text.lstrip("-").isdecimal():
            if len(text) > 40:
                self.fail("this number is too long", found.start(), found.end())
            return int(text)
        return float_of(text)

    def _dense(self) -> Any:
        found = self.match(_DENSE)
        if found is None:
            self.fail("this literal does not end", expected="'>'")
        self.expect(":", "and the type of the literal")
        type = self.tensor()
        try:
            return literal_of(found[1], type)
        except InferError as e:
            self.fail(e.message, found.start(), min(found.end(), found.start() + 200), expected=e.expected)
