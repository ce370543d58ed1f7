"""Convolutions and poolings, with batches or without."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import extreme_index, mean, taken, total
from deepx_graph.text.common.images import col2im
from deepx_graph.text.common.nn import SPATIAL, back, convolved, elements_inside, max_and_place, pooled, spread_over
from deepx_graph.text.torch.context import CallContext, Rule, Rules
from deepx_graph.types import I64

Sizes = tuple[int, ...]


def spread_to(values: Sequence[int], n: int, what: str) -> Sizes:
    """A number for each spatial axis; one alone counts for all."""
    values = tuple(values) * n if len(values) == 1 else tuple(values)
    if len(values) != n:
        raise InferError(f"{what} {list(values)}", expected=f"1 or {n} numbers")
    return values


def over_batch(c: CallContext, x: Node, rank: int, build: Callable[[Node], Any]) -> Any:
    """What is built of a batch; an operand without one is a batch of one."""
    if len(c.dims_of(x)) == rank:
        return build(x)
    made = build(c.add_axes(x, (0,)))
    parts = made if isinstance(made, list) else [made]
    parts = [c.shaped(p, c.dims_of(p)[1:]) for p in parts]
    return parts if isinstance(made, list) else parts[0]


# --- convolution ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Convolution:
    """A convolution of either kind without what it is applied to, of batch, channels, space; a number for each axis of space."""

    c: CallContext
    w: Node
    bias: Node | None
    n: int
    stride: Sizes
    dilation: Sizes
    groups: int

    def forward(self, x: Node, low: Sizes, high: Sizes) -> Node:
        """Of a kernel with outputs, inputs, space."""
        return self._made(x, self.w, window_strides=self.stride, padding_low=low, padding_high=high)

    def transposed(self, x: Node, padding: Sizes, extra: Sizes) -> Node:
        """Of a kernel with inputs, outputs, space: the inputs are dilated, and the kernel is turned."""
        c, n, groups, kernel = self.c, self.n, self.groups, self.c.shape_of(self.w)
        inner = kernel[0] // groups
        split = c.shaped(self.w, (groups, inner, *kernel[1:]))
        w = c.shaped(c.transposed(split, (0, 2, 1, *range(3, n + 3))), (groups * kernel[1], inner, *kernel[2:]))
        reach = [(k - 1) * d for k, d in zip(kernel[2:], self.dilation, strict=True)]
        low = tuple(r - p for r, p in zip(reach, padding, strict=True))
        high = tuple(r - p + e for r, p, e in zip(reach, padding, extra, strict=True))
        return self._made(x, w, window_reversal=(1,) * n, lhs_dilation=self.stride, padding_low=low, padding_high=high)

    def _made(self, x: Node, w: Node, **windows: Sizes) -> Node:
        c, space = self.c, SPATIAL[self.n]
        layouts = (f"NC{space}", f"OI{space}", f"NC{space}")
        made = convolved(c, x, w, layouts, space, c.dtype_of(x), rhs_dilation=self.dilation,
                         feature_group_count=self.groups, **windows)
        return made if self.bias is None else c(ops.add, made, c.along(self.bias, c.dims_of(made), (1,)))


def _general(c: CallContext) -> Node:
    """aten.convolution: all parameters."""
    return convolution_of(c, c.node(0), c.node(1), c.optional(2))


def convolution_of(c: CallContext, x: Node, w: Node, bias: Node | None, n: int | None = None, transposed: bool = False) -> Node:
    """By the arguments of the call."""
    n = len(c.dims_of(w)) - 2 if n is None else n
    stride, dilation = (spread_to(c.ints(name, (1,)), n, name) for name in ("stride", "dilation"))
    made = Convolution(c, w, bias, n, stride, dilation, c.number("groups", 1))

    def build(x: Node) -> Node:
        if transposed or c.flag("transposed"):
            padding, extra = (spread_to(c.ints(name, (0,)), n, name) for name in ("padding", "output_padding"))
            return made.transposed(x, padding, extra)
        return made.forward(x, *_padding(c, n, c.shape_of(w)[2:], dilation))

    return over_batch(c, x, n + 2, build)  # type: ignore[no-any-return]


def _padding(c: CallContext, n: int, kernel: Sizes, dilation: Sizes) -> tuple[Sizes, Sizes]:
    """Numbers, or the words `valid` and `same`."""
    given = c.get("padding", (0,))
    if not isinstance(given, str):
        both = spread_to(c.ints("padding", (0,)), n, "padding")
        return both, both
    if given == "valid":
        return (0,) * n, (0,) * n
    whole = [(k - 1) * d for k, d in zip(kernel, dilation, strict=True)]
    return tuple(t // 2 for t in whole), tuple(t - t // 2 for t in whole)


def _conv(n: int, transposed: bool = False) -> Rule:
    return lambda c: convolution_of(c, c.node(0), c.node(1), c.optional("bias"), n, transposed)


# --- pooling --------------------------------------------------------------------------------------------------------


def windows_of(c: CallContext, x: Node, n: int) -> tuple[dict[str, Sizes], Sizes]:
    """The windows over all axes, and how far they go beyond the padding where sizes are rounded up."""
    kernel = spread_to(c.ints("kernel_size"), n, "kernel_size")
    stride = spread_to(c.ints("stride", ()) or kernel, n, "stride")
    padding, dilation = (spread_to(c.ints(name, (d,)), n, name) for name, d in (("padding", 0), ("dilation", 1)))
    over = [0] * n
    if c.flag("ceil_mode"):
        for k, size in enumerate(c.shape_of(x)[2:]):
            span = size + 2 * padding[k] - ((kernel[k] - 1) * dilation[k] + 1)
            count = -(-span // stride[k]) + 1
            if (count - 1) * stride[k] >= size + padding[k]:
                count -= 1
            over[k] = max(0, (count - 1) * stride[k] - span)
    high = tuple(p + o for p, o in zip(padding, over, strict=True))
    return spread_over(f"NC{SPATIAL[n]}", SPATIAL[n], kernel, stride, dilation, padding, high), tuple(over)


def _max_pool(n: int, both: bool) -> Rule:
    def build(c: CallContext) -> Any:
        return over_batch(c, c.node(), n + 2, lambda x: _greatest(c, x, n, both))

    return build


def _greatest(c: CallContext, x: Node, n: int, both: bool) -> Any:
    windows, _ = windows_of(c, x, n)
    if not both:
        return pooled(c, ops.maximum, x, windows)
    shape = c.shape_of(x)
    line = c.shaped(c.indices(I64, (math.prod(shape[2:]),), 0), shape[2:])
    return max_and_place(c, x, c.along(line, shape, range(2, n + 2)), windows)


def _average_pool(n: int) -> Rule:
    def build(c: CallContext) -> Node:
        return over_batch(c, c.node(), n + 2, lambda x: _average(c, x, n))  # type: ignore[no-any-return]

    return build


def _average(c: CallContext, x: Node, n: int) -> Node:
    windows, over = windows_of(c, x, n)
    summed = pooled(c, ops.add, x, windows)
    counted, divisor = c.flag("count_include_pad", True), c.get("divisor_override")
    if divisor is not None:
        return c(ops.divide, summed, c.like(c.number("divisor_override"), summed))
    padded = any(windows["padding_low"]) or any(windows["padding_high"])
    if not any(over) and (counted or not padded):
        return c(ops.divide, summed, c.like(math.prod(windows["window_dimensions"]), summed))
    shape = list(c.shape_of(x))
    if counted:  # declared padding counts, what lies beyond it does not
        given = windows["padding_low"]
        shape = [d + 2 * p for d, p in zip(shape, given, strict=True)]
        windows = {**windows, "padding_low": (0,) * len(shape)}
    sizes = c.shape_of(summed)
    inside = elements_inside(shape, sizes, windows)
    counts, axes = np.ones((), np.int64), [k for k, row in enumerate(inside) if row is not None]
    for k in axes:
        counts = np.multiply.outer(counts, inside[k])
    per = c.constant(np.maximum(counts, 1), c.dtype_of(x))
    return c(ops.divide, summed, c.along(per, sizes, axes) if axes else per)


def adaptive_windows(size: int, made: int) -> list[tuple[int, int]]:
    """Where each window of an adaptive pooling begins and ends along an axis."""
    return [(k * size // made, -(-(k + 1) * size // made)) for k in range(made)]


def _adaptive(n: int, greatest: bool) -> Rule:
    def build(c: CallContext) -> Any:
        return over_batch(c, c.node(), n + 2, lambda x: _adapted(c, x, n, greatest))

    return build


def _adapted(c: CallContext, x: Node, n: int, greatest: bool) -> Any:
    dims = c.dims_of(x)
    given = c.get("output_size")
    given = given if isinstance(given, tuple) else (given,)
    given = given * n if len(given) == 1 else given
    wanted = [dims[2 + k] if v is None else c.size(v) for k, v in enumerate(given)]
    if greatest:
        return _adapted_greatest(c, x, n, [int(w) for w in c.static(tuple(wanted))])
    if all(w == 1 for w in wanted):
        axes = tuple(range(2, n + 2))
        return c.shaped(mean(c, x, axes), (*dims[:2], *(1,) * n))
    for k in range(n):
        x = _adapted_axis(c, x, 2 + k, c.static((wanted[k],))[0])
    return x


def _adapted_axis(c: CallContext, x: Node, axis: int, made: int) -> Node:
    """The means of the windows along one axis: a product with a matrix of weights."""
    size = c.static((c.dims_of(x)[axis],))[0]
    if size == made:
        return x
    matrix = np.zeros((made, size))
    for k, (a, b) in enumerate(adaptive_windows(size, made)):
        matrix[k, a:b] = 1 / (b - a)
    rank = len(c.dims_of(x))
    found = c(
        ops.dot_general, x, c.constant(matrix, c.dtype_of(x)), lhs_contracting_dimensions=(axis,), rhs_contracting_dimensions=(1,)
    )
    return c.transposed(found, [*range(axis), rank - 1, *range(axis, rank - 1)])


def _adapted_greatest(c: CallContext, x: Node, n: int, wanted: list[int]) -> list[Node]:
    """The greatest of each window and where it is: windows are made equally long by reading their last element again."""
    shape = c.shape_of(x)
    for k in range(n):
        rows = adaptive_windows(shape[2 + k], wanted[k])
        longest = max(b - a for a, b in rows)
        places = np.array([[min(a + j, b - 1) for j in range(longest)] for a, b in rows])
        x = taken(c, x, 2 + 2 * k, places.reshape(-1))
        dims = c.shape_of(x)
        x = c.shaped(x, (*dims[: 2 + 2 * k], wanted[k], longest, *dims[3 + 2 * k :]))
    order = [0, 1, *(2 + 2 * k for k in range(n)), *(3 + 2 * k for k in range(n))]
    lined = c.transposed(x, order)
    dims = c.shape_of(lined)
    lined = c.shaped(lined, (*dims[: 2 + n], math.prod(dims[2 + n :])))
    axis = 2 + n
    most, first = total(c, ops.maximum, lined, (axis,)), extreme_index(c, lined, axis, "GT")
    table: Any = np.zeros((*wanted, *dims[2 + n :]), np.int64)
    for k in range(n):
        rows = adaptive_windows(shape[2 + k], wanted[k])
        longest = dims[2 + n + k]
        line = np.array([[min(a + j, b - 1) for j in range(longest)] for a, b in rows])
        place = np.expand_dims(line, [a for a in range(2 * n) if a not in (k, n + k)])
        table = table * shape[2 + k] + place
    flat = c.along(c.constant(table.reshape(*wanted, -1), I64), c.shape_of(lined), range(2, 3 + n))
    hit = c(ops.compare, c.indices(I64, c.shape_of(lined), axis), back(c, first, lined, (axis,)), direction="EQ")
    found = total(c, ops.add, c(ops.select, hit, flat, c.full(0, c.type_of(flat))), (axis,))
    return [most, found]


# --- blocks ---------------------------------------------------------------------------------------------------------


def _im2col(c: CallContext) -> Node:
    return over_batch(c, c.node(), 4, lambda x: _blocks(c, x))  # type: ignore[no-any-return]


def _blocks(c: CallContext, x: Node) -> Node:
    kernel, dilation, padding, stride = (
        spread_to(c.ints(name), 2, name) for name in ("kernel_size", "dilation", "padding", "stride")
    )
    batch, channels, height, width = c.shape_of(x)
    padded = c(
        ops.pad, x, c.like(0, x), edge_padding_low=(0, 0, *padding), edge_padding_high=(0, 0, *padding), interior_padding=(0,) * 4
    )
    steps = [
        (d + 2 * p - (k - 1) * r - 1) // s + 1
        for d, p, k, r, s in zip((height, width), padding, kernel, dilation, stride, strict=True)
    ]
    rows, columns = (
        np.arange(k)[:, None] * r + np.arange(t) * s for k, r, t, s in zip(kernel, dilation, steps, stride, strict=True)
    )
    found = taken(c, taken(c, padded, 2, rows.reshape(-1)), 3, columns.reshape(-1))
    found = c.shaped(found, (batch, channels, kernel[0], steps[0], kernel[1], steps[1]))
    return c.shaped(c.transposed(found, (0, 1, 2, 4, 3, 5)), (batch, channels * math.prod(kernel), math.prod(steps)))


def _col2im(c: CallContext) -> Node:
    def build(x: Node) -> Node:
        kernel, dilation, padding, stride = (
            spread_to(c.ints(name), 2, name) for name in ("kernel_size", "dilation", "padding", "stride")
        )
        return col2im(c, x, c.ints(1), kernel, stride, dilation, padding * 2)

    return over_batch(c, c.node(), 3, build)  # type: ignore[no-any-return]


def _shuffle(c: CallContext) -> Node:
    """Channels as pixels, by a factor."""
    from deepx_graph.text.common.nn import depth_to_space

    return depth_to_space(c, c.node(), c.number(1), "CRD")


def _unshuffle(c: CallContext) -> Node:
    from deepx_graph.text.common.nn import space_to_depth

    return space_to_depth(c, c.node(), c.number(1), "CRD")


def _channel_shuffle(c: CallContext) -> Node:
    x, shape, groups = c.node(), c.shape_of(c.node()), c.number(1)
    split = c.shaped(x, (shape[0], groups, shape[1] // groups, *shape[2:]))
    return c.shaped(c.transposed(split, (0, 2, 1, *range(3, len(shape) + 1))), shape)


WINDOW: Rules = {
    "convolution": _general, "_convolution": _general, **{f"conv{n}d": _conv(n) for n in SPATIAL},
    **{f"conv_transpose{n}d": _conv(n, True) for n in SPATIAL}, **{f"max_pool{n}d": _max_pool(n, False) for n in SPATIAL},
    **{f"max_pool{n}d_with_indices": _max_pool(n, True) for n in SPATIAL}, **{f"avg_pool{n}d": _average_pool(n) for n in SPATIAL},
    **{f"adaptive_avg_pool{n}d": _adaptive(n, False) for n in SPATIAL},
    **{f"_adaptive_avg_pool{n}d": _adaptive(n, False) for n in SPATIAL},
    **{f"adaptive_max_pool{n}d": _adaptive(n, True) for n in SPATIAL}, "im2col": _im2col, "col2im": _col2im,
    "pixel_shuffle": _shuffle, "pixel_unshuffle": _unshuffle, "channel_shuffle": _channel_shuffle,
}  # fmt: skip
