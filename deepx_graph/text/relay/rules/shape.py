"""Operators of Relay that make or move elements: shapes, slices, padding, broadcasts, constants. All shapes are worked out here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError, an
from deepx_graph.ir import Node
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.text.common.steps import Unsupported, axis_of, ranked
from deepx_graph.text.relay.rules.context import Context, Operator
from deepx_graph.types import I32, Dim, Dims, as_tensor, mul_dims, tensor

# --- the same elements in another shape ---------------------------------------------------------------------------


def new_shape(old: Dims, codes: Sequence[int]) -> Dims:
    """Relay's codes: 0 keeps an axis, -1 is what is left, -2 all axes left, -3 joins two, -4 splits one in the two that follow."""
    shape: list[Dim] = []
    rest: int | None = None
    at, k = 0, 0
    while k < len(codes):
        code = codes[k]
        if code in (0, -3, -4) and at >= len(old):
            raise InferError(f"newshape {list(codes)} asks for more axes than {list(old)} has")
        match code:
            case 0:
                shape.append(old[at])
                at += 1
            case -1:
                rest = len(shape)
                shape.append(1)
                at += 1
            case -2:
                shape += old[at:]
                at = len(old)
            case -3:
                shape.append(mul_dims(old[at : at + 2]))
                at += 2
            case -4:
                shape += _split_axis(old[at], codes[k + 1 : k + 3])
                at, k = at + 1, k + 2
            case _ if code > 0:
                shape.append(code)
                at += 1
            case _:
                raise InferError(f"{code} in newshape", expected="a size, or one of 0, -1, -2, -3, -4")
        k += 1
    if rest is not None:
        shape[rest] = _quotient(mul_dims(old), mul_dims(shape), codes)
    return tuple(shape)


def _split_axis(size: Dim, parts: Sequence[int]) -> tuple[Dim, Dim]:
    if len(parts) != 2 or parts.count(-1) > 1 or min(parts) < -1 or 0 in parts:
        raise InferError("-4 in newshape", expected="two sizes behind it, one of which may be -1")
    first, second = parts
    if first == -1:
        return _quotient(size, second, parts), second
    return first, (_quotient(size, first, parts) if second == -1 else second)


def _quotient(whole: Dim, part: Dim, codes: Sequence[int]) -> Dim:
    if isinstance(whole, str) or isinstance(part, str):
        if part == 1:
            return whole
        raise Unsupported(f"the size that -1 stands for in {list(codes)} is not known")
    if part == 0 or whole % part:
        raise InferError(f"{whole} elements do not fill the shape {list(codes)}")
    return whole // part


def _reshape(c: Context) -> Node:
    codes = c.ints("newshape") if len(c.args) == 1 else tuple(int(v) for v in np.ravel(c.static(1)))
    old = c.known().dims or ()
    if c.flag("allowzero"):
        return c.shaped(c.args[0], codes)
    return c.shaped(c.args[0], new_shape(old, codes))


def _transpose(c: Context) -> Node:
    rank = c.known().rank or 0
    axes = c.attr("axes")
    order = tuple(range(rank))[::-1] if axes is None else tuple(axis_of(a, rank) for a in c.ints("axes"))
    return c(ops.transpose, c.args[0], permutation=order)


def _expand_dims(c: Context) -> Node:
    dims = c.known().dims or ()
    at, count = c.axis(len(dims) + 1), c.count("num_newaxis", 1)
    return c.shaped(c.args[0], (*dims[:at], *(1,) * count, *dims[at:]))


def _squeeze(c: Context) -> Node:
    dims = c.known().dims or ()
    gone = [k for k, d in enumerate(dims) if d == 1]
    if c.attr("axis") is not None:
        gone = [axis_of(a, len(dims)) for a in c.ints("axis")]
    for k in gone:
        if isinstance(dims[k], int) and dims[k] != 1:
            raise InferError(f"axis {k} of {c.type()} has not size 1", operand=0)
    return c.shaped(c.args[0], [d for k, d in enumerate(dims) if k not in gone])


def _batch_flatten(c: Context) -> Node:
    dims = c.known().dims
    if not dims:
        raise InferError(f"operand 0 is {an(c.type())}", operand=0, expected="a tensor of rank 1 or more")
    return c.shaped(c.args[0], (dims[0], mul_dims(dims[1:])))


def _layout_transform(c: Context) -> Node:
    old, new = c.text("src_layout"), c.text("dst_layout")
    if not (old + new).isalpha() or sorted(old) != sorted(new) or len(old) != c.known().rank:
        raise Unsupported(f"layouts {old} and {new}")
    return c(ops.transpose, c.args[0], permutation=tuple(old.index(letter) for letter in new))


# --- parts and wholes ---------------------------------------------------------------------------------------------


def _concatenate(c: Context) -> Node:
    items = c.items()
    return c(ops.concatenate, *items, dimension=c.axis(ranked(items[0]).rank or 0, default=0))


def _stack(c: Context) -> Node:
    items = c.items()
    dims = ranked(items[0]).dims or ()
    at = c.axis(len(dims) + 1, default=0)
    rows = [c(ops.reshape, i, shape=(*dims[:at], 1, *dims[at:])) for i in items]
    return c(ops.concatenate, *rows, dimension=at)


def _split(c: Context) -> Node:
    shape = c.known().shape
    at = c.axis(len(shape), default=0)
    how = c.attr("indices_or_sections")
    if isinstance(how, int):
        how = c.count("indices_or_sections")
        if how < 1 or shape[at] % how:
            raise InferError(f"axis {at} of {c.type()} does not split into {how} equal parts", operand=0)
        cuts = [k * (shape[at] // how) for k in range(1, how)]
    else:
        cuts = list(c.ints("indices_or_sections"))
    ends = [0, *cuts, shape[at]]
    parts = []
    for low, high in pairwise(ends):
        start, limit = [0] * len(shape), list(shape)
        start[at], limit[at] = min(low, shape[at]), min(max(low, high), shape[at])
        parts.append(c.sliced(c.args[0], start, limit))
    return c.b.pack(*parts)


def _strided_slice(c: Context) -> Node:
    dims = c.known().dims or ()
    begin, end = c.ints("begin"), c.ints("end")
    axes = tuple(range(len(begin))) if c.attr("axes") is None else c.ints("axes")
    steps = c.ints("strides", (1,))
    steps = steps * len(begin) if len(steps) == 1 else steps
    if not len(begin) == len(end) <= len(steps) or len(axes) != len(begin) or len(axes) > len(dims):
        raise InferError("begin, end, strides and axes do not go together")
    sizes = c.text("slice_mode", "end") == "size"
    start, limit, strides = [0] * len(dims), list(dims), [1] * len(dims)
    backwards = []
    for a, low, high, step in zip(axes, begin, end, steps, strict=False):
        k = axis_of(a, len(dims))
        size = dims[k]
        if isinstance(size, str):
            if low == 0 and step == 1 and (high >= (1 << 31) - 1 or (sizes and high == -1)):
                continue
            raise Unsupported("a slice of an axis whose size is not known")
        step = 1 if sizes else step
        if step == 0:
            raise InferError("a stride of 0")
        upto = (size if high < 0 else low + high) if sizes else high
        places = range(*slice(low, upto, step).indices(size))
        if step < 0:
            backwards.append(k)
            places = places[::-1]
        start[k], limit[k], strides[k] = (places[0], places[-1] + 1, abs(step)) if places else (0, 0, 1)
    if any(isinstance(d, str) for d in limit):
        raise Unsupported("a slice beside an axis whose size is not known")
    cut = c.sliced(c.args[0], start, [int(d) for d in limit], strides)
    for axis in sorted(backwards):
        cut = c(ops.reverse, cut, dimensions=(axis,))
    return cut


def _slice_like(c: Context) -> Node:
    shape, other = c.known().shape, c.known(1).shape
    axes = [axis_of(a, len(shape)) for a in c.ints("axes")] if c.attr("axes") else range(len(shape))
    limit = [other[k] if k in axes else d for k, d in enumerate(shape)]
    return c.sliced(c.args[0], (0,) * len(shape), limit)


def _tile(c: Context) -> Node:
    dims = c.known().shape
    reps = c.ints("reps")
    rank = max(len(dims), len(reps))
    reps = (1,) * (rank - len(reps)) + reps
    dims = (1,) * (rank - len(dims)) + dims
    wide = [d for pair in zip(reps, dims, strict=True) for d in pair]
    spread = c.along(c.shaped(c.args[0], dims), tuple(wide), range(1, 2 * rank, 2))
    return c.shaped(spread, [r * d for r, d in zip(reps, dims, strict=True)])


def _repeat(c: Context) -> Node:
    dims = c.known().shape
    x, times = c.args[0], c.number("repeats")
    if c.attr("axis") is None:
        x, dims = c.shaped(x, (math.prod(dims),)), (math.prod(dims),)
    at = c.axis(len(dims), default=0)
    wide = (*dims[: at + 1], times, *dims[at + 1 :])
    spread = c.along(x, wide, [k for k in range(len(wide)) if k != at + 1])
    return c.shaped(spread, (*dims[:at], dims[at] * times, *dims[at + 1 :]))


def _reverse(c: Context) -> Node:
    rank = c.known().rank or 0
    return c(ops.reverse, c.args[0], dimensions=tuple(axis_of(a, rank) for a in c.ints("axis")))


def _pad(c: Context) -> Node:
    rank = c.known().rank or 0
    if c.text("pad_mode", "constant") != "constant":
        raise Unsupported("padding with anything but a constant")
    widths = c.attr("pad_width", ())
    if len(widths) != rank or not all(isinstance(w, tuple) and len(w) == 2 for w in widths):
        raise InferError(f"pad_width has {len(widths)} pairs", expected=f"{rank}")
    value = c.args[1] if len(c.args) > 1 else c.like(c.real("pad_value", 0), c.args[0])
    if as_tensor(value.type).dims != ():
        value = c.shaped(value, ())
    value = c.cast(value, c.type().dtype)
    low, high = (tuple(int(w[k]) for w in widths) for k in (0, 1))
    return c(ops.pad, c.args[0], value, edge_padding_low=low, edge_padding_high=high, interior_padding=(0,) * rank)


# --- broadcasts ---------------------------------------------------------------------------------------------------


def collapse(c: Context, x: Node, dims: Dims) -> Node:
    """The sum over the axes along which `dims` was broadcast to the shape of `x`."""
    old = ranked(x).dims or ()
    if old == dims:
        return x
    extra = len(old) - len(dims)
    axes = [k for k in range(len(old)) if k < extra or (dims[k - extra] == 1 and old[k] != 1)]
    return c.shaped(ops.reduction(c.b, ops.add, x, axes) if axes else x, dims)


# --- made from nothing --------------------------------------------------------------------------------------------


def _filled(value: int) -> Operator:
    def build(c: Context) -> Node:
        return c.full(value, tensor(c.dtype(), c.sizes("shape", 0)))

    return Operator(build, 0)


def _full(c: Context) -> Node:
    shape = c.sizes("shape", 1)
    value = c.cast(c.args[0], c.dtype(default=c.type().dtype))
    if value is c.args[0] and value.op is CONSTANT and as_tensor(value.type).dims == ():
        return c.full(value_of(value).splat_value, tensor(c.type().dtype, shape))
    return c.along(value, shape, ())


def _arange(c: Context) -> Node:
    start, stop, step = (c.static(k).reshape(()).item() for k in range(3))
    dtype = c.dtype(default=I32)
    if step == 0:
        raise InferError("arange with a step of 0")
    size = max(0, math.ceil((stop - start) / step))
    if size > c.limit:
        raise InferError(f"arange of {size} elements")
    if start == 0 and step == 1:
        return c(ops.iota, dtype=dtype, shape=(size,), iota_dimension=0)
    return c.b.constant(start + step * np.arange(size), dtype)


def _meshgrid(c: Context) -> Node:
    items = [c.shaped(i, (mul_dims(ranked(i).dims or ()),)) for i in c.items()]
    dims = tuple((ranked(i).dims or (1,))[0] for i in items)
    order = [1, 0, *range(2, len(items))] if c.text("indexing", "ij") == "xy" and len(items) > 1 else list(range(len(items)))
    shape = tuple(dims[k] for k in order)
    return c.b.pack(*(c.along(i, shape, (order.index(k),)) for k, i in enumerate(items)))


SHAPE: dict[str, Operator] = {
    "reshape": Operator(_reshape), "dyn.reshape": Operator(_reshape, 2),
    "reshape_like": Operator(lambda c: c.shaped(c.args[0], c.known(1).dims or ()), 2),
    "transpose": Operator(_transpose), "expand_dims": Operator(_expand_dims), "squeeze": Operator(_squeeze),
    "nn.batch_flatten": Operator(_batch_flatten), "layout_transform": Operator(_layout_transform),
    "concatenate": Operator(_concatenate, takes_tuple=True), "stack": Operator(_stack, takes_tuple=True), "split": Operator(_split),
    "strided_slice": Operator(_strided_slice), "slice_like": Operator(_slice_like, 2), "tile": Operator(_tile),
    "repeat": Operator(_repeat), "reverse": Operator(_reverse), "flip": Operator(_reverse), "nn.pad": Operator(_pad),
    "zeros": _filled(0), "ones": _filled(1), "full": Operator(_full), "arange": Operator(_arange, 3),
    "broadcast_to": Operator(lambda c: c.broadcast_to(c.args[0], c.sizes("shape", 1))),
    "broadcast_to_like": Operator(lambda c: c.broadcast_to(c.args[0], c.known(1).dims or ()), 2),
    "collapse_sum_to": Operator(lambda c: collapse(c, c.args[0], c.sizes("shape", 1))),
    "collapse_sum_like": Operator(lambda c: collapse(c, c.args[0], c.known(1).dims or ()), 2),
    "full_like": Operator(lambda c: c.along(c.cast(c.args[1], c.type().dtype), c.known().dims or (), ()), 2),
    "ndarray_size": Operator(lambda c: c.b.constant(c.known().size, c.dtype(default=I32))),
    "shape_of": Operator(lambda c: c.b.constant(np.asarray(c.known().shape, np.int64), c.dtype(default=I32))),
    "meshgrid": Operator(_meshgrid, takes_tuple=True),
}  # fmt: skip
