"""What JAX programs use beyond the common operations: each test is a small text of the kind that JAX prints."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx

APPROX_TOP_K = """
module @m {
  func.func @greater(%arg0: tensor<f32>, %arg1: tensor<f32>, %arg2: tensor<i32>, %arg3: tensor<i32>) -> tensor<i1> {
    %0 = stablehlo.compare GT, %arg0, %arg1 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %0 : tensor<i1>
  }
  func.func public @main(%x: tensor<2x5xf32>) -> (tensor<2x3xf32>, tensor<2x3xi32>) {
    %0 = stablehlo.iota dim = 1 : tensor<2x5xi32>
    %c = stablehlo.constant dense<-1> : tensor<i32>
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1:2 = stablehlo.custom_call @ApproxTopK(%x, %0, %cst, %c) {backend_config = "", called_computations = [@greater],
      mhlo.backend_config = {aggregate_to_topk = true, is_fallback = true, recall_target = 0.949999988 : f32,
      reduction_dim = 1 : i64, reduction_input_size_override = -1 : i64, top_k = 3 : i64}}
      : (tensor<2x5xf32>, tensor<2x5xi32>, tensor<f32>, tensor<i32>) -> (tensor<2x3xf32>, tensor<2x3xi32>)
    return %1#0, %1#1 : tensor<2x3xf32>, tensor<2x3xi32>
  }
}
"""


def test_approximate_top_k_is_computed_exactly() -> None:
    x = np.array([[3, 9, 1, 7, 5], [-2, -8, 0, -1, 4]], np.float32)
    values, places = dx.compile(dx.loads(APPROX_TOP_K))(x)
    np.testing.assert_array_equal(values, [[9, 7, 5], [4, 0, -1]])
    np.testing.assert_array_equal(places, [[1, 3, 4], [4, 2, 3]])


SCATTER_SUBTRACT = """
HloModule m
minus {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] subtract(a, b)
}
ENTRY main {
  x = f32[4] parameter(0)
  i = s32[3,1] parameter(1)
  u = f32[3] parameter(2)
  ROOT y = f32[4] scatter(x, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
    index_vector_dim=1, to_apply=minus
}
"""


def test_scatter_that_subtracts_has_a_gradient() -> None:
    module = dx.loads(SCATTER_SUBTRACT)
    x, i, u = np.arange(4, dtype=np.float32), np.array([[2], [0], [2]], np.int32), np.array([1, 2, 4], np.float32)
    (y,) = dx.compile(module)(x, i, u)
    np.testing.assert_array_equal(y, [-2, 1, -3, 3])
    by_x, by_u = dx.compile(dx.grad(module))(x, i, u, np.array([10, 20, 30, 40], np.float32))
    np.testing.assert_array_equal(by_x, [10, 20, 30, 40])
    np.testing.assert_array_equal(by_u, [-30, -10, -30])


def test_a_constant_without_its_values_is_refused_before_anything_runs() -> None:
    module = dx.loads("HloModule m\nENTRY main {\n  ROOT c = f32[64,64] constant({...})\n}\n")
    with pytest.raises(dx.RunError, match="leaves out the values of this constant"):
        dx.compile(module)
