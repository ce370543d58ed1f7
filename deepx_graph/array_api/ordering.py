"""Sorting, searching and sets. What has as many elements as it finds is of arrays with values alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from deepx_graph import ops
from deepx_graph.array_api.array import Array, C, as_array, cast, constant, promoted
from deepx_graph.array_api.elementwise import add, choose, isnan, less, less_equal
from deepx_graph.array_api.errors import ArrayValueError
from deepx_graph.array_api.indexing import take
from deepx_graph.array_api.manipulation import axis_number, reshape
from deepx_graph.array_api.reductions import sum as total
from deepx_graph.text.common.steps import comparator
from deepx_graph.types import BOOL, U8
from deepx_graph.types.dtypes import I64


def _sorted(x: Array, axis: int, descending: bool) -> tuple[Array, Array]:
    """The elements in order, NaN last when ascending, and where each was; equal ones, -0 and 0 too, as they stood."""
    at = axis_number(axis, x.ndim)
    key = cast(x, U8) if x.dtype is BOOL else x
    if x.dtype.is_float:
        hidden, key = cast(isnan(x), U8), choose(isnan(x), 0, add(x, 0))
    else:
        hidden = choose(less(key, key), 1, 0)
        hidden = cast(hidden, U8)
    places = C.indices(I64, x.shape, at)
    by_key = comparator((key.dtype, x.dtype, I64, U8), "GT" if descending else "LT")
    first = C(ops.sort, key.node, x.node, places, hidden.node, dimension=at, is_stable=True, comparator=by_key)
    moved = [C.b.proj(first, k) for k in (3, 1, 2)]
    last = comparator((U8, x.dtype, I64), "GT" if descending else "LT")
    found = C(ops.sort, *moved, dimension=at, is_stable=True, comparator=last)
    return Array(C.b.proj(found, 1)), Array(C.b.proj(found, 2))


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The elements in order along an axis, NaN last, or first when descending."""
    return _sorted(as_array(x), axis, descending)[0]


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """Where the elements in order were, as int64; equal ones as they stood."""
    return _sorted(as_array(x), axis, descending)[1]


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Array:
    """For each of x2 where it belongs in the sorted x1 (or `x1[sorter]`), before or behind equal elements, as int64."""
    if side not in ("left", "right"):
        raise ArrayValueError(f"side {side!r} is neither 'left' nor 'right'")
    line = as_array(x1) if sorter is None else take(x1, sorter)
    a, b = promoted(line, x2)
    each = reshape(b, (*b.shape, 1))
    return total(cast((less if side == "left" else less_equal)(a, each), I64), axis=-1)


def nonzero(x: Any, /) -> tuple[Array, ...]:
    """The indices of elements that are not zero, one array for each axis. Raises UsageError for a traced array."""
    x = as_array(x)
    if not x.ndim:
        raise ArrayValueError("nonzero is of arrays with axes")
    return tuple(constant(found, I64) for found in np.nonzero(x.value))


class UniqueAll(NamedTuple):
    """What `unique_all` finds."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """What `unique_counts` finds."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """What `unique_inverse` finds."""

    values: Array
    inverse_indices: Array


def unique_all(x: Any, /) -> UniqueAll:
    """The different elements, where each is first, which of them each element is, and how often. Every NaN is different.

    Raises UsageError for a traced array.
    """
    x = as_array(x)
    found = np.unique(x.value, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    values, first, inverse, counts = found
    return UniqueAll(constant(values), constant(first, I64), reshape(constant(inverse, I64), x.shape), constant(counts, I64))


def unique_counts(x: Any, /) -> UniqueCounts:
    """The different elements, and how often each is there. Raises UsageError for a traced array."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any, /) -> UniqueInverse:
    """The different elements, and which of them each element is. Raises UsageError for a traced array."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any, /) -> Array:
    """The different elements. Raises UsageError for a traced array."""
    return unique_all(x).values
