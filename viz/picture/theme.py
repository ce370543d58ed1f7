"""Colours: one hue per family of ops, the kinds of edges, in a light and a dark theme.

A family that is not in the table is drawn in grey, so a new one needs no change here. Fills are pale on light and deep on dark
ground, texts always near black or near white.
"""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from dataclasses import dataclass

from deepx_graph.errors import UsageError, suggest
from deepx_graph.viz.view.model import Change, ClusterKind, EdgeKind

HUES: Mapping[str, int] = {
    "elementwise": 212, "bits": 190, "complex": 245, "layout": 60, "shape": 85, "reduce": 28, "linear": 350, "random": 165,
    "effects": 285, "fusion": 45,
}  # fmt: skip
"""Degrees on the colour wheel."""


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
        hue = HUES.get(family)
        return _hex(hue, *self.fill), _hex(hue, *self.stroke)


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
