"""Folding of operations that are one thing: an operator of the source, such as the `Conv` of an ONNX model or an `LSTM` with its
loops; a fused kernel; a chain of elementwise operations."""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.analysis.disjoint_sets import DisjointSets
from deepx_graph.viz.folding.blocks import contents
from deepx_graph.viz.folding.convex import convex_rows
from deepx_graph.viz.folding.quotient import FoldGroup, Quotient
from deepx_graph.viz.view.model import SourceOperator, ViewNode

SCAFFOLD = frozenset({"start", "param", "constant", "result"})
"""Kinds that belong to no operator."""


def by_operator(q: Quotient, limit: int) -> bool:
    """One box for what an operator of the source was read as, with the constants and weights that only it takes."""
    inputs, outputs = q.neighbours()
    same: DisjointSets[int] = DisjointSets()
    node = [q.outer(k) for k in range(len(q))]
    for k, n in enumerate(node):
        if n.kind == "op" and q.items[k].title is None and n.operator is not None:
            for i in inputs[k]:
                given = node[i]
                if (given.operator == n.operator and given.kind == "op" and q.items[i].title is None
                        and given.cluster == n.cluster and given.backward == n.backward):
                    same.union(i, k)
    groups: dict[int, list[int]] = {}
    for k, n in enumerate(node):
        if n.kind == "op" and q.items[k].title is None:
            groups.setdefault(same.find(k), []).append(k)
    for k, n in enumerate(node):
        if n.kind == "constant" or n.weight:
            users = {same.find(u) for u in outputs[k]}
            if len(users) == 1 and (user := users.pop()) in groups and n.cluster == node[user].cluster:
                groups[user].append(k)
    nodes = q.view.nodes
    parts = [FoldGroup(g, _title([nodes[q.items[k].members[0]] for k in g]), q.items[g[0]].cluster)
             for g in groups.values() if len(g) > 1]  # fmt: skip
    q.merge(parts)
    q.condense(lambda members: contents([q.view.nodes[m] for m in members]))
    return bool(parts)


def _title(members: Sequence[ViewNode]) -> str:
    """The sort of the operator, where the source tells it; else what is in it."""
    first = members[0].operator
    return first.kind if first is not None and first.kind else contents(members)


def with_loops(q: Quotient) -> bool:
    """One box for every operator of the source that was read as loops, with all that it has before and behind them and the weights
    that only it takes; none where the view is one operator, as that which its box opens to."""
    if not any(n.kind == "loop_begin" and n.operator is not None and n.operator.kind for n in q.view.nodes):
        return False
    operators: dict[SourceOperator, list[int]] = {}
    inputs, outputs = q.neighbours()
    order = q.order(inputs, outputs)
    for k in order:
        n = q.outer(k)
        if n.operator is not None and n.operator.kind and n.kind not in SCAFFOLD:
            operators.setdefault(n.operator, []).append(k)
    if len(operators) < 2:
        return False
    looped = [numbers for numbers in operators.values() if any(q.outer(k).kind == "loop_begin" for k in numbers)]
    frames = [(numbers, _frame(q, numbers)) for numbers in looped if len(convex_rows(numbers, order, inputs)) == 1]
    inside = {k: n for n, (numbers, _) in enumerate(frames) for k in numbers}
    rest: dict[int, list[int]] = {}
    for k in range(len(q)):
        n, owners = q.outer(k), {inside.get(u, -1) for u in outputs[k]}
        if ((n.kind == "constant" or n.weight) and len(owners) == 1) or (n.kind == "start" and -1 not in owners):
            rest.setdefault(min(owners), []).append(k)  # what starts all loops goes into the first
    q.merge(FoldGroup([*numbers, *rest.get(n, ())], _title([q.outer(numbers[0])]), frame)
            for n, (numbers, frame) in enumerate(frames))  # fmt: skip
    return bool(frames)


def _frame(q: Quotient, numbers: Sequence[int]) -> int | None:
    """The frame that an operator with its loops stands in."""
    loops = {q.outer(k).cluster for k in numbers if q.outer(k).kind == "loop_begin"}
    parent = {c.id: c.parent for c in q.clusters}
    at = q.outer(next(k for k in numbers if q.outer(k).kind == "loop_begin")).cluster
    while at in loops:
        at = parent[at] if at is not None else None
    return at


def by_kernel(q: Quotient, limit: int) -> bool:
    """One box for every fusion."""
    frames = {c.id: c for c in q.clusters if c.kind == "fusion"}
    parts = []
    for sequence in q.sequences():
        at = q.items[sequence[0]].cluster
        if at is not None and at in frames:
            inside = [q.view.nodes[m] for k in sequence for m in q.items[k].members]
            parts.append(FoldGroup(sequence, _kernel_title(frames[at].title, inside), frames[at].parent))
    q.merge(parts)
    return bool(parts)


def _kernel_title(frame: str, inside: Sequence[ViewNode]) -> str:
    """What a fused kernel is called: its name in the text, or what it computes where that is none or a number."""
    name = frame.removeprefix("fusion").strip()
    return frame if name and not name.isdigit() else f"fusion: {contents(inside)}"


def by_chain(q: Quotient, limit: int) -> bool:
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
    parts: list[FoldGroup] = []
    for head in after:
        if head not in inside:
            chain = [head]
            while chain[-1] in after:
                chain.append(after[chain[-1]])
            name = contents([q.view.nodes[m] for k in chain for m in q.items[k].members])
            parts.append(FoldGroup(sorted(chain), name, q.items[head].cluster))
    q.merge(parts)
    return bool(parts)
