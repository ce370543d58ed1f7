"""How kinds of nodes and edges look in DOT, colours apart, and the one function that quotes texts for it."""

from __future__ import annotations

from collections.abc import Mapping

from deepx_graph.errors import printable
from deepx_graph.viz.view.model import EdgeKind, NodeKind

FONT = "Helvetica,Arial,sans-serif"

SHAPES: Mapping[NodeKind, Mapping[str, str]] = {
    "param": {"shape": "invhouse", "margin": "0.06,0.02"},
    "result": {"shape": "house", "margin": "0.06,0.02", "penwidth": "1.6"},
    "constant": {"shape": "note", "fontsize": "10"},
    "start": {"shape": "circle", "style": "filled,bold", "margin": "0.02"},
    "if": {"shape": "diamond", "margin": "0.02", "penwidth": "1.6"},
    "side": {"shape": "ellipse", "fontsize": "10", "margin": "0.03,0.02"},
    "region": {"shape": "invtrapezium", "penwidth": "1.6"},
    "phi": {"shape": "ellipse", "peripheries": "2", "margin": "0.03,0.02"},
    "loop_begin": {"shape": "trapezium", "penwidth": "1.6"},
    "loop_end": {"shape": "invtrapezium", "penwidth": "1.6"},
    "proj": {"shape": "ellipse", "fontsize": "10", "margin": "0.03,0.02"},
    "call": {"shape": "component"},
    "fusion": {"shape": "box3d", "style": "filled"},
    "group": {"shape": "folder", "style": "filled"},
    "outside": {"style": "dashed,rounded", "fontsize": "10"},
    "op": {},
}
"""How the kinds of nodes differ in form; colour tells the family."""

CONTROL_KINDS = frozenset({"start", "if", "side", "region", "loop_begin", "loop_end", "phi"})

EDGES: Mapping[EdgeKind, Mapping[str, str]] = {
    "data": {"style": "solid"},
    "control": {"style": "bold", "penwidth": "1.8", "arrowhead": "vee"},
    "effect": {"style": "dotted", "penwidth": "2"},
    "residual": {"style": "dashed", "penwidth": "1.4"},
    "capture": {"style": "dotted", "penwidth": "1.6", "arrowhead": "empty", "constraint": "false"},
    "back": {"style": "dashed", "penwidth": "1.8", "dir": "back", "arrowtail": "vee"},
}


def quoted(text: str, end: str = "") -> str:
    """`text` for any attribute, to be shown as it is; a line feed starts a new line. The one way texts get into DOT.

    Lines are centred, or with `end="\\l"` set to the left.
    """
    from graphviz import nohtml

    lines = (printable(line).replace("\\", "\\\\").replace("&", "&amp;") for line in text.split("\n"))
    return nohtml((end or "\\n").join(lines) + end)
