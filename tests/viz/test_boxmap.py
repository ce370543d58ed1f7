"""The focus map: which boxes there are, that none hides another, and that its lines lead from values to their users."""

from __future__ import annotations

import random

import pytest

import deepx_graph as dx
from deepx_graph.ir import Function, Node, Origin
from deepx_graph.ops import add, exponential, multiply, tanh
from deepx_graph.types import F32, tensor
from deepx_graph.viz.listing.boxmap import HUB, MOST, BoxMap, box_map, neighbourhood
from tests.support.generate import random_module

X = tensor(F32, (4,))


both_ways = pytest.mark.parametrize("sideways", [False, True])


def made(function: Function, centre: Node, depth: int = 2, sideways: bool = False) -> BoxMap:
    return box_map(function, centre, depth, lambda n: n.name or n.op.name, lambda n: "op", sideways=sideways)


def diamond() -> Function:
    """x -> a -> b, c -> d."""
    b = dx.Builder()

    def named(name: str, *arguments: object) -> Node:
        b.origin = Origin(name)
        return b(*arguments)  # type: ignore[arg-type]

    def body(x: Node) -> list[Node]:
        a = named("a", tanh, x)
        return [named("d", add, named("b", tanh, a), named("c", exponential, a))]

    return b.function("main", [("x", X)], body)


def test_a_diamond_is_drawn() -> None:
    f = diamond()
    assert str(made(f, f.nodes[1], 3)).split("\n") == [
        "    ┌───┐",
        "    │ x │",
        "    └─┬─┘",
        "      │",
        "    ┌─▼─┐",
        "    │ a │",
        "    └─┬─┘",
        "   ┌──┴──┐",
        "┌──▼┐   ┌▼──┐",
        "│ b │   │ c │",
        "└─┬─┘   └─┬─┘",
        "  └─┐   ┌─┘",
        "   ┌▼───▼┐",
        "   │  d  │",
        "   └─────┘",
    ]


def test_a_diamond_from_left_to_right() -> None:
    f = diamond()
    assert str(made(f, f.nodes[1], 3, sideways=True)).split("\n") == [
        "            ┌───┐",
        "           ┌▶ b ├┐",
        "           │└───┘│┌───┐",
        "┌───┐ ┌───┐│     └▶   │",
        "│ x ├─▶ a ├┤     ┌▶ d │",
        "└───┘ └───┘│     │└───┘",
        "           │┌───┐│",
        "           └▶ c ├┘",
        "            └───┘",
    ]


@both_ways
def test_boxes_do_not_overlap_and_every_edge_arrives(sideways: bool) -> None:
    for seed in range(40):
        f = random_module(random.Random(seed), max_ops=40).entry
        centre = random.Random(seed).choice(f.nodes)
        found = made(f, centre, 3, sideways)
        taken: set[tuple[int, int]] = set()
        for box in found.boxes.values():
            cells = {(x, y) for x in range(box.x, box.x + box.width) for y in range(box.y, box.y + box.height)}
            assert not taken & cells
            taken |= cells
            arrows = sum(found.rows[y][x].char == ("▶" if sideways else "▼") for x, y in cells)
            assert arrows == len({i for i in box.node.inputs if i in found.boxes})
            assert all(found.boxes[i].layer < box.layer for i in box.node.inputs if i in found.boxes)


@both_ways
def test_lines_lead_from_each_value_to_its_users(sideways: bool) -> None:
    """Before every arrow there is a line of one of the operands."""
    for seed in range(40):
        f = random_module(random.Random(seed), max_ops=30).entry
        found = made(f, f.nodes[len(f.nodes) // 2], 2, sideways)
        for box in found.boxes.values():
            edge = [(box.x, y) for y in range(box.y, box.y + box.height)] if sideways else \
                [(x, box.y) for x in range(box.x, box.x + box.width)]
            arrows = [(x, y) for x, y in edge if found.rows[y][x].char in "▼▶"]
            nets = {found.rows[y][x - 1].net if sideways else found.rows[y - 1][x].net for x, y in arrows}
            assert nets <= set(box.node.inputs)


def test_a_map_is_bounded_and_does_not_go_through_hubs() -> None:
    b = dx.Builder()

    def body(x: Node, w: Node) -> list[Node]:
        for _ in range(200):
            x = b(tanh, b(multiply, x, w))
        return [x]

    f = b.function("main", [("x", X), ("w", X)], body)
    middle = f.nodes[200]
    nodes, left = neighbourhood(f, middle, 2)
    assert left == 0 and len(nodes) < HUB  # the weight is there, its 200 users are not
    assert len(neighbourhood(f, f.params[1], 2)[0]) == MOST
    assert neighbourhood(f, f.params[1], 2)[1] > 0
