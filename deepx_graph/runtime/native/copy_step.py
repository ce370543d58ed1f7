"""Copies of arrays in the order of C as steps of machine code, by the tiles of `transpose.py` or row by row."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.builder import IRBuilder, branch
from deepx_graph.runtime.native.prepared import Address, PreparedStep, Word
from deepx_graph.runtime.native.transpose import LANES, SHARED, text


def copy_step(array: Array, source: Address, target: Address, threads: int, owner: object) -> PreparedStep | None:
    """What copies an array like this one, of which only shape and strides count, in C order; None where no axis is dense, or an
    element has not 4 or 8 bytes. It is good as long as `owner` is there."""
    size = array.itemsize
    axes = _joined_axes(array)
    dense = next((k for k, (_, step) in enumerate(axes) if step == size), None)
    if size not in LANES or dense is None:
        return None
    steps = [size * math.prod(n for n, _ in axes[k + 1 :]) for k in range(len(axes))]
    is_row = dense == len(axes) - 1
    outer = [k for k in range(len(axes) - 1) if k != dense]
    rows, columns = 0 if is_row else axes[dense][0], axes[-1][0]
    loops: list[Word] = [word for k in outer for word in (axes[k][0], axes[k][1], steps[k])]
    shares = math.prod(axes[k][0] for k in outer)
    table = (source, target, shares, len(outer), rows, columns, axes[-1][1] // size, steps[dense] // size, *loops)
    address = machine_code.functions(_copy_text(size), ["copied"], owner)["copied"]
    return PreparedStep(address, table, threads if array.size >= SHARED and shares > 1 else 1)


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


_COPY_WORDS = ("source", "target", "shares", "outer", "rows", "columns", "sx", "sy")
"""The table of a copy: addresses, shares, outer axes, rows (0 for one that lies in order), columns, steps of a column in the source
and of a row in the target, in elements. Then of each outer axis its size and its steps in source and target, in bytes."""


def _copy_text(size: int) -> str:
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
    x, y = (t.let(f"load ptr, ptr {at}") for at in cells[1:])
    nbytes = t.let(f"mul i64 %columns, {size}")
    branch(t, t.let("icmp eq i64 %rows, 0"),
           lambda: t.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {y}, ptr {x}, i64 {nbytes}, i1 false)"),
           lambda: t.line(f"call void @transpose{size}(ptr {x}, ptr {y}, i64 %rows, i64 %columns, i64 %sx, i64 %sy)"))
    t.line("br label %next")
    t.start("done")
    head = "define void @copied(ptr %table, ptr %counter, ptr %scratch) nounwind {"
    return "\n".join([text(size), "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", head, "entry:", *t.lines, "  ret void",
                      "}", ""])


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
