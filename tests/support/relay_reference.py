"""What operators of Relay give, by plain loops of numpy over places: convolutions and poolings of any rank, norms.

Written from TVM's documentation of `relay.nn`; data lie as N, C and the spatial axes, kernels as O, I and the spatial axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Sizes = Sequence[int]


def padded(x: Array, low: Sizes, high: Sizes, value: float) -> Array:
    """The spatial axes with so many elements before and behind them."""
    return np.pad(x, ((0, 0), (0, 0), *zip(low, high, strict=True)), constant_values=value)


def windows(x: Array, size: Sizes, strides: Sizes, dilation: Sizes) -> tuple[tuple[int, ...], dict[tuple[int, ...], Array]]:
    """How many windows there are along each axis, and the elements of each by its place."""
    counts = tuple((n - (k - 1) * d - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], size, strides, dilation, strict=True))
    found = {}
    for place in np.ndindex(*counts):
        part = tuple(slice(p * s, p * s + (k - 1) * d + 1, d) for p, s, k, d in zip(place, strides, size, dilation, strict=True))
        found[place] = x[(slice(None), slice(None), *part)]
    return counts, found


def convolution(x: Array, w: Array, *, strides: Sizes, low: Sizes, high: Sizes, dilation: Sizes, groups: int = 1) -> Array:
    """The kernel with every window of the input."""
    counts, found = windows(padded(x, low, high, 0), w.shape[2:], strides, dilation)
    out = np.zeros((len(x), len(w), *counts), np.result_type(x, w))
    inputs, outputs = x.shape[1] // groups, len(w) // groups
    axes = tuple(range(1, x.ndim))
    for place, part in found.items():
        for g in range(groups):
            mine = slice(g * outputs, (g + 1) * outputs)
            out[(slice(None), mine, *place)] = np.tensordot(part[:, g * inputs : (g + 1) * inputs], w[mine], (axes, axes))
    return out


def transposed(y: Array, w: Array, *, strides: Sizes, low: Sizes, high: Sizes, dilation: Sizes, extra: Sizes) -> Array:
    """Every element spread by the kernel (here I, O and spatial axes) over a result that the padding is cut off."""
    whole = [(n - 1) * s + (k - 1) * d + 1 + e
             for n, k, s, d, e in zip(y.shape[2:], w.shape[2:], strides, dilation, extra, strict=True)]
    out = np.zeros((len(y), w.shape[1], *whole), np.result_type(y, w))
    for place in np.ndindex(*y.shape[2:]):
        for tap in np.ndindex(*w.shape[2:]):
            to = tuple(p * s + t * d for p, s, t, d in zip(place, strides, tap, dilation, strict=True))
            out[(slice(None), slice(None), *to)] += y[(slice(None), slice(None), *place)] @ w[(slice(None), slice(None), *tap)]
    return out[(slice(None), slice(None), *(slice(a, n - b) for a, b, n in zip(low, high, whole, strict=True)))]


def pooling(x: Array, how: Callable[[Array], Array], *, size: Sizes, strides: Sizes, low: Sizes, high: Sizes, dilation: Sizes,
            value: float) -> Array:
    """`how` of every window, which is given as N, C and its elements."""
    counts, found = windows(padded(x, low, high, value), size, strides, dilation)
    out = np.zeros((*x.shape[:2], *counts), x.dtype)
    for place, part in found.items():
        out[(slice(None), slice(None), *place)] = how(part.reshape(*x.shape[:2], -1))
    return out


def largest(part: Array) -> Array:
    return np.asarray(part.max(-1))


def mean(part: Array) -> Array:
    return np.asarray(part.mean(-1))


def mean_inside(part: Array) -> Array:
    """The mean of the elements that are no padding, which is NaN."""
    return np.asarray(np.nanmean(part, -1))


def normal(x: Array, axes: int | tuple[int, ...], epsilon: float) -> Array:
    return np.asarray((x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon))
