"""Steps about elements along axes: parts of tensors, elements by index, the greatest and where it is, running results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.known import NotKnown
from deepx_graph.ops.tensor.index import gather_along
from deepx_graph.text.common.known_steps import KnownSteps
from deepx_graph.text.common.nn import back
from deepx_graph.types import BOOL, I64, mul_dims

Axes = tuple[int, ...]


def part_of(c: KnownSteps, x: Node, axis: int, start: int, limit: int) -> Node:
    """Elements from `start` to `limit` along an axis."""
    shape = c.shape_of(x)
    return c.sliced(x, [start if k == axis else 0 for k in range(len(shape))],
                    [limit if k == axis else d for k, d in enumerate(shape)])


def taken(c: KnownSteps, x: Node, axis: int, places: Any) -> Node:
    """Elements of these places along an axis."""
    return c(ops.torch_index_select, x, c.constant(places, I64), dim=axis)


def along_axis(c: KnownSteps, x: Node, index: Node, axis: int) -> Node:
    """For each place of `index` the element of that number along an axis, at the same place along the others."""
    return c(ops.gather, x, index, **gather_along(len(c.dims_of(x)), axis))


def wrapped(c: KnownSteps, index: Node, size: int) -> Node:
    """Indices counted from the end where they are negative."""
    below = c(ops.compare, index, c.like(0, index), direction="LT")
    return c(ops.select, below, c(ops.add, index, c.like(size, index)), index)


def extreme_index(c: KnownSteps, x: Node, axis: int, direction: str, last: bool = False) -> Node:
    """Where along an axis the greatest or least element is, the first or the last of equal ones, as int64."""
    dims = c.dims_of(x)
    most = ops.reduction(c.b, ops.maximum if direction == "GT" else ops.minimum, x, (axis,))
    hit = c(ops.compare, x, back(c, most, x, (axis,)), direction="EQ")
    if c.dtype_of(x).is_float:
        hit = c(ops.or_, hit, c(ops.compare, x, x, direction="NE"))
    places = c.indices(I64, dims, axis)
    size = c.shape_of(x)[axis]
    missed = c(ops.select, hit, places, c.full(-1 if last else size, c.type_of(places)))
    return ops.reduction(c.b, ops.maximum if last else ops.minimum, missed, (axis,))


def running(c: KnownSteps, op: Op, x: Node, axis: int) -> Node:
    """The results of a monoid up to each element along an axis."""
    shape, dtype = c.shape_of(x), c.dtype_of(x)
    ones = (1,) * len(shape)
    window = tuple(d if k == axis else 1 for k, d in enumerate(shape))
    low = tuple(d - 1 if k == axis else 0 for k, d in enumerate(shape))
    return c(ops.reduce_window, x, c.like(op.identity_for(dtype), x), body=monoid_body(op, dtype), window_dimensions=window,
             window_strides=ones, base_dilations=ones, window_dilations=ones, padding_low=low, padding_high=(0,) * len(shape))


def kept(c: KnownSteps, x: Node, dims: Sequence[Any], axes: Axes, keep: bool) -> Node:
    """A reduction with its axes as ones where they are kept."""
    return c.shaped(x, [1 if k in axes else d for k, d in enumerate(dims)]) if keep else x


def total(c: KnownSteps, op: Op, x: Node, axes: Axes) -> Node:
    """A reduction by a monoid; of bool by logic, of narrow floats in single precision."""
    if c.dtype_of(x) is BOOL:
        op = {ops.maximum: ops.or_, ops.minimum: ops.and_}.get(op, op)
    return ops.reduction(c.b, op, x, axes) if axes else x


def count(c: KnownSteps, x: Node, axes: Axes) -> int:
    """How many elements the axes have. Raises NotKnown."""
    dims = c.dims_of(x)
    number = mul_dims([dims[k] for k in axes])
    if isinstance(number, str):
        raise NotKnown("how many elements are averaged is not known")
    return number


def mean(c: KnownSteps, x: Node, axes: Axes) -> Node:
    """The mean over some axes, without them. Raises NotKnown where their sizes are not known."""
    return c(ops.divide, ops.reduction(c.b, ops.add, x, axes), c.like(count(c, x, axes), x)) if axes else x
