"""Relay text to a tree: definitions, expressions by precedence climbing, patterns. Local names are resolved as they are met.

A block is a list of statements, so that a program of 100 000 bindings costs no depth; brackets cost one level each.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span, suggest
from deepx_graph.literal import Literal
from deepx_graph.text.common.cursor import Token
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.relay import syntax as ast
from deepx_graph.text.relay.reader.metadata import Metadata
from deepx_graph.text.relay.reader.tokens import AttributeParser, RelayCursor, Tokens, TypeParser, scan
from deepx_graph.types import Type

BINARY = {"==": (1, "equal"), "!=": (1, "not_equal"), "<": (2, "less"), "<=": (2, "less_equal"), ">": (2, "greater"),
          ">=": (2, "greater_equal"), "+": (3, "add"), "-": (3, "subtract"), "*": (4, "multiply"),
          "/": (4, "divide")}  # fmt: skip
"""Precedence and operator of the signs between operands; all are left-associative."""

CHAIN = 20
"""So many operators in a row are one expression; the next takes its value from a binding."""


class RelayParser:
    """Parses expressions. `warnings` tells of variables that are used outside their block."""

    def __init__(self, tokens: Tokens, metadata: Metadata, options: ReadOptions) -> None:
        self.c = RelayCursor(tokens, options.max_depth)
        self.types, self.attributes = TypeParser(self.c, options.max_rank), AttributeParser(self.c, metadata)
        self.max_nodes, self.scopes = options.max_nodes, ast.Scopes()
        self.warnings: dict[ast.Binder, Diagnostic] = {}
        self.free: list[ast.Binder] = []
        self.opening: dict[ast.Binder, bool] = {}
        """The variables whose value is being read and may be a function that uses them, and whether it did."""
        self.count = 0

    # --- scopes

    def bind(self, token: Token, stated: Type | None = None) -> ast.Binder:
        """A new local variable, visible from here in the innermost scope."""
        name = token.text[1:] if token.kind == "local" else ""
        binder = self.scopes.innermost[token.text] = ast.Binder(name, token.start, token.end, stated)
        return binder

    def use(self, token: Token) -> ast.Expr:
        """The variable that is meant. Raises ParseError when there is none."""
        binder = self.scopes.visible(token.text)
        if binder is None:
            binder = self._outside(token)
        if binder in self.opening:
            self.opening[binder] = True
        return ast.VariableUse(token.start, token.end, binder)

    def _outside(self, token: Token) -> ast.Binder:
        """The variable of a block that has ended, with a warning."""
        c, binder = self.c, self.scopes.left(token.text)
        if binder is None:
            c.fail_at(token, f"{token.text} is not defined here", hint=suggest(token.text, self.scopes))
        self.warnings.setdefault(binder, Diagnostic(
            f"{token.text} is used outside the block that binds it", c.span(token.start, token.end), severity="warning",
            hint=f"taken for the value that it has in line {c.source.position(binder.start)[0]}"))
        return binder

    # --- blocks

    def braces(self) -> ast.Expr:
        """Passes `{ block }`."""
        self.c.expect("{")
        body = self.block()
        self.c.expect("}")
        return body

    def block(self) -> ast.Expr:
        """Passes statements and the expression at their end, in a scope of their own."""
        start = self.c.next.start
        with self.c.nested():
            self.scopes.enter()
            statements, result = self._statements()
            self.scopes.leave("all")
        return ast.BlockExpression(start, result.end, statements, result) if statements else result

    def _statements(self) -> tuple[list[ast.Statement], ast.Expr]:
        c, statements = self.c, list[ast.Statement]()
        while True:
            if c.accept("let"):
                statements.append(self._let())
            elif c.next.kind == "graph" and c.peek("=", 1):
                statements.append(self._graph())
            elif c.peek("free_var"):
                self._free_var()
                continue
            else:
                result = self.expression()
                if not c.peek(";"):
                    return statements, result
                statements.append(ast.Statement(None, result))
            c.expect(";", "at the end of the statement")

    def _let(self) -> ast.Statement:
        c = self.c
        token = c.expect_kind("local", "a local variable, like %x")
        stated = self.types.type() if c.accept(":") else None
        c.expect("=")
        binder = ast.Binder(token.text[1:], token.start, token.end, stated)
        known = self.scopes.innermost
        if c.peek("fn"):  # a function may call itself
            known[token.text] = binder
            self.opening[binder] = False
        value = self.expression()
        if self.opening.pop(binder, False) and not isinstance(value, ast.Fn):
            c.fail_at(token, f"{token.text} is used in its own value", expected="a function, where it may be")
        binder.value = value
        known[token.text] = binder
        return ast.Statement(binder, value)

    def _graph(self) -> ast.Statement:
        token = self.c.advance()
        self.c.expect("=")
        value = self.expression()
        binder = self.bind(token)
        binder.value = value
        return ast.Statement(binder, value)

    def _free_var(self) -> None:
        c = self.c
        c.advance()
        token = c.expect_kind("local", "a local variable, like %x")
        c.expect(":")
        binder = ast.Binder(token.text[1:], token.start, token.end, self.types.type())
        self.scopes.outermost[token.text] = binder
        self.free.append(binder)
        c.expect(";")

    # --- expressions

    def expression(self, level: int = 0) -> ast.Expr:
        """Passes an expression of operators that bind stronger than `level`. A long chain becomes statements: no tree is deep."""
        c, left = self.c, self._unary()
        start, length, links = left.start, 0, list[ast.Statement]()
        while c.next.kind == "sign" and (found := BINARY.get(c.next.text)) and found[0] > level:
            sign = c.advance()
            with c.nested():
                right = self.expression(found[0])
            left = self._counted(ast.Call(start, right.end, ast.OpRef(sign.start, sign.end, found[1]), [left, right], {}))
            length += 1
            if length % CHAIN == 0:
                links.append(ast.Statement(ast.Binder("", start, right.end, value=left), left))
                assert links[-1].binder is not None
                left = ast.VariableUse(start, right.end, links[-1].binder)
        return ast.BlockExpression(start, left.end, links, left) if links else left

    def _unary(self) -> ast.Expr:
        """Minus signs before a number are its sign."""
        c, signs = self.c, list[Token]()
        while c.peek("-"):
            signs.append(c.advance())
            if len(signs) > c.max_depth:
                c.fail(f"more than {c.max_depth} signs in a row")
        negative = len(signs) % 2 == 1
        if signs and c.next.kind == "number":
            token = c.advance()
            return self._postfix(ast.Constant(signs[0].start, token.end, c.literal(token, negative, signs[0].start)))
        value = self._postfix(self._primary())
        for sign in reversed(signs):
            value = ast.Call(sign.start, value.end, ast.OpRef(sign.start, sign.end, "negative"), [value], {})
        return value

    def _postfix(self, value: ast.Expr) -> ast.Expr:
        """Passes the suffixes of an expression: `.0`, `(args)`, `[types](args)`."""
        c, length = self.c, 0
        while True:
            length += 1
            if length > c.max_depth:
                c.fail(f"more than {c.max_depth} items and calls in a row")
            if c.next.kind == "item":
                token = c.advance()
                if len(token.text) > 9:
                    c.fail_at(token, "no tuple has so many items")
                value = ast.Item(value.start, token.end, value, int(token.text[1:]))
            elif c.peek("(") and not isinstance(value, (ast.If, ast.Match)) and not self._ended(value):
                value = self.call(value, [])
            elif c.peek("[") and isinstance(value, (ast.OpRef, ast.Global, ast.VariableUse)):
                c.advance()
                value = self.call(value, c.items("]", self.types.type))
            else:
                return value

    def _ended(self, value: ast.Expr) -> bool:
        """Whether the expression ended with a brace, so that a bracket behind it belongs to something else."""
        return isinstance(value, ast.Fn) and self.c.last.text == "}"

    def call(self, callee: ast.Expr, type_args: list[Type]) -> ast.Expr:
        """Passes `(args, name=value, ...)`."""
        c, args, attrs = self.c, list[ast.Expr](), dict[str, Any]()
        written, ends = list[int](), [c.next.start]

        def argument() -> None:
            if c.next.kind == "word" and c.peek("=", 1):
                written.append(c.next.start)
                name, value = self.attributes.attribute()
                if name.text in attrs:
                    c.fail_at(name, f"the attribute '{name.text}' is given twice")
                attrs[name.text] = value
            else:
                args.append(self.expression())
            ends.append(c.last.end)

        with c.nested():
            c.expect("(")
            c.items(")", argument)
        end = c.last.end
        text = c.text[written[0] : ends[-1]] if written else ""
        comment = c.comment() if isinstance(callee, ast.OpRef) else None
        stated = comment and self.types.stated(comment)
        return self._counted(ast.Call(callee.start, end, callee, args, attrs, text, type_args, stated))

    def _counted(self, value: ast.Expr) -> ast.Expr:
        self.count += 1
        if self.count > self.max_nodes:
            raise LimitError(Diagnostic(f"more than {self.max_nodes} calls", self.c.span(value.start, value.end)))
        return value

    def _primary(self) -> ast.Expr:
        c = self.c
        token = c.next
        match token.kind:
            case "number":
                return ast.Constant(token.start, token.end, c.literal(c.advance()))
            case "local" | "graph":
                return self.use(c.advance())
            case "globl":
                c.advance()
                return ast.Global(token.start, token.end, token.text[1:])
            case "word":
                return self._word(token)
            case "sign" if token.text == "(":
                return self._brackets()
            case "sign" if token.text == "{":
                return self.braces()
        return c.mismatch("an expression")

    def _word(self, token: Token) -> ast.Expr:
        c = self.c
        match token.text:
            case "fn":
                c.advance()
                return self.function(token.start)
            case "if":
                return self._if()
            case "match":
                return self._match()
            case "True" | "False":
                c.advance()
                return ast.Constant(token.start, token.end, Literal(np.asarray(token.text == "True")))
            case "meta":
                return self.attributes.constant()
            case "let":
                return self.block()
        c.advance()
        return ast.OpRef(token.start, token.end, token.text)

    def _brackets(self) -> ast.Expr:
        """`(e)`, `()`, `(e,)`, `(a, b)`, or a block in brackets."""
        c, items = self.c, list[ast.Expr]()
        start = c.advance().start
        while not c.peek(")"):
            items.append(self.block())
            if c.peek(")") and len(items) == 1:
                c.advance()
                return items[0]
            if not c.peek(")"):
                c.expect(",", "or ')'")
        return ast.TupleOf(start, c.advance().end, items)

    def _if(self) -> ast.Expr:
        c = self.c
        start = c.advance().start
        with c.nested():
            c.expect("(")
            condition = self.block()
            c.expect(")")
            then = self._branch()
            c.expect("else")
            otherwise = self._if() if c.peek("if") else self._branch()
        return ast.If(start, c.last.end, condition, then, otherwise)

    def _branch(self) -> ast.Expr:
        self.scopes.enter()
        body = self.braces()
        self.scopes.leave("numbered")
        return body

    def function(self, start: int) -> ast.Fn:
        """Behind `fn`, or behind the name of a definition."""
        c, count = self.c, len(self.types.variables)
        with c.nested():
            type_params = self.types.params()
            self.types.variables += type_params
            self.scopes.enter()
            params, attributes = self._params()
            result = self.types.type() if c.accept("->") else None
            body = self.braces()
            self.scopes.leave("none")
        del self.types.variables[count:]
        return ast.Fn(start, c.last.end, params, body, result, type_params, attributes)

    def _params(self) -> tuple[list[ast.Binder], tuple[tuple[str, str], ...]]:
        """Passes `(%x: T, %y {virtual_device=...}: T, name=value)`: parameters, and attributes as text."""
        c, params, attributes = self.c, list[ast.Binder](), dict[str, str]()

        def param() -> None:
            if c.next.kind == "local":
                params.append(self._param())
            else:
                start = c.next.start
                name, _ = self.attributes.attribute()
                attributes[name.text] = c.text[start : c.last.end].split("=", 1)[1].strip()

        c.expect("(")
        c.items(")", param)
        return params, tuple(attributes.items())

    def _param(self) -> ast.Binder:
        c = self.c
        token = c.advance()
        if token.text in self.scopes.innermost:
            c.fail_at(token, f"two parameters are named {token.text}")
        if c.accept("{"):
            c.items("}", self.attributes.attribute)
        return self.bind(token, self.types.type() if c.accept(":") else None)

    # --- match

    def _match(self) -> ast.Expr:
        c = self.c
        start = c.advance().start
        complete = not c.accept("?")
        with c.nested():
            value = self.expression() if c.peek("(") else self._primary()
            c.expect("{")
            clauses = c.items("}", self._clause)
        if not clauses:
            c.fail_at(c.last, "a match without clauses")
        return ast.Match(start, c.last.end, value, clauses, complete)

    def _clause(self) -> ast.Clause:
        self.scopes.enter()
        pattern = self._pattern()
        self.c.expect("=>")
        body = self.block()
        self.scopes.leave("none")
        return ast.Clause(pattern, body)

    def _pattern(self) -> ast.Pattern:
        c = self.c
        with c.nested():
            token = c.advance()
            if token.kind == "local":
                return ast.AnyPattern(token.start, token.end, self.bind(token, self.types.type() if c.accept(":") else None))
            if token.text == "_":
                return ast.AnyPattern(token.start, token.end, None)
            if token.kind == "word":
                items = c.items(")", self._pattern) if c.accept("(") else []
                return ast.ConstructorPattern(token.start, c.last.end, token.text, items)
            if token.text == "(":
                items = c.items(")", self._pattern)
                return ast.TuplePattern(token.start, c.last.end, items)
        return c.fail_at(token, f"found '{token.text}'", expected="a pattern: %x, _, a constructor or a tuple")


# --- programs -------------------------------------------------------------------------------------------------------


def parse(source: Source, options: ReadOptions) -> ast.Program:
    """The tree of the text. Raises ParseError, LimitError."""
    tokens = scan(source)
    p = RelayParser(tokens, Metadata(source, tokens.metadata, options.max_rank), options)
    c, program = p.c, ast.Program([], [])
    while c.peek("def") or c.peek("type") or c.peek("extern"):
        if c.accept("def"):
            name = c.expect_kind("globl", "the name of a function, like @main")
            program.definitions.append(ast.Definition(name.text[1:], name.start, name.end, p.function(name.start)))
        else:
            program.types.append(_type(p))
    if c.next.kind != "end" and not program.definitions and not program.types:
        start = c.next.start
        body = p.block()
        program.expression = ast.Fn(start, body.end, p.free, body, None)
    if c.next.kind != "end":
        c.mismatch("def, type, or the end of the text")
    if program.expression is None and not program.definitions and not program.types:
        c.fail("the text defines nothing", expected="def @main(...) { ... }, or an expression")
    _check_names(source, program)
    program.warnings += p.warnings.values()
    return program


def _type(p: RelayParser) -> ast.TypeDefinition:
    c = p.c
    extern = c.accept("extern")
    c.expect("type")
    name = c.expect_kind("word", "the name of a type")
    params = p.types.params()
    p.types.variables += params
    constructors: list[ast.Constructed] = []
    if c.accept("{"):
        constructors = c.items("}", lambda: _constructor(p))
    elif extern:
        c.accept(";")
    else:
        c.mismatch("'{' and the constructors")
    p.types.variables.clear()
    return ast.TypeDefinition(name.text, name.start, name.end, params, constructors, extern)


def _constructor(p: RelayParser) -> ast.Constructed:
    name = p.c.expect_kind("word", "the name of a constructor")
    fields = p.c.items(")", p.types.type) if p.c.accept("(") else []
    return ast.Constructed(name.text, name.start, name.end, fields)


def _check_names(source: Source, program: ast.Program) -> None:
    """Raises ParseError where two functions, or two types or constructors, have one name."""
    functions = [("function @", d.name, d.start, d.end) for d in program.definitions]
    types = [("type or constructor ", t.name, t.start, t.end) for t in program.types]
    types += [("type or constructor ", c.name, c.start, c.end) for t in program.types for c in t.constructors]
    for group in (functions, types):
        met: dict[str, int] = {}
        for what, name, start, end in group:
            if name in met:
                line = source.position(met[name])[0]
                raise ParseError(Diagnostic(f"a second {what}{name}", Span(source, start, end), hint=f"first in line {line}"))
            met[name] = start
