"""Loops over short rows, whose vectors go across rows."""

from __future__ import annotations

import ctypes
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.loops.program import For, walk

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.runtime.native.llvm.builder import IRBuilder, VectorValue
from deepx_graph.runtime.native.llvm.machine_code import collected, functions
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.llvm.transpose import load_columns, store_columns
from deepx_graph.runtime.native.loop_program.kernel import build
from deepx_graph.runtime.native.loop_program.outer_loop import outer_plan

NUMPY = {"f32": "f4", "f64": "f8"}
LENGTHS = [8, 9, 10, 15, 16, 17, 24, 31, 33, 64]


def _rows(rows: int, n: int, dtype: str) -> dx.Module:
    """Rows scaled by their greatest magnitude, as bytes; and what is left of them, softmax, beside a vector that all rows read."""
    return dx.loads(f"""func.func @main(%x: tensor<{rows}x{n}x{dtype}>, %w: tensor<{n}x{dtype}>)
        -> (tensor<{rows}x{n}xi8>, tensor<{rows}x{dtype}>, tensor<{rows}x{n}x{dtype}>) {{
      %low = stablehlo.constant dense<{"0xFF800000" if dtype == "f32" else "0xFFF0000000000000"}> : tensor<{dtype}>
      %zero = stablehlo.constant dense<0.0> : tensor<{dtype}>
      %steps = stablehlo.constant dense<100.0> : tensor<{rows}x{dtype}>
      %size = stablehlo.abs %x : tensor<{rows}x{n}x{dtype}>
      %most = stablehlo.reduce(%size init: %low) applies stablehlo.maximum across dimensions = [1]
        : (tensor<{rows}x{n}x{dtype}>, tensor<{dtype}>) -> tensor<{rows}x{dtype}>
      %scale = stablehlo.divide %most, %steps : tensor<{rows}x{dtype}>
      %scales = stablehlo.broadcast_in_dim %scale, dims = [0] : (tensor<{rows}x{dtype}>) -> tensor<{rows}x{n}x{dtype}>
      %q = stablehlo.divide %x, %scales : tensor<{rows}x{n}x{dtype}>
      %bytes = stablehlo.convert %q : (tensor<{rows}x{n}x{dtype}>) -> tensor<{rows}x{n}xi8>
      %ws = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<{n}x{dtype}>) -> tensor<{rows}x{n}x{dtype}>
      %y = stablehlo.multiply %x, %ws : tensor<{rows}x{n}x{dtype}>
      %e = stablehlo.exponential %y : tensor<{rows}x{n}x{dtype}>
      %sum = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<{rows}x{n}x{dtype}>, tensor<{dtype}>) -> tensor<{rows}x{dtype}>
      %sums = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<{rows}x{dtype}>) -> tensor<{rows}x{n}x{dtype}>
      %p = stablehlo.divide %e, %sums : tensor<{rows}x{n}x{dtype}>
      return %bytes, %scale, %p : tensor<{rows}x{n}xi8>, tensor<{rows}x{dtype}>, tensor<{rows}x{n}x{dtype}>
    }}""")


def _expected(x: Any, w: Any) -> tuple[Any, Any, Any]:
    scale = np.abs(x).max(1) / x.dtype.type(100)
    e = np.exp(x.astype("f8") * w)
    return np.trunc(x / scale[:, None]), scale, e / e.sum(1, keepdims=True)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("n", LENGTHS)
def test_rows_of_every_length(n: int, dtype: str) -> None:
    """Rows that fill vectors and those left, parts of rows that are whole and those that are not."""
    for rows in (7, 8, 15, 16, 17, 40, 131, 391):
        x, w = (np.random.default_rng(n).normal(size=size).astype(NUMPY[dtype]) for size in ((rows, n), (n,)))
        got = dx.compile(_rows(rows, n, dtype), engine="native", threads=2)(x, w)
        bytes_, scale, p = _expected(x, w)
        near = np.abs(bytes_ - got[0].astype("f8"))  # a quotient may be a neighbour of the nearest number
        assert near.max() <= 1 and (near > 0).mean() < 0.01
        np.testing.assert_array_equal(got[1], scale)
        np.testing.assert_allclose(got[2], p, rtol=2e-6 if dtype == "f32" else 1e-14)


def test_rows_of_a_few_elements_are_done_side_by_side() -> None:
    """A loop over rows has a plan where its rows are short, and folded, and neither so short that LLVM does the same."""
    for n, wanted in ((4, False), (8, True), (64, True), (65, False)):
        loops = [s for s in walk(build(_rows(100, n, "f32").entry, 1).program.body) if isinstance(s, For)]
        assert any(outer_plan(s, this_machine()) is not None for s in loops) == wanted, n


def test_passes_are_run_only_for_rows_left_that_are_not_few() -> None:
    """Of 24 rows one may be left."""
    lanes = this_machine().register_bytes // 4
    for vectors, left, wanted in ((24, lanes - 1, False), (20, lanes - 1, True), (1, 0, False), (1, lanes - 1, True)):
        with collected(this_machine()) as found:
            build(_rows(vectors * lanes + left, 10, "f32").entry, 1)
        assert {f.optimise for f in found.values()} == {wanted}, (vectors, left)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0])
def test_no_row_sees_what_is_in_another(value: float) -> None:
    x = np.ones((33, 10), "f4")
    x[5, 3] = value
    w = np.ones(10, "f4")
    with np.errstate(all="ignore"):
        _, scale, p = _expected(x, w)
    _, got_scale, got = dx.compile(_rows(33, 10, "f32"), engine="native", threads=1)(x, w)
    np.testing.assert_array_equal(got_scale, scale)
    np.testing.assert_allclose(got, p, rtol=2e-6)


@pytest.mark.parametrize("n", [8, 16, 40])
def test_rows_are_written_over_a_donated_argument(n: int) -> None:
    text = f"""func.func @main(%x: tensor<100x{n}xf32>) -> tensor<100x{n}xf32> {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<100x{n}xf32>, tensor<f32>) -> tensor<100xf32>
      %sums = stablehlo.broadcast_in_dim %sum, dims = [0] : (tensor<100xf32>) -> tensor<100x{n}xf32>
      %y = stablehlo.subtract %x, %sums : tensor<100x{n}xf32>
      return %y : tensor<100x{n}xf32>
    }}"""
    x = np.random.default_rng(0).integers(-9, 9, (100, n)).astype("f4")
    expected = x - x.sum(1, keepdims=True)
    (got,) = dx.compile(dx.loads(text), engine="native", threads=1)(x.copy(), donate=["x"])
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("n", [8, 12, 32])
def test_rows_of_narrow_numbers(n: int) -> None:
    text = f"""func.func @main(%x: tensor<50x{n}xbf16>, %q: tensor<50x{n}xi8>) -> (tensor<50xf32>, tensor<50xi32>) {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %none = stablehlo.constant dense<0> : tensor<i32>
      %f = stablehlo.convert %x : (tensor<50x{n}xbf16>) -> tensor<50x{n}xf32>
      %i = stablehlo.convert %q : (tensor<50x{n}xi8>) -> tensor<50x{n}xi32>
      %a = stablehlo.reduce(%f init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<50x{n}xf32>, tensor<f32>) -> tensor<50xf32>
      %b = stablehlo.reduce(%i init: %none) applies stablehlo.add across dimensions = [1]
        : (tensor<50x{n}xi32>, tensor<i32>) -> tensor<50xi32>
      return %a, %b : tensor<50xf32>, tensor<50xi32>
    }}"""
    random = np.random.default_rng(0)
    x = random.integers(-99, 99, (50, n)).astype(ml_dtypes.bfloat16)
    q = random.integers(-128, 127, (50, n)).astype("i1")
    sums = dx.compile(dx.loads(text), engine="native", threads=1)(x, q)
    np.testing.assert_array_equal(sums[0], x.astype("f4").sum(1))
    np.testing.assert_array_equal(sums[1], q.astype("i4").sum(1))


@pytest.mark.parametrize("dtype", ["i1", "f4", "f8"])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 10])
def test_columns_are_stored_as_they_are_loaded(count: int, dtype: str) -> None:
    """Columns are those of the rows, and go back to where they were. Each load and store is of elements of a row, however wide
    blocks are: none lies outside."""
    t, kind = IRBuilder(16), np.dtype(dtype)
    rows, others = ([t.address(at, str(k * count), kind) for k in range(16)] for at in ("%rows", "%others"))
    columns = load_columns(t, rows, count, kind)
    assert len(columns.parts) == count
    store_columns(t, VectorValue(columns.text, columns.dtype, columns.more), others)
    moved = [int(line.split("<")[1].split(" ")[0]) for line in t.lines if " load <" in line or "store <" in line]
    assert max(moved) <= count
    t.stores(columns, [t.address("%columns", str(k * 16), kind) for k in range(count)], None)
    ir = "\n".join([t.function("void @move(ptr %rows, ptr %columns, ptr %others)"), *t.declarations])
    given = np.random.default_rng(0).integers(-99, 99, (16, count)).astype(kind)
    turned, back = np.zeros((count, 16), kind), np.zeros_like(given)
    move = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(functions(ir, ["move"])["move"].address)
    move(given.ctypes.data, turned.ctypes.data, back.ctypes.data)
    np.testing.assert_array_equal(turned, given.T)
    np.testing.assert_array_equal(back, given)
