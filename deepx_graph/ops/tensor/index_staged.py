"""Gather and scatter with their positions worked out before, as far as shapes and dimension numbers decide them.

A slice that has the last axes whole is a row of a matrix, whose number follows from the start indices by one multiplication. Other
slices are boxes, read and written one after the other where they are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.literal import Array
from deepx_graph.ops.contract.monoid import UfuncMonoid
from deepx_graph.ops.math.extremes import Extreme
from deepx_graph.types import Type, as_tensor

Axes = tuple[int, ...]

FEW = 4
"""So many boxes are read and written one after the other."""

PIECE = 1 << 16
"""Positions that are worked out at a time."""

COLUMNS = 512
"""From so many slices on the start indices of each axis are worked out on their own: numpy is slow along axes of two or three."""


def gather_staged(types: Sequence[Type], result: Type, offset: Axes, collapsed: Axes, batching: Axes, indices_batching: Axes,
                  index_map: Axes, vector_dim: int, sizes: Axes) -> Callable[..., Any] | None:
    """The eval of a `gather` of rows, or of few boxes."""
    shape, indices, final = (as_tensor(t).shape for t in (*types, result))
    kept = [k for k in range(len(shape)) if k not in collapsed and k not in batching]
    if 0 in shape or 0 in final or list(offset) != sorted(offset):
        return None
    limits = np.array([shape[axis] - sizes[axis] for axis in index_map])
    vectors = _vectors(indices, vector_dim)
    window = tuple(sizes[k] for k in kept)
    batch = tuple(d for k, d in enumerate(final) if k not in offset)
    order, whole, count = _result_order(len(final), offset), batch + window, math.prod(batch)
    rows = _rows(shape, sizes, index_map)
    if rows is not None:
        factors, width = rows
        first = _batch_rows(shape, sizes, batching, indices_batching, indices, vector_dim)
        if first is None and factors.tolist() == [1] and limits[0] + 1 == math.prod(shape) // width:  # numpy clamps so, too
            return lambda x, at: x.reshape(-1, width).take(
                vectors(at).astype(np.int64), 0, None, "clip").reshape(whole).transpose(order)

        def take(x: Array, at: Any) -> Array:
            table, starts, made = x.reshape(-1, width), vectors(at), np.empty((count, width), x.dtype)
            for k in range(0, count, PIECE):
                number = _clamped(starts[k : k + PIECE], limits, factors)
                number = number if first is None else number + first[k : k + PIECE]
                table.take(number, 0, made[k : k + PIECE], "clip")
            return made.reshape(whole).transpose(order)

        return take
    if count > FEW or batching:
        return None

    def boxes(x: Array, at: Any) -> Array:
        found = np.empty((count, *window), x.dtype)
        for k, start in enumerate(np.minimum(np.maximum(vectors(at).astype(np.int64), 0), limits).tolist()):
            found[k] = x[_box(sizes, index_map, start)].reshape(window)
        return found.reshape(whole).transpose(order)

    return boxes


def scatter_staged(types: Sequence[Type], result: Type, window: Axes, inserted: Axes, batching: Axes, indices_batching: Axes,
                   index_map: Axes, vector_dim: int, body: Function) -> Callable[..., Any] | None:
    """The eval of a `scatter` of rows, or of few boxes, by one operation or replacing what was there."""
    if len(types) != 3 or list(window) != sorted(window):
        return None
    shape, indices, updates = (as_tensor(t).shape for t in types)
    if not shape:
        return None
    combiner = _combiner(body, as_tensor(types[0]).dtype.np)
    if combiner is None or 0 in shape or 0 in updates:
        return None
    kept = [k for k in range(len(shape)) if k not in inserted and k not in batching]
    sizes = tuple(updates[window[kept.index(k)]] if k in kept else 1 for k in range(len(shape)))
    batch_axes = [k for k in range(len(updates)) if k not in window]
    order = (*batch_axes, *window)
    vectors, count = _vectors(indices, vector_dim), math.prod(updates[k] for k in batch_axes)
    lasts = np.array([shape[axis] - sizes[axis] for axis in index_map])
    rows = _rows(shape, sizes, index_map)
    if rows is not None and count > 1 and all(rows[0]):
        first = _batch_rows(shape, sizes, batching, indices_batching, indices, vector_dim)
        target = _RowTarget(combiner, lasts, rows[0], first)
        return lambda x, at, given: target.updated(x, vectors(at), given.transpose(order).reshape(count, rows[1]))
    if count > FEW or batching:
        return None
    whole = (count, *sizes)

    def boxes(x: Array, at: Any, given: Array) -> Array:
        out = x.copy()
        for start, values in zip(vectors(at).tolist(), given.transpose(order).reshape(whole), strict=True):
            lows = [max(0, -s) for s in start]
            highs = [min(sizes[axis], shape[axis] - s) for axis, s in zip(index_map, start, strict=True)]
            if any(low >= high for low, high in zip(lows, highs, strict=True)):
                continue
            cut, box = [slice(None)] * len(shape), [slice(0, n) for n in sizes]
            for axis, s, low, high in zip(index_map, start, lows, highs, strict=True):
                cut[axis], box[axis] = slice(low, high), slice(s + low, s + high)
            index, inner = tuple(box), values[tuple(cut)]
            out[index] = inner if combiner.function is None else combiner.function(out[index], inner)
        return out

    return boxes


class _Combiner(NamedTuple):
    """A ufunc by which values are combined, None where they replace what was there; and in which type, None for their own."""

    function: np.ufunc | Extreme | None
    wide: Any


def _combiner(body: Function, dtype: Any) -> _Combiner | None:
    if len(body.params) == 2 and body.results == body.params[1:]:
        return _Combiner(None, None)
    monoid = body.reducer.monoid if body.reducer is not None else None
    if not isinstance(monoid, UfuncMonoid) or dtype is None or dtype.char not in "?bhilqBHILQfd":
        return None
    wide = monoid.accumulator(np.empty(0, dtype))
    return _Combiner(monoid.function, None if wide == dtype else wide)


class _RowTarget(NamedTuple):
    """Where the updates of a scatter of rows go: those with start indices up to `lasts`, each times its factor, from `first` on."""

    combiner: _Combiner
    lasts: Array
    factors: Array
    first: Array | None

    def updated(self, x: Array, starts: Array, given: Array) -> Array:
        """`x` with rows combined into it, a piece at a time."""
        count, width = given.shape
        function, wide = self.combiner
        if wide is not None and count * 8 * width < x.size and count <= PIECE:  # few rows of many: only these are looked at
            return self._few(x, starts, given)
        out = x.copy(order="C") if wide is None else x.astype(wide, order="C")
        table, flat, step = out.reshape(-1, width), out.reshape(-1), max(1, PIECE // width)
        for k in range(0, count, step):
            rows, values = self._inside(starts[k : k + step], given[k : k + step], slice(k, k + step))
            if function is None:
                table[rows] = values
            else:  # flat and of one type, so that it is a fast loop of numpy's
                function.at(flat, rows if width == 1 else (rows[:, None] * width + np.arange(width)).reshape(-1),
                            values.reshape(-1).astype(out.dtype, copy=False))
        return out.astype(x.dtype, copy=False)

    def _few(self, x: Array, starts: Array, given: Array) -> Array:
        out, (function, wide) = x.copy(order="C"), self.combiner
        assert function is not None
        rows, values = self._inside(starts, given, slice(None))
        touched, where = np.unique(rows, return_inverse=True)
        table, columns = out.reshape(-1, given.shape[1]), np.arange(given.shape[1])
        total = table[touched].astype(wide)
        function.at(total.reshape(-1), (where[:, None] * given.shape[1] + columns).reshape(-1), values.reshape(-1).astype(wide))
        table[touched] = total
        return out

    def _inside(self, starts: Array, given: Array, part: slice) -> tuple[Array, Array]:
        """The rows of some updates, and the updates, without those outside."""
        rows, inside = _checked(starts, self.lasts, self.factors)
        rows = rows if self.first is None else rows + self.first[part]
        return (rows, given) if np.count_nonzero(inside) == len(inside) else (rows[inside], given[inside])


def _clamped(starts: Array, lasts: Array, factors: Array) -> Array:
    """The rows that begin at start indices, which are moved inside of an array first."""
    if len(starts) < COLUMNS:
        return np.asarray(np.minimum(np.maximum(starts.astype(np.int64), 0), lasts) @ factors)
    rows = np.zeros(len(starts), np.int64)
    for column, last, factor in zip(starts.T, lasts, factors, strict=True):
        at = column.astype(np.int64)
        np.maximum(at, 0, out=at)
        np.minimum(at, last, out=at)
        rows += np.multiply(at, factor, out=at)
    return rows


def _checked(starts: Array, lasts: Array, factors: Array) -> tuple[Array, Array]:
    """The rows that begin at start indices, and which of these are inside of an array."""
    if len(factors) != 1 and (len(starts) < COLUMNS or not len(factors)):
        starts = starts.astype(np.int64)
        return starts @ factors, np.asarray(((starts >= 0) & (starts <= lasts)).all(-1))
    found: Any = None
    for column, last, factor in zip(starts.T, lasts, factors, strict=True):
        at = column.astype(np.int64)
        fits = (at >= 0) & (at <= last)
        at = at if factor == 1 else np.multiply(at, factor, out=at)
        found = (at, fits) if found is None else (found[0] + at, found[1] & fits)
    return found[0], found[1]


def _batch_rows(shape: Axes, sizes: Axes, batching: Axes, indices_batching: Axes, indices: Axes, vector_dim: int) -> Array | None:
    """For each slice the number of the row at which its batch begins; None where there are no batches."""
    if not batching:
        return None
    strides, _ = _rows(shape, sizes, batching) or (None, 0)
    assert strides is not None
    steps = [np.arange(d).reshape([-1 if j == k else 1 for j in range(len(indices))]) if k != vector_dim else 0
             for k, d in enumerate(indices)]
    whole = tuple(1 if k == vector_dim else d for k, d in enumerate(indices))
    first = sum(steps[k] * stride for k, stride in zip(indices_batching, strides, strict=True))
    return np.broadcast_to(first, whole).reshape(-1)


def _vectors(indices: Axes, vector_dim: int) -> Callable[[Any], Array]:
    """What makes a matrix of start indices: a row for each slice."""
    if vector_dim == len(indices):
        return lambda at: at.reshape(-1, 1)
    order = (*(k for k in range(len(indices)) if k != vector_dim), vector_dim)
    shape = (math.prod(d for k, d in enumerate(indices) if k != vector_dim), indices[vector_dim])
    return lambda at: at.transpose(order).reshape(shape)


def _result_order(rank: int, offset: Axes) -> Axes:
    """The axes of a result, of which those of the batch come first, in their own order."""
    batch = [k for k in range(rank) if k not in offset]
    made = [*batch, *offset]
    return tuple(made.index(k) for k in range(rank))


def _rows(shape: Axes, sizes: Axes, index_map: Axes) -> tuple[Array, int] | None:
    """By what each start index is multiplied for the number of a row, and the width of one; None where slices are no rows."""
    first = next((k for k, (whole, size) in enumerate(zip(shape, sizes, strict=True)) if size != 1), len(shape))
    if sizes[first:] != shape[first:]:
        return None
    strides = [math.prod(shape[axis + 1 : first]) if axis < first else 0 for axis in index_map]
    return np.array(strides, np.int64), math.prod(shape[first:])


def _box(sizes: Axes, index_map: Axes, start: Sequence[int]) -> tuple[slice, ...]:
    box = [slice(0, size) for size in sizes]
    for axis, s in zip(index_map, start, strict=True):
        box[axis] = slice(s, s + sizes[axis])
    return tuple(box)
