"""Machine code of loop programs, as programs call it."""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")


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
