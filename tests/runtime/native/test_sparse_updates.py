"""Elementwise functions of tables in which scatters change few rows keep their bits when they are done for these rows alone."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.ops.math.elementwise import add, maximum, multiply, subtract
from deepx_graph.ops.tensor.index import scatter
from deepx_graph.rewrite import sparse_updates
from deepx_graph.types import F32, as_tensor, tensor, type_of_array

SEEDS = 60
Arrays = list[np.ndarray[Any, Any]]


def changed_tables(rng: Random) -> tuple[Function, Arrays]:
    """One or two results of random elementwise operations on tables; scatters change rows of some, in and outside of them, of
    which several are the same."""
    made = np.random.default_rng(rng.randrange(1 << 30))
    shape = [rng.randint(1, 12) for _ in range(rng.randint(1, 3))]
    axis, b = rng.randrange(len(shape)), Builder()
    others = [n for k, n in enumerate(shape) if k != axis]
    arrays: Arrays = []

    def given(array: np.ndarray[Any, Any]) -> Node:
        arrays.append(array)
        params.append(b.param(len(params), type_of_array(array)))
        return params[-1]

    def table(indices: Node) -> Node:
        batch = as_tensor(indices.type).shape
        updates = given(made.standard_normal((*batch, *others)).astype("f4"))
        value, first = rng.choice([0.0, 0.0, -0.0, 1.5, np.inf]), len(batch)
        return b(scatter, b.splat(value, tensor(F32, tuple(shape))), indices, updates,
                 update_window_dims=tuple(range(first, first + len(others))), inserted_window_dims=(axis,),
                 scatter_dims_to_operand_dims=(axis,), index_vector_dim=first,
                 update_computation=monoid_body(rng.choice([add, add, multiply, maximum]), F32))

    params: list[Node] = []
    counts = [[rng.randint(1, 4) for _ in range(rng.randint(1, 2))] for _ in range(2)]
    indices = [given(made.integers(-1, shape[axis] + 2, count).astype("i4")) for count in counts]
    operands = [given(made.standard_normal(shape).astype("f4")) for _ in range(rng.randint(0, 2))]
    operands += [table(rng.choice(indices)) for _ in range(rng.randint(1, 3))]
    inside = Builder()
    values = list(inner := tuple(inside.param(k, o.type) for k, o in enumerate(operands)))
    for operand in inner:
        other = rng.choice([*values, inside.constant(0.1, F32)])
        values.append(inside(rng.choice([add, subtract, multiply, maximum]), *rng.sample([operand, other], 2)))
    found = tuple(dict.fromkeys(values[-rng.randint(1, 2):]))
    made_of = b(fusion, *operands, body=Function("body", inner, found))
    return Function("main", tuple(params), (made_of,) if len(found) == 1 else b.items(made_of)), arrays


def test_rows_are_as_in_whole_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse_updates, "LEAST_BYTES", 0)
    monkeypatch.setattr(sparse_updates, "UPDATE_ROWS", 0)
    seen = 0
    for seed in range(SEEDS):
        function, arrays = changed_tables(Random(seed))
        found = sparse_updates.with_sparse_updates(function)
        expected, result = (dx.compile(Module((f,)), engine="numpy", optimize=False)(*arrays) for f in (function, found))
        for e, r in zip(expected, result, strict=True):
            np.testing.assert_array_equal(r.view("u4"), e.view("u4"))
        seen += found is not function
    assert seen > SEEDS / 2


STEP = """func.func @main(%w: tensor<9000x40xf32>, %m: tensor<9000x40xf32>, %i: tensor<70x1xi32>, %u: tensor<70x40xf32>)
    -> (tensor<9000x40xf32>, tensor<9000x40xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<9000x40xf32>
  %rate = stablehlo.constant dense<0.9> : tensor<9000x40xf32>
  %g = "stablehlo.scatter"(%zero, %i, %u) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} :
      (tensor<9000x40xf32>, tensor<70x1xi32>, tensor<70x40xf32>) -> tensor<9000x40xf32>
  %d = stablehlo.multiply %m, %rate : tensor<9000x40xf32>
  %n = stablehlo.add %d, %g : tensor<9000x40xf32>
  %v = stablehlo.subtract %w, %n : tensor<9000x40xf32>
  return %v, %n : tensor<9000x40xf32>, tensor<9000x40xf32>
}"""


@pytest.mark.parametrize("donated", [(), ("w", "m")])
def test_a_step_with_momentum_makes_no_table_of_the_gradient(donated: tuple[str, ...]) -> None:
    module = dx.loads(STEP)
    function = dx.optimize(module).entry
    assert sparse_updates.with_sparse_updates(function) is not function
    made = np.random.default_rng(0)
    w, m = (made.standard_normal((9000, 40)).astype("f4") for _ in range(2))
    i, u = made.integers(-20, 60, (70, 1)).astype("i4"), made.standard_normal((70, 40)).astype("f4")
    g = np.zeros_like(m)
    inside = i[:, 0] >= 0
    np.add.at(g, i[inside, 0], u[inside])
    v, n = dx.compile(module, engine="native")(w.copy(), m.copy(), i, u, donate=donated)
    np.testing.assert_allclose(n, np.float32(0.9) * m + g, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(v, w - (np.float32(0.9) * m + g), rtol=1e-5, atol=1e-5)
