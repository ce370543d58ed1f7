"""Draws the packages and what they import, for docs/architecture.md: `make docs`.

    python docs/package_map.py docs/images/packages.svg

Rows are the floors of the import contract in pyproject.toml. Arrows are imports as they are, one that follows from others left out.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import graphviz
import grimp
import networkx

from deepx_graph.viz.picture.graphviz import render

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "deepx_graph"
TOP = ("passes", "viz", "tui")
"""What lies at the top of the checkout."""


def floors() -> list[list[str]]:
    """The names on each floor, the highest first."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["type"] == "layers")
    return [[name.strip() for name in row.split("|")] for row in layers]


def imports() -> networkx.DiGraph[str]:
    """Which part of the package imports which, one arrow that follows from others left out."""
    modules = grimp.build_graph(PACKAGE, exclude_type_checking_imports=True, cache_dir=None)
    graph: networkx.DiGraph[str] = networkx.DiGraph()
    parts = {m: m.split(".")[1] for m in modules.modules if "." in m and not m.endswith("__")}
    graph.add_nodes_from(sorted(set(parts.values())))
    graph.add_edges_from((parts[m], parts[other]) for m in parts for other in modules.find_modules_directly_imported_by(m)
                         if other in parts and parts[other] != parts[m])  # fmt: skip
    return networkx.transitive_reduction(graph)


def drawn() -> bytes:
    """The picture as SVG."""
    graph = imports()
    dot = graphviz.Digraph(graph_attr={"ranksep": "0.35", "nodesep": "0.3", "bgcolor": "transparent"},
                           node_attr={"shape": "box", "style": "rounded,filled", "fillcolor": "#eef3fb", "color": "#5b7fb5",
                                      "fontname": "Helvetica", "fontsize": "12", "height": "0.32"},
                           edge_attr={"color": "#7a8699", "arrowsize": "0.6"})  # fmt: skip
    for names in floors():
        with dot.subgraph() as row:
            row.attr(rank="same")
            for name in names:
                row.node(name, f"{name}/" if name in TOP or (ROOT / PACKAGE / name).is_dir() else f"{name}.py")
    dot.edges(sorted(graph.edges))
    return render(dot.source, "svg")[0]


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(drawn())
