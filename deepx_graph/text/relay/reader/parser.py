"""Relay text to a tree: definitions, expressions by precedence climbing, patterns. Local names are resolved as they are met.

A block is a list of statements, so that a program of 100 000 bindings costs no depth; brackets cost one level each.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from deepx_graph.errors import DeepxGraphError, Diagnostic, InferError, LimitError, ParseError, suggest
from deepx_graph.literal import Literal
from deepx_graph.text.common.cursor import Token
from deepx_graph.text.relay.reader.metadata import Metadata
from deepx_graph.text.relay.reader.scanner import Tokens, scan
from deepx_graph.text.relay.reader.scopes import Scopes, everything, nothing, shared
from deepx_graph.text.relay.reader.types import TypeParser
from deepx_graph.text.relay.syntax import (
    AnyPattern,
    Binder,
    BlockExpression,
    Call,
    Clause,
    Constant,
    ConstructorPattern,
    Expr,
    Fn,
    Global,
    If,
    Item,
    Match,
    OpRef,
    Pattern,
    Statement,
    TupleOf,
    TuplePattern,
    VariableUse,
)
from deepx_graph.text.relay.words import number
from deepx_graph.types import Type


@dataclass(frozen=True)
class Word:
    """A value of an attribute that is kept as it stands: a reference into the metadata section, a bare word."""

    text: str


class Parts:
    """Parses at the cursor of a parser."""

    def __init__(self, cursor: RelayParser) -> None:
        self.c = cursor

    def params(self) -> tuple[list[Binder], tuple[tuple[str, str], ...]]:
        """Passes `(%x: T, %y {virtual_device=...}: T, name=value)`: parameters, and attributes as text."""
        c, params, attributes = self.c, list[Binder](), dict[str, str]()

        def param() -> None:
            if c.next.kind == "local":
                params.append(self._param())
            else:
                start = c.next.start
                name, _ = self.attribute()
                attributes[name.text] = c.text[start : c.last.end].split("=", 1)[1].strip()

        c.expect("(")
        c.items(")", param)
        return params, tuple(attributes.items())

    def _param(self) -> Binder:
        c = self.c
        token = c.advance()
        if token.text in c.scopes.innermost:
            c.fail_at(token, f"two parameters are named {token.text}")
        if c.accept("{"):
            c.items("}", self.attribute)
        return c.bind(token, c.type() if c.accept(":") else None)

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
                return _string(c, token)
            case "number":
                return self._number(token, False)
            case "word":
                words = {"None": None, "True": True, "False": False}
                if token.text == "meta":
                    return self._reference(token)
                return words[token.text] if token.text in words else Word(token.text)
            case "sign" if token.text == "-" and c.next.kind == "number":
                return self._number(c.advance(), True)
            case "sign" if token.text in ("[", "("):
                return self._sequence("]" if token.text == "[" else ")", self._value)
            case "sign" if token.text == "{":
                return self._sequence("}", self._pair)
        return c.fail_at(token, f"found '{token.text}'", expected="the value of an attribute")

    def _number(self, token: Token, negative: bool) -> Any:
        try:
            return number(token.text, negative).array.item()
        except InferError as e:
            raise ParseError(e.diagnostic(self.c.span(token.start, token.end), "")) from None

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
        start = c.advance()
        key, index = self._meta()
        end = c.last.end
        return Constant(start.start, end, c.metadata.constant(key, index, c.span(start.start, end)))

    def _reference(self, start: Token) -> Word:
        c = self.c
        key, index = self._meta()
        end = c.last.end
        if not c.metadata.has(key, index):
            c.metadata.constant(key, index, c.span(start.start, end))
        return Word(f"meta[{key}][{index}]")

    # --- types in comments

    def stated_type(self) -> Type | None:
        """The type in a comment `/* ty=T span=... */` that stands here; None where none does, or it cannot be read."""
        c = self.c
        place = c.stated.get(c.at)
        if place is None:
            return None
        text = c.source.text
        start = text.index("ty=", place[0]) + 3
        end = place[1] - 2
        span = text.find(" span=", start, end)
        tokens, at, depth = c.tokens, c.at, c.depth
        try:
            c.tokens, c.at = scan(c.source, start, span if span >= 0 else end).tokens, 0
            found = c.type()
            return found if c.next.kind == "end" else None
        except DeepxGraphError:
            return None
        finally:
            c.tokens, c.at, c.depth = tokens, at, depth


def _string(c: RelayParser, token: Token) -> str:
    try:
        return str(json.loads(token.text))
    except ValueError:
        c.fail_at(token, "not a string")


BINARY = {"==": (1, "equal"), "!=": (1, "not_equal"), "<": (2, "less"), "<=": (2, "less_equal"), ">": (2, "greater"),
          ">=": (2, "greater_equal"), "+": (3, "add"), "-": (3, "subtract"), "*": (4, "multiply"),
          "/": (4, "divide")}  # fmt: skip
"""Precedence and operator of the signs between operands; all are left-associative."""

CHAIN = 20
"""So many operators in a row are one expression; the next takes its value from a binding."""


class RelayParser(TypeParser):
    """Parses expressions. `warnings` tells of variables that are used outside their block."""

    def __init__(self, tokens: Tokens, metadata: Metadata, max_depth: int, max_rank: int, max_nodes: int) -> None:
        super().__init__(tokens, max_depth, max_rank)
        self.metadata, self.max_nodes = metadata, max_nodes
        self.scopes = Scopes()
        self.warnings: dict[Binder, Diagnostic] = {}
        self.free: list[Binder] = []
        self.opening: dict[Binder, bool] = {}
        """The variables whose value is being read and may be a function that uses them, and whether it did."""
        self.count = 0
        self.parts = Parts(self)

    # --- scopes

    def bind(self, token: Token, stated: Type | None = None) -> Binder:
        """A new local variable, visible from here in the innermost scope."""
        name = token.text[1:] if token.kind == "local" else ""
        binder = self.scopes.innermost[token.text] = Binder(name, token.start, token.end, stated)
        return binder

    def use(self, token: Token) -> Expr:
        """The variable that is meant. Raises ParseError when there is none."""
        binder = self.scopes.visible(token.text)
        if binder is None:
            binder = self._outside(token)
        if binder in self.opening:
            self.opening[binder] = True
        return VariableUse(token.start, token.end, binder)

    def _outside(self, token: Token) -> Binder:
        """The variable of a block that has ended, with a warning."""
        binder = self.scopes.left(token.text)
        if binder is None:
            self.fail_at(token, f"{token.text} is not defined here", hint=suggest(token.text, self.scopes))
        self.warnings.setdefault(binder, Diagnostic(
            f"{token.text} is used outside the block that binds it", self.span(token.start, token.end), severity="warning",
            hint=f"taken for the value that it has in line {self.source.position(binder.start)[0]}"))
        return binder

    # --- blocks

    def braces(self) -> Expr:
        """Passes `{ block }`."""
        self.expect("{")
        body = self.block()
        self.expect("}")
        return body

    def block(self) -> Expr:
        """Passes statements and the expression at their end, in a scope of their own."""
        start = self.next.start
        with self.nested():
            self.scopes.enter()
            statements, result = self._statements()
            self.scopes.leave(everything)
        return BlockExpression(start, result.end, statements, result) if statements else result

    def _statements(self) -> tuple[list[Statement], Expr]:
        statements: list[Statement] = []
        while True:
            if self.accept("let"):
                statements.append(self._let())
            elif self.next.kind == "graph" and self.peek("=", 1):
                statements.append(self._graph())
            elif self.peek("free_var"):
                self._free_var()
                continue
            else:
                result = self.expression()
                if not self.peek(";"):
                    return statements, result
                statements.append(Statement(None, result))
            self.expect(";", "at the end of the statement")

    def _let(self) -> Statement:
        token = self.expect_kind("local", "a local variable, like %x")
        stated = self.type() if self.accept(":") else None
        self.expect("=")
        binder = Binder(token.text[1:], token.start, token.end, stated)
        known = self.scopes.innermost
        if self.peek("fn"):  # a function may call itself
            known[token.text] = binder
            self.opening[binder] = False
        value = self.expression()
        if self.opening.pop(binder, False) and not isinstance(value, Fn):
            self.fail_at(token, f"{token.text} is used in its own value", expected="a function, where it may be")
        binder.value = value
        known[token.text] = binder
        return Statement(binder, value)

    def _graph(self) -> Statement:
        token = self.advance()
        self.expect("=")
        value = self.expression()
        binder = self.bind(token)
        binder.value = value
        return Statement(binder, value)

    def _free_var(self) -> None:
        self.advance()
        token = self.expect_kind("local", "a local variable, like %x")
        self.expect(":")
        binder = Binder(token.text[1:], token.start, token.end, self.type())
        self.scopes.outermost[token.text] = binder
        self.free.append(binder)
        self.expect(";")

    # --- expressions

    def expression(self, level: int = 0) -> Expr:
        """Passes an expression of operators that bind stronger than `level`. A long chain becomes statements: no tree is deep."""
        left = self._unary()
        start, length, links = left.start, 0, list[Statement]()
        while self.next.kind == "sign" and (found := BINARY.get(self.next.text)) and found[0] > level:
            sign = self.advance()
            with self.nested():
                right = self.expression(found[0])
            left = self._counted(Call(start, right.end, OpRef(sign.start, sign.end, found[1]), [left, right], {}))
            length += 1
            if length % CHAIN == 0:
                links.append(Statement(Binder("", start, right.end, value=left), left))
                assert links[-1].binder is not None
                left = VariableUse(start, right.end, links[-1].binder)
        return BlockExpression(start, left.end, links, left) if links else left

    def _unary(self) -> Expr:
        """Minus signs before a number are its sign."""
        signs = []
        while self.peek("-"):
            signs.append(self.advance())
            if len(signs) > self.max_depth:
                self.fail(f"more than {self.max_depth} signs in a row")
        negative = len(signs) % 2 == 1
        if signs and self.next.kind == "number":
            token = self.advance()
            return self._postfix(self._number(token, negative, signs[0].start))
        value = self._postfix(self._primary())
        for sign in reversed(signs):
            value = Call(sign.start, value.end, OpRef(sign.start, sign.end, "negative"), [value], {})
        return value

    def _number(self, token: Token, negative: bool, start: int) -> Expr:
        try:
            return Constant(start, token.end, number(token.text, negative))
        except InferError as e:
            raise ParseError(e.diagnostic(self.span(start, token.end), "")) from None

    def _postfix(self, value: Expr) -> Expr:
        """Passes the suffixes of an expression: `.0`, `(args)`, `[types](args)`."""
        length = 0
        while True:
            length += 1
            if length > self.max_depth:
                self.fail(f"more than {self.max_depth} items and calls in a row")
            if self.next.kind == "item":
                token = self.advance()
                if len(token.text) > 9:
                    self.fail_at(token, "no tuple has so many items")
                value = Item(value.start, token.end, value, int(token.text[1:]))
            elif self.peek("(") and not isinstance(value, (If, Match)) and not self._ended(value):
                value = self.call(value, [])
            elif self.peek("[") and isinstance(value, (OpRef, Global, VariableUse)):
                self.advance()
                value = self.call(value, self.items("]", self.type))
            else:
                return value

    def _ended(self, value: Expr) -> bool:
        """Whether the expression ended with a brace, so that a bracket behind it belongs to something else."""
        return isinstance(value, Fn) and self.last.text == "}"

    def call(self, callee: Expr, type_args: list[Type]) -> Expr:
        """Passes `(args, name=value, ...)`."""
        args, attrs = list[Expr](), dict[str, Any]()
        written, ends = list[int](), [self.next.start]

        def argument() -> None:
            if self.next.kind == "word" and self.peek("=", 1):
                written.append(self.next.start)
                name, value = self.parts.attribute()
                if name.text in attrs:
                    self.fail_at(name, f"the attribute '{name.text}' is given twice")
                attrs[name.text] = value
            else:
                args.append(self.expression())
            ends.append(self.last.end)

        with self.nested():
            self.expect("(")
            self.items(")", argument)
        end = self.last.end
        text = self.text[written[0] : ends[-1]] if written else ""
        stated = self.parts.stated_type() if isinstance(callee, OpRef) else None
        return self._counted(Call(callee.start, end, callee, args, attrs, text, type_args, stated))

    def _counted(self, value: Expr) -> Expr:
        self.count += 1
        if self.count > self.max_nodes:
            raise LimitError(Diagnostic(f"more than {self.max_nodes} calls", self.span(value.start, value.end)))
        return value

    def _primary(self) -> Expr:
        token = self.next
        match token.kind:
            case "number":
                return self._number(self.advance(), False, token.start)
            case "local" | "graph":
                return self.use(self.advance())
            case "globl":
                self.advance()
                return Global(token.start, token.end, token.text[1:])
            case "word":
                return self._word(token)
            case "sign" if token.text == "(":
                return self._brackets()
            case "sign" if token.text == "{":
                return self.braces()
        return self.mismatch("an expression")

    def _word(self, token: Token) -> Expr:
        match token.text:
            case "fn":
                self.advance()
                return self.function(token.start)
            case "if":
                return self._if()
            case "match":
                return self._match()
            case "True" | "False":
                self.advance()
                return Constant(token.start, token.end, Literal(_bool(token.text == "True")))
            case "meta":
                return self.parts.constant()
            case "let":
                return self.block()
        self.advance()
        return OpRef(token.start, token.end, token.text)

    def _brackets(self) -> Expr:
        """`(e)`, `()`, `(e,)`, `(a, b)`, or a block in brackets."""
        start = self.advance().start
        items: list[Expr] = []
        while not self.peek(")"):
            items.append(self.block())
            if self.peek(")") and len(items) == 1:
                self.advance()
                return items[0]
            if not self.peek(")"):
                self.expect(",", "or ')'")
        return TupleOf(start, self.advance().end, items)

    def _if(self) -> Expr:
        start = self.advance().start
        with self.nested():
            self.expect("(")
            condition = self.block()
            self.expect(")")
            then = self._branch()
            self.expect("else")
            otherwise = self._if() if self.peek("if") else self._branch()
        return If(start, self.last.end, condition, then, otherwise)

    def _branch(self) -> Expr:
        self.scopes.enter()
        body = self.braces()
        self.scopes.leave(shared)
        return body

    def function(self, start: int) -> Fn:
        """Behind `fn`, or behind the name of a definition."""
        count = len(self.variables)
        with self.nested():
            type_params = self.type_params()
            self.variables += type_params
            self.scopes.enter()
            params, attributes = self.parts.params()
            result = self.type() if self.accept("->") else None
            body = self.braces()
            self.scopes.leave(nothing)
        del self.variables[count:]
        return Fn(start, self.last.end, params, body, result, type_params, attributes)

    # --- match

    def _match(self) -> Expr:
        start = self.advance().start
        complete = not self.accept("?")
        with self.nested():
            value = self.expression() if self.peek("(") else self._primary()
            self.expect("{")
            clauses = self.items("}", self._clause)
        if not clauses:
            self.fail_at(self.last, "a match without clauses")
        return Match(start, self.last.end, value, clauses, complete)

    def _clause(self) -> Clause:
        self.scopes.enter()
        pattern = self._pattern()
        self.expect("=>")
        body = self.block()
        self.scopes.leave(nothing)
        return Clause(pattern, body)

    def _pattern(self) -> Pattern:
        with self.nested():
            return self._nested_pattern()

    def _nested_pattern(self) -> Pattern:
        token = self.advance()
        if token.kind == "local":
            stated = self.type() if self.accept(":") else None
            return AnyPattern(token.start, token.end, self.bind(token, stated))
        if token.text == "_":
            return AnyPattern(token.start, token.end, None)
        if token.kind == "word":
            items = self.items(")", self._pattern) if self.accept("(") else []
            return ConstructorPattern(token.start, self.last.end, token.text, items)
        if token.text == "(":
            items = self.items(")", self._pattern)
            return TuplePattern(token.start, self.last.end, items)
        return self.fail_at(token, f"found '{token.text}'", expected="a pattern: %x, _, a constructor or a tuple")


def _bool(value: bool) -> object:
    import numpy as np

    return np.asarray(value)


def parser(tokens: Tokens, metadata: Metadata, options_depth: int, max_rank: int, max_nodes: int) -> RelayParser:
    """A parser at the beginning of the tokens, headers passed."""
    kept = [t for t in tokens.tokens if t.kind != "header"]
    if len(kept) == len(tokens.tokens):
        return RelayParser(tokens, metadata, options_depth, max_rank, max_nodes)
    dropped = [k for k, t in enumerate(tokens.tokens) if t.kind == "header"]
    stated = {k - sum(d < k for d in dropped): place for k, place in tokens.stated.items()}
    return RelayParser(replace(tokens, tokens=kept, stated=stated), metadata, options_depth, max_rank, max_nodes)
