"""Routines of LAPACK as loop programs, where matrices are so small that a call of the library costs more than its arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.loops import Affine, LazyTensor, LoopBuilder
from deepx_graph.loops.complex import Complex
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.ops.host.custom_calls import find
from deepx_graph.ops.host.lapack import routine_of
from deepx_graph.types import C64, C128, F32, F64, I32, I64

LARGEST = 64
"""The most rows and columns: larger matrices are factored in blocks, which the library does better."""


def custom_call_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """Those of a routine of LAPACK. Raises NotExpressible for any other function of the host."""
    target = node.attr("target")
    rule = _RULES.get(routine_of(target))
    if rule is None or find(target) is not None:
        raise NotExpressible(f"'{target}' is a function of the host")
    if not xs or len(xs[0].shape) < 2:
        raise NotExpressible(f"'{target}' of no matrix")
    if any(n > LARGEST for n in xs[0].shape[-2:]):
        raise NotExpressible(f"'{target}' of matrices of more than {LARGEST} rows or columns")
    rule(b, xs, outs)


def _getrf(b: LoopBuilder, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The factors of a matrix with its rows exchanged, in one matrix, column after column (the right-looking form of Golub and
    Van Loan, "Matrix Computations", 3.4.4): each pivot is the largest that there is."""
    (a, *others), (*batch, rows, columns) = xs, xs[0].shape
    known = [(a.dtype, tuple(a.shape)), (I32, (*batch, min(rows, columns))), (I32, tuple(batch))]
    if others or a.dtype not in (F32, F64, C64, C128) or [(x.dtype, tuple(x.shape)) for x in outs] != known:
        raise NotExpressible("operands and results are not those of the routine")  # nothing is written beyond what a text states
    lu, pivots, info = outs
    with b.nest(batch) as at:
        with b.loop(rows) as i, b.loop(columns) as j:
            b.put(lu, (*at, i, j), a.at(b, (*at, i, j)))
        failed = b.cell(I32, b.const(0, I32))
        with b.loop(min(rows, columns)) as k:
            found = _largest(b, lu, at, k, rows)
            b.put(pivots, (*at, k), b.apply("add", b.cast(found, I32), b.const(1, I32)))
            with b.loop(columns) as j:
                one, other = b.fetch(lu, (*at, k, j)), b.fetch(lu, (*at, found, j))
                b.put(lu, (*at, k, j), other)
                b.put(lu, (*at, found, j), one)
            pivot = b.fetch(lu, (*at, k, k))
            is_zero = b.apply("eq", pivot, b.const(0, lu.dtype))
            first = b.apply("and", is_zero, b.apply("eq", b.get(failed), b.const(0, I32)))
            b.set(failed, b.apply("where", first, b.cast(k + 1, I32), b.get(failed)))
            with b.loop(rows, k + 1) as i:
                own = b.fetch(lu, (*at, i, k))
                factor = b.apply("where", is_zero, own, b.apply("div", own, pivot))
                b.put(lu, (*at, i, k), factor)
                with b.loop(columns, k + 1) as j:
                    term = b.apply("mul", factor, b.fetch(lu, (*at, k, j)))
                    b.put(lu, (*at, i, j), b.apply("sub", b.fetch(lu, (*at, i, j)), term))
        b.put(info, at, b.get(failed))


def _largest(b: LoopBuilder, x: LazyTensor, at: Sequence[Affine], k: Affine, rows: int) -> Affine:
    """The row, from the k-th on, with the largest number in the k-th column; of complex ones the parts count."""

    def size(i: Affine) -> Any:
        value = b.fetch(x, (*at, i, k))
        if isinstance(value, Complex):
            return b.apply("add", b.apply("abs", value.real), b.apply("abs", value.imag))
        return b.apply("abs", value)

    first = size(k)
    best, row = b.cell(first.dtype, first), b.cell(I64, k)
    with b.loop(rows, k + 1) as i:
        mine = size(i)
        is_larger = b.apply("lt", b.get(best), mine)
        b.set(row, b.apply("where", is_larger, i, b.get(row)))
        b.set(best, b.apply("where", is_larger, mine, b.get(best)))
    return b.index(b.get(row), 0, rows - 1)


_RULES: dict[str, Callable[[LoopBuilder, Sequence[LazyTensor], Sequence[LazyTensor]], None]] = {"getrf": _getrf}
