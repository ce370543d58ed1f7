"""The functions of the array API standard against numpy: on arrays with values, and traced and compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from tests.support.paths import ROOT

xp = dx.xp
X = np.linspace(-2, 3, 12).reshape(3, 4)
Y = np.linspace(0.5, 2, 12).reshape(3, 4)[:, ::-1].copy()
K = np.arange(12).reshape(3, 4) % 5 - 2
M = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])

Call = Callable[[Any, Any], Any]
ELEMENTWISE: dict[str, tuple[Any, ...]] = {
    "abs": (X,), "acos": (X / 4,), "acosh": (Y + 1,), "add": (X, Y), "asin": (X / 4,), "asinh": (X,), "atan": (X,), "atan2": (X, Y),
    "atanh": (X / 4,), "bitwise_and": (K, K + 3), "bitwise_or": (K, K + 3), "bitwise_xor": (K, K + 3), "bitwise_invert": (K,),
    "bitwise_left_shift": (K, abs(K)), "bitwise_right_shift": (K, abs(K)), "ceil": (X,), "conj": (X + 1j,), "copysign": (Y, X),
    "cos": (X,), "cosh": (X,), "divide": (X, Y), "equal": (K, K.T.reshape(3, 4)), "exp": (X,), "expm1": (X,), "floor": (X,),
    "floor_divide": (K, K[::-1] * 2 + 1), "greater": (X, 0.5), "greater_equal": (X, Y), "hypot": (X, Y), "imag": (X + 2j,),
    "isfinite": (np.array([1, np.inf, np.nan]),), "isinf": (np.array([1, -np.inf, np.nan]),),
    "isnan": (np.array([1, -np.inf, np.nan]),), "less": (X, Y), "less_equal": (X, Y), "log": (Y,), "log1p": (Y,), "log2": (Y,),
    "log10": (Y,), "logaddexp": (X, Y), "logical_and": (K > 0, K < 2), "logical_or": (K > 0, K < 2), "logical_xor": (K > 0, K < 2),
    "logical_not": (K > 0,), "maximum": (X, Y), "minimum": (X, Y), "multiply": (X, Y), "negative": (X,), "nextafter": (X, Y),
    "not_equal": (K, 1), "positive": (X,), "pow": (Y, X), "real": (X + 1j,), "reciprocal": (Y,), "remainder": (X, Y - 3),
    "round": (X,), "sign": (X,), "signbit": (X,), "sin": (X,), "sinh": (X,), "sqrt": (Y,), "square": (X,), "subtract": (X, Y),
    "tan": (X,), "tanh": (X,), "trunc": (X,),
}  # fmt: skip

CALLS: dict[str, tuple[Call, tuple[Any, ...]]] = {
    "sum": (lambda p, x: p.sum(x, axis=1, keepdims=True), (X,)), "sum of integers": (lambda p, x: p.sum(x), (K.astype("i1"),)),
    "prod": (lambda p, x: p.prod(x, axis=(0, 1)), (Y,)), "max": (lambda p, x: p.max(x, axis=-1), (X,)),
    "min": (lambda p, x: p.min(x), (X,)), "mean": (lambda p, x: p.mean(x, axis=0), (X,)),
    "all": (lambda p, x: p.all(x, axis=0), (K,)), "any": (lambda p, x: p.any(x, axis=1), (K,)),
    "argmax": (lambda p, x: p.argmax(x, axis=1), (K,)), "argmin": (lambda p, x: p.argmin(x), (K,)),
    "count_nonzero": (lambda p, x: p.count_nonzero(x, axis=1), (K,)), "diff": (lambda p, x: p.diff(x, n=2), (X**2,)),
    "sort": (lambda p, x: p.sort(x, axis=0), (X[::-1],)), "argsort": (lambda p, x: p.argsort(x, axis=1, stable=True), (K,)),
    "searchsorted": (lambda p, x: p.searchsorted(p.sort(p.reshape(x, (12,))), x), (K,)),
    "where": (lambda p, x, y: p.where(x > 0, x, y), (X, Y)), "clip": (lambda p, x: p.clip(x, -1, 1.5), (X,)),
    "concat": (lambda p, x, y: p.concat([x, y], axis=1), (X, Y)), "stack": (lambda p, x, y: p.stack([x, y], axis=1), (X, Y)),
    "flip": (lambda p, x: p.flip(x, axis=1), (X,)), "roll": (lambda p, x: p.roll(x, (1, -2), axis=(0, 1)), (X,)),
    "roll of all": (lambda p, x: p.roll(x, 5), (X,)), "tile": (lambda p, x: p.tile(x, (2, 1, 3)), (X,)),
    "repeat": (lambda p, x: p.repeat(x, 3, axis=1), (X,)), "moveaxis": (lambda p, x: p.moveaxis(x, 0, -1), (X[None],)),
    "permute_dims": (lambda p, x: p.permute_dims(x, (1, 0)), (X,)), "squeeze": (lambda p, x: p.squeeze(x, 0), (X[None],)),
    "reshape": (lambda p, x: p.reshape(x, (2, -1)), (X,)), "tril": (lambda p, x: p.tril(x, k=-1), (X,)),
    "triu": (lambda p, x: p.triu(x, k=1), (X,)), "meshgrid": (lambda p, x: p.meshgrid(x[0], x[:, 0])[0], (X,)),
    "matmul": (lambda p, x, y: p.matmul(x, y.T), (X, Y)), "a vector": (lambda p, x, y: x @ y[0], (X, Y)),
    "batches": (lambda p, x, y: p.matmul(p.stack([x, x + 1]), y.T), (X, Y)),
    "tensordot": (lambda p, x, y: p.tensordot(x, y, axes=((0, 1), (0, 1))), (X, Y)),
    "take": (lambda p, x, k: p.take(x, k[0] + 2, axis=1), (X, K % 2)),
    "take_along_axis": (lambda p, x, k: p.take_along_axis(x, p.abs(k), axis=1), (X, K)),
    "slices": (lambda p, x: x[::-2, 1:-1], (X,)), "new axes": (lambda p, x: x[..., None, 2], (X,)),
    "indices": (lambda p, x, k: x[p.abs(k), 1], (X, K)), "pairs": (lambda p, x, k: x[k, p.abs(k)], (X, K)),
    "outer indices": (lambda p, x, k: x[:, k[:2]], (X, K)), "cholesky": (lambda p, x: p.linalg.cholesky(x), (M,)),
    "solve": (lambda p, x: p.linalg.solve(x, x[:, :2] + 1), (M[::-1],)), "inv": (lambda p, x: p.linalg.inv(x), (M[::-1],)),
    "det": (lambda p, x: p.linalg.det(x), (M[::-1],)), "slogdet": (lambda p, x: p.linalg.slogdet(x)[1], (M,)),
    "eigvalsh": (lambda p, x: p.linalg.eigvalsh(x), (M,)), "pinv": (lambda p, x: p.linalg.pinv(x), (X,)),
    "svdvals": (lambda p, x: p.linalg.svdvals(x), (X,)), "matrix_rank": (lambda p, x: p.linalg.matrix_rank(x), (X,)),
    "matrix_power": (lambda p, x: p.linalg.matrix_power(x, -3), (M,)), "cross": (lambda p, x: p.linalg.cross(x, x + 1), (M,)),
    "qr": (lambda p, x: p.linalg.qr(x)[0] @ p.linalg.qr(x)[1], (X,)),
    "norm": (lambda p, x: p.linalg.matrix_norm(x, ord="nuc"), (X,)),
    "vector_norm": (lambda p, x: p.linalg.vector_norm(x, axis=1, ord=3), (X,)),
    "trace": (lambda p, x: p.linalg.trace(x, offset=1), (X,)), "fft": (lambda p, x: p.fft.fft(x, n=5, norm="ortho"), (X,)),
    "rfftn": (lambda p, x: p.fft.rfftn(x), (X,)), "irfft": (lambda p, x: p.fft.irfft(p.fft.rfft(x, axis=0), n=3, axis=0), (X,)),
    "hfft": (lambda p, x: p.fft.hfft(x), (X,)), "fftshift": (lambda p, x: p.fft.fftshift(x), (X,)),
    "cumulative_sum": (lambda p, x: p.cumulative_sum(x, axis=1, include_initial=True), (X,)),
    "cumulative_prod": (lambda p, x: p.cumulative_prod(x, axis=0), (Y,)),
}  # fmt: skip


def check(function: Callable[..., Any], arrays: tuple[Any, ...], want: Any, tolerance: float = 1e-9) -> None:
    """The function on arrays with values, and as a traced program on two engines."""
    eager = function(*(xp.asarray(a) if isinstance(a, np.ndarray) else a for a in arrays))
    module = dx.trace(function, *arrays)
    given = [a for a in arrays if isinstance(a, np.ndarray)]
    for found in (np.asarray(eager), *(dx.compile(module, engine=e, optimize=False)(*given)[0] for e in ("numpy", "auto"))):
        assert found.dtype == np.asarray(want).dtype and found.shape == np.shape(want)
        np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise_functions(name: str) -> None:
    arrays = ELEMENTWISE[name]
    check(getattr(xp, name), arrays, getattr(np, name)(*arrays))


@pytest.mark.parametrize("name", CALLS)
def test_functions_of_whole_arrays(name: str) -> None:
    call, arrays = CALLS[name]
    want = call(np, *arrays)
    check(lambda *xs: call(xp, *xs), arrays, want)


def test_every_name_of_the_standard_is_here() -> None:
    stubs = ROOT.parent / "shared" / "suites" / "array_api_tests" / "array-api" / "src" / "array_api_stubs" / "_2024_12"
    if not stubs.is_dir():
        pytest.skip("the stubs of the standard are not on this machine")
    import ast

    for file in stubs.glob("*_functions.py"):
        for node in ast.parse(file.read_text()).body:
            assert not isinstance(node, ast.FunctionDef) or node.name in xp.__all__, node.name
    for extension in ("linalg", "fft"):
        for node in ast.parse((stubs / f"{extension}.py").read_text()).body:
            assert not isinstance(node, ast.FunctionDef) or hasattr(getattr(xp, extension), node.name), node.name


def test_promotion_and_numbers() -> None:
    small, wide = xp.asarray(np.ones(2, "f4")), xp.asarray(np.ones(2, "i8"))
    assert (small + 1.5).dtype is xp.float32 and (wide + 1).dtype is xp.int64 and (small * 1j).dtype is xp.complex64
    assert (1 - xp.asarray(np.ones(2, "i1"))).dtype is xp.int8 and xp.result_type(xp.int8, xp.uint8) is xp.int16
    with pytest.raises(TypeError, match="no integer type"):
        wide + xp.asarray(np.ones(2, "u8"))
    assert repr(small) == "Array([1., 1.], f32)" and float(small[0]) == 1.0 and [float(v) for v in small] == [1.0, 1.0]


def test_items_are_set() -> None:
    x, want = xp.asarray(X), X.copy()
    x[1, ::2] = 7
    want[1, ::2] = 7
    x[x > 2] = -1.0
    want[want > 2] = -1.0
    np.testing.assert_array_equal(np.asarray(x), want)

    def set_row(v: Any) -> Any:
        v[0] = v[2] * 2
        return v

    want = X.copy()
    want[0] = want[2] * 2
    check(lambda v: set_row(v + 0.0), (X,), want)


def test_what_depends_on_values() -> None:
    x = xp.asarray(K)
    assert [np.asarray(k).tolist() for k in xp.nonzero(x)] == [k.tolist() for k in np.nonzero(K)]
    assert np.asarray(xp.unique_values(x)).tolist() == sorted(set(K.reshape(-1).tolist()))
    with pytest.raises(dx.UsageError, match=r"test_functions.py:\d+: the value of an array is asked for"):
        dx.trace(xp.nonzero, X)


@pytest.mark.conformance
def test_the_official_suite(tmp_path: Path) -> None:
    """Every test passes."""
    suite = ROOT.parent / "shared" / "suites" / "array_api_tests"
    try:
        import ndindex  # noqa: F401
    except ImportError:
        pytest.skip("ndindex, which the suite needs, is not installed")
    if not suite.is_dir():
        pytest.skip("the suite is not on this machine")
    import shutil

    shutil.copytree(suite, tmp_path / "suite")
    (tmp_path / "suite" / "array-api" / "spec" / "2024.12" / "API_specification").mkdir(parents=True)
    (tmp_path / "suite" / "reporting.py").write_text("pytest_metadata = pytest_json_modifyreport = lambda **k: None\n"
                                                     "add_extra_json_metadata = None\n")
    conftest = tmp_path / "suite" / "conftest.py"
    conftest.write_text("\n".join(line for line in conftest.read_text().split("\n") if not line.startswith("from reporting")))
    options = ["-q", "-rf", "--max-examples", "15", "--disable-deadline"]
    environment = {**os.environ, "ARRAY_API_TESTS_MODULE": "deepx_graph.array_api", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "pytest", *options, "array_api_tests"], cwd=tmp_path / "suite",
                          capture_output=True, text=True, check=False, env=environment)
    failed = [line for line in done.stdout.split("\n") if line.startswith("FAILED")]
    assert failed == [], json.dumps(failed, indent=1)
    assert " passed" in done.stdout, done.stdout[-2000:]

