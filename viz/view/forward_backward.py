"""A gradient program in two halves: the forward part beside the backward part, and the edges that carry residuals marked.

Which boxes are of the backward part is told by the origin of their nodes. A loop goes, with all that it holds, where its own begin
goes, whatever it computes again of the forward part; another frame as most of what it holds. Inputs and results stand outside both.
A picture without a backward part stays as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from deepx_graph.viz.view.model import Cluster, View, ViewEdge, ViewNode

_OUTSIDE = ("param", "constant", "result", "start")


def in_halves(view: View) -> View:
    """The view with a frame for each half of every function that has both."""
    if not any(n.backward for n in view.nodes):
        return view
    tops = {c.id: c for c in view.clusters if c.parent is None}
    top_of = _children_of_tops(view, tops)
    votes: dict[int, Counter[bool]] = {}
    for n in view.nodes:
        if n.cluster in top_of:
            votes.setdefault(top_of[n.cluster], Counter())[n.backward] += 1
    free = max(tops | {c.id: c for c in view.clusters}) + 1
    half = {(top, back): free + 2 * k + back for k, top in enumerate(tops) for back in (False, True)}
    moved = {c: max((True, False), key=lambda b: v[b]) for c, v in votes.items()}
    moved |= {n.cluster: n.backward for n in view.nodes if n.kind == "loop_begin" and n.cluster in moved}
    clusters = [c if c.parent not in tops or c.parent is None else replace(c, parent=half[c.parent, moved.get(c.id, False)])
                for c in view.clusters if c.parent is not None]  # fmt: skip
    frames = [Cluster(id, "backward" if back else "forward", "half", top) for (top, back), id in half.items()]
    nodes = tuple(_placed(n, half, moved.get(top_of.get(n.cluster or 0, -1))) for n in view.nodes)
    used = {n.cluster for n in nodes} | {c.parent for c in clusters}
    kept = (*tops.values(), *(f for f in frames if f.id in used), *clusters)
    return replace(view, nodes=nodes, edges=tuple(_marked(e, nodes) for e in view.edges), clusters=kept)


def _children_of_tops(view: View, tops: dict[int, Cluster]) -> dict[int, int]:
    """For each cluster the one around it, or itself, that stands right inside a function's frame."""
    found: dict[int, int] = {}
    for c in view.clusters:
        if c.parent is not None:
            found[c.id] = c.id if c.parent in tops else found[c.parent]
    return found


def _placed(node: ViewNode, half: dict[tuple[int, bool], int], backward: bool | None) -> ViewNode:
    """The node in the half of its frame; or, outside all frames, in its own."""
    if backward is not None:
        return replace(node, backward=backward)
    if node.kind in _OUTSIDE or node.cluster is None or (node.cluster, node.backward) not in half:
        return node
    return replace(node, cluster=half[node.cluster, node.backward])


def _marked(edge: ViewEdge, nodes: Sequence[ViewNode]) -> ViewEdge:
    """The edge, as a residual when a value of the forward part goes into the backward part."""
    source, target = nodes[edge.source], nodes[edge.target]
    crosses = target.backward and not source.backward and source.kind not in _OUTSIDE
    return replace(edge, kind="residual") if crosses and edge.kind == "data" else edge
