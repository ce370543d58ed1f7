"""What a reader of one view can go to: scenes, coarse to fine, and into every box that stands for several nodes.

Each scene is small enough to read; boxes with the same members share one. What is not worked out within the bounds on scenes and
time cannot be opened; the box then only lists what it holds.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from deepx_graph.viz.folding.fold import MAX_NODES, OVERVIEW, WHOLE, fold, inline_hubs
from deepx_graph.viz.picture.layered import Scene, lay_out
from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import EdgeKind, View, ViewEdge, ViewNode, renumbered

INSIDE = 150
"""Boxes of a scene inside a box."""

BESIDE = 24
"""What is beside a part is drawn up to so many boxes."""

MAX_SCENES = 400
SECONDS = 5.0

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
        return self.scenes[self.top - 1].view.notes


def levels_of(view: View, max_nodes: int = MAX_NODES, seconds: float = SECONDS, max_scenes: int = MAX_SCENES) -> Levels:
    """The scenes of a view; the finest level has at most `max_nodes` boxes.

    What is inside of boxes is laid out for so many seconds of processor time, and no longer.
    """
    view = renumbered(view)
    found = Levels(view)
    sizes = [OVERVIEW, max_nodes] if len(view.nodes) > WHOLE and max_nodes > OVERVIEW else [max_nodes]
    for size in sizes:
        folded = inline_hubs(fold(view, size))
        found.scenes.append(lay_out(folded))
        found.titles.append("everything" if len(folded.nodes) >= len(view.nodes) else f"{len(folded.nodes)} boxes")
    found.top = len(found.scenes)
    _open_all(found, max_scenes, time.process_time() + seconds)
    return found


def _open_all(found: Levels, max_scenes: int, until: float) -> None:
    """Adds the scenes inside of boxes, breadth first, as many as fit."""
    done = 0
    while done < len(found.scenes):
        for n in found.scenes[done].view.nodes:
            if len(found.scenes) >= max_scenes or time.process_time() > until:
                return
            if n.kind == "group" and len(n.members) > 1 and n.members not in found.inside:
                found.inside[n.members] = len(found.scenes)
                found.scenes.append(lay_out(_inside(found.view, n)))
                found.titles.append(n.title)
        done += 1


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
