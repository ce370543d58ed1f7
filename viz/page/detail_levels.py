"""All the scenes that a reader of one view can go to: coarse to fine, and into every box that stands for several nodes.

Each scene is small enough to read. Boxes with the same members share a scene. What is not worked out within the bounds on scenes
and time cannot be opened; the box then only lists what it holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from deepx_graph.viz.folding.fold import MAX_NODES, fold, inline_hubs
from deepx_graph.viz.page.scene import Scene, lay_out, lay_out_all
from deepx_graph.viz.picture.graphviz import processor_seconds
from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import EdgeKind, View, ViewEdge, ViewNode, renumbered

OVERVIEW = 60
"""Boxes of the coarsest level."""

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
    sizes = [n for n in (OVERVIEW, max_nodes) if n <= max_nodes and len(view.nodes) > n] or [max_nodes]
    if len(view.nodes) <= max_nodes and sizes[-1] != max_nodes:
        sizes.append(max_nodes)
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
    return View(ordered, (*part.edges, *edges), part.clusters, group.title, (*part.notes, *notes))


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
