"""Expressions of A-normal form: lets, calls, branches and loops as nodes.

What a name stands for ends with the block that gave it. Only nesting recurses; the bound on depth is the cursor's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from deepx_graph.errors import Diagnostic, InferError, LimitError, ParseError, VerifyError, suggest
from deepx_graph.ir import Node, Op, Origin, fresh_loop
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, LOOP_BEGIN, LOOP_END, PARTIAL, PHI, PROJ, REGION, branch_count
from deepx_graph.literal import Literal
from deepx_graph.ops import OPS, not_
from deepx_graph.text.sea.cursor import STRING, SeaCursor
from deepx_graph.text.sea.reader import bound
from deepx_graph.text.sea.words import literal_of, name_text
from deepx_graph.types import BOOL, FunctionType, TupleType, Type, as_tensor, compatible, dtype_named, scalar

_MARK = re.compile(rf'{STRING}|;[^\n]*|[()"]')
_WORD = re.compile(rf"{STRING}|[^\s()]+")
_SCALAR = re.compile(r'([^\s():;"%@]+):(\w+)', re.ASCII)

T = TypeVar("T")


@dataclass
class Head:
    """What a definition says before its body, and where that begins."""

    name: str
    params: list[tuple[str, Type, int]]
    results: list[tuple[str, Type]]
    public: bool
    vjp: str | None
    attributes: tuple[tuple[str, str], ...]
    start: int
    body: int

    @property
    def type(self) -> FunctionType:
        return FunctionType(tuple(t for _, t, _ in self.params), tuple(t for _, t in self.results))


@dataclass
class NestedScope:
    """The values of one function by their names; `leave` forgets those given since a mark."""

    values: dict[str, Node] = field(default_factory=dict)
    constants: dict[str, Node] = field(default_factory=dict)
    _hidden: list[tuple[str, Node | None]] = field(default_factory=list)

    def define(self, word: str, node: Node) -> None:
        self._hidden.append((word, self.values.get(word)))
        self.values[word] = node

    def mark(self) -> int:
        return len(self._hidden)

    def leave(self, mark: int) -> None:
        while len(self._hidden) > mark:
            word, before = self._hidden.pop()
            if before is None:
                del self.values[word]
            else:
                self.values[word] = before


def matched_brackets(cursor: SeaCursor) -> dict[int, int]:
    """Where each bracket of the text closes, so that a form can be passed over, and read later, at no cost.

    Raises ParseError for brackets that do not match.
    """
    closes: dict[int, int] = {}
    opened: list[int] = []
    for mark in _MARK.finditer(cursor.text):
        if mark[0] == "(":
            opened.append(mark.start())
        elif mark[0] == ")":
            if not opened:
                cursor.fail("this bracket closes nothing", mark.start(), mark.end())
            closes[opened.pop()] = mark.end()
    if opened:
        at = opened[-1]
        raise ParseError(Diagnostic("this bracket is never closed", cursor.span(at, at + 1), expected="')'"))
    return closes


class Expressions:
    """Reads expressions at a cursor; `heads` are the functions that may be called."""

    def __init__(self, cursor: SeaCursor, heads: dict[str, Head], max_nodes: int) -> None:
        self.cursor, self.heads, self.max_nodes = cursor, heads, max_nodes
        self._closes = matched_brackets(cursor)
        self._count = 0

    # --- forms

    def form(self, word: str) -> bool:
        """Passes `(word` if it comes next as a whole."""
        c = self.cursor
        start = c.skip()
        if c.accept("(") and c.accept_word(word):
            return True
        c.at = start
        return False

    def end_of_form(self) -> int:
        """Where the form or the word that comes next ends."""
        start = self.cursor.skip()
        if start in self._closes:
            return self._closes[start]
        found = _WORD.match(self.cursor.text, start)
        return found.end() if found else start

    def several(self, item: Callable[[], T]) -> list[T]:
        """Passes what `item` passes, again and again, up to the closing bracket, and that."""
        found = list[T]()
        while not self.cursor.accept(")"):
            found.append(item())
        return found

    # --- nodes

    def node(self, op: Op, inputs: tuple[Node, ...], attrs: tuple[Any, ...], type: Type, word: str, at: int) -> Node:
        """A node of a known type, under the name that the text gives it. Raises LimitError."""
        self._count += 1
        span = self.cursor.span(at, max(self.cursor.at, at))
        if self._count > self.max_nodes:
            raise LimitError(Diagnostic(f"more than {self.max_nodes} nodes", span))
        return Node(op, inputs, attrs, type, Origin(self.cursor.plain_name(word) if word else "", (span,)))

    def made(self, op: Op, inputs: Sequence[Node], attrs: tuple[Any, ...], at: int, stated: Type | None = None,
             word: str = "") -> Node:
        """A node of the stated type, or of the inferred one, as a constant's always is. Raises VerifyError when they do not fit."""
        c = self.cursor
        try:
            op.check_arity(len(inputs))
            type = op.infer([i.type for i in inputs], *attrs)
        except InferError as e:
            raise VerifyError(e.diagnostic(c.span(at, max(c.at, at)), f"{op.name}: ")) from None
        if stated is not None and not compatible(stated, type):
            raise VerifyError(Diagnostic(f"{op.name}: the text says {stated}", c.span(at, max(c.at, at)), expected=str(type)))
        return self.node(op, tuple(inputs), attrs, type if stated is None or op is CONSTANT else stated, word, at)

    def _items(self, source: Node, words: Sequence[str], at: int) -> list[Node]:
        """The values of a call, branch or loop, under these names where there are as many."""
        if not isinstance(source.type, TupleType):
            self.cursor.fail(f"{source.op.name} has one value", at, self.cursor.at, expected="one name, not in brackets")
        op, types = PHI if source.op in (REGION, LOOP_BEGIN) else PROJ, source.type.items
        names = words if len(words) == len(types) else [""] * len(types)
        return [self.node(op, (source,), (k,), t, names[k], at) for k, t in enumerate(types)]

    # --- atoms

    def atom(self, scope: NestedScope) -> Node:
        """Passes `%x`, `1:i32` or `@f`. Raises ParseError."""
        c = self.cursor
        at = c.skip()
        if c.peek("%"):
            word = c.value_name()
            if word not in scope.values:
                c.fail(f"no value {word} is known here", at, c.at, hint=suggest(word, scope.values))
            return scope.values[word]
        if c.accept("@"):
            name = c.name("the name of a function")
            return self.made(PARTIAL, (), (name, self._type_of(name, at)), at)
        found = c.match(_SCALAR)
        if found is None:
            c.mismatch("a value, like %x or 1:i32")
        return self._scalar(scope, found)

    def _scalar(self, scope: NestedScope, found: re.Match[str]) -> Node:
        node = scope.constants.get(found[0])
        if node is not None:
            return node
        try:
            value: Literal = literal_of(found[1], scalar(dtype_named(found[2])))
        except KeyError:
            self.cursor.fail(f"unknown dtype '{found[2]}'", found.start(2), found.end(2))
        except InferError as e:
            self.cursor.fail(e.message, found.start(), found.end(), expected=e.expected)
        scope.constants[found[0]] = node = self.node(CONSTANT, (), (value,), value.type, "", found.start())
        return node

    def _type_of(self, name: str, at: int) -> FunctionType:
        if name not in self.heads:
            self.cursor.fail(f"no function '{name}' is defined", at, self.cursor.at, hint=suggest(name, self.heads))
        return self.heads[name].type

    def _atoms(self, scope: NestedScope) -> list[Node]:
        """Passes values up to the closing bracket, and that."""
        return self.several(lambda: self.atom(scope))

    # --- lets

    def expression(self, scope: NestedScope, again: str = "") -> list[Node]:
        """Passes lets and the values that they are for; with `again`, the arguments of `(@again ...)`. Raises ParseError."""
        c, mark = self.cursor, scope.mark()
        count = self._lets(scope)
        if again:
            c.expect("(", f"and @{again}, with nothing left to do after it")
            self._loop_name(again)
            found = self._atoms(scope)
        elif self.form("values"):
            found = self._atoms(scope)
        elif c.peek("("):
            found = self._compound(scope, (), None)
        else:
            found = [self.atom(scope)]
        self._close(count)
        scope.leave(mark)
        return found

    def _loop_name(self, wanted: str) -> None:
        c = self.cursor
        start = c.skip()
        c.expect("@", "and the name of the loop")
        if c.name("the name of the loop") != wanted:
            c.fail("the loop does not begin again here", start, c.at, expected=f"@{wanted}")

    def _close(self, count: int) -> None:
        for _ in range(count):
            self.cursor.expect(")")

    def _lets(self, scope: NestedScope) -> int:
        """Passes lets as far as they go; how many there were, none of them closed yet."""
        c, count = self.cursor, 0
        while self.form("let"):
            c.expect("(", "around a name and its value")
            at = c.at
            words, several = self._names()
            stated = self.cursor.type() if c.accept(":") else None
            for word, node in zip(words, self._bound(scope, words, several, stated, at), strict=True):
                scope.define(word, node)
            c.expect(")", "after the value")
            count += 1
        return count

    def _names(self) -> tuple[list[str], bool]:
        """Passes `%x`, or `(%x %y)`."""
        c = self.cursor
        return (self.several(c.value_name), True) if c.accept("(") else ([c.value_name()], False)

    def _bound(self, scope: NestedScope, words: list[str], several: bool, stated: Type | None, at: int) -> list[Node]:
        """The nodes that names are given to."""
        c = self.cursor
        found = self._compound(scope, words, stated, several) if c.peek("(") else [self.atom(scope)]
        if len(found) != len(words):
            c.fail(f"{len(words)} names for {len(found)} values", at, c.at)
        types = stated.items if several and isinstance(stated, TupleType) else (stated,) * len(found)
        for node, type in zip(found, types, strict=True):
            if type is not None and not compatible(node.type, type):
                raise VerifyError(Diagnostic(f"the text says {type}", c.span(at, c.at), expected=str(node.type)))
        return found

    # --- compound expressions

    def _compound(self, scope: NestedScope, words: Sequence[str], stated: Type | None,
                  several: bool = False) -> list[Node]:
        """Passes a form in brackets: the values of a call, branch or loop, or the one value of an operation."""
        c = self.cursor
        at = c.skip()
        whole = stated if several or stated is None else TupleType((stated,))
        if self.form("if"):
            region = self._region(scope, at, whole)
            if branch_count(region) != 2 or as_tensor(region.inputs[0].type).dtype is not BOOL:
                c.fail("this is no choice of two", at, c.at, expected="(if c then else) of a bool, or (case n ...)")
            return self._items(region, words, at)
        if self.form("case"):
            return self._items(self._region(scope, at, whole), words, at)
        if self.form("letrec"):
            with c.nested():
                return self._loop(scope, words, at)
        if self.form("partial") and c.peek("@"):
            name, start = self._callee()
            return [self.made(PARTIAL, self._atoms(scope), (name, self._type_of(name, start)), at, stated, *words[:1])]
        c.at = at
        c.expect("(")
        if c.peek("@"):
            name, start = self._callee()
            signature = self._type_of(name, start)
            return self._items(self.made(CALL, self._atoms(scope), (name, signature), at, whole), words, at)
        if c.peek("%"):
            return self._items(self.made(CALL_VALUE, self._atoms(scope), (), at, whole), words, at)
        return self._primitive(scope, at, stated, words, several)

    def _callee(self) -> tuple[str, int]:
        start = self.cursor.skip()
        self.cursor.expect("@", "and the name of a function")
        return self.cursor.name("the name of a function"), start

    def _primitive(self, scope: NestedScope, at: int, stated: Type | None, words: Sequence[str],
                   several: bool) -> list[Node]:
        """Passes `op %x %y {attribute = value})`."""
        c = self.cursor
        start = c.skip()
        name = c.name("an operation")
        if name not in OPS:
            c.fail(f"unknown operation '{name}'", start, c.at, expected="an operation", hint=suggest(name, OPS))
        op, inputs = OPS[name], list[Node]()
        while not c.peek(")") and not c.peek("{"):
            inputs.append(self.atom(scope))
        given = self.cursor.attributes() if c.peek("{") else {}
        c.expect(")")
        try:
            attrs = bound(op, given, stated)
        except InferError as e:
            raise VerifyError(e.diagnostic(c.span(at, c.at), f"{op.name}: ")) from None
        if op is CALL or op is CALL_VALUE or several:
            whole = stated if several or stated is None else TupleType((stated,))
            return self._items(self.made(op, inputs, attrs, at, whole), words, at)
        return [self.made(op, inputs, attrs, at, stated, *words[:1])]

    def _region(self, scope: NestedScope, at: int, stated: Type | None) -> Node:
        """Passes, behind `(if` or `(case`, a selector and a branch for each value of it."""
        c = self.cursor
        selector = self.atom(scope)
        with c.nested():
            branches = self.several(lambda: self.expression(scope))
        if not branches or len({len(b) for b in branches}) != 1:
            c.fail("the branches do not give equally many values", at, c.at)
        return self.made(REGION, [selector, *(v for b in branches for v in b)], (len(branches),), at, stated)

    # --- loops

    def _loop(self, scope: NestedScope, words: Sequence[str], at: int) -> list[Node]:
        """Passes, behind `(letrec`, `(@loop (lambda ((%x : T)) lets (if c side side))) (@loop inits))`."""
        c, mark = self.cursor, scope.mark()
        c.expect("(", "around the name and the function of the loop")
        name = self._callee()[0]
        function = c.skip()
        c.at = self.end_of_form()
        c.expect(")")
        begin = self._begin(scope, name, at)
        end = c.at
        c.at = function
        variables = self._variables(scope, begin, at)
        count = self._lets(scope)
        if not self.form("if"):
            c.mismatch(f"(if c ... ...), one side of which calls @{name} again")
        condition = self.atom(scope)
        sides = [c.skip(), self.end_of_form()]
        first = re.search(rf"\(\s*@{re.escape(name_text(name))}[\s)]", c.text[sides[0] : sides[1]]) is not None
        c.at = sides[0] if first else sides[1]
        nexts = self.expression(scope, again=name)
        if not first:
            condition = self.made(not_, [condition], (), at)
        close = self.made(LOOP_END, [begin, condition, *nexts], (), at)
        scope.leave(mark)
        for word, value in zip(variables, self._items(close, words, at), strict=True):
            scope.define(word, value)
        after, c.at = c.at, sides[1] if first else sides[0]
        results = self.expression(scope)
        c.at = c.at if first else after
        self._close(count + 2)
        scope.leave(mark)
        c.at = end
        c.expect(")", "after the loop")
        return results

    def _begin(self, scope: NestedScope, name: str, at: int) -> Node:
        """Passes `(@loop inits)`."""
        self.cursor.expect("(", "around the call that begins the loop")
        self._loop_name(name)
        return self.made(LOOP_BEGIN, self._atoms(scope), (fresh_loop(),), at)

    def _variable(self) -> str:
        """Passes `(%x : T)`, or `(%x)`."""
        c = self.cursor
        c.expect("(", "around a variable")
        word = c.value_name()
        if c.accept(":"):
            c.type()
        c.expect(")")
        return word

    def _variables(self, scope: NestedScope, begin: Node, at: int) -> list[str]:
        """Passes `(lambda ((%x : T) (%y : U))`, and gives the loop variables their names."""
        c = self.cursor
        if not self.form("lambda"):
            c.mismatch("(lambda ((%x : T)) ...)")
        c.expect("(", "around the variables")
        assert isinstance(begin.type, TupleType)
        words = self.several(self._variable)
        if len(words) != len(begin.type.items):
            c.fail(f"{len(words)} variables for {len(begin.type.items)} first values")
        for word, value in zip(words, self._items(begin, words, at), strict=True):
            scope.define(word, value)
        return words
