"""Every op in every place where a program may use it, on every engine, as written and optimised, against its `eval`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Op
from tests.support.contexts import CONTEXTS, Array, Context, program
from tests.support.laws import LAWFUL, Sample, samples

ENGINES = ("numpy", "numexpr", "auto")


def meaning(op: Op, sample: Sample) -> list[Array]:
    """The results by the definition."""
    arrays, attrs = sample
    assert op.eval is not None
    with np.errstate(all="ignore"):
        result = op.eval(list(arrays), *op.bind(attrs))
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def agree(found: Any, wanted: Array) -> bool:
    """Equal; floats within some units in the last place of the largest result."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if wanted.dtype.kind in "biu":
        return bool(np.array_equal(found, wanted))
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    f, w = found.astype(wide), wanted.astype(wide)
    size = np.abs(w[np.isfinite(w)])
    slack = 32 * spacing(wanted.dtype)
    return bool(np.allclose(f, w, rtol=slack, atol=slack * float(size.max(initial=0.0)), equal_nan=True))


def spacing(dtype: np.dtype[Any]) -> float:
    """Between 1 and the next number; 0 for what is exact."""
    return 0.0 if "int" in dtype.name else float(ml_dtypes.finfo(dtype).eps)


def check(op: Op, sample: Sample, contexts: Sequence[Context], written_on: Sequence[str], optimised_on: Sequence[str]) -> None:
    """As written and optimised, each on some engines; called twice, the second time with all inputs given away."""
    wanted = meaning(op, sample)
    module, args = program(op, sample, contexts)
    for engine in written_on:
        run(dx.compile(module, engine=engine, optimize=False), args, wanted, contexts, f"{op.name}, {engine}")
    best = dx.optimize(module) if optimised_on else module
    for engine in optimised_on:
        run(dx.compile(best, engine=engine, optimize=False), args, wanted, contexts, f"{op.name}, {engine}, optimised")


def run(f: Any, args: Sequence[Any], wanted: Sequence[Array], contexts: Sequence[Context], what: str) -> None:
    for found in (f(*args), f(*map(np.copy, args), donate=[i.name for i in f.inputs])):
        assert len(found) == len(wanted) * len(contexts)
        for k, value in enumerate(found):
            place, w = contexts[k // len(wanted)].__name__, wanted[k % len(wanted)]
            assert agree(value, w), f"{what}, {place}: {value}, not {w}"


def one_sample(number: int, op: Op) -> Sample:
    """One of the op's samples; other ops give other kinds."""
    found = list(samples(op))
    return found[number * 7 % len(found)]


@pytest.mark.parametrize(("number", "op"), enumerate(LAWFUL), ids=lambda p: p.name if isinstance(p, Op) else "")
def test_an_op_means_the_same_wherever_it_stands(number: int, op: Op) -> None:
    check(op, one_sample(number, op), CONTEXTS, ["numpy", "auto"], ["numexpr", "auto"])


@pytest.mark.conformance
@pytest.mark.parametrize("op", LAWFUL, ids=lambda op: op.name)
def test_every_sample_of_an_op_means_the_same_wherever_it_stands(op: Op) -> None:
    for sample in samples(op):
        check(op, sample, CONTEXTS, ENGINES, ENGINES)


@pytest.mark.conformance
@pytest.mark.parametrize("context", CONTEXTS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("op", LAWFUL, ids=lambda op: op.name)
def test_an_op_alone_in_its_context(op: Op, context: Context) -> None:
    for sample in samples(op):
        check(op, sample, [context], ["auto"], ["auto"])


LOOP = """func.func @main(%a: tensor<6xf32>, %k: tensor<i32>) -> tensor<6xf32> {{
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<6xf32> cond {{
    %c = stablehlo.compare LT, %i, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }} do {{
    %j = stablehlo.add %i, %one : tensor<i32>
    {body}
    stablehlo.return %j, %y : tensor<i32>, tensor<6xf32>
  }}
  return %r#1 : tensor<6xf32>
}}"""
COUNTING = {
    "product": ("""%n = stablehlo.iota dim = 0 : tensor<6x6xf32>
      %y = stablehlo.dot_general %x, %n, contracting_dims = [0] x [0] : (tensor<6xf32>, tensor<6x6xf32>) -> tensor<6xf32>""",
                lambda x, i: x @ np.arange(6, dtype=np.float32)[:, None].repeat(6, 1)),
    "update": ("""%n = stablehlo.iota dim = 0 : tensor<3xf32>
      %y = stablehlo.dynamic_update_slice %x, %n, %i : (tensor<6xf32>, tensor<3xf32>, tensor<i32>) -> tensor<6xf32>""",
               lambda x, i: np.concatenate([x[:i], [0, 1, 2], x[i + 3 :]])),
    "row": ("""%n = stablehlo.iota dim = 0 : tensor<60xf32>
      %s = stablehlo.dynamic_slice %n, %i, sizes = [6] : (tensor<60xf32>, tensor<i32>) -> tensor<6xf32>
      %y = stablehlo.add %x, %s : tensor<6xf32>""", lambda x, i: x + np.arange(i, i + 6)),
}  # fmt: skip
"""Bodies of loops that count, and what an iteration makes of x."""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", COUNTING)
def test_a_loop_that_counts(name: str, engine: str) -> None:
    body, iteration = COUNTING[name]
    x = np.ones(6, np.float32)
    module = dx.loads(LOOP.format(body=body))
    found = [dx.compile(m, engine=engine, optimize=False)(x, np.int32(3))[0] for m in (module, dx.optimize(module))]
    for k in range(3):
        x = iteration(x, k)
    for f in found:
        np.testing.assert_array_equal(f, x)
