"""Copies of transposed arrays, tile by tile in registers.

numpy copies a transposed array element by element, with a cache line fetched for each. Here a square tile is loaded along the axis
whose elements lie side by side, transposed by shuffles, and stored along the last axis. The machine code is the same for every
array with elements of 4 or 8 bytes; it reads and writes those elements and no others.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.kernels.threads import TEAM
from deepx_graph.runtime.memory.pool import RESULTS
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.target import Target, this_machine

LANES = {4: 16, 8: 8}
"""Elements of a tile's side, by their size: a cache line."""

PANEL = 64
"""Columns that are done for all rows before the next: their pages and lines stay at hand."""

LEAST = 32768
"""Smaller arrays are numpy's."""

SHARED = 500_000
"""From so many elements on, the slices of an array are shared out among the threads."""

_TRANSPOSE = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 4)


def contiguous(array: Array, threads: int = 1) -> Array:
    """The array in C order: itself where it is, else a copy."""
    if array.flags.c_contiguous:
        return array
    copy = RESULTS.empty(array.shape, array.dtype)
    axis = _side_by_side(array)
    if axis is None:
        copy[...] = array
    else:
        _copy_transposed(array, copy, axis, threads)
    return copy


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

    `source[r + c * source step]` goes to `target[r * target step + c]`.
    """
    lanes = LANES[size]
    return f"""
declare <{lanes} x i{8 * size}> @llvm.masked.load.v{lanes}i{8 * size}.p0(ptr, i32, <{lanes} x i1>, <{lanes} x i{8 * size}>)
declare void @llvm.masked.store.v{lanes}i{8 * size}.p0(<{lanes} x i{8 * size}>, ptr, i32, <{lanes} x i1>)
{_tile(size, masked=False)}
{_tile(size, masked=True)}
{_sweep(size, lanes)}"""


def _sweep(size: int, lanes: int) -> str:
    """The function that goes over all tiles, a panel of columns after the other."""
    return f"""define void @transpose{size}(ptr %x, ptr %y, i64 %rows, i64 %columns, i64 %sx, i64 %sy) nounwind {{
entry:
  br label %panel
panel:
  %from = phi i64 [ 0, %entry ], [ %to, %after ]
  %next = add i64 %from, {PANEL}
  %past = icmp sgt i64 %next, %columns
  %to = select i1 %past, i64 %columns, i64 %next
  br label %row
row:
  %r = phi i64 [ 0, %panel ], [ %r1, %rowend ]
  br label %column
column:
  %c = phi i64 [ %from, %row ], [ %c1, %tiled ]
  %a0 = mul i64 %c, %sx
  %a1 = add i64 %a0, %r
  %at = getelementptr i{8 * size}, ptr %x, i64 %a1
  %b0 = mul i64 %r, %sy
  %b1 = add i64 %b0, %c
  %bt = getelementptr i{8 * size}, ptr %y, i64 %b1
  %restr = sub i64 %rows, %r
  %restc = sub i64 %to, %c
  %fullr = icmp sge i64 %restr, {lanes}
  %fullc = icmp sge i64 %restc, {lanes}
  %full = and i1 %fullr, %fullc
  br i1 %full, label %whole, label %part
whole:
  call void @tile{size}(ptr %at, ptr %bt, i64 %sx, i64 %sy)
  br label %tiled
part:
  call void @edge{size}(ptr %at, ptr %bt, i64 %sx, i64 %sy, i64 %restr, i64 %restc)
  br label %tiled
tiled:
  %c1 = add i64 %c, {lanes}
  %morec = icmp slt i64 %c1, %to
  br i1 %morec, label %column, label %rowend
rowend:
  %r1 = add i64 %r, {lanes}
  %morer = icmp slt i64 %r1, %rows
  br i1 %morer, label %row, label %after
after:
  %more = icmp slt i64 %to, %columns
  br i1 %more, label %panel, label %done
done:
  ret void
}}
"""


def _tile(size: int, masked: bool) -> str:
    """The function that does one tile; with `masked`, only the first so many rows and columns of one."""
    lanes, element = LANES[size], f"i{8 * size}"
    vector, mask = f"<{lanes} x {element}>", f"<{lanes} x i1>"
    name, extra = ("edge", ", i64 %rows, i64 %columns") if masked else ("tile", "")
    lines = [f"define internal void @{name}{size}(ptr %x, ptr %y, i64 %sx, i64 %sy{extra}) nounwind {{", "entry:"]
    if masked:
        lines += [*_mask("mr", "%rows", lanes), *_mask("mc", "%columns", lanes)]
    for k in range(lanes):
        lines += _address("x", "%sx", k, element)
        if not masked:
            lines.append(f"  %v0_{k} = load {vector}, ptr %px{k}, align {size}")
            continue
        lines.append(f"  %in{k} = icmp sgt i64 %columns, {k}")
        lines.append(f"  %m{k} = select i1 %in{k}, {mask} %mr, {mask} zeroinitializer")
        lines.append(f"  %v0_{k} = call {vector} @llvm.masked.load.v{lanes}{element}.p0(ptr %px{k}, i32 {size}, {mask} %m{k},"
                     f" {vector} zeroinitializer)")
    stage, distance = 0, lanes // 2
    while distance:
        lines += _swaps(stage, distance, lanes, vector)
        stage, distance = stage + 1, distance // 2
    for k in range(lanes):
        lines += _address("y", "%sy", k, element)
        if not masked:
            lines.append(f"  store {vector} %v{stage}_{k}, ptr %py{k}, align {size}")
            continue
        lines.append(f"  %out{k} = icmp sgt i64 %rows, {k}")
        lines.append(f"  %n{k} = select i1 %out{k}, {mask} %mc, {mask} zeroinitializer")
        lines.append(f"  call void @llvm.masked.store.v{lanes}{element}.p0({vector} %v{stage}_{k}, ptr %py{k}, i32 {size},"
                     f" {mask} %n{k})")
    return "\n".join([*lines, "  ret void", "}"])


def _address(pointer: str, step: str, k: int, element: str) -> list[str]:
    return [f"  %o{pointer}{k} = mul i64 {step}, {k}",
            f"  %p{pointer}{k} = getelementptr {element}, ptr %{pointer}, i64 %o{pointer}{k}"]


def _swaps(stage: int, distance: int, lanes: int, vector: str) -> list[str]:
    """Exchanges one bit of the row's number with the same bit of the lane's."""
    low = _order(lanes + k - distance if k & distance else k for k in range(lanes))
    high = _order(lanes + k if k & distance else k + distance for k in range(lanes))
    lines = []
    for k in range(lanes):
        a, b = k & ~distance, k | distance
        order = high if k & distance else low
        lines.append(f"  %v{stage + 1}_{k} = shufflevector {vector} %v{stage}_{a}, {vector} %v{stage}_{b},"
                     f" <{lanes} x i32> <{order}>")
    return lines


def _order(indices: Any) -> str:
    return ", ".join(f"i32 {k}" for k in indices)


def _mask(name: str, count: str, lanes: int) -> Sequence[str]:
    """The lanes below a count."""
    kind = f"<{lanes} x i64>"
    return (
        f"  %{name}0 = insertelement {kind} poison, i64 {count}, i64 0",
        f"  %{name}1 = shufflevector {kind} %{name}0, {kind} poison, <{lanes} x i32> zeroinitializer",
        f"  %{name} = icmp slt {kind} <{', '.join(f'i64 {k}' for k in range(lanes))}>, %{name}1",
    )
