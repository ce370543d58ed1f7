"""Copies of arrays in C order, those of transposed ones tile by tile in registers.

numpy copies a transposed array element by element, with a cache line fetched for each. Here a square tile is loaded along the axis
whose elements lie side by side, transposed by shuffles, and stored along the last axis. The machine code is the same for every
array with elements of 4 or 8 bytes; it reads and writes those elements and no others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.gemm.microkernel import transposed
from deepx_graph.runtime.native.llvm.builder import BOOL, DType, IRBuilder, below, branch, least, stepped

LANES = {4: 16, 8: 8}
"""Elements of a tile's side, by their size: a cache line."""

PANEL = 64
"""Columns that are done for all rows before the next: their pages and lines stay at hand."""

LEAST_SHARED, SHARES, LEAST_ROWS = 500_000, 4, 64
"""From so many elements on, an array is shared out among the threads: its matrices, or where they are few rows of these."""


def copy_table(array: Array, source: Any, target: Any) -> tuple[Any, ...] | None:
    """The table with which `copied` copies an array like this one, of which only shape and strides count, in C order; None where no
    axis is dense, or an element has not 4 or 8 bytes."""
    size = array.itemsize
    axes = _joined_axes(array)
    dense = next((k for k, (_, step) in enumerate(axes) if step == size), None)
    if size not in LANES or dense is None:
        return None
    steps = [size * math.prod(n for n, _ in axes[k + 1 :]) for k in range(len(axes))]
    outer = [k for k in range(len(axes) - 1) if k != dense]
    rows, columns = 0 if dense == len(axes) - 1 else axes[dense][0], axes[-1][0]
    matrices, each = math.prod(axes[k][0] for k in outer), max(1, rows)
    if array.size >= LEAST_SHARED and matrices < SHARES:
        each = max(LEAST_ROWS, -(-rows // SHARES // LEAST_ROWS) * LEAST_ROWS)
    loops = [word for k in outer for word in (axes[k][0], axes[k][1], steps[k])]
    shares = matrices * max(1, -(-rows // each))
    return source, target, shares, len(outer), rows, each, columns, axes[-1][1] // size, steps[dense] // size, *loops


def _joined_axes(array: Array) -> list[tuple[int, int]]:
    """Sizes and strides of the axes of more than one element; those that lie one in the other are one."""
    axes: list[tuple[int, int]] = []
    for size, stride in zip(array.shape, array.strides, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == size * stride:
            size *= axes.pop()[0]
        axes.append((size, stride))
    return axes or [(1, array.itemsize)]


_COPY_WORDS = ("source", "target", "shares", "outer", "rows", "each", "columns", "sx", "sy")
"""The table of a copy: addresses, shares, outer axes, rows (0 for one that lies in order) and those of a share, columns, steps of a
column in the source and of a row in the target, in elements. Then of each outer axis its size and its steps in source and target,
in bytes."""


def text(size: int) -> str:
    """The IR of `copied(table, counter, scratch)`: takes shares from the counter, each a matrix to transpose or a row."""
    t = IRBuilder(1)
    for k, name in enumerate(_COPY_WORDS):
        t.line(f"%{name} = load {'ptr' if k < 2 else 'i64'}, ptr {t.let(f'getelementptr i64, ptr %table, i64 {k}')}")
    cells = [t.let("alloca i64") for _ in range(3)]
    t.line("br label %next")
    t.start("next")
    share = t.let("atomicrmw add ptr %counter, i64 1 monotonic")
    t.line(f"br i1 {t.let(f'icmp slt i64 {share}, %shares')}, label %take, label %done")
    t.start("take")
    for value, at in zip((share, "%source", "%target"), cells, strict=True):
        t.line(f"store {'i64' if value is share else 'ptr'} {value}, ptr {at}")
    t.rows("0", "%outer", lambda axis: _moved(t, axis, cells))
    first = t.let(f"mul i64 {t.let(f'load i64, ptr {cells[0]}')}, %each")
    steps = (t.let(f"mul i64 {first}, {size}"), t.let(f"mul i64 {t.let(f'mul i64 {first}, %sy')}, {size}"))
    x, y = (t.let(f"getelementptr i8, ptr {t.let(f'load ptr, ptr {at}')}, i64 {n}") for at, n in zip(cells[1:], steps, strict=True))
    rows = least(t, t.let(f"sub i64 %rows, {first}"), "%each")
    nbytes = t.let(f"mul i64 %columns, {size}")
    branch(t, t.let("icmp eq i64 %rows, 0"),
           lambda: t.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {y}, ptr {x}, i64 {nbytes}, i1 false)"),
           lambda: t.line(f"call void @transpose{size}(ptr {x}, ptr {y}, i64 {rows}, i64 %columns, i64 %sx, i64 %sy)"))
    t.line("br label %next")
    t.start("done")
    head = "define void @copied(ptr %table, ptr %counter, ptr %scratch) nounwind {"
    declared = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
    return "\n".join([_transpose_text(size), declared, head, "entry:", *t.lines, "  ret void", "}", ""])


def _moved(t: IRBuilder, axis: str, cells: Sequence[str]) -> None:
    """Goes to where a share is along an axis; the cells hold what is left of its number, and two addresses."""
    first = t.let(f"add i64 {t.let(f'mul i64 {axis}, 3')}, {len(_COPY_WORDS)}")
    row = t.let(f"getelementptr i64, ptr %table, i64 {first}")
    count, *steps = (t.let(f"load i64, ptr {t.let(f'getelementptr i64, ptr {row}, i64 {k}')}") for k in range(3))
    left = t.let(f"load i64, ptr {cells[0]}")
    index = t.let(f"urem i64 {left}, {count}")
    t.line(f"store i64 {t.let(f'udiv i64 {left}, {count}')}, ptr {cells[0]}")
    for cell, step in zip(cells[1:], steps, strict=True):
        old, offset = t.let(f"load ptr, ptr {cell}"), t.let(f"mul i64 {index}, {step}")
        t.line(f"store ptr {t.let(f'getelementptr i8, ptr {old}, i64 {offset}')}, ptr {cell}")


def _transpose_text(size: int) -> str:
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
    head = f"define internal void @transpose{size}(ptr %x, ptr %y, i64 %rows, i64 %columns, i64 %sx, i64 %sy) nounwind {{"
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
