"""Folding keeps its bound on graphs of every shape, loses no node, and says what it did."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepx_graph as dx
from bench.models.gpt import gpt
from bench.scaling import growth
from deepx_graph.errors import Place, Source, Span, counted
from deepx_graph.ir import Builder, Node, Origin
from deepx_graph.ops import add, exponential, multiply, negate, tanh
from deepx_graph.types import F32
from deepx_graph.viz import View, build_view, fold
from deepx_graph.viz.folding.blocks import best_period, runs
from deepx_graph.viz.folding.fold import ALMOST, OVERVIEW, fold_inside, inline_hubs
from deepx_graph.viz.folding.quotient import Quotient
from deepx_graph.viz.page.folds import folds_of
from deepx_graph.viz.view.frames import in_halves
from tests.support import viz_modules as programs
from tests.support.viz_shapes import SHAPES, has_cycle


def checked(view: View, limit: int) -> View:
    folded = fold(view, limit)
    assert len(folded.nodes) <= limit
    assert sum(n.size for n in folded.nodes) == sum(n.size for n in view.nodes)
    assert [n.id for n in folded.nodes] == list(range(len(folded.nodes)))
    known = {c.id for c in folded.clusters}
    assert all(n.cluster is None or n.cluster in known for n in folded.nodes)
    assert all(c.parent is None or c.parent in known for c in folded.clusters)
    assert all(e.source != e.target for e in folded.edges)
    if len(view.nodes) > limit:
        drawn = counted(len(folded.nodes), "box", "boxes")
        assert folded.notes[-1].startswith(f"folded: {len(view.nodes):,} nodes drawn as {drawn} (")
    return folded


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("limit", [4, 60, 500])
def test_the_bound_holds(shape: str, limit: int) -> None:
    checked(build_view(SHAPES[shape]()), limit)


@pytest.mark.parametrize("length", [15_000, pytest.param(100_000, marks=pytest.mark.conformance)])
def test_a_program_of_any_length(length: int) -> None:
    folded = checked(build_view(programs.chain(length)), 500)
    assert [n.title for n in folded.nodes if n.kind == "group"] == [f"exponential + negate + tanh ×{length // 3:,}"]


def test_names_make_the_first_groups() -> None:
    folded = fold(build_view(programs.chain(100, names="net.layer{layer}.op{k}")), 30)
    groups = [(n.title, n.size) for n in folded.nodes if n.kind == "group"]
    assert groups == [(f"layer{k}", 10) for k in range(10)]
    assert "(scopes)" in folded.notes[-1]


def test_layers_are_found_and_the_first_is_left_open() -> None:
    b = Builder()

    def body(x: Node, w: Node) -> list[Node]:
        for _ in range(12):
            h = x
            for op in (tanh, negate, tanh, tanh, negate):
                h = b(op, h)
            x = b(add, b(add, x, h), w)
        return [x]

    view = build_view(programs.module(b.function("main", [("x", programs.MATRIX), ("w", programs.MATRIX)], body)))
    folded = fold(view, 40)
    assert [n.title for n in folded.nodes if n.kind == "group"] == ["tanh + add + negate ×11 (after the first)"]
    (opened,) = (c for c in folded.clusters if c.kind == "block")
    assert [n.title for n in folded.nodes if n.cluster == opened.id] == ["tanh", "negate", "tanh", "tanh", "negate", "add", "add"]


@pytest.mark.parametrize("layers", [12, 24])
def test_a_language_model_becomes_one_box_for_its_layers(layers: int) -> None:
    """Read from HLO without telling names; the outline of such a model is known: embedding, equal layers, a norm, logits."""
    view = build_view(dx.loads(dx.dumps(gpt(layers), "hlo")))
    folded = checked(view, 79)
    (box,) = (n for n in folded.nodes if n.kind == "group")
    assert box.title == f"norm + attention + mlp ×{layers}"
    assert box.subtitle.startswith(f"{box.size:,} nodes, {12 * layers} parameters\n")
    assert box.size % layers == 0
    weights = {view.nodes[m].name for m in box.members if view.nodes[m].kind == "param"}
    assert weights == {f"p{k}" for k in range(3, 3 + 12 * layers)}
    opened = checked(view, 500)
    assert [c.title for c in opened.clusters if c.kind == "block"] == [f"norm + attention + mlp (1 of {layers})"]
    inside = fold_inside(view.only(box.members), 79)
    titles = [n.title for n in inside.nodes if n.kind == "group"]
    assert titles == [f"norm + attention + mlp ({k + 1} of {layers})" for k in range(layers)]


def test_a_box_of_parameters_says_which() -> None:
    view = in_halves(build_view(dx.optimize(dx.grad(gpt(4)), "clean")))
    boxes = [n for n in fold(view, 40).nodes if n.kind == "group" and all(view.nodes[m].kind == "param" for m in n.members)]
    assert len(boxes) > 3
    for n in boxes:
        first, last = (view.nodes[n.members[k]].title for k in (0, -1))
        assert n.subtitle.startswith(f"{first} … {last}")
        assert n.tip.startswith(f"{len(n.members)} nodes")


@pytest.mark.parametrize("graph", ["fan", "layered"])
def test_a_box_opens_as_several_of_which_none_is_almost_all_of_it(graph: str) -> None:
    """Where neither names nor repeats nor joins tell parts, all is one box; what it opens to must not be that box again."""
    folds = folds_of(build_view(dx.loads(growth.SHAPES[graph](3000))))
    assert folds.inside
    for members, k in folds.inside.items():
        assert max(len(n.members) for n in folds.folded[k].nodes) <= ALMOST * len(members)
    assert sum(map(len, folds.inside)) <= 3 * len(folds.view.nodes), "few levels show all of it"


def test_one_picture_is_made_however_often_folding_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Quotient] = []
    to_view = Quotient.to_view
    monkeypatch.setattr(Quotient, "to_view", lambda q: made.append(q) or to_view(q))
    fold_inside(build_view(dx.loads(growth.layered(3000))), OVERVIEW)  # one box at first, as nothing tells parts: cut in runs then
    assert len(made) == 1


def test_members_are_the_nodes_of_the_view_before() -> None:
    view = build_view(programs.tangle(2500))
    assert sorted(m for n in fold(view, 60).nodes for m in n.members) == [n.id for n in view.nodes]


def test_chains_of_elementwise_ops() -> None:
    b = Builder()

    def body(*xs: Node) -> list[Node]:
        return [b(tanh, b(negate, b(add, x, b.constant(float(k), F32)))) for k, x in enumerate(xs)]

    view = build_view(programs.module(b.function("main", [(f"x{k}", programs.MATRIX) for k in range(3)], body)))
    folded = fold(view, 10)
    assert [n.title for n in folded.nodes if n.kind == "group"] == ["add + negate + tanh"] * 3


def test_a_hub_is_named_in_its_users() -> None:
    view = inline_hubs(build_view(programs.wide(20)))
    assert all("takes x" in n.subtitle for n in view.nodes if n.kind == "op")
    assert [e for e in view.edges if view.nodes[e.source].kind == "param"] == []
    assert view.notes == ("x: written into the boxes that take it, not drawn as edges",)
    small = build_view(programs.wide(5))
    assert inline_hubs(small) is small


@pytest.mark.parametrize(("text", "period", "found"), [
    ("abcabcabc", 3, [(0, 3)]),
    ("xxabcdabcdyy", 4, [(2, 2)]),
    ("abababab" + "q" + "abababab", 2, [(0, 4), (9, 4)]),
    ("abcdef", 0, []),
    ("", 0, []),
    ("aabbaabbaabb", 4, [(0, 3)]),
    ("abac" * 4 + "z" + "abac" * 4 + "z", 17, [(0, 2)]),
])  # fmt: skip
def test_periods(text: str, period: int, found: list[tuple[int, int]]) -> None:
    assert best_period(text) == (period, found)


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_runs_repeat_and_do_not_overlap(ids: list[int], period: int) -> None:
    free = 0
    for start, repeats in runs(ids, period):
        assert start >= free
        assert repeats >= 2
        free = start + repeats * period
        assert free <= len(ids)
        block = ids[start : start + period]
        assert ids[start:free] == block * repeats


def operators(kinds: list[str], nodes: int = 3) -> dx.Module:
    """A chain of operators of a source that were read as so many nodes each."""
    source = Source("model.onnx", "")
    b = Builder()

    def body(x: Node) -> list[Node]:
        for k, kind in enumerate(kinds):
            b.origin = Origin("", (Span(source, k, k + 1, Place(kind=kind)),))
            for _ in range(nodes):
                x = b(tanh, x)
        return [x]

    return programs.module(b.function("main", [("x", programs.MATRIX)], body))


def test_what_an_operator_was_read_as_is_one_box_of_its_name() -> None:
    kinds = [f"Op{k}" for k in range(30)]
    view = build_view(operators(kinds))
    folded = fold(view, OVERVIEW)
    assert [n.title for n in folded.nodes if n.kind == "group"] == kinds
    assert all(len(n.members) == 3 for n in folded.nodes if n.kind == "group")


def test_a_program_without_names_or_repeats_is_cut_at_its_joins() -> None:
    b = Builder()

    def body(x: Node) -> list[Node]:
        x = b(tanh, x)
        for k in range(20):
            h = x
            for _ in range(3 + k):
                h = b(negate, b(tanh, h))
            x = b(add, x, h)
        return [x]

    view = build_view(programs.module(b.function("main", [("x", programs.MATRIX)], body)))
    folded = fold(view, 40)
    nodes = {n.id: n for n in view.nodes}
    ends = [max(n.members) for n in folded.nodes if n.kind == "group"]
    assert len(ends) == 20
    assert all(nodes[end].title == "add" for end in ends), "each box ends with the sum that closes it"


def test_many_siblings_of_one_name_are_one_box_whatever_they_hold() -> None:
    b = Builder()

    def body(x: Node) -> list[Node]:
        for k in range(2000):
            for op in (tanh, negate, exponential)[: 1 + k % 3]:
                b.origin = Origin(f"net/layer_{k}/{op.name}")
                x = b(op, x)
        b.origin = Origin("net/head/tanh")
        return [b(tanh, x)]

    view = build_view(programs.module(b.function("main", [("x", programs.MATRIX)], body)))
    folded = fold(view, 40)
    titles = [n.title for n in folded.nodes if n.kind == "group"]
    assert titles == [f"layer_{k} to layer_{k + 99}" for k in range(0, 2000, 100)]


def test_boxes_of_one_name_say_where_they_are() -> None:
    b = Builder()

    def body(x: Node) -> list[Node]:
        for part in ("encoder", "decoder"):
            for k in range(8):
                b.origin = Origin(f"{part}/{'layer' if k < 4 else f'end_{part}'}/tanh")
                x = b(tanh, x)
        return [x]

    view = build_view(programs.module(b.function("main", [("x", programs.MATRIX)], body)))
    folded = fold(view, 8)
    assert [n.title for n in folded.nodes if n.kind == "group"] == ["encoder/layer", "end_encoder", "decoder/layer", "end_decoder"]


def test_what_lies_between_two_parts_of_a_scope_is_of_it() -> None:
    """A sum right in the model, which takes from a module and feeds only the same, would else cut it in two."""
    b = Builder()

    def body(x: Node) -> list[Node]:
        for k in range(6):
            skip = x
            for part in (f"block_{k}/first", "", f"block_{k}/second"):
                b.origin = Origin(f"net/{part}/op" if part else "net/op")
                x = b(tanh, x) if part else b(add, x, skip)
                x = b(negate, x) if part else x
        return [x]

    view = build_view(programs.module(b.function("main", [("x", programs.MATRIX)], body)))
    folded = fold(view, 10)
    assert [n.title for n in folded.nodes if n.kind == "group"] == ["first", "second", "block_1 to block_5 ×5"]
    assert not has_cycle(folded)


def test_the_results_of_two_functions_are_two_boxes() -> None:
    b = Builder()

    def body(x: Node) -> list[Node]:
        results = []
        for k in range(30):
            b.origin = Origin(f"net/part_{k % 3}/tanh")
            x = b(tanh, x)
            results.append(x)
        return results

    twice = [b.function(name, [("x", programs.MATRIX)], body) for name in ("main", "other")]
    folded = fold(build_view(dx.Module(tuple(twice))), 30)
    assert [n.title for n in folded.nodes if n.title.endswith("results")] == ["30 results"] * 2
    assert len({n.cluster for n in folded.nodes if n.title.endswith("results")}) == 2


def test_a_small_program_without_names_is_not_one_box() -> None:
    """Two equal halves that feed each other: a block that repeats holds nearly all, cones show how values meet."""
    b = Builder()

    def body(x: Node) -> list[Node]:
        y = x
        for _ in range(2):
            pull = b(tanh, b(negate, b(multiply, b(add, x, y), x)))
            for _ in range(6):
                pull = b(multiply, b(tanh, pull), b(negate, y))
            y = b(add, y, b(multiply, pull, x))
            x = b(add, x, y)
        return [x, y]

    view = build_view(programs.module(b.function("main", [("x", programs.MATRIX)], body)))
    assert OVERVIEW < len(view.nodes) <= 100
    folded = fold(view, OVERVIEW)
    assert len(folded.nodes) <= OVERVIEW
    assert max(len(n.members) for n in folded.nodes) <= len(view.nodes) // 2
