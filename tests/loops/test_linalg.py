"""Factorisations and solves as loop programs, interpreted and as machine code."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from deepx_graph.ops import cholesky, triangular_solve
from tests.support.loop_programs import agrees

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")


def positive(kind: str, *shape: int) -> Any:
    rng = np.random.default_rng(0)
    n = shape[-1]
    m = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if kind.startswith("c") else 0)
    type = ml_dtypes.bfloat16 if kind == "bf16" else kind
    return (m @ np.swapaxes(m, -1, -2).conj() / n + 2 * np.eye(n)).astype(type)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", ["f4", "f8", "c8", "c16", "bf16"])
@pytest.mark.parametrize("shape", [(1, 1), (7, 7), (3, 5, 5), (0, 0), (75, 75)])
def test_cholesky(shape: Any, kind: str, lower: bool) -> None:
    agrees(cholesky, [positive(kind, *shape)], {"lower": lower}, interpreted=shape[-1] < 10)


@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_reads_one_triangle_and_gives_nan_for_what_is_not_positive(lower: bool) -> None:
    a = np.stack([positive("f8", 4, 4)] * 2)
    a[1, 2, 2] = -1
    a[(0, 0, 3) if not lower else (0, 3, 0)] += 0.25
    agrees(cholesky, [a], {"lower": lower})


@pytest.mark.parametrize("kind", ["f4", "c16", "bf16"])
@pytest.mark.parametrize("how", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(("batch", "n", "others", "left"), [
    ((), 6, 9, True), ((2,), 5, 1, True), ((2,), 5, 3, False), ((2,), 3, 7, False),
    ((), 3, 300, True)])
def test_triangular_solve(batch: Any, n: int, others: int, left: bool, lower: bool, unit: bool, how: str, kind: str) -> None:
    """The other triangle holds what would spoil the result."""
    a = positive(kind, *batch, n, n)
    a = np.where(np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T, a, np.asarray(1e3, a.dtype))
    right = positive(kind, *batch, max(n, others), max(n, others))[..., :n, :others]
    right = right if left else np.swapaxes(right, -1, -2)
    agrees(triangular_solve, [a, np.ascontiguousarray(right)],
           {"left_side": left, "lower": lower, "unit_diagonal": unit, "transpose_a": how}, interpreted=others < 4)
