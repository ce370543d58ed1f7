"""Convolutions and poolings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Node, Op
from deepx_graph.text.common.nn import elements_inside, max_and_place, pooled, spread_over
from deepx_graph.text.onnx.context import NodeContext, Rule, Rules
from deepx_graph.text.onnx.rules.linear import less_zero
from deepx_graph.types import I64, Dim, scalar

LETTERS = "ABDEFGHJKLM"
"""Letters of spatial axes, however many."""

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class PoolingWindow:
    """How a window goes over the spatial axes."""

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    low: Sizes
    high: Sizes


def numbers_for(c: NodeContext, name: str, n: int, default: int, least: int = 1) -> Sizes:
    """An attribute with a number for each spatial axis."""
    given = c.ints(name, (default,) * n)
    if len(given) != n or min(given, default=least) < least:
        raise InferError(f"{name} = {list(given)}", expected=f"{n} numbers from {least}")
    return given


def window_of(c: NodeContext, spatial: Sequence[Dim], kernel: Sizes) -> PoolingWindow:
    """The window of a convolution or pooling: padding is given, or follows from `auto_pad`."""
    n = len(spatial)
    strides, dilations = numbers_for(c, "strides", n, 1), numbers_for(c, "dilations", n, 1)
    if len(kernel) != n or min(kernel, default=1) < 1:
        raise InferError(f"a kernel of {list(kernel)} over {n} axes", expected=f"{n} sizes from 1")
    auto = c.one_of("auto_pad", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    if auto == "NOTSET":
        pads = c.ints("pads", (0,) * 2 * n)
        if len(pads) != 2 * n:
            raise InferError(f"pads = {list(pads)}", expected=f"{2 * n} numbers")
        low, high = pads[:n], pads[n:]
    elif auto == "VALID":
        low, high = (0,) * n, (0,) * n
    else:
        sizes = c.static(tuple(spatial))
        totals = [max(0, (-(-d // s) - 1) * s + (k - 1) * r + 1 - d)
                  for d, s, k, r in zip(sizes, strides, kernel, dilations, strict=True)]
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        low, high = (small, large) if auto == "SAME_UPPER" else (large, small)
    return PoolingWindow(kernel, strides, dilations, low, high)


# --- convolution ----------------------------------------------------------------------------------------------------


def convolved(c: NodeContext, x: Node, w: Node, n: int, **attrs: Any) -> Node:
    """A convolution whose axes are batch, channels, space; of the kernel outputs, inputs, space."""
    spatial = tuple(range(2, n + 2))
    plain: dict[str, Any] = {"lhs_dilation": (1,) * n, "rhs_dilation": (1,) * n, "window_strides": (1,) * n,
                             "window_reversal": (0,) * n, "feature_group_count": 1, "batch_group_count": 1}
    return c(ops.convolution, x, w, **{**plain, **attrs}, input_batch_dimension=0, input_feature_dimension=1,
             output_batch_dimension=0, output_feature_dimension=1, kernel_output_feature_dimension=0,
             kernel_input_feature_dimension=1, input_spatial_dimensions=spatial, kernel_spatial_dimensions=spatial,
             output_spatial_dimensions=spatial)


def convolution(c: NodeContext, x: Node, w: Node) -> Node:
    """The convolution of two operands by the node's attributes."""
    dims, kernel = c.dims_of(x), c.shape_of(w)
    n = len(dims) - 2
    if n < 0 or len(kernel) != n + 2:
        raise InferError(f"operands {x.type} and {w.type}", expected="batch, channels, space; and outputs, inputs, space")
    if c.given("kernel_shape") and c.ints("kernel_shape") != kernel[2:]:
        raise InferError(f"kernel_shape = {list(c.ints('kernel_shape'))} of a kernel {w.type}")
    window = window_of(c, dims[2:], kernel[2:])
    return convolved(c, x, w, n, window_strides=window.strides, rhs_dilation=window.dilations, padding_low=window.low,
                     padding_high=window.high, feature_group_count=c.number("group", 1))


def biased(c: NodeContext, x: Node, k: int) -> Node:
    """With operand k added to each channel, where it is given."""
    return c(ops.add, x, c.along(c.node(k), c.dims_of(x), (1,))) if c.has(k) else x


def _conv(c: NodeContext) -> Node:
    return biased(c, convolution(c, c.node(), c.node(1)), 2)


def _conv_integer(c: NodeContext) -> Node:
    """Zero points go before the padding, which so is zero."""
    x = less_zero(c, c.node(), c.node(2) if c.has(2) else None, 1)
    w = less_zero(c, c.node(1), c.node(3) if c.has(3) else None, 0)
    return convolution(c, x, w)


def _conv_transpose(c: NodeContext) -> Node:
    x, w = c.node(), c.node(1)
    shape, kernel = c.dims(), c.shape(1)
    n, groups = len(shape) - 2, c.number("group", 1)
    if n < 1 or len(kernel) != n + 2 or groups < 1 or kernel[0] % groups:
        raise InferError(f"operands {c.type()} and {c.type(1)}", expected="batch, channels, space; and channels, outputs, space")
    strides, dilations = numbers_for(c, "strides", n, 1), numbers_for(c, "dilations", n, 1)
    extra = numbers_for(c, "output_padding", n, 0, 0)
    reach = [(k - 1) * d for k, d in zip(kernel[2:], dilations, strict=True)]
    auto = c.one_of("auto_pad", "NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    pads = c.ints("pads", (0,) * 2 * n) if auto == "NOTSET" else (0,) * 2 * n
    low, high = list(pads[:n]), list(pads[n:])
    if c.given("output_shape") or auto.startswith("SAME"):
        spatial = c.shape()[2:]
        wanted = c.ints("output_shape") if c.given("output_shape") else [d * s for d, s in zip(spatial, strides, strict=True)]
        for k, size in enumerate(tuple(wanted)[-n:]):
            whole = strides[k] * (spatial[k] - 1) + extra[k] + reach[k] + 1 - size
            if whole < 0:
                extra = tuple(e - whole if j == k else e for j, e in enumerate(extra))
                whole = 0
            low[k] = whole // 2 if auto == "SAME_UPPER" else whole - whole // 2
            high[k] = whole - low[k]
    # inputs and outputs of the kernel change places within each group
    inner = kernel[0] // groups
    split = c.shaped(w, (groups, inner, *kernel[1:]))
    turned = c.transposed(split, (0, 2, 1, *range(3, n + 3)))
    w = c.shaped(turned, (groups * kernel[1], inner, *kernel[2:]))
    made = convolved(c, x, w, n, window_reversal=(1,) * n, lhs_dilation=strides, rhs_dilation=dilations, feature_group_count=groups,
                     padding_low=tuple(r - p for r, p in zip(reach, low, strict=True)),
                     padding_high=tuple(r - p + e for r, p, e in zip(reach, high, extra, strict=True)))
    return biased(c, made, 2)


# --- pooling --------------------------------------------------------------------------------------------------------


def _pooling_window(c: NodeContext) -> tuple[PoolingWindow, Sizes]:
    """The window of a pooling, and how far it goes beyond the padding at the end in `ceil_mode`."""
    dims = c.dims()
    n = len(dims) - 2
    if n < 1:
        raise InferError(f"operand 0 is {c.type()}", operand=0, expected="batch, channels, space")
    window = window_of(c, dims[2:], c.ints("kernel_shape"))
    if not c.flag("ceil_mode"):
        return window, (0,) * n
    spatial, over = c.shape()[2:], []
    for d, k, s, r, lo, hi in zip(spatial, window.kernel, window.strides, window.dilations, window.low, window.high, strict=True):
        span = d + lo + hi - ((k - 1) * r + 1)
        count = -(-span // s) + 1
        if (count - 1) * s >= d + lo:
            count -= 1
        over.append(max(0, (count - 1) * s + (k - 1) * r + 1 - (d + lo + hi)))
    return window, tuple(over)


def _spread(window: PoolingWindow, high: Sizes) -> dict[str, Sizes]:
    n = len(window.kernel)
    return spread_over("NC" + LETTERS[:n], LETTERS[:n], window.kernel, window.strides, window.dilations, window.low, high)


def _beyond(window: PoolingWindow, over: Sizes) -> Sizes:
    return tuple(h + o for h, o in zip(window.high, over, strict=True))


def _max_pool(c: NodeContext) -> Any:
    window, over = _pooling_window(c)
    windows = _spread(window, _beyond(window, over))
    if c.wanted < 2:
        return pooled(c, ops.maximum, c.node(), windows)
    return _max_and_place(c, windows)


def _max_and_place(c: NodeContext, windows: dict[str, Sizes]) -> list[Node]:
    """The greatest of each window, and where it is in the whole tensor: the first of equal ones."""
    x, shape = c.node(), c.shape()
    place: Node = c(ops.iota, dtype=I64, shape=(math.prod(shape),), iota_dimension=0)
    n = len(shape) - 2
    if c.flag("storage_order"):
        place = c.transposed(c.shaped(place, (*shape[:2], *reversed(shape[2:]))), (0, 1, *reversed(range(2, n + 2))))
    else:
        place = c.shaped(place, shape)
    return max_and_place(c, x, place, windows)


def _average_pool(c: NodeContext) -> Node:
    window, over = _pooling_window(c)
    windows = _spread(window, _beyond(window, over))
    total = pooled(c, ops.add, c.node(), windows)
    counted = c.flag("count_include_pad")
    if not any(over) and (counted or not any((*window.low, *window.high))):
        return c(ops.divide, total, c.like(math.prod(window.kernel), total))
    sizes, shape = c.shape_of(total), list(c.shape())
    if counted:  # declared padding counts, what lies beyond it does not
        shape = [*shape[:2], *(d + lo + hi for d, lo, hi in zip(shape[2:], window.low, window.high, strict=True))]
        windows = {**windows, "padding_low": (0,) * len(shape)}
    inside = elements_inside(shape, sizes, windows)
    counts = np.ones((), np.int64)
    axes = [k for k, n in enumerate(inside) if n is not None]
    for k in axes:
        counts = np.multiply.outer(counts, inside[k])
    per = c.constant(np.maximum(counts, 1), c.dtype())
    return c(ops.divide, total, c.along(per, sizes, axes) if axes else per)


def _lp(c: NodeContext, x: Node, p: int, total: Any) -> Node:
    """(sum of |x|^p)^(1/p), the sum as told."""
    if p == 2:
        return c(ops.sqrt, total(c(ops.multiply, x, x)))
    size = c(ops.abs_, x)
    if p == 1:
        return total(size)  # type: ignore[no-any-return]
    return c(ops.power, total(c(ops.power, size, c.like(p, x))), c.like(1 / p, x))


def _lp_pool(c: NodeContext) -> Node:
    window, over = _pooling_window(c)
    windows = _spread(window, _beyond(window, over))
    return _lp(c, c.node(), int(c.real("p", 2)), lambda x: pooled(c, ops.add, x, windows))


def _global(op: Op | None) -> Rule:
    """Over all of space; the norm for None."""

    def build(c: NodeContext) -> Node:
        x, dims = c.node(), c.dims()
        axes = tuple(range(2, len(dims)))
        if op is None:
            made = _lp(c, x, int(c.real("p", 2)), lambda v: ops.reduction(c.b, ops.add, v, axes))
        else:
            made = ops.reduction(c.b, op, x, axes)
            if op is ops.add:
                made = c(ops.divide, made, c.like(math.prod(c.static(dims[2:])), made))
        return c.shaped(made, [1 if k in axes else d for k, d in enumerate(dims)])

    return build


def _max_unpool(c: NodeContext) -> Node:
    """Elements put back where they were before pooling; zeros elsewhere. Places are those of the tensor without the padding."""
    shape, n = c.shape(), c.rank() - 2
    kernel, strides = c.ints("kernel_shape"), numbers_for(c, "strides", n, 1)
    pads = c.ints("pads", (0,) * 2 * n)
    inferred = [(d - 1) * s - pads[k] - pads[n + k] + kernel[k] for k, (d, s) in enumerate(zip(shape[2:], strides, strict=True))]
    natural = (*shape[:2], *inferred)
    wanted = c.ints_at(2) if c.has(2) else natural
    index = c.add_axes(c.shaped(c.cast(c.node(1), I64), (math.prod(shape),)), (1,))
    flat = c.shaped(c.node(), (math.prod(shape),))
    zeros = c.full(0, c.type().with_dims((math.prod(natural),)))
    t = scalar(c.dtype())
    second = Builder().function("second", (("old", t), ("new", t)), lambda old, new: [new], public=False)
    made = c(ops.scatter, zeros, index, flat, inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,), index_vector_dim=1,
             update_computation=second)
    made = c.shaped(made, natural)
    if tuple(wanted) == natural:
        return made
    return c(ops.pad, made, c.like(0, made), edge_padding_low=(0,) * (n + 2),
             edge_padding_high=tuple(w - d for w, d in zip(wanted, natural, strict=True)), interior_padding=(0,) * (n + 2))


WINDOW: Rules = {
    "Conv": _conv, "ConvInteger": _conv_integer, "ConvTranspose": _conv_transpose, "MaxPool": _max_pool,
    "AveragePool": _average_pool, "LpPool": _lp_pool, "GlobalAveragePool": _global(ops.add), "GlobalMaxPool": _global(ops.maximum),
    "GlobalLpPool": _global(None), "MaxUnpool": _max_unpool,
}  # fmt: skip
