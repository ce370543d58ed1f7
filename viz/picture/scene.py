"""A view with places: what a layout gives and a picture is written from. Lengths are points, y grows downwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise, product

from deepx_graph.viz.picture.svg import shown
from deepx_graph.viz.view.model import View, ViewEdge, ViewNode

Place = tuple[float, float, float, float]
"""Left, top, width, height."""

Point = tuple[float, float]

TITLE_CHAR, TEXT_CHAR, LINE = 7.2, 5.6, 14.0
"""Widths of a letter in a box's first line and in the others, and the height of a line."""

LETTER = 5.0
"""The width of a letter in the label of an edge."""

_APART = 4.0
"""The space between two labels beside each other."""


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
    """The scene with a place for each label: beside its edge, if it can be where no box, title of a frame or label is."""
    taken = _Taken()
    for x, y, width, height in scene.boxes.values():
        taken.add((x, y - 3, width + 3, height + 3))  # with the edge of the sheet behind it
    for c in scene.view.clusters:
        x, y = scene.frames[c.id][:2]
        taken.add((x + 8, y + 4, 6.0 * len(c.title), 13.0))
    lines = []
    for line in scene.lines:
        at = None
        if line.edge.label and len(line.points) > 1:
            width = LETTER * len(line.edge.label)
            spots = list(_spots(line.points, width, sideways=scene.view.sideways))
            free = (s for s in spots if s[0] >= 0 and s[0] + width <= scene.width and taken.free((s[0], s[1] - 8, width, 10)))
            at = next(free, spots[0])
            taken.add((at[0] - _APART, at[1] - 8, width + 2 * _APART, 10))
        lines.append(replace(line, at=at))
    return replace(scene, lines=tuple(lines))


def _spots(points: tuple[Point, ...], width: float, *, sideways: bool) -> Iterator[Point]:
    """Where a label of that width may begin: on either side of each part of an edge, at its middle, then nearer to its ends."""
    sides = ((-width / 2, -3.0), (-width / 2, 11.0)) if sideways else ((3.0, 3.0), (-3.0 - width, 3.0))
    for t in (0.5, 0.25, 0.75, 0.375, 0.625, 0.125, 0.875):
        across, along = t * t * (3 - 2 * t), t * (1.5 - t * (1.5 - t))  # of the curve that `path` draws
        a, b = (along, across) if sideways else (across, along)
        for right, down in sides:
            for (x1, y1), (x2, y2) in pairwise(points):
                yield x1 + (x2 - x1) * a + right, y1 + (y2 - y1) * b + down


class _Taken:
    """Places that are taken, by the squares in which they lie."""

    def __init__(self) -> None:
        self.squares: dict[tuple[int, int], list[Place]] = {}

    def add(self, place: Place) -> None:
        for square in _squares(place):
            self.squares.setdefault(square, []).append(place)

    def free(self, place: Place) -> bool:
        """Whether nothing is there yet."""
        return not any(_touch(place, p) for square in _squares(place) for p in self.squares.get(square, ()))


def _squares(place: Place) -> Iterator[tuple[int, int]]:
    x, y, width, height = place
    return product(range(int(x // 200), int((x + width) // 200) + 1), range(int(y // 40), int((y + height) // 40) + 1))


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
