"""Dominators are what every way to a node leads through: those found are held against all ways, one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator

from deepx_graph.analysis.dominators import Dominators
from deepx_graph.ir import Builder, Node
from deepx_graph.ops import add, exponential, negate
from deepx_graph.types import F32, tensor


def graph(rng: random.Random) -> list[Node]:
    """Sums, negations and exponentials of values before them."""
    b = Builder(peephole=False)
    values = [b.param(k, tensor(F32, (4,))) for k in range(2)]
    for _ in range(14):
        op = rng.choice([add, negate, exponential])
        values.append(b(op, *(rng.choice(values[-5:]) for _ in range(2 if op is add else 1))))
    return list(dict.fromkeys(values))


def ways(node: Node) -> Iterator[frozenset[Node]]:
    """The nodes of each way to a node from an exponential, where none but the first of a way is one."""
    if node.op is exponential:
        yield frozenset({node})
        return
    for i in set(node.inputs):
        for way in ways(i):
            yield way | {node}


def test_every_way_leads_through_the_dominators() -> None:
    several = 0
    for seed in range(60):
        nodes = graph(random.Random(seed))
        found = Dominators(nodes, lambda n: n.op is exponential)
        for n in nodes:
            whole = list(ways(n))
            expected = frozenset.intersection(*whole) if whole else frozenset()
            dominators = list(found.of(n))
            assert set(dominators) == expected
            assert [found.depth[d] for d in dominators] == list(range(len(dominators), 0, -1)), "the nearest first"
            several += len(whole) > 1 and len(expected) > 1
    assert several > 20
