"""How a picture looks: forms of nodes and edges, colours in a light and a dark theme; how texts are quoted for DOT.

There is one hue for each family of ops. A family that is not in the table is drawn in grey, so a new one needs no change here.
Fills are pale on light and deep on dark ground, texts always near black or near white.
"""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from deepx_graph.errors import UsageError, printable, suggest
from deepx_graph.viz.view.model import Change, ClusterKind, EdgeKind, NodeKind, ViewNode

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


# --- colours --------------------------------------------------------------------------------------------------------


HUES: Mapping[str, int] = {
    "elementwise": 212, "bits": 190, "complex": 245, "layout": 60, "shape": 85, "reduce": 28, "linear": 350, "random": 165,
    "effects": 285, "fusion": 45,
    "window": 320, "index": 140, "sort": 110,
}  # fmt: skip
"""Degrees on the colour wheel."""

BLOCK: Literal["block"] = "block"
"""The family of a box of many families, drawn in the colours of the frame that it opens to."""


@dataclass(frozen=True)
class Theme:
    """Everything about a picture that is a colour."""

    name: str
    ground: str
    text: str
    faint: str
    fill: tuple[float, float]
    """Lightness and saturation of a family's fill."""
    stroke: tuple[float, float]
    edges: Mapping[EdgeKind, str]
    clusters: Mapping[ClusterKind, tuple[str, str]]
    """Ground and border."""

    changes: Mapping[Change, tuple[str, str]]
    """Fill and border of what is only in one of two programs, or not the same in both."""

    def colours(self, family: str) -> tuple[str, str]:
        """Fill and border of a box of that family."""
        if family == BLOCK:
            return self.clusters[BLOCK]
        hue = HUES.get(family)
        return _hex(hue, *self.fill), _hex(hue, *self.stroke)

    def box(self, node: ViewNode) -> tuple[str, str]:
        """Fill and border of the box of a node."""
        if node.change:
            return self.changes[node.change]
        return (self.ground, self.edges["control"]) if node.kind in CONTROL_KINDS else self.colours(node.family)


def _hex(hue: int | None, lightness: float, saturation: float) -> str:
    rgb = colorsys.hls_to_rgb((hue or 0) / 360, lightness, saturation if hue is not None else 0.03)
    return "#" + "".join(f"{round(c * 255):02x}" for c in rgb)


LIGHT = Theme(
    "light", "#ffffff", "#16191d", "#59616b", (0.92, 0.78), (0.42, 0.55),
    {"data": "#6b7480", "control": "#c2410c", "effect": "#8b2fc9", "back": "#c2410c", "residual": "#0f766e", "capture": "#9d174d"},
    {"function": ("#fafbfc", "#aab2bd"), "loop": ("#fff5ec", "#d9772b"), "once": ("#fbf9f7", "#c9a27e"),
     "branch": ("#f1f7ef", "#6a9b5b"),
     "fusion": ("#fdf6d8", "#b08900"), "block": ("#f3f1fa", "#7c6bb5"), "half": ("#f6f8fa", "#8a94a3")},
    {"added": ("#b4e5bf", "#1a7f37"), "removed": ("#ffc1c0", "#cf222e"), "changed": ("#f4dca0", "#9a6700")},
)  # fmt: skip

DARK = Theme(
    "dark", "#15181d", "#eceff3", "#a6afba", (0.22, 0.42), (0.64, 0.55),
    {"data": "#8d97a5", "control": "#fb923c", "effect": "#cf9bff", "back": "#fb923c", "residual": "#2dd4bf", "capture": "#f472b6"},
    {"function": ("#1a1e24", "#4a5361"), "loop": ("#2a2018", "#c9762f"), "once": ("#1e1b18", "#8c6a4c"),
     "branch": ("#1a261b", "#5f9150"),
     "fusion": ("#2a2612", "#b8962a"), "block": ("#211f2d", "#8f80c9"), "half": ("#171b21", "#5c6675")},
    {"added": ("#1c4a29", "#3fb950"), "removed": ("#5c1f22", "#f85149"), "changed": ("#4f3d10", "#d29922")},
)  # fmt: skip

THEMES: Mapping[str, Theme] = {t.name: t for t in (LIGHT, DARK)}


def theme_named(name: str) -> Theme:
    """The theme of that name. Raises UsageError when there is none."""
    if name not in THEMES:
        raise UsageError(f"no theme '{name}': {suggest(name, THEMES) or 'there are ' + ', '.join(THEMES)}")
    return THEMES[name]
