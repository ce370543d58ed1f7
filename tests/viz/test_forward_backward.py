"""Pictures of gradient programs: forward and backward part in frames of their own, residual edges between them."""

from __future__ import annotations

import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Node
from deepx_graph.ops import add, floor, multiply, sine
from deepx_graph.viz.draw import draw
from deepx_graph.viz.view.build import build_view
from deepx_graph.viz.view.frames import in_halves
from deepx_graph.viz.view.model import View
from tests.support.grad_programs import PROGRAMS, M, counted, module


def gradient(name: str) -> View:
    body, types = PROGRAMS[name]
    return in_halves(build_view(dx.optimize(dx.grad(module(body, *types)), "clean")))


def long_body(iterations: int) -> dx.Module:
    """A loop whose body computes much, of which the derivative needs a part."""

    def iteration(b: Builder, i: Node, h: Node) -> list[Node]:
        flags = h
        for _ in range(20):
            flags = b(floor, b(add, flags, b(floor, b(sine, flags))))
        return [b(sine, b(multiply, h, flags))]

    return module(lambda b, x: list(counted(b, iterations, [x], lambda i, h: iteration(b, i, h))), M)


def frame_of(view: View, cluster: int | None) -> str:
    by_id = {c.id: c for c in view.clusters}
    while cluster is not None and by_id[cluster].kind != "half":
        cluster = by_id[cluster].parent
    return "" if cluster is None else by_id[cluster].title


def test_a_frame_for_each_half_and_residuals_between() -> None:
    view = gradient("nested")
    assert [c.title for c in view.clusters if c.kind == "half"] == ["forward", "backward"]
    residuals = [e for e in view.edges if e.kind == "residual"]
    assert residuals
    for e in residuals:
        ends = [frame_of(view, view.nodes[k].cluster) for k in (e.source, e.target)]
        assert ends == ["forward", "backward"]
    crossing = [e for e in view.edges if e.kind == "data" and frame_of(view, view.nodes[e.source].cluster) == "forward"
                and frame_of(view, view.nodes[e.target].cluster) == "backward"]  # fmt: skip
    assert crossing == []


def test_parents_come_first() -> None:
    seen: set[int] = set()
    for c in gradient("loop in branch").clusters:
        assert c.parent is None or c.parent in seen
        seen.add(c.id)


@pytest.mark.parametrize("way", ["keep", "recompute", "sqrt"])
@pytest.mark.parametrize("iterations", [3, 50])
def test_each_loop_stands_in_the_half_of_its_origin(way: str, iterations: int) -> None:
    """The loop that goes backward computes again a forward part many times its own size."""
    view = in_halves(build_view(dx.optimize(dx.grad(long_body(iterations), loop=way), "clean")))
    by_id = {c.id: c for c in view.clusters}
    outermost = [n for n in view.nodes if n.kind == "loop_begin" and by_id[by_id[n.cluster or 0].parent or 0].kind == "half"]
    found = [(frame_of(view, n.cluster), n.backward) for n in outermost]
    assert set(found) == {("forward", False), ("backward", True)}


def test_a_program_without_gradient_stays_as_it_is() -> None:
    view = build_view(module(PROGRAMS["loop"][0], M))
    assert in_halves(view) is view


def test_it_is_drawn() -> None:
    body, types = PROGRAMS["branch"]
    dot = dx.draw(dx.optimize(dx.grad(module(body, *types)), "clean"), format="dot").data.decode()
    assert "backward" in dot
    assert "residual of the forward part" in dot


@pytest.mark.parametrize("address", ["#0", "#5", "#11"])
def test_a_part_of_a_gradient_program_is_drawn(address: str) -> None:
    body, types = PROGRAMS[next(iter(PROGRAMS))]
    gradient = dx.optimize(dx.grad(module(body, *types)), "clean")
    whole, part = (draw(gradient, format="dot", around=around, legend=False).data.decode() for around in (None, address))
    assert f"around {address}" in part
    boxes = [line for line in part.splitlines() if line.lstrip().startswith("n") and "->" not in line and "label=" in line]
    assert boxes and all(line.strip() in whole for line in boxes)  # a box looks as it does in the whole
