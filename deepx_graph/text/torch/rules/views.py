"""Operators that move elements and compute nothing: views, and their kin that copy. All are values here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.ops.known import NotKnown
from deepx_graph.text.common.elements import part_of, taken
from deepx_graph.text.common.steps import Unsupported, axis_of
from deepx_graph.text.torch.context import CallContext, Rule, Rules
from deepx_graph.types import I64, Dim, as_tensor

# --- shapes ---------------------------------------------------------------------------------------------------------


def _same(c: CallContext) -> Node:
    return c.node()


def reshaped(c: CallContext, x: Node, wanted: Sequence[Dim]) -> Node:
    """The operand in another shape, of which one size may be -1. Raises NotKnown where that one cannot be told."""
    if -1 in wanted:
        shape = c.shape_of(x)
        rest = math.prod(c.static(tuple(d for d in wanted if d != -1)))
        wanted = [math.prod(shape) // max(rest, 1) if d == -1 else d for d in wanted]
    return c.shaped(x, wanted)


def _reshape(c: CallContext) -> Node:
    try:
        return reshaped(c, c.node(), c.sizes(1))
    except NotKnown:
        return _as_declared(c)


def _as_declared(c: CallContext) -> Node:
    """In the shape that the program says, where its sizes are those of the operand. Raises NotKnown."""
    wanted, given = c.result().sizes, c.dims_of(c.node())
    if not {d for d in wanted if isinstance(d, str)} <= {d for d in given if isinstance(d, str)}:
        raise NotKnown("the sizes of the result are not known")
    return c.shaped(c.node(), wanted)


def _flatten(c: CallContext) -> Node:
    x, dims = c.node(), c.dims_of(c.node())
    if not dims:
        return c.shaped(x, (1,))
    first, last = (axis_of(c.number(k, d), len(dims)) for k, d in ((1, 0), (2, -1)))
    middle = dims[first : last + 1]
    if len(middle) == 1:
        return x
    try:
        return c.shaped(x, (*dims[:first], math.prod(c.static(middle)), *dims[last + 1 :]))
    except NotKnown:
        return _as_declared(c)


def _unflatten(c: CallContext) -> Node:
    x, dims, axis = c.node(), c.dims_of(c.node()), c.axis(1)
    parts = list(c.sizes(2))
    if -1 in parts:
        whole = c.static((dims[axis],))[0]
        rest = math.prod(c.static(tuple(d for d in parts if d != -1)))
        parts[parts.index(-1)] = whole // max(rest, 1)
    return c.shaped(x, (*dims[:axis], *parts, *dims[axis + 1 :]))


def _view_as(c: CallContext) -> Node:
    return c.shaped(c.node(), c.dims_of(c.node(1)))


def _squeeze(c: CallContext) -> Node:
    dims = c.dims_of(c.node())
    axes = c.axes(1) if c.has(1) else tuple(range(len(dims)))
    if any(isinstance(dims[a], str) for a in axes):
        return c.shaped(c.node(), c.result().sizes)
    return c.shaped(c.node(), [d for k, d in enumerate(dims) if k not in axes or d != 1])


def _unsqueeze(c: CallContext) -> Node:
    rank = len(c.dims_of(c.node()))
    return c.add_axes(c.node(), (axis_of(c.number(1), rank + 1),))


def transposition(c: CallContext) -> tuple[int, ...]:
    """The order of axes that a call gives, in whatever words."""
    rank = len(c.dims_of(c.node()))
    order = list(range(rank))
    match c.call.operator.split(".")[1]:
        case "permute":
            return tuple(axis_of(a, rank) for a in c.ints(1))
        case "t" | "numpy_T" | "adjoint" | "mT":
            swap = order[::-1] if rank == 2 or c.call.operator.startswith("aten.numpy_T") else [*order[:-2], *order[:-3:-1]]
            return tuple(swap if rank > 1 else order)
        case "movedim":
            source, target = ([axis_of(a, rank) for a in c.ints(k)] for k in (1, 2))
            rest = iter(k for k in order if k not in source)
            return tuple(source[target.index(k)] if k in target else next(rest) for k in order)
    if rank:
        a, b = (axis_of(c.number(k), rank) for k in (1, 2))
        order[a], order[b] = order[b], order[a]
    return tuple(order)


def _transposed(c: CallContext) -> Node:
    return c.transposed(c.node(), transposition(c))


# --- broadcasting ---------------------------------------------------------------------------------------------------


def _expand(c: CallContext) -> Node:
    dims = c.dims_of(c.node())
    wanted = list(c.sizes(1))
    for k, d in enumerate(wanted):
        if d == -1:
            wanted[k] = dims[k - len(wanted) + len(dims)]
    return c.filled(c.node(), tuple(wanted))


def _expand_as(c: CallContext) -> Node:
    return c.filled(c.node(), c.dims_of(c.node(1)))


def _broadcast_tensors(c: CallContext) -> list[Node]:
    nodes = c.nodes()
    return [c.filled(n, c.result(k).sizes) for k, n in enumerate(nodes)]


def _meshgrid(c: CallContext) -> list[Node]:
    lines = [c.shaped(n, (c.shape_of(n) or (1,))) for n in c.nodes()]
    swap = c.text("indexing", "ij") == "xy" and len(lines) > 1
    order = [1, 0, *range(2, len(lines))] if swap else list(range(len(lines)))
    sizes = tuple(c.shape_of(lines[k])[0] for k in order)
    return [c.along(line, sizes, (order.index(k),)) for k, line in enumerate(lines)]


def repeated(c: CallContext, x: Node, times: Sequence[int]) -> Node:
    """The whole tensor so often along each axis."""
    shape = c.shape_of(x)
    shape = (1,) * (len(times) - len(shape)) + shape
    x = c.shaped(x, shape)
    for a, n in enumerate(times):
        if n == 1:
            continue
        now = c.shape_of(x)
        wide = (*now[:a], n, *now[a:])
        x = c.shaped(c.along(x, wide, [k for k in range(len(wide)) if k != a]), (*now[:a], n * now[a], *now[a + 1 :]))
    return x


def _repeat(c: CallContext) -> Node:
    times = c.ints(1)
    rank = len(c.dims_of(c.node()))
    return repeated(c, c.node(), (1,) * max(0, rank - len(times)) + tuple(times))


def _repeat_interleave(c: CallContext) -> Node:
    x = c.node()
    if c.call.operator.endswith(".Tensor"):
        counts = c.known(x).reshape(-1)
        return c.constant(np.repeat(np.arange(len(counts)), counts), c.result_type())
    axis = c.axis("dim") if c.has("dim") else 0
    x = x if c.has("dim") else reshaped(c, x, (-1,))
    shape = c.shape_of(x)
    if isinstance(c.get("repeats"), Node):
        counts = np.broadcast_to(c.known(c.node("repeats")).reshape(-1), (shape[axis],))
        return taken(c, x, axis, np.repeat(np.arange(shape[axis]), counts))
    times = c.number("repeats")
    wide = (*shape[: axis + 1], times, *shape[axis + 1 :])
    spread = c.along(x, wide, [k for k in range(len(wide)) if k != axis + 1])
    return c.shaped(spread, (*shape[:axis], shape[axis] * times, *shape[axis + 1 :]))


# --- parts ----------------------------------------------------------------------------------------------------------


def bounds_of(size: int, start: int, end: int) -> tuple[int, int]:
    """Where a slice begins and ends, as Python reads its numbers."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


def _slice(c: CallContext) -> Node:
    x, axis, step = c.node(), c.axis("dim", 0), c.number("step", 1)
    dims = c.dims_of(x)
    start, end = c.get("start", 0), c.get("end", 1 << 62)
    whole = (step == 1 and isinstance(start, int) and start == 0 and not c.has("end")) or (
        isinstance(end, int) and end >= 1 << 62 and start == 0 and step == 1
    )
    if whole:
        return x
    size = c.static((dims[axis],))[0]
    first, last = bounds_of(size, c.whole(start), c.whole(end))
    others = [d if k != axis else last for k, d in enumerate(dims)]
    if not all(isinstance(d, int) for d in dims):
        return _slice_one(c, x, axis, first, last, step)
    return c.sliced(
        x,
        [first if k == axis else 0 for k in range(len(dims))],
        others,  # type: ignore[arg-type]
        [step if k == axis else 1 for k in range(len(dims))],
    )


def _slice_one(c: CallContext, x: Node, axis: int, first: int, last: int, step: int) -> Node:
    """Along an axis of known size, the sizes of others not being known."""
    return taken(c, x, axis, np.arange(first, last, step))


def _select(c: CallContext) -> Node:
    x, axis = c.node(), c.axis(1)
    dims = c.dims_of(x)
    rest = [d for k, d in enumerate(dims) if k != axis]
    if not isinstance(dims[axis], int) and c.number(2) >= 0:
        return c.shaped(taken(c, x, axis, np.array([c.number(2)])), rest)
    size = c.static((dims[axis],))[0]
    index = c.number(2)
    if not -size <= index < size:
        raise InferError(f"element {index} along an axis of {size}")
    index %= size
    part = part_of(c, x, axis, index, index + 1) if all(isinstance(d, int) for d in dims) else taken(c, x, axis, np.array([index]))
    return c.shaped(part, rest)


def _narrow(c: CallContext) -> Node:
    axis = c.axis(1)
    size = c.shape_of(c.node())[axis]
    start = c.number(2)
    start = start + size if start < 0 else start
    return part_of(c, c.node(), axis, start, start + c.number(3))


def parts_of(c: CallContext, x: Node, axis: int, sizes: Sequence[int]) -> list[Node]:
    """Neighbouring parts along an axis."""
    found, at = [], 0
    for n in sizes:
        found.append(part_of(c, x, axis, at, at + n))
        at += n
    return found


def _split(c: CallContext) -> list[Node]:
    x, axis = c.node(), c.axis("dim", 0)
    size = c.shape_of(x)[axis]
    if isinstance(c.get(1), tuple):
        sizes = list(c.ints(1))
    else:
        step = max(1, c.number(1))
        sizes = [min(step, size - k) for k in range(0, size, step)] or [0]
    return parts_of(c, x, axis, sizes)


def _chunk(c: CallContext) -> list[Node]:
    x, axis = c.node(), c.axis("dim", 0)
    size = c.shape_of(x)[axis]
    step = max(1, -(-size // c.number(1)))
    return parts_of(c, x, axis, [min(step, size - k) for k in range(0, size, step)] or [0])


def _tensor_split(c: CallContext) -> list[Node]:
    return _split_at(c, c.axis("dim", 0))


def _split_along(axis: int) -> Rule:
    """vsplit and its kin; of a vector, hsplit cuts the only axis."""
    return lambda c: _split_at(c, min(axis, len(c.dims_of(c.node())) - 1))


def _at_least(rank: int) -> Rule:
    """With so many axes: new ones before, and the third behind."""

    def build(c: CallContext) -> Any:
        def wide(x: Node) -> Node:
            dims = c.dims_of(x)
            if len(dims) < min(rank, 2):
                dims = (*(1,) * (min(rank, 2) - len(dims)), *dims)
            return c.shaped(x, (*dims, *(1,) * (rank - len(dims))))

        return [wide(x) for x in c.nodes()] if isinstance(c.get(0), tuple) else wide(c.node())

    return build


def _split_at(c: CallContext, axis: int) -> list[Node]:
    x = c.node()
    size = c.shape_of(x)[axis]
    if isinstance(c.get(1), tuple):
        places = [0, *(slice(0, p).indices(size)[1] for p in c.ints(1)), size]
        return [part_of(c, x, axis, a, max(a, b)) for a, b in pairwise(places)]
    count = c.number(1)
    return parts_of(c, x, axis, [size // count + (k < size % count) for k in range(count)])


def _unbind(c: CallContext) -> list[Node]:
    x, axis = c.node(), c.axis("dim", 0)
    shape = c.shape_of(x)
    rest = [d for k, d in enumerate(shape) if k != axis]
    return [c.shaped(part_of(c, x, axis, k, k + 1), rest) for k in range(shape[axis])]


def _cat(c: CallContext) -> Node:
    nodes = [c.to(n, c.result_type()) for n in c.nodes()]
    kept = [n for n in nodes if c.dims_of(n) != (0,)] or nodes[:1]
    axis = c.axis("dim", 0, kept[0])
    return c(ops.concatenate, *kept, dimension=axis) if len(kept) > 1 else kept[0]


def _stack(c: CallContext) -> Node:
    nodes = [c.to(n, c.result_type()) for n in c.nodes()]
    axis = axis_of(c.number("dim", 0), len(c.dims_of(nodes[0])) + 1)
    nodes = [c.add_axes(n, (axis,)) for n in nodes]
    return c(ops.concatenate, *nodes, dimension=axis) if len(nodes) > 1 else nodes[0]


def _stacked(axis_for: int) -> Rule:
    """hstack, vstack and dstack: tensors of at least so many axes, joined along one."""

    def build(c: CallContext) -> Node:
        nodes = [c.to(n, c.result_type()) for n in c.nodes()]
        if axis_for == 1:
            nodes = [n if c.dims_of(n) else c.shaped(n, (1,)) for n in nodes]
            axis = 0 if len(c.dims_of(nodes[0])) == 1 else 1
        else:
            nodes = [n if len(c.dims_of(n)) > 1 else c.shaped(n, (1, *(c.dims_of(n) or (1,)))) for n in nodes]
            axis = 0
        return c(ops.concatenate, *nodes, dimension=axis) if len(nodes) > 1 else nodes[0]

    return build


# --- other orders ---------------------------------------------------------------------------------------------------


def _flip(c: CallContext) -> Node:
    axes = c.axes(1)
    return c(ops.reverse, c.node(), dimensions=axes) if c.ints(1) else c.node()


def _roll(c: CallContext) -> Node:
    x, shifts = c.node(), c.ints("shifts")
    flat = not c.ints("dims", ())
    shape = c.shape_of(x)
    made = c.shaped(x, (math.prod(shape),)) if flat else x
    for shift, a in zip(shifts, (0,) if flat else (axis_of(d, len(shape)) for d in c.ints("dims")), strict=True):
        size = c.shape_of(made)[a]
        at = (size - shift) % size if size else 0
        if at:
            made = c(ops.concatenate, part_of(c, made, a, at, size), part_of(c, made, a, 0, at), dimension=a)
    return c.shaped(made, shape)


def _rot90(c: CallContext) -> Node:
    x, k = c.node(), c.number(1, 1) % 4
    a, b = (axis_of(d, len(c.dims_of(x))) for d in (c.ints(2) if c.has(2) else (0, 1)))
    order = list(range(len(c.dims_of(x))))
    order[a], order[b] = b, a
    if k == 2:
        return c(ops.reverse, x, dimensions=(a, b))
    if k == 1:
        return c(ops.reverse, c.transposed(x, order), dimensions=(a,))
    return c(ops.reverse, c.transposed(x, order), dimensions=(b,)) if k == 3 else x


def _tri(upper: bool) -> Rule:
    def build(c: CallContext) -> Node:
        x, dims = c.node(), c.dims_of(c.node())
        off = c(ops.subtract, c.indices(I64, dims, len(dims) - 1), c.indices(I64, dims, len(dims) - 2))
        hit = c(ops.compare, off, c.like(c.number("diagonal", 0), off), direction="GE" if upper else "LE")
        return c(ops.select, hit, x, c.full(0, as_tensor(x.type)))

    return build


def diagonal_places(shape: Sequence[int], a: int, b: int, offset: int) -> tuple[Any, Any]:
    """The indices along two axes of a diagonal."""
    count = max(0, min(shape[a], shape[b] - offset) if offset >= 0 else min(shape[a] + offset, shape[b]))
    line = np.arange(count)
    return line + max(0, -offset), line + max(0, offset)


def _diagonal(c: CallContext) -> Node:
    x, shape = c.node(), c.shape_of(c.node())
    rank = len(shape)
    a, b = (axis_of(c.number(n, d), rank) for n, d in (("dim1", 0), ("dim2", 1)))
    rows, columns = diagonal_places(shape, a, b, c.number("offset", 0))
    rest = [k for k in range(rank) if k not in (a, b)]
    front = c.shaped(c.transposed(x, [*rest, a, b]), (*(shape[k] for k in rest), shape[a] * shape[b]))
    return taken(c, front, len(rest), rows * shape[b] + columns)


def _diag_embed(c: CallContext) -> Node:
    x, shape = c.node(), c.shape_of(c.node())
    offset, rank = c.number("offset", 0), len(shape) + 1
    a, b = (axis_of(c.number(n, d), rank) for n, d in (("dim1", -2), ("dim2", -1)))
    size = shape[-1] + abs(offset)
    wide = (*shape[:-1], size, size)
    line = c.along(x, (*shape[:-1], size, shape[-1]), [*range(rank - 2), rank - 1])
    if offset:
        low = [0] * rank
        high = [0] * rank
        (low if offset > 0 else high)[-1] = abs(offset)
        line = c(
            ops.pad, line, c.like(0, line), edge_padding_low=tuple(low), edge_padding_high=tuple(high), interior_padding=(0,) * rank
        )
    off = c(ops.subtract, c.indices(I64, wide, rank - 1), c.indices(I64, wide, rank - 2))
    made = c(ops.select, c(ops.compare, off, c.like(offset, off), direction="EQ"), line, c.full(0, as_tensor(line.type)))
    order = [k for k in range(rank) if k not in (a, b)]
    back = [0] * rank
    for k, axis in enumerate([*order, a, b]):
        back[axis] = k
    return c.transposed(made, back)


def _diag(c: CallContext) -> Node:
    if len(c.dims_of(c.node())) == 1:
        return _diag_embed(c)
    x, shape = c.node(), c.shape_of(c.node())
    rows, columns = diagonal_places(shape, 0, 1, c.number("diagonal", 0))
    return taken(c, c.shaped(x, (math.prod(shape),)), 0, rows * shape[1] + columns)


def _as_strided(c: CallContext) -> Node:
    """Elements of the storage, which is that of an operand whose elements lie one after the other."""
    x, shape = c.node(), c.shape_of(c.node())
    sizes, strides, offset = c.ints(1), c.ints(2), c.number("storage_offset", 0)
    last, size = offset + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True)), math.prod(sizes)
    if min(strides, default=0) < 0 or offset < 0 or (size and last >= math.prod(shape)) or size > c.limit:
        raise Unsupported("elements outside of the operand")
    places: Any = np.full((), offset, np.int64)
    for n, s in zip(sizes, strides, strict=True):
        places = places[..., None] + np.arange(n) * s
    return c.shaped(taken(c, c.shaped(x, (math.prod(shape),)), 0, places.reshape(-1)), sizes)


def _unfold(c: CallContext) -> Node:
    x, axis = c.node(), c.axis(1)
    shape, size, step = c.shape_of(x), c.number(2), c.number(3)
    count = (shape[axis] - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)
    made = c.shaped(taken(c, x, axis, places.reshape(-1)), (*shape[:axis], count, size, *shape[axis + 1 :]))
    order = [k for k in range(len(shape) + 1) if k != axis + 1]
    return c.transposed(made, [*order, axis + 1])


# --- parts replaced -------------------------------------------------------------------------------------------------


def placed(c: CallContext, base: Node, new: Node, axis: int, start: int, end: int, step: int) -> Node:
    """The base with a slice along an axis replaced."""
    shape = c.shape_of(base)
    first, last = bounds_of(shape[axis], start, end)
    count = len(range(first, last, step))
    new = c.filled(c.to(new, c.dtype_of(base)), tuple(count if k == axis else d for k, d in enumerate(shape)))
    if step == 1:
        return c(ops.dynamic_update_slice, base, new, *(c.scalar(first if k == axis else 0, I64) for k in range(len(shape))))
    places = np.full(shape[axis], count)
    places[first:last:step] = np.arange(count)
    joined = c(ops.concatenate, new, base, dimension=axis)
    rest = np.where(places < count, places, count + np.arange(shape[axis]))
    return taken(c, joined, axis, rest)


def _slice_scatter(c: CallContext) -> Node:
    axis = c.axis("dim", 0)
    size = c.shape_of(c.node())[axis]
    return placed(c, c.node(), c.node(1), axis, c.number("start", 0), c.number("end", size), c.number("step", 1))


def _select_scatter(c: CallContext) -> Node:
    axis = c.axis("dim")
    index = c.number("index") % max(1, c.shape_of(c.node())[axis])
    return placed(c, c.node(), c.add_axes(c.node(1), (axis,)), axis, index, index + 1, 1)


def _diagonal_scatter(c: CallContext) -> Node:
    x, shape = c.node(), c.shape_of(c.node())
    a, b = (axis_of(c.number(n, d), len(shape)) for n, d in (("dim1", 0), ("dim2", 1)))
    rows, columns = diagonal_places(shape, a, b, c.number("offset", 0))
    rest = [k for k in range(len(shape)) if k not in (a, b)]
    sizes = tuple(shape[k] for k in rest)
    front = c.shaped(c.transposed(x, [*rest, a, b]), (*sizes, shape[a] * shape[b]))
    joined = c(ops.concatenate, c.to(c.node(1), c.dtype_of(x)), front, dimension=len(rest))
    places = len(rows) + np.arange(shape[a] * shape[b])
    places[rows * shape[b] + columns] = np.arange(len(rows))
    made = c.shaped(taken(c, joined, len(rest), places), (*sizes, shape[a], shape[b]))
    back = [0] * len(shape)
    for k, axis in enumerate([*rest, a, b]):
        back[axis] = k
    return c.transposed(made, back)


def _copy_in_place(c: CallContext) -> Node:
    return c.filled(c.to(c.node(1), c.dtype_of(c.node())), c.dims_of(c.node()))


# --- padding --------------------------------------------------------------------------------------------------------


def padding_of(c: CallContext, key: int | str, rank: int) -> tuple[list[int], list[int]]:
    """What is added before and after each axis; the list begins with the last axis."""
    given = c.ints(key)
    if len(given) % 2 or len(given) > 2 * rank:
        raise InferError(f"padding {list(given)} of {rank} axes", expected="two numbers for each of the last axes")
    low, high = [0] * rank, [0] * rank
    for k in range(len(given) // 2):
        low[rank - 1 - k], high[rank - 1 - k] = given[2 * k], given[2 * k + 1]
    return low, high


def constant_padded(c: CallContext, x: Node, low: Sequence[int], high: Sequence[int], value: Node) -> Node:
    return c(ops.pad, x, value, edge_padding_low=tuple(low), edge_padding_high=tuple(high), interior_padding=(0,) * len(low))


def _constant_pad(c: CallContext) -> Node:
    x = c.node()
    low, high = padding_of(c, 1, len(c.dims_of(x)))
    return constant_padded(c, x, low, high, c.as_node(c.get("value", 0), c.dtype_of(x)))


def _mirrored(size: int, low: int, high: int) -> Any:
    places = np.abs(np.arange(-low, size + high))
    return np.where(places >= size, 2 * (size - 1) - places, places)


def _index_pad(mode: str) -> Rule:
    """Elements of the operand beyond its borders: mirrored at them, the last ones again, or from the other end."""

    def build(c: CallContext) -> Node:
        x, shape = c.node(), c.shape_of(c.node())
        low, high = padding_of(c, 1, len(shape))
        return index_padded(c, x, low, high, mode)

    return build


def index_padded(c: CallContext, x: Node, low: Sequence[int], high: Sequence[int], mode: str) -> Node:
    for a, size in enumerate(c.shape_of(x)):
        if not low[a] and not high[a]:
            continue
        if mode == "reflect" and max(low[a], high[a]) >= size:
            raise InferError(f"padding {low[a]}, {high[a]} of an axis of {size}", expected="less than the axis")
        line = np.arange(-low[a], size + high[a])
        places = (
            _mirrored(size, low[a], high[a])
            if mode == "reflect"
            else np.clip(line, 0, size - 1)
            if mode == "replicate"
            else (line % size)
        )
        x = taken(c, x, a, places)
    return x


def _pad(c: CallContext) -> Node:
    mode = c.one_of("mode", "constant", "constant", "reflect", "replicate", "circular")
    return _constant_pad(c) if mode == "constant" else _index_pad(mode)(c)


VIEWS: Rules = {
    **dict.fromkeys(("alias", "detach", "clone", "contiguous", "lift_fresh_copy", "lift_fresh", "alias_copy", "detach_copy",
                     "positive", "resolve_conj", "resolve_neg", "_conj_physical.real"), _same),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "view_copy", "_reshape_alias", "reshape_copy", "view.default"), _reshape),
    **dict.fromkeys(("flatten", "ravel"), _flatten), "unflatten": _unflatten,
    **dict.fromkeys(("view_as", "reshape_as"), _view_as),
    **dict.fromkeys(("squeeze", "squeeze_copy"), _squeeze), **dict.fromkeys(("unsqueeze", "unsqueeze_copy"), _unsqueeze),
    **dict.fromkeys(("permute", "transpose", "t", "numpy_T", "swapaxes", "swapdims", "movedim", "permute_copy", "transpose_copy",
                     "t_copy", "mT", "adjoint"), _transposed),
    **dict.fromkeys(("expand", "broadcast_to", "expand_copy"), _expand), "expand_as": _expand_as,
    "broadcast_tensors": _broadcast_tensors, "meshgrid": _meshgrid, **dict.fromkeys(("repeat", "tile"), _repeat),
    "repeat_interleave": _repeat_interleave, **dict.fromkeys(("slice", "slice_copy"), _slice),
    **dict.fromkeys(("select", "select_copy"), _select), **dict.fromkeys(("narrow", "narrow_copy"), _narrow),
    **dict.fromkeys(("split", "split_with_sizes", "split_copy", "split_with_sizes_copy", "unsafe_split"), _split),
    **dict.fromkeys(("chunk", "unsafe_chunk"), _chunk), "tensor_split": _tensor_split, "hsplit": _split_along(1),
    "vsplit": _split_along(0), "dsplit": _split_along(2), "atleast_1d": _at_least(1), "atleast_2d": _at_least(2),
    "atleast_3d": _at_least(3),
    **dict.fromkeys(("unbind", "unbind_copy"), _unbind), **dict.fromkeys(("cat", "concat", "concatenate"), _cat), "stack": _stack,
    "hstack": _stacked(1), "vstack": _stacked(0), "flip": _flip, "roll": _roll, "rot90": _rot90, "tril": _tri(False),
    "triu": _tri(True), **dict.fromkeys(("diagonal", "diagonal_copy", "linalg_diagonal"), _diagonal), "diag_embed": _diag_embed,
    "diag": _diag, **dict.fromkeys(("as_strided", "as_strided_copy"), _as_strided),
    **dict.fromkeys(("unfold", "unfold_copy"), _unfold),
    "slice_scatter": _slice_scatter, "select_scatter": _select_scatter, "diagonal_scatter": _diagonal_scatter,
    **dict.fromkeys(("copy_", "copy"), _copy_in_place), "constant_pad_nd": _constant_pad, "pad": _pad,
    **{f"reflection_pad{n}d": _index_pad("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": _index_pad("replicate") for n in (1, 2, 3)}, "_pad_circular": _index_pad("circular"),
}  # fmt: skip
