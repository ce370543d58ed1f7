"""Operators that move elements and compute nothing: views, and their kin that copy. All are values here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import ops
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
        case "t" | "numpy_T" | "adjoint" | "mT" | "mH" | "matrix_H":
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


def _adjoint(c: CallContext) -> Node:
    """Transposed, and of complex numbers the conjugate."""
    made = _transposed(c)
    return c(ops.conj, made) if c.dtype_of(made).kind == "complex" else made


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


VIEWS: Rules = {
    **dict.fromkeys(("alias", "detach", "clone", "contiguous", "lift_fresh_copy", "lift_fresh", "alias_copy", "detach_copy",
                     "positive", "resolve_conj", "resolve_neg", "_conj_physical.real"), _same),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "view_copy", "_reshape_alias", "reshape_copy", "view.default"), _reshape),
    **dict.fromkeys(("flatten", "ravel"), _flatten), "unflatten": _unflatten,
    **dict.fromkeys(("view_as", "reshape_as"), _view_as),
    **dict.fromkeys(("squeeze", "squeeze_copy"), _squeeze), **dict.fromkeys(("unsqueeze", "unsqueeze_copy"), _unsqueeze),
    **dict.fromkeys(("permute", "transpose", "t", "numpy_T", "swapaxes", "swapdims", "movedim", "permute_copy", "transpose_copy",
                     "t_copy", "mT"), _transposed),
    **dict.fromkeys(("adjoint", "mH", "matrix_H"), _adjoint),
    **dict.fromkeys(("expand", "broadcast_to", "expand_copy"), _expand), "expand_as": _expand_as,
    "broadcast_tensors": _broadcast_tensors, "meshgrid": _meshgrid, **dict.fromkeys(("repeat", "tile"), _repeat),
    "repeat_interleave": _repeat_interleave, "flip": _flip, "roll": _roll, "rot90": _rot90, "tril": _tri(False),
    "triu": _tri(True), **dict.fromkeys(("diagonal", "diagonal_copy", "linalg_diagonal"), _diagonal), "diag_embed": _diag_embed,
    "diag": _diag, "diagonal_scatter": _diagonal_scatter, **dict.fromkeys(("as_strided", "as_strided_copy"), _as_strided),
    **dict.fromkeys(("unfold", "unfold_copy"), _unfold), **dict.fromkeys(("copy_", "copy"), _copy_in_place),
}  # fmt: skip
