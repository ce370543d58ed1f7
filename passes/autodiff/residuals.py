"""Residuals: how the backward part gets the values of the forward part that it uses.

A value at home in the function itself is used as it is. One from a branch leaves it as a further value of the region. One from a
loop is kept for every iteration: in a tensor with one row per iteration where the number of iterations is known, else on a tape;
the backward loop reads it back. What costs next to nothing to compute again from values that are there anyway (a counter, what the
loop does not change, arithmetic on kept values) is computed again instead. Scopes are settled from the innermost outwards, as what
leaves one scope is a value of the next. Only the forward part grows; no value is computed that was not before.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from deepx_graph.analysis.scopes import Scope
from deepx_graph.analysis.trip_count import counters
from deepx_graph.ir import Builder, Node
from deepx_graph.ir.scalar_expr import Apply, Expr, price
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    CONSTANT,
    LOOP_END,
    PARAM,
    PHI,
    PROJ,
    REGION,
    branch_count,
    index_of,
    is_loop_variable,
)
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
from deepx_graph.passes.autodiff.activity import items_of
from deepx_graph.passes.autodiff.calls import Kept
from deepx_graph.passes.autodiff.reverse import LoopPair, ReversePass
from deepx_graph.types import TAPE, TensorType, TupleType, Type, is_state, is_static, nbytes, tensor

_MEMORY = 4
"""What writing and reading a value costs at least, in additions."""
_MOVES = (reshape, broadcast_in_dim, slice_, dynamic_slice, iota, convert)


def should_rematerialise(node: Node) -> bool:
    """Arithmetic without a transcendental function or division, and what only moves elements."""
    if node.op in _MOVES:
        return True
    kernel = node.op.kernel(*node.attrs) if node.op.elementwise and node.op.kernel is not None else None
    return kernel is not None and not _is_dear(kernel)


def _is_dear(kernel: Expr) -> bool:
    stack: list[Expr] = [kernel]
    while stack:
        e = stack.pop()
        if isinstance(e, Apply):
            if price(e.primitive) > _MEMORY:
                return True
            stack += e.args
    return False


Repeat = Callable[[Node], bool]
"""Whether the values of a loop, given its loop_end, are computed again from its variables rather than kept."""

_ONCE = (CALL, CALL_VALUE)


class Residuals:
    """After `settle`: `reads[x]` is the node that stands for forward value `x` in the backward part; a value
    without one is computed there again from its operands. Where the backward part is a function of its own (`closed`),
    `captured` are the values that its first parameters stand for."""

    def __init__(self, sweep: ReversePass, repeat: Repeat, *, closed: bool = False) -> None:
        self.sweep, self.repeat, self.closed = sweep, repeat, closed
        self.kept: list[Kept] = []
        self.captured: list[Node] = []
        self.reads: dict[Node, Node] = {}
        self.wanted: dict[Scope, dict[Node, None]] = {}
        self._queue: list[tuple[int, int, Scope]] = []
        self._order = itertools.count()
        self._outside: dict[Node, list[Node]] = {}
        self._repeatable: dict[Node, bool] = {}
        self._columns: dict[tuple[Node, Type], list[int]] = {}
        self._taken: dict[tuple[Scope, Type], Iterator[int]] = {}

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
        if scope.kind == "body":
            self._count(scope)
        for node in self._chosen(scope, wanted):
            if scope.kind == "body":
                self._keep_in_loop(scope, node)
            elif scope.is_root:
                type = self.sweep.type_of(node)
                self.reads[node] = Node(PARAM, (), (len(self.captured), type), type, node.origin)
                self.captured.append(node)
            else:
                self._keep_in_branch(scope, node)

    def _count(self, scope: Scope) -> None:
        """Counters are computed from the number of the iteration."""
        pair = self.sweep.pairs[scope.owner]  # type: ignore[index]
        found = counters(pair.end)
        b = Builder(peephole=True)
        for node in scope.nodes if found else ():
            if node.op is PHI and node.inputs[0] is pair.end.inputs[0] and index_of(node) in found:
                first, step = found[index_of(node)]
                assert isinstance(node.type, TensorType)
                at = pair.index if pair.index.type == node.type else b(convert, pair.index, dtype=node.type.dtype)
                self.reads[node] = b(add, b(multiply, at, b.like(step, at)), b.like(first, at))

    def _chosen(self, scope: Scope, wanted: dict[Node, None]) -> list[Node]:
        """The values of a scope that are kept; the other wanted ones are computed again."""
        if scope.kind != "body" and not self._costs(scope):
            return [n for n in wanted if n not in self.reads]
        if scope.loop is not None and self.repeat(scope.loop):
            return self._repeated(scope, wanted, lambda n: not self._is_repeatable(n))
        there: set[Node] = set()
        kept: set[Node] = set()
        for node in (*scope.nodes, *(n for n in wanted if n not in self.sweep.scopes.home)):
            cheap = should_rematerialise(node) and all(self._is_there(i, scope, there) for i in node.inputs)
            if node in self.reads or node in wanted or cheap:
                there.add(node)
            if node in wanted and not cheap:
                kept.add(node)
        return self._repeated(scope, wanted, kept.__contains__)

    def _repeated(self, scope: Scope, wanted: dict[Node, None], is_kept: Callable[[Node], bool]) -> list[Node]:
        """The values that are kept, when those that are not are computed again; asks the scopes around for what that needs."""
        kept: list[Node] = []
        seen: set[Node] = set()
        stack = list(wanted)
        while stack:
            node = stack.pop()
            if node in seen or node in self.reads or node.op is CONSTANT:
                continue
            seen.add(node)
            if self.sweep.home(node) is not scope:
                self.want(node)
            elif is_kept(node):
                kept.append(node)
            else:
                stack += self._needs(node)
        return kept

    def _is_there(self, node: Node, scope: Scope, there: set[Node]) -> bool:
        """Whether the backward part has the value at no cost."""
        home = self.sweep.home(node)
        if node.op is CONSTANT or (home.is_root and not self.closed):
            return True
        return node in there or (home is not scope and node in self.wanted.get(home, ()))

    def _is_repeatable(self, node: Node) -> bool:
        """Whatever can be computed twice: no loop variable, call or effect, and no construct with such a thing inside."""
        if is_loop_variable(node):
            return False
        if node.op is PHI or node.op is PROJ:
            return self._is_repeatable(node.inputs[0])
        if node not in self._repeatable:
            inside = self._inside(node) if node.op is REGION or node.op is LOOP_END else ()
            self._repeatable[node] = all(n.op not in _ONCE and not is_state(n.type) for n in (node, *inside))
        return self._repeatable[node]

    def _needs(self, node: Node) -> Sequence[Node]:
        """What a node is computed from: of a construct what it uses from outside."""
        if node.op is not REGION and node.op is not LOOP_END:
            return node.inputs
        if node not in self._outside:
            inside = set(self._inside(node))
            begin = node.inputs[0] if node.op is LOOP_END else None
            used = dict.fromkeys(i for n in (*inside, node) for i in n.inputs if i not in inside and i is not begin)
            self._outside[node] = [*used, *(begin.inputs if begin is not None else ())]
        return self._outside[node]

    def _inside(self, construct: Node) -> list[Node]:
        """The nodes inside a region or loop, however deep."""
        found: list[Node] = []
        stack = [construct]
        while stack:
            node = stack.pop()
            scopes = self.sweep.scopes.branches[node] if node.op is REGION else (self.sweep.scopes.bodies[node],)
            for scope in scopes:
                found += scope.nodes
                stack += (n for n in scope.nodes if n.op is REGION or n.op is LOOP_END)
        return found

    def _costs(self, scope: Scope) -> bool:
        """Whether what leaves the scope takes memory for longer."""
        return scope.loop is not None or self.closed

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
        alike = self._columns.setdefault((region, node.type), [])
        used = self._taken.setdefault((scope, node.type), itertools.count())
        column = next(used)  # the k-th value of a type in a branch goes into the k-th column of that type
        grown = self.sweep.grown.setdefault(region, [])
        if column == len(alike):
            alike.append(len(grown))
            grown.append((None,) * branch_count(region))
        at = alike[column]
        grown[at] = (*grown[at][: scope.branch], node, *grown[at][scope.branch + 1 :])
        phi = Node(PHI, (region,), (items_of(region) + at,), node.type, node.origin)
        return self._outer(self.sweep.forward(phi, home))

    def _outer(self, node: Node) -> Node:
        self.want(node)
        return node

    def _keep_in_loop(self, scope: Scope, node: Node) -> None:
        pair = self.sweep.pairs[scope.owner]  # type: ignore[index]
        if pair.count is not None and isinstance(node.type, TensorType) and node.type.is_static:
            self.reads[node] = self._in_rows(scope, pair, node)
        else:
            self.reads[node] = self._on_tape(scope, pair, node)

    def _in_rows(self, scope: Scope, pair: LoopPair, node: Node) -> Node:
        """A row per iteration of a tensor; written in the forward loop, read in the backward one."""
        sweep, b, begin = self.sweep, _maker(node), pair.end.inputs[0]
        assert isinstance(node.type, TensorType) and pair.count is not None
        at = sweep.counter(pair.end)
        shape = node.type.shape
        all_rows = tensor(node.type.dtype, (pair.count, *shape))
        rows = sweep.forward(sweep.column(begin, all_rows), scope)
        row = sweep.forward(b(reshape, node, shape=(1, *shape)), scope)
        zero = b.like(0, at)
        after = sweep.forward(b(dynamic_update_slice, rows, row, at, *(zero for _ in shape)), scope)
        sweep.grow(begin, b.splat(0, all_rows), after)
        self.kept.append(Kept(after.origin, all_rows.nbytes, 0))
        whole = sweep.forward(Node(PROJ, (pair.end,), rows.attrs, all_rows, node.origin), scope.parent)
        self.want(whole)
        zero = b.like(0, pair.index)
        read = b(dynamic_slice, whole, pair.index, *(zero for _ in shape), slice_sizes=(1, *shape))
        return b(reshape, read, shape=shape)

    def _on_tape(self, scope: Scope, pair: LoopPair, node: Node) -> Node:
        """On a tape that the forward loop makes and the backward loop takes off."""
        sweep, b, begin = self.sweep, _maker(node), pair.end.inputs[0]
        tape = sweep.forward(sweep.column(begin, TAPE), scope)
        pushed = sweep.forward(b(tape_push, tape, node), scope)
        self.kept.append(Kept(pushed.origin, 0, nbytes(node.type) if is_static(node.type) else 0))
        sweep.grow(begin, b(tape_empty), pushed)
        whole = sweep.forward(Node(PROJ, (pair.end,), tape.attrs, TAPE, node.origin), scope.parent)
        self.want(whole)
        back = sweep.column(pair.back_begin, TAPE)
        popped = b(tape_pop, back, type=sweep.type_of(node))
        sweep.grow(pair.back_begin, whole, b(PROJ, popped, index=0))
        return b(PROJ, popped, index=1)


def _maker(node: Node) -> Builder:
    """A builder of nodes that are all new, and come from the node; they have an origin object of their own, which tells them."""
    return Builder(intern=False, origin=replace(node.origin.rewritten("residual")))
