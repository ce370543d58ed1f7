"""Machine code of loop programs, as programs call it."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function
from deepx_graph.ops import add, convert, dynamic_update_slice, reshape
from deepx_graph.types import F32, I32, tensor

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.runtime.native.loop_program.kernel import build


@pytest.mark.parametrize(("dtype", "values"), [("bf16", [1, -2.5, 0.5]), ("f16", [1, -2.5, 0.5])])
def test_a_narrow_result_has_its_dtype_in_every_call(dtype: str, values: list[float]) -> None:
    """The first call runs kernel by kernel, later ones do not."""
    module = dx.loads(f"""func.func @main(%x: tensor<3x{dtype}>) -> tensor<3x{dtype}> {{
      %0 = stablehlo.multiply %x, %x : tensor<3x{dtype}>
      %1 = stablehlo.add %0, %x : tensor<3x{dtype}>
      return %1 : tensor<3x{dtype}>
    }}""")
    function = dx.compile(dx.optimize(module), engine="native", threads=1)
    x = np.array(values).astype(function.inputs[0].type.dtype.np)  # type: ignore[union-attr]
    for _ in range(3):
        (got,) = function(x)
        assert got.dtype == x.dtype
        assert got.tolist() == [v * v + v for v in values]


def test_what_two_nests_need_is_computed_in_each() -> None:
    """They may become functions of their own: no variable of one is seen in another."""
    b = Builder()
    x, i = b.param(0, tensor(F32, (4,))), b.param(1, tensor(I32, ()))
    twice = b(add, i, i)
    update = b(dynamic_update_slice, x, b(reshape, b(convert, twice, dtype=F32), shape=(1,)), twice)
    function = Function("f", (x, i), (twice, update, b(add, twice, i)))
    found = build(function, 1)([np.arange(4, dtype="f4"), np.int32(1)])
    assert [np.asarray(a).tolist() for a in found] == [2, [0, 1, 2, 3], 3]
