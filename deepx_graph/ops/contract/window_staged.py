"""Windows of one ufunc, axis by axis and by doubling.

What a window of a box combines is combined along one axis after the other. Along an axis, all windows of 2, 4, 8, ... elements are
made of those half as long, and a window of any length of the powers of two in it: passes over the array are as many as its length
has digits, and sums are trees. Where windows are few, being far apart, their elements are combined one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.literal import Array
from deepx_graph.ops.contract.monoid import UfuncMonoid
from deepx_graph.ops.contract.window import running_axis
from deepx_graph.ops.math.extremes import Extreme
from deepx_graph.ops.tensor.shape import spread_and_pad
from deepx_graph.types import Type, as_tensor

Axes = tuple[int, ...]
Along = Callable[[Array], Array]

MOST = 128
"""Elements that are combined one after the other."""


def reduce_window_staged(types: Sequence[Type], result: Type, sizes: Axes, strides: Axes, base: Axes, dilations: Axes, low: Axes,
                         high: Axes, body: Function) -> Callable[[Array, Any], Array] | None:
    """The eval of a `reduce_window` by one ufunc; None for running results, which are scans, and for several operands."""
    if len(types) != 2 or body.reducer is None:
        return None
    x, monoid = as_tensor(types[0]), body.reducer.monoid
    shape, final = x.shape, as_tensor(result).shape
    if not isinstance(monoid, UfuncMonoid) or x.dtype.np is None or x.dtype.np.char not in "?bhilqBHILQfd" or 0 in (*shape, *final):
        return None
    if running_axis(shape, sizes, (strides, base, dilations), low, high) is not None:
        return None
    padded = any(low) or any(high) or any(b != 1 for b in base)
    steps = [_along(axis, monoid.function, size, stride, dilation, count)
             for axis, (size, stride, dilation, count) in enumerate(zip(sizes, strides, dilations, final, strict=True))
             if size != 1 or stride != 1]
    function = monoid.function

    def run(x: Array, init: Any) -> Array:
        made = spread_and_pad(x, init, low, high, base) if padded else x
        for step in steps:
            made = step(made)
        return np.asarray(function(made, init))

    return run


def _along(axis: int, function: np.ufunc | Extreme, size: int, stride: int, dilation: int, count: int) -> Along:
    """All windows along an axis."""
    before = (slice(None),) * axis
    reach = (count - 1) * stride + 1

    def seen(x: Array, offset: int) -> Array:
        """The elements that windows have at an offset."""
        start = offset * dilation
        return x[(*before, slice(start, start + reach, stride))]

    def one_by_one(x: Array) -> Array:
        total = seen(x, 0)
        for k in range(1, size):
            total = function(seen(x, k), total) if k == 1 else function(total, seen(x, k), out=total)
        return total

    def by_doubling(x: Array) -> Array:
        total, offset, length, rest = None, 0, 1, size
        while True:
            if rest & 1:
                part = seen(x, offset)
                total = part if total is None else function(total, part)
                offset += length
            rest >>= 1
            if not rest:
                assert total is not None
                return total
            shift, whole = length * dilation, x.shape[axis]
            x = function(x[(*before, slice(0, whole - shift))], x[(*before, slice(shift, whole))])
            length *= 2

    return one_by_one if size <= min(MOST, size.bit_length() * stride + 1) else by_doubling
