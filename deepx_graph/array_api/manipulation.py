"""Functions of the standard that arrange elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.array_api.array import Array, C, as_array, promoted
from deepx_graph.array_api.errors import ArrayIndexError, ArrayTypeError, ArrayValueError
from deepx_graph.text.common.elements import part_of, taken
from deepx_graph.text.common.steps import joint_dims


def axis_number(axis: int, rank: int) -> int:
    """An axis counted from the end where it is negative. Raises ArrayIndexError beyond the rank, ArrayTypeError for no number."""
    if not hasattr(axis, "__index__"):
        raise ArrayTypeError(f"an axis is a number, and this is {axis!r}")
    if not -rank <= axis < rank:
        raise ArrayIndexError(f"axis {axis} of an array with {rank} axes")
    return int(axis) % rank


def axis_numbers(axis: Any, rank: int) -> tuple[int, ...]:
    """One axis, several, or all for None. Raises ArrayIndexError beyond the rank, ValueError for one that is named twice."""
    if axis is None:
        return tuple(range(rank))
    found = tuple(axis_number(a, rank) for a in (axis if isinstance(axis, (tuple, list)) else (axis,)))
    if len(set(found)) < len(found):
        raise ArrayValueError(f"an axis is named twice in {axis}")
    return found


def broadcast_to(x: Any, /, shape: Sequence[int]) -> Array:
    """The array stretched to a shape. Raises ArrayValueError where it does not broadcast."""
    x, dims = as_array(x), tuple(int(d) for d in shape)
    if len(x.shape) > len(dims) or any(a not in (1, b) for a, b in zip(x.shape[::-1], dims[::-1], strict=False)):
        raise ArrayValueError(f"{x.shape} does not broadcast to {dims}")
    return Array(C.filled(x.node, dims))


def broadcast_arrays(*arrays: Any) -> list[Array]:
    """The arrays stretched to their joint shape."""
    found = [as_array(a) for a in arrays]
    dims = joint_dims([a.shape for a in found])
    return [Array(C.filled(a.node, dims)) for a in found]


def reshape(x: Any, /, shape: Any, *, copy: bool | None = None) -> Array:
    """The elements in order in another shape; one size may be -1. Raises ArrayValueError for another number of elements."""
    x = as_array(x)
    dims = [int(d) for d in ((shape,) if hasattr(shape, "__index__") else shape)]
    if -1 in dims:
        others = -math.prod(dims)
        dims[dims.index(-1)] = x.size // others if others else 0
    if math.prod(dims) != x.size or any(d < 0 for d in dims):
        asked = shape if hasattr(shape, "__index__") else tuple(shape)
        raise ArrayValueError(f"{x.size} elements do not have the shape {asked}")
    return Array(C.shaped(x.node, dims))


def permute_dims(x: Any, /, axes: Sequence[int]) -> Array:
    """The axes in another order."""
    x = as_array(x)
    order = axis_numbers(tuple(axes), x.ndim)
    if len(order) != x.ndim:
        raise ArrayValueError(f"{tuple(axes)} is no order of {x.ndim} axes")
    return Array(C.transposed(x.node, order))


def moveaxis(x: Any, source: Any, destination: Any, /) -> Array:
    """Axes moved to other positions; the others keep their order."""
    x = as_array(x)
    old, new = axis_numbers(source, x.ndim), axis_numbers(destination, x.ndim)
    if len(old) != len(new):
        raise ArrayValueError(f"{len(old)} axes move to {len(new)} positions")
    order = [k for k in range(x.ndim) if k not in old]
    for to, axis in sorted(zip(new, old, strict=True)):
        order.insert(to, axis)
    return permute_dims(x, order)


def expand_dims(x: Any, /, axis: Any = 0) -> Array:
    """Axes of size 1 put in at these positions of the result."""
    x = as_array(x)
    axes = axis if isinstance(axis, tuple) else (axis,)
    return Array(C.add_axes(x.node, axis_numbers(axes, x.ndim + len(axes))))


def squeeze(x: Any, /, axis: Any) -> Array:
    """Without these axes, of size 1. Raises ArrayValueError for one of another size."""
    x = as_array(x)
    axes = axis_numbers(axis, x.ndim)
    if any(x.shape[a] != 1 for a in axes):
        raise ArrayValueError(f"an axis of {axis} is not of size 1 in {x.shape}")
    return Array(C.shaped(x.node, [d for k, d in enumerate(x.shape) if k not in axes]))


def flip(x: Any, /, *, axis: Any = None) -> Array:
    """The elements in reverse order along axes, or along all."""
    x = as_array(x)
    axes = axis_numbers(axis, x.ndim)
    return Array(C(ops.reverse, x.node, dimensions=axes)) if axes else x


def concat(arrays: Sequence[Any], /, *, axis: int | None = 0) -> Array:
    """The arrays one after the other along an axis; each flattened first for None."""
    found = promoted(*arrays)
    if axis is None:
        found, axis = [reshape(a, (-1,)) for a in found], 0
    return Array(C(ops.concatenate, *(a.node for a in found), dimension=axis_number(axis, found[0].ndim)))


def stack(arrays: Sequence[Any], /, *, axis: int = 0) -> Array:
    """The arrays along a new axis."""
    found = promoted(*arrays)
    at = axis_number(axis, found[0].ndim + 1)
    return concat([expand_dims(a, at) for a in found], axis=at)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The parts along an axis, without it."""
    x = as_array(x)
    at = axis_number(axis, x.ndim)
    return tuple(squeeze(Array(part_of(C, x.node, at, k, k + 1)), at) for k in range(x.shape[at]))


def picked(x: Array, axis: int, places: Any) -> Array:
    """The elements of known places along an axis."""
    return Array(taken(C, x.node, axis, np.asarray(places, np.int64)))


def roll(x: Any, /, shift: Any, *, axis: Any = None) -> Array:
    """The elements moved along axes, those beyond the end to the start; along None, in the flattened array."""
    x = as_array(x)
    if axis is None:
        return reshape(roll(reshape(x, (-1,)), shift, axis=0), x.shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    shifts = shift if isinstance(shift, tuple) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ArrayValueError(f"{len(shifts)} shifts along {len(axes)} axes")
    for by, a in zip(shifts, axes, strict=True):
        at = axis_number(a, x.ndim)
        size = x.shape[at]
        cut = -int(by) % size if size else 0
        if cut:
            parts = (part_of(C, x.node, at, cut, size), part_of(C, x.node, at, 0, cut))
            x = Array(C(ops.concatenate, *parts, dimension=at))
    return Array(x.node)


def tile(x: Any, repetitions: Sequence[int], /) -> Array:
    """The array repeated along each axis."""
    x = as_array(x)
    times = (1,) * (x.ndim - len(repetitions)) + tuple(repetitions)
    dims = (1,) * (len(times) - x.ndim) + x.shape
    apart = [d for pair in zip((1,) * len(dims), dims, strict=True) for d in pair]
    wide = [d for pair in zip(times, dims, strict=True) for d in pair]
    whole = C.filled(C.shaped(x.node, apart), tuple(wide)) if wide else x.node
    return Array(C.shaped(whole, [t * d for t, d in zip(times, dims, strict=True)]))


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Array:
    """Each element along an axis so many times; along None, of the flattened array. `repeats` may not be traced."""
    x = as_array(x)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    at = axis_number(axis, x.ndim)
    times = repeats.value if isinstance(repeats, Array) else np.asarray(repeats)
    return picked(x, at, np.repeat(np.arange(x.shape[at]), times))


def matrix_transpose(x: Any, /) -> Array:
    """The last two axes exchanged. Raises ArrayValueError below rank 2."""
    return as_array(x).mT
