"""The scopes of a function, and through which of its values a derivative flows: what reverse mode asks before it starts.

A scope is the function itself, the body of a loop, or one branch of a region; a node's home is the innermost scope that holds all
its uses, moved out of loops it does not depend on. Homes follow from dependence alone, as places do in the schedule.
Flow is found per column: a loop variable or branch value that no derivative passes takes no part. Nothing here builds nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from deepx_graph.analysis.nesting import Nested, common
from deepx_graph.errors import InferError, VerifyError
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    LOOP_BEGIN,
    LOOP_END,
    PARAM,
    PHI,
    PROJ,
    REGION,
    TUPLE,
    branch_count,
    branches_of,
    index_of,
    phi_choices,
)
from deepx_graph.ops import stop_gradient
from deepx_graph.ops.vjp.accumulate import carries
from deepx_graph.types import TupleType

Key = Node | tuple[Node, int]
"""A node, or variable k of a loop as `(loop_begin, k)`."""


class ActivityScope(Nested):
    """The function (`owner` None), the body of the loop that `owner` (a loop_end) closes, or a branch of the region `owner`."""

    __slots__ = ("branch", "members", "owner")

    def __init__(self, owner: Node | None, branch: int, parent: ActivityScope | None) -> None:
        super().__init__(parent)
        self.owner, self.branch = owner, branch
        self.members: list[Node] = []

    @property
    def is_root(self) -> bool:
        return self.owner is None

    @property
    def is_loop(self) -> bool:
        return self.owner is not None and self.owner.op is LOOP_END


class ScopeTree:
    """The homes of a function's nodes. `branches[region]` and `bodies[loop_end]` are the scopes that the node owns."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.root = ActivityScope(None, 0, None)
        self.home: dict[Node, ActivityScope] = {}
        self.branches: dict[Node, tuple[ActivityScope, ...]] = {}
        self.bodies: dict[Node, ActivityScope] = {}
        self.ends: dict[Node, Node] = {n.inputs[0]: n for n in function.nodes if n.op is LOOP_END}
        late: dict[Node, ActivityScope] = dict.fromkeys(function.results, self.root)
        for node in reversed(function.nodes):
            self._uses(node, late.get(node, self.root), late)
        for node in function.nodes:
            self.home[node] = self._hoisted(node, late.get(node, self.root))
        for node in function.nodes:
            self.home[node].members.append(node)

    def _uses(self, node: Node, at: ActivityScope, late: dict[Node, ActivityScope]) -> None:
        """Records where the node, whose place is `at`, needs its operands."""
        if node.op is REGION:
            self.branches[node] = scopes = tuple(ActivityScope(node, b, at) for b in range(branch_count(node)))
            _use(late, node.inputs[:1], at)
            for values, scope in zip(branches_of(node), scopes, strict=True):
                _use(late, values, scope)
        elif node.op is LOOP_END:
            self.bodies[node] = body = ActivityScope(node, 0, at)
            late[node.inputs[0]] = at
            _use(late, node.inputs[0].inputs, at)
            _use(late, node.inputs[1:], body)
        elif node.op is PHI and node.inputs[0].op is LOOP_BEGIN:
            late[node] = self.bodies[self.ends[node.inputs[0]]]
        elif node.op is not LOOP_BEGIN:
            _use(late, node.inputs, at)

    def _hoisted(self, node: Node, place: ActivityScope) -> ActivityScope:
        """The place, moved out of the loops that a plain operation does not depend on."""
        fixed = node.op in (REGION, LOOP_END, LOOP_BEGIN, CALL, CALL_VALUE) or (node.op is PHI and node.inputs[0].op is LOOP_BEGIN)
        while place.is_loop and not fixed and not any(self.home[i].within(place) for i in node.inputs):
            place = place.parent
        return self.root if node.op is PARAM else place


def _use(late: dict[Node, ActivityScope], nodes: Iterable[Node], at: ActivityScope) -> None:
    for n in nodes:
        known = late.get(n)
        late[n] = at if known is None or known is at else common(known, at)


class Activity:
    """The nodes and loop variables on a way from `wrt` to `roots` along which a derivative may pass."""

    def __init__(self, function: Function, ends: dict[Node, Node], wrt: Collection[Node], roots: Iterable[Node],
                 stopped: Collection[Node] = ()) -> None:
        self.ends, self.stopped = ends, stopped
        self.wrt = frozenset(wrt)
        users: dict[Key, list[Key]] = {}
        keys: list[Key] = list(function.nodes)
        keys += ((b, k) for b in ends for k in range(len(b.inputs)))
        for key in keys:
            for source in self.sources(key):
                users.setdefault(source, []).append(key)
        self.came_from = _reach(wrt, lambda k: users.get(k, ()), None)
        self.goes_to = _reach(roots, self.sources, self.came_from)

    def sources(self, key: Key) -> Sequence[Key]:
        """What a derivative of the node or variable comes from, seen through constructs to the one column that counts."""
        if isinstance(key, tuple):
            begin, k = key
            return begin.inputs[k], self.ends[begin].inputs[2 + k]
        if key in self.wrt or not carries(key.type) or key.op is stop_gradient or key in self.stopped:
            return ()
        source = key.inputs[0] if key.inputs else key
        if key.op is PHI and source.op is LOOP_BEGIN:
            return (source, index_of(key)),
        if key.op is PROJ and source.op is LOOP_END:
            return (source.inputs[0], index_of(key)),
        if key.op is PHI:
            return phi_choices(source, index_of(key))
        if key.op is PROJ and source.op is TUPLE:
            return source.inputs[index_of(key)],
        if key.op is LOOP_END:
            return [(source, k) for k in range(len(source.inputs))]
        return key.inputs[1:] if key.op is REGION else key.inputs

    def passes(self, key: object) -> bool:
        """Whether a derivative may pass: the value depends on `wrt`, and a root on the value."""
        return key in self.goes_to

    __contains__ = passes

    def refusal(self, node: Node, error: InferError) -> VerifyError:
        """The error at the node, with a path through it from `wrt` to a root."""
        names = [n.name or n.op.name for n in self._path(node)]
        shown = names if len(names) <= 12 else [*names[:6], "...", *names[-5:]]
        found = error.diagnostic(node.span)
        return VerifyError(replace(found, notes=(*found.notes, f"it is needed on the path {' -> '.join(shown)}")))

    def _path(self, node: Node) -> list[Node]:
        before: list[Key] = [node]
        while (source := self.came_from[before[-1]]) is not None:
            before.append(source)
        after: list[Key] = []
        at: Key | None = self.goes_to[node]
        while at is not None:
            after.append(at)
            at = self.goes_to[at]
        return [k for k in (*reversed(before), *after) if isinstance(k, Node)]


def _reach(starts: Iterable[Key], onward: object, allowed: object) -> dict[Key, Key | None]:
    """What can be reached from the starts, each with where it was reached from; nearest first."""
    assert callable(onward)
    found: dict[Key, Key | None] = {}
    for start in starts:
        if allowed is None or start in allowed:  # type: ignore[operator]
            found.setdefault(start, None)
    queue = list(found)
    for key in queue:
        for after in onward(key):
            if after not in found and (allowed is None or after in allowed):  # type: ignore[operator]
                found[after] = key
                queue.append(after)
    return found


def items_of(node: Node) -> int:
    """How many items a tuple-typed node has."""
    assert isinstance(node.type, TupleType)
    return len(node.type.items)
