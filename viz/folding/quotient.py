"""A view seen coarser: items that stand for one node or several, and the view they make.

Steps of folding merge items; nothing is lost, every item knows its members. Items keep an order, a merged item standing where the
first of its parts stood. Each operation costs no more than a pass over nodes and edges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import NamedTuple

from deepx_graph.analysis.components import components
from deepx_graph.errors import counted
from deepx_graph.viz.folding.blocks import TELLING, op_of, telling
from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import LOOSE, Cluster, EdgeKind, View, ViewEdge, ViewNode, forward, topological, used_clusters

STRUCTURAL_KINDS = frozenset({"start", "if", "side", "region", "phi", "loop_begin", "loop_end", "result", "param"})
"""Kinds that only the last step of folding merges."""

ENGLISH_LIST = 4
"""How many kinds of op a box names before it only counts the rest."""


class FoldItem(NamedTuple):
    """Nodes drawn as one box. `token` is equal for items that look the same; `title` is None for a node drawn as it is."""

    members: tuple[int, ...]
    cluster: int | None
    token: Hashable
    elementwise: bool
    structural: bool
    title: str | None = None
    one: tuple[int, ...] = ()
    """Of parts alike: the members of the first of them."""
    times: int = 1
    """Of how many equal parts it is."""
    place: str = ""
    """Which of several of its title it is, such as `2 of 12`."""

    @property
    def label(self) -> str:
        """What stands in its box: title, how many and place."""
        return f"{self.title or ''}{f' ×{self.times:,}' if self.times > 1 else ''}{f' ({self.place})' if self.place else ''}"


AFTER = "after the first"
"""The place of a row of equal parts whose first one stands apart."""


class FoldGroup(NamedTuple):
    """Items to make one of, which stands in the place of the first of these numbers, and what they become (see FoldItem)."""

    numbers: Sequence[int]
    title: str
    cluster: int | None
    one: Sequence[int] = ()
    """Of a box of parts alike, which no step but the last merges with anything else: the items of the first of them."""
    times: int = 1
    place: str = ""


Neighbours = tuple[list[list[int]], list[list[int]]]


class Quotient:
    """The items of a view, made coarser step by step."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.apart = False
        """Whether rows of equal parts stay several boxes."""
        self.clusters: list[Cluster] = list(view.clusters)
        self.position = {n.id: k for k, n in enumerate(view.nodes)}
        self.items: list[FoldItem] = [_single(k, n) for k, n in enumerate(view.nodes)]
        self.ends = [(self.position[e.source], self.position[e.target]) for e in view.edges]
        self.flow = [ends for ends, e in zip(self.ends, view.edges, strict=True) if e.kind not in LOOSE]
        """The ends of the edges that have a say in the order."""
        self._beside: tuple[list[FoldItem], Neighbours] | None = None
        """What `neighbours` found, and for which items."""
        self._ordered: tuple[Sequence[Sequence[int]], list[int]] | None = None
        """What `order` found, and for which outputs."""
        self.rows: list[Sequence[int]] = []
        """The rows of equal parts that were met, on trial too: `apart` makes no difference where there are none."""

    def copy(self, *, apart: bool = False) -> Quotient:
        """The same items, to be made coarser on trial; with `apart` rows of equal parts stay several boxes."""
        other = copy(self)
        other.apart = self.apart or apart
        other.clusters = list(self.clusters)  # the list of items is never changed in place
        return other

    def __len__(self) -> int:
        return len(self.items)

    def outer(self, k: int) -> ViewNode:
        """The first node of an item, which tells what it is."""
        return self.view.nodes[self.items[k].members[0]]

    def merge(self, parts: Iterable[FoldGroup]) -> None:
        """Makes one item of each part."""
        parts = list(parts)
        if not parts:
            return  # what is known of the items stays known
        items: list[FoldItem | None] = list(self.items)
        for numbers, title, cluster, one, times, place in parts:
            merged = [self.items[k] for k in numbers]
            for k in numbers:
                items[k] = None
            members = tuple([m for i in merged for m in i.members])
            token = ("group", len(members), hash(tuple([i.token for i in merged])))
            items[numbers[0]] = FoldItem(members, cluster, token, all(i.elementwise for i in merged), bool(one), title,
                                        tuple(m for k in one for m in self.items[k].members), times, place)  # fmt: skip
        self.items = [i for i in items if i is not None]

    def joined(self, number: int, others: Iterable[int], title: str = "") -> FoldGroup:
        """An item with others in it, called as it is, or by a title where it has none."""
        item = self.items[number]
        return FoldGroup([number, *others], item.title or title, item.cluster, (), item.times, item.place)

    def open(self, number: int) -> None:
        """Draws the members of an item again, in a frame of their own with the item's title."""
        item = self.items[number]
        id = max((c.id for c in self.clusters), default=-1) + 1
        self.clusters.append(Cluster(id, item.label, "block", item.cluster))
        opened = [_single(m, self.view.nodes[m])._replace(cluster=id) for m in item.members]
        self.items = [*self.items[:number], *opened, *self.items[number + 1 :]]

    def open_one(self, number: int, title: str) -> None:
        """Draws the first of parts alike in a frame of its own, and the others as one box."""
        item, one = self.items[number], set(self.items[number].one)
        others = item._replace(members=tuple(m for m in item.members if m not in one), one=(), times=item.times - 1, place=AFTER)
        first = item._replace(members=item.one, title=title, times=1)
        self.items = [*self.items[:number], first, others, *self.items[number + 1 :]]
        self.open(number)

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

    def neighbours(self) -> Neighbours:
        """For each item the items that it takes from, and those that take from it; edges that may go either way do not count."""
        if self._beside is None or self._beside[0] is not self.items:
            self._beside = self.items, self._neighbours()
        return self._beside[1]

    def _neighbours(self) -> Neighbours:
        owner = self._owners()
        inputs: list[list[int]] = [[] for _ in self.items]
        outputs: list[list[int]] = [[] for _ in self.items]
        count = len(self.items)
        across = [(a, b) for s, t in self.flow if (a := owner[s]) != (b := owner[t])]
        for pair in dict.fromkeys([a * count + b for a, b in across]):  # numbers: quicker than pairs of them
            s, t = divmod(pair, count)
            inputs[t].append(s)
            outputs[s].append(t)
        return inputs, outputs

    def order(self, inputs: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]) -> list[int]:
        """The items, each after those that it takes from; items on a cycle last."""
        if self._ordered is None or self._ordered[0] is not outputs:
            self._ordered = outputs, topological([len(i) for i in inputs], outputs)
        return self._ordered[1]

    def condense(self, title: Callable[[Sequence[int]], str]) -> None:
        """Makes one item of those that lie on a cycle together, as steps that go by source order may leave."""
        inputs, outputs = self.neighbours()
        order = self.order(inputs, outputs)
        place = [0] * len(order)
        for i, k in enumerate(order):
            place[k] = i
        if all(not some or max([place[i] for i in some]) < at for at, some in zip(place, inputs, strict=True)):
            return
        parent = {c.id: c.parent for c in self.clusters}
        groups = []
        for found in components(dict(enumerate(outputs))):
            numbers = sorted(found)
            if len(numbers) > 1:
                frame = _around([self.items[k].cluster for k in numbers], parent)
                groups.append(FoldGroup(numbers, title([m for k in numbers for m in self.items[k].members]), frame))
        self.merge(groups)

    def nested_order(self) -> list[int]:
        """The items, each after those that it takes from, those of a frame and all frames in it next to one another."""
        inputs, outputs = self.neighbours()
        if len({i.cluster for i in self.items}) == 1:
            return self.order(inputs, outputs)
        parent = {c.id: c.parent for c in self.clusters}
        chains: list[tuple[int | None, ...]] = []
        for item in self.items:
            chain: list[int | None] = [item.cluster]
            while chain[-1] is not None:
                chain.append(parent[chain[-1]])
            chains.append(tuple(reversed(chain)))
        found: list[int] = []
        stack: list[tuple[list[int], int]] = [(list(range(len(self.items))), 1)]
        while stack:
            numbers, depth = stack.pop()
            if all(len(chains[k]) <= depth for k in numbers):
                found += self._sorted(numbers, inputs, lambda k: k)
                continue
            units: dict[Hashable, list[int]] = {}
            unit = {k: ("frame", chains[k][depth]) if len(chains[k]) > depth else ("item", k) for k in numbers}
            for k in self._sorted(numbers, inputs, unit.__getitem__):
                units.setdefault(unit[k], []).append(k)
            stack += [(members, depth + 1) for members in reversed(units.values())]
        return found

    def _sorted(self, numbers: list[int], inputs: Sequence[Sequence[int]], unit: Callable[[int], Hashable]) -> list[int]:
        """The items unit by unit, each unit after those that its items take from; units on a cycle last."""
        members: dict[Hashable, list[int]] = {}
        for k in numbers:
            members.setdefault(unit(k), []).append(k)
        place = {u: i for i, u in enumerate(members)}
        of = {k: place[unit(k)] for k in numbers}
        before: list[set[int]] = [set() for _ in members]
        after: list[set[int]] = [set() for _ in members]
        for k in numbers:
            for i in inputs[k]:
                if i in of and of[i] != of[k]:
                    before[of[k]].add(of[i])
                    after[of[i]].add(of[k])
        groups = list(members.values())
        return [k for u in topological([len(b) for b in before], [list(a) for a in after]) for k in groups[u]]

    def sort(self) -> None:
        """Puts the items into an order in which each stands after those that it takes from."""
        self.items = [self.items[k] for k in self.order(*self.neighbours())]

    def _owners(self) -> list[int]:
        owner = [0] * len(self.view.nodes)
        for k, item in enumerate(self.items):
            for m in item.members:
                owner[m] = k
        return owner

    def to_view(self) -> View:
        """The items as a view of their own, numbered anew."""
        owner = self._owners()
        boxes = {k for k, item in enumerate(self.items) if item.title is not None}
        acting = {k for k in boxes if any(self.view.nodes[m].kind == "op" for m in self.items[k].members)}
        bundles: dict[tuple[int, int, EdgeKind], list[ViewEdge]] = {}
        for (s, t), e in zip(self.ends, self.view.edges, strict=True):
            source, target, taken = owner[s], owner[t], self.view.nodes[s].kind
            inside = e.kind == "control" and taken == "start" and source in boxes  # all that it leads to are boxes
            shared = taken == "constant" and source in acting and target in boxes  # exporters write equal ones once: no data passes
            if source != target and not inside and not shared:
                bundles.setdefault((source, target, e.kind), []).append(e)
        for s, t, kind in [b for b in bundles if b[2] == "residual" and (b[0], b[1], "data") in bundles]:
            bundles[s, t, kind] += bundles.pop((s, t, "data"))  # a weight that goes along with what the forward part keeps
        edges = [
            ViewEdge(s, t, kind, label)
            for (s, t, kind), bundle in bundles.items()
            for label in ([e.label for e in bundle] if s not in boxes and t not in boxes else [_many(bundle)])
        ]
        nodes = self._told_apart([self._node(k, item) for k, item in enumerate(self.items)], owner)
        clusters = used_clusters(tuple(self.clusters), nodes)
        return forward(replace(self.view, nodes=nodes, edges=tuple(edges), clusters=clusters, fed=frozenset()))

    def _told_apart(self, nodes: Sequence[ViewNode], owner: Sequence[int]) -> tuple[ViewNode, ...]:
        """The boxes; those called alike, but not after modules, with the type of what leaves them: stages of a network."""
        alike = Counter((item.title, item.place) for item in self.items if item.title is not None)
        namesakes = {k for k, i in enumerate(self.items) if i.title is not None and alike[i.title, i.place] > 1}
        leaving: dict[int, set[str]] = {}
        for s, t in self.ends if namesakes else ():
            if owner[s] in namesakes and owner[s] != owner[t]:
                leaving.setdefault(owner[s], set()).add(self.view.nodes[s].shape)
        found = []
        for k, (n, item) in enumerate(zip(nodes, self.items, strict=True)):
            shapes = leaving.get(k, set())
            scopes = {self.view.nodes[m].scope for m in item.members} if len(shapes) == 1 else ()
            if len(shapes) == 1 and not any(part in n.title for scope in scopes for part in scope):
                size, _, listed = n.subtitle.partition("\n")
                n = n._replace(below=f"{size}, gives {shapes.pop()}\n{listed}".strip())
            found.append(n)
        return tuple(found)

    def _node(self, id: int, item: FoldItem) -> ViewNode:
        members = [self.view.nodes[m] for m in item.members]
        ids = tuple([i for m in members for i in (m.members or (m.id,))])
        if item.title is None:
            return members[0]._replace(id=id, cluster=item.cluster, members=ids)
        family = _family(members)
        lines = [m.line for m in members if m.line]
        span = sorted({min(lines), max(lines)}) if lines else []
        where = f"{'lines' if len(span) > 1 else 'line'} {' to '.join(map(str, span))}\n" if span else ""
        return ViewNode(
            id, "group", item.label, summary(members, item.title), family, cluster=item.cluster,
            tip=_tooltip(members, where) if any(m.tip for m in members) else "", line=min(lines, default=0),
            size=sum([m.size for m in members]), members=ids, change="changed" if any(m.change for m in members) else "",
        )  # fmt: skip


def _tooltip(members: Sequence[ViewNode], where: str) -> str:
    listed = "\n".join(f"{m.address} {m.title} {short(m.name)}".strip() for m in members[:8])
    rest = f"\nand {len(members) - 8} more" if len(members) > 8 else ""
    return f"{sum(m.size for m in members)} nodes\n{where}{listed}{rest}"


def _around(clusters: Sequence[int | None], parent: Mapping[int, int | None]) -> int | None:
    """The innermost frame around all of these."""
    def outwards(at: int | None) -> list[int | None]:
        chain = [at]
        while chain[-1] is not None:
            chain.append(parent[chain[-1]])
        return chain

    chains = [outwards(c) for c in clusters]
    return next(c for c in chains[0] if all(c in chain for chain in chains))


def _family(members: Sequence[ViewNode]) -> str:
    """The family in whose colour they are drawn as one: their own, or the most telling one in a single scope; else `block`."""
    families = {m.family for m in members if m.kind not in ("param", "constant")}
    families = families - {"structure"} or families  # what an operation takes or gives says nothing of it
    if len(families) == 1:
        return families.pop()
    scopes = {m.scope for m in members if m.kind == "op"}
    within_one = len(scopes) == 1 and () not in scopes
    return min(families, key=_says_least, default="block") if within_one else "block"


def _says_least(family: str) -> tuple[int, str]:
    """Orders families, the most telling first."""
    return (TELLING.index(family) if family in TELLING else len(TELLING) + telling(family), family)


def summary(members: Sequence[ViewNode], title: str) -> str:
    """How many nodes, and of which operators: `37 nodes, 2 parameters` and `12 add, 9 multiply, …` on a second line; of nothing but
    parameters the first and the last.

    An operator of the source whose sort is told counts once, whatever it was read as (`4 Conv, 4 Relu`); in a box that is called
    as this one operator, `title`, so do the nodes that it was read as.
    """
    if len(members) > 1 and all(m.kind == "param" and m.title for m in members):
        return f"{short(members[0].title, 16)} … {short(members[-1].title, 16)}"
    acting = [m for m in members if m.kind in ("op", "call", "fusion")]
    last = [m for m in acting if m.operator is not None and m.operator.kind]
    last.sort(key=lambda m: -telling(m.family))  # of each operator the most telling of its nodes
    read = {(m.scope, m.operator): m for m in last}
    told = {} if [m.operator.kind for m in read.values() if m.operator is not None] == [title] else read
    sorts = [(m.operator.kind, m.family) for m in told.values() if m.operator is not None]
    sorts += [(op_of(m), m.family) for m in acting if not told or (m.scope, m.operator) not in told]
    counts, families = Counter([name for name, _ in sorts]), dict(sorts)
    common = sorted(counts.items(), key=lambda c: (telling(families[c[0]]), -c[1]))[:ENGLISH_LIST]
    listed = ", ".join(f"{n} {short(name, 20)}" for name, n in common)
    parameters = sum(m.size for m in members if m.kind == "param")
    listed += ", …" if len(counts) > len(common) else ""
    taken = f", {counted(parameters, 'parameter')}" if parameters else ""
    return f"{sum([m.size for m in members]):,} nodes{taken}\n{listed}".strip()


def _single(k: int, n: ViewNode) -> FoldItem:
    kind = n.kind
    look = n.title if kind in ("op", "constant", "fusion", "group") else ""
    if kind == "call":
        look = n.title.rstrip("0123456789").rstrip("._")  # compilers number the copies of a helper
    elementwise = kind == "op" and n.family in ("elementwise", "bits", "complex")
    return FoldItem((k,), n.cluster, (kind, look, n.shape, n.change), elementwise, kind in STRUCTURAL_KINDS)


def _many(edges: Sequence[ViewEdge]) -> str:
    """The label of an edge that stands for several, of which those from one box carry one value."""
    labels = list({(e.source, e.label): e.label for e in edges}.values())
    if len(labels) == 1:
        return labels[0]
    return f"{len(labels)} × {labels[0]}" if len(set(labels)) == 1 and labels[0] else f"{len(labels)} values"
