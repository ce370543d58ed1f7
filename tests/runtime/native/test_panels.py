"""Panels of an operand that does not lie along the result: all terms and columns are copied, whatever their numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.runtime.native import vectors
from deepx_graph.runtime.native.gemm.kernel import kernel_of
from deepx_graph.runtime.native.gemm.plan import planned
from deepx_graph.runtime.native.llvm.target import this_machine


@pytest.mark.parametrize("bits", [128, None], ids=str)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("columns", [8, 19, 64, 83])
@pytest.mark.parametrize("terms", [(1,), (4,), (7,), (64,), (515,), (516,), (1030,), (3, 5), (5, 8)], ids=str)
def test_panels_hold_every_term_and_column(bits: int | None, dtype: str, columns: int, terms: tuple[int, ...]) -> None:
    rng, axes = np.random.default_rng(0), tuple(range(1, 1 + len(terms)))
    x, y = (rng.integers(-4, 5, (n, *terms)).astype(dtype) for n in (40, columns))
    expected: Any = np.tensordot(x.astype(np.int64), y.astype(np.int64), (axes, axes))
    with vectors(bits):
        plan = planned(np.dtype(dtype), x.shape, y.shape, (), (), axes, axes)
        kernel = kernel_of.__wrapped__(plan, expected.shape, this_machine(), 1)
        assert np.array_equal(kernel([x, y])[0], expected)
