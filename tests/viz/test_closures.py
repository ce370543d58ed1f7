"""Pictures and outlines of functional programs: a frame for each function, an edge for each captured value."""

from __future__ import annotations

import deepx_graph as dx
from deepx_graph.viz.listing.listing import listing
from deepx_graph.viz.view.build import build_view

TEXT = """
def @twice(%f: fn (float32) -> float32, %x: float32) -> float32 { %f(%f(%x)) }
def @main(%x: float32, %y: float32) { let %g = fn (%a: float32) { %a * %x + %y }; @twice(%g, %x) }
"""
KNOT = """
def @down(%n: int32, %k: fn (int32) -> int32) -> int32 {
  if (%n == 0) { %k(1) } else { @down(%n - 1, fn (%r: int32) -> int32 { @down(%r, %k) + %n }) }
}
def @main(%n: int32) { @down(%n, fn (%r: int32) -> int32 { %r }) }
"""


def test_functions_are_frames_and_captures_are_edges_between_them() -> None:
    view = build_view(dx.loads(TEXT))
    frames = {c.id: c.title for c in view.clusters if c.kind == "function"}
    assert sorted(frames.values()) == ["function main", "function main.g", "function twice"]
    captures = [(view.nodes[e.source], view.nodes[e.target]) for e in view.edges if e.kind == "capture"]
    assert [(a.title, b.title) for a, b in captures] == [("partial main.g", "x"), ("partial main.g", "y")]
    for a, b in captures:
        assert (frames[a.cluster or 0], frames[b.cluster or 0]) == ("function main", "function main.g")


def test_one_function_alone_has_no_edge_to_what_is_not_drawn() -> None:
    assert not any(e.kind == "capture" for e in build_view(dx.loads(TEXT), ["main"]).edges)


def test_functions_that_make_closures_of_each_other_are_drawn() -> None:
    module = dx.loads(KNOT)
    view = build_view(module)
    assert any(e.kind == "capture" for e in view.edges)
    assert all(e.source < e.target for e in view.edges if e.kind not in ("capture", "back"))
    for form in ("dot", "svg", "html"):
        assert dx.draw(module, format=form).data


def test_the_legend_names_captures() -> None:
    assert "what a closure binds" in dx.draw(dx.loads(TEXT), format="dot").data.decode()
    assert "what a closure binds" not in dx.draw(dx.loads("def @main(%x: float32) { %x + %x }"), format="dot").data.decode()


def test_the_outline_tells_what_a_function_captures() -> None:
    assert [r.title for r in listing(dx.loads(TEXT)).rows if r.kind == "function"] == ["main", "twice", "main.g over x, y"]
