"""Folds: many scalars combined into one by a loop, alone or side by side.

Side by side, the totals of neighbouring elements of a result lie in a row of local memory, and each step of the fold goes over the
row: a loop of which a compiler makes vectors, whatever the reducer is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from deepx_graph.ir import Function, peephole
from deepx_graph.loops.builder import LoopBuilder
from deepx_graph.loops.complex import joined, parts
from deepx_graph.loops.elements import call, settled
from deepx_graph.loops.scalar import Affine, Index, identity
from deepx_graph.loops.storage import is_narrow, wide
from deepx_graph.loops.tensor import LazyTensor, in_memory
from deepx_graph.types import F32, F64, DType

LONG_SUM = 4096
"""A float sum of more terms than this is carried in double precision."""

ROW = 256
"""The most totals side by side: they stay in the nearest cache."""

JAM = 4
"""So many steps of a fold are done for a row of totals at a time (unroll and jam): totals are then loaded and stored less often."""

TILE_ROWS, TILE_COLUMNS = 4, 32
"""Totals of a tile of neighbouring rows: they stay in registers, and what is read for one row is used for all."""

Elements = Callable[[tuple[Affine, ...]], Sequence[Any]]
Combine = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


def fold(b: LoopBuilder, body: Function, starts: Sequence[Any], dtypes: Sequence[DType], extents: Sequence[int],
         elements: Elements) -> tuple[Any, ...]:
    """The results of a reducer over some extents: `elements` gives at each point one element for each start value."""
    primitive = primitive_of(body, dtypes)
    if primitive is not None:
        total = accumulate(b, primitive, starts[0], extents, lambda at: elements(at)[0])
        return (settled(b, total, dtypes[0]),)
    cells = [[b.cell(p.dtype, p) for p in parts(s)] for s in starts]
    with b.loops(extents) as at:
        found = call(b, body, [*(joined([b.get(c) for c in each]) for each in cells), *elements(at)])
        for each, x in zip(cells, found, strict=True):
            for cell, part in zip(each, parts(x), strict=True):
                b.set(cell, part)
    return tuple(joined([b.get(c) for c in each]) for each in cells)


def accumulate(b: LoopBuilder, primitive: str, start: Any, extents: Sequence[int],
               element: Callable[[tuple[Affine, ...]], Any]) -> Any:
    """Elements combined by a primitive in any order. Long float sums are carried in double precision."""
    dtype = start.dtype
    carried = sum_dtype(dtype, primitive, math.prod(extents))
    cells = [b.cell(carried, b.cast(part, carried)) for part in parts(start)]
    with b.loops(extents) as at:
        for cell, part in zip(cells, parts(element(at)), strict=True):
            b.combine(cell, primitive, b.cast(part, carried))
    return joined([b.cast(b.get(cell), dtype) for cell in cells])


def sum_dtype(dtype: DType, primitive: str, terms: int) -> DType:
    """The dtype in which so many terms of a dtype are combined."""
    return F64 if dtype is F32 and primitive in ("add", "mul") and terms > LONG_SUM else dtype


def primitive_of(body: Function, dtypes: Sequence[DType]) -> str | None:
    """The primitive by which a reducer combines two scalars, of complex ones each part; None where it does more than that."""
    op = body.reducer if len(dtypes) == 1 else None
    if op is None or op.monoid is None:
        return None
    primitive = peephole.primitive_of(op)
    return primitive if primitive == "add" or (primitive and dtypes[0].kind != "complex") else None


class RowFold:
    """A row of totals in local memory, of some dtypes each; `combine` takes totals and elements and gives totals."""

    def __init__(self, b: LoopBuilder, dtypes: Sequence[DType], width: int, combine: Combine) -> None:
        self.b, self.combine = b, combine
        self.dtypes = [wide(d) for d in dtypes]
        self.rows = [in_memory(b.buffer(d, (width,), "local"), d) for d in self.dtypes]

    def at(self, k: Affine | int) -> list[Any]:
        """The totals at a position, as they are now."""
        return [self.b.fetch(row, [k]) for row in self.rows]  # type: ignore[list-item]

    def put(self, k: Affine | int, values: Sequence[Any]) -> None:
        """Assigns the totals at a position."""
        for row, dtype, x in zip(self.rows, self.dtypes, values, strict=True):
            self.b.put(row, [k], self.b.converted(x, dtype))  # type: ignore[list-item]

    def add(self, k: Affine | int, elements: Sequence[Any]) -> None:
        """Combines elements into the totals at a position."""
        self.put(k, self.combine(self.at(k), elements))

    def store(self, k: Affine, outs: Sequence[LazyTensor], index: Index) -> None:
        """Stores the totals at a position as elements of tensors in memory."""
        for out, x in zip(outs, self.at(k), strict=True):
            self.b.put(out, index, x if is_narrow(out.dtype) else self.b.converted(x, out.dtype))


def row_fold(b: LoopBuilder, body: Function, dtypes: Sequence[DType], terms: int, width: int) -> RowFold:
    """A row of totals by a reducer, of so many terms each."""
    primitive = primitive_of(body, dtypes)
    if primitive is None:
        return RowFold(b, dtypes, width, lambda totals, xs: call(b, body, [*totals, *xs]))
    return row_sums(b, dtypes[0], terms, width, primitive)


def row_sums(b: LoopBuilder, dtype: DType, terms: int, width: int, primitive: str = "add") -> RowFold:
    """A row of sums of so many terms each, or of what another primitive makes of them."""
    total = sum_dtype(wide(dtype), primitive, terms)
    return RowFold(b, [total], width, lambda totals, xs: [b.apply(primitive, totals[0], b.converted(xs[0], total))])


@contextmanager
def tiles(b: LoopBuilder, shape: Sequence[int], width: int = ROW) -> Iterator[tuple[tuple[Affine, ...], Affine, Affine]]:
    """Parallel loops over a shape, over its last axis by tiles; gives the outer subscripts, where a tile begins, and its width."""
    size = shape[-1]
    count = -(-size // width)
    with b.nest((*shape[:-1], count)) as at:
        first = at[-1] * width if count > 1 else Affine()
        yield at[:-1], first, b.least(Affine((), size) - first, min(size, width))


def fold_rows(b: LoopBuilder, outs: Sequence[LazyTensor], row: Callable[[int], RowFold], starts: Callable[[], Sequence[Any]],
              extents: Sequence[int], elements: Callable[[Index, Index], Sequence[Any]], most: int = ROW, *,
              at_once: bool = False) -> None:
    """Fills results with folds over extents, those of at most so many neighbours along the last axis side by side; `at_once`:
    all steps of the last extent are done for a total while it is in a register.

    `row` makes as many totals; `elements` gives what is combined at a subscript of the results and one of the extents.
    """
    shape = outs[0].shape
    with tiles(b, shape, most) as (outer, first, width):
        totals, values = row(min(most, shape[-1])), starts()
        with b.loop(width) as k:
            totals.put(k, values)
        add_steps(b, totals, width, extents, lambda inner, k: elements((*outer, first + k), inner),
                  *((extents[-1], 1) if at_once else (JAM, 2 * JAM)))
        with b.loop(width) as k:
            totals.store(k, outs, (*outer, first + k))


def add_steps(b: LoopBuilder, totals: RowFold, width: Affine | int, extents: Sequence[int],
              elements: Callable[[Index, Affine], Sequence[Any]], jam: int = JAM, least: int = 2 * JAM) -> None:
    """Combines into a row of so many totals what `elements` gives at each subscript of some extents and each position, `jam` steps
    of the last extent at a time, if it is at least so long."""
    for low, high, each in _jammed(extents, jam, least):
        with b.loops(extents[:-1]) as inner, b.loop(high, low) as i, b.loop(width) as k:
            found: Sequence[Any] = totals.at(k)
            for step in range(each):
                found = totals.combine(found, elements((*inner, i * each + step), k))
            totals.put(k, found)


def fold_strips(b: LoopBuilder, out: LazyTensor, primitive: str, starts: Callable[[], Sequence[Any]], extents: Sequence[int],
                strip: int, elements: Callable[[Index, Index], Any]) -> None:
    """The same as `fold_rows` for a vector of results, by a primitive, in strips of so many steps that threads share; the totals of
    strips are then combined in order."""
    size, steps = out.shape[0], math.prod(extents)
    count, total = -(-steps // strip), sum_dtype(wide(out.dtype), primitive, strip)
    first = identity(primitive, total)
    assert first is not None
    partial = in_memory(b.buffer(total, (count, size)), total)
    with b.loop(count, parallel=True) as s:
        totals = row_sums(b, out.dtype, strip, size, primitive)
        with b.loop(size) as k:
            totals.put(k, [first])
        with b.loop(b.least(Affine((), steps) - s * strip, strip)) as i:
            inner = b.unflattened(s * strip + i, extents)
            with b.loop(size) as k:
                totals.add(k, [elements((k,), inner)])
        with b.loop(size) as k:
            totals.store(k, [partial], (s, k))
    fold_rows(b, [out], lambda width: row_sums(b, out.dtype, steps, width, primitive), starts, [count],
              lambda at, inner: [partial.at(b, (*inner, *at))])


def _jammed(extents: Sequence[int], jam: int, least: int) -> Iterator[tuple[int, int, int]]:
    """The last of some extents, if it is at least so long, in ranges of `jam` steps, which a total takes up while it is in a
    register."""
    last = extents[-1]
    if math.prod(extents[:-1]) == 1 and last >= least:
        yield 0, last // jam, jam
        last, rest = last % jam, last - last % jam
        if last:
            yield rest, rest + last, 1
    else:
        yield 0, last, 1


def fold_tiles(b: LoopBuilder, outs: Sequence[LazyTensor], row: Callable[[int], RowFold], starts: Callable[[], Sequence[Any]],
               extents: Sequence[int], elements: Callable[[Index, Index], Sequence[Any]], axis: int) -> None:
    """The same as `fold_rows`, by tiles along some axis and the last one. The last tiles begin early enough to be whole."""
    shape = outs[0].shape
    sizes = {axis: min(TILE_ROWS, shape[axis]), len(shape) - 1: min(TILE_COLUMNS, shape[-1])}
    height, width = sizes.values()
    with b.nest([-(-n // sizes.get(k, 1)) for k, n in enumerate(shape)]) as tile:
        first = [b.least(i * sizes.get(k, 1), n - sizes.get(k, 1)) for k, (i, n) in enumerate(zip(tile, shape, strict=True))]

        def place(r: int, k: Affine) -> Index:
            return [*first[:axis], first[axis] + r, *first[axis + 1 : -1], first[-1] + k]

        totals, values = row(height * width), starts()
        with b.loop(height * width) as k:
            totals.put(k, values)
        with b.loops(extents) as inner, b.loop(width) as k:
            for r in range(height):
                totals.add(k + r * width, elements(place(r, k), inner))
        for r in range(height):
            with b.loop(width) as k:
                totals.store(k + r * width, outs, place(r, k))
