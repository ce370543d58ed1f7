"""What a reader of one view can open: the first picture, and what each large box of it holds, folded again.

The page lays out what its reader opens (`viz/assets/layout.js`), so only what belongs together is worked out here. A box opens to
the scopes in it, one level at a time; one of few nodes without scopes has no folding of its own: it opens as these nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from deepx_graph.progress import stage
from deepx_graph.viz.folding.fold import OVERVIEW, fold, fold_inside, open_scope
from deepx_graph.viz.view.model import View, ViewEdge, renumbered, used_clusters

WORK = 12
"""Boxes are folded, the outer ones first, until all that was folded is so many times the view; any further in are only listed."""

LARGE, SMALL = 20_000, 100
"""Of a view of more than `LARGE` nodes, boxes of up to `SMALL` nodes are not folded: half of the time would go to them."""

Members = tuple[int, ...]


@dataclass
class Folds:
    """Foldings of a view or of parts of it, the first of the whole; `inside` says which one a box opens to."""

    view: View
    folded: list[View] = field(default_factory=list)
    inside: dict[Members, int] = field(default_factory=dict)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was said of the first picture."""
        return self.folded[0].notes


def folds_of(view: View, max_nodes: int | None = None) -> Folds:
    """The foldings of a view; the first has at most `max_nodes` boxes, by default as many as a picture has."""
    stage("fold")
    view = renumbered(view)
    found = Folds(view, [fold(view, max_nodes or OVERVIEW)])
    parts = _Subviews(view)
    left = WORK * len(view.nodes)
    for folded in found.folded:  # grows as boxes are found in it: breadth first
        for n in folded.nodes:
            if n.kind == "group" and n.members not in found.inside and left > 0:
                inside = parts.fold(n.members)
                if inside is not None:
                    left -= len(n.members)
                    found.inside[n.members] = len(found.folded)
                    found.folded.append(inside)
    return found


class _Subviews:
    """Parts of a view, in time that the part takes and not the whole."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.leaving: list[list[ViewEdge]] = [[] for _ in view.nodes]
        self.sources: list[list[int]] = [[] for _ in view.nodes]
        for e in view.edges:
            self.leaving[e.source].append(e)
            self.sources[e.target].append(e.source)

    def part(self, members: Iterable[int]) -> View:
        ordered = sorted(members)
        kept = set(ordered)
        nodes = tuple([self.view.nodes[m] for m in ordered])
        edges = tuple([e for m in ordered for e in self.leaving[m] if e.target in kept])
        fed = frozenset([m for m in ordered if not kept.issuperset(self.sources[m])])
        return View(nodes, edges, used_clusters(self.view.clusters, nodes), fed=fed)

    def fold(self, members: Members) -> View | None:
        """What a box holds, in more than one box: the scopes in it, else what folding makes of it; None for few nodes."""
        few = len(members) <= (OVERVIEW if len(self.view.nodes) <= LARGE else SMALL)
        if few and len({self.view.nodes[m].scope for m in members}) < 2:
            return None
        part = self.part(members)
        scopes = open_scope(part, OVERVIEW)
        if scopes is not None or few:
            return scopes
        return fold_inside(_untold(part), OVERVIEW)


def _untold(view: View) -> View:
    """The view without scopes and operators of the source, where all of it is of one: they say nothing in it."""
    ops = [n for n in view.nodes if n.kind == "op"]
    scope = {"scope": ()} if len({n.scope for n in ops}) == 1 and any(n.scope for n in view.nodes) else {}
    operator = {"operator": None} if len({n.operator for n in ops}) == 1 else {}
    changes: dict[str, Any] = scope | operator
    return replace(view, nodes=tuple(n._replace(**changes) for n in view.nodes)) if changes else view
