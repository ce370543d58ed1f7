"""The picture as plain frozen data: what is shown and how it hangs together, before anyone decides on colours or places.

A `View` is collected on a `Canvas` by `build_view`, made smaller by `around` and `fold`, laid out by `layered`, and written by
`scene_svg` or `dot`. Node ids are numbers of the picture, never names from a file; all texts are as they came and are escaped by
whoever writes them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from deepx_graph.errors import UsageError, printable, suggest

NodeKind = Literal[
    "param", "constant", "op", "start", "if", "side", "region", "phi", "loop_begin", "loop_end", "proj", "call", "fusion",
    "result", "group", "outside",
]  # fmt: skip
"""What a node of the picture is; `side` is one outcome of an If, `group` stands for several nodes, `outside` for one beside it."""

Change = Literal["", "added", "removed", "changed"]
EdgeKind = Literal["data", "control", "effect", "back", "residual", "capture"]
LOOSE = frozenset({"back", "capture"})
"""Edges that may go either way: they have no say in the order. A capture goes from a closure to the parameter that it binds."""
ClusterKind = Literal["function", "loop", "once", "branch", "fusion", "block", "half"]
"""`block` frames one of several alike that folding left open, so that a reader sees what is in the others."""


class SourceOperator(NamedTuple):
    """An operator of the source: where it starts in the text, and its sort (`Conv`), empty where the text tells none."""

    start: int
    kind: str = ""


Told = str | Callable[[], str]
"""A text, or what makes it: folding leaves most boxes of a large view undrawn."""


class ViewNode(NamedTuple):
    """A box. `shape` is the type of its value as text; `name` and `line` are those of the source, where it has them."""

    id: int
    kind: NodeKind
    title: str
    below: Told = ""
    """Its subtitle."""
    family: str = ""
    shape: str = ""
    tip: Told = ""
    """Its tooltip."""
    cluster: int | None = None
    name: str = ""
    address: str = ""
    """How a user names the node: `#17`, or `function#17` outside the entry; the number is its place in the function."""
    line: int = 0
    size: int = 1
    """How many nodes of the graph it stands for."""
    change: Change = ""
    """In a picture of two programs: which of them has it, where it is not the same in both."""
    members: tuple[int, ...] = ()
    """In a folded view: the ids, in the view before, of what it stands for."""
    backward: bool = False
    """Whether it is of the backward part of a gradient program."""
    scope: tuple[str, ...] = ()
    """The modules of the model around it, outermost first, as the names in its text tell."""
    weight: bool = False
    """Whether it is a parameter whose name is a path: a weight of the model, not data."""
    op: str = ""
    """The operation, where it is a node of the graph."""
    operator: SourceOperator | None = None
    """What of the source it was read from: one operator there may be several nodes."""

    @property
    def subtitle(self) -> str:
        """What stands below its title."""
        return self.below if isinstance(self.below, str) else self.below()

    @property
    def tooltip(self) -> str:
        """What it says when it is pointed at."""
        return self.tip if isinstance(self.tip, str) else self.tip()


class ViewEdge(NamedTuple):
    """An arrow from the node that gives to the node that takes; a `back` edge goes from a loop's end to its head."""

    source: int
    target: int
    kind: EdgeKind = "data"
    label: str = ""


class Cluster(NamedTuple):
    """A frame around nodes and other frames."""

    id: int
    title: str
    kind: ClusterKind
    parent: int | None = None


@dataclass(frozen=True)
class View:
    """Nodes in an order in which every edge but the back edges goes forward; clusters with parents first."""

    nodes: tuple[ViewNode, ...]
    edges: tuple[ViewEdge, ...]
    clusters: tuple[Cluster, ...]
    title: str = ""
    notes: tuple[str, ...] = ()
    """What the reader of the picture must know: what was folded, left out or not drawn."""
    sideways: bool = False
    """Data flows from left to right, not downwards."""
    fed: frozenset[int] = frozenset()
    """Of a part of a view: the nodes that take values from outside of it."""

    def noted(self, *notes: str) -> View:
        """The same picture with more notes."""
        return replace(self, notes=self.notes + notes)

    def only(self, keep: Iterable[int]) -> View:
        """The nodes with these ids, the edges between them and the clusters that hold them; ids stay."""
        kept = set(keep)
        nodes = tuple(n for n in self.nodes if n.id in kept)
        edges = tuple(e for e in self.edges if e.source in kept and e.target in kept)
        fed = self.fed & kept | {e.target for e in self.edges if e.target in kept and e.source not in kept}
        return replace(self, nodes=nodes, edges=edges, clusters=used_clusters(self.clusters, nodes), fed=frozenset(fed))


def renumbered(view: View) -> View:
    """The same picture with ids that count from 0 in order."""
    if all(n.id == k for k, n in enumerate(view.nodes)):
        return view
    place = {n.id: k for k, n in enumerate(view.nodes)}
    nodes = tuple(n._replace(id=place[n.id]) for n in view.nodes)
    edges = tuple(ViewEdge(place[e.source], place[e.target], e.kind, e.label) for e in view.edges)
    return replace(view, nodes=nodes, edges=edges, fed=frozenset(place[k] for k in view.fed))


def levels(view: View) -> dict[int, int]:
    """The layer of each node: one below the lowest of those it takes from. Edges that go back in the order do not count."""
    found: dict[int, int] = {}
    sources: dict[int, list[int]] = {}
    for e in view.edges:
        if e.kind not in LOOSE:
            sources.setdefault(e.target, []).append(e.source)
    for n in view.nodes:
        found[n.id] = 1 + max((found.get(s, -1) for s in sources.get(n.id, ())), default=-1)
    return found


def used_clusters(clusters: tuple[Cluster, ...], nodes: Iterable[ViewNode]) -> tuple[Cluster, ...]:
    """The clusters that hold one of the nodes, themselves or through others."""
    by_id = {c.id: c for c in clusters}
    used: set[int] = set()
    for node in nodes:
        at = node.cluster
        while at is not None and at not in used:
            used.add(at)
            at = by_id[at].parent
    return tuple(c for c in clusters if c.id in used)


# --- parts of a view ------------------------------------------------------------------------------------------------


def around(view: View, node: str, depth: int = 2) -> View:
    """The nodes at most `depth` edges away from those called `node`: a name of the source, or an address such as `#17`.

    Raises UsageError, with the nearest name, when no node is called so, or when `depth` is negative.
    """
    if depth < 0:
        raise UsageError(f"depth {depth} is negative")
    starts = [n.id for n in view.nodes if node and node in (n.name, n.address)]
    if not starts:
        near = suggest(node, dict.fromkeys(n.name for n in view.nodes if n.name))
        raise UsageError(f"no node '{printable(node)}' in the picture" + (f": {near}" if near else ""))
    beside: dict[int, list[int]] = {n.id: [] for n in view.nodes}
    for e in view.edges:
        beside[e.source].append(e.target)
        beside[e.target].append(e.source)
    seen, border = set(starts), starts
    for _ in range(depth):
        border = [k for k in dict.fromkeys(j for n in border for j in beside[n]) if k not in seen]
        seen.update(border)
    left = len(view.nodes) - len(seen)
    return view.only(seen).noted(f"around {printable(node)}, {depth} steps: {left:,} more nodes are not drawn") if left else view


def chosen(view: View, addresses: frozenset[str]) -> View:
    """The boxes of these nodes, those inside their kernels, and the parameters and results beside them."""
    keep = {n.id for n in view.nodes if n.address in addresses or n.address.rpartition(".")[0] in addresses}
    left = sum(n.size for n in view.nodes) - len(keep)
    return view.only(keep).noted(f"{left:,} more nodes are not drawn") if left else view


class Canvas:
    """Collects the parts of a `View`; the methods give the ids of what they add."""

    def __init__(self) -> None:
        self._nodes: list[ViewNode] = []
        self._edges: list[ViewEdge] = []
        self._clusters: list[Cluster] = []

    def node(self, kind: NodeKind, title: str, below: Told = "", *, cluster: int | None, **fields: Any) -> int:
        """Adds a node; `fields` are further ones of ViewNode."""
        self._nodes.append(ViewNode(len(self._nodes), kind, title, below, cluster=cluster, **fields))
        return len(self._nodes) - 1

    def edge(self, source: int, target: int, kind: EdgeKind, label: str = "") -> None:
        """Adds an edge."""
        self._edges.append(ViewEdge(source, target, kind, label))

    def cluster(self, kind: ClusterKind, title: str, parent: int | None) -> int:
        """Adds a cluster inside `parent`."""
        self._clusters.append(Cluster(len(self._clusters), title, kind, parent))
        return len(self._clusters) - 1

    def view(self, title: str) -> View:
        """What was collected, in order."""
        return forward(View(tuple(self._nodes), tuple(self._edges), used_clusters(tuple(self._clusters), self._nodes), title))


def forward(view: View) -> View:
    """The same picture with nodes, whose ids count from 0, in an order in which all edges but loose ones go forward.

    The smallest possible number comes first; numbers on a cycle, which a valid graph does not have, last in their own order.
    """
    count = len(view.nodes)
    targets: list[list[int]] = [[] for _ in range(count)]
    waiting = [0] * count
    for e in view.edges:
        if e.kind not in LOOSE:
            targets[e.source].append(e.target)
            waiting[e.target] += 1
    order = topological(waiting, targets)
    return view if order == list(range(count)) else renumbered(replace(view, nodes=tuple(view.nodes[k] for k in order)))


def topological(inputs: Sequence[int], targets: Sequence[Sequence[int]]) -> list[int]:
    """The numbers from 0, each after those that it is a target of, the smallest possible first; numbers on a cycle last.

    `inputs` says how often each is a target.
    """
    if all(not some or min(some) > k for k, some in enumerate(targets)):
        return list(range(len(targets)))  # in order as they are, as nearly all views
    waiting = list(inputs)
    ready = [k for k, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for t in targets[k]:
            waiting[t] -= 1
            if not waiting[t]:
                heapq.heappush(ready, t)
    return [*order, *(k for k, count in enumerate(waiting) if count > 0)]
