"""The layered layout: nothing overlaps, frames hold what is theirs, edges lead from box to box and downwards."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, pairwise

import pytest

from deepx_graph.viz import View, build_view, fold
from deepx_graph.viz.picture.layered import lay_out
from deepx_graph.viz.picture.scene import LETTER, Place, Scene, path
from deepx_graph.viz.view.model import LOOSE
from tests.support import viz_modules as programs
from tests.support.viz_shapes import SHAPES

EPSILON = 1e-6
SMALL = {
    "straight": programs.straight, "branch": programs.branch, "loop": programs.loop, "fused": programs.fused,
    "calls": programs.calls,
}  # fmt: skip


def views() -> list[View]:
    return [*(build_view(p()) for p in SMALL.values()), *(fold(build_view(s()), 60) for s in SHAPES.values())]


def apart(a: Place, b: Place) -> bool:
    return (a[0] + a[2] <= b[0] + EPSILON or b[0] + b[2] <= a[0] + EPSILON
            or a[1] + a[3] <= b[1] + EPSILON or b[1] + b[3] <= a[1] + EPSILON)  # fmt: skip


def inside(a: Place, b: Place) -> bool:
    return (a[0] >= b[0] - EPSILON and a[1] >= b[1] - EPSILON and a[0] + a[2] <= b[0] + b[2] + EPSILON
            and a[1] + a[3] <= b[1] + b[3] + EPSILON)  # fmt: skip


def check(scene: Scene) -> None:
    view, sideways = scene.view, scene.view.sideways
    assert set(scene.boxes) == {n.id for n in view.nodes}
    whole = (0.0, 0.0, scene.width, scene.height)
    assert all(inside(p, whole) for p in (*scene.boxes.values(), *scene.frames.values()))
    assert all(apart(a, b) for a, b in combinations(scene.boxes.values(), 2))
    for n in view.nodes:
        assert n.cluster is None or inside(scene.boxes[n.id], scene.frames[n.cluster])
    for c in view.clusters:
        assert c.parent is None or inside(scene.frames[c.id], scene.frames[c.parent])
    for a, b in combinations(view.clusters, 2):
        assert a.parent != b.parent or apart(scene.frames[a.id], scene.frames[b.id])
    assert [line.edge for line in scene.lines] == list(view.edges)
    for line in scene.lines:
        first, last = scene.boxes[line.edge.source], scene.boxes[line.edge.target]
        assert touches(line.points[0], first) and touches(line.points[-1], last)
        along = [p[0] if sideways else p[1] for p in line.points]
        if line.edge.kind not in LOOSE:
            assert all(a <= b + EPSILON for a, b in pairwise(along))
        assert path(line, sideways=sideways).startswith("M")
    assert len(covered(scene)) <= len(scene.lines) // 50
    assert len(touching(scene)) <= len(scene.lines) // 50


def touching(scene: Scene) -> list[tuple[str, str]]:
    """Labels beside each other with no space that a reader sees between them."""
    places = [(line.at[0] - 1.5, line.at[1] - 8, LETTER * len(line.edge.label) + 3, 10.0) for line in scene.lines if line.at]
    labels = [line.edge.label for line in scene.lines if line.at]
    return [(labels[a], labels[b]) for a, b in combinations(range(len(places)), 2) if not apart(places[a], places[b])]


def covered(scene: Scene) -> list[str]:
    """The labels on which a box stands."""
    places = {line: (line.at[0], line.at[1] - 8, LETTER * len(line.edge.label), 10.0) for line in scene.lines if line.at}
    return [line.edge.label for line, at in places.items() if not all(apart(at, box) for box in scene.boxes.values())]


def touches(p: tuple[float, float], box: Place) -> bool:
    return inside((*p, 0.0, 0.0), box)


@pytest.mark.parametrize("sideways", [False, True])
@pytest.mark.parametrize("name", [*SMALL, *SHAPES])
def test_everything_has_its_place(name: str, sideways: bool) -> None:
    view = build_view(SMALL[name]()) if name in SMALL else fold(build_view(SHAPES[name]()), 60)
    check(lay_out(replace(view, sideways=sideways)))


def test_equal_views_have_equal_layouts() -> None:
    one, other = (lay_out(build_view(programs.loop())) for _ in range(2))
    assert (one.boxes, one.frames) == (other.boxes, other.frames)
    assert [line.points for line in one.lines] == [line.points for line in other.lines]


def test_a_chain_is_straight() -> None:
    scene = lay_out(build_view(programs.chain(12)))
    assert len({round(x + width / 2, 3) for x, _, width, _ in scene.boxes.values()}) == 1
    assert all(len({round(x, 3) for x, _ in line.points}) == 1 for line in scene.lines)


def test_no_edges_cross_where_none_need_to() -> None:
    """Two chains beside each other."""
    from deepx_graph.ir import Builder, Node
    from deepx_graph.ops import add, negate, tanh

    b = Builder()

    def body(x: Node, y: Node) -> list[Node]:
        return [b(add, b(tanh, b(negate, v)), v) for v in (y, x)]

    scene = lay_out(build_view(programs.module(b.function("main", [("x", programs.MATRIX), ("y", programs.MATRIX)], body))))
    titles = {n.id: n.title for n in scene.view.nodes}
    middle = {k: [scene.boxes[i][0] + scene.boxes[i][2] / 2 for i in titles if titles[i].startswith(k)] for k in ("negate", "tanh")}
    assert (middle["negate"][0] < middle["negate"][1]) == (middle["tanh"][0] < middle["tanh"][1])
