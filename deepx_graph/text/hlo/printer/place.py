"""Which computation of HLO text every node of a function is written in.

HLO has no free variables: the branches of a conditional and the condition and body of a while are computations of their own, given
what they use from outside. A node stands within the loops whose variables it depends on and outside all others; of the places
left, in the deepest branch that holds all its users. Small constants stand wherever they are used. A node that the condition and
the body of a loop share is written in both. Nothing here writes text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from deepx_graph import ops
from deepx_graph.analysis.liveness import everything
from deepx_graph.analysis.loop_nest import Loops
from deepx_graph.analysis.nesting import Nested, common
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import (
    CALL_VALUE,
    CONSTANT,
    LOOP_BEGIN,
    LOOP_END,
    PARTIAL,
    PHI,
    PROJ,
    REGION,
    branches_of,
)
from deepx_graph.literal import Literal

REPEATED = 16
"""Constants of at most so many elements are written again in every computation that uses them."""

MAX_DEPTH = 60
"""How deep branches are nested if the graph leaves it open."""


class Place(Nested):
    """A branch of a region, the header or the body of a loop, or the function itself. `loop` is the innermost header around."""

    __slots__ = ("loop",)

    def __init__(self, parent: Place | None, loop: Place | None) -> None:
        super().__init__(parent)
        self.loop = loop


@dataclass(eq=False, slots=True)
class Scope:
    """What is written in one computation: `members` in order, and the `captures` that come from outside."""

    roots: tuple[Node, ...]
    members: list[Node] = field(default_factory=list)
    captures: dict[Node, None] = field(default_factory=dict)
    items: dict[Node, list[Node]] = field(default_factory=dict)
    """The phis and projections of a member, which stand right after it, in order of index."""


def is_item(node: Node) -> bool:
    """A value of a region, call or other tuple, read from it by number."""
    return node.op is PROJ or (node.op is PHI and node.inputs[0].op is REGION)


def is_variable(node: Node) -> bool:
    """A loop variable."""
    return node.op is PHI and node.inputs[0].op is LOOP_BEGIN


def is_repeated(node: Node) -> bool:
    """Written in every computation that uses it, never passed in."""
    if node.op is CONSTANT:
        literal: Literal = node.attrs[0]
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
    if is_variable(node):
        return ()
    if node.op is ops.pad and not node.attrs[0]:  # a scalar is not padded with anything
        return node.inputs[:1]
    if node.op is CALL_VALUE and node.inputs[0].op is PARTIAL:
        return call_arguments(node)[1]
    return node.inputs


class Placement:
    """The scopes of a function: `main`, those of each region's branches, and condition and body of each loop end."""

    def __init__(self, function: Function) -> None:
        self.root = Place(None, None)
        self.place: dict[Node, Place] = {}
        self._site: dict[Node, Place] = {}
        self._headers: dict[Node, Place] = {}
        self._owners: list[tuple[int, Node]] = []
        self._inside: dict[Node, tuple[Place, ...]] = {}
        self._loops = Loops(everything(function)).innermost
        self._place_all(function)
        self.branches: dict[Node, list[Scope]] = {}
        self.loops: dict[Node, tuple[Scope, Scope]] = {}
        for _, owner in sorted(self._owners, key=lambda o: -o[0]):
            self._fill(owner)
        self.main = self._scope(function.results, (self.root,), function.params)

    # --- places, users before inputs

    def _place_all(self, function: Function) -> None:
        for r in function.results:
            self._use(r, self.root)
        for node in reversed(function.nodes):
            if node in self._site:
                self._visit(node, self._site[node])
        self.place.update((p, self.root) for p in function.params)
        for node in function.nodes:
            if is_item(node) and node.inputs[0] in self.place:
                self.place[node] = self.place[node.inputs[0]]
            elif is_variable(node) and node.inputs[0] in self._headers:
                self.place[node] = self._headers[node.inputs[0]]

    def _visit(self, node: Node, site: Place) -> None:
        if is_item(node):
            self._use(node.inputs[0], site)
            return
        if is_variable(node):
            return
        place = site if node.op in (ops.opaque, ops.custom_call) else self._hoisted(node, site)
        if node.op in (LOOP_END, REGION):
            place = _shallow(place)
        self.place[node] = place
        if node.op is LOOP_END:
            self._enter_loop(node, place)
        elif node.op is REGION:
            self._enter_branches(node, place)
        for i in operands(node):
            self._use(i, place)

    def _use(self, node: Node, place: Place) -> None:
        known = self._site.get(node)
        self._site[node] = place if known is None or known is place else common(known, place)

    def _hoisted(self, node: Node, place: Place) -> Place:
        """Out of every loop whose variables the node does not depend on."""
        innermost = self._loops[node]
        bound = self._headers.get(innermost.inputs[0]) if innermost else None
        while place.loop is not bound and place.loop is not None:
            place = place.loop.parent
        return place

    def _enter_loop(self, end: Node, place: Place) -> None:
        header = Place(place, None)
        header.loop = header
        body = Place(header, header)
        self._headers[end.inputs[0]] = header
        self._inside[end] = (header, body)
        self._owners.append((header.depth, end))
        self._use(end.inputs[1], header)
        for n in end.inputs[2:]:
            self._use(n, body)

    def _enter_branches(self, region: Node, place: Place) -> None:
        values = branches_of(region)
        self._inside[region] = tuple(Place(place, place.loop) for _ in values)
        self._owners.append((place.depth + 1, region))
        for branch, inside in zip(values, self._inside[region], strict=True):
            for v in branch:
                self._use(v, inside)

    # --- scopes, inner ones first

    def _fill(self, owner: Node) -> None:
        inside = self._inside[owner]
        if owner.op is LOOP_END:
            condition = self._scope(owner.inputs[1:2], inside[:1])
            body = self._scope(owner.inputs[2:], inside)
            condition.captures.update(body.captures)
            body.captures = condition.captures
            self.loops[owner] = condition, body
        else:
            self.branches[owner] = [self._scope(v, (p,)) for v, p in zip(branches_of(owner), inside, strict=True)]

    def needs(self, node: Node) -> Iterable[Node]:
        """Every value that must be at hand in the computation where the node is written."""
        yield from operands(node)
        if node.op is LOOP_END:
            yield from self.loops[node][0].captures
        elif node.op is REGION:
            for scope in self.branches[node]:
                yield from scope.captures

    def _scope(self, roots: Sequence[Node], places: tuple[Place, ...], first: Sequence[Node] = ()) -> Scope:
        scope = Scope(tuple(roots))
        found: set[Node] = set(first)
        stack = list(roots)
        while stack:
            node = stack.pop()
            if node in found or node in scope.captures:
                continue
            if not is_repeated(node) and self.place.get(node) not in places:
                scope.captures[node] = None
                continue
            found.add(node)
            stack.extend(self.needs(node))
        for node in sorted(found, key=_serial):
            if is_item(node):
                scope.items.setdefault(node.inputs[0], []).append(node)
            else:
                scope.members.append(node)
        for items in scope.items.values():
            items.sort(key=_index)
        return scope


def _shallow(place: Place) -> Place:
    """The place, or one around it in the same loop where computations would nest too deep: branches one after the other, each
    used in the next alone, would otherwise stand inside one another."""
    while place.depth > MAX_DEPTH and place.parent.loop is place.loop:
        place = place.parent
    return place


def _serial(node: Node) -> int:
    return node.serial


def _index(node: Node) -> tuple[int, int]:
    return int(node.attrs[-1]), node.serial
