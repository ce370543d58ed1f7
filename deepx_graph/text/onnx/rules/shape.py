"""Operators on shapes and places of elements: Reshape, Concat, Slice, Pad, Tile, constants and ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError, LimitError
from deepx_graph.ir import Node, Op
from deepx_graph.literal import Array, Literal
from deepx_graph.ops.known import NotKnown
from deepx_graph.ops.known_sizes import known_array
from deepx_graph.text.common.elements import along_axis, part_of, taken
from deepx_graph.text.common.nn import depth_to_space, space_to_depth
from deepx_graph.text.common.steps import Unsupported, axis_of, joint_dims
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.types import F32, I32, I64, Dim, DType, mul_dims, tensor

# --- shapes as data -------------------------------------------------------------------------------------------------


def _shape(c: NodeContext) -> Node:
    """The sizes of an operand; those that are not known are asked for when it runs."""
    dims = c.dims()
    if c.version >= 15:
        start, end = (_clamped(c.number(name, default), len(dims)) for name, default in (("start", 0), ("end", len(dims))))
        picked = range(start, max(start, end))
    else:
        picked = range(len(dims))
    if all(isinstance(dims[k], int) for k in picked):
        return c.constant(np.asarray([dims[k] for k in picked], np.int64), I64)
    sizes = [c.shaped(c.cast(c(ops.get_dimension_size, c.node(), dimension=k), I64), (1,)) for k in picked]
    return c(ops.concatenate, *sizes, dimension=0) if len(sizes) > 1 else sizes[0]


def _clamped(index: int, size: int) -> int:
    return min(max(index + size if index < 0 else index, 0), size)


def _size(c: NodeContext) -> Node:
    return c.constant(math.prod(c.shape()), I64)


def _reshape(c: NodeContext) -> Node:
    given = c.sizes_at(1) if c.version >= 5 else c.ints("shape")
    return c.shaped(c.node(), reshaped(c, given, c.flag("allowzero")))


def reshaped(c: NodeContext, given: Sequence[Dim], allow_zero: bool) -> tuple[Dim, ...]:
    """The sizes that a shape with zeros, which copy, and one -1, which is what is left, stands for."""
    old = c.dims()
    made: list[Dim] = []
    for k, d in enumerate(given):
        if d == 0 and not allow_zero:
            if k >= len(old):
                raise InferError(f"the shape {list(given)} copies size {k} of {c.type()}")
            made.append(old[k])
        elif isinstance(d, int) and d < -1:
            raise InferError(f"the shape {list(given)}", expected="sizes from 0, or one -1")
        else:
            made.append(d)
    open_axes = [k for k, d in enumerate(given) if d == -1]
    if len(open_axes) > 1:
        raise InferError(f"the shape {list(given)}", expected="one -1 at most")
    if open_axes:
        (at,) = open_axes
        rest, left = [x for k, x in enumerate(made) if k != at], list(old)
        for x in list(rest):  # sizes on both sides say nothing of the one that is left
            if x in left and x != 0:
                left.remove(x)
                rest.remove(x)
        whole, others = mul_dims(left), mul_dims(rest)
        if others == 1:
            made[at] = whole
        elif isinstance(whole, int) and isinstance(others, int) and others and whole % others == 0:
            made[at] = whole // others
        elif isinstance(whole, int) and isinstance(others, int):
            raise InferError(f"{c.type()} in the shape {list(given)}", expected="as many elements")
        else:
            raise NotKnown(f"what -1 stands for in the shape {list(given)} of {c.type()} is not known")
    return tuple(made)


def _flatten(c: NodeContext) -> Node:
    dims = c.dims()
    axis = c.number("axis", 1)
    axis = axis if axis == len(dims) else axis_of(axis, len(dims))
    return c.shaped(c.node(), (mul_dims(dims[:axis]), mul_dims(dims[axis:])))


def _squeeze(c: NodeContext) -> Node:
    given = c.axes_at(1)
    if given is None:
        return c.shaped(c.node(), [d for d in c.shape() if d != 1])
    dims = c.dims()
    axes = {axis_of(a, len(dims)) for a in given}
    if any(isinstance(dims[a], int) and dims[a] != 1 for a in axes):
        raise InferError(f"axes {sorted(axes)} of {c.type()}", expected="axes of size 1")
    return c.shaped(c.node(), [d for k, d in enumerate(dims) if k not in axes])


def _unsqueeze(c: NodeContext) -> Node:
    given = c.axes_at(1) or ()
    rank = c.rank() + len(given)
    axes = {axis_of(a, rank) for a in given}
    if len(axes) < len(given):
        raise InferError(f"axes {list(given)}", expected="each once")
    return c.add_axes(c.node(), sorted(axes))


def _transpose(c: NodeContext) -> Node:
    order = c.ints("perm", tuple(reversed(range(c.rank()))))
    return c.transposed(c.node(), order)


def _expand(c: NodeContext) -> Node:
    given = c.sizes_at(1)
    for old, new in zip(reversed(c.dims()), reversed(given), strict=False):
        if old != new and 1 not in (old, new) and (isinstance(old, str) or isinstance(new, str)):
            raise NotKnown(f"whether the sizes {old} and {new} are equal is not known")
    return c.filled(c.node(), joint_dims([c.dims(), given]))


def _tile(c: NodeContext) -> Node:
    shape = c.shape()
    if c.version < 6:
        repeats = [1] * len(shape)
        repeats[axis_of(int(c.number_at(2)), len(shape))] = int(c.number_at(1))
    else:
        repeats = list(c.ints_at(1))
    if len(repeats) != len(shape) or min(repeats, default=0) < 0:
        raise InferError(f"repeats {repeats} of {c.type()}", expected=f"{len(shape)} numbers from 0")
    return tiled(c, c.node(), repeats)


def tiled(c: NodeContext, x: Node, repeats: Sequence[int]) -> Node:
    """The operand several times along each axis."""
    shape = c.shape_of(x)
    wide = [d for r, n in zip(repeats, shape, strict=True) for d in (r, n)]
    spread = c.along(x, tuple(wide), tuple(range(1, 2 * len(shape), 2)))
    return c.shaped(spread, [r * n for r, n in zip(repeats, shape, strict=True)])


def _concat(c: NodeContext) -> Node:
    nodes = c.nodes()
    axis = c.axis(default=1 if c.version < 4 else None)
    return c(ops.concatenate, *nodes, dimension=axis) if len(nodes) > 1 else nodes[0]


def _split(c: NodeContext) -> list[Node]:
    axis, size = c.axis(default=0), c.shape()[c.axis(default=0)]
    parts = c.axes_at(1, "split") if c.version != 1 or c.has(1) else c.ints("split") if c.given("split") else None
    if parts is None:
        number = c.number("num_outputs", len(c.message.outputs))
        if number < 1:
            raise InferError(f"{number} outputs", expected="one or more")
        chunk = -(-size // number)
        parts = tuple(max(0, min(chunk, size - k * chunk)) for k in range(number))
    return split_at(c, c.node(), axis, parts)


def split_at(c: NodeContext, x: Node, axis: int, parts: Sequence[int]) -> list[Node]:
    """Parts of these sizes along an axis."""
    shape = c.shape_of(x)
    if sum(parts) != shape[axis] or min(parts, default=0) < 0:
        raise InferError(f"parts of {list(parts)} of an axis of {shape[axis]}", expected="sizes that add up to it")
    found, at = [], 0
    for part in parts:
        found.append(part_of(c, x, axis, at, at + part))
        at += part
    return found


def _slice(c: NodeContext) -> Node:
    if c.version < 10:
        starts, ends = c.ints("starts"), c.ints("ends")
        axes, steps = c.ints("axes", tuple(range(len(starts)))), (1,) * len(starts)
    else:
        computed = _slice_at_computed_places(c)
        if computed is not None:
            return computed
        starts, ends = c.ints_at(1), c.ints_at(2)
        axes = c.ints_at(3) if c.has(3) else tuple(range(len(starts)))
        steps = c.ints_at(4) if c.has(4) else (1,) * len(starts)
    dims = c.dims()
    x = c.node()
    begin, limit, stride, flipped = [0] * len(dims), list(dims), [1] * len(dims), []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        a = axis_of(axis, len(dims))
        d = dims[a]
        if not isinstance(d, int):
            if (start, step) == (0, 1) and end >= (1 << 31) - 1:
                continue
            raise NotKnown(f"the size of axis {a} is not known")
        if not step:
            raise InferError("a step of 0")
        if step > 0:
            low, high = _clamped(start, d), _clamped(end, d)
        else:  # from the other end: elements d - 1 - start, ... of what is reversed
            first = min(start + d if start < 0 else start, d - 1)
            last = max(end + d if end < 0 else end, -1)
            low, high = d - 1 - max(first, -1), d - 1 - last
            flipped.append(a)
        begin[a], limit[a], stride[a] = low, max(low, high), abs(step)
    if flipped:
        x = c(ops.reverse, x, dimensions=tuple(sorted(flipped)))
    if any(isinstance(d, str) for d in limit):
        raise NotKnown("the shape is not known")
    return c.sliced(x, begin, limit, stride)  # type: ignore[arg-type]


def _slice_at_computed_places(c: NodeContext) -> Node | None:
    """A slice of known sizes that stays inside wherever it begins: from min(max(v, low), high) to as many elements further on.
    So dynamic slices are written. None for any other.
    """
    starts = c.node(1)
    if known_array(starts, c.values) is not None:
        return None
    end, upper = _known_operand(c, c.node(2), ops.add), _known_operand(c, starts, ops.minimum)
    lower = _known_operand(c, upper[0], ops.maximum) if upper is not None else None
    if end is None or upper is None or lower is None or end[0] is not starts:
        return None
    x, shape = c.node(), c.shape_of(c.node())
    lengths, low, high = (np.broadcast_to(v, c.shape_of(starts)).tolist() for v in (end[1], lower[1], upper[1]))
    axes = [axis_of(a, len(shape)) for a in (c.ints_at(3) if c.has(3) else range(len(lengths)))]
    inside = all(min(p, q) >= 0 and n >= 0 and q + n <= shape[a] for a, n, p, q in zip(axes, lengths, low, high, strict=True))
    if not inside or (c.has(4) and set(c.ints_at(4)) != {1}):
        return None
    begin, sizes = [c.scalar(0, c.dtype_of(starts))] * len(shape), list(shape)
    for k, (a, n) in enumerate(zip(axes, lengths, strict=True)):
        begin[a], sizes[a] = c.shaped(part_of(c, starts, 0, k, k + 1), ()), n
    return c(ops.dynamic_slice, x, *begin, slice_sizes=tuple(sizes))


def _known_operand(c: NodeContext, x: Node, op: Op) -> tuple[Node, Array] | None:
    """The operands of a commutative operation, of which one is known: that which is not, and the value of the other."""
    for k in range(2) if x.op is op else ():
        value = known_array(x.inputs[k], c.values)
        if value is not None:
            return x.inputs[1 - k], value
    return None


# --- padding --------------------------------------------------------------------------------------------------------


def _pad(c: NodeContext) -> Node:
    rank = c.rank()
    value = None
    if c.version < 11:
        pads = c.ints("pads" if c.version >= 2 else "paddings")
        number = c.real("value", 0.0)
        axes = tuple(range(rank))
    else:
        pads, number = c.ints_at(1), 0
        value = c.shaped(c.node(2), ()) if c.has(2) else None
        axes = tuple(axis_of(a, rank) for a in c.ints_at(3)) if c.has(3) else tuple(range(rank))
    if len(pads) != 2 * len(axes):
        raise InferError(f"pads {list(pads)}", expected=f"{2 * len(axes)} numbers")
    low, high = [0] * rank, [0] * rank
    for k, a in enumerate(axes):
        low[a], high[a] = pads[k], pads[len(axes) + k]
    mode = c.one_of("mode", "constant", "constant", "reflect", "edge", "wrap")
    x = c.node()
    if not any(pads):
        return x
    if mode == "constant":
        value = value if value is not None else c.like(number if c.dtype().is_float else 0, x)
        return c(ops.pad, x, value, edge_padding_low=tuple(low), edge_padding_high=tuple(high), interior_padding=(0,) * rank)
    for a in range(rank):
        if low[a] or high[a]:
            x = taken(c, x, a, _places(c.shape_of(x)[a], low[a], high[a], mode))
    return x


def _places(size: int, low: int, high: int, mode: str) -> Any:
    """Which element along an axis each element of the padded axis is."""
    if size + low + high > NodeContext.limit:
        raise LimitError(f"padding of {low} and {high}")
    if size < 1:
        raise InferError("padding of an axis of size 0 by its elements")
    at = np.arange(-low, size + high)
    if mode == "edge":
        return np.clip(at, 0, size - 1)
    if mode == "wrap":
        return at % size
    period = max(1, 2 * (size - 1))
    at = np.abs(at % period)
    return np.where(at >= size, period - at, at)


def _center_crop_pad(c: NodeContext) -> Node:
    x, wanted = c.node(), c.ints_at(1)
    rank = c.rank()
    axes = [axis_of(a, rank) for a in c.ints("axes", tuple(range(rank)))]
    shape = c.shape()
    start, limit = [0] * rank, list(shape)
    low, high = [0] * rank, [0] * rank
    for a, size in zip(axes, wanted, strict=True):
        if size < shape[a]:
            start[a] = (shape[a] - size) // 2
            limit[a] = start[a] + size
        else:
            low[a] = (size - shape[a]) // 2
            high[a] = size - shape[a] - low[a]
    x = c.sliced(x, start, limit)
    return c(ops.pad, x, c.like(0, x), edge_padding_low=tuple(low), edge_padding_high=tuple(high), interior_padding=(0,) * rank)


# --- made from nothing ----------------------------------------------------------------------------------------------


def _constant(c: NodeContext) -> Node:
    for name, kind in (("value", None), ("sparse_value", None), ("value_float", F32), ("value_int", I64), ("value_floats", F32),
                       ("value_ints", I64)):
        if c.given(name):
            value = c.attrs[name]
            return c.b.literal(value) if isinstance(value, Literal) else c.constant(value, kind)  # type: ignore[arg-type]
    if c.given("value_string") or c.given("value_strings"):
        raise Unsupported("a constant that is text")
    raise InferError("the constant has no value", expected="value, sparse_value, value_float, value_int, ...")


def _constant_of_shape(c: NodeContext) -> Node:
    shape = c.ints_at(0)
    value = c.literal("value") if c.given("value") else Literal(np.zeros(1, np.float32))
    if min(shape, default=0) < 0 or value.array.size != 1:
        raise InferError(f"the shape {list(shape)} of {value}", expected="sizes from 0 and one value")
    return c.b.splat(value.array.reshape(-1)[0], tensor(value.dtype, shape))


def _range(c: NodeContext) -> Node:
    start, limit, delta = (c.number_at(k) for k in range(3))
    if delta == 0:
        raise InferError("a range with the step 0")
    count = max(0, math.ceil((limit - start) / delta))
    if count > c.limit:
        raise LimitError(f"a range of {count} elements")
    dtype: DType = c.dtype()
    places = c(ops.iota, dtype=dtype, shape=(count,), iota_dimension=0)
    return c(ops.add, c(ops.multiply, places, c.shaped(c.node(2), ())), c.shaped(c.node(0), ()))


def _eye_like(c: NodeContext) -> Node:
    dims = c.dims()
    if len(dims) != 2:
        raise InferError(f"operand 0 is {c.type()}", operand=0, expected="a matrix")
    off = c(ops.subtract, c.indices(I32, dims, 1), c.indices(I32, dims, 0))
    hit = c(ops.compare, off, c.like(c.number("k", 0), off), direction="EQ")
    return c.cast(hit, c.element_type("dtype", c.type().dtype))


def _one_hot(c: NodeContext) -> Node:
    depth = int(c.number_at(1))
    dims = c.dims()
    at = axis_of(c.number("axis", -1), len(dims) + 1)
    shape = (*dims[:at], depth, *dims[at:])
    index = c.cast(c.node(), I64)
    index = c(ops.select, c(ops.compare, index, c.like(0, index), direction="LT"), c(ops.add, index, c.like(depth, index)), index)
    spread = c.along(index, shape, [k for k in range(len(shape)) if k != at])
    hot = c(ops.compare, c.indices(I64, shape, at), spread, direction="EQ")
    values = [c.along(c.shaped(part_of(c, c.node(2), 0, k, k + 1), ()), shape, ()) for k in (0, 1)]
    return c(ops.select, hot, values[1], values[0])


def _trilu(c: NodeContext) -> Node:
    dims = c.dims()
    if len(dims) < 2:
        raise InferError(f"operand 0 is {c.type()}", operand=0, expected="a matrix, or several")
    off = c(ops.subtract, c.indices(I64, dims, len(dims) - 1), c.indices(I64, dims, len(dims) - 2))
    k = c.shaped(c.node(1), ()) if c.has(1) else c.like(0, off)
    hit = c(ops.compare, off, k, direction="GE" if c.flag("upper", True) else "LE")
    return c(ops.select, hit, c.node(), c.full(0, c.type()))


def _depth_to_space(c: NodeContext) -> Node:
    return depth_to_space(c, c.node(), c.number("blocksize"), c.one_of("mode", "DCR", "DCR", "CRD"))


def _space_to_depth(c: NodeContext) -> Node:
    return space_to_depth(c, c.node(), c.number("blocksize"), c.one_of("mode", "DCR", "DCR", "CRD"))


def _reverse_sequence(c: NodeContext) -> Node:
    shape = c.shape()
    batch, time = c.axis("batch_axis", 1), c.axis("time_axis", 0)
    lengths = c.along(c.node(1), shape, (batch,))
    places = c.indices(I64, shape, time)
    last = c(ops.subtract, lengths, c.like(1, lengths))
    inside = c(ops.compare, places, lengths, direction="LT")
    return along_axis(c, c.node(), c(ops.select, inside, c(ops.subtract, last, places), places), time)


SHAPE: Rules = {
    "Shape": _shape, "Size": _size, "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze,
    "Transpose": _transpose, "Expand": _expand, "Tile": _tile, "Concat": _concat, "Split": _split, "Slice": _slice, "Pad": _pad,
    "CenterCropPad": _center_crop_pad, "Constant": _constant, "ConstantOfShape": _constant_of_shape, "Range": _range,
    "EyeLike": _eye_like, "OneHot": _one_hot, "Trilu": _trilu, "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth,
    "ReverseSequence": _reverse_sequence,
}  # fmt: skip
