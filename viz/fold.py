"""Folding: a picture of any size brought down to as many boxes as a reader and a layout engine can take.

Steps run in order and only as far as needed: frames of fusions, the hierarchy in dotted names, blocks that repeat, chains of
elementwise ops, small frames when there are too many, and last runs of nodes in source order. Every step is near-linear. The bound
always holds, and what was done is said in the notes of the view.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import groupby, pairwise

from deepx_graph.viz.quotient import Part, Quotient
from deepx_graph.viz.repeats import best_period
from deepx_graph.viz.view import Cluster, View, ViewNode

MAX_NODES = 500
"""Up to here a layout engine is quick and a picture still readable."""

RUNS = 120
"""The most boxes that the last step aims at: a run of lines says little, and more of them say no more."""

EDGES_PER_RUN = 4
"""The last step folds on while boxes have more edges than this each: a layout engine would not come back."""

ROUNDS = 6
"""How often repeats are looked for again, each time among the blocks found before."""


def fold(view: View, max_nodes: int = MAX_NODES) -> View:
    """The view itself when it has at most `max_nodes` (4 or more) nodes, else a coarser one that has, with a note saying so."""
    max_nodes = max(4, max_nodes)
    if len(view.nodes) <= max_nodes:
        return view
    q = Quotient(view)
    done = [name for name, step in STEPS if len(q) > max_nodes and step(q, max_nodes)]
    _show_one(q, max_nodes)
    folded = q.to_view()
    total = sum(n.size for n in view.nodes)
    return folded.noted(f"folded: {total:,} nodes drawn as {len(folded.nodes):,} boxes ({', '.join(done)})")


def _fusions(q: Quotient, limit: int) -> bool:
    """One box for every fusion."""
    frames = {c.id: c for c in q.clusters if c.kind == "fusion"}
    parts = []
    for sequence in q.sequences():
        at = q.items[sequence[0]].cluster
        if at is not None and at in frames:
            parts.append(Part(sequence, frames[at].title, frames[at].parent))
    q.merge(parts)
    return bool(parts)


def name_parts(name: str) -> tuple[str, ...]:
    """The path in a dotted or slashed name; numbers at the end only tell namesakes apart and do not count."""
    parts = name.replace("/", ".").strip(".").split(".")
    while parts and parts[-1].isdigit():
        parts.pop()
    return tuple(parts)


def _hierarchy(q: Quotient, limit: int) -> bool:
    """One box for every prefix of the dotted names, as long a prefix as the limit allows."""
    paths = [() if _fixed(q, k) else name_parts(q.view.nodes[q.items[k].members[0]].name) for k in range(len(q))]
    deepest = max(map(len, paths)) - 1
    best: dict[object, list[int]] = {}
    depth = min(deepest, 8)
    while depth > 0:
        best = {}
        for k, path in enumerate(paths):
            best.setdefault((q.items[k].cluster, path[:depth]) if len(path) > depth else k, []).append(k)
        if len(best) <= limit or depth == 1:
            break
        depth -= 1
    merged = [g for g in best.values() if len(g) > 1]
    if not merged or len(best) > 0.9 * len(q):
        return False
    q.merge([Part(g, ".".join(paths[g[0]][:depth]), q.items[g[0]].cluster) for g in merged])
    return True


def _fixed(q: Quotient, k: int) -> bool:
    """Control and results stay in sight; parameters may go into the module they belong to."""
    item = q.items[k]
    return item.structural and q.view.nodes[item.members[0]].kind != "param"


def _repeats(q: Quotient, limit: int) -> bool:
    """One box for every repeat of a block; then one box for a row of equal blocks."""
    found = False
    for round in range(ROUNDS):
        parts: list[Part] = []
        for sequence in q.sequences():
            free = [k for k in sequence if not q.items[k].structural]
            period, places = best_period([q.items[k].token for k in free])
            if sum(n * period for _, n in places) < max(4, len(free) // 4):
                continue
            for start, repeats in places:
                for r in range(repeats):
                    first = start + r * period
                    block = free[first : first + period]
                    title = f"block {chr(65 + round)} ({r + 1} of {repeats})"
                    parts.append(Part(block, title, q.items[block[0]].cluster))
        if not parts:
            break
        q.merge(parts)
        found = True
        if len(q) > limit:
            q.merge(_rows(q))
        if len(q) <= limit:
            break
    return found


def _rows(q: Quotient) -> list[Part]:
    """Equal groups that stand in a row."""
    rows: list[Part] = []
    for sequence in q.sequences():
        for _, same in groupby(sequence, key=lambda k: q.items[k].token):
            row = list(same)
            title = q.items[row[0]].title
            if len(row) > 1 and title is not None:
                rows.append(Part(row, f"{len(row):,} × {title.split(' (')[0]}", q.items[row[0]].cluster))
    return rows


def _chains(q: Quotient, limit: int) -> bool:
    """One box for elementwise ops of which each feeds only the next."""
    links = q.links()
    feeds: dict[int, list[int]] = {}
    takes: dict[int, int] = {}
    for s, t in links:
        feeds.setdefault(s, []).append(t)
        takes[t] = takes.get(t, 0) + 1
    after = {
        s: t[0] for s, t in feeds.items()
        if len(t) == 1 and takes[t[0]] == 1 and q.items[s].cluster == q.items[t[0]].cluster
        and q.items[s].elementwise and q.items[t[0]].elementwise
    }  # fmt: skip
    inside = set(after.values())
    parts: list[Part] = []
    for head in after:
        if head not in inside:
            chain = [head]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            count = sum(len(q.items[k].members) for k in chain)
            parts.append(Part(sorted(chain), f"chain of {count:,} elementwise ops", q.items[head].cluster))
    q.merge(parts)
    return bool(parts)


def _frames(q: Quotient, limit: int) -> bool:
    """When there are too many frames: one box for each of those that stand too deep; of many functions the largest stays open."""
    sequences = q.sequences()
    if len(sequences) <= max(1, limit // 4):
        return False
    depth: dict[int | None, int] = {None: -1}
    for c in q.clusters:
        depth[c.id] = depth[c.parent] + 1
    open_down_to = -1
    counts = Counter(depth[q.items[s[0]].cluster] for s in sequences)
    total = 0
    for level in range(max(counts) + 1):
        total += counts[level]
        if total > limit // 4:
            break
        open_down_to = level
    closed: dict[int | None, Cluster] = {}
    for c in q.clusters:
        if depth[c.id] == open_down_to + 1:
            closed[c.id] = c
        elif c.parent in closed:
            closed[c.id] = closed[c.parent]
    groups: dict[int, list[int]] = {}
    for k, item in enumerate(q.items):
        if item.cluster in closed:
            groups.setdefault(closed[item.cluster].id, []).append(k)
    if open_down_to < 0:
        groups.pop(max(groups, key=lambda id: len(groups[id])))
    by_id = {c.id: c for c in q.clusters}
    q.merge([Part(g, by_id[id].title, by_id[id].parent) for id, g in groups.items()])
    return True


def _ranges(q: Quotient, limit: int) -> bool:
    """Runs of nodes in source order; parameters, results and control apart from the rest, small groups left as they are."""
    buckets: dict[tuple[int | None, str], list[int]] = {}
    for k, item in enumerate(q.items):
        kind = _outer(q, k).kind
        group = kind if kind in ("param", "result") else "control" if item.structural else "op"
        buckets.setdefault((item.cluster, group), []).append(k)
    sizes = [len(b) for b in buckets.values()]
    aim = max(min(limit, RUNS), min(limit, len(buckets)))
    share = _fair_share(sizes, aim)
    items = q.items
    while True:
        q.items = items
        q.merge(part for bucket in buckets.values() for part in _cut(q, bucket, share))
        if share == 1 or len(q.links()) <= EDGES_PER_RUN * aim:
            return True
        share = max(1, share * 2 // 3)


def _fair_share(sizes: list[int], limit: int) -> int:
    """The largest count, at least 1, such that the buckets, each cut down to it, have no more than `limit` together."""
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(s, middle) for s in sizes) <= limit else (low, middle - 1)
    return low


def _cut(q: Quotient, bucket: list[int], share: int) -> list[Part]:
    """The bucket as at most `share` runs of almost equal length; none when it is no longer than that."""
    if len(bucket) <= share:
        return []
    cuts = [len(bucket) * k // share for k in range(share + 1)]
    return [_run(q, bucket[a:b]) for a, b in pairwise(cuts) if b - a > 1]


def _run(q: Quotient, numbers: list[int]) -> Part:
    first, last = (_outer(q, k) for k in (numbers[0], numbers[-1]))
    if first.line and last.line:
        low, high = sorted((first.line, last.line))
        title = f"lines {low} to {high}" if high > low else f"line {low}"
    elif first.address and last.address and first.kind != "param":
        title = f"{first.address} to {last.address}"
    else:
        title = f"{len(numbers):,} {first.kind}s"
    return Part(numbers, title, q.items[numbers[0]].cluster)


def _outer(q: Quotient, k: int) -> ViewNode:
    return q.view.nodes[q.items[k].members[0]]


def _show_one(q: Quotient, limit: int) -> None:
    """Opens the first of several boxes that look the same, where the limit allows."""
    alike: dict[object, list[int]] = {}
    for k, item in enumerate(q.items):
        if item.title is not None:
            alike.setdefault((item.token, item.title.split(" (")[0]), []).append(k)
    first = next((ks[0] for ks in alike.values() if len(ks) > 1 and _outer(q, ks[0]).kind not in ("param", "result")), None)
    if first is not None and len(q) + len(q.items[first].members) <= limit:
        q.open(first)


STEPS: tuple[tuple[str, Callable[[Quotient, int], bool]], ...] = (
    ("fusions", _fusions), ("names", _hierarchy), ("repeated blocks", _repeats), ("chains", _chains), ("frames", _frames),
    ("runs in source order", _ranges),
)  # fmt: skip
