"""Residuals: how the backward part gets the values of the forward part that it uses.

A value at home in the function itself is used as it is. One from a branch leaves it as a further value of the region. One from a
loop is kept for every turn: in a tensor with one row per turn where the number of turns is known, else on a tape; the backward loop
reads it back. What costs next to nothing to compute again from values that are there anyway (a counter, what the loop does not
change, arithmetic on kept values) is computed again instead. Scopes are settled from the innermost outwards, as what leaves one
scope is a value of the next. Only the forward part grows; no value is computed that was not before.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from typing import Literal

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.kernel import Apply, Expr
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, PROJ, REGION
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    convert,
    dynamic_slice,
    dynamic_update_slice,
    iota,
    multiply,
    reshape,
    slice_,
    tape_empty,
    tape_pop,
    tape_push,
)
from deepx_graph.passes.grad_scopes import Scope, items_of
from deepx_graph.passes.grad_sweep import Sweep, Turns
from deepx_graph.passes.grad_trips import counters
from deepx_graph.types import TAPE, TensorType, TupleType, is_state, tensor

Loops = Literal["keep", "recompute"]

_DEAR = {"exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tan", "tanh", "pow", "floor_mod", "div"}
_MOVES = (reshape, broadcast_in_dim, slice_, dynamic_slice, iota, convert)


class Residuals:
    """After `settle`: `reads[x]` is the node that stands for forward value `x` in the backward part; a value
    without one is computed there again from its operands. Where the backward part is a function of its own (`closed`),
    `captured` are the values that its first parameters stand for."""

    def __init__(self, sweep: Sweep, loops: Loops = "keep", *, closed: bool = False) -> None:
        self.sweep, self.loops, self.closed = sweep, loops, closed
        self.captured: list[Node] = []
        self.reads: dict[Node, Node] = {}
        self.wanted: dict[Scope, dict[Node, None]] = {}
        self._queue: list[tuple[int, int, Scope]] = []
        self._order = itertools.count()
        self._columns: dict[Node, list[tuple[object, list[Node | None]]]] = {}

    def settle(self, results: Iterable[Node]) -> None:
        """Decides on everything that the results use."""
        for node in self._used(results):
            self.want(node)
        while self._queue:
            scope = heapq.heappop(self._queue)[2]
            self._scope(scope, self.wanted[scope])

    def _used(self, results: Iterable[Node]) -> Iterable[Node]:
        """The forward values that backward nodes use."""
        seen: set[Node] = set()
        stack = [r for r in results if r is not None]
        while stack:
            node = stack.pop()
            if node in seen:
                continue
            seen.add(node)
            if self.sweep.is_forward(node):
                yield node
                continue
            stack += node.inputs
            begin = node.inputs[0] if node.op is LOOP_END else node
            stack += (v for column in self.sweep.grown.get(begin, ()) for v in column if v is not None)

    def want(self, node: Node) -> None:
        """Asks for a forward value."""
        scope = self.sweep.home(node)
        if node.op is CONSTANT or (scope.is_root and not self.closed) or node in self.reads:
            return
        if isinstance(node.type, TupleType):
            b, op = _maker(node), PHI if node.op is REGION else PROJ
            items = [self.sweep.forward(b(op, node, index=k), scope) for k in range(len(node.type.items))]
            self.reads[node] = b.pack(*items)
            for i in items:
                self.want(i)
            return
        if scope not in self.wanted:
            self.wanted[scope] = {}
            heapq.heappush(self._queue, (-scope.depth, next(self._order), scope))
        self.wanted[scope][node] = None

    # --- one scope

    def _scope(self, scope: Scope, wanted: dict[Node, None]) -> None:
        if scope.is_loop:
            self._count(scope)
        for node in self._chosen(scope, wanted):
            if scope.is_loop:
                self._keep_in_loop(scope, node)
            elif scope.is_root:
                type = self.sweep.type_of(node)
                self.reads[node] = Node(PARAM, (), (len(self.captured), type), type, node.origin)
                self.captured.append(node)
            else:
                self._keep_in_branch(scope, node)

    def _count(self, scope: Scope) -> None:
        """Counters are computed from the number of the turn."""
        turns = self.sweep.turns[scope.owner]  # type: ignore[index]
        found = counters(turns.end)
        b = Builder(peephole=True)
        for node in scope.members if found else ():
            if node.op is PHI and node.inputs[0] is turns.end.inputs[0] and node.attrs[0] in found:
                first, step = found[node.attrs[0]]
                assert isinstance(node.type, TensorType)
                at = turns.index if turns.index.type == node.type else b(convert, turns.index, dtype=node.type.dtype)
                self.reads[node] = b(add, b(multiply, at, b.like(step, at)), b.like(first, at))

    def _chosen(self, scope: Scope, wanted: dict[Node, None]) -> list[Node]:
        """The values of a scope that are kept; the other wanted ones are computed again."""
        if not scope.is_loop and not self._costs(scope):
            return [n for n in wanted if n not in self.reads]
        there: set[Node] = set()
        members = [*scope.members, *(n for n in wanted if n not in self.sweep.scopes.home)]
        cheap = self._is_cheap if self.loops == "keep" else self._is_repeatable
        kept = []
        for node in members:
            again = bool(cheap(node)) and all(self._is_there(i, scope, there) for i in node.inputs)
            if node in self.reads or node in wanted or again:
                there.add(node)
            if node in wanted and node not in self.reads and not again:
                kept.append(node)
        chosen = set(kept)
        self._want_operands(scope, [n for n in wanted if n not in self.reads and n not in chosen])
        return kept

    def _want_operands(self, scope: Scope, repeated: list[Node]) -> None:
        """Asks the scopes around for what values that are computed again need of them."""
        seen: set[Node] = set()
        while repeated:
            node = repeated.pop()
            if node in seen or node in self.reads:
                continue
            seen.add(node)
            for i in node.inputs:
                if self.sweep.home(i) is not scope:
                    self.want(i)
                elif i not in self.wanted[scope]:
                    repeated.append(i)

    def _is_there(self, node: Node, scope: Scope, there: set[Node]) -> bool:
        """Whether the backward part has the value at no cost."""
        home = self.sweep.home(node)
        if node.op is CONSTANT or (home.is_root and not self.closed):
            return True
        return node in there or (home is not scope and node in self.wanted.get(home, ()))

    def _is_cheap(self, node: Node) -> bool:
        """Arithmetic without a transcendental function or division, and what only moves elements."""
        if node.op in _MOVES:
            return True
        kernel = node.op.kernel(*node.attrs) if node.op.elementwise and node.op.kernel is not None else None
        return kernel is not None and not _is_dear(kernel)

    def _is_repeatable(self, node: Node) -> bool:
        """Whatever is no construct, call or effect."""
        structural = node.op in (REGION, LOOP_END, LOOP_BEGIN, PHI, CALL, CALL_VALUE)
        return not structural and not is_state(node.type) and not any(is_state(i.type) for i in node.inputs)

    def _costs(self, scope: Scope) -> bool:
        """Whether what leaves the scope takes memory for longer."""
        while not scope.is_root:
            if scope.is_loop:
                return True
            scope = scope.parent
        return self.closed

    # --- keeping

    def _keep_in_branch(self, scope: Scope, node: Node) -> None:
        """The value as a further one of the region; on a tape where the other branches could not give one of its type."""
        region, home = scope.owner, scope.parent
        assert region is not None
        type = self.sweep.type_of(node)
        if isinstance(type, TensorType) and type.is_static:
            self.reads[node] = self._branch_value(region, scope, node, home)
            return
        b = _maker(node)
        boxed = self.sweep.forward(b(tape_push, b(tape_empty), node), scope)
        box = self._branch_value(region, scope, boxed, home)
        self.reads[node] = b(PROJ, b(tape_pop, box, type=type), index=1)

    def _branch_value(self, region: Node, scope: Scope, node: Node, home: Scope) -> Node:
        columns = self._columns.setdefault(region, [])
        free = (at for at, (type, values) in enumerate(columns) if type == node.type and values[scope.branch] is None)
        at = next(free, len(columns))
        if at == len(columns):
            columns.append((node.type, [None] * region.attrs[0]))
            self.sweep.grown.setdefault(region, []).append(())
        columns[at][1][scope.branch] = node
        self.sweep.grown[region][at] = tuple(columns[at][1])
        phi = Node(PHI, (region,), (items_of(region) + at,), node.type, node.origin)
        return self._outer(self.sweep.forward(phi, home))

    def _outer(self, node: Node) -> Node:
        self.want(node)
        return node

    def _keep_in_loop(self, scope: Scope, node: Node) -> None:
        turns = self.sweep.turns[scope.owner]  # type: ignore[index]
        if turns.count is not None and isinstance(node.type, TensorType) and node.type.is_static:
            self.reads[node] = self._in_rows(scope, turns, node)
        else:
            self.reads[node] = self._on_tape(scope, turns, node)

    def _in_rows(self, scope: Scope, turns: Turns, node: Node) -> Node:
        """A row per turn of a tensor; written in the forward loop, read in the backward one."""
        sweep, b, begin = self.sweep, _maker(node), turns.end.inputs[0]
        assert isinstance(node.type, TensorType) and turns.count is not None
        at = sweep.counter(turns.end)
        shape = node.type.shape
        all_rows = tensor(node.type.dtype, (turns.count, *shape))
        rows = sweep.forward(sweep.column(begin, all_rows), scope)
        row = sweep.forward(b(reshape, node, shape=(1, *shape)), scope)
        zero = b.like(0, at)
        after = sweep.forward(b(dynamic_update_slice, rows, row, at, *(zero for _ in shape)), scope)
        sweep.grow(begin, b.splat(0, all_rows), after)
        whole = sweep.forward(Node(PROJ, (turns.end,), rows.attrs, all_rows, node.origin), scope.parent)
        self.want(whole)
        zero = b.like(0, turns.index)
        read = b(dynamic_slice, whole, turns.index, *(zero for _ in shape), slice_sizes=(1, *shape))
        return b(reshape, read, shape=shape)

    def _on_tape(self, scope: Scope, turns: Turns, node: Node) -> Node:
        """On a tape that the forward loop makes and the backward loop takes off."""
        sweep, b, begin = self.sweep, _maker(node), turns.end.inputs[0]
        tape = sweep.forward(sweep.column(begin, TAPE), scope)
        sweep.grow(begin, b(tape_empty), sweep.forward(b(tape_push, tape, node), scope))
        whole = sweep.forward(Node(PROJ, (turns.end,), tape.attrs, TAPE, node.origin), scope.parent)
        self.want(whole)
        back = sweep.column(turns.back_begin, TAPE)
        popped = b(tape_pop, back, type=sweep.type_of(node))
        sweep.grow(turns.back_begin, whole, b(PROJ, popped, index=0))
        return b(PROJ, popped, index=1)


def _maker(node: Node) -> Builder:
    """A builder of nodes that are all new, and come from the node."""
    return Builder(intern=False, origin=node.origin.rewritten("grad"))


def _is_dear(kernel: Expr) -> bool:
    stack: list[Expr] = [kernel]
    while stack:
        e = stack.pop()
        if isinstance(e, Apply):
            if e.primitive in _DEAR:
                return True
            stack += e.args
    return False
