"""Named amounts as horizontal bars, in SVG that is written here and readable on light and dark ground."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from deepx_graph.viz.picture.style import FONT
from deepx_graph.viz.picture.svg import NAMESPACE, shown
from deepx_graph.viz.view.labels import short

WIDTH, NAME, LINE, LONGEST = 900, 330, 22, 48
GREY, FILL = "#808890", "#3b82c4"


@dataclass(frozen=True)
class Bar:
    """A name, an amount of any unit, and what is written beside the bar."""

    name: str
    amount: float
    text: str


def bars(rows: Sequence[Bar]) -> bytes:
    """The bars, the largest as long as there is room."""
    top = max((r.amount for r in rows), default=0.0) or 1.0
    height = LINE * len(rows) + 10
    parts = [f'<svg xmlns="{NAMESPACE}" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
             f'font-family={quoteattr(FONT)} font-size="12" role="img">']  # fmt: skip
    for k, row in enumerate(rows):
        y, long = 5 + LINE * k, max(1.0, (WIDTH - NAME - 220) * row.amount / top)
        parts.append(
            f'<g><title>{escape(shown(row.name))}</title>'
            f'<text x="{NAME - 8}" y="{y + 15}" text-anchor="end" fill="{GREY}">{escape(shown(short(row.name, LONGEST)))}</text>'
            f'<rect x="{NAME}" y="{y + 3}" width="{long:.1f}" height="{LINE - 6}" rx="2" fill="{FILL}"/>'
            f'<text x="{NAME + long + 6:.1f}" y="{y + 15}" fill="{GREY}">{escape(shown(row.text))}</text></g>'
        )
    return ("\n".join([*parts, "</svg>"]) + "\n").encode("utf-8")
