"""Repeated blocks of a program, such as the layers of a model: nodes that do the same, in the same order, get one decision.

A block is a stretch of the program that comes again and again right behind itself, by operations and types; parameters
that equal nodes take at equal places are equal, too.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.ir.structure import PARAM, index_of

LEAST_COVERED = 8
"""Repeats that cover fewer nodes are not worth it."""

MOST_NODES = 20_000
"""Longer programs are looked at by their scopes alone: the search is quadratic."""


def repeated(nodes: Sequence[Node]) -> dict[Node, Node]:
    """For each node that repeats an earlier one that first one; `nodes` in the order of the program, without parameters."""
    found: dict[Node, Node] = {}
    tokens = [_token(n) for n in nodes]
    numbers = {token: k for k, token in enumerate(dict.fromkeys(tokens))}
    ids = np.array([numbers[t] for t in tokens])
    _tie(nodes, ids, 0, len(nodes), found)
    return found | _parameters(nodes, found)


def _parameters(nodes: Sequence[Node], found: Mapping[Node, Node]) -> dict[Node, Node]:
    """The parameters that equal nodes take at equal places, each with the first of those that are equal to it."""
    firsts: dict[Node, Node] = {}

    def first_of(node: Node) -> Node:
        while node in firsts:
            node = firsts[node]
        return node

    for node in nodes:
        for mine, other in zip(node.inputs, found.get(node, node).inputs, strict=True):
            if mine.op is PARAM and other.op is PARAM and mine.type == other.type:
                a, b = sorted((first_of(mine), first_of(other)), key=index_of)
                if a is not b:
                    firsts[b] = a
    return {p: first_of(p) for p in firsts}


def _token(node: Node) -> Hashable:
    return node.op.name, str(node.type), tuple(str(i.type) for i in node.inputs)


def _tie(nodes: Sequence[Node], ids: np.ndarray, low: int, high: int, found: dict[Node, Node]) -> None:
    """The longest stretch that repeats itself, then what is before and behind it."""
    stack = [(low, high)]
    while stack:
        low, high = stack.pop()
        start, length, period = _longest(ids[low:high])
        if length < LEAST_COVERED:
            continue
        start += low
        for k in range(start + period, start + length):
            found[nodes[k]] = nodes[start + (k - start) % period]
        stack += [(low, start), (start + length, high)]


def _longest(ids: np.ndarray) -> tuple[int, int, int]:
    """Start, length and period of the stretch of whole periods that covers most; of equal ones that of the smallest period."""
    best = (0, 0, 1)
    count = min(len(ids), MOST_NODES)
    for period in range(1, count // 2 + 1):
        same = ids[period:count] == ids[: count - period]
        edges = np.flatnonzero(np.diff(np.concatenate(([0], same.astype(np.int8), [0]))))
        if not len(edges):
            continue
        starts, ends = edges[::2], edges[1::2]
        k = int(np.argmax(ends - starts))
        length = (int(ends[k] - starts[k]) + period) // period * period
        if length > best[1] and length >= 2 * period and len(set(ids[starts[k]: starts[k] + period])) > 1:
            best = int(starts[k]), length, period
    return best
