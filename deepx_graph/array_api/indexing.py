"""Parts of arrays: `x[key]`, `x[key] = value`, `take` and `take_along_axis`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.array_api.array import Array, C, as_array, cast, constant
from deepx_graph.array_api.elementwise import add, choose, less, multiply
from deepx_graph.array_api.errors import ArrayIndexError, ArrayValueError
from deepx_graph.array_api.manipulation import axis_number, broadcast_arrays, broadcast_to, expand_dims, permute_dims, reshape
from deepx_graph.text.common.elements import along_axis
from deepx_graph.types import BOOL
from deepx_graph.types.dtypes import I64

Key = tuple[Any, ...]


def _expanded(x: Array, key: Any) -> list[Any]:
    """The key with one entry for each axis, beside those that are None. Raises ArrayIndexError for too many."""
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = [as_array(k) if isinstance(k, (np.ndarray, list)) else k for k in keys]
    used = sum(k.ndim if _is_mask(k) else 1 for k in keys if k is not None and k is not Ellipsis)
    if used > x.ndim:
        raise ArrayIndexError(f"{used} indices for an array with {x.ndim} axes")
    at = next((n for n, k in enumerate(keys) if k is Ellipsis), len(keys))
    return keys[:at] + [slice(None)] * (x.ndim - used) + keys[at + 1 :]


def _is_mask(k: Any) -> bool:
    return isinstance(k, (bool, np.bool_)) or (isinstance(k, Array) and k.dtype is BOOL)


def item(x: Array, key: Any) -> Array:
    """`x[key]` of integers, slices, None, an ellipsis, arrays of integers, and masks whose values are known.

    Raises ArrayIndexError for what is beyond an axis, UsageError for a mask that is traced.
    """
    keys = _expanded(x, key)
    if any(_is_mask(k) for k in keys):
        return _by_positions(x, tuple(k.value if isinstance(k, Array) else k for k in keys))
    if any(isinstance(k, Array) and k.shape for k in keys):
        return _by_arrays(x, keys)
    return _by_slices(x, keys)


def _by_slices(x: Array, keys: list[Any]) -> Array:
    starts: list[int] = []
    limits: list[int] = []
    strides: list[int] = []
    reversed_axes: list[int] = []
    dims: list[int] = []
    axis = 0
    for k in keys:
        if k is None:
            dims.append(1)
            continue
        size = x.shape[axis]
        if isinstance(k, slice):
            steps = range(*slice(*(None if v is None else int(v) for v in (k.start, k.stop, k.step))).indices(size))
            low, high = (steps[0], steps[-1]) if steps else (0, -1)
            if steps and steps.step < 0:
                reversed_axes.append(axis)
                low, high = high, low
            starts.append(low)
            limits.append(high + 1)
            strides.append(abs(steps.step))
            dims.append(len(steps))
        else:
            at = int(k)
            if not -size <= at < size:
                raise ArrayIndexError(f"index {at} of an axis of size {size}")
            starts.append(at % size)
            limits.append(at % size + 1)
            strides.append(1)
        axis += 1
    node = x.node
    if tuple(starts) != (0,) * x.ndim or tuple(limits) != x.shape or any(s != 1 for s in strides):
        node = C.sliced(node, starts, limits, strides)
    if reversed_axes:
        node = C(ops.reverse, node, dimensions=tuple(reversed_axes))
    return Array(C.shaped(node, dims))


def _by_positions(x: Array, key: Key) -> Array:
    """By the numbers of the elements, which numpy finds; the key has values alone."""
    places = np.arange(x.size).reshape(x.shape)[key]
    return Array(C(ops.torch_index_select, C.shaped(x.node, (x.size,)), C.constant(places, I64), dim=0))


def _by_arrays(x: Array, keys: list[Any]) -> Array:
    """By arrays of integers: slices first, then the elements of joint positions along the other axes."""
    plain = [k if k is None or isinstance(k, slice) else slice(None) for k in keys]
    found = _by_slices(x, plain)
    axes = [n for n, k in enumerate(keys) if k is not None and not isinstance(k, slice)]
    indices = [_within(as_array(k), found.shape[a]) for k, a in zip((keys[n] for n in axes), axes, strict=True)]
    joint = broadcast_arrays(*indices)
    others = [n for n in range(found.ndim) if n not in axes]
    moved = permute_dims(found, (*axes, *others))
    count = math.prod(found.shape[a] for a in axes)
    rest = moved.shape[len(axes) :]
    linear = joint[0]
    for a, index in zip(axes[1:], joint[1:], strict=True):
        linear = add(multiply(linear, found.shape[a]), index)
    flat = C.shaped(moved.node, (count, *rest))
    chosen = Array(C(ops.torch_index_select, flat, C.shaped(linear.node, (linear.size,)), dim=0))
    at = axes[0] if axes == list(range(axes[0], axes[0] + len(axes))) else 0
    whole = reshape(chosen, (*linear.shape, *rest))
    before = list(range(linear.ndim, linear.ndim + at))
    return permute_dims(whole, (*before, *range(linear.ndim), *range(linear.ndim + at, whole.ndim)))


def _within(index: Array, size: int) -> Array:
    """Indices of 64 bits, counted from the end where they are negative. Raises ArrayIndexError for known ones beyond the axis."""
    if index.dtype.kind not in ("int", "uint"):
        raise ArrayIndexError(f"an array of {index.dtype} is no index")
    index = cast(index, I64)
    if C.values(index.node) is not None and index.size and not (-size <= index.value.min() and index.value.max() < size):
        raise ArrayIndexError(f"an index beyond an axis of size {size}")
    return choose(less(index, 0), add(index, size), index)


def with_item(x: Array, key: Any, value: Any) -> Array:
    """The array with other elements at a key, which may not be traced."""
    value = cast(as_array(value), x.dtype)
    keys = tuple(k.value if isinstance(k, Array) else k for k in _expanded(x, key))
    places = np.arange(x.size).reshape(x.shape)[keys]
    given = broadcast_to(value, places.shape) if value.shape != places.shape else value
    if not places.size:
        return x
    source = np.full(x.size, -1)
    source[places.reshape(-1)] = np.arange(places.size)
    flat = Array(C.shaped(given.node, (places.size,)))
    new = Array(C(ops.torch_index_select, flat.node, C.constant(np.maximum(source, 0), I64), dim=0))
    return choose(reshape(constant(source >= 0), x.shape), reshape(new, x.shape), x)


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Array:
    """The elements of these indices along an axis, which only an array with one axis may leave out."""
    x, indices = as_array(x), as_array(indices)
    if axis is None and x.ndim != 1:
        raise ArrayValueError(f"an axis is needed: the array has {x.ndim}")
    at = axis_number(axis or 0, x.ndim)
    return item(x, (slice(None),) * at + (indices,))


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Array:
    """For each place of `indices` the element of that number along an axis; the other axes broadcast."""
    x, indices = as_array(x), as_array(indices)
    at = axis_number(axis, x.ndim)
    index = _within(indices, x.shape[at])
    if index.ndim != x.ndim:
        raise ArrayValueError(f"indices of shape {index.shape} for an array of shape {x.shape}: the ranks are not the same")
    joint = [max(a, b) if 1 in (a, b) and 0 not in (a, b) else min(a, b) for a, b in zip(x.shape, index.shape, strict=True)]
    x = broadcast_to(x, [x.shape[k] if k == at else d for k, d in enumerate(joint)])
    index = broadcast_to(index, [index.shape[k] if k == at else d for k, d in enumerate(joint)])
    return Array(C.shaped(along_axis(C, x.node, expand_dims(index, index.ndim).node, at), index.shape))


def _set_item(self: Array, key: Any, value: Any) -> None:
    self.node = with_item(self, key, value).node


setattr(Array, "__getitem__", item)  # noqa: B010
setattr(Array, "__setitem__", _set_item)  # noqa: B010
