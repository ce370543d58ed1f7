"""Factorisations and solves as loop programs, a matrix of a batch in each iteration of the outermost loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.loops import Affine, LazyTensor, LoopBuilder
from deepx_graph.loops.complex import Complex, joined, parts
from deepx_graph.loops.fold import JAM, RowFold, tiles
from deepx_graph.loops.program import Cell
from deepx_graph.loops.scalar import FALSE
from deepx_graph.loops.storage import wide
from deepx_graph.loops.tensor import in_memory
from deepx_graph.types import BOOL, DType

LARGEST_WHOLE = 64
"""Matrices of at most so many rows are factored, and systems solved, row by row."""

BLOCK = 16
"""Larger ones are factored by blocks of so many rows, for all of which those that are known are read once."""

TILE_ROWS, TILE_COLUMNS = 8, 16
"""A tile of unknowns stays in registers, while what is known is taken off."""

LEAST_COLUMNS = 4
"""From so many right-hand sides on, they are solved for side by side."""

COLUMNS = 64
"""So many of them at a time: with what is known of them they stay in a cache."""


Element = Callable[[Affine, Affine], Any]


def cholesky_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The upper factor, one block of rows after the other (left-looking; Golub and Van Loan, "Matrix Computations", 4.2): each less
    multiples of those before it, a tile at a time, then row by row; NaN where a pivot is not positive. Of small matrices, which are
    one block and factored on the stack, whole rows are computed, so that they stay in registers: what is left of the diagonal meets
    nothing that is kept."""
    (a,), (out,), lower = xs, outs, node.attr("lower")
    *batch, n, _ = a.shape
    is_whole, dtype = n <= LARGEST_WHOLE, wide(a.dtype)
    factor = in_memory(b.buffer(dtype, (*(1 for _ in batch), n, n), "local") if is_whole else b.buffer(dtype, a.shape), dtype)
    with b.nest(batch) as at:
        here = [Affine() if is_whole else i for i in at]
        failed = b.cell(BOOL, FALSE)

        def given(i: Affine, j: Affine) -> Any:
            return _conjugate(b, a.at(b, (*at, j, i))) if lower else a.at(b, (*at, i, j))

        def left(i: Affine, j: Affine) -> Any:
            return b.fetch(factor, (*at, i, j))

        row = _row_of_differences(b, dtype, n)
        if is_whole:
            _factor_rows(b, row, given, factor, here, (Affine(), Affine((), n)), failed)
        else:
            with _blocks(b, n, BLOCK) as (low, high):
                _subtract_known(b, given, factor, at, low)
                _factor_rows(b, row, left, factor, at, (low, high), failed)
        none, zero = b.const(float("nan"), a.dtype), b.const(0, a.dtype)
        with _blocks(b, n, BLOCK if lower and not is_whole else n) as (low, high), b.loop(n) as i, b.loop(high, low) as j:
            upper, column = (j, i) if lower else (i, j)
            found = b.choose(b.less(upper, column + 1), lambda: b.fetch(factor, (*here, upper, column)), lambda: zero)
            found = _conjugate(b, found) if lower else found
            b.put(out, (*at, i, j), b.apply("where", b.get(failed), none, found))


@contextmanager
def _blocks(b: LoopBuilder, n: int, size: int) -> Iterator[tuple[Affine, Affine]]:
    """A loop over blocks; gives where each begins and ends. The last begins early enough to be whole: it may share rows."""
    if n <= size:
        yield Affine(), Affine((), n)
        return
    with b.loop(-(-n // size)) as block:
        low = b.least(block * size, n - size)
        yield low, low + size


def _row_of_differences(b: LoopBuilder, dtype: DType, width: int) -> RowFold:
    return RowFold(b, [dtype], width, lambda totals, xs: [b.apply("sub", totals[0], xs[0])])


def _subtract_known(b: LoopBuilder, given: Element, factor: LazyTensor, at: Sequence[Affine], low: Affine) -> None:
    """A block of rows of a matrix, less multiples of the rows of the factor that are known."""
    n = factor.shape[-1]
    with b.loop(b.quotient(n - low + (TILE_COLUMNS - 1), TILE_COLUMNS)) as tile, b.loop(BLOCK // TILE_ROWS) as strip:
        first = b.least(low + tile * TILE_COLUMNS, n - TILE_COLUMNS)
        rows = [low + strip * TILE_ROWS + r for r in range(TILE_ROWS)]
        totals = _remainder(b, factor.dtype, rows, TILE_COLUMNS, lambda i, c: given(i, first + c), low,
                            lambda i, k: _conjugate(b, b.fetch(factor, (*at, k, i))),
                            lambda k, c: b.fetch(factor, (*at, k, first + c)))
        for r, i in enumerate(rows):
            with b.loop(TILE_COLUMNS) as c:
                totals.store(c + r * TILE_COLUMNS, [factor], (*at, i, first + c))


def _remainder(b: LoopBuilder, dtype: DType, rows: Sequence[Affine], width: int, given: Element, known: Affine, multiple: Element,
               value: Element) -> RowFold:
    """A tile: what is given, less the products of so many known rows."""
    totals = _row_of_differences(b, dtype, len(rows) * width)
    with b.loop(width) as c:
        for r, i in enumerate(rows):
            totals.put(c + r * width, [given(i, c)])
    with b.loop(known) as k:
        multiples = [multiple(i, k) for i in rows]
        with b.loop(width) as c:
            for r, factor in enumerate(multiples):
                totals.add(c + r * width, [b.apply("mul", factor, value(k, c))])
    return totals


def _factor_rows(b: LoopBuilder, row: RowFold, given: Element, factor: LazyTensor, at: Sequence[Affine],
                 rows: tuple[Affine, Affine], failed: Cell) -> None:
    """Rows of the factor, each less multiples of those of the block before it; whole ones where they are few."""
    n, (top, bottom) = factor.shape[-1], rows
    is_whole = n <= LARGEST_WHOLE
    jam = 1 if is_whole else 2 * JAM
    with b.loop(bottom, top) as i:
        first = Affine() if is_whole else i
        with b.loop(n, first) as j:
            row.put(j, [given(i, j)])
        jammed = b.quotient(i - top, jam) if jam > 1 else Affine()
        for low, high, each in ((Affine(), jammed, jam), (jammed * jam, i - top, 1)):
            with b.loop(high, low) as step:
                above = [top + step * each + k for k in range(each)]
                multiples = [_conjugate(b, b.fetch(factor, (*at, k, i))) for k in above]
                with b.loop(n, first) as j:
                    total: Sequence[Any] = row.at(j)
                    for multiple, k in zip(multiples, above, strict=True):
                        total = row.combine(total, [b.apply("mul", multiple, b.fetch(factor, (*at, k, j)))])
                    row.put(j, total)
        pivot = row.at(i)[0]
        pivot = pivot.real if isinstance(pivot, Complex) else pivot
        positive = b.apply("gt", pivot, b.const(0, pivot.dtype))
        b.set(failed, b.apply("or", b.get(failed), b.apply("not", positive)))
        root = b.converted(b.apply("sqrt", pivot), factor.dtype)
        with b.loop(n, first) as j:
            b.put(factor, (*at, i, j), b.apply("div", row.at(j)[0], root))
        b.put(factor, (*at, i, i), root)


def triangular_solve_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """Substitution, forward or back: of several right-hand sides side by side, which are rows of the transpose where they are rows
    of the result, and where there are many unknowns a tile of them at a time; of others one by one."""
    (a, right), (out,) = xs, outs
    left, lower, unit, how = node.attrs
    dtype, n, forward = wide(out.dtype), a.shape[-1], (lower == (how == "NO_TRANSPOSE")) == left
    beside = out.shape[-1 if left else -2] >= LEAST_COLUMNS
    solve_columns = _solve_columns if n <= LARGEST_WHOLE else _solve_tiles

    def weight(batch: Sequence[Affine], i: Affine, k: Affine) -> Any:
        """How much of unknown k is in equation i."""
        found = a.at(b, (*batch, i, k) if left == (how == "NO_TRANSPOSE") else (*batch, k, i))
        return _conjugate(b, found) if how == "ADJOINT" else found

    if beside and not left:
        solved = in_memory(b.buffer(dtype, _transposed(out).shape), dtype)
        solve_columns(b, weight, _transposed(right), solved, n, forward, unit)
        b.copy(out, _transposed(solved))
        return
    solved = out if dtype is out.dtype else in_memory(b.buffer(dtype, out.shape), dtype)
    if beside:
        solve_columns(b, weight, right, solved, n, forward, unit)
    else:
        _solve_each(b, weight, right, solved, left, forward, unit)
    if solved is not out:
        b.copy(out, solved)


def _transposed(x: LazyTensor) -> LazyTensor:
    """The matrices with rows and columns exchanged."""
    *batch, rows, columns = x.shape
    return LazyTensor(x.dtype, (*batch, columns, rows), lambda b, at: x.at(b, (*at[:-2], at[-1], at[-2])))


Weight = Callable[[Sequence[Affine], Affine, Affine], Any]


def _order(step: Affine, n: int, forward: bool) -> tuple[Affine, Affine | int, Affine | int]:
    """The unknown of a step, and which are known by then: from, and up to."""
    return (step, 0, step) if forward else (n - 1 - step, n - step, n)


def _solve_columns(b: LoopBuilder, weight: Weight, right: LazyTensor, out: LazyTensor, n: int, forward: bool, unit: bool) -> None:
    *batch, _, columns = out.shape
    with tiles(b, (*batch, columns), COLUMNS) as (at, first, width):
        row = _row_of_differences(b, out.dtype, min(COLUMNS, columns))
        with b.loop(n) as step:
            i, low, high = _order(step, n, forward)
            with b.loop(width) as c:
                row.put(c, [right.at(b, (*at, i, first + c))])
            with b.loop(high, low) as k:
                factor = weight(at, i, k)
                with b.loop(width) as c:
                    row.add(c, [b.apply("mul", factor, b.fetch(out, (*at, k, first + c)))])
            pivot = None if unit else weight(at, i, i)
            with b.loop(width) as c:
                found = row.at(c)[0]
                b.put(out, (*at, i, first + c), found if pivot is None else b.apply("div", found, pivot))


def _solve_tiles(b: LoopBuilder, weight: Weight, right: LazyTensor, out: LazyTensor, n: int, forward: bool, unit: bool) -> None:
    """The same, a tile of unknowns after the other: less products of those known before, then row by row in registers."""
    *batch, _, columns = out.shape
    width = min(TILE_COLUMNS, columns)
    with tiles(b, (*batch, columns), COLUMNS) as (at, begin, size):
        count = b.quotient(size + (width - 1), width)
        with _blocks(b, n, TILE_ROWS) as (low, _), b.loop(count) as tile:
            first = b.least(begin + tile * width, columns - width)
            rows = [_order(low + r, n, forward)[0] for r in range(TILE_ROWS)]
            totals = _remainder(b, out.dtype, rows, width, lambda i, c: right.at(b, (*at, i, first + c)), low,
                                lambda i, step: weight(at, i, _order(step, n, forward)[0]),
                                lambda step, c: b.fetch(out, (*at, _order(step, n, forward)[0], first + c)))
            for r, i in enumerate(rows):
                factors = [weight(at, i, k) for k in rows[:r]]
                pivot = None if unit else weight(at, i, i)
                with b.loop(width) as c:
                    for k, factor in enumerate(factors):
                        totals.add(c + r * width, [b.apply("mul", factor, totals.at(c + k * width)[0])])
                    if pivot is not None:
                        totals.put(c + r * width, [b.apply("div", totals.at(c + r * width)[0], pivot)])
                    totals.store(c + r * width, [out], (*at, i, first + c))


def _solve_each(b: LoopBuilder, weight: Weight, right: LazyTensor, out: LazyTensor, left: bool, forward: bool, unit: bool) -> None:
    """Each right-hand side for itself: the columns, or from the right the rows."""
    *batch, rows, columns = out.shape
    n, sides = (rows, columns) if left else (columns, rows)
    with b.nest((*batch, sides)) as (*at, side), b.loop(n) as step:
        i, low, high = _order(step, n, forward)

        def index(k: Affine) -> tuple[Affine, ...]:
            return (*at, k, side) if left else (*at, side, k)

        known = _inner(b, out.dtype, high, lambda k: weight(at, i, k), lambda k: b.fetch(out, index(k)), low)
        found = b.apply("sub", right.at(b, index(i)), known)
        b.put(out, index(i), found if unit else b.apply("div", found, weight(at, i, i)))


def _inner(b: LoopBuilder, dtype: DType, high: Affine | int, x: Callable[[Affine], Any], y: Callable[[Affine], Any],
           low: Affine | int = 0) -> Any:
    """The sum of products from a subscript up to another."""
    cells = [b.cell(p.dtype, p) for p in parts(b.const(0, dtype))]
    with b.loop(high, low) as k:
        for cell, term in zip(cells, parts(b.apply("mul", x(k), y(k))), strict=True):
            b.combine(cell, "add", term)
    return joined([b.get(cell) for cell in cells])


def _conjugate(b: LoopBuilder, x: Any) -> Any:
    return Complex(x.real, b.apply("neg", x.imag)) if isinstance(x, Complex) else x
