"""Scales and shifts of products and convolutions become part of their weights, and the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Module
from deepx_graph.passes.rules.scales import SCALES
from deepx_graph.rewrite.base import RewriteControl
from deepx_graph.rewrite.engine import RuleSet, assert_normal_form, rewrite
from tests.support.reference import evaluate

CONVOLVED = """
func.func @main(%x: tensor<2x3x5x6xf64>, %w: tensor<4x3x2x2xf64>, %m: tensor<4xf64>, %v: tensor<4xf64>, %g: tensor<4xf64>)
    -> tensor<2x4x4x5xf64> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<2x3x5x6xf64>, tensor<4x3x2x2xf64>) -> tensor<2x4x4x5xf64>
  %mm = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<4xf64>) -> tensor<2x4x4x5xf64>
  %vv = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<4xf64>) -> tensor<2x4x4x5xf64>
  %gg = stablehlo.broadcast_in_dim %g, dims = [1] : (tensor<4xf64>) -> tensor<2x4x4x5xf64>
  %0 = stablehlo.subtract %y, %mm : tensor<2x4x4x5xf64>
  %1 = stablehlo.divide %0, %vv : tensor<2x4x4x5xf64>
  %2 = stablehlo.multiply %gg, %1 : tensor<2x4x4x5xf64>
  %3 = stablehlo.add %2, %mm : tensor<2x4x4x5xf64>
  return %3 : tensor<2x4x4x5xf64>
}"""

MULTIPLIED = """
func.func @main(%x: tensor<2x5x3xf64>, %w: tensor<2x3x6xf64>, %c: tensor<6xf64>, %s: tensor<6xf64>, %r: tensor<5xf64>)
    -> (tensor<2x5x2xf64>, tensor<2x5x6xf64>) {
  %y = stablehlo.dot_general %x, %w, batching_dims = [0] x [0], contracting_dims = [2] x [1]
    : (tensor<2x5x3xf64>, tensor<2x3x6xf64>) -> tensor<2x5x6xf64>
  %cc = stablehlo.broadcast_in_dim %c, dims = [2] : (tensor<6xf64>) -> tensor<2x5x6xf64>
  %ss = stablehlo.broadcast_in_dim %s, dims = [2] : (tensor<6xf64>) -> tensor<2x5x6xf64>
  %rr = stablehlo.broadcast_in_dim %r, dims = [1] : (tensor<5xf64>) -> tensor<2x5x6xf64>
  %0 = stablehlo.add %y, %cc : tensor<2x5x6xf64>
  %1 = stablehlo.multiply %0, %ss : tensor<2x5x6xf64>
  %2 = stablehlo.slice %1 [0:2, 0:5, 1:5:2] : (tensor<2x5x6xf64>) -> tensor<2x5x2xf64>
  %3 = stablehlo.multiply %y, %rr : tensor<2x5x6xf64>
  return %2, %3 : tensor<2x5x2xf64>, tensor<2x5x6xf64>
}"""

ADDED = MULTIPLIED.replace("stablehlo.multiply %0, %ss", "stablehlo.add %0, %ss")


def folded(module: Module) -> tuple[Module, RewriteControl]:
    control = RewriteControl()
    return rewrite(module, RuleSet(SCALES, fast_math=True), control), control


@pytest.mark.parametrize("text", [CONVOLVED, MULTIPLIED, ADDED])
def test_values_stay(text: str) -> None:
    before = dx.loads(text, "stablehlo")
    after, control = folded(before)
    assert control.count
    rng = np.random.default_rng(0)
    args = [rng.uniform(0.5, 2, p.type.dims) for p in before.entry.params]  # type: ignore[union-attr]
    for want, got in zip(evaluate(before, args), evaluate(after, args), strict=True):
        assert np.allclose(want, got, rtol=1e-12)
    assert_normal_form(after, RuleSet(SCALES, fast_math=True))


def test_every_rule_applies_somewhere() -> None:
    applied = set().union(*(folded(dx.loads(text, "stablehlo"))[1].applied for text in (CONVOLVED, MULTIPLIED, ADDED)))
    assert applied >= {r.name for r in SCALES}


def test_normalisation_becomes_weights() -> None:
    after = dx.optimize(dx.loads(CONVOLVED, "stablehlo"), "fold-scale-axis,simplify{fast-math=true},cse,dce")
    large = [n.op.name for n in after.entry.nodes if n.op.name != "broadcast_in_dim" and n.type == after.entry.results[0].type]
    assert large == ["convolution", "add"]


def test_scales_of_windows_and_shared_axes_stay() -> None:
    """What varies along an axis that weights do not have alone stays where it is."""
    batch = MULTIPLIED.replace("%r: tensor<5xf64>", "%r: tensor<2xf64>").replace("%r, dims = [1] : (tensor<5xf64>)",
                                                                                 "%r, dims = [0] : (tensor<2xf64>)")
    assert any(n.op.name == "multiply" and n in after.results for after in [folded(dx.loads(batch, "stablehlo"))[0].entry]
               for n in after.nodes)
    window = CONVOLVED.replace("%v: tensor<4xf64>", "%v: tensor<5xf64>").replace("%v, dims = [1] : (tensor<4xf64>)",
                                                                               "%v, dims = [3] : (tensor<5xf64>)")
    assert any(n.op.name == "divide" and n.type.dims == (2, 4, 4, 5)  # type: ignore[union-attr]
               for n in dx.optimize(dx.loads(window, "stablehlo"), "simplify").entry.nodes)
    assert folded(dx.loads(window, "stablehlo"))[1].count
