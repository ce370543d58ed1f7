"""Builders of the operators of networks, with explicit parameters: convolution, windows, normalisation, softmax.

The rules of every language that has them come down to these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.text.common.steps import Steps, Unsupported, ranked
from deepx_graph.types import I64, Dim, DType, as_tensor, mul_dims, scalar

SPATIAL = {1: "W", 2: "HW", 3: "DHW"}
"""Letters of the spatial axes."""

Axes = tuple[int, ...]

# --- reductions -----------------------------------------------------------------------------------------------------


def count(x: Node, axes: tuple[int, ...]) -> int:
    """How many elements the axes have. Raises Unsupported where that is not known."""
    dims = ranked(x).dims or ()
    number: Dim = mul_dims([dims[k] for k in axes])
    if isinstance(number, str):
        raise Unsupported("the mean over an axis whose size is not known")
    return number

def mean(c: Steps, x: Node, axes: tuple[int, ...]) -> Node:
    """The mean over some axes."""
    return c(ops.divide, ops.reduction(c.b, ops.add, x, axes), c.like(count(x, axes), x)) if axes else x

def back(c: Steps, small: Node, x: Node, axes: tuple[int, ...]) -> Node:
    """A value without the axes, broadcast along them to the shape of `x`."""
    dims = ranked(x).dims or ()
    return c.along(small, dims, [k for k in range(len(dims)) if k not in axes])

# --- softmax and normalisation --------------------------------------------------------------------------------------


def _shifted(c: Steps, x: Node, axes: Axes) -> tuple[Node, Node]:
    """The operand less its greatest value along the axes, and the exponentials."""
    off = c(ops.subtract, x, back(c, ops.reduction(c.b, ops.maximum, x, axes), x, axes))
    return off, c(ops.exponential, off)


def softmax(c: Steps, x: Node, axes: Axes) -> Node:
    """The exponentials as parts of their sum along the axes."""
    _, raised = _shifted(c, x, axes)
    return c(ops.divide, raised, back(c, ops.reduction(c.b, ops.add, raised, axes), raised, axes))


def log_softmax(c: Steps, x: Node, axes: Axes) -> Node:
    """The logarithm of `softmax`."""
    off, raised = _shifted(c, x, axes)
    total = c(ops.log, ops.reduction(c.b, ops.add, raised, axes))
    return c(ops.subtract, off, back(c, total, off, axes))


def centered(c: Steps, x: Node, axes: tuple[int, ...], epsilon: float) -> Node:
    """(x - mean) / sqrt(variance + epsilon), over some axes."""
    off = c(ops.subtract, x, back(c, mean(c, x, axes), x, axes))
    variance = mean(c, c(ops.multiply, off, off), axes)
    scale = c(ops.sqrt, c(ops.add, variance, c.like(epsilon, variance)))
    return c(ops.divide, off, back(c, scale, off, axes))

# --- convolution and windows ----------------------------------------------------------------------------------------


def convolved(c: Steps, x: Node, w: Node, layouts: Sequence[str], letters: str, dtype: DType, **attrs: Any) -> Node:
    """A convolution in `dtype` whose operands and result have these layouts, kernels with O and I."""
    data, kernel, out = layouts
    n = len(letters)
    plain: dict[str, Any] = {"lhs_dilation": (1,) * n, "rhs_dilation": (1,) * n, "window_strides": (1,) * n,
                             "window_reversal": (0,) * n, "feature_group_count": 1, "batch_group_count": 1}
    axes = {f"{side}_{what}_dimension": layout.index(letter) for side, layout in (("input", data), ("output", out))
            for what, letter in (("batch", "N"), ("feature", "C"))}
    spatial = {f"{side}_spatial_dimensions": tuple(map(layout.index, letters))
               for side, layout in (("input", data), ("kernel", kernel), ("output", out))}
    return c(ops.convolution, c.cast(x, dtype), c.cast(w, dtype), **{**plain, **attrs}, **axes, **spatial,
             kernel_input_feature_dimension=kernel.index("I"), kernel_output_feature_dimension=kernel.index("O"))

def spread_over(layout: str, letters: str, size: Sequence[int], strides: Sequence[int], dilation: Sequence[int],
                low: Sequence[int], high: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Window attributes of the spatial axes placed by the layout; windows of one along the others."""

    def placed(values: Sequence[int], other: int) -> tuple[int, ...]:
        return tuple(values[letters.index(s)] if s in letters else other for s in layout)

    return {"window_dimensions": placed(size, 1), "window_strides": placed(strides, 1), "base_dilations": (1,) * len(layout),
            "window_dilations": placed(dilation, 1), "padding_low": placed(low, 0), "padding_high": placed(high, 0)}

def pooled(c: Steps, op: Op, x: Node, windows: dict[str, tuple[int, ...]]) -> Node:
    """Each window reduced by a monoid op."""
    dtype = as_tensor(x.type).dtype
    return c(ops.reduce_window, x, c.like(op.identity_for(dtype), x), body=monoid_body(op, dtype), **windows)

def max_and_place(c: Steps, x: Node, place: Node, windows: dict[str, tuple[int, ...]]) -> list[Node]:
    """The greatest of each window, and what `place` has there: of equal ones that with the least place."""
    dtype = as_tensor(x.type).dtype
    low, far = c.like(ops.maximum.identity_for(dtype), x), c.like(np.iinfo(np.int64).max, place)
    t, p = scalar(dtype), scalar(I64)

    def better(a: Node, i: Node, b: Node, j: Node) -> list[Node]:
        build = Builder()
        same = build(ops.compare, a, b, direction="EQ")
        first = build(ops.and_, same, build(ops.compare, i, j, direction="LT"))
        take = build(ops.or_, build(ops.compare, a, b, direction="GT"), first)
        return [build(ops.select, take, a, b), build(ops.select, take, i, j)]

    body: Function = Builder().function("better", (("a", t), ("i", p), ("b", t), ("j", p)), better, public=False)
    made = c(ops.reduce_window, x, place, low, far, body=body, **windows)
    return [c.b.proj(made, 0), c.b.proj(made, 1)]

def averaged(c: Steps, x: Node, windows: dict[str, tuple[int, ...]], with_padding: bool) -> Node:
    """The mean of each window; the padding counts where `with_padding`."""
    total = pooled(c, ops.add, x, windows)
    padded = any(windows["padding_low"]) or any(windows["padding_high"])
    if with_padding or not padded:
        return c(ops.divide, total, c.like(math.prod(windows["window_dimensions"]), total))
    if sum(ranked(total).shape) > c.limit or ranked(total).size > c.limit:
        raise Unsupported("a pooling with so much padding")
    inside = elements_inside(ranked(x).shape, ranked(total).shape, windows)
    axes = [k for k, n in enumerate(inside) if n is not None]
    counts = np.ones((), np.int64)
    for k in axes:
        counts = np.multiply.outer(counts, inside[k])
    per = c.b.constant(np.maximum(counts, 1), as_tensor(x.type).dtype)
    return c(ops.divide, total, per if len(axes) == len(inside) else c.along(per, ranked(total).shape, axes))

def elements_inside(size: Sequence[int], made: Sequence[int], windows: dict[str, tuple[int, ...]]) -> list[Any]:
    """For each axis how many elements of each window are none of the padding; None where windows have one element."""
    found: list[Any] = []
    rows = zip(size, made, *(windows[f"window_{w}"] for w in ("dimensions", "strides", "dilations")), windows["padding_low"],
               strict=True)
    for n, count, window, stride, dilation, low in rows:
        first = np.arange(count, dtype=np.int64) * stride - low
        last = np.minimum((n - 1 - first) // dilation, window - 1)
        found.append(np.maximum(last - np.maximum(-(first // dilation), 0) + 1, 0) if window > 1 else None)
    return found

# --- pictures -------------------------------------------------------------------------------------------------------


def depth_to_space(c: Steps, x: Node, size: int, mode: str) -> Node:
    """Blocks of `size` by `size` pixels made of channels, which are counted block first (DCR) or last (CRD)."""
    n, depth, height, width = ranked(x).shape
    if size < 1 or depth % (size * size):
        raise InferError(f"{depth} channels do not make blocks of {size} by {size}", operand=0)
    inner = depth // (size * size)
    if mode == "DCR":
        split, order = (n, size, size, inner, height, width), (0, 3, 4, 1, 5, 2)
    else:
        split, order = (n, inner, size, size, height, width), (0, 1, 4, 2, 5, 3)
    return c.shaped(c.transposed(c.shaped(x, split), order), (n, inner, height * size, width * size))


def space_to_depth(c: Steps, x: Node, size: int, mode: str = "DCR") -> Node:
    """Blocks of `size` by `size` pixels made channels: the inverse of `depth_to_space`."""
    n, depth, height, width = ranked(x).shape
    if size < 1 or height % size or width % size:
        raise InferError(f"{height} by {width} does not split in blocks of {size} by {size}", operand=0)
    rows, columns = height // size, width // size
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    split = c.shaped(x, (n, depth, rows, size, columns, size))
    return c.shaped(c.transposed(split, order), (n, depth * size * size, rows, columns))


def local_response(c: Steps, x: Node, axis: int, size: int, alpha: float, beta: float, bias: float) -> Node:
    """x / (bias + alpha * mean of the squares nearby, those beyond the edge being 0) ^ beta"""
    rank = ranked(x).rank or 0
    letters = "".join("W" if k == axis else "N" for k in range(rank))
    near = spread_over(letters, "W", (size,), (1,), (1,), ((size - 1) // 2,), (size // 2,))
    mean = averaged(c, c(ops.multiply, x, x), near, True)
    base = c(ops.add, c(ops.multiply, mean, c.like(alpha, x)), c.like(bias, x))
    return c(ops.divide, x, c(ops.power, base, c.like(beta, x)))
