"""Relay text as tokens, and what they say apart from expressions: types, values of attributes, references into the metadata.

Tokens never fail to cover the text: what is no word of the language is a ParseError at its place. Comments are left out; where one
states a type is remembered. The metadata section is not tokens but JSON; the scanner gives its offset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deepx_graph.errors import DeepxGraphError, Diagnostic, InferError, LimitError, ParseError, Source, Span, suggest
from deepx_graph.literal import Literal
from deepx_graph.text.common.cursor import Token, TokenCursor
from deepx_graph.text.relay.reader.metadata import Metadata
from deepx_graph.text.relay.syntax import Constant, Expr
from deepx_graph.text.relay.words import DTYPES, dtype_of_name, number
from deepx_graph.types import DataType, Dim, FunctionType, RefType, TupleType, Type, VarType, tensor

METADATA = re.compile(r"#\[\s*metadata\s*\]")

_TOKEN = re.compile(
    r"(?P<blank>\s+)"
    r"|(?P<line>//[^\n]*)"
    r"|(?P<block>/\*)"
    r"|(?P<header>\#\[[^\]\n]*\])"
    r"|(?P<graph>%\d+)"
    r"|(?P<local>%[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<globl>@[A-Za-z_][\w.]*)"
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[fiu]\d*)?(?!\w))"
    r"|(?P<item>\.\d+)"
    r"|(?P<word>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<sign>->|=>|==|!=|<=|>=|[(){}\[\],;:=+\-*/<>?.&])",
    re.ASCII,
)
_COMMENT = re.compile(r"/\*|\*/")
_STATED = re.compile(r"/\*\s*ty=")


MAX_DEPTH = 100
"""The parser recurses over brackets; beyond this Python's own stack would end first."""


@dataclass
class Tokens:
    """The tokens of a text, with what else the scanner saw. `stated` maps a token's number to the type comment before it."""

    source: Source
    tokens: list[Token]
    stated: dict[int, tuple[int, int]]
    metadata: int | None
    """Where the JSON of the metadata section begins, if there is one."""


def scan(source: Source, start: int = 0, end: int | None = None) -> Tokens:
    """The tokens between two places. Raises ParseError for a character that begins no word, or a comment without end."""
    text = source.text
    metadata = METADATA.search(text, start) if end is None else None
    limit = len(text) if end is None else end
    if metadata is not None:
        limit = metadata.start()
    tokens: list[Token] = []
    stated: dict[int, tuple[int, int]] = {}
    at, match = start, _TOKEN.match
    while at < limit:
        found = match(text, at, limit)
        if found is None:
            raise ParseError(Diagnostic(f"'{text[at]}' begins no word of Relay", Span(source, at, at + 1)))
        kind = found.lastgroup or ""
        if kind == "block":
            at = _comment_end(source, at, limit)
            if _STATED.match(text, found.start()):
                stated[len(tokens)] = (found.start(), at)
            continue
        at = found.end()
        if kind not in ("blank", "line", "header"):
            tokens.append(Token(kind, found[0], found.start(), at))
    tokens.append(Token("end", "", limit, limit))
    return Tokens(source, tokens, stated, None if metadata is None else metadata.end())


def _comment_end(source: Source, start: int, limit: int) -> int:
    """The end of the comment that begins at `start`; comments nest."""
    depth = 0
    for found in _COMMENT.finditer(source.text, start, limit):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    raise ParseError(Diagnostic("this comment does not end", Span(source, start, start + 2), expected="*/"))


class RelayCursor(TokenCursor):
    """A position in the tokens of a Relay text."""

    def __init__(self, tokens: Tokens, max_depth: int) -> None:
        super().__init__(tokens.source, tokens.tokens, min(max_depth, MAX_DEPTH))
        self._comments = tokens.stated

    def comment(self) -> tuple[int, int] | None:
        """The offsets of the comment that states a type here, if there is one."""
        return self._comments.get(self.at)

    def literal(self, token: Token, negative: bool = False, start: int | None = None) -> Literal:
        """The value of a number that was passed, whose sign begins at `start`. Raises ParseError."""
        try:
            return number(token.text, negative)
        except InferError as e:
            raise ParseError(e.diagnostic(self.span(token.start if start is None else start, token.end), "")) from None


# --- types ----------------------------------------------------------------------------------------------------------


class Unstated(Type):
    """`_`, or a type that the text leaves out."""

    __slots__ = ()

    def __str__(self) -> str:
        return "_"


UNSTATED = Unstated()


class TypeParser:
    """Passes types at a cursor. `variables` are the type parameters in scope; each `?` gets a symbol of its own."""

    def __init__(self, cursor: RelayCursor, max_rank: int) -> None:
        self.c, self.max_rank = cursor, max_rank
        self.variables: list[str] = []
        self.symbols = 0

    def type(self) -> Type:
        """Passes a type. Raises ParseError, LimitError."""
        with self.c.nested():
            return self._type()

    def _type(self) -> Type:
        c = self.c
        if c.accept("("):
            return self._tuple()
        word = c.expect_kind("word", "a type, like Tensor[(2, 3), float32]")
        if word.text == "_":
            return UNSTATED
        if word.text == "fn":
            return self._function()
        if word.text == "Tensor":
            return self._tensor()
        if word.text in ("ref", "Ref") and (c.peek("(") or c.peek("[")):
            close = ")" if c.advance().text == "(" else "]"
            item = self.type()
            c.expect(close)
            return RefType(item)
        if word.text in self.variables:
            return VarType(word.text)
        dtype = dtype_of_name(word.text)
        if dtype is not None:
            return tensor(dtype, ())
        if c.peek("[") and c.peek("(", 1) and c.tokens[c.at + 2].kind == "number":
            c.fail_at(word, f"no type '{word.text}' has sizes", expected="Tensor", hint=suggest(word.text, ["Tensor"]))
        if c.accept("["):
            return DataType(word.text, tuple(c.items("]", self.type)))
        return DataType(word.text)

    def _tuple(self) -> Type:
        c = self.c
        if c.accept(")"):
            return TupleType(())
        first = self.type()
        if c.accept(")"):
            return first
        c.expect(",", "or ')'")
        return TupleType((first, *c.items(")", self.type)))

    def _function(self) -> Type:
        """Behind `fn`. The result is the one of a FunctionType's results; the state is no matter of the text."""
        c, count = self.c, len(self.variables)
        self.variables += self.params()
        c.expect("(")
        params = tuple(c.items(")", self.type))
        c.expect("->")
        result = self.type()
        del self.variables[count:]
        return FunctionType(params, (result,))

    def params(self) -> tuple[str, ...]:
        """Passes `[A, B]` if it is there."""
        c = self.c
        if not c.accept("["):
            return ()
        return tuple(c.items("]", lambda: c.expect_kind("word", "a type parameter").text))

    def _tensor(self) -> Type:
        c = self.c
        c.expect("[")
        c.expect("(")
        dims = c.items(")", self._dim)
        if len(dims) > self.max_rank:
            raise LimitError(Diagnostic(f"a tensor of rank {len(dims)}", c.span(*c.word_range()),
                                        expected=f"at most {self.max_rank} dimensions"))
        c.expect(",", "and the element type")
        word = c.expect_kind("word", "an element type, like float32")
        dtype = dtype_of_name(word.text)
        if dtype is None:
            c.fail_at(word, f"unknown element type '{word.text}'", expected="an element type, like float32",
                      hint=suggest(word.text, DTYPES))
        c.expect("]")
        return tensor(dtype, tuple(dims))

    def _dim(self) -> Dim:
        c = self.c
        if c.accept("?"):
            self.symbols += 1
            return f"?{self.symbols}"
        digits = c.expect_kind("number", "a size, or '?'")
        body = digits.text.removesuffix("i64").removesuffix("i32")
        if not body.isdecimal() or len(body) > 18:
            c.fail_at(digits, f"'{digits.text}' is no size", expected="an integer, or '?'")
        return int(body)

    def stated(self, comment: tuple[int, int]) -> Type | None:
        """The type that a comment `/* ty=T span=... */` states; None where it cannot be read. The cursor stays where it is."""
        c = self.c
        start, end = c.text.index("ty=", comment[0]) + 3, comment[1] - 2
        span = c.text.find(" span=", start, end)
        tokens, at, depth = c.tokens, c.at, c.depth
        try:
            c.tokens, c.at = scan(c.source, start, span if span >= 0 else end).tokens, 0
            found = self.type()
            return found if c.next.kind == "end" else None
        except DeepxGraphError:
            return None
        finally:
            c.tokens, c.at, c.depth = tokens, at, depth


# --- attributes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Word:
    """A value of an attribute that is kept as it stands: a reference into the metadata section, a bare word."""

    text: str


class AttributeParser:
    """Passes attributes and references into the metadata section at a cursor."""

    def __init__(self, cursor: RelayCursor, metadata: Metadata) -> None:
        self.c, self.metadata = cursor, metadata

    def attribute(self) -> tuple[Token, Any]:
        """Passes `name=value`."""
        c = self.c
        name = c.expect_kind("word", "a parameter, like %x: T, or an attribute, like axis=1")
        c.expect("=")
        return name, self._value()

    def _value(self) -> Any:
        c = self.c
        token = c.advance()
        match token.kind:
            case "string":
                return self._string(token)
            case "number":
                return c.literal(token).array.item()
            case "word":
                words = {"None": None, "True": True, "False": False}
                if token.text == "meta":
                    return self._reference(token)
                return words[token.text] if token.text in words else Word(token.text)
            case "sign" if token.text == "-" and c.next.kind == "number":
                return c.literal(c.advance(), True).array.item()
            case "sign" if token.text in ("[", "("):
                return self._sequence("]" if token.text == "[" else ")", self._value)
            case "sign" if token.text == "{":
                return self._sequence("}", self._pair)
        return c.fail_at(token, f"found '{token.text}'", expected="the value of an attribute")

    def _string(self, token: Token) -> str:
        try:
            return str(json.loads(token.text))
        except ValueError:
            self.c.fail_at(token, "not a string")

    def _sequence(self, close: str, item: Callable[[], Any]) -> tuple[Any, ...]:
        with self.c.nested():
            return tuple(self.c.items(close, item))

    def _pair(self) -> tuple[Any, Any]:
        key = self._value()
        self.c.expect(":" if self.c.peek(":") else "=")
        return key, self._value()

    # --- the metadata section

    def _meta(self) -> tuple[str, int]:
        """Behind `meta`: `[key][index]`."""
        c = self.c
        c.expect("[")
        key = c.expect_kind("word", "a key of the metadata section").text
        c.expect("]")
        c.expect("[")
        index = c.expect_kind("number", "an index")
        c.expect("]")
        if not index.text.isdecimal() or len(index.text) > 9:
            c.fail_at(index, f"'{index.text}' is no index")
        return key, int(index.text)

    def constant(self) -> Expr:
        """Passes `meta[relay.Constant][0]` as an expression. Raises ParseError when the section has none."""
        c = self.c
        start = c.advance().start
        key, index = self._meta()
        return Constant(start, c.last.end, self.metadata.constant(key, index, c.span(start, c.last.end)))

    def _reference(self, start: Token) -> Word:
        key, index = self._meta()
        if not self.metadata.has(key, index):
            self.metadata.constant(key, index, self.c.span(start.start, self.c.last.end))
        return Word(f"meta[{key}][{index}]")
