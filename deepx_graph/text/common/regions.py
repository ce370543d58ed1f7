"""Which region of a nested text each node stands in: for languages whose branches and loops see the values around them.

A node's place is the innermost region that holds all its uses (`analysis/scopes.py`); from there it leaves every loop whose
variables it does not depend on, unless it may not end (a call, a loop) or is a constant. The test and the body of a loop share
nothing: what both need and depends on the loop's variables stands in a scope around the two, and is written in both.
"""

from __future__ import annotations

from deepx_graph.analysis.liveness import everything
from deepx_graph.analysis.scopes import Scope, ScopeTree
from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, LOOP_END, PARAM
from deepx_graph.ops import custom_call, opaque
from deepx_graph.types import is_state

_UNSURE = frozenset((CALL, CALL_VALUE, LOOP_END, opaque, custom_call))


class TextRegions(ScopeTree):
    """The regions of a function, each with its nodes in reverse order."""

    def __init__(self, function: Function) -> None:
        super().__init__(function, everything(function))
        if not self.live.columns:  # no branch and no loop
            self.root.nodes = [n for n in reversed(function.nodes) if n.op is not PARAM]
            return
        self._stays = _staying(function)
        self.place_all()

    def open_loop(self, end: Node, around: Scope) -> None:
        shared = self.open("shared", around, end, end)
        self.headers[end] = self.open("header", shared, end, end)
        self.bodies[end] = self.open("body", shared, end, end)

    def hoisted(self, node: Node, latest: Scope) -> Scope:
        innermost, stays = self.loops.innermost[node], node in self._stays
        while latest.kind not in ("root", "branch") and latest.loop is not innermost and (latest.kind == "shared" or not stays):
            latest = latest.parent
        return latest

    def iteration(self, part: Scope) -> list[Node]:
        """What the test or the body of a loop holds, with what the two share, in order."""
        return sorted(part.parent.nodes + part.nodes, key=lambda n: n.serial)


def _staying(function: Function) -> set[Node]:
    """The nodes that do not leave a loop for being no part of it."""
    stays: set[Node] = set()
    for node in function.nodes:
        is_pinned = node.op in _UNSURE or node.op is CONSTANT or is_state(node.type)
        if is_pinned or any(i in stays and i.op is not CONSTANT for i in node.inputs):
            stays.add(node)
    return stays
