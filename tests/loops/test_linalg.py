"""Factorisations and solves as loop programs, interpreted and as machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import scipy.linalg

from deepx_graph.ir import Module, Op
from deepx_graph.ops import cholesky, triangular_solve
from deepx_graph.runtime.compile import compile
from tests.support.laws import one_op
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


BORDERS = [1, 31, 32, 33, 64, 65, 80, 200]
"""Sizes around those of blocks and tiles, and around the least of matrices that have some."""

ENGINES = ["native", "numexpr", "numpy"]


def run_on(engine: str, op: Op, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    (found,) = compile(Module((one_op(op, arrays, attrs),), "law"), engine=engine, threads=2)(*arrays)
    return found


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n", BORDERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_cholesky_is_that_of_lapack_at_borders_of_blocks(engine: str, n: int, lower: bool) -> None:
    a = positive("f8", 2, n, n)
    found = run_on(engine, cholesky, [a], {"lower": lower})
    expected = np.stack([scipy.linalg.cholesky(x, lower=lower) for x in a])
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind", ["f4", "f8", "c8", "c16", "bf16"])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("n", [66, 80, 200])
def test_cholesky_by_blocks(n: int, lower: bool, kind: str) -> None:
    """Of two matrices the second fails, in its last block; what the other triangle holds is not read."""
    a = np.stack([positive(kind, n, n)] * 2)
    a[1, n - 2, n - 2] = -1
    a = np.where(np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T, a, np.asarray(np.nan, a.dtype))
    agrees(cholesky, [a], {"lower": lower}, interpreted=n == 66 and kind == "f8")


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize(("lower", "how"), [(True, "NO_TRANSPOSE"), (True, "TRANSPOSE"), (False, "ADJOINT")])
@pytest.mark.parametrize("n", BORDERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_triangular_solve_is_that_of_lapack_at_borders_of_blocks(engine: str, n: int, lower: bool, how: str, left: bool) -> None:
    """Also with right-hand sides that are no whole number of tiles, in strips that threads share."""
    rng, a = np.random.default_rng(n), positive("f8", n, n)
    for others, unit in ((5, False), (73, True)):
        right = rng.standard_normal((n, others))
        given = [a / (n if unit else 1), right if left else np.ascontiguousarray(right.T)]
        attrs = {"left_side": left, "lower": lower, "unit_diagonal": unit, "transpose_a": how}
        found = run_on(engine, triangular_solve, given, attrs)
        trans = (how != "NO_TRANSPOSE") == left  # x a = b where a^T x^T = b^T
        expected = scipy.linalg.solve_triangular(given[0], right, trans=int(trans), lower=lower, unit_diagonal=unit)
        np.testing.assert_allclose(found if left else found.T, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["f4", "f8", "c8", "bf16"])
@pytest.mark.parametrize("how", ["NO_TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(("batch", "n", "others", "left"), [((), 66, 5, True), ((3,), 67, 70, True), ((2,), 72, 17, False)])
def test_triangular_solve_by_tiles(batch: Any, n: int, others: int, left: bool, lower: bool, how: str, kind: str) -> None:
    """The other triangle holds what would spoil the result."""
    a = positive(kind, *batch, n, n)
    a = np.where(np.tri(n, dtype=bool) if lower else np.tri(n, dtype=bool).T, a, np.asarray(np.nan, a.dtype))
    right = positive(kind, *batch, 80, 80)[..., :n, :others]
    right = right if left else np.swapaxes(right, -1, -2)
    attrs = {"left_side": left, "lower": lower, "unit_diagonal": False, "transpose_a": how}
    agrees(triangular_solve, [a, np.ascontiguousarray(right)], attrs, interpreted=others == 5 and kind == "f8")
