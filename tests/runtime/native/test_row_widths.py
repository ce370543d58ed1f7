"""Rows of every width: vectors, narrower ones for what is left, and masks for what is left then."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ops import add, broadcast_in_dim, convert, dynamic_update_slice, exponential, maximum, slice_
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.types import type_of_array

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")

WIDTHS = (*range(8, 34), 36, 40, 44, 47, 48, 50, 52, 56, 60, 63, 65, 68, 100, 116)


def agrees(body: Any, arrays: list[np.ndarray[Any, Any]], *, tolerance: float = 0) -> None:
    """The native engine gives what the reference gives."""
    module = Module((Builder().function("main", [(f"x{k}", type_of_array(a)) for k, a in enumerate(arrays)], body),))
    found, want = (dx.compile(module, engine=e, optimize=False)(*arrays) for e in ("native", "numpy"))
    for f, w in zip(found, want, strict=True):
        np.testing.assert_allclose(f, w, rtol=tolerance)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i1"])
def test_folds_side_by_side(dtype: str, width: int) -> None:
    """Totals in local memory, of columns and of what rows and columns make; next to them nothing is written."""
    rng, b = np.random.default_rng(width), Builder()
    s, t = rng.integers(-9, 9, (3, 21)).astype(dtype), rng.integers(-9, 9, (21, width)).astype(dtype)

    def best(s: Node, t: Node) -> list[Node]:
        every = [b(broadcast_in_dim, x, shape=(3, 21, width), broadcast_dimensions=at) for x, at in ((s, (0, 1)), (t, (1, 2)))]
        return [reduction(b, maximum, b(add, *every), (1,)), reduction(b, add, t, (0,))]

    agrees(best, [s, t])


@pytest.mark.parametrize("width", WIDTHS)
def test_rows_that_begin_anywhere(width: int) -> None:
    rng, b = np.random.default_rng(width), Builder()
    x = rng.random((7, width + 3))

    def later(x: Node) -> list[Node]:
        part = b(slice_, x, start_indices=(0, 3), limit_indices=(7, width + 3), strides=(1, 1))
        return [b(exponential, part), reduction(b, maximum, b(exponential, part), (0,))]

    agrees(later, [x], tolerance=1e-14)
    agrees(later, [x.astype("f4")], tolerance=1e-6)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("wide", "narrow"), [
    ("f4", "bf16"), ("f8", "bf16"), ("f4", "f2"), ("i4", "u1"), ("i4", "i2"), ("i8", "i4"), ("i8", "i2"), ("i8", "i1"),
    ("f8", "i1"), ("i8", "i8"), ("i1", "i8"), ("f4", "?"), ("f8", "?")])
def test_elements_made_narrower_are_written_alone(wide: str, narrow: str, width: int) -> None:
    """What lies behind each row stays: the last elements of a row are fewer than a vector has."""
    rng, b, dtype = np.random.default_rng(width), Builder(), np.dtype(ml_dtypes.bfloat16 if narrow == "bf16" else narrow)
    below, rows = rng.integers(1, 9, (5, width + 9)).astype(dtype), rng.integers(1, 9, (5, width)).astype(wide)

    def over(below: Node, rows: Node) -> list[Node]:
        zero = b.constant(np.int32(0))
        return [b(dynamic_update_slice, below, b(convert, b(add, rows, rows), dtype=below.type.dtype), zero, zero)]

    agrees(over, [below, rows])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "i8", "?"])
def test_elements_that_are_looked_up(dtype: str, width: int) -> None:
    """At positions that are read, and computed with: one by one in a row of vectors, and none behind the last of a row."""
    rng = np.random.default_rng(width)
    table, places = rng.integers(0, 5, 40).astype(dtype), rng.integers(0, 40, (3, width)).astype("i4")

    def looked_up(xp: Any, table: Any, places: Any) -> Any:
        steps = places * 7 + xp.maximum(places - 3, places * 0) * 2
        at = xp.minimum(xp.maximum(39 - steps // 9, places * 0), places * 0 + 39)
        found = xp.take(table, xp.reshape(at, (-1,)))
        return xp.where(xp.reshape(places, (-1,)) > 7, found, xp.take(table, xp.reshape(places, (-1,)) * 0 + 1))

    module = dx.trace(lambda table, places: looked_up(dx.xp, table, places), table, places)
    found, = dx.compile(module, engine="native")(table, places)
    np.testing.assert_array_equal(found, looked_up(np, table, places))
