"""Loops taken out of a function, each as a closed body that an engine may run as one kernel.

A loop that the engine accepts becomes a `fusion` whose body holds the loop and everything that runs only inside it, so it computes
what it did, in the same order and as lazily. What broadcasts or looks at outside values is left outside, and so are loops that the
schedule does before, and what ends for sure and need not be computed again when a loop around this one comes to it again. Takes
time linear in the function and in the loops that are small enough to be tried, and never recurses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from deepx_graph.analysis.liveness import Live, has_control, liveness
from deepx_graph.analysis.scopes import Placement, Scope
from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import copied, rebuild, replaced, with_inputs
from deepx_graph.ir.structure import CONSTANT, LOOP_END, PARAM, PHI, PROJ, TUPLE, index_of, is_loop_variable
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.rewrite.control.live_columns import with_live_columns

MOST_NODES = 4000
"""A loop of more nodes is not tried."""

Accepts = Callable[[Function], bool]


@dataclass(frozen=True)
class OutlinedLoop:
    """A loop as a function: `captured` are the outside values for its parameters, `columns` the variables that it gives."""

    end: Node
    body: Function
    captured: tuple[Node, ...]
    columns: tuple[int, ...]


def outlined(function: Function, accepts: Accepts) -> Function:
    """The function with every loop that `accepts` takes as one node, outer loops first; itself where there is none."""
    if not has_control(function):
        return function
    # Where a loop goes its variables go, and those that nobody reads may look at what has gone elsewhere.
    narrow = with_live_columns(function, liveness(function))
    found = {loop.end: loop for loop in _Loops(narrow, liveness(narrow)).accepted(accepts)}
    return _without(narrow, found) if found else function


class _Loops:
    """Which nodes run inside which loop."""

    def __init__(self, function: Function, live: Live) -> None:
        self.function, self.live = function, live
        self.placement = Placement(function, live)
        self.sizes: dict[Scope, int] = {b: len(b.nodes) for b in self.placement.scopes}
        for block in reversed(self.placement.scopes):
            if not block.is_root:
                self.sizes[block.parent] += self.sizes[block]

    def accepted(self, accepts: Accepts) -> Iterator[OutlinedLoop]:
        """The loops that are taken; none lies inside another."""
        covered: dict[Scope, Scope] = {}  # what lies in the loops that are taken, with their headers
        for block in self.placement.scopes:  # parents first
            header = None if block.is_root else covered.get(block.parent)
            if header is not None and not self._outlives(block, header) and not self._is_before(block, header):
                covered[block] = header
                continue
            if block.kind != "header" or self.sizes[block] > MOST_NODES:
                continue
            assert block.owner is not None
            loop = self._loop(block.owner, block)
            if accepts(loop.body):
                covered[block] = block
                yield loop

    def _loop(self, end: Node, header: Scope) -> OutlinedLoop:
        members = self._members(end, header)
        outer = self._outside(end, members)
        captured = tuple(n for n in outer if n.op is not CONSTANT)
        params = tuple(Node(PARAM, (), (k, n.type), n.type, n.origin) for k, n in enumerate(captured))
        new = dict(zip(captured, params, strict=True)) | {n: n for n in outer if n.op is CONSTANT}
        rebuild(members, new, copied)
        columns = self._columns_read(end)
        b = Builder()
        results = tuple(b.proj(new[end], k) for k in columns)
        return OutlinedLoop(end, Function("loop", params, results), captured, columns)

    def _members(self, end: Node, header: Scope) -> list[Node]:
        """What runs inside the loop, the loop included, in topological order."""
        found, stack = {end, end.inputs[0]}, list(self.live.inputs(end))
        while stack:
            node = stack.pop()
            if node in found or not self._is_inside(node, header) or self._is_kept_around(node, header):
                continue
            if node.op is LOOP_END and self._is_before(self.placement.headers[node], header):
                continue
            found.add(node)
            stack += self.live.inputs(node) if not is_loop_variable(node) else ()
            if node.op is LOOP_END:
                found.add(node.inputs[0])
                stack += self.live.inits(node)
        inside: list[Node] = []
        outer: set[Node] = set()
        for node in sorted(found, key=lambda n: n.serial):
            if _is_seen_from_outside(node) and all(i not in found or i in outer for i in node.inputs):
                outer.add(node)
            else:
                inside.append(node)
        return inside

    def _is_inside(self, node: Node, header: Scope) -> bool:
        if is_loop_variable(node):
            inner = self.live.ends[node.inputs[0]]
            return self.placement.headers[inner].within(header)
        return node in self.placement.home and self.placement.home[node].within(header)

    def _is_kept_around(self, node: Node, header: Scope) -> bool:
        """Whether the schedule computes the node, which is inside a loop, once for all iterations of a loop around that."""
        scope = header if is_loop_variable(node) else self.placement.home[node]
        while scope is not header and not self._outlives(scope, header):
            scope = scope.parent
        return scope is not header

    def _outlives(self, scope: Scope, header: Scope) -> bool:
        """Whether a scope inside of a loop does not run again when the loop does."""
        return (scope.kind == "once" and self.all_end
                and not self.placement.headers[self.placement.outermost[scope]].within(header))

    def _is_before(self, inner: Scope, header: Scope) -> bool:
        """Whether a scope is that of a loop which the schedule has done before another one, which is known to run."""
        if inner.kind != "header":
            return False
        assert inner.owner is not None and header.owner is not None
        headers = self.scheduled.headers
        return not headers[inner.owner].within(headers[header.owner])

    @cached_property
    def scheduled(self) -> Placement:
        """Where the schedule has it all done."""
        return Placement(self.function, self.live, hoists=True)

    @cached_property
    def all_end(self) -> bool:
        """Whether all that is computed once ends for sure, so that it may run where nothing needs it in the end."""
        return all(n.op.total and (n.op is not LOOP_END or trip_count(n) is not None)
                   for n, scope in self.placement.home.items() if self._is_once(scope))

    def _is_once(self, scope: Scope) -> bool:
        while not scope.is_root and scope.kind != "once":
            scope = scope.parent
        return scope.kind == "once"

    def _outside(self, end: Node, members: Sequence[Node]) -> list[Node]:
        """What the members read and are not, in the order in which it was made; parameters and what comes before them first."""
        own = set(members)
        read = {i for n in members for i in self._inputs(n)} | set(self.live.inits(end))
        return sorted(read - own, key=lambda n: n.serial)

    def _inputs(self, node: Node) -> Sequence[Node]:
        return () if is_loop_variable(node) else self.live.inputs(node)

    def _columns_read(self, end: Node) -> tuple[int, ...]:
        users = self.function.users[end]
        whole = any(u.op is not PROJ for u in users) or end in self.function.results
        return self.live.columns[end] if whole else tuple(sorted({index_of(u) for u in users}))


def _is_seen_from_outside(node: Node) -> bool:
    """Whether the node only looks at its first operand, and that is no constant. A result of a loop or of a branch outside is one:
    that loop may become a kernel, too. What has no operand, such as `iota`, is made where it is read."""
    return node.op is PROJ or node.op is PHI or (node.op.view and any(i.op is not CONSTANT for i in node.inputs[:1]))


def _without(function: Function, loops: dict[Node, OutlinedLoop]) -> Function:
    """The function with each of the loops as one node."""
    b, new = Builder(), dict[Node, Node]()
    kernels: dict[Node, Node] = {}
    for node in function.nodes:
        source = node.inputs[0] if node.op is PROJ else None
        if node in loops:
            loop = loops[node]
            kernels[node] = b(fusion, *(new[i] for i in loop.captured), body=loop.body)
            if len(loop.columns) == len(node.type.items):  # type: ignore[attr-defined]
                new[node] = b(TUPLE, *(_column(b, kernels[node], loop, k) for k in loop.columns))
        elif source in loops:
            assert source is not None
            new[node] = _column(b, kernels[source], loops[source], index_of(node))
        elif all(i in new for i in node.inputs):
            new[node] = with_inputs(node, tuple(new[i] for i in node.inputs))
    return replaced(function, new)


def _column(b: Builder, kernel: Node, loop: OutlinedLoop, column: int) -> Node:
    return kernel if len(loop.columns) == 1 else b.proj(kernel, loop.columns.index(column))
