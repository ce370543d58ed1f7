"""Primitives of numbers, as they are folded and interpreted."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from deepx_graph.loops import primitives
from deepx_graph.types import DTYPES, F32, F64, I32, I64, DType

LARGEST, INF = np.iinfo(np.int64).max, np.inf


@pytest.mark.parametrize(("primitive", "dtype", "x", "y", "want"), [
    ("div", F64, 1, 0, INF), ("div", F32, -1, 0, -INF), ("sub", F64, INF, INF, np.nan), ("mul", F32, 1e38, 10, INF),
    ("add", I64, LARGEST, 1, -LARGEST - 1), ("mul", I32, 1 << 20, 1 << 20, 0), ("pow", F64, 0, -1, INF)])  # fmt: skip
def test_numbers_are_folded_without_a_warning(primitive: str, dtype: DType, x: Any, y: Any, want: Any) -> None:
    assert dtype.np is not None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = primitives.evaluate(primitive, (dtype.np.type(x), dtype.np.type(y)), dtype)
    np.testing.assert_array_equal(found, np.asarray(want, dtype.np), strict=True)


UFUNCS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum, "eq": np.equal,
          "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}  # fmt: skip


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.is_integer and d.bits >= 8] + [F32, F64], ids=str)
@pytest.mark.parametrize("primitive", UFUNCS)
def test_operators_of_scalars_give_what_ufuncs_do(primitive: str, dtype: DType) -> None:
    """NaN, infinities, and integers that wrap included."""
    assert dtype.np is not None
    ends = () if dtype.is_float else (np.iinfo(dtype.np).min, np.iinfo(dtype.np).max)
    numbers = [-0.0, 0.0, 1.5, -INF, INF, np.nan] if dtype.is_float else [0, 1, 7, *ends]
    values = np.array(numbers, dtype.np)
    x, y = (v.ravel() for v in np.meshgrid(values, values))
    result = primitives.result_dtype(primitive, (dtype, dtype))
    with np.errstate(all="ignore"):
        want = UFUNCS[primitive](x, y)
    found = [primitives.evaluate(primitive, pair, result) for pair in zip(x, y, strict=True)]
    assert {f.dtype for f in found} == {want.dtype}
    np.testing.assert_array_equal(found, want)
    if dtype.is_float and primitive in ("add", "sub", "mul"):
        np.testing.assert_array_equal(np.signbit(np.array(found)[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))
