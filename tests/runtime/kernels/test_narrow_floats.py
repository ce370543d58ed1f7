"""Narrow floats: what is decided by one, or made of one that is no such float, is as the reference has it, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.runtime.engines import has_native
from deepx_graph.types import BF16, F16, F32, I32, DType

ENGINES = ["numexpr", *(["native"] if has_native() else [])]


def arrays(dtype: DType, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    return [rng.standard_normal((40, 50)).astype(dtype.np) for _ in range(count)]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_made_of_a_computed_narrow_float_is_made_of_it_rounded(dtype: DType, engine: str) -> None:
    """Of `third` the largest is kept rounded; that it is the same value is seen however either is held."""
    b, type = dx.Builder(), f"{dtype}[40,50]"

    def body(x: Node, y: Node) -> list[Node]:
        third = b(ops.divide, x, b.splat(3, x.type))
        largest = b(ops.maximum, y, third)
        tests = [b(ops.compare, largest, third, direction=d) for d in ("EQ", "NE", "LT", "LE", "GT", "GE")]
        large = b(ops.multiply, y, b.splat(6e4 if dtype is F16 else 3e38, y.type))
        return [*tests, b(ops.is_finite, large), *(b(ops.convert, third, dtype=t) for t in (F32, I32)), largest]

    module = dx.Module((b.function("main", [("x", type), ("y", type)], body),))
    given = arrays(dtype, 2)
    expected = dx.compile(module, engine="numpy", optimize=False)(*given)
    for got, want in zip(dx.run(module, *given, engine=engine), expected, strict=True):
        assert np.asarray(got).tobytes() == np.asarray(want).tobytes()


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("op", ["maximum", "minimum"])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_gradient_of_the_larger_goes_to_one_of_both(dtype: DType, op: str, engine: str) -> None:
    b, type = dx.Builder(), f"{dtype}[40,50]"
    module = dx.Module((b.function("main", [("x", type), ("y", type)],
                                   lambda x, y: [b(ops.OPS[op], x, b(ops.divide, y, b.splat(3, y.type)))]),))
    x, y, ct = arrays(dtype, 3)
    to_x, to_y = dx.run(dx.grad(module), x, y, ct, engine=engine)
    third = y / dtype.np.type(3)
    is_x = x > third if op == "maximum" else x < third
    np.testing.assert_array_equal(np.asarray(to_x)[x != third], np.where(is_x, ct, 0)[x != third])
    np.testing.assert_array_equal(np.asarray(to_y != 0)[x != third], ~is_x[x != third])


EVERY = np.arange(1 << 16, dtype=np.uint16)
UNARY = [ops.sqrt, ops.negate, ops.abs_, ops.floor, ops.ceil, ops.exponential, ops.exponential_minus_one, ops.log, ops.log_plus_one,
         ops.sine, ops.cosine, ops.tan, ops.tanh]  # fmt: skip
BINARY = [ops.add, ops.subtract, ops.multiply, ops.divide, ops.maximum, ops.minimum]


@pytest.mark.parametrize("dtype", [F16, BF16], ids=str)
@pytest.mark.parametrize("op", [*UNARY, *BINARY], ids=lambda op: op.name)
def test_kernels_of_narrow_floats_give_the_bits_of_the_reference(dtype: DType, op: Op) -> None:
    """Of all 65 536 values, with another in each place: results that are too large, subnormal or halfway, zeros and NaN."""
    b, type = dx.Builder(), f"{dtype}[{EVERY.size}]"
    assert dtype.np is not None
    given = [EVERY.view(dtype.np), np.random.default_rng(1).permutation(EVERY).view(dtype.np)][: 1 + (op in BINARY)]
    names = ["x", "y"][: len(given)]
    module = dx.Module((b.function("main", [(n, type) for n in names], lambda *xs: [b(ops.negate, b(op, *xs))]),))
    (expected,) = dx.compile(module, engine="numpy", optimize=False)(*given)
    (got,) = dx.compile(module, engine="numexpr")(*given)
    is_nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), is_nan)
    np.testing.assert_array_equal(got.view(np.uint16)[~is_nan], expected.view(np.uint16)[~is_nan])
