"""The list of rows with lanes: order, folds, and the picture beside it."""

from __future__ import annotations

import random

import pytest

import deepx_graph as dx
from deepx_graph.ir import Module, Node
from deepx_graph.ops import add, tanh
from deepx_graph.types import F32, tensor
from deepx_graph.viz.gutter import gutter, mark_of
from deepx_graph.viz.lanes import Listing, listing
from deepx_graph.viz.weave import LANES
from tests import viz_modules
from tests.generate import random_module


def picture(found: Listing) -> list[str]:
    lines = []
    for k in found.visible:
        row = found.rows[k]
        title = row.title or (row.node.op.name if row.node is not None else "")
        lines.append("".join(c for c, _ in gutter(row, found.lanes, mark_of(row))) + "  " * row.depth + title)
    return lines


def test_a_branch_and_its_sides_beside_their_lanes() -> None:
    assert picture(listing(viz_modules.branch())) == [
        "■     main",
        "▷       param",
        "│ ▷     param",
        "│ ●     compare",
        "│ ◇     if",
        "│ ┬       true",
        "├─●         sine",
        "│ │ ┬     false",
        "● │         negate",
        "◈─╯       region",
        "├─φ     phi",
        "φ       phi",
    ]


def test_effects_and_control_have_lanes_of_their_own_kind() -> None:
    lines = picture(listing(viz_modules.loop()))
    assert any("┊" in line for line in lines)
    turn = next(line for line in lines if "compare" in line)
    assert turn.split("compare")[0].rstrip() == "│ ●─┊─┤ │ ┊"


def test_every_node_has_one_row_and_stands_after_its_operands() -> None:
    for seed in range(12):
        module = random_module(random.Random(seed), max_ops=30)
        found = listing(module, numbers=True)
        for f in module.functions:
            at = [found.row_of[n] for n in f.nodes]
            assert len(set(at)) == len(f.nodes)
            own = dict(zip(f.nodes, at, strict=True))
            unread = [k for k, r in enumerate(found.rows) if r.title == "never computed" and r.function is f] or [len(found.rows)]
            for n in f.nodes:
                assert all(own[i] < own[n] or own[i] > unread[0] for i in n.inputs)


def test_lanes_stay_within_their_number_and_lead_from_row_to_row() -> None:
    for seed in range(12):
        for row in listing(random_module(random.Random(seed), max_ops=60)).rows:
            assert row.below.bit_count() <= LANES and row.lane <= LANES
            assert row.joins & ~row.above == 0  # what joins was there before
            assert row.below & ~(row.above | 1 << row.lane) == 0  # nothing comes from nowhere


def test_folds_hide_what_is_inside_and_showing_opens_them() -> None:
    found = listing(viz_modules.loop())
    loop = next(k for k, r in enumerate(found.rows) if r.title.startswith("loop"))
    everything = len(found.visible)
    assert found.toggle(loop)
    assert len(found.visible) == everything - found.rows[loop].inside
    assert not found.toggle(loop - 1)
    inner = loop + 3
    assert found.rows[inner].depth > found.rows[loop].depth
    assert found.head_of(inner) == loop
    assert found.place(inner) == found.visible.index(loop)
    at = found.show(inner)
    assert found.visible[at] == inner
    found.fold_all(lambda row: True)
    assert len(found.visible) == 1


def test_kernels_start_folded_and_hold_their_operations() -> None:
    found = listing(viz_modules.fused())
    kernel = next(k for k, r in enumerate(found.rows) if r.node is not None and r.inside)
    assert kernel in found.folded and mark_of(found.rows[kernel]) == "◆"
    before = len(found.visible)
    found.toggle(kernel)
    assert len(found.visible) == before + found.rows[kernel].inside


def test_numbers_have_rows_when_asked_for() -> None:
    without, within = listing(viz_modules.straight()), listing(viz_modules.straight(), numbers=True)
    assert len(within.rows) == len(without.rows) + 1


@pytest.mark.parametrize("depth", [20_000])
def test_long_programs_are_listed_without_recursion(depth: int) -> None:
    b = dx.Builder()

    def body(x: Node) -> list[Node]:
        for _ in range(depth):
            x = b(add, b(tanh, x), x)
        return [x]

    found = listing(Module((b.function("main", [("x", tensor(F32, (4,)))], body),)))
    assert len(found.visible) == 2 * depth + 2 and found.lanes == 2
