"""A view as DOT text, written with the `graphviz` package.

Nothing from a file is ever an identifier, a markup label, a link or a file name: ids are `n0`, `n1`, ..., clusters `cluster_0`,
and every text goes through `quoted`, after which it shows exactly the characters it has, invisible ones as escape sequences.
Equal views give equal text.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from deepx_graph.viz.picture.overlay import Painted
from deepx_graph.viz.picture.style import CONTROL_KINDS, EDGES, FONT, SHAPES, Theme, quoted, theme_named
from deepx_graph.viz.view.model import Cluster, EdgeKind, View, ViewEdge, ViewNode, levels

if TYPE_CHECKING:
    from graphviz import Digraph


NOTE_WIDTH = 90

TIGHT: Mapping[str, str] = {"weight": "4"}
"""On edges inside a frame: they stay short, so that the frame stays compact, and those that come from outside get longer."""

ROW = 10
"""The most boxes of one frame that stand side by side."""


def to_dot(view: View, theme: str = "light", *, legend: bool = True, painted: Painted | None = None) -> str:
    """The DOT text of a view, its boxes in the colours of what is laid over it. Raises UsageError for an unknown theme."""
    from graphviz import Digraph

    colours = theme_named(theme)
    graph = Digraph("deepx_graph", graph_attr=_graph_attributes(view, colours), node_attr=_node_attributes(colours),
                    edge_attr=_edge_attributes(colours))  # fmt: skip
    frames = {c.id: _frame(c, colours) for c in view.clusters}
    for node in view.nodes:
        _node(graph if node.cluster is None else frames[node.cluster], node, colours, painted)
    for cluster in reversed(view.clusters):
        outer = graph if cluster.parent is None else frames[cluster.parent]
        outer.subgraph(frames[cluster.id])
    frame_of = _tight_frames(view)
    for edge in view.edges:
        inside = frame_of.get(edge.source, -1) == frame_of.get(edge.target, -2)
        _edge(graph, edge, colours, TIGHT if inside else {})
    for above, below in (*_branch_order(view), *_wrapped(view)):
        graph.edge(f"n{above}", f"n{below}", style="invis", weight="0")
    if legend and view.nodes:
        add_legend(graph, view, colours, painted)
    return str(graph.source)


def _tight_frames(view: View) -> dict[int, int]:
    """The frame of each node that stands in one, but for those of functions."""
    tight = {c.id for c in view.clusters if c.kind != "function"}
    return {n.id: n.cluster for n in view.nodes if n.cluster is not None and n.cluster in tight}


def _branch_order(view: View) -> list[tuple[int, int]]:
    """Pairs that keep what a branch computes between its side of the If and the Region; they order, they are not drawn."""
    at = {n.id: n.cluster for n in view.nodes}
    regions = {n.id for n in view.nodes if n.kind == "region"}
    sides = {n.cluster: n.id for n in view.nodes if n.kind == "side" and n.cluster is not None}
    ends = {at[e.source]: e.target for e in view.edges if e.target in regions and e.source in sides.values()}
    inside = [e for e in view.edges if at[e.source] == at[e.target]]
    fed, feeding = {e.target for e in inside}, {e.source for e in inside}
    pairs: list[tuple[int, int]] = []
    for n in view.nodes:
        if n.cluster is not None and n.cluster in sides and n.kind != "side":
            pairs += [(sides[n.cluster], n.id)] if n.id not in fed else []
            pairs += [(n.id, ends[n.cluster])] if n.id not in feeding and n.cluster in ends else []
    return pairs


def _wrapped(view: View) -> list[tuple[int, int]]:
    """Pairs that break a layer of very many boxes into rows; each goes forward in the order of the nodes."""
    rows: dict[tuple[int | None, int], list[int]] = {}
    at = {n.id: n.cluster for n in view.nodes}
    for id, level in levels(view).items():
        rows.setdefault((at[id], level), []).append(id)
    return [pair for row in rows.values() if len(row) > ROW for pair in zip(row, row[ROW:], strict=False)]


def heading(view: View) -> list[str]:
    """The lines above a picture: its title, and what it does not show."""
    lines = [view.title] if view.title else []
    return lines + [line for note in view.notes for line in textwrap.wrap(f"note: {note}", NOTE_WIDTH)]


def _graph_attributes(view: View, theme: Theme) -> dict[str, str]:
    above = heading(view)
    return {
        "rankdir": "LR" if view.sideways else "TB",
        "bgcolor": theme.ground, "fontname": FONT, "fontsize": "15", "fontcolor": theme.text,
        "labelloc": "t", "labeljust": "l", "label": quoted("\n".join(above), "\\l") if above else "",
        "nodesep": "0.28", "ranksep": "0.38",
        "pad": "0.25", "newrank": "true", "tooltip": quoted(view.title or "graph"),
    }  # fmt: skip


def _node_attributes(theme: Theme) -> dict[str, str]:
    return {"shape": "box", "style": "filled,rounded", "fontname": FONT, "fontsize": "12", "fontcolor": theme.text,
            "margin": "0.16,0.05", "height": "0.3", "width": "0.4", "penwidth": "1.1"}  # fmt: skip


def _edge_attributes(theme: Theme) -> dict[str, str]:
    return {"fontname": FONT, "fontsize": "9", "fontcolor": theme.faint, "arrowsize": "0.7"}


def _node(graph: Digraph, node: ViewNode, theme: Theme, painted: Painted | None) -> None:
    fill, border = theme.box(node)
    fill = fill if painted is None else painted.fills.get(node.id, fill)
    label = "\n".join(filter(None, (node.title, node.subtitle)))
    look = {"fillcolor": fill, "color": border} | dict(SHAPES[node.kind])
    graph.node(f"n{node.id}", label=quoted(label), tooltip=quoted(node.tooltip or node.title), **look)


def _edge(graph: Digraph, edge: ViewEdge, theme: Theme, extra: Mapping[str, str]) -> None:
    ends = (edge.source, edge.target) if edge.kind != "back" else (edge.target, edge.source)  # keeps the head above the end
    look = {"color": theme.edges[edge.kind]} | dict(EDGES[edge.kind]) | dict(extra)
    if edge.kind in ("control", "effect"):
        look["fontcolor"] = theme.edges[edge.kind]
    label = {"label": quoted(f" {edge.label} ")} if edge.label else {}
    graph.edge(f"n{ends[0]}", f"n{ends[1]}", **label, **look)


def _frame(cluster: Cluster, theme: Theme) -> Digraph:
    from graphviz import Digraph

    ground, border = theme.clusters[cluster.kind]
    frame: Digraph = Digraph(f"cluster_{cluster.id}", graph_attr={
        "label": quoted(cluster.title), "tooltip": quoted(cluster.title),
        "style": "filled,rounded,dashed" if cluster.kind == "once" else "filled,rounded", "fillcolor": ground,
        "color": border, "penwidth": "1.4" if cluster.kind in ("loop", "fusion") else "1", "fontcolor": theme.text,
        "fontsize": "12", "labeljust": "l", "margin": "10",
    })  # fmt: skip
    return frame


LEGEND: Mapping[EdgeKind, str] = {
    "data": "data, with its type", "control": "control", "effect": "order of effects", "back": "next iteration of a loop",
    "residual": "residual of the forward part", "capture": "what a closure binds",
}  # fmt: skip
"""What the kinds of edges are called."""


def add_legend(graph: Digraph, view: View, theme: Theme, painted: Painted | None = None) -> None:
    """Adds the legend to the picture of `view`."""
    from graphviz import Digraph

    ground, border = theme.clusters["function"]
    frame: Digraph = Digraph("cluster_legend", graph_attr={
        "label": "legend", "tooltip": "legend", "style": "rounded,filled", "fillcolor": ground, "color": border, "fontsize": "10",
        "fontcolor": theme.faint, "margin": "6",
    })  # fmt: skip
    families = sorted({n.family for n in view.nodes if n.kind not in CONTROL_KINDS} - {"structure", ""})
    samples = [(f, *theme.colours(f)) for f in families] if painted is None else \
        [(text, fill or ground, border if fill else ground) for text, fill in painted.legend]
    rows = [_colour_row(samples), _edge_row([k for k in LEGEND if any(e.kind == k for e in view.edges)], theme)]
    firsts = []
    for names, row in rows:
        frame.subgraph(row)
        firsts += names[:1]
    for above, below in pairwise(firsts):
        frame.edge(above, below, style="invis")
    graph.subgraph(frame)
    for id, level in levels(view).items():
        if level == 0 and firsts:
            graph.edge(firsts[-1], f"n{id}", style="invis", weight="0")


def _row(name: str) -> Digraph:
    from graphviz import Digraph

    small = {"fontsize": "9", "height": "0.2", "width": "0.3", "margin": "0.08,0.03"}
    row: Digraph = Digraph(name, graph_attr={"rank": "same"}, node_attr=small)
    return row


def _colour_row(samples: Sequence[tuple[str, str, str]]) -> tuple[list[str], Digraph]:
    row = _row("legend_colours")
    names = [f"legend_{k}" for k in range(len(samples))]
    for name, (text, fill, stroke) in zip(names, samples, strict=True):
        row.node(name, label=quoted(text), tooltip="what a colour means", fillcolor=fill, color=stroke)
    for left, right in pairwise(names):
        row.edge(left, right, style="invis")
    return names, row


def _edge_row(kinds: Sequence[EdgeKind], theme: Theme) -> tuple[list[str], Digraph]:
    row = _row("legend_edges")
    names: list[str] = []
    for kind in kinds:
        start, end = f"legend_from_{kind}", f"legend_{kind}"
        if names:
            row.edge(names[-1], start, style="invis")
        row.node(start, label="", tooltip="edge", shape="point", width="0.04", height="0.04", color=theme.edges[kind])
        row.node(end, label=quoted(LEGEND[kind]), tooltip="edge", shape="plaintext", style="", fontcolor=theme.faint)
        row.edge(start, end, color=theme.edges[kind], **EDGES[kind])
        names += (start, end)
    return names, row
