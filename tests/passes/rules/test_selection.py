"""The first few of a sort, looked for: the same elements to the bit, whatever is equal, zero, infinite or no number."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.runtime.engines import has_native

DTYPES: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32,
                          "i8": np.int8, "u8": np.uint8, "bool": np.bool_}
FLOATS = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1, 2, -1]
PROGRAM = """sea 1
entry @main
func public @main(%x: DTYPE[7,40], %y: f32[7,40]) -> (%a: DTYPE[7,5], %b: i32[7,5], %c: f32[7,5]) {
  %i = iota dim = 1 : i32[7,40]
  %s = sort %x, %i, %y, dim = 1, by func @by(%a: DTYPE[], %b: DTYPE[], %i: i32[], %j: i32[], %c: f32[], %d: f32[]) -> (%o: bool[]) {
    %o = compare DIRECTION, %a, %bORDER : bool[]
    return %o
  } : (DTYPE[7,40], i32[7,40], f32[7,40])
  %0 = proj %s[0] : DTYPE[7,40]
  %1 = proj %s[1] : i32[7,40]
  %2 = proj %s[2] : f32[7,40]
  %a = slice %0, from [0, 0] to [7, 5] by [1, 1] : DTYPE[7,5]
  %b = slice %1, from [0, 0] to [7, 5] by [1, 1] : i32[7,5]
  %c = slice %2, from [0, 0] to [7, 5] by [1, 1] : f32[7,5]
  return %a, %b, %c
}
"""
CASES = [(dtype, direction, order) for dtype in DTYPES for direction in ("LT", "GT")
         for order in ("", *([' {compare_type = "TOTALORDER"}'] if "f" in dtype else []))]  # fmt: skip


@pytest.mark.parametrize(("dtype", "direction", "order"), CASES)
def test_the_first_of_a_sort(dtype: str, direction: str, order: str) -> None:
    module = dx.loads(PROGRAM.replace("DTYPE", dtype).replace("DIRECTION", direction).replace("ORDER", order, 1), "sea")
    after = dx.optimize(module)
    assert "sort" not in dx.dumps(after, "sea")
    rng, np_dtype = np.random.default_rng(7), np.dtype(DTYPES[dtype])
    few = np.array(FLOATS if "f" in dtype else [0, 1] if dtype == "bool" else [0, 1, 2, 3, 100])
    x, y = rng.choice(few, (7, 40)).astype(np_dtype), rng.random((7, 40)).astype(np.float32)
    wanted = dx.compile(module, engine="numpy", optimize=False)(x, y)
    for engine in ("numpy", *(["native"] if has_native() else [])):
        found = dx.compile(after, engine=engine, optimize=False)(x, y)
        assert [f.tobytes() for f in found] == [w.tobytes() for w in wanted], engine
