"""Damaged HLO and StableHLO texts: whatever is cut, doubled or put in, a reader answers with a program or with a diagnostic."""

from __future__ import annotations

import random

import pytest

from deepx_graph.errors import DeepxGraphError
from deepx_graph.session import programs
from tests.text.hlo.test_read import LOOP
from tests.text.stablehlo.test_read import ADD

CONVOLUTION = """HloModule c
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
ENTRY e { x = f32[1,4,4,2]{3,2,1,0} parameter(0) w = f32[2,2,2,3] constant({ { {{1,2,3},{1,2,3}}, {{1,2,3},{1,2,3}} },
  { {{1,2,3},{1,2,3}}, {{1,2,3},{1,2,3}} } })
 c = f32[1,3,3,3] convolution(x, w), window={size=2x2 pad=0_0x0_0}, dim_labels=b01f_01io->b01f
 z = f32[] constant(nan)
 ROOT r = f32[3] reduce(c, z), dimensions={0,1,2}, to_apply=add }
"""
REDUCE = """func.func @main(%a: tensor<4x4xf32>) -> (tensor<4xf32>, tensor<2x4xf32>) {
  %c = stablehlo.constant dense<[0.0]> : tensor<1xf32>
  %z = stablehlo.reshape %c : (tensor<1xf32>) -> tensor<f32>
  %0 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1] : (tensor<4x4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.slice %a [0:4:2, 0:4] : (tensor<4x4xf32>) -> tensor<2x4xf32>
  %2 = "stablehlo.sort"(%1) <{dimension = 1 : i64}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %l = stablehlo.compare LT, %x, %y, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0, %2 : tensor<4xf32>, tensor<2x4xf32>
}
"""
PIECES = [*"{}()[]<>\"%#,=:\x1b", "-1", "99999999999", "tensor<", "f32[", "0x"]


def damaged(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 4)):
        at, other = rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)
        text = rng.choice([
            text[:at] + text[at + rng.randint(1, 20) :],
            text[:at] + rng.choice(PIECES) + text[at:],
            text[:at] + text[other : other + 30] + text[at:],
            text[:at] + rng.choice("0123456789abxyz{}()") + text[at + 1 :],
        ])  # fmt: skip
    return text


@pytest.mark.parametrize(("text", "format"), [(LOOP, "hlo"), (CONVOLUTION, "hlo"), (ADD, "stablehlo"), (REDUCE, "stablehlo")])
def test_damage_is_a_diagnostic(text: str, format: str) -> None:
    programs.loads(text, format)
    rng = random.Random(text)
    refused = 0
    for _ in range(2000):
        broken = damaged(rng, text)
        try:
            programs.loads(broken, format)
        except DeepxGraphError as e:
            refused += bool(e.diagnostics[0].message)
        except Exception as e:
            raise AssertionError(f"{type(e).__name__} on:\n{broken}") from e
    assert refused > 500
