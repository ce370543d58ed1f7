"""`equivalent`: programs that are the same are not told apart, mutants are, and the evidence is said."""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Module
from deepx_graph.ir.structure import LOOP_BEGIN
from deepx_graph.numerics.double import widened
from deepx_graph.numerics.observed import ObservedEngine, OperationBudget
from deepx_graph.ops import subtract
from deepx_graph.runtime.compile import compile
from deepx_graph.session.equivalence import equivalent
from deepx_graph.types import TensorType, Type
from tests.support.generate import random_module
from tests.support.mutations import mutant

GELU = """func.func public @main(%x: tensor<8x4xf32>, %w: tensor<4x4xf32>) -> tensor<8x4xf32> {
  %c = stablehlo.constant dense<0.7978845608> : tensor<8x4xf32>
  %h = stablehlo.constant dense<0.044715> : tensor<8x4xf32>
  %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x4xf32>) -> tensor<8x4xf32>
  %q = stablehlo.multiply %d, %d : tensor<8x4xf32>
  %m = stablehlo.multiply %q, %h : tensor<8x4xf32>
  %s = stablehlo.add %m, %c : tensor<8x4xf32>
  %t = stablehlo.tanh %s : tensor<8x4xf32>
  return %t : tensor<8x4xf32>
}"""


@pytest.mark.parametrize(("old", "new", "kind"), [
    ("", "", "identical"),
    ("multiply %q, %h", "multiply %h, %q", "identical"),
    ("%m = stablehlo.multiply %q, %h", "%p = stablehlo.multiply %d, %h : tensor<8x4xf32>\n  %m = stablehlo.multiply %p, %d",
     "same mathematics"),
    ("add %m, %c", "subtract %m, %c", "different"),
    ("0.044715", "0.044716", "different"),
    ("0.7978845608", "0.7978855", "different"),
])  # fmt: skip
def test_the_verdict(old: str, new: str, kind: str) -> None:
    found = equivalent(dx.loads(GELU), dx.loads(GELU.replace(old, new) if old else GELU))
    assert found.kind in ({kind, "equal within rounding"} if kind == "same mathematics" else {kind})
    assert bool(found) is (kind != "different") and (found.witness is None) is bool(found)


def test_where_the_second_departs() -> None:
    found = equivalent(dx.loads(GELU), dx.loads(GELU.replace("add %m, %c", "subtract %m, %c")))
    assert found.departure is not None and found.departure.after.op is subtract


SCORES = """func.func public @main(%q: tensor<4x3xf32>, %k: tensor<3x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
  %root = stablehlo.constant dense<0.70710677> : tensor<4x3xf32>
  %also = stablehlo.constant dense<0.70710677> : tensor<3x4xf32>
  %half = stablehlo.constant dense<0.5> : tensor<4x4xf32>
  %other = stablehlo.constant dense<0.70710677> : tensor<4x4xf32>
  %p = stablehlo.multiply %q, %root : tensor<4x3xf32>
  %l = stablehlo.multiply %k, %also : tensor<3x4xf32>
  %s = stablehlo.dot_general %p, %l, contracting_dims = [1] x [0] : (tensor<4x3xf32>, tensor<3x4xf32>) -> tensor<4x4xf32>
  %y = stablehlo.multiply %s, %half : tensor<4x4xf32>
  %z = stablehlo.multiply %y, %other : tensor<4x4xf32>
  return %s, %z : tensor<4x4xf32>, tensor<4x4xf32>
}"""
"""Scores as one framework scales them; both numbers are used in `halved`, too."""


@pytest.mark.parametrize(("half", "same"), [("0.5", True), ("0.500001", False), ("0.499999", False)])
def test_a_number_that_both_have_may_be_the_rounded_one(half: str, same: bool) -> None:
    halved = SCORES.replace("multiply %k, %also", "add %k, %zero").replace("multiply %q, %root", "multiply %q, %scale").replace(
        "  %p =", f"""  %zero = stablehlo.constant dense<0.0> : tensor<3x4xf32>
  %scale = stablehlo.constant dense<{half}> : tensor<4x3xf32>\n  %p =""", 1)
    assert bool(equivalent(dx.loads(SCORES), dx.loads(halved))) is same


def shows(module: Module, mutant: Module, seed: int) -> bool:
    """Whether the mutant gives other numbers in double precision, for ordinary inputs, than rounding there could make of it."""
    rng = np.random.default_rng(seed)
    for _ in range(3):
        f, g = (compile(widened(m), engine=ObservedEngine(OperationBudget())) for m in (module, mutant))
        inputs = [value(p.type, rng) for p in f.inputs]
        with np.errstate(all="ignore"):
            if any(_apart(np.asarray(x), np.asarray(y)) for x, y in zip(f(*inputs), g(*inputs), strict=True)):
                return True
    return False


def value(type: Type, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    assert isinstance(type, TensorType)
    drawn = rng.standard_normal(type.shape) * 3 if type.dtype.is_differentiable else rng.integers(0, 2, type.shape)
    return np.asarray(drawn).astype(type.dtype.np)


def _apart(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    if x.dtype.kind not in "fc":
        return not np.array_equal(x, y)
    usual = np.isfinite(x) & np.isfinite(y)
    largest = np.max(np.abs(x[usual]), initial=0)
    return bool(np.any(np.isfinite(x) != np.isfinite(y)) or np.any(np.abs(x - y)[usual] > 1e-9 * largest))


def test_optimised_programs_are_equivalent() -> None:
    for seed in range(12):
        module = random_module(random.Random(seed), max_ops=8)
        assert equivalent(module, dx.optimize(module), count=3), seed


@pytest.mark.parametrize("wanted", [20, pytest.param(1000, marks=pytest.mark.conformance)])
def test_mutants_with_other_values_are_told_from_their_programs(wanted: int) -> None:
    """At most one in 200 may be missed: constants that are wrong by 1e-6 are among them."""
    told, missed = 0, []
    for seed in itertools.count():
        rng = random.Random(seed)
        module = random_module(rng, max_ops=10)
        found = mutant(module, rng)
        if found is None or any(n.op is LOOP_BEGIN for f in module.functions for n in f.nodes):  # one may count backwards
            continue
        if shows(module, found, seed):
            told += 1
            if equivalent(module, found):
                missed.append(seed)
        if told == wanted:
            break
    assert len(missed) <= wanted // 200, missed


@pytest.mark.parametrize(("one", "other"), [
    ("compare GT, %x, %c", "compare GE, %x, %c"),  # differ at 37 alone
    ("clamp %z, %x, %c", "clamp %z, %x, %x"),  # beyond it
])
def test_what_only_differs_at_the_programs_own_numbers_is_seen(one: str, other: str) -> None:
    def program(body: str) -> Module:
        type = "bool[]" if "compare" in body else "i32[]"
        return dx.loads(f"""sea 1
entry @main
func public @main(%x: i32[]) -> (%y: {type}) {{
  %c = constant dense<37> : i32[]
  %z = constant dense<-1000000000> : i32[]
  %y = {body} : {type}
  return %y
}}""")

    assert not equivalent(program(one), program(other))


@pytest.mark.parametrize("chosen", ["select %p, %x, %c", "maximum %c, %c", "abs %c", "reverse %c, dims = [0]"])
def test_numbers_that_are_not_rounded_are_not_taken_for_rounded(chosen: str) -> None:
    """A dividend at which a remainder jumps: were it moved by its last place, rounding would explain all between."""
    def program(number: str) -> Module:
        return dx.loads(f"""sea 1
entry @main
func public @main(%x: f32[1]) -> (%y: f32[1]) {{
  %p = constant dense<false> : bool[]
  %c = constant dense<{number}> : f32[1]
  %d = {chosen} : f32[1]
  %h = constant dense<0.5> : f32[]
  %r = floor_mod %d, %h : f32[1]
  %y = multiply %d, %r : f32[1]
  return %y
}}""")

    assert not equivalent(program("2.0"), program("2.000002"))


def test_where_an_index_is_clamped_is_seen() -> None:
    def program(size: int) -> Module:
        return dx.loads(f"""sea 1
entry @main
func public @main(%x: f32[61], %i: i32[]) -> (%y: f32[4]) {{
  %0 = dynamic_slice %x, %i, sizes = [{size}] : f32[{size}]
  %1 = slice %0, from [0] to [4] by [1] : f32[4]
  return %1
}}""")

    assert not equivalent(program(4), program(5)), "they differ for the last start alone"


def test_programs_that_do_not_correspond_are_refused() -> None:
    one = dx.loads(GELU)
    with pytest.raises(UsageError, match="not comparable"):
        equivalent(one, Module((Builder().function("main", [("x", one.entry.params[0].type)], lambda x: [x]),)))
