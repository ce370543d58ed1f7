"""Where everything of a view lies: boxes, frames and edges as numbers, for whoever draws them elsewhere, such as a page.

Places come from the layout engine, or from our own layers where it is missing or late; notes say which. Lengths are points; y grows
downwards.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deepx_graph.viz.picture import graphviz, layered
from deepx_graph.viz.picture.dot import to_dot
from deepx_graph.viz.view.model import View, ViewEdge

POINTS = 72
"""Points in an inch, the engine's unit for widths."""

Place = tuple[float, float, float, float]
"""Left, top, width, height."""


@dataclass(frozen=True)
class SceneEdge:
    """An edge: `path` in the words of an SVG path; `at` is where its label stands."""

    edge: ViewEdge
    path: str
    at: tuple[float, float] | None = None


@dataclass(frozen=True)
class Scene:
    """A view with places: of boxes by id of the node, of frames by id of the cluster."""

    view: View
    width: float
    height: float
    boxes: dict[int, Place]
    frames: dict[int, Place]
    lines: tuple[SceneEdge, ...]
    notes: tuple[str, ...] = ()


def lay_out(view: View, timeout: float = 20.0) -> Scene:
    """The scene of one view, by the best layout that is done in time."""
    try:
        data, notes = graphviz.render(_dot(view), "json0", timeout, large=graphviz.is_large(view))
        return next(_scenes(data, [view], notes))
    except graphviz.LayoutError as e:
        return simple(view, f"simple layout, without frames, because: {e.diagnostics[0].message}")


def lay_out_all(views: Sequence[View], timeout: float) -> list[Scene]:
    """The scenes of many small views, laid out together; those of the simple layout when the engine does not get done."""
    if not views:
        return []
    try:
        data, _ = graphviz.render("\n".join(map(_dot, views)), "json0", timeout, large=False)
        found = list(_scenes(data, views, ()))
    except graphviz.LayoutError:
        return [simple(v) for v in views]
    return found


def simple(view: View, *notes: str) -> Scene:
    """The scene in layers, made here, without frames."""
    boxes, width, height = layered.placed(view)
    places = {k: (b.x - b.width / 2, b.y, b.width, b.height) for k, b in boxes.items()}
    lines = []
    for e, (x1, y1, x2, y2) in zip(view.edges, layered.ports(view.edges, boxes), strict=True):
        lines.append(SceneEdge(e, layered.path(x1, y1, x2, y2, width), ((x1 + x2) / 2 + 4, (y1 + y2) / 2) if e.label else None))
    return Scene(view, width, height, places, {}, tuple(lines), notes)


def _dot(view: View) -> str:
    return to_dot(View(view.nodes, view.edges, view.clusters), legend=False)


def _scenes(data: bytes, views: Sequence[View], notes: tuple[str, ...]) -> Iterator[Scene]:
    """What the engine wrote for the views, one after another. Raises LayoutError when it is not that."""
    text, at, decoder = data.decode("utf-8", "replace"), 0, json.JSONDecoder()
    for view in views:
        try:
            found, at = decoder.raw_decode(text, text.index("{", at))
            yield _scene(found, view, notes)
        except (ValueError, KeyError, TypeError) as e:
            raise graphviz.LayoutError(f"the layout engine wrote no valid layout: {e}") from None


def _scene(found: dict[str, Any], view: View, notes: tuple[str, ...]) -> Scene:
    _, _, width, height = map(float, found["bb"].split(","))
    boxes: dict[int, Place] = {}
    frames: dict[int, Place] = {}
    ids: dict[int, int] = {}
    for item in found.get("objects", ()):
        name = item["name"]
        if name.startswith("cluster_"):
            left, low, right, high = map(float, item["bb"].split(","))
            frames[int(name[8:])] = (left, height - high, right - left, high - low)
        elif "pos" in item:
            x, y = map(float, item["pos"].split(","))
            w, h = float(item["width"]) * POINTS, float(item["height"]) * POINTS
            ids[item["_gvid"]] = int(name[1:])
            boxes[ids[item["_gvid"]]] = (x - w / 2, height - y - h / 2, w, h)
    return Scene(view, width, height, boxes, frames, tuple(_lines(found.get("edges", ()), ids, view, height)), notes)


def _lines(edges: Sequence[dict[str, Any]], ids: dict[int, int], view: View, height: float) -> Iterator[SceneEdge]:
    """The visible edges; of several between the same two boxes the first is the first of the view."""
    waiting: dict[tuple[int, int], deque[ViewEdge]] = {}
    for e in view.edges:
        ends = (e.source, e.target) if e.kind != "back" else (e.target, e.source)
        waiting.setdefault(ends, deque()).append(e)
    for item in edges:
        queue = waiting.get((ids[item["tail"]], ids[item["head"]]))
        if item.get("style") == "invis" or not queue or "pos" not in item:
            continue
        at = None
        if "lp" in item:
            x, y = map(float, item["lp"].split(","))
            at = (x, height - y)
        yield SceneEdge(queue.popleft(), _path(item["pos"], height), at)


def _path(spline: str, height: float) -> str:
    """A spline of the engine (`e,x,y` and `s,x,y` are the tips of arrows) as the words of a path."""
    tips: dict[str, str] = {}
    points: list[str] = []
    for word in re.split(r"[ ;]+", spline.strip()):
        parts = word.split(",")
        point = f"{float(parts[-2]):.1f},{height - float(parts[-1]):.1f}"
        if parts[0] in ("e", "s"):
            tips[parts[0]] = point
        else:
            points.append(point)
    start = f"M{tips['s']}L{points[0]}" if "s" in tips else f"M{points[0]}"
    end = f"L{tips['e']}" if "e" in tips else ""
    return f"{start}C{' '.join(points[1:])}{end}"
