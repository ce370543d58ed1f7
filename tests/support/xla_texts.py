"""Small texts of HLO."""

from __future__ import annotations

LOOP = """
HloModule count
cond { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT lt = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = f32[2] get-tuple-element(s), index=1
  y = f32[2] add(x, x)
  ROOT t = (s32[], f32[2]) tuple(j, y) }
ENTRY main { x = f32[2]{0} parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[2]) tuple(zero, x)
  w = (s32[], f32[2]) while(t), condition=cond, body=body
  ROOT r = f32[2] get-tuple-element(w), index=1 }
"""

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
