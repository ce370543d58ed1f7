"""Where a picture is collected: nodes, edges and clusters as they come, put in order at the end.

Nodes arrive in any order; `view` renumbers them so that every edge but the back edges goes forward, and otherwise keeps the order
of arrival. That order is what folding cuts into runs and what the fallback layout starts from.
"""

from __future__ import annotations

import heapq
from typing import Any

from deepx_graph.viz.view.model import LOOSE, Cluster, ClusterKind, EdgeKind, NodeKind, View, ViewEdge, ViewNode, used_clusters


class Canvas:
    """Collects the parts of a `View`; the methods give the ids of what they add."""

    def __init__(self) -> None:
        self._nodes: list[dict[str, Any]] = []
        self._edges: list[ViewEdge] = []
        self._clusters: list[Cluster] = []

    def node(self, kind: NodeKind, title: str, subtitle: str = "", *, cluster: int | None, **fields: Any) -> int:
        """Adds a node; `fields` are further ones of ViewNode."""
        fields.update(kind=kind, title=title, subtitle=subtitle, cluster=cluster)
        self._nodes.append(fields)
        return len(self._nodes) - 1

    def edge(self, source: int, target: int, kind: EdgeKind, label: str = "") -> None:
        """Adds an edge."""
        self._edges.append(ViewEdge(source, target, kind, label))

    def cluster(self, kind: ClusterKind, title: str, parent: int | None) -> int:
        """Adds a cluster inside `parent`."""
        self._clusters.append(Cluster(len(self._clusters), title, kind, parent))
        return len(self._clusters) - 1

    def view(self, title: str) -> View:
        """What was collected, in order."""
        order = forward_order(len(self._nodes), self._edges)
        place = {old: new for new, old in enumerate(order)}
        nodes = tuple(ViewNode(id=new, **self._nodes[old]) for new, old in enumerate(order))
        edges = tuple(ViewEdge(place[e.source], place[e.target], e.kind, e.label) for e in self._edges)
        return View(nodes, edges, used_clusters(tuple(self._clusters), nodes), title)


def forward_order(count: int, edges: list[ViewEdge]) -> list[int]:
    """The numbers below `count` so that all edges but loose ones go forward, the smallest possible number first.

    Numbers on a cycle, which a valid graph does not have, come last in their own order.
    """
    targets: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for e in edges:
        if e.kind not in LOOSE:
            targets[e.source].append(e.target)
            waiting[e.target] += 1
    ready = [k for k in range(count) if not waiting[k]]
    order: list[int] = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for t in targets[k]:
            waiting[t] -= 1
            if not waiting[t]:
                heapq.heappush(ready, t)
    if len(order) < count:
        done = set(order)
        order += (k for k in range(count) if k not in done)
    return order
