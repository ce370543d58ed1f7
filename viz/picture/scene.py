"""A view with places: what a layout gives and a picture is written from. Lengths are points, y grows downwards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

from deepx_graph.viz.picture.svg import shown
from deepx_graph.viz.view.model import View, ViewEdge, ViewNode

Place = tuple[float, float, float, float]
"""Left, top, width, height."""

Point = tuple[float, float]

TITLE_CHAR, TEXT_CHAR, LINE = 7.2, 5.6, 14.0
"""Widths of a letter in a box's first line and in the others, and the height of a line."""


@dataclass(frozen=True)
class SceneEdge:
    """An edge: the points that it passes, first to last, and where its label stands."""

    edge: ViewEdge
    points: tuple[Point, ...]
    at: Point | None = None


@dataclass(frozen=True)
class Scene:
    """A view with places: of boxes by id of the node, of frames by id of the cluster."""

    view: View
    width: float
    height: float
    boxes: dict[int, Place]
    frames: dict[int, Place]
    lines: tuple[SceneEdge, ...]


def text_lines(node: ViewNode) -> list[str]:
    """What stands in a box, line by line."""
    return [line for text in (node.title, node.subtitle) if text for line in shown(text).split("\n")] or [" "]


def box_size(node: ViewNode) -> tuple[float, float]:
    """Width and height that the texts of a box and its form need."""
    first, *rest = text_lines(node)
    width = max([TITLE_CHAR * len(first), *(TEXT_CHAR * len(line) for line in rest)]) + 22
    height = LINE * (1 + len(rest)) + 10
    if node.kind in ("if", "loop_begin", "loop_end", "region", "start"):
        return width + 34, height + 12
    return (width + 8, height + 8) if node.kind in ("param", "result", "phi", "proj", "side") else (width, height)


def transposed(scene: Scene) -> Scene:
    """The same scene with x and y exchanged: from left to right instead of downwards."""
    def swapped(p: Place) -> Place:
        return p[1], p[0], p[3], p[2]

    lines = tuple(replace(line, points=tuple((y, x) for x, y in line.points)) for line in scene.lines)
    boxes, frames = ({k: swapped(p) for k, p in places.items()} for places in (scene.boxes, scene.frames))
    return replace(scene, width=scene.height, height=scene.width, boxes=boxes, frames=frames, lines=lines)


def labelled(scene: Scene) -> Scene:
    """The scene with a place for each label: on its edge, on none before it where that can be."""
    taken: dict[tuple[int, int], list[Place]] = {}
    lines = []
    for line in scene.lines:
        at = None
        if line.edge.label:
            width = 5.0 * len(line.edge.label)
            spots = [((x1 + x2) / 2 + 3, (y1 + y2) / 2 + 3) for (x1, y1), (x2, y2) in pairwise(line.points)]
            free = (s for s in spots if not any(_touch((s[0], s[1] - 8, width, 10), p) for p in _near(taken, s)))
            at = next(free, spots[0] if spots else None)
            if at is not None:
                for key in _squares(at):
                    taken.setdefault(key, []).append((at[0], at[1] - 8, width, 10))
        lines.append(replace(line, at=at))
    return replace(scene, lines=tuple(lines))


def _squares(p: Point) -> list[tuple[int, int]]:
    x, y = int(p[0] // 200), int(p[1] // 40)
    return [(x + i, y + j) for i in (-1, 0, 1) for j in (-1, 0, 1)]


def _near(taken: dict[tuple[int, int], list[Place]], p: Point) -> list[Place]:
    return taken.get((int(p[0] // 200), int(p[1] // 40)), [])


def _touch(a: Place, b: Place) -> bool:
    return a[0] < b[0] + b[2] and b[0] < a[0] + a[2] and a[1] < b[1] + b[3] and b[1] < a[1] + a[3]


def path(line: SceneEdge, *, sideways: bool) -> str:
    """The words of an SVG path through the points of an edge, smooth, in the direction of the flow at each of them."""
    (x, y), *rest = line.points
    words = [f"M{x:.1f},{y:.1f}"]
    for x2, y2 in rest:
        if (y if sideways else x) == (y2 if sideways else x2):
            words.append(f"L{x2:.1f},{y2:.1f}")
        elif sideways:
            words.append(f"C{(x + x2) / 2:.1f},{y:.1f} {(x + x2) / 2:.1f},{y2:.1f} {x2:.1f},{y2:.1f}")
        else:
            words.append(f"C{x:.1f},{(y + y2) / 2:.1f} {x2:.1f},{(y + y2) / 2:.1f} {x2:.1f},{y2:.1f}")
        x, y = x2, y2
    return "".join(words)
