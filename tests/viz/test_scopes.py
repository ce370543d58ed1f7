"""Pictures by name scopes: boxes are modules, no path leaves one and comes back, helpers are open where they are called."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deepx_graph as dx
from deepx_graph.ir import Builder, Module, Node, Origin
from deepx_graph.ops import add, negate, tanh
from deepx_graph.viz import View, build_view, fold
from deepx_graph.viz.draw import view_of
from deepx_graph.viz.folding.scopes import stem
from deepx_graph.viz.page.folds import folds_of
from tests.support import viz_modules as programs
from tests.support.viz_shapes import has_cycle

NAMES = ("net/a_0/x", "net/a_0/y", "net/a_1/x", "net/b/x", "net/b/c/x", "net/x", "other/x", "up/down_conv/x", "up/down_norm/x",
         "plain")  # fmt: skip


@st.composite
def scoped(draw: st.DrawFn) -> Module:
    """A graph of up to sixty operations whose names put them into scopes at random."""
    b = Builder()
    size = draw(st.integers(1, 60))
    picks = [(draw(st.sampled_from(NAMES)), draw(st.integers(0, k + 1)), draw(st.integers(0, k + 1))) for k in range(size)]

    def body(x: Node, w: Node) -> list[Node]:
        values = [x, w]
        for k, (name, left, right) in enumerate(picks):
            b.origin = Origin(f"{name}{k}")
            values.append(b(add, b(negate, values[left]), values[right]) if k % 3 else b(tanh, values[left]))
        return values[-3:]

    return programs.module(b.function("main", [("x", programs.MATRIX), ("p['net']['b']['w']", programs.MATRIX)], body))


@settings(max_examples=150, deadline=None)
@given(module=scoped(), limit=st.integers(4, 60))
def test_boxes_are_convex_and_nothing_is_lost(module: Module, limit: int) -> None:
    view = build_view(module)
    folded = fold(view, limit)
    assert not has_cycle(folded)
    assert len(folded.nodes) <= max(4, limit)
    assert sum(n.size for n in folded.nodes) == sum(n.size for n in view.nodes)


def layers(count: int) -> Module:
    """Layers of three operations named by JAX's conventions, each with a weight."""
    b = Builder()

    def body(x: Node, *weights: Node) -> list[Node]:
        for k, w in enumerate(weights):
            b.origin = Origin(f"Net/Layer_{k}/Norm_0/neg")
            normal = b(negate, x)
            b.origin = Origin(f"Net/Layer_{k}/Dense_0/add")
            x = b(add, b(tanh, normal), w)
        return [x]

    inputs = [("x", programs.MATRIX), *((f"p['Net']['Layer_{k}']['w']", programs.MATRIX) for k in range(count))]
    return programs.module(b.function("main", inputs, body))


def test_equal_layers_are_one_box_and_the_first_is_open() -> None:
    folded = fold(build_view(layers(12)), 20)
    assert [(n.title, n.kind) for n in folded.nodes] == [
        ("x", "param"), ("negate", "op"), ("Dense_0", "group"), ("Layer_1 to Layer_11 ×11", "group"),
        ("Net/Layer_11/Dense_0/add", "result"),
    ]  # fmt: skip
    assert [c.title for c in folded.clusters] == ["function main", "Layer_0"]
    row = folded.nodes[3]
    assert (row.size, row.subtitle.split("\n")[0]) == (44, "44 nodes, 11 parameters")


def test_layers_are_in_the_order_of_data_not_of_names() -> None:
    folded = fold(build_view(layers(12)), 16)
    order = [n.title for n in folded.nodes if n.title.startswith("Layer")]
    assert order == ["Layer_1 to Layer_11 ×11"]


def test_few_modules_too_many_are_joined_with_their_neighbours_the_smallest_first() -> None:
    """Of fourteen modules in a chain, the input and the result, fourteen boxes are left: only the two smallest pairs are joined."""
    words = ("stem", "ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kiwi", "lynx", "mole")
    b = Builder()

    def body(x: Node) -> list[Node]:
        for k, word in enumerate(words):
            b.origin = Origin(f"Net/{word}/tanh")
            for _ in range(2 if word in ("dog", "eel", "jay", "kiwi") else 3 + k):
                x = b(tanh, x)
        return [x]

    folded = fold(build_view(programs.module(b.function("main", [("x", programs.MATRIX)], body))), 14)
    titles = [n.title for n in folded.nodes if n.kind == "group"]
    expected = [w for w in words if w not in ("eel", "kiwi")]
    assert sorted(titles) == sorted({"dog": "dog to eel", "jay": "jay to kiwi"}.get(w, w) for w in expected)


def test_a_box_opens_to_the_scopes_in_it_as_they_are_fed() -> None:
    """What takes data from outside of a box is no constant inside of it, to be drawn into its reader."""
    b = Builder()

    def body(x: Node, *weights: Node) -> list[Node]:
        for k, w in enumerate(weights):
            for module in ("Norm_0", "Dense_0"):
                b.origin = Origin(f"Net/Layer_{k}/{module}/f")
                x = b(tanh, b(negate, b(add, x, w)))
        return [x]

    inputs = [("x", programs.MATRIX), *((f"p['Net']['Layer_{k}']['w']", programs.MATRIX) for k in range(12))]
    folds = folds_of(build_view(programs.module(b.function("main", inputs, body))), 20)

    def inside(title: str, fold: View) -> View:
        return folds.folded[next(folds.inside[n.members] for n in fold.nodes if n.title == title)]

    row = inside("Layer_1 to Layer_11 ×11", folds.folded[0])
    assert [n.title for n in row.nodes] == [f"Layer_{k}" for k in range(1, 12)]
    for k in (1, 7):
        assert [(n.title, n.size) for n in inside(f"Layer_{k}", row).nodes] == [("Norm_0", 4), ("Dense_0", 3)]


@pytest.mark.parametrize(("name", "expected"), [("Blk_3", "Blk"), ("layer12", "layer"), ("7", "7"), ("Dense", "Dense")])
def test_stems(name: str, expected: str) -> None:
    assert stem(name) == expected


HELPERS = """
HloModule m
helper { a = f32[4] parameter(0)  ROOT t = f32[4] tanh(a) }
dead { a = f32[4] parameter(0)  ROOT t = f32[4] exponential(a) }
ENTRY main {
  x = f32[4] parameter(0)
  one = f32[4] call(x), to_apply=helper
  two = f32[4] call(one), to_apply=helper
  ROOT out = f32[4] add(one, two)
}
"""


def test_small_helpers_are_open_where_they_are_called_and_dead_functions_out_of_sight() -> None:
    view = view_of(dx.loads(HELPERS), None, None, None, 2, collapse=False, title="")
    assert [n.title for n in view.nodes] == ["x", "tanh", "tanh", "add", "out"]
    assert [n.address for n in view.nodes if n.title == "tanh"] == ["helper#1", "helper#1"]
    assert [c.title for c in view.clusters] == ["function main"]
    titles = {n.id: n.title for n in view.nodes}
    assert sorted((titles[e.source], titles[e.target]) for e in view.edges) == [
        ("add", "out"), ("tanh", "add"), ("tanh", "add"), ("tanh", "tanh"), ("x", "tanh"),
    ]  # fmt: skip


RECURSIVE = """
def @f(%x: Tensor[(4), float32], %n: int32) -> Tensor[(4), float32] {
  if (less(%n, 1)) { %x } else { @f(tanh(%x), subtract(%n, 1)) }
}
def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { @f(%x, 3) }
"""


def test_recursion_stays_a_call() -> None:
    view = view_of(dx.loads("#[version = \"0.0.5\"]\n" + RECURSIVE), None, None, None, 2, collapse=False, title="")
    assert sum(n.kind == "call" for n in view.nodes) == 2
    assert {c.title for c in view.clusters if c.parent is None} == {"function main", "function f"}
