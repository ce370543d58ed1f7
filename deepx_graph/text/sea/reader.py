"""Reading the sea form: from text to exactly the module it was written from.

Lines are nodes, in order, so nothing refers forward; loops get fresh identities. The types in the text are checked against
what the ops infer, and kept where they say more. Nodes are neither interned nor simplified.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from deepx_graph.errors import Diagnostic, InferError, LimitError, ParseError, Source, VerifyError, suggest
from deepx_graph.ir import Constructor, Data, Function, Module, Node, Op, Origin, fresh_loop
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, PARAM, index_of
from deepx_graph.ops import OPS
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.sea.assembly import FormText, assembly_of
from deepx_graph.text.sea.cursor import NAME, VALUE, SeaCursor
from deepx_graph.text.sea.words import VERSION
from deepx_graph.types import TupleType, Type, compatible

_OPERANDS = rf"(?:{VALUE}(?:\s*,\s*{VALUE})*)?"
_STATEMENT = re.compile(
    rf"({VALUE})\s*=\s*({NAME})\s*({_OPERANDS})\s*(\{{[^{{}}\"/]*\}})?[ \t]*(?::\s*(\w+\[[^\]\"\n]*\]))?", re.ASCII)
"""A node on a line; attributes with strings or functions, and types of other than tensors, are read after it."""
_RETURN = re.compile(rf"return\b\s*({_OPERANDS})", re.ASCII)
_VALUE = re.compile(VALUE, re.ASCII)
_HEADER = re.compile(r"sea[ \t]+(\d{1,9})\b")
_DEPTH_LIMIT = 120
"""The reader recurses over nested functions, types and lists; beyond this Python's own stack would end first."""


@dataclass
class FunctionScope:
    """The values and loops of one function by their names in the text."""

    values: dict[str, Node] = field(default_factory=dict)
    loops: defaultdict[int, int] = field(default_factory=lambda: defaultdict(fresh_loop))


class SeaReader:
    """Reads one text; `module` does it all."""

    def __init__(self, source: Source, options: ReadOptions) -> None:
        self.source, self.options = source, options
        self.cursor = SeaCursor(source, min(options.max_depth, _DEPTH_LIMIT), options.max_rank, self.function)
        self._attrs: dict[tuple[Op, str | None, Type | None], tuple[Any, ...]] = {}
        self._count = 0

    def module(self) -> Module:
        """The module. Raises ParseError, VerifyError, LimitError."""
        c = self.cursor
        header = c.match(_HEADER)
        if header is None:
            c.mismatch(f"sea {VERSION}")
        if int(header[1]) != VERSION:
            c.fail(f"version {header[1]} of the form is not known", header.start(), header.end(),
                   expected=f"sea {VERSION}")
        c.expect("entry")
        c.expect("@", "and the name of the entry function")
        entry = c.name("the name of the entry function")
        functions: dict[str, Function] = {}
        datas = []
        while c.accept_word("data"):
            datas.append(self._data())
        while c.skip() < len(c.text):
            start = c.at
            function = self.function()
            if function.name in functions:
                c.fail(f"two functions are named '{function.name}'", start, c.text.find("{", start))
            functions[function.name] = function
        if entry not in functions:
            raise ParseError(Diagnostic(f"the entry '{entry}' is no function of the text",
                                        c.span(header.start(), header.end()), hint=suggest(entry, functions)))
        return Module(tuple(functions.values()), entry, self.source, "sea", tuple(datas))

    def _data(self) -> Data:
        """Passes `[extern] @List<$A> { Cons($A, @List<$A>), Nil() }`."""
        c = self.cursor
        extern = c.accept_word("extern")
        name = c.at_name("the name of the data type")
        params = c.items(">", c.type_param) if c.accept("<") else []
        c.expect("{")
        return Data(name, tuple(params), tuple(c.items("}", self._constructor)), extern)

    def _constructor(self) -> Constructor:
        name = self.cursor.name("the name of a constructor")
        fields = self.cursor.type()
        if not isinstance(fields, TupleType):
            self.cursor.fail("the fields of a constructor stand in brackets")
        return Constructor(name, fields.items)

    # --- functions

    def function(self) -> Function:
        """Passes `func [public] @name(params) -> (results) [vjp @name] { body }`."""
        c, scope = self.cursor, FunctionScope()
        start = c.skip()
        if not c.accept_word("func"):
            c.mismatch("func, or the end of the text")
        public = c.accept_word("public")
        name = c.at_name("the function's name")
        params = self._params(scope)
        c.expect("->")
        c.expect("(")
        results = c.items(")", self._result)
        vjp = c.at_name("the name of the derivative") if c.accept_word("vjp") else None
        attributes = c.function_attributes("{")
        end = c.at
        c.expect("{")
        nodes = self._body(scope)
        self._check_results(nodes, [t for _, t in results], start, end)
        return Function(name, tuple(self._param(scope, p, k, at) for k, (p, at) in enumerate(params)), nodes,
                        tuple(n for n, _ in results), public, vjp, c.span(start, end), attributes)

    def _params(self, scope: FunctionScope) -> list[tuple[str, int]]:
        """The parameters' names and places. One without a type is made by a `param` line in the body."""
        c, count = self.cursor, itertools.count()

        def param() -> tuple[str, int]:
            at, word, index = c.skip(), c.value_name(), next(count)
            if c.accept(":"):
                type = self.cursor.type()
                self._define(scope, word, at, c.at, PARAM, (), (index, type), type)
            return word, at

        c.expect("(")
        return c.items(")", param)

    def _param(self, scope: FunctionScope, word: str, index: int, at: int) -> Node:
        node = scope.values.get(word)
        if node is None or node.op is not PARAM or index_of(node) != index:
            self.cursor.fail(f"parameter {word} has no type here and no line in the body", at, at + len(word),
                             expected=f"{word}: TYPE, or a line {word} = param {{index = {index}, ...}}")
        return node

    def _result(self) -> tuple[str, Type]:
        word = self.cursor.value_name()
        self.cursor.expect(":")
        return self.cursor.plain_name(word), self.cursor.type()

    def _check_results(self, nodes: tuple[Node, ...], types: list[Type], start: int, end: int) -> None:
        given = [n.type for n in nodes]
        if len(given) != len(types) or not all(map(compatible, given, types)):
            raise VerifyError(Diagnostic(f"the body returns ({', '.join(map(str, given))})", self.cursor.span(start, end),
                                         expected=f"({', '.join(map(str, types))}), as the head of the function says"))

    # --- nodes

    def _body(self, scope: FunctionScope) -> tuple[Node, ...]:
        c = self.cursor
        while True:
            found = c.match(_STATEMENT)
            if found is not None:
                self._statement(scope, found)
                continue
            final = c.match(_RETURN)
            if final is None:
                c.mismatch("a line like %z = add %x, %y : f32[2], or return")
            c.expect("}", "after the returned values")
            return self._operands(scope, final[1], final.start(1))

    def _statement(self, scope: FunctionScope, found: re.Match[str]) -> None:
        word, name, operands, attr_text, type_text = found.groups()
        op = self._op(name, found.start(2))
        inputs = self._operands(scope, operands, found.start(3)) if operands else ()
        c, end = self.cursor, found.end()
        stated = None if type_text is None else self.cursor.known_type(type_text, end)
        try:
            if attr_text is None and (c.peek("{") or self._has_form(op, stated)):
                inputs, attrs, stated = self._written(scope, op, inputs, found)
                end = c.at
            elif stated is None and c.accept(":"):
                stated = self.cursor.type()
                end = c.at
                attrs = bound(op, {} if attr_text is None else self._simple(attr_text, found), stated)
            else:
                attrs = self._simple_attrs(op, attr_text, found, stated)
            c.at = end
            op.check_arity(len(inputs))
            if op is LOOP_BEGIN:
                attrs = (scope.loops[attrs[0]],)
            type = op.infer([i.type for i in inputs], *attrs)
        except InferError as e:
            raise VerifyError(e.diagnostic(self._span_of(found, e.operand), f"{op.name}: ")) from None
        if stated is not None and stated is not type and not compatible(stated, type):
            raise VerifyError(Diagnostic(f"{op.name}: the text says {stated}", c.span(found.start(), end), expected=str(type)))
        if '"' in word:
            word = self.cursor.key(word, found.start(1))
        if op is CONSTANT:  # its value has its type in full
            stated = None
        self._define(scope, word, found.start(), end, op, inputs, attrs, type if stated is None else stated)

    def _has_form(self, op: Op, stated: Type | None) -> bool:
        """Whether the rest of the statement is in the form that the op declares, and not the general one."""
        return op.assembly is not None and stated is None and not self.cursor.peek(":")

    def _written(self, scope: FunctionScope, op: Op, inputs: tuple[Node, ...], found: re.Match[str]
                 ) -> tuple[tuple[Node, ...], tuple[Any, ...], Type | None]:
        """Operands, attributes and type of a statement that is more than words: in the op's own form, or with braces to come."""
        c, given = self.cursor, dict[str, Any]()
        if not c.peek("{"):
            c.at = found.end(2)
            given, inputs = assembly_of(op).read(FormText(c, partial(self._operands, scope)))
        if c.peek("{"):
            with c.nested():
                given |= self.cursor.attributes()
        stated = self.cursor.type() if c.accept(":") else None
        return inputs, bound(op, given, stated), stated

    def _simple_attrs(self, op: Op, text: str | None, found: re.Match[str], stated: Type | None) -> tuple[Any, ...]:
        """Attributes without strings and functions, which recur often, by their text."""
        if text is None and not op.attrs:
            return ()
        key = (op, text, stated)
        attrs = self._attrs.get(key)
        if attrs is None:
            attrs = self._attrs[key] = bound(op, {} if text is None else self._simple(text, found), stated)
        return attrs

    def _simple(self, text: str, found: re.Match[str]) -> dict[str, Any]:
        end, self.cursor.at = self.cursor.at, found.start(4)
        given = self.cursor.attributes()
        self.cursor.at = end
        return given

    def _define(self, scope: FunctionScope, word: str, start: int, end: int, op: Op, inputs: tuple[Node, ...],
                attrs: tuple[Any, ...], type: Type) -> None:
        self._count += 1
        span = self.cursor.span(start, end)
        if self._count > self.options.max_nodes:
            raise LimitError(Diagnostic(f"more than {self.options.max_nodes} nodes", span))
        if word in scope.values:
            first = scope.values[word].span
            raise ParseError(Diagnostic(f"{word} is defined twice", span, hint=f"first in line {first.line if first else 0}"))
        scope.values[word] = Node(op, inputs, attrs, type, Origin(self.cursor.plain_name(word), (span,)))

    def _operands(self, scope: FunctionScope, text: str, at: int) -> tuple[Node, ...]:
        values = scope.values
        try:
            return tuple([values[w] for w in text.split(", ")]) if text else ()
        except KeyError:  # quoted names, other blanks, or a name that is not there
            return tuple(self._operand(scope, m[0], at + m.start()) for m in _VALUE.finditer(text))

    def _operand(self, scope: FunctionScope, word: str, at: int) -> Node:
        node = scope.values.get(self.cursor.key(word, at))
        if node is None:
            self.cursor.fail(f"no value {word} is defined above", at, at + len(word),
                             hint=suggest(word, scope.values))
        return node

    def _op(self, name: str, at: int) -> Op:
        op = OPS.get(name) or OPS.get(self.cursor.unquote(name, at))
        if op is None:
            self.cursor.fail(f"unknown operation '{name}'", at, at + len(name), expected="an operation",
                             hint=suggest(name, OPS))
        return op

    def _span_of(self, found: re.Match[str], operand: int | None) -> Any:
        ranges = [m.span() for m in _VALUE.finditer(self.cursor.text, *found.span(3))]
        return self.cursor.span(*(ranges[operand] if operand is not None and operand < len(ranges) else found.span()))


def bound(op: Op, given: dict[str, Any], stated: Type | None) -> tuple[Any, ...]:
    """Attribute values in declared order; one that is not given is taken from the stated type, where that tells it."""
    if stated is not None:
        for attr in op.attrs:
            if attr.from_type is not None and attr.name not in given and (value := attr.from_type(stated)) is not None:
                given = {**given, attr.name: value}
    return op.bind(given)
