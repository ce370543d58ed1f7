"""The list of rows with lanes: order, folds, and the picture beside it."""

from __future__ import annotations

import random

import pytest

import deepx_graph as dx
from deepx_graph.ir import Module, Node
from deepx_graph.ops import add, tanh
from deepx_graph.types import F32, tensor
from deepx_graph.viz.listing.lanes import LANES, gutter, mark_of
from deepx_graph.viz.listing.listing import Listing, listing
from tests.support import viz_modules
from tests.support.generate import random_module


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
    iteration = next(line for line in lines if "compare" in line)
    assert iteration.split("compare")[0].rstrip() == "│ ●─┊─┤ │ ┊"


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
    assert len(found.row_of) == 2 * depth + 1 and found.lanes == 2
    assert [found.rows[k].title for k in found.visible] == ["main", "", f"add + tanh ×{depth:,}, each of 2 rows"]
    found.fold_all(lambda row: False)
    assert len(found.visible) == len(found.rows) == 2 * depth + 3


def layered(layers: int) -> Module:
    """A network of equal layers of six operations, each with two parameters."""
    lines = ["sea 1", "entry @f"]
    weights = ", ".join(f"%w{k}: f32[4,4], %b{k}: f32[4,4]" for k in range(layers))
    lines.append(f"func public @f(%x: f32[4,4], {weights}) -> (%y{layers}: f32[4,4]) {{")
    lines.append("  %y0 = tanh %x : f32[4,4]")
    for k in range(layers):
        lines += [f"  %a{k} = multiply %y{k}, %w{k} : f32[4,4]", f"  %c{k} = add %a{k}, %b{k} : f32[4,4]",
                  f"  %d{k} = tanh %c{k} : f32[4,4]", f"  %e{k} = exponential %d{k} : f32[4,4]",
                  f"  %g{k} = negate %e{k} : f32[4,4]", f"  %y{k + 1} = add %g{k}, %y{k} : f32[4,4]"]  # fmt: skip
    return dx.loads("\n".join([*lines, f"  return %y{layers}", "}"]))


def test_equal_layers_are_one_row_that_unfolds_into_each() -> None:
    found = listing(layered(12))
    shown = [found.rows[k] for k in found.visible]
    assert [r.title or (r.node is not None and r.node.op.name) for r in shown] == [
        "f", "25 parameters", "tanh",
        "add + exponential + multiply + … ×12, each of 6 rows"]  # fmt: skip
    assert len(found.row_of) == 25 + 1 + 12 * 6
    assert found.toggle(found.visible[-1])
    assert [found.rows[k].title for k in found.visible[-12:]] == [
        f"add + exponential + multiply + … ({k} of 12)" for k in range(1, 13)]  # fmt: skip
    assert found.toggle(found.visible[-1])
    assert [r.node.op.name for k in found.visible[-6:] if (r := found.rows[k]).node is not None] == [
        "multiply", "add", "tanh", "exponential", "negate", "add"]  # fmt: skip


def test_a_node_in_a_block_is_shown_by_unfolding_what_hides_it() -> None:
    module = layered(12)
    found = listing(module)
    node = next(n for n in module.entry.nodes if n.name == "e7")
    place = found.show(found.row_of[node])
    assert found.rows[found.visible[place]].node is node


def test_what_is_short_or_never_the_same_is_not_folded() -> None:
    assert not any(r.kind in ("block", "repeat") for r in listing(layered(2)).rows)
