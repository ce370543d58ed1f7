"""Which loops a node depends on: those of the loop variables it reaches, a loop_end taking its own out.

In a valid graph these loops nest, so the innermost one, the one that closes first, stands for all. Near-linear in the graph.
"""

from __future__ import annotations

from deepx_graph.analysis.liveness import Live
from deepx_graph.ir.node import Node
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI


class Loops:
    """The loops that nodes depend on: `innermost[node]` and `around[loop]`, each a loop_end or None."""

    def __init__(self, live: Live) -> None:
        self.innermost: dict[Node, Node | None] = {}
        self.around: dict[Node, Node | None] = {}
        self._above: dict[Node, set[Node]] = {}
        for node in live.order:
            inner: Node | None = None
            for i in live.inputs(node):
                inner = self._join(inner, self.innermost[i])
            if node.op is PHI and node.inputs[0].op is LOOP_BEGIN:
                inner = self._join(inner, live.ends[node.inputs[0]])
            if node.op is LOOP_END:
                self._join(self._join(inner, self.innermost[node.inputs[0]]), node)
                inner = self._close(node)
            self.innermost[node] = inner

    def _join(self, a: Node | None, b: Node | None) -> Node | None:
        """The innermost of two loops that some node depends on both; the one that closes first lies in the other."""
        if a is b or b is None:
            return a
        if a is None:
            return b
        inner, outer = (a, b) if a.serial < b.serial else (b, a)
        self._above.setdefault(inner, set()).add(outer)
        return inner

    def _close(self, end: Node) -> Node | None:
        """The loop around `end`, once all loops that its nodes depend on are known; they then lie around that one."""
        above = self._above.pop(end, set())
        parent = min(above, key=lambda n: n.serial, default=None)
        self.around[end] = parent
        if parent is not None and len(above) > 1:
            above.discard(parent)
            further = self._above.get(parent, set())
            small, large = (above, further) if len(above) < len(further) else (further, above)
            large |= small  # the smaller set moves: n log n in all
            self._above[parent] = large
        return parent
