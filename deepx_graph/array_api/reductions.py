"""Functions of the standard that make fewer elements of many: sums, statistics, truth, extremes; and running results."""

from __future__ import annotations

import math
from typing import Any

from deepx_graph import ops
from deepx_graph.array_api.array import Array, C, as_array, as_dtype, cast
from deepx_graph.array_api.elementwise import (
    abs,
    divide,
    multiply,
    not_equal,
    sqrt,
    subtract,
    truth,
)
from deepx_graph.array_api.errors import ArrayValueError
from deepx_graph.array_api.manipulation import axis_number, axis_numbers, concat, reshape
from deepx_graph.ir import Op
from deepx_graph.text.common.elements import extreme_index, kept, part_of, running
from deepx_graph.types import BOOL, U8, DType
from deepx_graph.types.dtypes import F64, I64, U64


def _reduced(op: Op, x: Array, axis: Any, keepdims: bool) -> Array:
    axes = axis_numbers(axis, x.ndim)
    found = ops.reduction(C.b, op, x.node, axes) if axes else x.node
    return Array(kept(C, found, x.shape, axes, keepdims))


def _summed_dtype(x: Array, dtype: Any) -> DType:
    """The dtype of a sum: integers are summed in 64 bits."""
    if dtype is not None:
        return as_dtype(dtype)
    if x.dtype.is_differentiable:
        return x.dtype
    return U64 if x.dtype.kind == "uint" else I64


def sum(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """The sum along axes, or of all; of integers in 64 bits unless a dtype is given."""
    x = as_array(x)
    return _reduced(ops.add, cast(x, _summed_dtype(x, dtype)), axis, keepdims)


def prod(x: Any, /, *, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """The product along axes, or of all; of integers in 64 bits unless a dtype is given."""
    x = as_array(x)
    return _reduced(ops.multiply, cast(x, _summed_dtype(x, dtype)), axis, keepdims)


def _extreme(x: Any, op: Op, axis: Any, keepdims: bool) -> Array:
    x = as_array(x)
    if not _count(x, axis):
        raise ArrayValueError("there is no extreme of no elements")
    return _reduced(op, x, axis, keepdims)


def max(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The greatest along axes, or of all; NaN where there is one. Raises ArrayValueError for no elements."""
    return _extreme(x, ops.maximum, axis, keepdims)


def min(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The least along axes, or of all; NaN where there is one. Raises ArrayValueError for no elements."""
    return _extreme(x, ops.minimum, axis, keepdims)


def _count(x: Array, axis: Any) -> int:
    return math.prod(x.shape[a] for a in axis_numbers(axis, x.ndim))


def mean(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """The mean along axes, or of all; of integers as float64."""
    x = as_array(x)
    x = x if x.dtype.is_differentiable else cast(x, F64)
    return divide(sum(x, axis=axis, keepdims=keepdims), float(_count(x, axis)))


def var(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The variance along axes, or of all, with `correction` taken from the number of elements."""
    x = as_array(x)
    x = x if x.dtype.is_differentiable else cast(x, F64)
    distance = abs(subtract(x, mean(x, axis=axis, keepdims=True)))
    return divide(sum(multiply(distance, distance), axis=axis, keepdims=keepdims), float(_count(x, axis) - correction))


def std(x: Any, /, *, axis: Any = None, correction: float = 0.0, keepdims: bool = False) -> Array:
    """The square root of the variance."""
    return sqrt(var(x, axis=axis, correction=correction, keepdims=keepdims))


def all(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Whether all elements along axes are true, that is, not zero."""
    return _reduced(ops.and_, truth(x), axis, keepdims)


def any(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """Whether one element along axes is true, that is, not zero."""
    return _reduced(ops.or_, truth(x), axis, keepdims)


def count_nonzero(x: Any, /, *, axis: Any = None, keepdims: bool = False) -> Array:
    """How many elements along axes are not zero, as int64."""
    return sum(cast(not_equal(x, 0), I64), axis=axis, keepdims=keepdims)


def _extreme_at(x: Any, direction: str, axis: int | None, keepdims: bool) -> Array:
    x = as_array(x)
    flat = x if axis is not None else reshape(x, (-1,))
    at = 0 if axis is None else axis_number(axis, x.ndim)
    if not flat.shape[at]:
        raise ArrayValueError("there is no extreme of no elements")
    found = Array(extreme_index(C, cast(flat, U8).node if flat.dtype is BOOL else flat.node, at, direction))
    if not keepdims:
        return found
    return reshape(found, [1 if axis is None or k == at else d for k, d in enumerate(x.shape)])


def argmax(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the first of the greatest elements is along an axis, or in the flattened array, as int64."""
    return _extreme_at(x, "GT", axis, keepdims)


def argmin(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the first of the least elements is along an axis, or in the flattened array, as int64."""
    return _extreme_at(x, "LT", axis, keepdims)


def _cumulative(x: Any, op: Op, axis: int | None, dtype: Any, include_initial: bool) -> Array:
    x = as_array(x)
    if axis is None:
        if x.ndim != 1:
            raise ArrayValueError(f"an axis is needed: the array has {x.ndim}")
        axis = 0
    at = axis_number(axis, x.ndim)
    x = cast(x, _summed_dtype(x, dtype))
    found = Array(running(C, op, x.node, at)) if x.shape[at] else x
    if not include_initial:
        return found
    first = C.full(op.identity_for(x.dtype), x.type.with_dims(tuple(1 if k == at else d for k, d in enumerate(x.shape))))
    return concat([Array(first), found], axis=at)


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """The sums up to each element along an axis; with `include_initial` a zero before them."""
    return _cumulative(x, ops.add, axis, dtype, include_initial)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """The products up to each element along an axis; with `include_initial` a one before them."""
    return _cumulative(x, ops.multiply, axis, dtype, include_initial)


def diff(x: Any, /, *, axis: int = -1, n: int = 1, prepend: Any = None, append: Any = None) -> Array:
    """The differences of neighbours along an axis, n times."""
    x = as_array(x)
    at = axis_number(axis, x.ndim)
    parts = [as_array(p) for p in (prepend, x, append) if p is not None]
    x = concat(parts, axis=at) if len(parts) > 1 else x
    for _ in range(n):
        size = x.shape[at]
        low, high = (Array(part_of(C, x.node, at, s, e)) for s, e in ((0, size - 1 if size else 0), (1 if size else 0, size)))
        x = not_equal(high, low) if x.dtype is BOOL else subtract(high, low)
    return Array(x.node)

