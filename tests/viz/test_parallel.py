"""What is done alike for many values side by side is one box with a count: the update of each parameter, experts of one layer."""

from __future__ import annotations

from deepx_graph.ir import Builder, Module, Node, Origin
from deepx_graph.ops import add, divide, dot_general, multiply, negate, reduction, sqrt, tanh
from deepx_graph.types import F32, as_tensor, tensor
from deepx_graph.viz.draw import view_of
from deepx_graph.viz.folding.fold import fold
from deepx_graph.viz.page.folds import folds_of
from deepx_graph.viz.view.model import View
from tests.support.viz_shapes import has_cycle

MATRIX, VECTOR = tensor(F32, (4, 4)), tensor(F32, (4,))


def view(results: list[Node], params: list[Node], b: Builder) -> View:
    main = b.function("main", [], list).with_(params=tuple(params), results=tuple(results))
    return view_of(Module((main,)), None, None, None, 2, collapse=False, title="")


def optimiser(layers: int) -> View:
    """Gradients, scaled by the norm of all of them, move weights with momentum. Nothing has a name but what is given."""
    b = Builder()
    given = [(f"{sort}['layer{k}']['{part}']", kind) for sort in ("g", "m", "p") for k in range(layers)
             for part, kind in (("kernel", MATRIX), ("bias", VECTOR))]  # fmt: skip
    params = []
    for k, (name, kind) in enumerate(given):
        b.origin = Origin(name)
        params.append(b.param(k, kind, name))
    b.origin = Origin()
    count = 2 * layers
    grads, moments, weights = params[:count], params[count : 2 * count], params[2 * count :]
    total: Node | None = None
    for g in grads:
        square = reduction(b, add, b(negate, b(negate, b(multiply, g, g))), tuple(range(as_tensor(g.type).rank or 0)))
        total = square if total is None else b(add, total, square)
    assert total is not None
    norm = b(sqrt, total)
    results = []
    for g, m, p in zip(grads, moments, weights, strict=True):
        moment = b(add, b(multiply, m, b.constant(0.9, F32)), b(divide, g, norm))
        results += [moment, b(add, p, b(multiply, moment, b.constant(-0.1, F32)))]
    return view(results, params, b)


def test_the_update_of_each_parameter_is_one_box() -> None:
    whole = optimiser(12)
    folded = fold(whole, 8)
    assert not has_cycle(folded)
    titles = [n.title for n in folded.nodes if n.kind == "group"]
    assert titles == ["reduce + negate + multiply ×24", "add + sqrt", "update of each parameter ×24", "48 results"]
    assert sorted(m for n in folded.nodes for m in n.members) == [n.id for n in whole.nodes]


def test_the_first_is_shown_where_there_is_room() -> None:
    folded = fold(optimiser(12), 40)
    assert not has_cycle(folded)
    frames = [c.title for c in folded.clusters if c.kind == "block"]
    assert "update of layer0/kernel" in frames
    assert "update of each parameter ×23 (after the first)" in [n.title for n in folded.nodes]


def test_the_box_opens_to_the_parameters_by_name() -> None:
    folds = folds_of(optimiser(12), 12)
    box = next(n for n in folds.folded[0].nodes if n.title.startswith("update"))
    inside = folds.folded[folds.inside[box.members]]
    assert [n.title for n in inside.nodes][:3] == ["update of layer0/kernel", "update of layer0/bias", "update of layer1/kernel"]
    assert len(inside.nodes) == 24


def test_experts_without_names_are_one_box() -> None:
    b = Builder()
    x = b.param(0, MATRIX, "x")
    weights = [b.param(k + 1, MATRIX, f"w{k}") for k in range(16)]
    total: Node = x
    for up, down in zip(weights[::2], weights[1::2], strict=True):
        h = b(tanh, b(dot_general, x, up, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,)))
        total = b(add, total, b(tanh, b(dot_general, h, down, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))))
    folded = fold(view([total], [x, *weights], b), 10)
    assert "mlp ×7 (after the first)" in [n.title for n in folded.nodes]
    assert "mlp" in [c.title for c in folded.clusters]
    assert not has_cycle(folded)


def test_layers_one_after_another_are_no_parts() -> None:
    b = Builder()
    x = b.param(0, MATRIX, "x")
    weights = [b.param(k + 1, MATRIX, f"w{k}") for k in range(40)]
    h: Node = x
    for w in weights:
        h = b(tanh, b(dot_general, h, w, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,)))
    folded = fold(view([h], [x, *weights], b), 10)
    assert not any("parts alike" in note for note in folded.notes)
