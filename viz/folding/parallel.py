"""Folding what is done alike for many values side by side: the update of each parameter by an optimiser, experts of one layer.

Such parts hang together with the rest only by what all of them share, so they are connected components once that is taken away.
Which operations are shared shows in what they compute: operations of equal *structure* (the same operations over the same sort of
inputs, whatever the shapes) are the same place of several parts; one that has no equal is shared.

Parts of equal structure become one box with a count. Where a path leaves a part and comes back, as by way of the norm of all
gradients, what is before it and what is after it are two boxes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence

from deepx_graph.analysis.disjoint_sets import DisjointSets
from deepx_graph.analysis.name_scopes import common_prefix
from deepx_graph.viz.folding.blocks import QUIET, contents, op_of
from deepx_graph.viz.folding.quotient import FoldGroup, Quotient
from deepx_graph.viz.view.model import ViewNode

PARTS = 4
"""So many parts alike are one box."""

OPERATIONS = 3
"""So many operations, those that only move elements left out, make a part."""

COVERED = 0.5
"""The share of the operations without a module that parts must hold to be folded: else they are details of something else."""

UPDATE, EACH = "update", " of each parameter"

SORTS = 8
"""Parts of so many structures at most are folded: each takes a pass over the graph."""


def by_part(q: Quotient, limit: int) -> bool:
    """One box for all parts alike among what lies in no module, and for each stage of them; False where there are none."""
    if all(n.scope for n in q.view.nodes if n.kind == "op"):
        return False
    flow = _Flow(q)
    sorts = _alike(flow, _components(flow))
    held = sum(flow.first[k].kind == "op" for parts in sorts for part in parts for k in part)
    if held < max(COVERED * sum(f and n.kind == "op" for f, n in zip(flow.free, flow.first, strict=True)), 1):
        return False
    groups = [group for parts in sorts for group in _stages(q, flow, parts)]
    q.merge([*groups, *_collected(q, flow, {k: n for n, group in enumerate(groups) for k in group.numbers})])
    return True


class _Flow:
    """The items of a quotient in the order of data, and what each of them computes."""

    def __init__(self, q: Quotient) -> None:
        self.inputs, self.outputs = q.neighbours()
        self.order = q.order(self.inputs, self.outputs)
        self.first = [q.view.nodes[i.members[0]] for i in q.items]
        self.free = [i.title is None and (n.kind in ("param", "constant") or (n.kind == "op" and not n.scope))
                     for i, n in zip(q.items, self.first, strict=True)]  # fmt: skip
        self.structure = self._structures()

    def _structures(self) -> list[int]:
        """A number for each item: equal where operations and inputs are, down to parameters and to what lies in a module."""
        number: dict[Hashable, int] = {}
        found = [-1] * len(self.first)
        for k in self.order:
            if self.free[k]:
                node = self.first[k]
                look = (op_of(node), node.cluster, node.backward, tuple(sorted(found[i] for i in self.inputs[k])))
                found[k] = number.setdefault(look, len(number))
        return found


def _components(flow: _Flow) -> list[list[int]]:
    """The items that have equals, in connected components; what feeds many places alike is shared and in none."""
    times = Counter(s for s, f in zip(flow.structure, flow.free, strict=True) if f)
    own = [False] * len(flow.first)
    for k in reversed(flow.order):
        users = flow.outputs[k]
        given = flow.first[k].kind != "op"  # what is given stands where it is used, which may be elsewhere
        own[k] = flow.free[k] and times[flow.structure[k]] >= PARTS and not (given and not all(own[u] for u in users)) and \
            (len(users) < PARTS or max(Counter(flow.structure[u] for u in users).values()) < PARTS)
    found: DisjointSets[int] = DisjointSets()
    for k in flow.order:
        if own[k]:
            for i in flow.inputs[k]:
                if own[i]:
                    found.union(i, k)
    parts: dict[int, list[int]] = {}
    for k in flow.order:
        if own[k]:
            parts.setdefault(found.find(k), []).append(k)
    return list(parts.values())


def _alike(flow: _Flow, components: Sequence[list[int]]) -> list[list[list[int]]]:
    """Components of equal structure, of which there are several, the largest sorts first."""
    sorts: dict[Hashable, list[list[int]]] = {}
    for part in components:
        ops = Counter(flow.structure[k] for k in part if flow.first[k].kind == "op")
        if sum(flow.first[k].kind == "op" and flow.first[k].family not in QUIET for k in part) >= OPERATIONS:
            sorts.setdefault(frozenset(ops.items()), []).append(part)
    return sorted((parts for parts in sorts.values() if len(parts) >= PARTS), key=lambda parts: -sum(map(len, parts)))[:SORTS]


def _stages(q: Quotient, flow: _Flow, parts: Sequence[list[int]]) -> Iterator[FoldGroup]:
    """The boxes of parts alike: one, or one for each time that a path comes back to them. In a view of nothing else each part has
    its own."""
    part = {k: n for n, members in enumerate(parts) for k in members}
    stage = [-1] * len(q.items)
    for k in flow.order:  # of what is in no part: the latest stage that it comes from
        came = (stage[i] + (k in part and i not in part and stage[i] >= 0) for i in flow.inputs[k])
        stage[k] = max(came, default=-1)
        if k in part:
            stage[k] = max(stage[k], 0)
    for k in reversed(flow.order):
        if k in part and flow.outputs[k] and all(u in part for u in flow.outputs[k]):
            stage[k] = min(stage[u] for u in flow.outputs[k])
    boxes: dict[Hashable, list[int]] = {}
    for k in part:
        boxes.setdefault((stage[k], part[k] if q.apart else 0), []).append(k)
    for numbers in boxes.values():
        nodes = [q.view.nodes[m] for k in numbers for m in q.items[k].members]
        numbers.sort(key=lambda k: flow.first[k].kind != "op")  # the first tells what a box is
        title = _title(nodes, ends=all(flow.first[u].kind == "result" for k in numbers for u in flow.outputs[k] if u not in part))
        count = len({part[k] for k in numbers})
        if count > 1:
            q.rows.append(numbers)
        if count == 1:
            yield FoldGroup(numbers, f"{title}{_of_which(nodes)}", q.items[numbers[0]].cluster)
        else:
            one = [k for k in numbers if part[k] == part[numbers[0]]]
            yield FoldGroup(numbers, f"{title}{EACH if title == UPDATE else ''}", q.items[numbers[0]].cluster, one, count)


def _title(nodes: Sequence[ViewNode], *, ends: bool) -> str:
    """What takes weights and ends in results updates them; anything else is what it holds."""
    return UPDATE if ends and any(n.weight for n in nodes) else contents(nodes)


def open_first(q: Quotient, limit: int) -> None:
    """Draws the first of parts alike as it is, of as many boxes of such parts as the limit allows."""
    for item in [i for i in q.items if i.one]:
        if len(q) + len(item.one) <= limit:
            name = (item.title or "").removesuffix(EACH)
            q.open_one(q.items.index(item), f"{name}{_of_which([q.view.nodes[m] for m in item.one])}")


def _of_which(nodes: Sequence[ViewNode]) -> str:
    """What the paths of all weights of one part end with: the parameter that they are of."""
    paths = [tuple(reversed(n.title.split("/"))) for n in nodes if n.weight]
    return f" of {'/'.join(reversed(common_prefix(paths)))}" if paths and common_prefix(paths) else ""


def _collected(q: Quotient, flow: _Flow, inside: Mapping[int, int]) -> Iterator[FoldGroup]:
    """One box for equal operations in a row of which each takes something of another part: the sum over all of them."""
    takes = [any(i in inside for i in flow.inputs[k]) for k in range(len(q.items))]
    found: DisjointSets[int] = DisjointSets()
    for k in flow.order:
        if k not in inside and flow.free[k] and takes[k]:
            for i in flow.inputs[k]:
                if i not in inside and takes[i] and _look(flow.first[i]) == _look(flow.first[k]) and len(flow.outputs[i]) == 1:
                    found.union(i, k)
    rows: dict[int, list[int]] = {}
    for k in flow.order:
        rows.setdefault(found.find(k), []).append(k)
    for row in rows.values():
        if len(row) > 1:
            yield FoldGroup(row, op_of(flow.first[row[0]]), q.items[row[0]].cluster, (), len(row))


def _look(node: ViewNode) -> Hashable:
    return op_of(node), node.cluster, node.backward
