"""Reverse accumulation through scopes: from the cotangents of a function's results to those of its inputs.

The nodes it builds refer to values of the function as if they were still there, wherever in a branch or loop they were computed;
`residuals` and `function` make that true. A branch becomes a region with the same selector over the cotangents of what
its sides use; a loop becomes a loop that counts down, whose variables are the cotangents of the variables and, added up, those of
what the body uses from outside. Scopes nest on a stack of generators, so depth costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from deepx_graph.analysis.scopes import Scope
from deepx_graph.analysis.trip_count import counters, is_variable, rows_apart, trip_count
from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Node, Origin, fresh_loop
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    LOOP_BEGIN,
    LOOP_END,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    branches_of,
    index_of,
    is_loop_variable,
)
from deepx_graph.ops import add, compare, dynamic_slice, dynamic_update_slice, subtract
from deepx_graph.ops.data.tape import cotangent_type, tape_pop
from deepx_graph.ops.tensor.index import BoxUpdate, box_update
from deepx_graph.ops.vjp.accumulate import Cotangent, addends, check_gradient, fitted, is_nonzero, item, plus, zeros
from deepx_graph.ops.vjp.masks import Masks
from deepx_graph.passes.autodiff.activity import Activity, ReverseScopes, items_of
from deepx_graph.passes.autodiff.calls import Derivatives
from deepx_graph.types import I32, FunctionType, TupleType, Type, as_tensor, is_static, scalar

MAX_ADDENDS = 64
"""A sum of more values than this is taken as one."""


def onto(b: Builder, total: Node, g: Node, end: Node) -> Node:
    """`total + g` in the body of the loop that `end` closes, where the total starts as zero.

    What `g` puts into a box of zeros is added to that box of the total alone; where no iteration has written to it, it is put
    there.
    """
    parts = [(x, _box(x)) for x in addends(g, MAX_ADDENDS)]
    if len(parts) == 1 and (only := parts[0][1]) is not None and _lie_apart(only, end):
        return b(dynamic_update_slice, total, only.box, *only.starts)
    for x, found in parts if any(found for _, found in parts) else [(g, None)]:
        if found is None:
            total = b(add, total, x)
            continue
        old = b(dynamic_slice, total, *found.starts, slice_sizes=as_tensor(found.box.type).shape)
        total = b(dynamic_update_slice, total, b(add, old, found.box), *found.starts)
    return total


def _box(g: Node) -> BoxUpdate | None:
    """What is written over zeros, at computed indices; None for what is none such."""
    found = box_update(g)
    value = None if found is None else splat_of(found.whole)
    return None if value is None or value else found


def _lie_apart(update: BoxUpdate, end: Node) -> bool:
    """Whether no two iterations of a loop write over the same elements."""
    return rows_apart(end, update.starts, as_tensor(update.box.type).shape, as_tensor(update.whole.type).shape)


def numbered(type: Type, sides: Sequence[Cotangent], columns: list[list[Node]], b: Builder, like: Node) -> Cotangent:
    """Appends a column for each part of a cotangent that some side gives; the cotangent with column numbers for nodes."""
    if not any(map(is_nonzero, sides)):
        return None
    if isinstance(type, TupleType):
        parts = [s if isinstance(s, tuple) else (None,) * len(type.items) for s in sides]
        return tuple(numbered(t, [p[k] for p in parts], columns, b, like) for k, t in enumerate(type.items))
    given = next(s for s in sides if s is not None)
    for values, side in zip(columns, sides, strict=True):
        values.append(zeros(b, given.type, like) if side is None else side)
    return len(columns[0]) - 1


def mapped(shape: Cotangent, make: Callable[[int], Node]) -> Cotangent:
    """The cotangent with `make(k)` for each number k in it."""
    if isinstance(shape, tuple):
        return tuple(mapped(s, make) for s in shape)
    return None if shape is None else make(shape)


@dataclass(eq=False)
class LoopPair:
    """A loop and its backward loop. `index` is the number of the iteration that the backward body goes through, from the last to
    0."""

    end: Node
    count: int | None
    back_begin: Node
    back_end: Node | None
    index: Node


@dataclass(eq=False)
class ScopeCotangents:
    """One scope on its way back: cotangents of its own nodes, and of nodes outside that it uses."""

    scope: Scope
    found: dict[Node, Cotangent] = field(default_factory=dict)
    leaks: dict[Node, Cotangent] = field(default_factory=dict)
    variables: dict[int, Cotangent] = field(default_factory=dict)


_CLOSED = frozenset((REGION, LOOP_END, PHI, PROJ, CALL, CALL_VALUE, PARTIAL))
"""What no mask of a cotangent passes."""

Work = Generator[ScopeCotangents, None, None]


class ReversePass:
    """Builds the backward nodes of one function, and what the forward part has beyond it.

    `grown[node]` holds columns that a loop_begin or region gets beyond those it has: (first value, next value), or one value
    per branch with None for whatever. `aux` gives the scopes of nodes of ours, `replaced` the attributes of calls that become calls
    of forward functions.
    """

    def __init__(self, b: Builder, scopes: ReverseScopes, flow: Activity, derivatives: Derivatives) -> None:
        self.b, self.scopes, self.flow, self.derivatives = b, scopes, flow, derivatives
        self.grown: dict[Node, list[tuple[Node | None, ...]]] = {}
        self.aux: dict[Node, Scope] = {}
        self.replaced: dict[Node, tuple[Any, ...]] = {}
        self.pairs: dict[Node, LoopPair] = {}
        self.masks = Masks(b)
        self._counters: dict[Node, Node] = {}

    def run(self, roots: Sequence[Node], cotangents: Sequence[Cotangent]) -> ScopeCotangents:
        """The root frame after the sweep: `found` then holds the cotangents of the nodes differentiated by."""
        frame = ScopeCotangents(self.scopes.root)
        for root, g in zip(roots, cotangents, strict=True):
            self.add(frame, root, g)
        stack = [self._scope(frame)]
        while stack:
            try:
                stack.append(self._scope(next(stack[-1])))
            except StopIteration:
                stack.pop()
        frame.found = {node: self.masks.clean(g) for node, g in frame.found.items()}
        return frame

    # --- accumulation

    def add(self, frame: ScopeCotangents, node: Node, g: Cotangent) -> None:
        """Adds to the cotangent of a node."""
        if not self.flow.passes(node):
            return
        g = fitted(self.b, self.masks.fitting(g, node), node.type, node)
        if is_nonzero(g):
            self._put(frame, node, g)

    def add_item(self, frame: ScopeCotangents, source: Node, k: int, g: Cotangent) -> None:
        """Adds to the cotangent of one item of a tuple or construct."""
        self._put(frame, source, item(source.type, k, g))

    def _put(self, frame: ScopeCotangents, node: Node, g: Cotangent) -> None:
        own = self.scopes.home[node] is frame.scope
        into, g = (frame.found, g) if own else (frame.leaks, self.masks.clean(g))
        into[node] = plus(self.masks, into.get(node), g)

    # --- one scope

    def _scope(self, frame: ScopeCotangents) -> Work:
        for node in reversed(frame.scope.nodes):
            if node in self.flow.wrt:
                continue
            g = frame.found.pop(node, None)
            if is_nonzero(g):
                self.b.origin = Origin("", node.origin.spans, node.origin.rewrites).rewritten("grad")
                yield from self._step(frame, node, g)

    def _step(self, frame: ScopeCotangents, node: Node, g: Cotangent) -> Work:
        """Hands the cotangent of a node on to its operands."""
        if node.op in _CLOSED:
            g = self.masks.clean(g)
        if node.op is REGION:
            yield from self._region(frame, node, g)
        elif node.op is LOOP_END:
            yield from self._loop(frame, node, g)
        elif is_loop_variable(node):
            k = index_of(node)
            frame.variables[k] = plus(self.masks, frame.variables.get(k), g)
        elif node.op is PROJ or node.op is PHI:
            self.add_item(frame, node.inputs[0], index_of(node), g)
        else:
            try:
                for operand, cotangent in zip(node.inputs, self._vjp(node, g), strict=True):
                    self.add(frame, operand, cotangent)
            except InferError as e:
                raise self.flow.refusal(node, e) from None

    def _vjp(self, node: Node, g: Cotangent) -> Sequence[Cotangent]:
        """The cotangents of the operands of a node that is no construct."""
        if node.op is CALL:
            own = self.derivatives.own(node)
            return self._call(node, g) if own is None else self._own(node, own, g)
        if node.op is CALL_VALUE:
            return self._call_value(node, g)
        if node.op is PARTIAL:
            return self._partial(node, g)
        check_gradient(node, self.flow)
        return self.masks.pulled(node, g)

    # --- calls

    def _own(self, call: Node, derivative: Function, g: Cotangent) -> Sequence[Cotangent]:
        """By the derivative that the callee names."""
        given = iter(self.b.call(derivative, *call.inputs, *self._given(call, g)))
        return [next(given) if cotangent_type(i.type) is not None else None for i in call.inputs]

    def _given(self, node: Node, g: Cotangent) -> list[Node]:
        """The cotangents of all results of a call that can have one; zeros of unknown shape are asked of the result."""
        assert isinstance(node.type, TupleType)
        return [self.value(g[k], self._result(node, k)) for k, t in enumerate(node.type.items) if cotangent_type(t) is not None]

    def _result(self, node: Node, k: int) -> Node:
        return self.forward(self.b(PROJ, node, index=k), self.scopes.home[node])

    def _call(self, call: Node, g: Cotangent) -> Sequence[Cotangent]:
        by = [k for k, i in enumerate(call.inputs) if self.flow.passes(i)]
        of = [k for k, x in enumerate(g) if is_nonzero(x)]
        self.replaced[call] = attrs = self.derivatives.call(call, by, of)
        found = iter(self._pulled(call, attrs[1].results[-1], [self.value(g[k], self._result(call, k)) for k in of]))
        return [next(found) if k in by else None for k in range(len(call.inputs))]

    def _call_value(self, call: Node, g: Cotangent) -> Sequence[Cotangent]:
        function = call.inputs[0].type
        assert isinstance(function, FunctionType)
        *found, tape = self._pulled(call, self.derivatives.pullback_of_value(function), self._given(call, g))
        rest = iter(found)
        return [tape, *(next(rest) if cotangent_type(t) is not None else None for t in function.params)]

    def _pulled(self, call: Node, type: FunctionType, cotangents: Sequence[Node]) -> Sequence[Node]:
        """What the closure of that type gives which is the last result of a call in the forward part."""
        closure = Node(PROJ, (call,), (items_of(call),), type, self.b.origin)
        return self.b.call_value(self.forward(closure, self.scopes.home[call]), *cotangents)

    def _partial(self, closure: Node, tape: Node) -> Sequence[Cotangent]:
        """The cotangents of what a closure has captured lie on the tape, the last one on top."""
        found: list[Cotangent] = []
        for i in reversed(closure.inputs):
            type = cotangent_type(i.type)
            if type is not None:
                tape, g = self.b.items(self.b(tape_pop, tape, type=type))
            found.append(None if type is None else g)
        return found[::-1]

    # --- branches

    def _region(self, frame: ScopeCotangents, region: Node, g: Cotangent) -> Work:
        sides: list[ScopeCotangents] = []
        for scope, values in zip(self.scopes.branches[region], branches_of(region), strict=True):
            side = ScopeCotangents(scope)
            for k, value in enumerate(values):
                self.add(side, value, g[k])
            yield side
            sides.append(side)
        self.b.origin = Origin("", region.origin.spans, region.origin.rewrites).rewritten("grad")
        columns: list[list[Node]] = [[] for _ in sides]
        shapes: dict[Node, Cotangent] = {}
        for n in dict.fromkeys(n for side in sides for n in side.leaks):
            shapes[n] = numbered(n.type, [side.leaks.get(n) for side in sides], columns, self.b, n)
        if not shapes:
            return
        made = self.b(REGION, region.inputs[0], *(v for side in columns for v in side), branches=len(sides))
        for n, shape in shapes.items():
            self._put(frame, n, mapped(shape, lambda k: self.b(PHI, made, index=k)))

    # --- loops

    def _loop(self, frame: ScopeCotangents, end: Node, g: Cotangent) -> Work:
        b, begin = self.b, end.inputs[0]
        origin = b.origin
        count = trip_count(end)
        columns = [k for k in range(len(begin.inputs)) if self.flow.passes((begin, k))]
        written = {k: row for k in columns if g[k] is not None and (row := self._row_written(end, k)) is not None}
        columns = [k for k in columns if k not in written]
        if count == 0:
            for k in columns:
                self.add(frame, begin.inputs[k], g[k])
            return
        first = [self.value(g[k], begin.inputs[k]) for k in columns]
        count_down = b.constant(count, I32) if count is not None else self.iterations(end)
        back = b(LOOP_BEGIN, count_down, *first, loop=fresh_loop())
        left = b(PHI, back, index=0)
        index = b(subtract, left, b.like(1, left))
        pair = self.pairs[end] = LoopPair(end, count, back, None, index)
        inner = ScopeCotangents(self.scopes.bodies[end])
        for at, k in enumerate(columns):
            self.add(inner, end.inputs[2 + k], b(PHI, back, index=1 + at))
        for k, row in written.items():
            self.add(inner, row.box, b(dynamic_slice, g[k], *row.starts, slice_sizes=as_tensor(row.box.type).shape))
        yield inner
        b.origin = origin
        nexts = [index, *(self.value(inner.variables.get(k), begin.inputs[k]) for k in columns)]
        goes_on = b(compare, left, b.like(0, left), direction="GT")
        pair.back_end = Node(LOOP_END, (back, goes_on, *nexts), (), back.type, origin)
        for at, k in enumerate(columns):
            self.add(frame, begin.inputs[k], b(PROJ, pair.back_end, index=1 + at))
        for n, leak in inner.leaks.items():
            self._put(frame, n, self._summed(pair, n, n.type, leak))

    def _row_written(self, end: Node, k: int) -> BoxUpdate | None:
        """The row that a loop variable takes up in each iteration, where nothing else happens to it and no derivative passes its
        first value; else None.

        Then each iteration reads its row of the cotangent, which stays as it is.
        """
        begin, after = end.inputs[0], end.inputs[2 + k]
        row = box_update(after)
        if row is None or self.flow.passes(begin.inputs[k]) or not is_variable(row.whole, begin, k):
            return None
        users = self.scopes.function.users
        same = [n for n in users[begin] if is_variable(n, begin, k)]
        alone = same == [row.whole] and users[row.whole] == (after,) and users[after] == (end,)
        return row if alone and is_static(row.box.type) and is_static(row.whole.type) and _lie_apart(row, end) else None

    def value(self, g: Cotangent, like: Node, type: Type | None = None) -> Node:
        """A cotangent as one node, zeros where it is zero: of the value `like`, or of an item of it of that type."""
        type = type or like.type
        if isinstance(g, Node):
            return g
        if isinstance(type, TupleType):
            parts = g if isinstance(g, tuple) else (None,) * len(type.items)
            return self.b.pack(*(self.value(x, like, t) for x, t in zip(parts, type.items, strict=True)))
        return zeros(self.b, cotangent_type(type) or type, like)

    def _summed(self, pair: LoopPair, n: Node, type: Type, leak: Cotangent) -> Cotangent:
        """The sum, over the iterations of a backward loop, of what its body gives for a value from outside."""
        if leak is None:
            return None
        if isinstance(leak, tuple):
            assert isinstance(type, TupleType)
            return tuple(self._summed(pair, n, t, g) for t, g in zip(type.items, leak, strict=True))
        assert pair.back_end is not None
        back, end = pair.back_begin, pair.end
        phi = self.column(back, leak.type)
        self.grow(back, zeros(self.b, leak.type, n), onto(self.b, phi, leak, end))
        return Node(PROJ, (pair.back_end,), phi.attrs, leak.type, self.b.origin)

    # --- the forward part

    def column(self, begin: Node, type: Type) -> Node:
        """The loop variable that the next call of `grow` defines."""
        return Node(PHI, (begin,), (items_of(begin) + len(self.grown.get(begin, ())),), type, self.b.origin)

    def grow(self, node: Node, *values: Node | None) -> None:
        """One more column: first and next value of a loop variable, or a value per branch."""
        self.grown.setdefault(node, []).append(values)

    def type_of(self, node: Node) -> Type:
        """The type that a value has in the forward part."""
        return self.derivatives.derived(node.type) if node in self.scopes.home else node.type

    def forward(self, node: Node, home: Scope) -> Node:
        """Declares a node of ours to belong to the forward part, in that scope."""
        self.aux[node] = home
        return node

    def is_forward(self, node: Node) -> bool:
        return node in self.scopes.home or node in self.aux

    def home(self, node: Node) -> Scope:
        """The scope of a node of the forward part."""
        return self.scopes.home.get(node) or self.aux[node]

    def counter(self, end: Node) -> Node:
        """In the loop: the number of the iteration, from 0; a variable that is there or a new one."""
        begin, body = end.inputs[0], self.scopes.bodies[end]
        for k, counter in counters(end).items():
            if counter == (0, 1):
                return self.forward(self.b(PHI, begin, index=k), body)
        return self._own_counter(end)

    def _own_counter(self, end: Node) -> Node:
        begin, body = end.inputs[0], self.scopes.bodies[end]
        if end not in self._counters:
            b = Builder(intern=False, origin=end.origin)
            phi = self.forward(self.column(begin, scalar(I32)), body)
            after = self.forward(b(add, phi, b.constant(1, I32)), body)
            self.grow(begin, b.constant(0, I32), after)
            self._counters[end] = phi
        return self._counters[end]

    def iterations(self, end: Node) -> Node:
        """After the loop: how many iterations it ran."""
        phi = self.counter(end)
        return self.forward(Node(PROJ, (end,), phi.attrs, phi.type, end.origin), self.scopes.home[end])
