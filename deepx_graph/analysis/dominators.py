"""Dominators in a graph of values: what all ways to a value from where it begins lead through (T. Lengauer, R. E. Tarjan, A fast
algorithm for finding dominators in a flowgraph, 1979).

The graph has no cycles, so one pass in its order finds them: the immediate dominator of a node is the nearest one that the
dominators of its inputs have in common (K. D. Cooper, T. J. Harvey, K. Kennedy, A simple, fast dominance algorithm, 2001).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from deepx_graph.ir import Node


class Dominators:
    """Those of nodes, given in order, that are `entries` or are made of such; all others are no part of the graph. Takes time
    linear in the edges times the depth of the tree."""

    def __init__(self, nodes: Iterable[Node], is_entry: Callable[[Node], bool]) -> None:
        self._above: dict[Node, Node | None] = {}
        """The immediate dominators; None where several entries have nothing in common."""
        self.depth: dict[Node, int] = {}
        """How many dominators each node has, itself among them."""
        for node in nodes:
            inputs = [i for i in node.inputs if i in self._above]
            if is_entry(node):
                self._enter(node, None)
            elif inputs:
                self._enter(node, self._common(inputs))

    def of(self, node: Node) -> Iterator[Node]:
        """The dominators of a node, itself first; none of what is no part of the graph."""
        at = node if node in self._above else None
        while at is not None:
            yield at
            at = self._above[at]

    def _enter(self, node: Node, above: Node | None) -> None:
        self._above[node], self.depth[node] = above, self._depth_of(above) + 1

    def _depth_of(self, node: Node | None) -> int:
        return 0 if node is None else self.depth[node]

    def _common(self, nodes: Iterable[Node]) -> Node | None:
        """The nearest dominator of all of these; None where they have none."""
        nearest, *others = nodes
        found: Node | None = nearest
        for other in others:
            way: Node | None = other
            while way is not found:
                if self._depth_of(way) >= self._depth_of(found):
                    way = None if way is None else self._above[way]
                else:
                    found = None if found is None else self._above[found]
        return found
