"""What a reader of one view can go to: scenes, coarse to fine, and into every box that stands for several nodes.

A scene says where everything of a view lies: lengths are points, y grows downwards. Places come from the layout engine, or from our
own layers where it is missing or late; notes say which. Each scene is small enough to read; boxes with the same members share one.
What is not worked out within the bounds on scenes and time cannot be opened; the box then only lists what it holds.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deepx_graph.viz.folding.fold import MAX_NODES, OVERVIEW, WHOLE, fold, inline_hubs
from deepx_graph.viz.picture import graphviz, layered
from deepx_graph.viz.picture.dot import to_dot
from deepx_graph.viz.picture.graphviz import processor_seconds
from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import EdgeKind, View, ViewEdge, ViewNode, renumbered

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
    return to_dot(replace(view, title="", notes=()), legend=False)


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


INSIDE = 150
"""Boxes of a scene inside a box."""

BESIDE = 24
"""What is beside a part is drawn up to so many boxes."""

MAX_SCENES = 400
BATCH = 40
"""Scenes laid out by one child process."""

Members = tuple[int, ...]


@dataclass
class Levels:
    """Scenes, the first `top` of which are levels of the whole, coarse to fine; `inside` says which one opens a box."""

    view: View
    scenes: list[Scene] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    top: int = 0
    inside: dict[Members, int] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was said of the finest level."""
        finest = self.scenes[self.top - 1]
        return finest.view.notes + finest.notes


def levels_of(view: View, max_nodes: int = MAX_NODES, timeout: float = 20.0, max_scenes: int = MAX_SCENES) -> Levels:
    """The scenes of a view; the finest level has at most `max_nodes` boxes.

    Layout takes at most `timeout` seconds of processor time for each level, and a quarter of that for all that is inside.
    """
    view = renumbered(view)
    found = Levels(view)
    sizes = [OVERVIEW, max_nodes] if len(view.nodes) > WHOLE and max_nodes > OVERVIEW else [max_nodes]
    for size in sizes:
        folded = inline_hubs(fold(view, size))
        found.scenes.append(lay_out(folded, timeout))
        found.titles.append("everything" if len(folded.nodes) >= len(view.nodes) else f"{len(folded.nodes)} boxes")
    found.top = len(found.scenes)
    _open_all(found, max_scenes, processor_seconds() + timeout / 4)
    return found


def _open_all(found: Levels, max_scenes: int, until: float) -> None:
    """Adds the scenes inside of boxes, breadth first, as many as fit."""
    done = 0
    while done < len(found.scenes) and len(found.scenes) < max_scenes and processor_seconds() < until:
        groups: dict[Members, ViewNode] = {}
        while done < len(found.scenes) and len(groups) < BATCH:
            for n in found.scenes[done].view.nodes:
                if n.kind == "group" and len(n.members) > 1 and n.members not in found.inside:
                    groups[n.members] = n
            done += 1
        chosen = list(groups.items())[: max_scenes - len(found.scenes)]
        views = [_inside(found.view, n) for _, n in chosen]
        for k, scene in enumerate(lay_out_all(views, max(1.0, until - processor_seconds()))):
            found.inside[chosen[k][0]] = len(found.scenes)
            found.scenes.append(scene)
            found.titles.append(chosen[k][1].title)


def _inside(view: View, group: ViewNode) -> View:
    """What a box holds, with what is beside it."""
    members = set(group.members)
    part = fold(view.only(members), INSIDE)
    if max(len(n.members) for n in part.nodes) > len(members) // 2:  # one row of equal blocks, and little else
        part = fold(view.only(members), INSIDE, apart=True)
    box = {m: n.id for n in part.nodes for m in (n.members or (n.id,))}
    into, out = _beside(view, members)
    nodes = {n.id: n for n in view.nodes if n.id in into or n.id in out}
    notes = []
    if len(into) + len(out) > BESIDE:
        notes.append(f"{len(into) + len(out) - BESIDE} more boxes beside this part are not drawn")
        into = dict(list(into.items())[: BESIDE // 2])
        out = dict(list(out.items())[: BESIDE - len(into)])
    first = 1 + max(n.id for n in part.nodes)
    before = {m: first + k for k, m in enumerate(into)}
    after = {m: first + len(into) + k for k, m in enumerate(out)}
    outside = [_stub(nodes[m], id) for m, id in (*before.items(), *after.items())]
    edges = [ViewEdge(before[m], box[t], kind, label) for m in before for t, kind, label in into[m]]
    edges += [ViewEdge(box[s], after[m], kind, label) for m in after for s, kind, label in out[m]]
    edges = list({(e.source, e.target, e.kind): e for e in edges}.values())
    ordered = (*outside[: len(into)], *part.nodes, *outside[len(into) :])
    return View(ordered, (*part.edges, *edges), part.clusters, group.title, (*part.notes, *notes), view.sideways)


Links = dict[int, list[tuple[int, EdgeKind, str]]]


def _beside(view: View, members: set[int]) -> tuple[Links, Links]:
    """For each node outside: where its edges into the part arrive; and where those out of the part leave."""
    into: Links = {}
    out: Links = {}
    for e in view.edges:
        if e.kind == "back" or (e.source in members) == (e.target in members):
            continue
        if e.target in members:
            into.setdefault(e.source, []).append((e.target, e.kind, e.label))
        else:
            out.setdefault(e.target, []).append((e.source, e.kind, e.label))
    return into, out


def _stub(node: ViewNode, id: int) -> ViewNode:
    return replace(node, id=id, kind="outside", subtitle=short(node.name), cluster=None, members=(node.id,))
