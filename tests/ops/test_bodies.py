"""Bodies of operations that are more than elementwise: branches, loops and calls in reducers, comparators and maps."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx

X = np.array([3, -1, 4, -1, 5], "f4")
BRANCH = """ %z = stablehlo.constant dense<0.0> : tensor<f32>
   %c = stablehlo.compare GT, %a, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>
   %r = "stablehlo.if"(%c) ({ stablehlo.return %a : tensor<f32> }, {
     %n = stablehlo.negate %a : tensor<f32>
     %m = stablehlo.multiply %n, %n : tensor<f32>
     stablehlo.return %m : tensor<f32> }) : (tensor<i1>) -> tensor<f32>
"""
LOOP = """ %z = stablehlo.constant dense<0> : tensor<i32>
   %o = stablehlo.constant dense<1> : tensor<i32>
   %t = stablehlo.constant dense<3> : tensor<i32>
   %w:2 = stablehlo.while(%i = %z, %v = %a) : tensor<i32>, tensor<f32>
    cond { %c = stablehlo.compare LT, %i, %t : (tensor<i32>, tensor<i32>) -> tensor<i1>
     stablehlo.return %c : tensor<i1> }
    do { %j = stablehlo.add %i, %o : tensor<i32>
     %u = stablehlo.add %v, %a : tensor<f32>
     stablehlo.return %j, %u : tensor<i32>, tensor<f32> }
   %r = stablehlo.add %w#1, %a : tensor<f32>
"""


def mapped(body: str) -> dx.Module:
    return dx.loads(f"""func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {{
 %y = "stablehlo.map"(%x) ({{
  ^bb0(%a: tensor<f32>):
  {body}
   stablehlo.return %r : tensor<f32>
 }}) {{dimensions = array<i64: 0>}} : (tensor<5xf32>) -> tensor<5xf32>
 return %y : tensor<5xf32>
}}""", "stablehlo")


def outputs(module: dx.Module, *args: object) -> list[list[float]]:
    found = []
    for form in (None, "stablehlo", "hlo", "sea"):
        m = dx.loads(dx.dumps(module, form), form) if form else module
        found += [dx.compile(m, engine=e, optimize=o)(*args)[0].tolist() for o in (False, True) for e in ("numpy", "numexpr")]
    return found


@pytest.mark.parametrize(("body", "wanted"), [(BRANCH, np.where(X > 0, X, X * X)), (LOOP, 5 * X)])
def test_maps_with_branches_and_loops(body: str, wanted: np.ndarray) -> None:
    assert all(found == wanted.tolist() for found in outputs(mapped(body), X))


def test_a_map_that_calls() -> None:
    module = dx.loads("""func.func private @f(%a: tensor<f32>) -> tensor<f32> {
 %r = stablehlo.add %a, %a : tensor<f32>
 return %r : tensor<f32>
}
func.func @main(%x: tensor<5xf32>) -> tensor<5xf32> {
 %y = "stablehlo.map"(%x) ({
  ^bb0(%a: tensor<f32>):
   %r = func.call @f(%a) : (tensor<f32>) -> tensor<f32>
   stablehlo.return %r : tensor<f32>
 }) {dimensions = array<i64: 0>} : (tensor<5xf32>) -> tensor<5xf32>
 return %y : tensor<5xf32>
}""", "stablehlo")
    assert all(found == (2 * X).tolist() for found in outputs(module, X))


def test_reducers_and_comparators_with_branches() -> None:
    module = dx.loads("""HloModule m
first { p = f32[] parameter(0) ROOT r = f32[] copy(p) }
longer { a = f32[] parameter(0) b = f32[] parameter(1) aa = f32[] abs(a) bb = f32[] abs(b)
 c = pred[] compare(aa, bb), direction=GE
 ROOT r = f32[] conditional(c, a, b), true_computation=first, false_computation=first }
by { a = f32[] parameter(0) b = f32[] parameter(1) l = f32[] call(a, b), to_apply=longer
 ROOT r = pred[] compare(l, a), direction=EQ }
ENTRY e { x = f32[5] parameter(0) z = f32[] constant(0)
 s = f32[5] sort(x), dimensions={0}, to_apply=by
 m = f32[] reduce(x, z), dimensions={0}, to_apply=longer
 ROOT t = (f32[5], f32[]) tuple(s, m) }""", "hlo")
    x = np.array([2, -7, 4, 1, -5], "f4")
    for form in ("stablehlo", "hlo", "sea"):
        m = dx.loads(dx.dumps(module, form), form)
        ordered, most = dx.compile(m, optimize=False)(x)
        assert (ordered.tolist(), float(most)) == ([-7, -5, 4, 2, 1], -7)


def test_effects_in_bodies_are_refused() -> None:
    body = "check.expect_eq_const %a, dense<0.0> : tensor<f32>\n %r = stablehlo.negate %a : tensor<f32>"
    with pytest.raises(dx.ParseError, match="body of an operation can have none"):
        mapped(body)


@pytest.mark.parametrize("count", [1, 5, 1024, 1025, 1030, 2049])
def test_elements_are_combined_in_their_order(count: int) -> None:
    """Of affine maps one after the other, which is associative and not commutative; of so many that pairs are combined first."""
    module = dx.loads(f"""HloModule m
then {{
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ac = s32[] multiply(a, c)
  bc = s32[] multiply(b, c)
  e = s32[] add(bc, d)
  ROOT t = (s32[], s32[]) tuple(ac, e)
}}
ENTRY e {{
  x = s32[{count}] parameter(0)
  y = s32[{count}] parameter(1)
  one = s32[] constant(1)
  zero = s32[] constant(0)
  ROOT r = (s32[], s32[]) reduce(x, y, one, zero), dimensions={{0}}, to_apply=then
}}
""")
    rng = np.random.default_rng(count)
    x, y = (rng.integers(-5, 6, count) * 2 + 1 for _ in range(2))
    a, b = 1, 0
    for c, d in zip(x.tolist(), y.tolist(), strict=True):
        a, b = a * c % 2**32, (b * c + d) % 2**32
    found = dx.compile(module, engine="numpy", optimize=False)(x.astype(np.int32), y.astype(np.int32))
    assert [int(v) % 2**32 for v in found] == [a, b]
