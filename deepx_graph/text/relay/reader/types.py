"""Types of a Relay text, from its tokens."""

from __future__ import annotations

from deepx_graph.errors import Diagnostic, LimitError, suggest
from deepx_graph.text.common.cursor import TokenCursor
from deepx_graph.text.relay.reader.scanner import Tokens
from deepx_graph.text.relay.words import DTYPES, dtype_of_name
from deepx_graph.types import DataType, Dim, FunctionType, RefType, TupleType, Type, VarType, tensor

MAX_DEPTH = 100
"""The parser recurses over brackets; beyond this Python's own stack would end first."""


class Unstated(Type):
    """`_`, or a type that the text leaves out."""

    __slots__ = ()

    def __str__(self) -> str:
        return "_"


UNSTATED = Unstated()


class TypeParser(TokenCursor):
    """Walks over tokens. `variables` are the type parameters in scope; each `?` gets a symbol of its own."""

    def __init__(self, tokens: Tokens, max_depth: int, max_rank: int) -> None:
        super().__init__(tokens.source, tokens.tokens, min(max_depth, MAX_DEPTH))
        self.stated, self.max_rank = tokens.stated, max_rank
        self.variables: list[str] = []
        self.symbols = 0

    def type(self) -> Type:
        """Passes a type. Raises ParseError, LimitError."""
        with self.nested():
            return self._type()

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
            self.fail_at(word, f"no type '{word.text}' has sizes", expected="Tensor", hint=suggest(word.text, ["Tensor"]))
        if self.accept("["):
            return DataType(word.text, tuple(self.items("]", self.type)))
        return DataType(word.text)

    def _tuple(self) -> Type:
        if self.accept(")"):
            return TupleType(())
        first = self.type()
        if self.accept(")"):
            return first
        self.expect(",", "or ')'")
        return TupleType((first, *self.items(")", self.type)))

    def _function(self) -> Type:
        """Behind `fn`. The result is the one of a FunctionType's results; the state is no matter of the text."""
        count = len(self.variables)
        self.variables += self.type_params()
        self.expect("(")
        params = tuple(self.items(")", self.type))
        self.expect("->")
        result = self.type()
        del self.variables[count:]
        return FunctionType(params, (result,))

    def type_params(self) -> tuple[str, ...]:
        """Passes `[A, B]` if it is there."""
        if not self.accept("["):
            return ()
        return tuple(self.items("]", lambda: self.expect_kind("word", "a type parameter").text))

    def _tensor(self) -> Type:
        self.expect("[")
        self.expect("(")
        dims = self.items(")", self._dim)
        if len(dims) > self.max_rank:
            raise LimitError(Diagnostic(f"a tensor of rank {len(dims)}", self.span(*self.word_range()),
                                        expected=f"at most {self.max_rank} dimensions"))
        self.expect(",", "and the element type")
        word = self.expect_kind("word", "an element type, like float32")
        dtype = dtype_of_name(word.text)
        if dtype is None:
            self.fail_at(word, f"unknown element type '{word.text}'", expected="an element type, like float32",
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
            self.fail_at(digits, f"'{digits.text}' is no size", expected="an integer, or '?'")
        return int(body)
