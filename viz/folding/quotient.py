"""A view seen coarser: items that stand for one node or several, and the view they make.

Steps of folding merge items; nothing is lost, every item knows its members. Items keep an order, a merged item standing where the
first of its parts stood. Each operation costs no more than a pass over nodes and edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from deepx_graph.viz.folding.blocks import op_of
from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import Cluster, EdgeKind, View, ViewEdge, ViewNode, forward, used_clusters

STRUCTURAL_KINDS = frozenset({"start", "if", "side", "region", "phi", "loop_begin", "loop_end", "result", "param"})
"""Kinds that only the last step of folding merges."""

ENGLISH_LIST = 4
"""How many kinds of op a box names before it only counts the rest."""


@dataclass(frozen=True, slots=True)
class FoldItem:
    """Nodes drawn as one box. `token` is equal for items that look the same; `title` is None for a node drawn as it is."""

    members: tuple[int, ...]
    cluster: int | None
    token: Hashable
    elementwise: bool
    structural: bool
    title: str | None = None


class FoldGroup(NamedTuple):
    """Items to make one of, which stands in the place of the first of these numbers, and what they become."""

    numbers: Sequence[int]
    title: str
    cluster: int | None


class Quotient:
    """The items of a view, made coarser step by step."""

    def __init__(self, view: View, apart: bool = False) -> None:
        self.view, self.apart = view, apart
        self.clusters: list[Cluster] = list(view.clusters)
        self.position = {n.id: k for k, n in enumerate(view.nodes)}
        self.items: list[FoldItem] = [_single(k, n) for k, n in enumerate(view.nodes)]
        self.ends = [(self.position[e.source], self.position[e.target]) for e in view.edges]

    def __len__(self) -> int:
        return len(self.items)

    def merge(self, parts: Iterable[FoldGroup]) -> None:
        """Makes one item of each part."""
        items: list[FoldItem | None] = list(self.items)
        for numbers, title, cluster in parts:
            merged = [self.items[k] for k in numbers]
            for k in numbers:
                items[k] = None
            members = tuple(m for i in merged for m in i.members)
            token = ("group", len(members), hash(tuple(i.token for i in merged)))
            items[numbers[0]] = FoldItem(members, cluster, token, all(i.elementwise for i in merged), False, title)
        self.items = [i for i in items if i is not None]

    def open(self, number: int) -> None:
        """Draws the members of an item again, in a frame of their own with the item's title."""
        item = self.items[number]
        id = max((c.id for c in self.clusters), default=-1) + 1
        self.clusters.append(Cluster(id, item.title or "", "block", item.cluster))
        self.items[number : number + 1] = [replace(_single(m, self.view.nodes[m]), cluster=id) for m in item.members]

    def sequences(self) -> list[list[int]]:
        """The numbers of the items of each cluster, in order."""
        by_cluster: dict[int | None, list[int]] = {}
        for k, item in enumerate(self.items):
            by_cluster.setdefault(item.cluster, []).append(k)
        return list(by_cluster.values())

    def links(self) -> list[tuple[int, int]]:
        """The distinct pairs of items that an edge joins."""
        owner = self._owners()
        pairs = dict.fromkeys((owner[s], owner[t]) for s, t in self.ends)
        return [p for p in pairs if p[0] != p[1]]

    def _owners(self) -> list[int]:
        owner = [0] * len(self.view.nodes)
        for k, item in enumerate(self.items):
            for m in item.members:
                owner[m] = k
        return owner

    def to_view(self) -> View:
        """The items as a view of their own, numbered anew."""
        owner = self._owners()
        labels: dict[tuple[int, int, EdgeKind], list[str]] = {}
        for (s, t), e in zip(self.ends, self.view.edges, strict=True):
            if owner[s] != owner[t]:
                labels.setdefault((owner[s], owner[t], e.kind), []).append(e.label)
        single = {k for k, item in enumerate(self.items) if item.title is None}
        edges = [
            ViewEdge(s, t, kind, label)
            for (s, t, kind), texts in labels.items()
            for label in (texts if s in single and t in single else [_many(texts)])
        ]
        nodes = tuple(self._node(k, item) for k, item in enumerate(self.items))
        clusters = used_clusters(tuple(self.clusters), nodes)
        return forward(View(nodes, tuple(edges), clusters, self.view.title, self.view.notes))

    def _node(self, id: int, item: FoldItem) -> ViewNode:
        members = [self.view.nodes[m] for m in item.members]
        ids = tuple(i for m in members for i in (m.members or (m.id,)))
        if item.title is None:
            return replace(members[0], id=id, cluster=item.cluster, members=ids)
        families = {m.family for m in members}
        lines = [m.line for m in members if m.line]
        where = f"lines {min(lines)} to {max(lines)}\n" if lines else ""
        listed = "\n".join(f"{m.address} {m.title} {short(m.name)}".strip() for m in members[:8])
        rest = f"\nand {len(members) - 8} more" if len(members) > 8 else ""
        return ViewNode(
            id, "group", item.title, summary(members), families.pop() if len(families) == 1 else "group", cluster=item.cluster,
            tooltip=f"{sum(m.size for m in members)} nodes\n{where}{listed}{rest}", line=min(lines, default=0),
            size=sum(m.size for m in members), members=ids, change="changed" if any(m.change for m in members) else "",
        )  # fmt: skip


def summary(members: Sequence[ViewNode]) -> str:
    """How many nodes, and of which ops: `37 nodes` and `12 add, 9 multiply, …` on a second line."""
    counts = Counter(map(op_of, members))
    common = counts.most_common(ENGLISH_LIST)
    listed = ", ".join(f"{n} {short(name, 20)}" for name, n in common)
    return f"{sum(m.size for m in members):,} nodes\n{listed}{', …' if len(counts) > len(common) else ''}"


def _single(k: int, n: ViewNode) -> FoldItem:
    look = n.title if n.kind in ("op", "constant", "fusion", "group") else ""
    if n.kind == "call":
        look = n.title.rstrip("0123456789").rstrip("._")  # compilers number the copies of a helper
    elementwise = n.family in ("elementwise", "bits", "complex")
    return FoldItem((k,), n.cluster, (n.kind, look, n.shape, n.change), elementwise and n.kind == "op", n.kind in STRUCTURAL_KINDS)


def _many(labels: list[str]) -> str:
    """The label of an edge that stands for several."""
    if len(labels) == 1:
        return labels[0]
    return f"{len(labels)} × {labels[0]}" if len(set(labels)) == 1 and labels[0] else f"{len(labels)} values"
