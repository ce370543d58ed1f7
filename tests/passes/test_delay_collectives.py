"""Collectives stand as late as their users allow, and what is computed stays the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import deepx_graph as dx
from deepx_graph.passes.delay_collectives import DelayCollectives
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.partition import partition
from deepx_graph.sharding.propagate import propagate
from tests.support.sharded_programs import inputs, results_on_devices

SUMS = """sdy.mesh @m = <["d"=2]>
func.func @main(%x: tensor<4x3xf32> {sdy.sharding = #sdy.sharding<@m, [{"d"}, {}]>}) -> (tensor<3xf32>, tensor<3xf32>) {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %a = stablehlo.reduce(%x init: %z) applies stablehlo.add across dimensions = [0] :
    (tensor<4x3xf32>, tensor<f32>) -> tensor<3xf32>
  %y = stablehlo.exponential %x : tensor<4x3xf32>
  %b = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [0] :
    (tensor<4x3xf32>, tensor<f32>) -> tensor<3xf32>
  return %a, %b : tensor<3xf32>, tensor<3xf32>
}"""


def test_two_sums_wait_once() -> None:
    module = dx.loads(SUMS, "stablehlo")
    local = partition(module, propagate(needed_plan(module)))
    late = DelayCollectives().run(local.module)
    before, after = ([n.op.name for n in m.entry.nodes if n.inputs] for m in (local.module, late))
    assert before[-1] == after[-1] == after[-2] == "spmd_all_reduce" != before[-2]
    assert DelayCollectives().run(late).entry is late.entry
    arrays = inputs(module)
    for got, want in zip(results_on_devices(replace(local, module=late), arrays), dx.compile(module)(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
