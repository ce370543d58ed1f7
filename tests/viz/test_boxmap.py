"""The focus map: which boxes there are, that none hides another, and that its lines lead from values to their users."""

from __future__ import annotations

import random

import deepx_graph as dx
from deepx_graph.ir import Function, Node, Origin
from deepx_graph.ops import add, exponential, multiply, tanh
from deepx_graph.types import F32, tensor
from deepx_graph.viz.listing.boxmap import HUB, MOST, BoxMap, box_map, neighbourhood
from tests.support.generate import random_module

X = tensor(F32, (4,))


def made(function: Function, centre: Node, depth: int = 2) -> BoxMap:
    return box_map(function, centre, depth, lambda n: n.name or n.op.name, lambda n: "op")


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


def test_boxes_do_not_overlap_and_every_edge_arrives() -> None:
    for seed in range(40):
        f = random_module(random.Random(seed), max_ops=40).entry
        centre = random.Random(seed).choice(f.nodes)
        found = made(f, centre, 3)
        taken: set[tuple[int, int]] = set()
        for box in found.boxes.values():
            cells = {(x, y) for x in range(box.x, box.x + box.width) for y in range(box.y, box.y + 3)}
            assert not taken & cells
            taken |= cells
            arrows = sum(found.rows[box.y][x].char == "▼" for x in range(box.x, box.x + box.width))
            assert arrows == len({i for i in box.node.inputs if i in found.boxes})
            assert all(found.boxes[i].layer < box.layer for i in box.node.inputs if i in found.boxes)


def test_lines_lead_from_each_value_to_its_users() -> None:
    """Above every arrow there is a line of one of the operands."""
    for seed in range(40):
        f = random_module(random.Random(seed), max_ops=30).entry
        found = made(f, f.nodes[len(f.nodes) // 2], 2)
        for box in found.boxes.values():
            nets = {found.rows[box.y - 1][x].net for x in range(box.x, box.x + box.width) if found.rows[box.y][x].char == "▼"}
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
