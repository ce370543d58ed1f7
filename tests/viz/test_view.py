"""What a picture shows: boxes, edges and frames of each construct, counted by hand."""

from __future__ import annotations

from collections import Counter

import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Origin
from deepx_graph.ops import negate, reduce_window, tanh
from deepx_graph.viz import View, build_view, fold
from deepx_graph.viz.view.labels import attr_texts
from deepx_graph.viz.view.model import around
from tests.support import viz_modules as programs


def kinds(view: View) -> Counter[str]:
    return Counter(n.kind for n in view.nodes)


def titled(view: View, title: str) -> int:
    (found,) = (n.id for n in view.nodes if n.title == title)
    return found


def frame(view: View, id: int) -> str:
    cluster = view.nodes[id].cluster
    return next(c.kind + " " + c.title for c in view.clusters if c.id == cluster)


def test_straight_line() -> None:
    view = build_view(programs.straight())
    assert kinds(view) == {"param": 2, "op": 3, "result": 1}
    assert [(view.nodes[e.source].title, view.nodes[e.target].title, e.kind, e.label) for e in view.edges] == [
        ("x", "add", "data", "f32[4,8]"),
        ("w", "add", "data", "f32[4,8]"),
        ("add", "tanh", "data", "f32[4,8]"),
        ("tanh", "multiply(·, 0.125)", "data", "f32[4,8]"),
        ("multiply(·, 0.125)", "y", "data", "f32[4,8]"),
    ]
    assert [c.kind for c in view.clusters] == ["function"]


def test_edges_go_forward_but_the_back_edge() -> None:
    for module in (programs.branch(), programs.loop(), programs.fused(), programs.calls()):
        view = build_view(module)
        assert [n.id for n in view.nodes] == list(range(len(view.nodes)))
        assert all((e.source < e.target) == (e.kind != "back") for e in view.edges)


def test_a_branch_shows_if_sides_region_and_phis() -> None:
    view = build_view(programs.branch())
    assert kinds(view) == {"param": 2, "op": 3, "start": 1, "if": 1, "side": 2, "region": 1, "phi": 2, "result": 2}
    control = {(view.nodes[e.source].title, view.nodes[e.target].title) for e in view.edges if e.kind == "control"}
    assert control == {
        ("compare(·, 0)", "if"), ("start", "if"), ("if", "true"), ("if", "false"), ("true", "region"), ("false", "region"),
        ("region", "φ"),
    }  # fmt: skip
    assert frame(view, titled(view, "sine")) == "branch branch true"
    assert frame(view, titled(view, "negate")) == "branch branch false"
    assert frame(view, titled(view, "if")) == "function function main"
    data = [(view.nodes[e.source].title, view.nodes[e.target].kind, e.label) for e in view.edges if e.kind == "data"]
    into_phi = [(title, label) for title, kind, label in data if kind == "phi"]
    assert into_phi == [("sine", "true f32[4,8]"), ("negate", "false f32[4,8]")]
    assert any(n.kind == "phi" and n.subtitle == "true 2, false 3" for n in view.nodes)


def test_a_loop_shows_its_head_phis_end_and_back_edge() -> None:
    view = build_view(programs.loop())
    assert kinds(view)["loop_begin"] == kinds(view)["loop_end"] == kinds(view)["start"] == 1
    assert kinds(view)["phi"] == 3
    (back,) = (e for e in view.edges if e.kind == "back")
    assert (view.nodes[back.source].kind, view.nodes[back.target].kind) == ("loop_end", "loop_begin")
    assert all(frame(view, n.id).startswith("loop") for n in view.nodes if n.kind in ("loop_begin", "loop_end", "phi"))
    assert frame(view, titled(view, "print")).startswith("loop")
    effects = [(view.nodes[e.source].kind, view.nodes[e.target].kind) for e in view.edges if e.kind == "effect"]
    assert effects == [
        ("param", "phi"), ("phi", "op"), ("op", "loop_end"), ("loop_end", "proj"), ("proj", "result"), ("start", "param"),
    ]  # fmt: skip
    assert [e.label for e in view.edges if e.kind == "control" and e.label] == ["while bool[]"]
    assert {e.label.split()[0] for e in view.edges if view.nodes[e.target].kind == "loop_end" and e.kind == "data"} == {"next"}


def test_a_fusion_is_a_frame_around_its_body() -> None:
    view = build_view(programs.fused())
    assert kinds(view) == {"param": 1, "op": 4, "result": 2}
    inside = [n.title for n in view.nodes if n.cluster is not None and view.clusters[n.cluster].kind == "fusion"]
    assert inside == ["multiply(·, 2)", "exponential", "reduce add(·, -0)"]
    edges = {(view.nodes[e.source].title, view.nodes[e.target].title) for e in view.edges}
    assert ("x", "multiply(·, 2)") in edges
    assert ("exponential", "negate") in edges


def test_a_collapsed_fusion_is_one_box() -> None:
    view = build_view(programs.fused(), collapse=True)
    assert kinds(view) == {"param": 1, "fusion": 1, "proj": 2, "op": 1, "result": 2}
    assert [c.kind for c in view.clusters] == ["function"]


def test_functions_have_frames_and_calls_name_them() -> None:
    view = build_view(programs.calls())
    assert [c.title for c in view.clusters] == ["function main", "function twice"]
    assert view.nodes[titled(view, "call twice")].kind == "call"
    assert [c.title for c in build_view(programs.calls(), ["twice"]).clusters] == ["function twice"]
    with pytest.raises(UsageError, match="did you mean 'twice'"):
        build_view(programs.calls(), ["twise"])


def test_around_a_node() -> None:
    view = build_view(programs.chain(20))
    near = around(view, "#10", 2)
    assert [n.address for n in near.nodes] == ["#8", "#9", "#10", "#11", "#12"]
    assert len(near.edges) == 4
    assert near.notes == ("around #10, 2 steps: 17 more nodes are not drawn",)
    assert [n.title for n in around(view, "x", 0).nodes] == ["x"]
    with pytest.raises(UsageError, match="no node 'nowhere'"):
        around(view, "nowhere")
    with pytest.raises(UsageError, match="negative"):
        around(view, "x", -1)


def test_a_name_of_two_nodes_finds_both() -> None:
    b = Builder(origin=Origin("same"))
    view = build_view(programs.module(b.function("main", [("x", programs.MATRIX)], lambda x: [b(tanh, x), b(negate, x)])))
    assert {n.title for n in around(view, "same", 0).nodes} >= {"tanh", "negate"}


def test_tooltips_tell_origin_and_rewrites() -> None:
    b = Builder(origin=Origin("y", (), ("fold", "algebra")))
    view = build_view(programs.module(b.function("main", [("x", programs.MATRIX)], lambda x: [b(tanh, x)])))
    tip = view.nodes[titled(view, "tanh")].tooltip
    assert tip.splitlines() == ["#1 tanh: f32[4,8]", "name y", "rewritten by fold, algebra"]


@pytest.mark.parametrize(("padding", "told"), [("", []), (" pad=0_0x0_1x0_0x0_0", ["padding_high=(0,1,0,0)"])])
def test_a_box_leaves_out_the_attributes_that_change_nothing(padding: str, told: list[str]) -> None:
    """The dilations of 1 and paddings of 0 that a plain window has."""
    module = dx.loads(f"""HloModule pooling
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY main {{
  x = f32[2,7,8,3] parameter(0)
  z = f32[] constant(0)
  ROOT y = f32[2,{4 if padding else 3},4,3] reduce-window(x, z), window={{size=1x2x2x1 stride=1x2x2x1{padding}}}, to_apply=add
}}
""")
    (node,) = (n for n in module.entry.nodes if n.op is reduce_window)
    assert attr_texts(node) == ["window_dimensions=(1,2,2,1)", "window_strides=(1,2,2,1)", *told]


def test_a_small_view_is_not_folded() -> None:
    view = build_view(programs.loop())
    assert fold(view, len(view.nodes)) is view


def test_variables_that_a_text_names_by_their_loop_are_numbered() -> None:
    """As jax writes it: `%0:3 = while(%iterArg = ..)`."""
    view = build_view(dx.loads("""func.func @main(%x: tensor<2xf32>, %n: tensor<i32>) -> tensor<2xf32> {
  %0:3 = stablehlo.while(%a = %n, %b = %x, %c = %x) : tensor<i32>, tensor<2xf32>, tensor<2xf32> cond {
    %1 = stablehlo.compare LT, %a, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.add %a, %n : tensor<i32>
    %2 = stablehlo.add %b, %c : tensor<2xf32>
    stablehlo.return %1, %c, %2 : tensor<i32>, tensor<2xf32>, tensor<2xf32>
  }
  return %0#1 : tensor<2xf32> }"""))
    assert sorted(n.title for n in view.nodes if n.kind == "phi") == ["φ 0", "φ 1", "φ 2"]
    assert sorted(e.label for e in view.edges if e.label.startswith("next")) == ["next 0 i32[]", "next 1 f32[2]", "next 2 f32[2]"]
