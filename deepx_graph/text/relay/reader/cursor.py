"""A place among the tokens of a Relay text: what comes next, errors that point at it, and types, which need nothing else."""

from __future__ import annotations

from typing import NoReturn

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span, suggest
from deepx_graph.text.relay.reader.literals import DTYPES, dtype_of_name
from deepx_graph.text.relay.reader.scanner import Token, Tokens
from deepx_graph.types import DataType, Dim, FunctionType, RefType, TupleType, Type, VarType, tensor

MAX_DEPTH = 120
"""The parser recurses over brackets; beyond this Python's own stack would end first."""


class Unstated(Type):
    """`_`, or a type that the text leaves out."""

    __slots__ = ()

    def __str__(self) -> str:
        return "_"


UNSTATED = Unstated()


class Cursor:
    """Walks over tokens. `variables` are the type parameters in scope; each `?` gets a symbol of its own."""

    def __init__(self, tokens: Tokens, max_depth: int, max_rank: int) -> None:
        self.source: Source = tokens.source
        self.tokens, self.stated = tokens.tokens, tokens.stated
        self.at = 0
        self.depth, self.max_depth, self.max_rank = 0, min(max_depth, MAX_DEPTH), max_rank
        self.variables: list[str] = []
        self.symbols = 0

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def advance(self) -> Token:
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def peek(self, text: str, ahead: int = 0) -> bool:
        """Whether the sign or word `text` comes next, or so many tokens later."""
        at = self.at + ahead
        return at < len(self.tokens) and self.tokens[at].text == text and self.tokens[at].kind in ("sign", "word")

    def accept(self, text: str) -> bool:
        """Passes `text` if it comes next."""
        if self.peek(text):
            self.at += 1
            return True
        return False

    def expect(self, text: str, what: str = "") -> Token:
        """Passes `text`. Raises ParseError when something else comes."""
        if not self.peek(text):
            self.fail(f"found {self.shown()}", expected=f"'{text}'{' ' + what if what else ''}")
        return self.advance()

    def expect_kind(self, kind: str, what: str) -> Token:
        """Passes a token of that kind. Raises ParseError when another comes."""
        if self.next.kind != kind:
            self.fail(f"found {self.shown()}", expected=what)
        return self.advance()

    def shown(self) -> str:
        """The next token, for a message."""
        return f"'{self.next.text[:40]}'" if self.next.kind != "end" else "the end of the text"

    def span(self, start: int, end: int) -> Span:
        return Span(self.source, start, end)

    def fail(self, message: str, *, expected: str | None = None, hint: str | None = None, token: Token | None = None) -> NoReturn:
        """Raises ParseError at the token, or at the next one."""
        token = token or self.next
        raise ParseError(Diagnostic(message, self.span(token.start, token.end), expected=expected, hint=hint))

    def enter(self) -> None:
        """One level further in; `self.depth -= 1` on the way out. Raises LimitError beyond the limit."""
        self.depth += 1
        if self.depth > self.max_depth:
            raise LimitError(Diagnostic(f"nested deeper than {self.max_depth}", self.span(self.next.start, self.next.end)))

    # --- types

    def type(self) -> Type:
        """Passes a type. Raises ParseError, LimitError."""
        self.enter()
        try:
            return self._type()
        finally:
            self.depth -= 1

    def _type(self) -> Type:
        if self.accept("("):
            return self._tuple()
        word = self.expect_kind("word", "a type, like Tensor[(2, 3), float32]")
        if word.text == "_":
            return UNSTATED
        if word.text == "fn":
            return self._function()
        if word.text == "Tensor":
            return self._tensor()
        if word.text in ("ref", "Ref") and (self.peek("(") or self.peek("[")):
            close = ")" if self.advance().text == "(" else "]"
            item = self.type()
            self.expect(close)
            return RefType(item)
        if word.text in self.variables:
            return VarType(word.text)
        dtype = dtype_of_name(word.text)
        if dtype is not None:
            return tensor(dtype, ())
        if self.peek("[") and self.peek("(", 1) and self.tokens[self.at + 2].kind == "number":
            self.fail(f"no type '{word.text}' has sizes", token=word, expected="Tensor", hint=suggest(word.text, ["Tensor"]))
        if self.accept("["):
            return DataType(word.text, self._list("]"))
        return DataType(word.text)

    def _list(self, close: str) -> tuple[Type, ...]:
        items = []
        while not self.accept(close):
            items.append(self.type())
            if not self.peek(close):
                self.expect(",", f"or '{close}'")
        return tuple(items)

    def _tuple(self) -> Type:
        if self.accept(")"):
            return TupleType(())
        first = self.type()
        if self.accept(")"):
            return first
        self.expect(",", "or ')'")
        return TupleType((first, *self._list(")")))

    def _function(self) -> Type:
        """Behind `fn`. The result is the one of a FunctionType's results; the state is no matter of the text."""
        count = len(self.variables)
        self.variables += self.type_params()
        self.expect("(")
        params = self._list(")")
        self.expect("->")
        result = self.type()
        del self.variables[count:]
        return FunctionType(params, (result,))

    def type_params(self) -> tuple[str, ...]:
        """Passes `[A, B]` if it is there."""
        names = []
        if self.accept("["):
            while not self.accept("]"):
                names.append(self.expect_kind("word", "a type parameter").text)
                if not self.peek("]"):
                    self.expect(",", "or ']'")
        return tuple(names)

    def _tensor(self) -> Type:
        self.expect("[")
        dims: list[Dim] = []
        self.expect("(")
        while not self.accept(")"):
            dims.append(self._dim())
            if not self.peek(")"):
                self.expect(",", "or ')'")
        if len(dims) > self.max_rank:
            raise LimitError(Diagnostic(f"a tensor of rank {len(dims)}", self.span(self.next.start, self.next.end),
                                        expected=f"at most {self.max_rank} dimensions"))
        self.expect(",", "and the element type")
        word = self.expect_kind("word", "an element type, like float32")
        dtype = dtype_of_name(word.text)
        if dtype is None:
            self.fail(f"unknown element type '{word.text}'", token=word, expected="an element type, like float32",
                      hint=suggest(word.text, DTYPES))
        self.expect("]")
        return tensor(dtype, tuple(dims))

    def _dim(self) -> Dim:
        if self.accept("?"):
            self.symbols += 1
            return f"?{self.symbols}"
        digits = self.expect_kind("number", "a size, or '?'")
        body = digits.text.removesuffix("i64").removesuffix("i32")
        if not body.isdecimal() or len(body) > 18:
            self.fail(f"'{digits.text}' is no size", token=digits, expected="an integer, or '?'")
        return int(body)
