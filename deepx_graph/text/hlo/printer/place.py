"""Which computation of HLO text every node of a function is written in, and which loop variables it has.

HLO has no free variables: the branches of a conditional and the condition and body of a while are computations of their own, given
what they use from outside. A node stands within the loops whose variables it depends on and outside all others; of the computations
left, in the deepest branch that holds all its users. Small constants stand wherever they are used. A node that the condition and
the body of a loop share is written in both. Loop variables that never change are values from outside: the reader takes them for
such, and so must what is printed. Nothing here writes text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from deepx_graph import ops
from deepx_graph.analysis.liveness import everything
from deepx_graph.analysis.scopes import Scope, ScopeTree
from deepx_graph.ir import Function, Node
from deepx_graph.ir.rebuild import rebuild, replaced, with_inputs
from deepx_graph.ir.structure import (
    CALL_VALUE,
    CONSTANT,
    LOOP_END,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    index_of,
    is_loop_variable,
    value_of,
)
from deepx_graph.types import TupleType


def without_fixed_variables(function: Function) -> Function:
    """The same function whose loops have only variables that change; a loop of none that change keeps all."""
    while any(n.op is LOOP_END for n in function.nodes) and (fixed := _fixed(function)):
        function = _without(function, fixed)
    return function


def _fixed(function: Function) -> dict[Node, set[int]]:
    """For each loop_begin the variables whose next value is their own."""
    found: dict[Node, set[int]] = {}
    for end in function.nodes:
        if end.op is LOOP_END:
            begin, _, *nexts = end.inputs
            same = {k for k, n in enumerate(nexts) if n.op is PHI and n.inputs[0] is begin and index_of(n) == k}
            if same and len(same) < len(nexts):
                found[begin] = same
    return found


def _without(function: Function, fixed: dict[Node, set[int]]) -> Function:
    """One round over all nodes of a function."""
    new: dict[Node, Node] = {p: p for p in function.params}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node in fixed:
            kept = _kept(inputs, fixed[node])
            return Node(node.op, kept, node.attrs, TupleType(tuple(n.type for n in kept)), node.origin)
        begin = node.inputs[0] if node.inputs else node
        begin = begin.inputs[0] if begin.op is LOOP_END else begin
        if begin not in fixed:
            return with_inputs(node, inputs)
        if node.op is LOOP_END:
            return Node(LOOP_END, (*inputs[:2], *_kept(inputs[2:], fixed[begin])), (), inputs[0].type, node.origin)
        k = index_of(node)  # of a variable, or of its value at the end
        if k in fixed[begin]:
            return new[begin.inputs[k]]
        return Node(node.op, inputs, (k - sum(f < k for f in fixed[begin]),), node.type, node.origin)

    return replaced(function, rebuild(function.nodes, new, step))


def _kept(values: Sequence[Node], fixed: set[int]) -> tuple[Node, ...]:
    return tuple(v for k, v in enumerate(values) if k not in fixed)


REPEATED = 16
"""Constants of at most so many elements are written again in every computation that uses them."""

MAX_DEPTH = 60
"""How deep branches are nested if the graph leaves it open."""


@dataclass(eq=False, slots=True)
class ClosedComputation:
    """What is written in one computation: `members` in order, and the `captures` that come from outside."""

    roots: tuple[Node, ...]
    members: list[Node] = field(default_factory=list)
    captures: dict[Node, None] = field(default_factory=dict)
    items: dict[Node, list[Node]] = field(default_factory=dict)
    """The phis and projections of a member, which stand right after it, in order of index."""

    def hold(self, nodes: Iterable[Node]) -> None:
        """Takes in all that stands here, in order."""
        for node in nodes:
            if is_item(node):
                self.items.setdefault(node.inputs[0], []).append(node)
            else:
                self.members.append(node)
        for items in self.items.values():
            items.sort(key=lambda n: (index_of(n), n.serial))


def is_item(node: Node) -> bool:
    """A value of a region, call or other tuple, read from it by number."""
    return node.op is PROJ or (node.op is PHI and node.inputs[0].op is REGION)


def is_repeated(node: Node) -> bool:
    """Written in every computation that uses it, never passed in."""
    if node.op is CONSTANT:
        literal = value_of(node)
        return literal.array.size <= REPEATED
    return node.op is ops.module_seed


def call_arguments(node: Node) -> tuple[Node, tuple[Node, ...]]:
    """The function value at the bottom of partial applications, and all arguments."""
    function, args = node.inputs[0], node.inputs[1:]
    while function.op is PARTIAL:
        return function, function.inputs + args
    return function, args


def operands(node: Node) -> Sequence[Node]:
    """What the instruction of a node takes from its own computation (a region: its selector alone)."""
    if node.op is LOOP_END:
        return node.inputs[0].inputs
    if node.op is REGION:
        return node.inputs[:1]
    if is_loop_variable(node):
        return ()
    if node.op is CALL_VALUE and node.inputs[0].op is PARTIAL:
        return call_arguments(node)[1]
    return node.inputs


class Computations(ScopeTree):
    """What is written where: in `main`, in those of each region's branches, in condition and body of each loop end."""

    def __init__(self, function: Function) -> None:
        super().__init__(function, everything(function))
        self.of_branches: dict[Node, list[ClosedComputation]] = {}
        self.of_loops: dict[Node, tuple[ClosedComputation, ClosedComputation]] = {}
        if not self.live.columns:  # no branch and no loop
            self.main = ClosedComputation(function.results)
            self.main.hold(function.nodes)
            return
        self.place_all()
        self._place_items()
        owners = {**self.headers, **{region: scopes[0] for region, scopes in self.branches.items()}}
        for owner in sorted(owners, key=lambda n: -owners[n].depth):
            self._fill(owner)
        self.main = self._computation(function.results, (self.root,), function.params)

    # --- scopes

    def place(self, node: Node, latest: Scope) -> None:
        if is_item(node):
            self.use(node.inputs[:1], latest)
        else:
            super().place(node, latest)

    def operands(self, node: Node) -> Sequence[Node]:
        return operands(node)

    def hoisted(self, node: Node, latest: Scope) -> Scope:
        """Out of every loop whose variables the node does not depend on."""
        if node.op not in (ops.opaque, ops.custom_call):
            innermost = self.loops.innermost[node]
            while latest.loop is not innermost and latest.loop is not None:
                latest = self.headers[latest.loop].parent
        return _shallow(latest) if node.op in (LOOP_END, REGION) else latest

    def _place_items(self) -> None:
        """What stands with another node: parameters, what is read from a tuple, loop variables."""
        self.home.update((p, self.root) for p in self.function.params)
        for node in self.function.nodes:
            if is_item(node) and node.inputs[0] in self.home:
                self.home[node] = self.home[node.inputs[0]]
            elif is_loop_variable(node) and self.live.ends[node.inputs[0]] in self.headers:
                self.home[node] = self.headers[self.live.ends[node.inputs[0]]]

    # --- computations, inner ones first

    def _fill(self, owner: Node) -> None:
        if owner.op is LOOP_END:
            header, inside = self.headers[owner], self.bodies[owner]
            condition = self._computation(owner.inputs[1:2], (header,))
            body = self._computation(owner.inputs[2:], (header, inside))
            condition.captures.update(body.captures)
            body.captures = condition.captures
            self.of_loops[owner] = condition, body
        else:
            scopes = self.branches[owner]
            self.of_branches[owner] = [self._computation(self.live.branch(owner, s.branch), (s,)) for s in scopes]

    def needs(self, node: Node) -> Iterable[Node]:
        """Every value that must be at hand in the computation where the node is written."""
        yield from operands(node)
        if node.op is LOOP_END:
            yield from self.of_loops[node][0].captures
        elif node.op is REGION:
            for branch in self.of_branches[node]:
                yield from branch.captures

    def _computation(self, roots: Sequence[Node], scopes: tuple[Scope, ...], first: Sequence[Node] = ()) -> ClosedComputation:
        made = ClosedComputation(tuple(roots))
        found: set[Node] = set(first)
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in found or node in made.captures:
                continue
            if not is_repeated(node) and self.home.get(node) not in scopes:
                made.captures[node] = None
                continue
            found.add(node)
            stack.extend(self.needs(node))
        made.hold(sorted(found, key=attrgetter("serial")))
        return made


def _shallow(scope: Scope) -> Scope:
    """The scope, or one around it in the same loop where computations would nest too deep: branches one after the other, each
    used in the next alone, would otherwise stand inside one another."""
    while scope.depth > MAX_DEPTH and scope.parent.loop is scope.loop:
        scope = scope.parent
    return scope
