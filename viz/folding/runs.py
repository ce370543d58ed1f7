"""Folding by the flow of data alone, where neither names nor repeats say what belongs together.

Between two joins: where all that is still needed is one value, a part of the program has ended, as at the sum that closes a
residual block (the postdominators of a flow graph, found in one pass over an order of the items). Last, runs of neighbours of
equal length.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, pairwise

from deepx_graph.viz.folding.blocks import contents
from deepx_graph.viz.folding.quotient import FoldGroup, Quotient

RUNS = 120
"""The most boxes that the last step aims at: a run of lines says little, and more of them say no more."""

EDGES_PER_RUN = 4
"""The last step folds on while boxes have more edges than this each: a layout engine would not come back."""


FEW = 0.25
"""So many boxes too many, as a share of the limit, are joined with neighbours rather than folded by other means."""

ALONE = frozenset({"param", "constant", "result"})
"""Kinds that are no part of the flow: many are there from the start, or to the end."""


def between_joins(q: Quotient, limit: int) -> bool:
    """One box for what lies between two joins, with the single operations after it; False, and nothing done, above the limit."""
    trial = q.copy()
    parts: list[list[int]] = []
    for part in _parts(trial):
        if len(part) == 1 and parts and len(parts[-1]) > 1 and _flows(trial, parts[-1], part[0]):
            parts[-1].extend(part)
        else:
            parts.append(part)
    trial.merge(_run(trial, part) for part in parts if len(part) > 1)
    if len(trial) > limit or len(trial) == len(q):
        return False
    q.items, q.clusters = trial.items, trial.clusters
    return True


def _flows(q: Quotient, part: list[int], k: int) -> bool:
    return q.items[part[-1]].cluster == q.items[k].cluster and not q.items[k].structural


def _parts(q: Quotient) -> Iterator[list[int]]:
    """The items that are part of the flow in the order of data, cut where one value is all that is needed of those before."""
    inputs, outputs = q.neighbours()
    flows = [i.title is not None or q.view.nodes[i.members[0]].kind not in ALONE for i in q.items]
    left = [sum(flows[u] for u in users) for users in outputs]
    open_ends = 0
    part: list[int] = []
    for k in filter(flows.__getitem__, q.nested_order()):
        alone = q.items[k].structural
        if part and (alone or q.items[part[-1]].cluster != q.items[k].cluster):
            yield part
            part = []
        part.append(k)
        for i in filter(flows.__getitem__, inputs[k]):
            left[i] -= 1
            open_ends -= left[i] == 0
        open_ends += left[k] > 0
        if open_ends <= 1 or alone:
            yield part
            part = []
    if part:
        yield part


def join_neighbours(q: Quotient, limit: int) -> bool:
    """The smallest neighbours in the order of data as one box, until no more than the limit is left; False, and nothing done,
    where there are more than `FEW` of it too many."""
    boxes = [i.title is not None and not i.structural for i in q.items]
    sizes = [len(i.members) for i in q.items]
    halves = [(i.cluster, q.outer(k).backward) for k, i in enumerate(q.items)]
    pairs = [(a, b) for a, b in pairwise(q.nested_order()) if boxes[a] and boxes[b] and halves[a] == halves[b]]
    taken: set[int] = set()
    joined: list[list[int]] = []
    for a, b in sorted(pairs, key=lambda pair: sizes[pair[0]] + sizes[pair[1]]):
        if len(q) - len(joined) > limit and taken.isdisjoint((a, b)):
            taken |= {a, b}
            joined.append([a, b])
    if len(q) - len(joined) > limit or len(joined) > FEW * limit:
        return False
    q.merge(_run(q, pair) for pair in joined)
    return True


def cut_in_runs(q: Quotient, limit: int) -> bool:
    """Runs of nodes in the order of data; parameters, results and control apart from the rest where the limit allows."""
    buckets = next((found for found in _buckets(q) if len(found) <= limit), None)
    if buckets is None:
        return _source_order(q, limit)
    _cut_all(q, buckets, max(min(limit, RUNS), min(limit, len(buckets))))
    return True


def _buckets(q: Quotient) -> Iterator[list[list[int]]]:
    """Stretches of items that can be cut into convex runs, fewer and fewer: neighbours in an order in which frames are whole."""
    order = q.nested_order()
    for kinds in (True, False):
        yield [list(g) for _, g in groupby(order, key=lambda k: (q.items[k].cluster, _sort(q, k) if kinds else ""))]


def _sort(q: Quotient, k: int) -> str:
    kind = q.view.nodes[q.items[k].members[0]].kind
    return kind if kind in ("param", "result") else "control" if q.items[k].structural else "op"


def _source_order(q: Quotient, limit: int) -> bool:
    """Runs of nodes in source order, whatever path leads out of them and back: too many frames for anything else."""
    buckets: dict[tuple[int | None, str], list[int]] = {}
    for k, item in enumerate(q.items):
        buckets.setdefault((item.cluster, _sort(q, k)), []).append(k)
    _cut_all(q, list(buckets.values()), max(min(limit, RUNS), min(limit, len(buckets))))
    return True


def _cut_all(q: Quotient, buckets: list[list[int]], aim: int) -> None:
    """Cuts the stretches into about `aim` runs, or fewer where boxes would have too many edges."""
    share = _fair_share([len(b) for b in buckets], aim)
    items = q.items
    while True:
        q.items = items
        q.merge(part for bucket in buckets for part in _cut(q, bucket, share))
        if share == 1 or len(q.links()) <= EDGES_PER_RUN * aim:
            return
        share = max(1, share * 2 // 3)


def _fair_share(sizes: list[int], limit: int) -> int:
    """The largest count, at least 1, such that the buckets, each cut down to it, have no more than `limit` together."""
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(s, middle) for s in sizes) <= limit else (low, middle - 1)
    return low


def _cut(q: Quotient, bucket: list[int], share: int) -> list[FoldGroup]:
    """The bucket as at most `share` runs of almost equal length; none when it is no longer than that."""
    if len(bucket) <= share:
        return []
    cuts = [len(bucket) * k // share for k in range(share + 1)]
    return [_run(q, bucket[a:b]) for a, b in pairwise(cuts) if b - a > 1]


def _run(q: Quotient, numbers: list[int]) -> FoldGroup:
    nodes = [q.view.nodes[m] for k in numbers for m in q.items[k].members]
    ends = [title.partition(" ×")[0].split(" to ") for k in numbers if (title := q.items[k].title)]
    scopes = {part for n in nodes for part in n.scope}
    named = [end for end in ends if end[0].rpartition("/")[2] in scopes]
    if len(named) > 1 and 2 * len(named) >= len(numbers):
        return FoldGroup(numbers, f"{named[0][0]} to {named[-1][-1]}", q.items[numbers[0]].cluster)
    kind = {"param": "parameter", "phi": "variable", "proj": "value"}.get(nodes[0].kind, nodes[0].kind)
    title = f"{len(nodes):,} {kind}s" if len({n.kind for n in nodes}) == 1 and nodes[0].kind != "op" else contents(nodes)
    return FoldGroup(numbers, title, q.items[numbers[0]].cluster)
