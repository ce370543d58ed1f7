"""Relay's convolutions and poolings, and what else treats tensors as pictures: upsampling, depth and space, local response.

Layouts are words of letters: N and C and the spatial axes, O and I in kernels.
"""

from __future__ import annotations

import math

from deepx_graph import ops
from deepx_graph.errors import InferError, an
from deepx_graph.ir import Node, Op
from deepx_graph.text.common.nn import (
    SPATIAL,
    averaged,
    convolved,
    depth_to_space,
    local_response,
    pooled,
    space_to_depth,
    spread_over,
)
from deepx_graph.text.common.steps import Unsupported, axis_of, ranked
from deepx_graph.text.relay.rules.context import Context, Operator


def layout_of(c: Context, name: str, default: str, rank: int) -> str:
    """A layout attribute as a word with a letter for each axis. Blocked layouts (`NCHW4c`) are not known here."""
    word = c.text(name, default) or default
    if not word.isalpha() or not word.isupper() or sorted(word) != sorted(default) or len(word) != rank:
        raise Unsupported(f"the layout {word}")
    return word


def paddings(c: Context, n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after each of n axes: one number, one for each axis, or those before and then those after."""
    given = c.ints("padding", (0,))
    if len(given) == 1:
        return given * n, given * n
    if len(given) == n:
        return given, given
    if len(given) != 2 * n:
        raise InferError(f"padding {list(given)}", expected=f"1, {n} or {2 * n} numbers")
    return given[:n], given[n:]


def each(c: Context, name: str, n: int, default: int = 1) -> tuple[int, ...]:
    """A number for each spatial axis."""
    given = c.ints(name, (default,))
    given = given * n if len(given) == 1 else given
    if len(given) != n or min(given) < 1:
        raise InferError(f"{name} {list(given)}", expected=f"{n} positive numbers")
    return given


# --- convolution --------------------------------------------------------------------------------------------------



def _conv(n: int) -> Operator:
    letters = SPATIAL[n]

    def build(c: Context) -> Node:
        x, w = c.args[0], c.args[1]
        data = layout_of(c, "data_layout", "NC" + letters, c.known().rank or 0)
        kernel = layout_of(c, "kernel_layout", "OI" + letters, c.known(1).rank or 0)
        out = layout_of(c, "out_layout", "NC" + letters, n + 2) if c.attr("out_layout") else data
        low, high = paddings(c, n)
        groups = c.number("groups", 1)
        if groups > 1 and (c.known(1).shape[kernel.index("I")] * groups != c.known().shape[data.index("C")]):
            w, kernel = _depthwise(c, w, kernel, groups)
        return convolved(c, x, w, (data, kernel, out), letters, c.dtype("out_dtype", ranked(x).dtype),
                         window_strides=each(c, "strides", n), padding_low=low, padding_high=high,
                         rhs_dilation=each(c, "dilation", n), feature_group_count=groups)

    return Operator(build, 2)


def _depthwise(c: Context, w: Node, kernel: str, groups: int) -> tuple[Node, str]:
    """A depthwise kernel as TVM lays it out in HWOI: O counts the input channels and I the multiplier."""
    shape = c.known(1).shape
    o, i = kernel.index("O"), kernel.index("I")
    if shape[o] != groups:
        raise InferError(f"operand 1 is {an(c.type(1))}", operand=1, expected=f"a kernel for {groups} groups")
    front = c.transposed(w, (o, i, *(k for k in range(len(shape)) if k not in (o, i))))
    rest = "".join(s for s in kernel if s not in "OI")
    return c.shaped(front, (shape[o] * shape[i], 1, *(d for k, d in enumerate(shape) if k not in (o, i)))), "OI" + rest


def _conv_transpose(n: int) -> Operator:
    letters = SPATIAL[n]

    def build(c: Context) -> Node:
        x, w = c.args[0], c.args[1]
        data = layout_of(c, "data_layout", "NC" + letters, c.known().rank or 0)
        kernel = layout_of(c, "kernel_layout", "IO" + letters, c.known(1).rank or 0)
        if c.number("groups", 1) != 1:
            raise Unsupported("a transposed convolution in groups")
        low, high = paddings(c, n)
        dilation, extra = each(c, "dilation", n), c.ints("output_padding", (0,))
        extra = extra * n if len(extra) == 1 else extra
        reach = [(c.known(1).shape[kernel.index(s)] - 1) * d for s, d in zip(letters, dilation, strict=True)]
        return convolved(
            c, x, w, (data, kernel, data), letters, c.dtype("out_dtype", ranked(x).dtype), window_reversal=(1,) * n,
            lhs_dilation=each(c, "strides", n), rhs_dilation=dilation,
            padding_low=tuple(r - p for r, p in zip(reach, low, strict=True)),
            padding_high=tuple(r - p + e for r, p, e in zip(reach, high, extra, strict=True)),
        )

    return Operator(build, 2)


# --- pooling ------------------------------------------------------------------------------------------------------


def _windows(c: Context, n: int, layout: str) -> dict[str, tuple[int, ...]]:
    """The window attributes over all axes for a pooling's own attributes."""
    size, strides, dilation = each(c, "pool_size", n), each(c, "strides", n), each(c, "dilation", n)
    low, high = paddings(c, n)
    if c.flag("ceil_mode"):
        high = tuple(h + s - 1 for h, s in zip(high, strides, strict=True))
    return spread_over(layout, SPATIAL[n], size, strides, dilation, low, high)




def _pool(op: Op | None, n: int) -> Operator:
    """Windows reduced by a monoid op; their mean for None."""

    def build(c: Context) -> Node:
        layout = layout_of(c, "layout", "NC" + SPATIAL[n], c.known().rank or 0)
        windows = _windows(c, n, layout)
        return averaged(c, c.args[0], windows, c.flag("count_include_pad")) if op is None else pooled(c, op, c.args[0], windows)

    return Operator(build)




def _global(op: Op | None, n: int) -> Operator:
    def build(c: Context) -> Node:
        layout = layout_of(c, "layout", "NC" + SPATIAL[n], c.known().rank or 0)
        axes = tuple(k for k, s in enumerate(layout) if s in SPATIAL[n])
        x, dims = c.args[0], c.known().dims or ()
        total = ops.reduction(c.b, op or ops.add, x, axes)
        if op is None:
            total = c(ops.divide, total, c.like(math.prod(int(dims[k]) for k in axes), total))
        return c.shaped(total, [1 if k in axes else d for k, d in enumerate(dims)])

    return Operator(build)


def _adaptive(op: Op | None, n: int) -> Operator:
    """Only where each output has a window of the same size: the input's size is a multiple of the output's."""

    def build(c: Context) -> Node:
        layout = layout_of(c, "layout", "NC" + SPATIAL[n], c.known().rank or 0)
        shape = c.known().shape
        sizes = [shape[layout.index(s)] for s in SPATIAL[n]]
        wanted = c.ints("output_size", ()) or tuple(sizes)
        wanted = wanted * n if len(wanted) == 1 else wanted
        if len(wanted) != n or any(w < 1 or d % w for w, d in zip(wanted, sizes, strict=True)):
            raise Unsupported("adaptive pooling with windows of several sizes")
        window = [d // w for d, w in zip(sizes, wanted, strict=True)]
        windows = spread_over(layout, SPATIAL[n], window, window, (1,) * n, (0,) * n, (0,) * n)
        return averaged(c, c.args[0], windows, True) if op is None else pooled(c, op, c.args[0], windows)

    return Operator(build)


# --- pictures -------------------------------------------------------------------------------------------------------


def _upsampling(c: Context) -> Node:
    """Each pixel repeated; other methods are not known here."""
    layout = layout_of(c, "layout", "NCHW", c.known().rank or 0)
    scale = {"H": c.real("scale_h", 1), "W": c.real("scale_w", 1)}
    if c.text("method", "nearest_neighbor") != "nearest_neighbor" or any(s != int(s) or s < 1 for s in scale.values()):
        raise Unsupported("upsampling by interpolation")
    x = c.args[0]
    dims = list(c.known().shape)
    for k, letter in enumerate(layout):
        times = int(scale.get(letter, 1))
        if times > 1:
            wide = (*dims[: k + 1], times, *dims[k + 1 :])
            spread = c.along(x, wide, [j for j in range(len(wide)) if j != k + 1])
            dims[k] *= times
            x = c.shaped(spread, dims)
    return x





def _depth_to_space(c: Context) -> Node:
    if c.text("layout", "NCHW") != "NCHW":
        raise Unsupported("depth_to_space in another layout")
    return depth_to_space(c, c.args[0], c.number("block_size"), c.text("mode", "DCR"))


def _space_to_depth(c: Context) -> Node:
    if c.text("layout", "NCHW") != "NCHW":
        raise Unsupported("space_to_depth in another layout")
    return space_to_depth(c, c.args[0], c.number("block_size"))


def _lrn(c: Context) -> Node:
    size, axis = c.number("size", 5), axis_of(c.number("axis", 1), c.known().rank or 0)
    if size % 2 != 1:
        raise InferError(f"a window of size {size}", expected="an odd size")
    return local_response(c, c.args[0], axis, size, c.real("alpha", 1e-4), c.real("beta", 0.75), c.real("bias", 2))


WINDOW: dict[str, Operator] = {
    **{f"nn.conv{n}d": _conv(n) for n in SPATIAL}, **{f"nn.conv{n}d_transpose": _conv_transpose(n) for n in SPATIAL},
    **{f"nn.max_pool{n}d": _pool(ops.maximum, n) for n in SPATIAL}, **{f"nn.avg_pool{n}d": _pool(None, n) for n in SPATIAL},
    "nn.global_avg_pool2d": _global(None, 2), "nn.global_max_pool2d": _global(ops.maximum, 2),
    **{f"nn.adaptive_avg_pool{n}d": _adaptive(None, n) for n in SPATIAL},
    **{f"nn.adaptive_max_pool{n}d": _adaptive(ops.maximum, n) for n in SPATIAL}, "nn.upsampling": Operator(_upsampling),
    "nn.depth_to_space": Operator(_depth_to_space), "nn.space_to_depth": Operator(_space_to_depth), "nn.lrn": Operator(_lrn),
}  # fmt: skip
