"""Values of short rows are computed by columns where these are read, or rows are reduced: with the same elements."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node, Op
from deepx_graph.ops.contract.reduce import broadcast_in_dim, reduction
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.ops.math.elementwise import add, exponential, maximum, multiply, negate, select, subtract
from deepx_graph.ops.tensor.shape import slice_
from deepx_graph.rewrite.columns import LEAST_ROWS, with_columns
from deepx_graph.types import BOOL, F32, as_tensor, tensor, type_of_array

SEEDS = 80
Arrays = list[np.ndarray[Any, Any]]


def of_rows(rng: Random) -> tuple[Function, Arrays]:
    """A kernel of short rows: columns of its results, results of reduced rows, and some that are whole; of parameters, numbers,
    constants and one number for each row."""
    made = np.random.default_rng(rng.randrange(1 << 30))
    width, rows = rng.randint(2, 5), (LEAST_ROWS,) if rng.random() < 0.5 else (LEAST_ROWS // 2, 2)
    arrays: Arrays = [made.standard_normal((*rows, width)).astype("f4") for _ in range(rng.randint(1, 3))]
    arrays += [made.standard_normal(rows).astype("f4"), np.float32(made.standard_normal())]
    b, inside = Builder(), Builder()
    params = [b.param(k, type_of_array(a)) for k, a in enumerate(arrays)]
    mask = np.broadcast_to(made.integers(0, 2, width).astype(bool), (*rows, width))
    operands = [*params, b.constant(mask, BOOL)]
    inner = tuple(inside.param(k, o.type) for k, o in enumerate(operands))
    *whole, of_row, number, chosen = inner
    axes = tuple(range(len(rows)))
    values: list[Node] = [*whole, inside(broadcast_in_dim, of_row, shape=(*rows, width), broadcast_dimensions=axes)]
    reduced: list[Node] = []
    for _ in range(rng.randint(2, 8)):
        kind = rng.choice(["binary", "binary", "number", "select", "negate", "reduce"])
        x, y = rng.choice(values), rng.choice(values)
        if kind == "reduce":
            reduced.append(reduction(inside, rng.choice([add, multiply, maximum]), x, (len(rows),)))
        else:
            values.append({"binary": lambda x, y: inside(rng.choice([add, subtract, multiply, maximum]), x, y),
                           "number": lambda x, y: inside(multiply, x, number), "negate": lambda x, y: inside(negate, x),
                           "select": lambda x, y: inside(select, chosen, x, y)}[kind](x, y))
    results = [*dict.fromkeys([*values[len(whole) + 1 :][-2:], *reduced])] or [inside(negate, values[0])]
    kernel = b(fusion, *operands, body=Function("body", inner, tuple(results)))
    found = []
    for item in (kernel,) if len(results) == 1 else b.items(kernel):
        shape = as_tensor(item.type).shape
        if shape == rows or rng.random() < 0.3:
            found.append(item)
            continue
        for k in rng.sample(range(width), rng.randint(1, width)):
            found.append(b(slice_, item, start_indices=(*(0 for _ in rows), k), limit_indices=(*rows, k + 1),
                           strides=(1,) * (len(rows) + 1)))
    return Function("main", tuple(params), tuple(found)), arrays


def test_columns_are_those_of_rows() -> None:
    seen = 0
    for seed in range(SEEDS):
        function, arrays = of_rows(Random(seed))
        found = with_columns(function)
        expected, result = (dx.compile(Module((f,)), engine="numpy", optimize=False)(*arrays) for f in (function, found))
        for e, r in zip(expected, result, strict=True):
            np.testing.assert_allclose(r, e, rtol=1e-4, atol=1e-4)
        seen += found is not function
    assert seen > SEEDS / 3


def test_points_of_which_coordinates_are_read_are_no_rows() -> None:
    text = """func.func @main(%p: tensor<5000x3xf32>) -> tensor<5000xf32> {
      %f = stablehlo.floor %p : tensor<5000x3xf32>
      %w = stablehlo.subtract %p, %f : tensor<5000x3xf32>
      %x = stablehlo.slice %f [0:5000, 0:1] : (tensor<5000x3xf32>) -> tensor<5000x1xf32>
      %z = stablehlo.slice %f [0:5000, 2:3] : (tensor<5000x3xf32>) -> tensor<5000x1xf32>
      %d = stablehlo.subtract %x, %z : tensor<5000x1xf32>
      %r = stablehlo.reshape %d : (tensor<5000x1xf32>) -> tensor<5000xf32>
      %one = stablehlo.constant dense<1.0> : tensor<f32>
      %v = stablehlo.reduce(%w init: %one) applies stablehlo.multiply across dimensions = [1]
        : (tensor<5000x3xf32>, tensor<f32>) -> tensor<5000xf32>
      %s = stablehlo.add %r, %v : tensor<5000xf32>
      return %s : tensor<5000xf32>
    }"""
    p = np.random.default_rng(0).uniform(0, 9, (5000, 3)).astype("f4")
    step = dx.compile(dx.loads(text), engine="native")
    (found,) = step(p)
    f = np.floor(p)
    np.testing.assert_allclose(found, f[:, 0] - f[:, 2] + (p - f).prod(1), rtol=1e-5, atol=1e-5)
    assert all((5000, 3) not in (as_tensor(n.type).dims,) for n in step.lowered.entry.nodes if n.inputs)


@pytest.mark.parametrize(("function", "is_changed"), [(negate, True), (exponential, False)])
def test_functions_that_take_much_stay_where_elements_lie_side_by_side(function: Op, is_changed: bool) -> None:
    b, inside = Builder(), Builder()
    x = b.param(0, tensor(F32, (LEAST_ROWS, 3)))
    inner = inside.param(0, x.type)
    body = Function("body", (inner,), (inside(function, reduction(inside, add, inner, (1,))),))
    main = Function("main", (x,), (b(fusion, x, body=body),))
    assert (with_columns(main) is not main) == is_changed
