"""Shortcuts of folding say what the plain way says: joined boxes, the order of items, how many boxes cones leave at least."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from deepx_graph.viz.folding.convex import joined_boxes
from deepx_graph.viz.folding.fold import _fewest_cones, _weights, _with_users
from deepx_graph.viz.folding.quotient import Quotient
from deepx_graph.viz.view.model import View, ViewEdge, ViewNode, topological

SEEDS = range(40)


def _inputs(rng: random.Random, count: int) -> list[list[int]]:
    """Operands from near before, as in chains, or from anywhere."""
    reach = rng.choice((2, 6, count))
    return [sorted({rng.randrange(max(0, k - reach), k) for _ in range(rng.randint(1, 2))}) if k else [] for k in range(count)]


@pytest.mark.parametrize("seed", SEEDS)
def test_boxes_are_joined_where_no_path_leads_through_a_third(seed: int) -> None:
    rng = random.Random(seed)
    inputs = _inputs(rng, 60)
    names = {k: rng.randrange(4) for k in range(60)}
    level: list[int] = []
    for k, some in enumerate(inputs):
        level.append(max((level[i] + (names[i] != names[k]) for i in some), default=0))
    boxes: dict[tuple[int, int], list[int]] = {}
    for k in range(60):
        boxes.setdefault((names[k], level[k]), []).append(k)
    graph = nx.DiGraph()
    graph.add_nodes_from(boxes)
    home = {k: b for b, members in boxes.items() for k in members}
    graph.add_edges_from((home[i], home[k]) for k, some in enumerate(inputs) for i in some if home[i] != home[k])
    expected = {b: list(members) for b, members in boxes.items()}
    last: dict[int, tuple[int, int]] = {}
    for b in sorted(boxes, key=lambda b: b[1]):
        a = last.get(b[0])
        if a is None or any(nx.has_path(graph, x, b) for x in graph.successors(a) if x != b):
            last[b[0]] = b
        else:
            graph = nx.contracted_nodes(graph, a, b, self_loops=False)
            expected[a] += expected.pop(b)
    assert dict(enumerate(joined_boxes(boxes, inputs, names))) == dict(enumerate(
        (b[0], expected[b]) for b in sorted(boxes, key=lambda b: b[1]) if b in expected))  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_items_stand_in_the_smallest_order(seed: int) -> None:
    rng = random.Random(seed)
    inputs = _inputs(rng, 50)
    number = list(range(50))
    if seed % 2:
        rng.shuffle(number)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(50))
    graph.add_edges_from((number[i], number[k]) for k, some in enumerate(inputs) for i in some)
    found = topological([graph.in_degree(k) for k in range(50)], [list(graph.successors(k)) for k in range(50)])
    assert found == list(nx.lexicographical_topological_sort(graph))


@pytest.mark.parametrize("seed", SEEDS)
def test_cones_leave_no_fewer_boxes_than_is_said_before(seed: int) -> None:
    rng = random.Random(seed)
    inputs = _inputs(rng, 80)
    given = rng.choice((1, 4, 20))
    nodes = [ViewNode(k, rng.choice(("param", "constant")), f"p{k}") if k < given else
             ViewNode(k, "result" if rng.random() < 0.05 else "call" if rng.random() < 0.05 else "op", "add",
                      family=rng.choice(("elementwise", "layout", "linear"))) for k in range(80)]  # fmt: skip
    edges = tuple(ViewEdge(i, k) for k, some in enumerate(inputs) for i in some if k >= given and nodes[i].kind != "result")
    q = Quotient(View(tuple(nodes), edges, ()))
    least = _fewest_cones(q)
    for heaviest in range(3):
        _with_users(q, heaviest)
        _weights(q, 0)
    assert least <= len(q)
