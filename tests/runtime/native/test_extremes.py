"""Maxima and minima of several floats, pointwise and as folds: NaN where an operand is, and +0.0 above -0.0."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Module, Op
from deepx_graph.ops import add, maximum, minimum
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.types import F32, F64, DType, tensor

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

Array = np.ndarray[Any, Any]
POINTS = (0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, -math.nan)
LENGTHS = (1, 2, 3, 7, 8, 9, 16, 31, 40, 64, 65, 130, 300)
OPS = {"max": maximum, "min": minimum}


def expected(op: Op, numbers: Sequence[float]) -> float:
    """As IEEE 754-2019 (9.6) says it."""
    if any(math.isnan(x) for x in numbers):
        return math.nan
    order = [(x, math.copysign(1, x)) for x in numbers]
    return (max(order) if op is maximum else min(order))[0]


def same(found: Array, want: Sequence[float]) -> None:
    wanted = np.array(want, found.dtype)
    number = ~np.isnan(wanted)
    np.testing.assert_array_equal(found[number].view(f"u{found.itemsize}"), wanted[number].view(f"u{found.itemsize}"))
    assert np.isnan(found[~number]).all()


@pytest.mark.parametrize("shape", ["left", "right", "balanced", "read twice"])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_several_operands(op: Op, dtype: DType, count: int, shape: str) -> None:
    """Of up to four all tuples of special numbers, of more some; `read twice`: what is between is a result as well."""
    points = itertools.product(POINTS, repeat=count)
    numbers = list(points) if count < 5 else [tuple(r) for r in np.random.default_rng(0).choice(POINTS, (4099, count))]
    columns = [np.array(c, dtype.np) for c in zip(*numbers, strict=True)]
    b = Builder()

    def body(*xs: Any) -> list[Any]:
        rest, seen = list(xs), []
        while len(rest) > 1:
            at = {"left": 0, "read twice": 0, "right": len(rest) - 2, "balanced": len(rest) // 2 - 1}[shape]
            rest[at : at + 2] = [b(op, rest[at], rest[at + 1])]
            seen.append(rest[at])
        return seen if shape == "read twice" else rest

    function = b.function("main", [(f"x{k}", tensor(dtype, (len(numbers),))) for k in range(count)], body)
    found = dx.compile(Module((function,)), engine="native")(*columns)
    for k, result in enumerate(found):
        same(result, [expected(op, row[: k + 2] if len(found) > 1 else row) for row in numbers])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_folds(op: Op, dtype: DType, length: int, axis: int) -> None:
    """Rows and columns that are all but one or two the same, with special numbers in every place."""
    rng = np.random.default_rng(length)
    rows = np.full((97, length), 0.0)
    for k, row in enumerate(rows):
        row[:] = POINTS[k % 3] * (1 if op is maximum else -1)
        row[rng.integers(0, length, 2)] = rng.choice(POINTS, 2)
    x = np.ascontiguousarray(rows if axis else rows.T, dtype.np)
    b = Builder()
    function = b.function("main", [("x", tensor(dtype, x.shape))], lambda x: [reduction(b, op, b(add, x, x), (axis,))])
    same(dx.compile(Module((function,)), engine="native")(x)[0], [expected(op, [2 * v for v in row]) for row in rows])
