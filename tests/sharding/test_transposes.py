"""Gradients of programs that are split already, by the transposes of collectives: those of the whole program, and those of JAX."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError, VerifyError
from deepx_graph.ir import Module
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.session.cluster.training import compile_part, runner
from deepx_graph.session.cluster.transposed import local_gradient
from deepx_graph.session.plans import planned
from deepx_graph.sharding.mesh import Mesh, split
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.propagate import propagate
from tests.support.sharded_programs import MLP, inputs, layers

SHARD_MAP = """module @jit_body attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["a"=2, "b"=2]>
  func.func public @main(%arg0: tensor<8x4xf32>, %arg1: tensor<4x8xf32>) -> (tensor<f32> {jax.result_info = "0"},
          tensor<8x8xf32> {jax.result_info = "1"}) {
    %0:2 = sdy.manual_computation(%arg0, %arg1) in_shardings=[<@mesh, [{"a"}, {}]>, <@mesh, [{},
          {"b"}]>] out_shardings=[<@mesh, []>, <@mesh, [{"a", "b"}, {}]>] manual_axes={"a", "b"} (%arg2: tensor<4x4xf32>,
          %arg3: tensor<4x4xf32>) {
      %1 = "stablehlo.all_gather"(%arg2) <{all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1,
          type = 1>, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, use_global_device_ids}>
          : (tensor<4x4xf32>) -> tensor<8x4xf32>
      %2 = stablehlo.dot_general %1, %arg3, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
      %3 = stablehlo.tanh %2 : tensor<8x4xf32>
      %4 = "stablehlo.reduce_scatter"(%3) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>, scatter_dimension = 0 : i64, use_global_device_ids}> ({
      ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
        %10 = stablehlo.add %arg4, %arg5 : tensor<f32>
        stablehlo.return %10 : tensor<f32>
      }) : (tensor<8x4xf32>) -> tensor<4x4xf32>
      %5 = "stablehlo.all_to_all"(%4) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          concat_dimension = 1 : i64, replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, split_count = 2 : i64,
          split_dimension = 0 : i64}> : (tensor<4x4xf32>) -> tensor<2x8xf32>
      %6 = "stablehlo.collective_permute"(%5) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          source_target_pairs = dense<[[0, 2], [2, 0], [1, 3], [3, 1]]> : tensor<4x2xi64>}> : (tensor<2x8xf32>) -> tensor<2x8xf32>
      %7 = stablehlo.multiply %6, %6 : tensor<2x8xf32>
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %8 = stablehlo.reduce(%7 init: %cst) applies stablehlo.add across dimensions = [0, 1] : (tensor<2x8xf32>,
          tensor<f32>) -> tensor<f32>
      %9 = "stablehlo.all_reduce"(%8) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>, use_global_device_ids}> ({
      ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
        %10 = stablehlo.add %arg4, %arg5 : tensor<f32>
        stablehlo.return %10 : tensor<f32>
      }) : (tensor<f32>) -> tensor<f32>
      sdy.return %9, %6 : tensor<f32>, tensor<2x8xf32>
    } : (tensor<8x4xf32>, tensor<4x8xf32>) -> (tensor<f32>, tensor<8x8xf32>)
    return %0#0, %0#1 : tensor<f32>, tensor<8x8xf32>
  }
}
"""
"""As jax 0.10.2 lowers a `shard_map` of all_gather, psum_scatter, all_to_all, ppermute and psum over a mesh of 2 x 2 devices."""

PLAN = 'mesh <["a"=2, "b"=2]>\narg0: [{"a"}, {}]\narg1: [{}, {"b"}]\n'

# jax.vjp of it for ones as cotangents, rounded
BY_X = [
    [-4.61991, 0.01512, -0.09606, 0.84973],
    [-0.24365, -0.22317, 4.78849, -7.77965],
    [-3.88784, 0.13457, -0.26583, 1.90696],
    [-1.25804, 6.31718, -3.80860, -1.83382],
    [-3.14907, 0.39061, -0.51086, 3.01695],
    [5.06160, -6.59642, 2.00236, -1.34832],
    [-2.44745, 0.70614, -0.82435, 4.10221],
    [-4.61991, 0.01512, -0.09606, 0.84973],
]
BY_W = [
    [-10.08067, -0.30229, -3.45037, 0.55955, 4.79124, -10.08067, -0.30229, -3.45037],
    [-2.88969, 4.68213, -6.20389, -1.04085, -0.33993, -2.88969, 4.68213, -6.20389],
    [-0.12268, -0.05288, -0.04970, 4.39747, -5.43908, -0.12268, -0.05288, -0.04970],
    [7.06829, -4.81990, -0.93423, 0.92809, -0.81881, 7.06829, -4.81990, -0.93423],
]


def run(local: Partitioned, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """On all devices, in lock step."""
    f = runner(compile_part(local, None, {"engine": "numpy"}), local.mesh.count)
    return local.joined(f([local.cut(arrays, d) for d in range(local.mesh.count)]))


def test_the_transposes_are_those_of_jax() -> None:
    x = ((np.arange(32).reshape(8, 4) % 7 - 3) / 4).astype("f4")
    w = ((np.arange(32).reshape(4, 8) % 5 - 2) / 4).astype("f4")
    local = partition(*planned(dx.loads(SHARD_MAP, "stablehlo"), PLAN))
    names = [p.name for p in local.module.entry.params]
    found = local_gradient(local, names)
    kinds = {n.op.name for n in found.module.entry.nodes if n.op.exchange is not None and n.inputs}
    assert kinds >= {"spmd_all_gather", "spmd_reduce_scatter", "spmd_all_to_all", "spmd_collective_permute", "spmd_all_reduce"}
    for got, want in zip(run(found, [x, w, np.float32(1), np.ones((8, 8), "f4")]), (BY_X, BY_W), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def equal(module: Module, plan: Plan, wrt: list[str]) -> None:
    """Gradient of the split program and split gradient: two ways that share no collective."""
    arrays = inputs(module)
    rng = np.random.default_rng(1)
    cotangents = [np.asarray(rng.standard_normal(r.type.shape), "f4") for r in module.entry.results]
    wanted = dx.compile(grad(module, wrt), engine="numpy", optimize=False)(*arrays, *cotangents)
    got = run(local_gradient(partition(module, propagate(plan)), wrt), [*arrays, *cotangents])
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(10))
def test_gradient_after_splitting_is_that_before(seed: int) -> None:
    rng = np.random.default_rng(seed)
    module = dx.loads([layers(8, 4, 8, 2), MLP][seed % 2], "stablehlo")
    mesh = [Mesh((("a", 2), ("b", 2))), Mesh((("a", 4),))][seed // 2 % 2]
    values = {}
    for p in module.entry.params:
        dims: list[tuple[object, ...]] = [(), ()]
        for name, _ in mesh.axes:
            if rng.random() < 0.8:
                k = int(rng.integers(2))
                dims[k] = (*dims[k], mesh.axis(name))
        values[p] = split(*dims)
    results = {0: split((mesh.axis("a"),), ())} if seed % 2 and seed % 4 == 1 else {}
    equal(module, Plan(mesh, module.entry, values, results), [p.name for p in module.entry.params])


def test_what_has_no_transpose_is_refused() -> None:
    text = SHARD_MAP.replace("%10 = stablehlo.add", "%10 = stablehlo.maximum")
    local = partition(*planned(dx.loads(text, "stablehlo"), PLAN))
    with pytest.raises((UsageError, VerifyError), match="gradient for sums alone"):
        local_gradient(local, [local.module.entry.params[0].name])
