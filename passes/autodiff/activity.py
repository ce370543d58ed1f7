"""The scopes of a function, and through which of its values a derivative flows: what reverse mode asks before it starts.

A node's home is the innermost scope that holds all its uses, moved out of loops it does not depend on (`analysis/scopes.py`).
Flow is found per column: a loop variable or branch value that no derivative passes takes no part. Nothing here builds nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from deepx_graph.analysis.liveness import everything
from deepx_graph.analysis.scopes import Scope, ScopeTree
from deepx_graph.errors import InferError, VerifyError
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import (
    CALL,
    CALL_VALUE,
    LOOP_BEGIN,
    LOOP_END,
    PHI,
    PROJ,
    REGION,
    TUPLE,
    index_of,
    is_loop_variable,
    phi_choices,
)
from deepx_graph.ops.vjp.accumulate import carries
from deepx_graph.types import TupleType

Key = Node | tuple[Node, int]
"""A node, or variable k of a loop as `(loop_begin, k)`."""


class ReverseScopes(ScopeTree):
    """The homes of a function's nodes, as reverse mode sees them: test and body of a loop are one scope.

    A node counts as used at the latest place of its users, not where those move to, and moves step by step out of loops none of
    whose values it takes. Branches, loops and calls stay, and so does what they keep from leaving.
    """

    def __init__(self, function: Function) -> None:
        super().__init__(function, everything(function))
        self.place_all()
        for scope in self.scopes:
            scope.nodes.clear()
        for node in function.nodes:
            scope = self.home[node] = self._home(node)
            scope.nodes.append(node)

    def open_loop(self, end: Node, around: Scope) -> None:
        self.headers[end] = self.bodies[end] = self.open("body", around, end, end)

    def _home(self, node: Node) -> Scope:
        """The latest place of the node, moved out of the loops that a plain operation does not depend on."""
        if node.op is LOOP_BEGIN:
            return self.home[self.live.ends[node]]
        if is_loop_variable(node):
            return self.bodies[self.live.ends[node.inputs[0]]]
        home = self.home.get(node, self.root)
        fixed = node.op in (REGION, LOOP_END, CALL, CALL_VALUE)
        while home.kind == "body" and not fixed and not any(self.home[i].within(home) for i in node.inputs):
            home = home.parent
        return home


class Activity:
    """The nodes and loop variables on a path from `wrt` to `roots` along which a derivative may pass."""

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
        if key in self.wrt or not carries(key.type) or key.op.stops_gradient or key in self.stopped:
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
