"""From a typed Relay tree to the graph.

Function literals become functions of the module whose first parameters are what they capture, and `partial`s; a local function that
calls itself calls it by name. `if` and `match` become regions, references effects in the order of the text: a function whose effect
is stateful takes the state last and gives it last. Names that the text gives to values are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, InferError, LimitError, Span, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node, Op, Origin
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, PARTIAL, PHI, REGION, TUPLE, callee_of
from deepx_graph.literal import Literal
from deepx_graph.text.relay import syntax as ast
from deepx_graph.text.relay.reader.infer import REFERENCES, Inference
from deepx_graph.text.relay.reader.unify import Fun, Unknown, find, settled
from deepx_graph.text.relay.rules import build
from deepx_graph.text.relay.words import unused
from deepx_graph.types import STATE, DataType, FunctionType, TupleType, Type

EXPRESSION = "expression"
"""The name of the function that a text without definitions is."""


@dataclass(frozen=True)
class Lifted:
    """A function literal that is called by name: itself from within, or one that is generic. `captured` are local variables."""

    name: str
    captured: tuple[ast.Binder, ...]
    fn: ast.Fn


class ConstantsOnce(Builder):
    """A builder with one node for equal constants of a function: a text has no way to say that two numbers are one."""

    def __init__(self) -> None:
        super().__init__()
        self.constants: dict[Literal, Node] = {}

    def literal(self, value: Literal) -> Node:
        found = self.constants.get(value)
        if found is None:
            found = self.constants[value] = super().literal(value)
        return found


def _called(functions: list[Function]) -> list[Function]:
    """The functions without the literals that nothing uses."""
    by_name = {f.name: f for f in functions}
    used: dict[str, None] = {}
    stack = [f.name for f in functions if f.public]
    while stack:
        name = stack.pop()
        if name not in used:
            used[name] = None
            stack += (callee_of(n) for n in by_name[name].nodes if n.op is CALL or n.op is PARTIAL)
    return [f for f in functions if f.name in used]


@dataclass
class LoweredFunction:
    """One function being built: its name, what its variables are, and the state, where it has one."""

    name: str
    env: dict[ast.Binder, Node | Lifted] = field(default_factory=dict)
    state: Node | None = None

    def node(self, binder: ast.Binder) -> Node:
        found = self.env[binder]
        assert isinstance(found, Node)
        return found


class Lowering:
    """Builds the module of an inferred program."""

    def __init__(self, inference: Inference, max_nodes: int) -> None:
        self.inference, self.source, self.max_nodes = inference, inference.source, max_nodes
        self.b = ConstantsOnce()
        self.functions: list[Function] = []
        self.names: set[str] = {d.name for d in inference.program.definitions}
        self.free = ast.FreeVariables()
        self.unknowns: dict[Unknown, Type] = {}
        self.count = 0

    def module(self) -> Module:
        """The module. Raises VerifyError, LimitError."""
        program = self.inference.program
        for d in program.definitions:
            self.unknowns = {}
            self.define(LoweredFunction(d.name), d.fn, (), self.span(d), public=True)
        if program.expression is not None:
            self.names.add(EXPRESSION)
            self.define(LoweredFunction(EXPRESSION), program.expression, (), None, public=True)
        if not self.functions:  # only types are defined
            self.functions.append(Function("main", (), ()))
        self.functions = _called(self.functions)
        entry = "main" if "main" in self.names else self.functions[0].name
        return Module(tuple(self.functions), entry, self.source, "relay", tuple(self.inference.datas.values()))

    def span(self, of: Any) -> Span:
        return Span(self.source, of.start, of.end)

    # --- functions

    def define(self, scope: LoweredFunction, fn: ast.Fn, captured: tuple[tuple[ast.Binder, Type], ...],
               span: Span | None, *, public: bool) -> None:
        """Builds a function; what its literals become stands behind it."""
        place, before = len(self.functions), self.b.constants
        self.b.constants = {}
        self.functions.append(Function(scope.name, (), ()))
        params: list[Node] = []
        for binder, type in (*captured, *((p, self.settled(p.type)) for p in fn.params)):
            self.b.origin = Origin("", (self.span(binder),))
            node = self.b.param(len(params), type, binder.name)
            scope.env[binder] = node
            params.append(node)
        stateful = isinstance(fn.instance, Fun) and fn.instance.effect.root().stateful
        if stateful:
            scope.state = self.b.param(len(params), STATE, "state")
            params.append(scope.state)
        result = self.lower(fn.body, scope)
        results = (result,) if scope.state is None else (result, scope.state)
        self.b.constants = before
        self.functions[place] = Function(scope.name, tuple(params), results, public=public, span=span, attributes=fn.attributes)

    def settled(self, type: Any) -> Type:
        return settled(type, self.unknowns)

    def signature(self, type: Any) -> FunctionType:
        found = self.settled(type)
        assert isinstance(found, FunctionType)
        return found

    def lift(self, fn: ast.Fn, scope: LoweredFunction, binder: ast.Binder | None) -> Lifted:
        """Makes a function of the module of a literal. Returns what it is called by."""
        captured: dict[ast.Binder, None] = {}
        inner = LoweredFunction(unused(f"{scope.name}.{binder.name if binder and binder.name else 'fn'}", self.names))
        for v in self.free.of(fn):
            known = scope.env.get(v)
            if isinstance(known, Lifted):
                captured.update(dict.fromkeys(known.captured))
                inner.env[v] = known
            elif v is not binder:
                captured[v] = None
        lifted = Lifted(inner.name, tuple(sorted(captured, key=lambda v: v.start)), fn)
        if binder is not None:
            inner.env[binder] = lifted
        types = tuple((v, scope.node(v).type) for v in lifted.captured)
        self.define(inner, fn, types, self.span(fn), public=False)
        return lifted

    # --- expressions

    def place(self, e: ast.Expr) -> Origin:
        return Origin("", (self.span(e),))

    def make(self, e: ast.Expr, op: Op, *inputs: Node, **attrs: Any) -> Node:
        """A node with the place of an expression."""
        self.b.origin = self.place(e)
        return self.b(op, *inputs, **attrs)

    def lower(self, e: ast.Expr, scope: LoweredFunction) -> Node:
        """The node that an expression is; the state of the scope moves on."""
        self.count += 1
        if self.count > self.max_nodes:
            raise LimitError(Diagnostic(f"more than {self.max_nodes} expressions", self.span(e)))
        match e:
            case ast.Constant():
                self.b.origin = self.place(e)
                return self.b.literal(e.value)
            case ast.VariableUse():
                known = scope.env[e.binder]
                return known if isinstance(known, Node) else self.closure(e, known, scope)
            case ast.Global():
                return self._global(e)
            case ast.OpRef():
                return self._operator_value(e, scope)
            case ast.TupleOf():
                items = [self.lower(i, scope) for i in e.items]
                self.b.origin = self.place(e)
                return self.b.pack(*items)
            case ast.Item():
                whole = self.lower(e.whole, scope)
                self.b.origin = self.place(e)
                return self.b.proj(whole, e.index)
            case ast.If():
                condition = self.lower(e.condition, scope)
                parts = [partial(self.lower, part, scope) for part in (e.then, e.otherwise)]
                return self.branches(e, condition, parts, scope)
            case ast.BlockExpression():
                return self._block(e, scope)
            case ast.Fn():
                return self.closure(e, self.lift(e, scope, None), scope)
            case ast.Match():
                return Matching(self, e, scope).lower()
        assert isinstance(e, ast.Call)
        return self._call(e, scope)

    def closure(self, e: ast.Expr, lifted: Lifted, scope: LoweredFunction) -> Node:
        """A function value: the lifted function with what it captures."""
        captured, attrs = self._callee(lifted, e.type, scope)
        return self.make(e, PARTIAL, *captured, **attrs)

    def _callee(self, lifted: Lifted, type: Any, scope: LoweredFunction) -> tuple[list[Node], dict[str, Any]]:
        """What a lifted function captures, and the attributes of a call of it."""
        captured, own = [scope.node(v) for v in lifted.captured], self.signature(type)
        signature = FunctionType((*(c.type for c in captured), *own.params), own.results)
        return captured, {"callee": lifted.name, "signature": signature}

    def _global(self, e: ast.Global) -> Node:
        if e.name not in self.inference.functions:
            return self.make(e, ops.opaque, name=f"@{e.name}", type=self.settled(e.type), language="relay")
        return self.make(e, PARTIAL, callee=e.name, signature=self.signature(e.type))

    def _operator_value(self, e: ast.OpRef, scope: LoweredFunction) -> Node:
        if e in self.inference.eta:
            fn = self.inference.eta[e]
            return self.closure(fn, self.lift(fn, scope, None), scope)
        return self.make(e, ops.construct, constructor=e.name, type=self.settled(e.type))

    def _block(self, e: ast.BlockExpression, scope: LoweredFunction) -> Node:
        for s in e.statements:
            if s.binder is not None and isinstance(s.value, ast.Fn):
                lifted = self.lift(s.value, scope, s.binder)
                s.value.type = s.value.instance
                known = lifted if s.binder.scheme else self.named(self.closure(s.value, lifted, scope), s.binder)
                scope.env[s.binder] = known
                continue
            mark = self.b.param(0, STATE).serial
            value = self.lower(s.value, scope)
            if s.binder is not None:
                scope.env[s.binder] = self.named(value, s.binder, mark)
        return self.lower(e.result, scope)

    def named(self, node: Node, binder: ast.Binder, mark: int | None = None) -> Node:
        """The node under the name of a variable, if it was made for it and has none; `mark` is a node's number from before."""
        if not binder.name or node.name or node.op is CONSTANT or (mark is not None and node.serial < mark):
            return node
        return Node(node.op, node.inputs, node.attrs, node.type, Origin(binder.name, node.origin.spans))

    def branches(self, e: ast.Expr, selector: Node, parts: list[Any], scope: LoweredFunction) -> Node:
        """The value of the branch that is selected; each part builds one, beginning with the same state."""
        before, values, states = scope.state, [], []
        for part in parts:
            scope.state = before
            values.append(part())
            states.append(scope.state)
        columns = [values]
        if any(s is not before for s in states):
            columns.append([s for s in states if s is not None])
        region = self.make(e, REGION, selector, *(c[k] for k in range(len(parts)) for c in columns), branches=len(parts))
        scope.state = self.make(e, PHI, region, index=1) if len(columns) > 1 else before
        return self.make(e, PHI, region, index=0)

    # --- calls

    def _call(self, e: ast.Call, scope: LoweredFunction) -> Node:
        if isinstance(e.callee, ast.OpRef):
            return self._operator(e, e.callee, scope)
        if e.kept:
            inputs = [self.lower(x, scope) for x in (e.callee, *e.args)]
            return self.make(e, ops.opaque, *inputs, name="()", attributes=e.attr_text, type=self.settled(e.type), language="relay")
        return self.apply(e, e.callee, e.args, scope)

    def apply(self, e: ast.Expr, callee: ast.Expr, args: list[ast.Expr], scope: LoweredFunction) -> Node:
        """The call of a function: by name where it is known, else of a value."""
        known = scope.env.get(callee.binder) if isinstance(callee, ast.VariableUse) else None
        stateful = self.stateful(callee.type)
        if isinstance(known, Lifted):
            op, (head, attrs) = CALL, self._callee(known, callee.type, scope)
        elif isinstance(callee, ast.Global) and callee.name in self.inference.functions:
            head, op, attrs = [], CALL, {"callee": callee.name, "signature": self.signature(callee.type)}
        else:
            head, op, attrs = [self.lower(callee, scope)], CALL_VALUE, {}
        inputs = [*head, *(self.lower(a, scope) for a in args)]
        if stateful:
            assert scope.state is not None
            inputs.append(scope.state)
        call = self.make(e, op, *inputs, **attrs)
        if stateful:
            scope.state = self.b.proj(call, 1)
        return self.b.proj(call, 0)

    def stateful(self, type: Any) -> bool:
        found = find(type)
        return isinstance(found, Fun) and found.effect.root().stateful

    def _operator(self, e: ast.Call, op: ast.OpRef, scope: LoweredFunction) -> Node:
        if op.name == "call_lowered" and not e.kept and len(e.args) == 2:
            function, whole = e.args
            whole = whole.binder.value or whole if isinstance(whole, ast.VariableUse) else whole
            if isinstance(whole, ast.TupleOf):
                return self.apply(e, function, whole.items, scope)
        inputs = [self.lower(a, scope) for a in e.args]
        if op.name in REFERENCES:
            return self._reference(e, op.name, inputs, scope)
        if op.name in self.inference.constructors:
            return self.make(e, ops.construct, *inputs, constructor=op.name, type=self.settled(e.type))
        self.b.origin = self.place(e)
        if e.kept:
            return self.b(ops.opaque, *inputs, name=op.name, attributes=e.attr_text, type=self.settled(e.type), language="relay")
        try:
            return build(self.b, op.name, inputs, e.attrs)
        except InferError as error:
            raise VerifyError(error.diagnostic(self.span(e), f"{op.name}: ")) from None

    def _reference(self, e: ast.Call, name: str, inputs: list[Node], scope: LoweredFunction) -> Node:
        assert scope.state is not None
        if name == "ref_write":
            scope.state = self.make(e, ops.ref_write, scope.state, *inputs)
            return self.make(e, TUPLE)
        made = self.make(e, ops.ref_create if name == "ref" else ops.ref_read, scope.state, *inputs)
        scope.state = self.b.proj(made, 1)
        return self.b.proj(made, 0)


# --- match ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClauseRow:
    """A clause with the patterns still to be matched, one for each column, and what it has bound."""

    patterns: tuple[ast.Pattern, ...]
    bound: tuple[tuple[ast.Binder, Node], ...]
    clause: ast.Clause


class Matching:
    """One `match` as a tree of decisions: a region for each constructor that is told apart, in the order of the clauses.

    Rows are clauses, columns what is still to be looked at. A clause that several leaves come to is built for each of them, so that
    it is computed only where it is taken. What no clause covers is an error, or for `match?` the end of a run that comes there.
    """

    def __init__(self, lowering: Lowering, match: ast.Match, scope: LoweredFunction) -> None:
        self.lowering, self.match, self.scope = lowering, match, scope

    def lower(self) -> Node:
        """The value of the match."""
        value = self.lowering.lower(self.match.value, self.scope)
        return self._decide((value,), tuple(ClauseRow((c.pattern,), (), c) for c in self.match.clauses))

    def _decide(self, values: tuple[Node, ...], rows: tuple[ClauseRow, ...]) -> Node:
        if not rows:
            return self._nothing_fits()
        rows = tuple(_bind(r, values) for r in rows)
        first = rows[0]
        column = next((k for k, p in enumerate(first.patterns) if not isinstance(p, ast.AnyPattern)), None)
        if column is None:
            self.scope.env.update(first.bound)
            return self.lowering.lower(first.clause.body, self.scope)
        if isinstance(first.patterns[column], ast.TuplePattern):
            return self._items(values, rows, column)
        return self._cases(values, rows, column)

    def _items(self, values: tuple[Node, ...], rows: tuple[ClauseRow, ...], column: int) -> Node:
        """Looks into a tuple: its items become columns."""
        whole = values[column]
        assert isinstance(whole.type, TupleType)
        items = tuple(self.lowering.b.proj(whole, k) for k in range(len(whole.type.items)))
        return self._opened(values, rows, column, items, lambda p: p.items if isinstance(p, ast.TuplePattern) else None)

    def _opened(self, values: tuple[Node, ...], rows: tuple[ClauseRow, ...], column: int, parts: tuple[Node, ...],
                inner: Callable[[ast.Pattern], Sequence[ast.Pattern] | None]) -> Node:
        """Goes on with parts of a value in its place; `inner` gives the patterns of the parts, or None where all match."""
        wild = (ast.AnyPattern(self.match.start, self.match.end, None),) * len(parts)
        found = (inner(row.patterns[column]) for row in rows)
        opened = tuple(_with(row, column, wild if p is None else tuple(p)) for row, p in zip(rows, found, strict=True))
        return self._decide(values[:column] + parts + values[column + 1 :], opened)

    def _cases(self, values: tuple[Node, ...], rows: tuple[ClauseRow, ...], column: int) -> Node:
        """Tells the constructors apart that the clauses name; the others go on with the clauses that name none."""
        value, named = values[column], dict[str, None]()
        for row in rows:
            pattern = row.patterns[column]
            if isinstance(pattern, ast.ConstructorPattern):
                named[pattern.name] = None
        data, _ = self.lowering.inference.constructors[next(iter(named))]
        tag = self.lowering.make(self.match, ops.tag, value, cases=tuple(named))
        parts: list[Callable[[], Node]] = [partial(self._case, values, rows, column, name) for name in named]
        missing = [c.name for c in data.constructors if c.name not in named]
        if missing:
            rest = tuple(_with(r, column, ()) for r in rows if not isinstance(r.patterns[column], ast.ConstructorPattern))
            if not rest and self.match.complete:
                raise self._not_covered(missing)
            parts.append(partial(self._decide, values[:column] + values[column + 1 :], rest))
        return self.lowering.branches(self.match, tag, list(parts), self.scope)

    def _case(self, values: tuple[Node, ...], rows: tuple[ClauseRow, ...], column: int, name: str) -> Node:
        value = values[column]
        assert isinstance(value.type, DataType)
        data, constructor = self.lowering.inference.constructors[name]
        fields = tuple(self._field(value, rows, column, name, k, t)
                       for k, t in enumerate(data.field_types(constructor, value.type.args)))
        kept = tuple(r for r in rows if not isinstance(p := r.patterns[column], ast.ConstructorPattern) or p.name == name)
        return self._opened(values, kept, column, fields, lambda p: p.items if isinstance(p, ast.ConstructorPattern) else None)

    def _field(self, value: Node, rows: tuple[ClauseRow, ...], column: int, constructor: str, index: int, type: Type) -> Node:
        """A field, under the name that the first pattern gives it that gives it one."""
        node = self.lowering.make(self.match, ops.field, value, constructor=constructor, index=index, type=type)
        for row in rows:
            pattern = row.patterns[column]
            if isinstance(pattern, ast.ConstructorPattern) and pattern.name == constructor:
                item = pattern.items[index]
                if isinstance(item, ast.AnyPattern) and item.binder is not None:
                    return self.lowering.named(node, item.binder)
        return node

    def _nothing_fits(self) -> Node:
        if self.match.complete:
            raise self._not_covered([])
        return self.lowering.make(self.match, ops.match_failed, type=self.lowering.settled(self.match.type))

    def _not_covered(self, missing: list[str]) -> VerifyError:
        span = Span(self.lowering.source, self.match.start, min(self.match.end, self.match.start + 5))
        return VerifyError(Diagnostic("the clauses of this match do not cover every value", span,
                                      expected=f"a clause for {', '.join(missing)}" if missing else None,
                                      hint="write match? where the others never come"))


def _with(row: ClauseRow, column: int, patterns: tuple[ast.Pattern, ...]) -> ClauseRow:
    return ClauseRow(row.patterns[:column] + patterns + row.patterns[column + 1 :], row.bound, row.clause)


def _bind(row: ClauseRow, values: tuple[Node, ...]) -> ClauseRow:
    """The row with its variables bound to what they match, and `_` in their place."""
    bound, patterns = list(row.bound), list(row.patterns)
    for k, p in enumerate(row.patterns):
        if isinstance(p, ast.AnyPattern) and p.binder is not None:
            bound.append((p.binder, values[k]))
            patterns[k] = ast.AnyPattern(p.start, p.end, None)
    return ClauseRow(tuple(patterns), tuple(bound), row.clause)
