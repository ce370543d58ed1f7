"""Functions of the program as functions of Python: what the interpreter gives, and what is left to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.errors import RunError
from deepx_graph.ir import Function, Node
from deepx_graph.ops import sine
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines.numexpr_engine import NumexprEngine
from deepx_graph.runtime.unit_code import UnitCode
from tests.support.generate import random_inputs, random_loop, random_module
from tests.support.laws import same

BRANCHES = """
func.func @main(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.case"(%n) ({ CASES }) : (tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}"""
CASE = """%{k} = stablehlo.constant dense<{k}.0> : tensor<4xf32>
  %r{k} = stablehlo.multiply %x, %{k} : tensor<4xf32>
  stablehlo.return %r{k} : tensor<4xf32>"""

CARRIED = """
func.func @main(%x: tensor<8xf32>, %n: tensor<i32>) -> (tensor<f32>, tensor<f32>, tensor<8xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %init = stablehlo.constant dense<0.0> : tensor<f32>
  %r:4 = stablehlo.while(%i = %zero, %a = %init, %b = %init, %h = %x) : tensor<i32>, tensor<f32>, tensor<f32>, tensor<8xf32>
   cond { %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1> }
   do { %j = stablehlo.add %i, %one : tensor<i32>
        %s = stablehlo.reduce(%h init: %init) applies stablehlo.add across dimensions = [0]
          : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
        %u = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<1xf32>
        %g = stablehlo.dynamic_update_slice %h, %u, %i : (tensor<8xf32>, tensor<1xf32>, tensor<i32>) -> tensor<8xf32>
        stablehlo.return %j, %s, %a, %g : tensor<i32>, tensor<f32>, tensor<f32>, tensor<8xf32> }
  return %r#1, %r#2, %r#3 : tensor<f32>, tensor<f32>, tensor<8xf32>
}"""
"""The second variable is the first of the iteration before: it must not be the memory that the next sum is put into."""


def both(text: str, *args: Any) -> dx.Compiled:
    module = dx.optimize(dx.loads(text, "stablehlo"))
    f = compile(module, engine="numexpr")
    wanted = compile(module, engine="numpy")(*args)
    for _ in range(2):
        given = [a.copy() for a in args]
        for found, want in zip(f(*given), wanted, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-6)
        assert all(map(same, given, args))
    return f


class Staging(NumexprEngine):
    """One that makes no kernels of loops."""

    def canonicalize(self, function: Function, *, apart: bool = False) -> Function:
        return function


@pytest.mark.parametrize("seed", range(40))
def test_loops_and_branches_give_what_the_interpreter_gives(seed: int) -> None:
    rng = random.Random(seed)
    for make in (random_loop, lambda r: random_module(r, exact=True)):
        module = make(rng)
        inputs = [np.int32(n) for n in (3, 5, -2)] if make is random_loop else random_inputs(rng, module)
        wanted = compile(module, engine="numpy")(*inputs)
        for engine in ("numexpr", Staging(1)):
            f = compile(module, engine=engine)
            assert all(map(same, f(*inputs), wanted)) and all(map(same, f(*inputs), wanted))


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_branch_of_a_switch(count: int) -> None:
    cases = "}, {".join(CASE.format(k=k) for k in range(count))
    for n in range(-1, count + 2):
        both(BRANCHES.replace("CASES", cases), np.int32(n)[()].reshape(()), np.arange(4, dtype="f4"))


def test_what_a_loop_carries_is_not_written_over() -> None:
    f = both(CARRIED, np.arange(8, dtype="f4"), np.asarray(5, "i4"))
    assert isinstance(f._runner, UnitCode)


def nested(depth: int) -> str:
    """A loop in a loop in a loop, of two iterations each, that count."""
    body = "%s0 = stablehlo.add %v, %one : tensor<i32>\n"
    for k in range(1, depth + 1):
        inner = body.replace("%v", f"%v{k}")
        body = f"""%w{k}:2 = stablehlo.while(%i{k} = %zero, %v{k} = %v) : tensor<i32>, tensor<i32>
          cond {{ %c{k} = stablehlo.compare LT, %i{k}, %two : (tensor<i32>, tensor<i32>) -> tensor<i1>
                 stablehlo.return %c{k} : tensor<i1> }}
          do {{ {inner}
               %j{k} = stablehlo.add %i{k}, %one : tensor<i32>
               stablehlo.return %j{k}, %s{k - 1} : tensor<i32>, tensor<i32> }}
          %s{k} = stablehlo.add %w{k}#1, %zero : tensor<i32>
          """
    constants = "".join(f"%{name} = stablehlo.constant dense<{k}> : tensor<i32>\n" for k, name in enumerate(("zero", "one", "two")))
    return f"func.func @main(%v: tensor<i32>) -> tensor<i32> {{ {constants} {body} return %s{depth} : tensor<i32> }}"


@pytest.mark.parametrize("depth", [1, 3, 25])
def test_loops_nested_deeper_than_python_compiles_are_interpreted(depth: int) -> None:
    module = dx.loads(nested(depth), "stablehlo")
    f = compile(module, engine=Staging(1))
    assert isinstance(f._runner, UnitCode) == (depth < 20)
    if depth < 20:
        assert f(np.asarray(0, "i4"))[0] == 2**depth


class Failing(NumexprEngine):
    """One whose sines fail."""

    def staged(self, node: Node) -> Callable[..., Any] | None:
        def fail(*values: Any) -> Any:
            raise ValueError("no sines today")

        return fail if node.op is sine else super().staged(node)


def test_an_error_has_the_place_of_its_node() -> None:
    text = "func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {\n %y = stablehlo.negate %x : tensor<4xf32>\n" \
        " %z = stablehlo.sine %y : tensor<4xf32>\n return %z : tensor<4xf32> }"
    f = compile(dx.loads(text, "stablehlo"), engine=Failing(1))
    with pytest.raises(RunError, match="no sines today") as caught:
        f(np.zeros(4, "f4"))
    assert caught.value.diagnostics[0].span.line == 3


OVERFLOWS = """
func.func @main(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = stablehlo.multiply %x, %x : tensor<4xf32>
  %1 = stablehlo.divide %0, %0 : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}"""


@pytest.mark.parametrize("engine", ["numexpr", "numpy"])
def test_numpy_complains_of_nothing_within_a_call_and_as_before_behind_it(engine: str) -> None:
    f, x = compile(dx.loads(OVERFLOWS, "stablehlo"), engine=engine), np.full(4, 1e30, np.float32)
    with np.errstate(all="raise"):
        for _ in range(4):
            square, quotient = f(x)
            assert np.isinf(square).all() and np.isnan(quotient).all()
            assert set(np.geterr().values()) == {"raise"}


@pytest.mark.parametrize("engine", ["numexpr", "numpy", "native"])
def test_every_call_looks_at_its_arguments(engine: str) -> None:
    """A warm program takes another layout, dtype or number of arguments as its first call does."""
    f, x = compile(dx.loads(OVERFLOWS, "stablehlo"), engine=engine), np.arange(1, 5, dtype=np.float32)
    for _ in range(3):
        f(x)
    for given in (np.repeat(x, 2)[::2], x.astype(x.dtype.newbyteorder())):
        np.testing.assert_array_equal(f(given)[0], x * x)
    for wrong in ((x[:3],), (x.astype(np.float64),), (x, x), ()):
        with pytest.raises(RunError):
            f(*wrong)


def test_a_program_of_kernels_alone_leaves_the_threads_of_blas_alone() -> None:
    """Several results are items of a tuple, which calls no BLAS: setting its threads takes longer than a small kernel."""
    f = compile(dx.optimize(dx.loads(OVERFLOWS, "stablehlo")), engine="numexpr", threads=1)
    f(np.ones(4, np.float32))
    assert [n.op.name for n in f.lowered.entry.nodes].count("proj") == 2
    assert not f._latest().unit.may_call_blas


def test_small_results_are_values_of_their_own_whatever_is_given_away() -> None:
    """To look for memory that results may lie over takes longer than to make them."""
    f, x = compile(dx.loads(OVERFLOWS, "stablehlo"), engine="numexpr"), np.arange(1, 5, dtype=np.float32)
    for _ in range(3):
        given = x.copy()
        square, quotient = f(given, donate=[f.inputs[0].name])
        np.testing.assert_array_equal(square, x * x)
        np.testing.assert_array_equal(quotient, np.ones(4))
        np.testing.assert_array_equal(given, x)
