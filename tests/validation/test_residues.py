"""Arithmetic of residues: the laws of a field, and what programs that are equal, or not, are over them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import scalar_expr
from deepx_graph.validation.algebra import compare_algebra
from deepx_graph.validation.residues import PRIMES, PRIMITIVES, PrimeField

INTEGERS_ONLY = {"shl", "lshr", "ashr"}


@pytest.fixture(params=PRIMES)
def field(request: pytest.FixtureRequest) -> PrimeField:
    return PrimeField(request.param)


def test_every_primitive_has_a_meaning() -> None:
    assert set(PRIMITIVES) == set(scalar_expr.PRIMITIVES) - INTEGERS_ONLY - {"cast"}


def test_the_field_is_python_s_arithmetic_modulo_the_prime(field: PrimeField) -> None:
    rng = np.random.default_rng(0)
    half = field.prime // 2
    x, y = (rng.integers(-half, half + 1, 1000) for _ in range(2))
    for name, exact in (("add", x + y), ("sub", x - y), ("mul", x * y), ("neg", -x)):
        operands = [v.astype(np.float64) for v in ((x, y) if name != "neg" else (x,))]
        assert np.array_equal(PRIMITIVES[name](field, *operands) % field.prime, exact % field.prime), name
    y = np.where(y == 0, 1, y)
    quotient = PRIMITIVES["div"](field, x.astype(np.float64), y.astype(np.float64))
    assert np.array_equal(field.times(quotient, y.astype(np.float64)) % field.prime, x % field.prime)
    cube = field.times(field.times(x * 1.0, x * 1.0), x * 1.0)
    assert np.array_equal(PRIMITIVES["cbrt"](field, cube) % field.prime, x % field.prime)
    root = PRIMITIVES["sqrt"](field, x * 1.0)
    assert np.isin((field.times(root, root) - x) % field.prime * ((field.times(root, root) + x) % field.prime), 0).all()


@pytest.mark.parametrize("value", [0.1, -3.5, 1e-300, 5e-324, 1.7e308, 123456789.0, 0.0])
def test_constants_are_exact_rationals(field: PrimeField, value: float) -> None:
    exact = Fraction(value)
    want = exact.numerator * pow(exact.denominator, -1, field.prime) % field.prime
    assert int(field.number(value)) % field.prime == want


PROGRAM = """func.func public @main(%x: tensor<3x4xf32>, %y: tensor<3x4xf32>) -> tensor<3x4xf32> {{
  %c = stablehlo.constant dense<0.3> : tensor<3x4xf32>
  %d = stablehlo.constant dense<{c}> : tensor<3x4xf32>
{body}
  return %r : tensor<3x4xf32>
}}"""


def program(*steps: str, c: str = "2.0") -> dx.Module:
    lines = [f"  %{name} = stablehlo.{op} {operands} : tensor<3x4xf32>" for name, op, operands in (s.split(" ", 2) for s in steps)]
    return dx.loads(PROGRAM.format(c=c, body="\n".join(lines)))


SQUARE = ("s add %x, %y", "r multiply %s, %s")
SPREAD = ("a multiply %x, %x", "b multiply %x, %y", "e multiply %b, %d", "f multiply %y, %y", "g add %a, %e", "r add %g, %f")
CASES = [
    (SQUARE, SPREAD, True),
    (("a negate %x", "b negate %y", "r maximum %a, %b"), ("a minimum %x, %y", "r negate %a"), True),
    (("a negate %x", "r tanh %a"), ("a tanh %x", "r negate %a"), True),
    (("a negate %x", "r cosine %a"), ("r cosine %x",), True),
    (("a exponential %x", "r divide %a, %y"),
     ("a divide %c, %y", "b exponential %x", "e multiply %a, %b", "r divide %e, %c"), True),
    (("a multiply %x, %y", "r sqrt %a"), ("a sqrt %x", "b sqrt %y", "r multiply %a, %b"), True),
    (("r exponential %x",), ("r log %x",), False),
    (SQUARE, ("s subtract %x, %y", "r multiply %s, %s"), False),
]


@pytest.mark.parametrize(("one", "other", "equal"), CASES)
def test_programs(one: tuple[str, ...], other: tuple[str, ...], equal: bool) -> None:
    found = compare_algebra(program(*one), program(*other))
    assert found.equal is equal, found


def test_a_coefficient_that_is_wrong_in_any_digit_shows() -> None:
    found = compare_algebra(program(*SQUARE), program(*SPREAD, c="2.0000002"))
    assert found.equal is False and found.rational


def test_what_has_no_meaning_is_said() -> None:
    text = """func.func public @main(%x: tensor<4xf32>) -> tensor<4xi32> {
  %r = stablehlo.bitcast_convert %x : (tensor<4xf32>) -> tensor<4xi32>
  return %r : tensor<4xi32>
}"""
    found = compare_algebra(dx.loads(text), dx.loads(text))
    assert found.equal is None and "bitcast_convert" in str(found)
