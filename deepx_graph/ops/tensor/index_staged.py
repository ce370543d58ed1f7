"""Gather and scatter with their positions worked out before, as far as shapes and dimension numbers decide them.

A slice that has the last axes whole is a row of a matrix, whose number follows from the start indices by one multiplication. Other
slices are boxes, read and written one after the other where they are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.literal import Array
from deepx_graph.types import Type, as_tensor

Axes = tuple[int, ...]

FEW = 4
"""So many boxes are read and written one after the other."""

PIECE = 1 << 16
"""Positions that are worked out at a time."""


def gather_staged(types: Sequence[Type], result: Type, offset: Axes, collapsed: Axes, batching: Axes, indices_batching: Axes,
                  index_map: Axes, vector_dim: int, sizes: Axes) -> Callable[..., Any] | None:
    """The eval of a `gather` of rows, or of few boxes."""
    shape, indices, final = (as_tensor(t).shape for t in (*types, result))
    kept = [k for k in range(len(shape)) if k not in collapsed]
    if batching or 0 in shape or 0 in final or list(offset) != sorted(offset):
        return None
    limits = np.array([shape[axis] - sizes[axis] for axis in index_map])
    vectors = _vectors(indices, vector_dim)
    window = tuple(sizes[k] for k in kept)
    batch = tuple(d for k, d in enumerate(final) if k not in offset)
    order = _result_order(len(final), offset)
    rows = _rows(shape, sizes, index_map)
    if rows is not None:
        factors, width = rows
        count = math.prod(batch)

        def take(x: Array, at: Any) -> Array:
            table, starts, made = x.reshape(-1, width), vectors(at), np.empty((count, width), x.dtype)
            for k in range(0, count, PIECE):
                number = np.minimum(np.maximum(starts[k : k + PIECE].astype(np.int64), 0), limits) @ factors
                table.take(number, 0, made[k : k + PIECE], "clip")
            return made.reshape(batch + window).transpose(order)

        return take
    if math.prod(batch) > FEW:
        return None

    def boxes(x: Array, at: Any) -> Array:
        found = np.empty((math.prod(batch), *window), x.dtype)
        for k, start in enumerate(np.minimum(np.maximum(vectors(at).astype(np.int64), 0), limits).tolist()):
            found[k] = x[_box(shape, sizes, index_map, start)].reshape(window)
        return found.reshape(batch + window).transpose(order)

    return boxes


def scatter_staged(types: Sequence[Type], result: Type, window: Axes, inserted: Axes, batching: Axes, indices_batching: Axes,
                   index_map: Axes, vector_dim: int, body: Function) -> Callable[..., Any] | None:
    """The eval of a `scatter` of rows, or of few boxes, by one operation or replacing what was there."""
    if len(types) != 3 or batching or list(window) != sorted(window):
        return None
    shape, indices, updates = (as_tensor(t).shape for t in types)
    if not shape:
        return None
    combined = _combined(body, as_tensor(types[0]).dtype.np)
    if combined is None or 0 in shape or 0 in updates:
        return None
    kept = [k for k in range(len(shape)) if k not in inserted]
    sizes = tuple(updates[window[kept.index(k)]] if k in kept else 1 for k in range(len(shape)))
    batch_axes = [k for k in range(len(updates)) if k not in window]
    order = (*batch_axes, *window)
    vectors, count = _vectors(indices, vector_dim), math.prod(updates[k] for k in batch_axes)
    lasts = np.array([shape[axis] - sizes[axis] for axis in index_map])
    by_box, by_row = combined
    rows = _rows(shape, sizes, index_map)
    if rows is not None and count > 1 and all(rows[0]):
        factors, width = rows
        return lambda x, at, given: _by_rows(x, vectors(at), given.transpose(order).reshape(count, width), lasts, factors, by_row)
    if count > FEW:
        return None
    whole = (count, *sizes)

    def boxes(x: Array, at: Any, given: Array) -> Array:
        out = x.copy()
        for start, values in zip(vectors(at).tolist(), given.transpose(order).reshape(whole), strict=True):
            lows = [max(0, -s) for s in start]
            highs = [min(sizes[axis], shape[axis] - s) for axis, s in zip(index_map, start, strict=True)]
            if any(low >= high for low, high in zip(lows, highs, strict=True)):
                continue
            cut, target = [slice(None)] * len(shape), [slice(0, n) for n in sizes]
            for axis, s, low, high in zip(index_map, start, lows, highs, strict=True):
                cut[axis], target[axis] = slice(low, high), slice(s + low, s + high)
            by_box(out, tuple(target), values[tuple(cut)])
        return out

    return boxes


def _by_rows(x: Array, starts: Array, given: Array, lasts: Array, factors: Array, combine: Callable[..., Array]) -> Array:
    starts = starts.astype(np.int64)
    inside = ((starts >= 0) & (starts <= lasts)).all(-1)
    number = starts @ factors
    if not inside.all():
        number, given = number[inside], given[inside]
    return combine(x, number, given)


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


def _box(shape: Axes, sizes: Axes, index_map: Axes, start: Sequence[int]) -> tuple[slice, ...]:
    box = [slice(0, size) for size in sizes]
    for axis, s in zip(index_map, start, strict=True):
        box[axis] = slice(s, s + sizes[axis])
    return tuple(box)


Combined = tuple[Callable[[Array, Any, Array], None], Callable[[Array, Array, Array], Array]]


def _combined(body: Function, dtype: Any) -> Combined | None:
    """How values are combined into a box of an array, and into rows of a copy of one."""
    if len(body.params) == 2 and body.results == body.params[1:]:
        return _replaced_box, _replaced
    op = body.reducer
    function = getattr(op.monoid, "function", None) if op is not None else None
    if function is None or dtype is None or dtype.char not in "?bhilqBHILQfd":
        return None

    def box(out: Array, index: Any, values: Array) -> None:
        out[index] = function(out[index], values)

    if function is np.add and dtype.char in "fd":
        return box, _added
    return None if function is np.multiply and dtype.char in "fd" else (box, lambda x, rows, given: _at(function, x, rows, given))


def _replaced_box(out: Array, index: Any, values: Array) -> None:
    out[index] = values


def _replaced(x: Array, rows: Array, given: Array) -> Array:
    out = x.copy()
    out.reshape(-1, given.shape[1])[rows] = given
    return out


def _at(function: Any, x: Array, rows: Array, given: Array) -> Array:
    """One after the other, flat: only so is it a fast loop of numpy's."""
    out = x.copy(order="C")
    flat = out.reshape(-1)
    for some, values in _pieces(rows, given):
        function.at(flat, some, values)
    return out


def _added(x: Array, rows: Array, given: Array) -> Array:
    """Totals in double precision, rounded once."""
    total = np.zeros(x.size)
    if len(rows) * 8 < x.size // given.shape[1]:  # few rows of many: only these are looked at
        touched, where = np.unique(rows, return_inverse=True)
        out = x.copy(order="C")
        table = out.reshape(-1, given.shape[1])
        table[touched] = _added(table[touched], where, given)
        return out
    for some, values in _pieces(rows, given):
        total += np.bincount(some, values, x.size)
    total += x.reshape(-1)
    return total.astype(x.dtype).reshape(x.shape)


def _pieces(rows: Array, given: Array) -> Any:
    """Flat positions of some rows, and their values, a piece at a time."""
    width = given.shape[1]
    if width == 1:
        yield rows, given.reshape(-1)
        return
    columns, step = np.arange(width), max(1, 4 * PIECE // width)
    for k in range(0, len(rows), step):
        yield (rows[k : k + step, None] * width + columns).reshape(-1), given[k : k + step].reshape(-1)


