"""Copies of transposed arrays, tile by tile in registers.

numpy copies a transposed array element by element, with a cache line fetched for each. Here a square tile is loaded along the axis
whose elements lie side by side, transposed by shuffles, and stored along the last axis. The machine code is the same for every
array with elements of 4 or 8 bytes; it reads and writes those elements and no others.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.kernels.threads import TEAM
from deepx_graph.runtime.memory.pool import RESULTS
from deepx_graph.runtime.native.gemm.microkernel import transposed
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.builder import BOOL, DType, IRBuilder, below, branch, least, stepped
from deepx_graph.runtime.native.llvm.target import Target, this_machine

LANES = {4: 16, 8: 8}
"""Elements of a tile's side, by their size: a cache line."""

PANEL = 64
"""Columns that are done for all rows before the next: their pages and lines stay at hand."""

LEAST = 32768
"""Smaller arrays are numpy's."""

SHORT_ROW = 64
"""Bytes of a row for which numpy's loop over elements takes longer than for the elements."""

SHARED = 500_000
"""From so many elements on, the slices of an array are shared out among the threads."""

_TRANSPOSE = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 4)


def contiguous(array: Array, threads: int = 1) -> Array:
    """The array in C order: itself where it is, else a copy."""
    if array.flags.c_contiguous:
        return array
    copy = RESULTS.empty(array.shape, array.dtype)
    axis = _side_by_side(array)
    if axis is not None:
        _copy_transposed(array, copy, axis, threads)
    elif _has_short_rows(array):
        row = f"V{array.shape[-1] * array.itemsize}"
        copy.view(row)[...] = array.view(row)
    else:
        copy[...] = array
    return copy


def _has_short_rows(array: Array) -> bool:
    """Whether neighbours along the last axis are so few that they are better copied as one element."""
    dense = array.ndim > 0 and array.shape[-1] > 1 and array.strides[-1] == array.itemsize and not array.dtype.hasobject
    return dense and array.size > 0 and array.shape[-1] * array.itemsize <= SHORT_ROW


def _side_by_side(array: Array) -> int | None:
    """The axis along which elements are neighbours in memory, where tiles pay: not the last one, and both long enough."""
    lanes = LANES.get(array.itemsize)
    if lanes is None or array.size < LEAST or array.shape[-1] < lanes or array.strides[-1] < 0 or array.dtype.hasobject:
        return None
    axes = [k for k in range(array.ndim - 1) if array.strides[k] == array.itemsize and array.shape[k] >= lanes]
    return axes[0] if axes else None


def _copy_transposed(array: Array, copy: Array, axis: int, threads: int) -> None:
    transpose, size = _function(array.itemsize, this_machine()), array.itemsize
    source, target = array.__array_interface__["data"][0], copy.__array_interface__["data"][0]
    outer = [k for k in range(array.ndim - 1) if k != axis]
    rows, columns = array.shape[axis], array.shape[-1]
    steps = (array.strides[-1] // size, copy.strides[axis] // size)
    pieces = _pieces(rows, math.prod(array.shape[k] for k in outer)) if array.size >= SHARED and threads > 1 else [(0, rows)]
    panels = itertools.product(itertools.product(*(range(array.shape[k]) for k in outer)), pieces)
    taking = _taken(panels)

    def work() -> None:
        while (found := taking()) is not None:
            index, (low, high) = found
            x = source + sum(i * array.strides[k] for i, k in zip(index, outer, strict=True)) + low * size
            y = target + sum(i * copy.strides[k] for i, k in zip(index, outer, strict=True)) + low * copy.strides[axis]
            transpose(x, y, high - low, columns, *steps)

    TEAM.run(work, threads if array.size >= SHARED else 1)


def _pieces(rows: int, slices: int) -> list[tuple[int, int]]:
    """Ranges of rows: one where there are slices enough to share out."""
    each = rows if slices >= 4 else max(64, -(-rows // 4 // 16) * 16)
    return [(k, min(rows, k + each)) for k in range(0, rows, each)]


def _taken(items: Any) -> Callable[[], Any]:
    """A function that gives the next item, or None; one iterator may not be asked by two threads at once, a list may."""
    rest = list(items)

    def take() -> Any:
        try:
            return rest.pop()
        except IndexError:
            return None

    return take


@cache
def _function(size: int, machine: Target) -> Callable[..., None]:
    """Kept for each machine, that is for each width of its vectors."""
    return _TRANSPOSE(machine_code.functions(text(size), [f"transpose{size}"])[f"transpose{size}"])


def text(size: int) -> str:
    """The IR of `transpose(source, target, rows, columns, source step, target step)` for elements of that size; steps in elements.

    `source[r + c * source step]` goes to `target[r * target step + c]`, a panel of columns after the other.
    """
    t, lanes = IRBuilder(LANES[size]), LANES[size]
    dtype = np.dtype(f"i{size}")

    def panel(start: str) -> None:
        end = least(t, t.let(f"add i64 {start}, {PANEL}"), "%columns")
        stepped(t, "0", "%rows", lanes, lambda r: stepped(t, start, end, lanes, lambda c: tile(r, c, end)))

    def tile(r: str, c: str, end: str) -> None:
        source = t.address("%x", t.let(f"add i64 {t.let(f'mul i64 {c}, %sx')}, {r}"), dtype)
        target = t.address("%y", t.let(f"add i64 {t.let(f'mul i64 {r}, %sy')}, {c}"), dtype)
        rows, columns = t.let(f"sub i64 %rows, {r}"), t.let(f"sub i64 {end}, {c}")
        full = t.let(f"and i1 {t.let(f'icmp sge i64 {rows}, {lanes}')}, {t.let(f'icmp sge i64 {columns}, {lanes}')}")
        args = f"ptr {source}, ptr {target}, i64 %sx, i64 %sy, i64 {rows}, i64 {columns}"
        branch(t, full, lambda: t.line(f"call void @tile({args})"), lambda: t.line(f"call void @edge({args})"))

    stepped(t, "0", "%columns", PANEL, panel)
    head = f"define void @transpose{size}(ptr %x, ptr %y, i64 %rows, i64 %columns, i64 %sx, i64 %sy) nounwind {{"
    tiles = [_tile("tile", dtype, t, is_part=False), _tile("edge", dtype, t, is_part=True)]
    return "\n".join([head, "entry:", *t.lines, "  ret void", "}", *tiles, *t.declarations, ""])


def _tile(name: str, dtype: DType, caller: IRBuilder, *, is_part: bool) -> str:
    """The function that does one tile; where it `is_part` of one, only the first so many rows and columns."""
    t = IRBuilder(caller.lanes)
    mask_of = _masks(t) if is_part else lambda count, axis, k: None
    sources = [t.address("%x", t.let(f"mul i64 %sx, {k}"), dtype) for k in range(t.lanes)]
    read = [t.load(at, dtype, mask_of("%columns", "%rows", k)) for k, at in enumerate(sources)]
    for k, vector in enumerate(transposed(t, read)):
        t.store(vector, t.address("%y", t.let(f"mul i64 %sy, {k}"), dtype), mask_of("%rows", "%columns", k))
    caller.declarations |= t.declarations
    head = f"define internal void @{name}(ptr %x, ptr %y, i64 %sx, i64 %sy, i64 %rows, i64 %columns) nounwind {{"
    return "\n".join([head, "entry:", *t.lines, "  ret void", "}"])


def _masks(t: IRBuilder) -> Callable[[str, str, int], str]:
    """The mask of the lanes below one count, for vector k of those below another."""
    lanes, kind = {name: below(t, name) for name in ("%rows", "%columns")}, t.vector(BOOL)

    def mask(vectors: str, elements: str, k: int) -> str:
        return t.let(f"select i1 {t.let(f'icmp sgt i64 {vectors}, {k}')}, {kind} {lanes[elements]}, {kind} zeroinitializer")

    return mask
