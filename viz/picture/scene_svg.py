"""A scene as SVG, written here: frames, edges, boxes in the forms of their kinds, the heading and a legend of what occurs.

Nothing in it runs, links or refers; every text of a program is escaped.
"""

from __future__ import annotations

from collections.abc import Iterator

from deepx_graph.viz.picture.dot import LEGEND, heading
from deepx_graph.viz.picture.overlay import Painted
from deepx_graph.viz.picture.scene import LINE, Place, Point, Scene, SceneEdge, path, text_lines
from deepx_graph.viz.picture.style import CONTROL_KINDS, FONT, Theme, theme_named
from deepx_graph.viz.picture.svg import FITTING, NAMESPACE, escape, shown, tooltips
from deepx_graph.viz.view.model import Cluster, EdgeKind, View, ViewNode

DASHES: dict[EdgeKind, str] = {"data": "", "control": "", "effect": "2,3", "back": "7,4", "residual": "5,2", "capture": "1,4"}
MARGIN, TIP = 16.0, 7.0


def to_svg(scene: Scene, theme: str = "light", *, legend: bool = True, painted: Painted | None = None) -> bytes:
    """The scene as SVG, its boxes in the colours of what is laid over it. Raises UsageError for an unknown theme."""
    colours = theme_named(theme)
    names = tooltips(scene.view)
    head = [shown(line) for line in heading(scene.view)]
    samples = list(_legend(scene, colours, painted)) if legend else []
    top = MARGIN + 18 * len(head) + (34 if samples else 0)
    width = max([scene.width + 2 * MARGIN, *(8.0 * len(line) + 2 * MARGIN for line in head), *(end + MARGIN for end, _ in samples)])
    height = top + scene.height + MARGIN
    parts = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f'<svg xmlns="{NAMESPACE}" width="{width:.0f}pt" height="{height:.0f}pt" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img" style="{FITTING}">',
        f'<rect x="0" y="0" width="{width:.0f}" height="{height:.0f}" fill="{colours.ground}"/>',
    ]
    parts += (_text(MARGIN, MARGIN + 4 + 18 * k, line, colours.text, 14, "start") for k, line in enumerate(head))
    parts.append(f'<g transform="translate(0,{top - 22:.0f})">{"".join(text for _, text in samples)}</g>')
    parts.append(f'<g transform="translate({MARGIN:.0f},{top:.0f})">')
    parts += (_frame(c, scene.frames[c.id], colours) for c in scene.view.clusters if c.id in scene.frames)
    parts += (_edge(line, colours, names, sideways=scene.view.sideways) for line in scene.lines if line.points)
    parts += (_heading(c, scene.frames[c.id], colours) for c in scene.view.clusters if c.id in scene.frames)
    parts += (_label(line.edge.label, line.at, scene, colours) for line in scene.lines if line.at)
    parts += (_box(n, scene.boxes[n.id], colours, names[f"n{n.id}"], painted) for n in scene.view.nodes)
    return ("\n".join([*parts, "</g></svg>"]) + "\n").encode("utf-8")


def _text(x: float, y: float, text: str, fill: str, size: int, anchor: str, weight: str = "normal") -> str:
    return (f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-family="{FONT}" font-size="{size}" '
            f'font-weight="{weight}" text-anchor="{anchor}">{escape(text)}</text>')  # fmt: skip


def _frame(cluster: Cluster, place: Place, theme: Theme) -> str:
    x, y, width, height = place
    ground, border = theme.clusters[cluster.kind]
    return (f'<g class="cluster"><title>{escape(shown(cluster.title))}</title><rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" rx="10" fill="{ground}" stroke="{border}"/></g>')


def _edge(line: SceneEdge, theme: Theme, names: dict[str, str], *, sideways: bool) -> str:
    e = line.edge
    colour = theme.edges[e.kind]
    dash = f' stroke-dasharray="{DASHES[e.kind]}"' if DASHES[e.kind] else ""
    strong = "1" if e.kind == "data" else "1.7"
    (x, y), before = line.points[-1], line.points[-2] if len(line.points) > 1 else line.points[-1]
    back = -TIP if (x >= before[0] if sideways else y >= before[1]) else TIP
    tip = f"{x},{y} {x + back:.1f},{y - 3.5:.1f} {x + back:.1f},{y + 3.5:.1f}" if sideways else \
        f"{x:.1f},{y:.1f} {x - 3.5:.1f},{y + back:.1f} {x + 3.5:.1f},{y + back:.1f}"
    a, b = (e.source, e.target) if e.kind != "back" else (e.target, e.source)
    return (f'<g class="edge"><title>{escape(shown(names[f"n{a}->n{b}"]))}</title><path d="{path(line, sideways=sideways)}" '
            f'fill="none" stroke="{colour}" stroke-width="{strong}"{dash}/><polygon points="{tip}" fill="{colour}"/></g>')


def _heading(cluster: Cluster, place: Place, theme: Theme) -> str:
    text = _text(place[0] + 8, place[1] + 15, shown(cluster.title), theme.text, 11, "start")
    return _rimmed(text, theme.clusters[cluster.kind][0])


def _label(text: str, at: Point, scene: Scene, theme: Theme) -> str:
    """What is written beside an edge, on the ground of the innermost frame."""
    around = [c.kind for c in scene.view.clusters if _holds(scene.frames.get(c.id), at)]
    return _rimmed(_text(*at, shown(text), theme.faint, 9, "start"), theme.clusters[around[-1]][0] if around else theme.ground)


def _rimmed(text: str, ground: str) -> str:
    """A text with a rim of the ground that it stands on: lines that pass there do not strike it through."""
    return f'<g stroke="{ground}" stroke-width="3" stroke-linejoin="round" paint-order="stroke">{text}</g>'


def _holds(frame: Place | None, point: Point) -> bool:
    return frame is not None and 0 <= point[0] - frame[0] <= frame[2] and 0 <= point[1] - frame[1] <= frame[3]


def _box(node: ViewNode, place: Place, theme: Theme, about: str, painted: Painted | None) -> str:
    fill, stroke = theme.box(node)
    fill = fill if painted is None else painted.fills.get(node.id, fill)
    x, y, width, height = place
    lines = text_lines(node)
    first = y + (height - LINE * len(lines)) / 2 + 11
    texts = (_text(x + width / 2, first + LINE * k, line, theme.text, 10 if k else 12, "middle", "normal" if k else "bold")
             for k, line in enumerate(lines))
    return f'<g class="node"><title>{escape(shown(about))}</title>{_form(node, place, fill, stroke)}{"".join(texts)}</g>'


def _form(node: ViewNode, place: Place, fill: str, stroke: str) -> str:
    """The outline of a box: what kind of node it is."""
    x, y, width, height = place
    colours = f'fill="{fill}" stroke="{stroke}"'
    right, low, middle, edge = x + width, y + height, y + height / 2, min(12.0, width / 6)
    corners = {
        "param": [(x, y), (right, y), (right, low - 8), (x + width / 2, low), (x, low - 8)],
        "result": [(x, y + 8), (x + width / 2, y), (right, y + 8), (right, low), (x, low)],
        "if": [(x + width / 2, y), (right, middle), (x + width / 2, low), (x, middle)],
        "loop_begin": [(x + edge, y), (right - edge, y), (right, low), (x, low)],
        "loop_end": [(x, y), (right, y), (right - edge, low), (x + edge, low)],
        "region": [(x, y), (right, y), (right - edge, low), (x + edge, low)],
    }
    if node.kind in corners:
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in corners[node.kind])
        return f'<polygon points="{points}" {colours} stroke-width="1.4"/>'
    if node.kind in ("phi", "proj", "side", "start"):
        return "".join(f'<ellipse cx="{x + width / 2:.1f}" cy="{middle:.1f}" rx="{width / 2 - d:.1f}" ry="{height / 2 - d:.1f}" '
                       f'{colours}/>' for d in ((0, 2.5) if node.kind == "phi" else (0,)))  # fmt: skip
    behind = ""
    if node.kind == "group":
        behind = (f'<rect x="{x + 3:.1f}" y="{y - 3:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4" {colours}/>')
    corner = 2 if node.kind in ("constant", "fusion") else 6
    dash = ' stroke-dasharray="4,3"' if node.kind == "outside" else ""
    return f'{behind}<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{corner}" {colours}{dash}/>'


def _colours(view: View, theme: Theme, painted: Painted | None) -> Iterator[tuple[str, str, str]]:
    """What each colour of a box means: text, fill (none for words between them), border."""
    if painted is not None:
        yield from ((text, fill, theme.faint) for text, fill in painted.legend)
        return
    for family in sorted({n.family for n in view.nodes if n.kind not in CONTROL_KINDS} - {"structure", ""}):
        yield family, *theme.colours(family)


def _legend(scene: Scene, theme: Theme, painted: Painted | None) -> Iterator[tuple[float, str]]:
    """What the colours and lines that occur mean, side by side: where each ends, and its SVG."""
    x = MARGIN
    for text, fill, stroke in _colours(scene.view, theme, painted):
        width = (6.0 if fill else 5.2) * len(text) + 12
        yield x + width, (f'<rect x="{x:.0f}" y="-10" width="{width:.0f}" height="15" rx="5" fill="{fill}" stroke="{stroke}"/>'
                          if fill else "") + _text(x + width / 2, 1, shown(text), theme.text, 9, "middle")
        x += width + 8
    kinds = {e.kind for e in scene.view.edges}
    for kind, text in LEGEND.items():
        if kind in kinds:
            dash = f' stroke-dasharray="{DASHES[kind]}"' if DASHES[kind] else ""
            colour = theme.edges[kind]
            end = x + 30 + 5.2 * len(text)
            yield end, (f'<path d="M{x:.0f},-2L{x + 24:.0f},-2" fill="none" stroke="{colour}" stroke-width="1.5"{dash}/>'
                        f'{_text(x + 28, 1, text, theme.faint, 9, "start")}')
            x = end + 8
