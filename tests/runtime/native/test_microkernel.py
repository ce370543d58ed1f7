"""Register tiles of products against numpy's, whatever their shape, and the exchange of rows and lanes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

from deepx_graph.runtime.native.gemm.elements import PanelElements
from deepx_graph.runtime.native.gemm.microkernel import PointerLoop, Tile, TileOperand, accumulate, block_lanes, transposed_strip
from deepx_graph.runtime.native.llvm.builder import F4, F8, IRBuilder, VectorValue
from deepx_graph.runtime.native.llvm.machine_code import linker
from deepx_graph.runtime.native.llvm.target import this_machine

Array = np.ndarray[Any, Any]
DTYPES = pytest.mark.parametrize("dtype", [F4, F8], ids=str)


def run(name: str, t: IRBuilder, *arrays: Array) -> None:
    """Calls a function of that body with the arrays' addresses as %a, %b, %c."""
    head = f"define void @{name}(ptr %a, ptr %b, ptr %c) nounwind \"stackrealign\" {{"
    ir = "\n".join([head, "entry:", *t.lines, "  ret void", "}", *t.declarations])
    address = linker().link(ir, this_machine().compile(ir), [name])[name]
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)(address)(*[a.ctypes.data for a in (*arrays, *arrays)][:3])


def lanes(dtype: np.dtype[Any]) -> int:
    return this_machine().register_bytes // dtype.itemsize


def numbers(*shape: int) -> Array:
    """Small whole numbers: their sums are exact."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape)


@DTYPES
@pytest.mark.parametrize(("rows", "vectors", "unroll"), [(14, 2, 4), (6, 4, 1), (1, 1, 2), (5, 3, 1)])
def test_the_microkernel_on_packed_panels(rows: int, vectors: int, unroll: int, dtype: np.dtype[Any]) -> None:
    t, width, depth = IRBuilder(lanes(dtype)), vectors * lanes(dtype), 12
    tile = Tile(rows, vectors)
    operands = (TileOperand(tuple(range(rows)), 0, spread=True), TileOperand((0,) * rows, t.lanes, spread=False))
    loop = PointerLoop(str(depth // unroll), (str(unroll * rows), str(unroll * width)))
    sums = accumulate(t, dtype, tile, operands, ("%a", "%b"), [loop], [(k * rows, k * width) for k in range(unroll)])
    for r, row in enumerate(sums):
        for v, x in enumerate(row):
            t.store(x, t.address("%c", str(r * width + v * t.lanes), dtype), None)
    a, b, c = numbers(depth, rows).astype(dtype), numbers(depth, width).astype(dtype), np.empty((rows, width), dtype)
    run(f"product{rows}_{vectors}_{dtype.itemsize}", t, a, b, c)
    assert np.array_equal(c, a.T @ b)


@DTYPES
def test_sums_over_nested_loops(dtype: np.dtype[Any]) -> None:
    """Windows of three by two over rows of ten, two at once, with a vector of weights for each place."""
    t, n = IRBuilder(lanes(dtype)), lanes(dtype)
    operands = (TileOperand((0, 1), 0, spread=True), TileOperand((0, 0), n, spread=False))
    loops = [PointerLoop("3", ("10", str(2 * n))), PointerLoop("2", ("1", str(n)))]
    for r, (x,) in enumerate(accumulate(t, dtype, Tile(2, 1), operands, ("%a", "%b"), loops, [(0, 0)])):
        t.store(x, t.address("%c", str(r * n), dtype), None)
    a, b, c = numbers(3, 10).astype(dtype), numbers(3, 2, n).astype(dtype), np.empty((2, n), dtype)
    want = [sum(a[i, j + r] * b[i, j] for i in range(3) for j in range(2)) for r in range(2)]
    run(f"windows{dtype.itemsize}", t, a, b, c)
    assert np.array_equal(c, want)


@DTYPES
def test_rows_and_lanes_are_exchanged(dtype: np.dtype[Any]) -> None:
    t, n = IRBuilder(lanes(dtype)), lanes(dtype)
    block = block_lanes(n, dtype)
    for k, x in enumerate(transposed_strip(t, [t.address("%a", str(r * block), dtype) for r in range(n)], PanelElements(dtype))):
        t.store(x, t.address("%b", str(k * n), dtype), None)
    a, b = numbers(n, block).astype(dtype), np.empty((block, n), dtype)
    run(f"turned{dtype.itemsize}", t, a, b)
    assert np.array_equal(b, a.T)


@pytest.mark.parametrize(("low", "high", "step"), [(0, 0, 1), (5, 3, 2), (0, 1, 1), (2, 9, 8), (2, 10, 8), (2, 11, 8), (0, 7, 1)])
def test_loops_between_numbers_are_those_of_range(low: int, high: int, step: int) -> None:
    """Carried: the indices as digits of a number, so that their order counts. There is no loop for one iteration."""
    t, integer = IRBuilder(1), np.dtype("i8")

    def digits(i: str, carried: Sequence[VectorValue]) -> Sequence[VectorValue]:
        tens = t.let(f"mul i64 {carried[0].text}, 100")
        return [t.value(f"add i64 {tens}, {i}", integer)]

    (last,) = t.loop(str(low), str(high), [t.splat(7, integer)], digits, step)
    t.store(last, "%a", None)
    found, expected = np.zeros(1, integer), 7
    run(f"range{low}_{high}_{step}", t, found, found)
    for i in range(low, high, step):
        expected = 100 * expected + i
    assert found[0] == expected
    assert any("phi" in line for line in t.lines) == (len(range(low, high, step)) > 1)
