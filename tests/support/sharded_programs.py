"""Programs that tests split over devices, and their results on all devices of a mesh, run in lock step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Op
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.session.cluster.pipelined import Pipelined
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan
from deepx_graph.types import TupleType, is_state, type_of_array

MLP = """sdy.mesh @mesh = <["data"=4, "model"=2]>
func.func @main(%x: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>},
    %w1: tensor<8x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}, %w2: tensor<32x8xf32>)
    -> (tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}, tensor<f32>) {
  %h = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [0] : (tensor<16x8xf32>, tensor<8x32xf32>) -> tensor<16x32xf32>
  %t = stablehlo.tanh %h : tensor<16x32xf32>
  %y = stablehlo.dot_general %t, %w2, contracting_dims = [1] x [0] : (tensor<16x32xf32>, tensor<32x8xf32>) -> tensor<16x8xf32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %l = stablehlo.reduce(%y init: %none) applies stablehlo.add across dimensions = [0, 1] :
    (tensor<16x8xf32>, tensor<f32>) -> tensor<f32>
  return %y, %l : tensor<16x8xf32>, tensor<f32>
}"""

LOOP = """func.func @main(%x: tensor<8x8xf32>, %n: tensor<i32>) -> (tensor<8x8xf32>, tensor<8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %r:2 = stablehlo.while(%a = %x, %i = %zero) : tensor<8x8xf32>, tensor<i32> cond {
    %go = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %d = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    %t = stablehlo.transpose %d, dims = [1, 0] : (tensor<8x8xf32>) -> tensor<8x8xf32>
    %s = stablehlo.tanh %t : tensor<8x8xf32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %s, %j : tensor<8x8xf32>, tensor<i32>
  }
  %big = stablehlo.compare GT, %n, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
  %c = "stablehlo.if"(%big) ({
    %e = stablehlo.add %r#0, %x : tensor<8x8xf32>
    stablehlo.return %e : tensor<8x8xf32>
  }, {
    stablehlo.return %x : tensor<8x8xf32>
  }) : (tensor<i1>) -> tensor<8x8xf32>
  %m = stablehlo.reduce(%c init: %none) applies stablehlo.maximum across dimensions = [0] :
    (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  return %c, %m : tensor<8x8xf32>, tensor<8xf32>
}"""


TRAINING = """func.func @main(%x: tensor<16x8xf32>, %y: tensor<16x4xf32>, %w: tensor<8x4xf32>, %steps: tensor<i32>)
    -> (tensor<8x4xf32>, tensor<f32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %rate = stablehlo.constant dense<0.01> : tensor<8x4xf32>
  %r:3 = stablehlo.while(%v = %w, %i = %zero, %e = %none) : tensor<8x4xf32>, tensor<i32>, tensor<f32> cond {
    %go = stablehlo.compare LT, %i, %steps : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %go : tensor<i1>
  } do {
    %p = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<16x8xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
    %d = stablehlo.subtract %p, %y : tensor<16x4xf32>
    %g = stablehlo.dot_general %x, %d, contracting_dims = [0] x [0] : (tensor<16x8xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    %s = stablehlo.multiply %g, %rate : tensor<8x4xf32>
    %n = stablehlo.subtract %v, %s : tensor<8x4xf32>
    %q = stablehlo.multiply %d, %d : tensor<16x4xf32>
    %l = stablehlo.reduce(%q init: %none) applies stablehlo.add across dimensions = [0, 1] :
      (tensor<16x4xf32>, tensor<f32>) -> tensor<f32>
    %j = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n, %j, %l : tensor<8x4xf32>, tensor<i32>, tensor<f32>
  }
  return %r#0, %r#2 : tensor<8x4xf32>, tensor<f32>
}"""
"""Linear regression by gradient descent; the second result is the loss of the last step."""


def inputs(module: Module, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    def one(type) -> np.ndarray:
        found = rng.standard_normal(type.shape).astype("f4") if type.dtype.is_float else np.full(type.shape, 3)
        return np.asarray(found, type.dtype.np)

    return [one(p.type) for p in module.entry.params if not is_state(p.type)]


def check_pipeline(pipelined: Pipelined, module: Module, batch: Sequence[str]) -> None:
    """Results and gradients of a pipeline are those of the whole program."""
    arrays = inputs(module)
    results, gradients = pipelined(*arrays)
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    np.testing.assert_allclose(results[0], whole[0], rtol=1e-4, atol=1e-4)
    names = [p.name for p in module.entry.params if p.name not in batch]
    wanted = dx.compile(grad(module, names), engine="numpy", optimize=False)(*arrays, np.float32(1))
    assert sorted(gradients) == sorted(names)
    for name, want in zip(names, wanted, strict=True):
        np.testing.assert_allclose(gradients[name], want, rtol=1e-4, atol=1e-4)


def program(op: Op, arrays, attrs) -> Module:
    """A function of one use of the op, whose results are those of the op."""
    b = Builder()
    params = [b.param(k, type_of_array(a), f"x{k}") for k, a in enumerate(arrays)]
    node = b(op, *params, **attrs)
    results = b.items(node) if isinstance(node.type, TupleType) else (node,)
    return Module((Function("main", tuple(params), tuple(results)),))


def on_devices(module: Module, plan: Plan, arrays) -> list[np.ndarray]:
    """The results of the partitioned program, run in lock step, put together."""
    return results_on_devices(partition(module, plan), arrays)


def results_on_devices(local: Partitioned, arrays) -> list[np.ndarray]:
    """The results of a program of one device, run on all of them."""
    parts = [local.cut([np.asarray(a) for a in arrays], d) for d in range(local.mesh.count)]
    return local.joined(dx.compile(local.module, engine="numpy", partitions=local.mesh.count, optimize=False)(
        *map(list, zip(*parts, strict=True))))


def layers(batch: int, width: int, hidden: int, depth: int) -> str:
    """Layers of two matrices each, `w` and `v`, and the sum of what comes out."""
    x, params, lines = "%x", [f"%x: tensor<{batch}x{width}xf32>"], []
    for k in range(depth):
        params += [f"%w{k}: tensor<{width}x{hidden}xf32>", f"%v{k}: tensor<{hidden}x{width}xf32>"]
        lines += [f"%h{k} = stablehlo.dot_general {x}, %w{k}, contracting_dims = [1] x [0] : (tensor<{batch}x{width}xf32>, "
                  f"tensor<{width}x{hidden}xf32>) -> tensor<{batch}x{hidden}xf32>",
                  f"%t{k} = stablehlo.tanh %h{k} : tensor<{batch}x{hidden}xf32>",
                  f"%y{k} = stablehlo.dot_general %t{k}, %v{k}, contracting_dims = [1] x [0] : (tensor<{batch}x{hidden}xf32>, "
                  f"tensor<{hidden}x{width}xf32>) -> tensor<{batch}x{width}xf32>"]
        x = f"%y{k}"
    lines += ["%none = stablehlo.constant dense<0.0> : tensor<f32>",
              f"%l = stablehlo.reduce({x} init: %none) applies stablehlo.add across dimensions = [0, 1] : "
              f"(tensor<{batch}x{width}xf32>, tensor<f32>) -> tensor<f32>", "return %l : tensor<f32>"]
    body = "\n  ".join(lines)
    return f"func.func @main({', '.join(params)}) -> tensor<f32> {{\n  {body}\n}}"


def megatron(depth: int, data: int = 2, model: int = 2) -> str:
    """A plan for `layers`: rows of the batch over one axis, columns and then rows of matrices over the other."""
    weights = "".join(f'w{k}: [{{}}, {{"model"}}]\nv{k}: [{{"model"}}, {{}}]\n' for k in range(depth))
    return f'mesh <["data"={data}, "model"={model}]>\nx: [{{"data"}}, {{}}]\n{weights}'


SKIP = """func.func @main(%x: tensor<8x6xf32>, %w: tensor<6x6xf32>, %u: tensor<6x6xf32>, %t: tensor<8x6xf32>) -> tensor<f32> {
  %none = stablehlo.constant dense<0.0> : tensor<f32>
  %scale = stablehlo.constant dense<0.125> : tensor<8x6xf32>
  %a = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x6xf32>, tensor<6x6xf32>) -> tensor<8x6xf32>
  %b = stablehlo.tanh %a : tensor<8x6xf32>
  %c = stablehlo.dot_general %b, %u, contracting_dims = [1] x [0] : (tensor<8x6xf32>, tensor<6x6xf32>) -> tensor<8x6xf32>
  %d = stablehlo.add %c, %b : tensor<8x6xf32>
  %e = stablehlo.dot_general %d, %w, contracting_dims = [1] x [0] : (tensor<8x6xf32>, tensor<6x6xf32>) -> tensor<8x6xf32>
  %f = stablehlo.subtract %e, %t : tensor<8x6xf32>
  %g = stablehlo.multiply %f, %f : tensor<8x6xf32>
  %h = stablehlo.multiply %g, %scale : tensor<8x6xf32>
  %l = stablehlo.reduce(%h init: %none) applies stablehlo.add across dimensions = [0, 1] :
    (tensor<8x6xf32>, tensor<f32>) -> tensor<f32>
  return %l : tensor<f32>
}"""
"""A weight of two stages, a value that skips one, a target for the last, and a mean."""
