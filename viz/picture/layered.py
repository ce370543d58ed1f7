"""The layout of last resort: nodes in layers, top to bottom, as SVG written here with no help from outside.

A node lies one layer below the lowest of those it takes from; two sweeps order the layers to cross fewer edges. It takes
near-linear time and cannot fail. Frames are not drawn: their titles stand in the tooltips.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from deepx_graph.viz.picture.dot import heading
from deepx_graph.viz.picture.style import FONT, Theme, theme_named
from deepx_graph.viz.picture.svg import NAMESPACE, shown
from deepx_graph.viz.view.model import LOOSE, EdgeKind, View, ViewEdge, ViewNode, levels

CHAR, LINE, GAP_X, GAP_Y, MARGIN = 7.0, 15.0, 22.0, 46.0, 24.0
DASHES: dict[EdgeKind, str] = {"data": "", "control": "", "effect": "2,3", "back": "7,4", "residual": "5,2", "capture": "1,4"}


@dataclass(slots=True)
class PlacedBox:
    """A node with its lines of text and its place; `x` is the middle, `y` the top."""

    node: ViewNode
    lines: list[str]
    x: float = 0.0
    y: float = 0.0

    @property
    def width(self) -> float:
        return CHAR * max(map(len, self.lines)) + 16

    @property
    def height(self) -> float:
        return LINE * len(self.lines) + 8


def to_svg(view: View, theme: str = "light") -> bytes:
    """The view as SVG. Raises UsageError for an unknown theme."""
    colours = theme_named(theme)
    head = [shown(line) for line in heading(view)]
    boxes, width, height = placed(view, MARGIN + 20 * len(head))
    width = max([width, *(CHAR * 1.2 * len(line) + 2 * MARGIN for line in head)])
    parts = [
        f'<svg xmlns="{NAMESPACE}" width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f'<rect x="0" y="0" width="{width:.0f}" height="{height:.0f}" fill="{colours.ground}"/>',
    ]
    parts += (_text(MARGIN, MARGIN + 20 * k, line, colours.text, 14, "start") for k, line in enumerate(head))
    parts += (_edge(e, *ends, colours, width) for e, ends in zip(view.edges, ports(view.edges, boxes), strict=True))
    titles = {c.id: c.title for c in view.clusters}
    parts += (_box(b, colours, titles.get(b.node.cluster, "") if b.node.cluster is not None else "") for b in boxes.values())
    return ("\n".join([*parts, "</svg>"]) + "\n").encode("utf-8")


def placed(view: View, top: float = MARGIN) -> tuple[dict[int, PlacedBox], float, float]:
    """The boxes by id with their places, and the width and height of the whole."""
    boxes = {n.id: PlacedBox(n, [line for text in (n.title, n.subtitle) if text for line in shown(text).split("\n")] or [" "])
             for n in view.nodes}  # fmt: skip
    forward = [e for e in view.edges if e.kind not in LOOSE and e.source != e.target]
    layers: list[list[int]] = []
    for id, level in levels(view).items():
        layers += [[] for _ in range(level + 1 - len(layers))]
        layers[level].append(id)
    width, height = _place([[boxes[k] for k in layer] for layer in _ordered(layers, forward)], top)
    return boxes, width, height


def _ordered(layers: list[list[int]], forward: Sequence[ViewEdge]) -> list[list[int]]:
    """The layers with each node near the mean place of its neighbours above, then below, then above again."""
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for e in forward:
        above.setdefault(e.target, []).append(e.source)
        below.setdefault(e.source, []).append(e.target)
    place = {k: i / len(layer) for layer in layers for i, k in enumerate(layer)}
    for beside, sweep in ((above, layers), (below, layers[::-1]), (above, layers)):
        for layer in sweep:
            mean = {k: sum(place[j] for j in beside[k]) / len(beside[k]) if beside.get(k) else place[k] for k in layer}
            layer.sort(key=lambda k: (mean[k], k))
            place.update((k, (i + 0.5) / len(layer)) for i, k in enumerate(layer))
    return layers


def _place(layers: list[list[PlacedBox]], top: float) -> tuple[float, float]:
    """Gives every box its place; the width and height of the whole."""
    widths = [sum(b.width for b in layer) + GAP_X * (len(layer) - 1) for layer in layers]
    whole = max(widths, default=0.0)
    y = top
    for layer, width in zip(layers, widths, strict=True):
        x = MARGIN + (whole - width) / 2
        for b in layer:
            b.x, b.y = x + b.width / 2, y
            x += b.width + GAP_X
        y += max(b.height for b in layer) + GAP_Y
    return whole + 2 * MARGIN + 40, y + MARGIN - GAP_Y


def _text(x: float, y: float, text: str, fill: str, size: int, anchor: str, weight: str = "normal") -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-family={quoteattr(FONT)} font-size="{size}" '
            f'font-weight="{weight}" text-anchor="{anchor}">{escape(text)}</text>')  # fmt: skip


def _box(b: PlacedBox, theme: Theme, frame: str) -> str:
    fill, stroke = theme.box(b.node)
    lines = (
        _text(b.x, b.y + 16 + LINE * k, line, theme.text, 11 if k else 12, "middle", "normal" if k else "bold")
        for k, line in enumerate(b.lines)
    )
    about = shown("\n".join(filter(None, (b.node.tooltip or b.node.title, f"in {frame}" if frame else ""))))
    corner = 12 if b.node.kind in ("param", "result", "phi", "proj", "side") else 4
    return (
        f'<g class="node"><title>{escape(about)}</title><rect x="{b.x - b.width / 2:.1f}" y="{b.y:.1f}" width="{b.width:.1f}" '
        f'height="{b.height:.1f}" rx="{corner}" fill="{fill}" stroke="{stroke}"/>{"".join(lines)}</g>'
    )


def ports(edges: Sequence[ViewEdge], boxes: dict[int, PlacedBox]) -> list[tuple[float, float, float, float]]:
    """Where each edge leaves and arrives: spread along the sides of its boxes in the order of the other ends."""
    places = [[0.0, 0.0] for _ in edges]
    for end in (0, 1):
        meeting: dict[int, list[int]] = {}
        for k, e in enumerate(edges):
            meeting.setdefault((e.source, e.target)[end], []).append(k)
        for id, numbers in meeting.items():
            numbers.sort(key=lambda k: (boxes[(edges[k].target, edges[k].source)[end]].x, k))
            usable = boxes[id].width - 16
            for i, k in enumerate(numbers):
                places[k][end] = boxes[id].x + usable * ((i + 0.5) / len(numbers) - 0.5)
    return [
        (out, boxes[e.source].y + boxes[e.source].height, into, boxes[e.target].y)
        for e, (out, into) in zip(edges, places, strict=True)
    ]


def path(x1: float, y1: float, x2: float, y2: float, width: float) -> str:
    """The words of an SVG path from one box to another, up to where the head of the arrow begins."""
    if y2 > y1:
        bend = min(40.0, (y2 - y1) / 2)
        return f"M{x1:.1f},{y1:.1f}C{x1:.1f},{y1 + bend:.1f} {x2:.1f},{y2 - bend:.1f} {x2:.1f},{y2 - 6:.1f}"
    side = min(width - 4, max(x1, x2) + 90)  # upwards, around the right side
    return f"M{x1:.1f},{y1:.1f}C{side:.1f},{y1 + 30:.1f} {side:.1f},{y2 - 36:.1f} {x2:.1f},{y2 - 6:.1f}"


def _edge(e: ViewEdge, x1: float, y1: float, x2: float, y2: float, theme: Theme, width: float) -> str:
    colour = theme.edges[e.kind]
    dash = f' stroke-dasharray="{DASHES[e.kind]}"' if DASHES[e.kind] else ""
    strong = "1.8" if e.kind != "data" else "1"
    head = f"{x2 - 3.5:.1f},{y2 - 7:.1f} {x2 + 3.5:.1f},{y2 - 7:.1f} {x2:.1f},{y2:.1f}"
    label = _text((x1 + x2) / 2 + 4, (y1 + y2) / 2, shown(e.label), theme.faint, 9, "start") if e.label else ""
    return (f'<g class="edge"><path d="{path(x1, y1, x2, y2, width)}" fill="none" stroke="{colour}" stroke-width="{strong}"{dash}/>'
            f'<polygon points="{head}" fill="{colour}"/>{label}</g>')  # fmt: skip
