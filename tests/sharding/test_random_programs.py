"""Random programs over random meshes under random shardings: what all devices find together is what the program finds whole."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Function
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.mesh import Mesh, TensorSharding, open_sharding, split
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.propagate import propagate
from tests.support.generate import random_inputs, random_module
from tests.support.seeds import seeds
from tests.support.sharded_programs import inputs, on_devices
from tests.support.sharded_texts import random_text

MESHES = (Mesh((("a", 2),)), Mesh((("a", 2), ("b", 2))), Mesh((("a", 3),)), Mesh((("a", 2), ("b", 3))),
          Mesh((("a", 4),), (2, 0, 3, 1)))  # fmt: skip
COUNT = 500
SAMPLED = 40


def random_sharding(rng: random.Random, mesh: Mesh, rank: int) -> TensorSharding:
    """Each axis along one dimension, or none; or nothing said."""
    if rank == 0 or rng.random() < 0.2:
        return open_sharding(rank)
    dims = [()] * rank
    for name, _ in rng.sample(mesh.axes, len(mesh.axes)):
        if rng.random() < 0.7:
            k = rng.randrange(rank)
            dims[k] = (*dims[k], mesh.axis(name))
    return split(*dims)


def random_plan(rng: random.Random, function: Function) -> Plan:
    mesh = rng.choice(MESHES)
    values = {p: random_sharding(rng, mesh, len(p.type.shape)) for p in function.params}
    results = {k: random_sharding(rng, mesh, len(r.type.shape)) for k, r in enumerate(function.results) if rng.random() < 0.7}
    return propagate(Plan(mesh, function, values, results))


def check(seed: int) -> None:
    rng = random.Random(seed)
    module = dx.optimize(random_module(rng, max_ops=30, exact=True), "inline,cse")
    arrays, plan = random_inputs(rng, module), random_plan(rng, module.entry)
    local = partition(module, plan)
    assert {m.collective for m in local.meetings} == {n for n in local.module.entry.nodes if n.op.exchange and n.inputs}
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    for got, want in zip(on_devices(module, plan, arrays), whole, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def check_text(seed: int) -> None:
    """The same of programs over matrices of even sizes, reshaped, padded and cut along split dimensions, on meshes of 8 devices."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = dx.optimize(dx.loads(random_text(random.Random(seed)), "stablehlo"), "inline,clean")
    arrays, plan = inputs(module), propagate(needed_plan(module))
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    for got, want in zip(on_devices(module, plan, arrays), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(want).max(initial=0))))


@pytest.mark.parametrize("seed", seeds(SAMPLED, COUNT))
def test_programs(seed: int) -> None:
    check(seed)


@pytest.mark.parametrize("seed", seeds(SAMPLED // 2, 2 * COUNT))
def test_texts(seed: int) -> None:
    check_text(seed)


def test_a_value_is_made_again_only_where_its_operands_can_lie_as_that_needs() -> None:
    """Half of the columns of a reshaped matrix are a part of its operand; but not a half of each half."""
    text = """sdy.mesh @mesh = <["a"=2, "b"=4]>
    func.func @main(%x: tensor<64x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>})
        -> (tensor<20x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"b"}, {"a"}]>}) {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %r = stablehlo.reshape %x : (tensor<64x16xf32>) -> tensor<32x32xf32>
      %t = stablehlo.transpose %r, dims = [1, 0] : (tensor<32x32xf32>) -> tensor<32x32xf32>
      %p = stablehlo.pad %t, %zero, low = [7, 0], high = [1, 0], interior = [0, 0]
        : (tensor<32x32xf32>, tensor<f32>) -> tensor<40x32xf32>
      %d = stablehlo.dot_general %p, %t, contracting_dims = [1] x [1]
        : (tensor<40x32xf32>, tensor<32x32xf32>) -> tensor<40x32xf32>
      %v = stablehlo.reverse %d, dims = [1] : (tensor<40x32xf32>) -> tensor<40x32xf32>
      %s = stablehlo.slice %v [19:39, 0:32] : (tensor<40x32xf32>) -> tensor<20x32xf32>
      return %s : tensor<20x32xf32>
    }"""
    module = dx.loads(text, "stablehlo")
    arrays = inputs(module)
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    for got, want in zip(on_devices(module, propagate(needed_plan(module)), arrays), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * float(np.abs(want).max()))
