"""The legend of a picture: what its colours and edges mean, only those that occur, in two rows above everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from deepx_graph.viz.picture.style import CONTROL_KINDS, EDGES, Theme, quoted
from deepx_graph.viz.view.model import EdgeKind, View, levels

if TYPE_CHECKING:
    from graphviz import Digraph

LEGEND: Mapping[EdgeKind, str] = {
    "data": "data, with its type", "control": "control", "effect": "order of effects", "back": "next iteration of a loop",
    "residual": "residual of the forward part", "capture": "what a closure binds",
}  # fmt: skip
"""What the kinds of edges are called."""


def add_legend(graph: Digraph, view: View, theme: Theme) -> None:
    """Adds the legend to the picture of `view`."""
    from graphviz import Digraph

    ground, border = theme.clusters["function"]
    frame: Digraph = Digraph("cluster_legend", graph_attr={
        "label": "legend", "tooltip": "legend", "style": "rounded,filled", "fillcolor": ground, "color": border, "fontsize": "10",
        "fontcolor": theme.faint, "margin": "6",
    })  # fmt: skip
    families = sorted({n.family for n in view.nodes if n.kind not in CONTROL_KINDS} - {"structure", ""})
    rows = [_colour_row(families, theme), _edge_row([k for k in LEGEND if any(e.kind == k for e in view.edges)], theme)]
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


def _colour_row(families: Sequence[str], theme: Theme) -> tuple[list[str], Digraph]:
    row = _row("legend_colours")
    names = [f"legend_{k}" for k in range(len(families))]
    for name, family in zip(names, families, strict=True):
        fill, stroke = theme.colours(family)
        row.node(name, label=quoted(family), tooltip="family of operations", fillcolor=fill, color=stroke)
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
