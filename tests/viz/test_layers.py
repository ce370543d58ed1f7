"""Models of more than ten layers whose parameters are sorted as text, as frameworks do: one box, and no cycle between boxes."""

from __future__ import annotations

import re

import pytest

from deepx_graph import optimize
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ir.structure import CALL, PROJ
from deepx_graph.ops import add, broadcast_in_dim, dot_general, maximum, multiply, reduction, tanh
from deepx_graph.types import F32, FunctionType, tensor
from deepx_graph.viz import View, build_view, fold
from tests.support.viz_shapes import has_cycle

WIDTH = 16
X = tensor(F32, (8, WIDTH))
SQUARE, ROW = tensor(F32, (WIDTH, WIDTH)), tensor(F32, (WIDTH,))
WEIGHTS = {"Attention__kernel": SQUARE, "Dense__bias": ROW, "Dense__kernel": SQUARE, "Norm__scale": ROW}


def layered(layers: int, helpers: bool = False) -> Module:
    """A residual network: its parameters come in the order of their names as text (0, 1, 10, 11, 2, ...); with `helpers` each layer
    calls a function of its own, all of them alike."""
    b = Builder()
    names = sorted(f"Blk_{k}__{name}" for k in range(layers) for name in WEIGHTS)
    types = [WEIGHTS[name.partition("__")[2]] for name in names]
    functions: list[Function] = []

    def wide(row: Node) -> Node:
        return b(broadcast_in_dim, row, shape=X.dims, broadcast_dimensions=(1,))

    def product(x: Node, w: Node) -> Node:
        return b(dot_general, x, w, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(0,))

    def relu(x: Node, k: int) -> Node:
        if not helpers:
            return b(maximum, x, b.constant(0.0, F32))
        functions.append(b.function(f"relu.{7 * k}", [("x", X)], lambda v: [b(maximum, v, b.constant(0.0, F32))], public=False))
        return b(PROJ, b(CALL, x, callee=f"relu.{7 * k}", signature=FunctionType((X,), (X,))), index=0)

    def body(x: Node, *weights: Node) -> list[Node]:
        w = dict(zip(names, weights, strict=True))
        for k in range(layers):
            b.origin = Origin(f"norm.{k}")
            top = b(broadcast_in_dim, reduction(b, maximum, x, (1,)), shape=X.dims, broadcast_dimensions=(0,))
            normed = b(multiply, b(multiply, x, top), wide(w[f"Blk_{k}__Norm__scale"]))
            x = b(add, x, b(tanh, product(normed, w[f"Blk_{k}__Attention__kernel"])))
            hidden = relu(b(add, product(x, w[f"Blk_{k}__Dense__kernel"]), wide(w[f"Blk_{k}__Dense__bias"])), k)
            x = b(add, x, hidden)
        return [x]

    main = b.function("main", [("x", X), *zip(names, types, strict=True)], body)
    return Module((main, *functions), "main")


def layers_drawn(view: View) -> int:
    """How many layers the boxes say that they stand for, those that are open included."""
    open_ones = sum(c.kind == "block" for c in view.clusters)
    return open_ones + sum(int(found[1]) for n in view.nodes if (found := re.search(r"×(\d+)", n.title)))


@pytest.mark.parametrize("most", [12, 40])
@pytest.mark.parametrize("helpers", [False, True])
@pytest.mark.parametrize("pipeline", ["none", "default"])
@pytest.mark.parametrize("layers", [9, 10, 11, 12, 13])
def test_layers_fold_into_one_row_without_a_cycle(layers: int, pipeline: str, helpers: bool, most: int) -> None:
    module = optimize(layered(layers, helpers), pipeline)
    whole = build_view(Module((module.entry,), "main"))
    view = fold(whole, most)
    assert not has_cycle(view)
    assert len(view.nodes) <= most
    rows = [n.title for n in view.nodes if "×" in n.title or " of " in n.title]
    assert layers_drawn(view) in (layers, layers - 1), [n.title for n in view.nodes]
    assert len(rows) == 1, rows
