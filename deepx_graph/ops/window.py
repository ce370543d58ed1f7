"""Operations over sliding windows: convolution, reduce_window, select_and_scatter.

Windows are read through strided views of the padded operand, so a convolution is one matrix product per group and a pooling one
reduction of whole arrays. Padding is (low, high) per axis and may be negative; dilation puts gaps between elements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Builder, Function, Op, Operand, Relation
from deepx_graph.ir.constraint import (
    NON_NEGATIVE,
    POSITIVE,
    SCALAR,
    TENSOR,
    at_most,
    axes_of,
    combines,
    equally_many,
    one_for_each_axis,
    same_element_type,
    same_element_types,
    same_shape,
    some,
)
from deepx_graph.ir.declared import MANY
from deepx_graph.literal import Array
from deepx_graph.ops.declare import is_int, pair, written_in
from deepx_graph.ops.elementwise import add, compare, maximum, minimum, multiply
from deepx_graph.ops.evaluate import combine
from deepx_graph.ops.fallback import general
from deepx_graph.ops.index import in_rounds
from deepx_graph.ops.linear import products
from deepx_graph.ops.reduce import monoid_body
from deepx_graph.ops.shape import dilated, spread_and_pad
from deepx_graph.types import F64, Dim, TensorType, TupleType, Type, as_tensor, dtype_of, merge_dims, scalar, tensor

Axes = tuple[int, ...]


def window_count(size: Dim, window: int, stride: int, low: int, high: int, base: int = 1, dilation: int = 1) -> Dim:
    """How many windows fit along an axis; symbolic for a symbolic size."""
    if not isinstance(size, int):
        return f"window({size},{window},{stride},{low + high},{base},{dilation})"
    extent = dilated(size, base) + low + high
    reach = dilated(window, dilation)
    return 0 if extent < reach else (extent - reach) // stride + 1


def windows_of(x: Array, sizes: Axes, strides: Axes, dilations: Axes) -> Array:
    """A view of shape (windows..., sizes...): every window of an already padded array."""
    counts = [window_count(s, w, t, 0, 0, 1, d) for s, w, t, d in zip(x.shape, sizes, strides, dilations, strict=True)]
    steps = [s * t for s, t in zip(x.strides, strides, strict=True)] + [s * d for s, d in zip(x.strides, dilations, strict=True)]
    shape = tuple(int(c) for c in counts) + sizes
    if 0 in shape:
        return np.empty(shape, x.dtype)
    return np.lib.stride_tricks.as_strided(x, shape, steps, writeable=False)


# --- reduce_window ------------------------------------------------------------------------------------------------

_WINDOW = ("window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding_low", "padding_high")


def _window_attrs_of(*names: str) -> tuple[Attr, ...]:
    """Window attributes: the size of a window, steps of at least 1, padding of any sign."""
    return tuple(Attr(n, "ints", check=None if n.startswith("padding") else NON_NEGATIVE if n == _WINDOW[0] else POSITIVE)
                 for n in names)


def _reduce_window_type(types: Sequence[Type], sizes: Axes, strides: Axes, base: Axes, dilations: Axes, low: Axes, high: Axes,
                        body: Function) -> Type:
    half = len(types) // 2
    inputs = [as_tensor(t, k) for k, t in enumerate(types[:half])]
    dims = functools.reduce(merge_dims, (x.dims for x in inputs), None)
    if dims is None:
        return inputs[0].with_dims(None) if half == 1 else TupleType(tuple(x.with_dims(None) for x in inputs))
    counts = tuple(map(window_count, dims, sizes, strides, low, high, base, dilations))
    results = tuple(tensor(x.dtype, counts) for x in inputs)
    return results[0] if half == 1 else TupleType(results)


def _reduce_window(xs: Sequence[Array], sizes: Axes, strides: Axes, base: Axes, dilations: Axes, low: Axes, high: Axes,
                   body: Function) -> Any:
    half = len(xs) // 2
    op = body.reducer if half == 1 else None
    if op is not None and xs[1] == op.identity_for(dtype_of(xs[0].dtype)):
        axis = _running_axis(xs[0].shape, sizes, (strides, base, dilations), low, high)
        if axis is not None:
            return _running(op, xs[0], xs[1], axis, backwards=high[axis] > 0)
    padded = [spread_and_pad(x, init, low, high, base) for x, init in zip(xs[:half], xs[half:], strict=True)]
    views = [windows_of(p, sizes, strides, dilations) for p in padded]
    counts = views[0].shape[: xs[0].ndim]
    if op is not None and math.prod(sizes) > math.prod(counts) > 0:
        return _few_windows(op, views[0], xs[1])
    if op is None:
        general("one place of the window after the other")
    totals: Sequence[Array] = [np.broadcast_to(i, counts).copy() for i in xs[half:]]
    for at in np.ndindex(*sizes):
        totals = combine(body, totals, [v[(slice(None),) * xs[0].ndim + at] for v in views])
    results = tuple(np.asarray(t, dtype=x.dtype) for t, x in zip(totals, xs, strict=False))
    return results[0] if half == 1 else results


def _few_windows(op: Op, view: Array, init: Array) -> Array:
    """Large windows, one reduction each."""
    assert op.monoid is not None and op.eval is not None
    rank = view.ndim // 2
    return np.asarray(op.eval([np.asarray(op.monoid(view, tuple(range(rank, 2 * rank)))), init]), dtype=view.dtype)


def _running_axis(shape: Axes, sizes: Axes, factors: Sequence[Axes], low: Axes, high: Axes) -> int | None:
    """The axis along which every window reaches from one end of the operand to its own place; None where they do not.

    Padding holds the initial value, so only where that is the identity are such windows running results.
    """
    moving = [k for k, size in enumerate(sizes) if size != 1]
    if len(moving) != 1 or any(f != 1 for values in factors for f in values) or 0 in shape:
        return None
    (axis,) = moving
    padding = (low[axis], high[axis])
    still = all(low[k] == high[k] == 0 for k in range(len(shape)) if k != axis)
    reach = sizes[axis] - 1
    return axis if still and reach >= shape[axis] - 1 and padding in ((reach, 0), (0, reach)) else None


def _running(op: Op, x: Array, init: Array, axis: int, backwards: bool) -> Array:
    """A cumulative sum, product, ...: one scan."""
    assert op.monoid is not None and op.eval is not None
    found = op.monoid.scan(np.flip(x, axis) if backwards else x, axis)
    return np.asarray(op.eval([np.flip(found, axis) if backwards else found, init]), dtype=x.dtype)


def _window_attrs(rank: int, **given: Any) -> dict[str, Any]:
    plain = {"window_strides": (1,) * rank, "base_dilations": (1,) * rank, "window_dilations": (1,) * rank,
             "padding_low": (0,) * rank, "padding_high": (0,) * rank}  # fmt: skip
    return {**plain, **given}


reduce_window: Op = Op(
    "reduce_window", "Each window's elements combined into one.",
    operands=(Operand("inputs", variadic=True, type=TENSOR),
              Operand("init_values", "one for each input", variadic=True, type=TENSOR & SCALAR)),
    attrs=(*_window_attrs_of(*_WINDOW), Attr("body", "function", summary="(total..., element...) -> total...")),
    constraints=(some("inputs"), same_shape("inputs"), same_element_types("inputs", "init_values"),
                 one_for_each_axis("inputs", *_WINDOW), combines("body", "inputs")),
    infer=_reduce_window_type, eval=_reduce_window,
    vjp=written_in("window_grad", "reduce_window_vjp"),
    results=MANY, source="StableHLO reduce_window",
    samples=lambda rng: [
        ((rng.random((5, 6)), np.float64(0)), _window_attrs(2, window_dimensions=(2, 3), body=monoid_body(add, F64), **more))
        for more in ({}, {"window_strides": (2, 1), "padding_low": (1, -1), "padding_high": (0, 2)},
                     {"base_dilations": (2, 1), "window_dilations": (1, 2)})
    ] + [
        ((rng.random((5, 6)), np.float64(-np.inf)),
         _window_attrs(2, window_dimensions=(2, 2), body=monoid_body(maximum, F64), **more))
        for more in ({}, {"window_strides": (2, 3), "padding_low": (1, -1), "padding_high": (0, 1)}, {"window_dilations": (2, 1)})
    ] + [
        ((rng.random(7), np.float64(init)),
         _window_attrs(1, window_dimensions=(w,), padding_low=(w - 1,), body=monoid_body(op, F64)))
        for op, init, w in ((multiply, 1, 7), (minimum, np.inf, 3), (multiply, 0.5, 2), (add, 0.5, 4))
    ],
)  # fmt: skip


# --- select_and_scatter -------------------------------------------------------------------------------------------


_SCATTER_WINDOW = ("window_dimensions", "window_strides", "padding_low", "padding_high")


def _select_and_scatter_type(types: Sequence[Type], sizes: Axes, strides: Axes, low: Axes, high: Axes, select: Function,
                             scatter: Function) -> Type:
    operand, source = as_tensor(types[0], 0), as_tensor(types[1], 1)
    if operand.dims is not None and source.dims is not None:
        counts = tuple(map(window_count, operand.dims, sizes, strides, low, high))
        try:
            merge_dims(counts, source.dims)
        except InferError:
            raise InferError(f"the source is a {source}", operand=1, expected=str(source.with_dims(counts))) from None
    return operand


def _select_and_scatter(xs: Sequence[Array], sizes: Axes, strides: Axes, low: Axes, high: Axes, select: Function,
                        scatter: Function) -> Array:
    operand, source, init = xs
    rank = operand.ndim
    ones = (1,) * rank
    view = windows_of(spread_and_pad(operand, 0, low, high, ones), sizes, strides, ones)
    inside = windows_of(spread_and_pad(np.ones(operand.shape, np.bool_), False, low, high, ones), sizes, strides, ones)
    numbers = np.arange(operand.size).reshape(operand.shape)
    places = windows_of(spread_and_pad(numbers, -1, low, high, ones), sizes, strides, ones)
    best, chosen = np.zeros(source.shape, operand.dtype), np.full(source.shape, -1)
    for at in np.ndindex(*sizes):
        pick = (slice(None),) * rank + at
        value, here, number = view[pick], inside[pick], places[pick]
        keep = np.broadcast_to(combine(select, [best], [value])[0], source.shape).astype(np.bool_) & (chosen >= 0)
        better = here & ~keep
        best, chosen = np.where(better, value, best), np.where(better, number, chosen)
    result = np.broadcast_to(init, operand.shape).reshape(-1).copy()
    hit = np.flatnonzero(chosen.reshape(-1) >= 0)
    places, values = chosen.reshape(-1)[hit], source.reshape(-1)[hit]
    if scatter.reducer is not None and scatter.reducer.monoid is not None:
        scatter.reducer.monoid.at(result, places, values)
    elif hit.size:
        in_rounds([result], places, [values], scatter)
    return result.reshape(operand.shape)


def _ge_body() -> Function:
    t = scalar(F64)
    return Builder().function("ge", (("a", t), ("b", t)), lambda x, y: [Builder()(compare, x, y, direction="GE")], public=False)


select_and_scatter: Op = Op(
    "select_and_scatter", "Each source element combined into the place that its window of the operand selects.",
    operands=(Operand("operand", type=TENSOR), Operand("source", type=TENSOR), Operand("init_value", type=TENSOR & SCALAR)),
    attrs=(*_window_attrs_of(*_SCATTER_WINDOW), Attr("select", "function", summary="(kept, candidate) -> whether it is kept"),
           Attr("scatter", "function", summary="(total, source element) -> total")),
    constraints=(same_element_type("operand", "source", "init_value"), one_for_each_axis("operand", *_SCATTER_WINDOW),
                 combines("select", "operand"), combines("scatter", "source")),
    infer=_select_and_scatter_type, eval=_select_and_scatter,
    vjp=written_in("window_grad", "select_and_scatter_vjp"), source="StableHLO select_and_scatter",
    samples=lambda rng: [((rng.random((4, 6)), rng.random(counts), np.float64(0.5)), {
        "window_dimensions": sizes, "window_strides": (2, 2), "padding_low": low, "padding_high": high,
        "select": _ge_body(), "scatter": monoid_body(op, F64)})
        for counts, sizes, low, high, op in (
            ((2, 3), (2, 2), (0, 0), (0, 0), add), ((3, 2), (3, 2), (1, 0), (2, -1), add), ((4, 3), (2, 2), (4, 0), (0, 1), add),
            ((2, 2), (3, 3), (1, 0), (0, -1), multiply))],
)  # fmt: skip

# --- convolution --------------------------------------------------------------------------------------------------

_DIMS = ("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions", "kernel_input_feature_dimension",
         "kernel_output_feature_dimension", "kernel_spatial_dimensions", "output_batch_dimension", "output_feature_dimension",
         "output_spatial_dimensions")


_SPATIAL = ("window_strides", "padding_low", "padding_high", "lhs_dilation", "rhs_dilation", "window_reversal")


def _convolution_type(types: Sequence[Type], *attrs: Any) -> Type:
    lhs, rhs = as_tensor(types[0], 0), as_tensor(types[1], 1)
    strides, low, high, base, dilations, _, ib, ifeature, isp, ki, ko, ks, ob, of, osp, groups, batch_groups = attrs
    if lhs.dims is None or rhs.dims is None:
        return lhs.with_dims(None)
    _check_groups(lhs, rhs, lhs.dims[ifeature], rhs.dims[ki], rhs.dims[ko], lhs.dims[ib], groups, batch_groups)
    rank = len(isp)
    window = tuple(rhs.dims[k] for k in ks)
    dims: list[Dim] = [0] * len(lhs.dims)
    batch = lhs.dims[ib]
    dims[ob] = batch // batch_groups if isinstance(batch, int) else batch
    dims[of] = rhs.dims[ko]
    for k in range(rank):
        size = window[k]
        if not isinstance(size, int):
            raise InferError(f"the window of {rhs} is not known", operand=1)
        dims[osp[k]] = window_count(lhs.dims[isp[k]], size, strides[k], low[k], high[k], base[k], dilations[k])
    return lhs.with_dims(dims)


def _check_groups(lhs: TensorType, rhs: TensorType, features: Dim, per_group: Dim, outputs: Dim, batch: Dim, groups: int,
                  batch_groups: int) -> None:
    if isinstance(features, int) and isinstance(per_group, int) and features != per_group * groups:
        raise InferError(f"{features} input features of {lhs} for {groups} groups of {per_group} in {rhs}", operand=1)
    if isinstance(outputs, int) and (outputs % groups or outputs % batch_groups):
        raise InferError(f"{outputs} output features do not make {max(groups, batch_groups)} groups", operand=1)
    if isinstance(batch, int) and batch % batch_groups:
        raise InferError(f"a batch of {batch} does not make {batch_groups} groups", operand=0)


def _convolution(xs: Sequence[Array], *attrs: Any) -> Array:
    x, w = xs
    strides, low, high, base, dilations, reversal, ib, ifeature, isp, ki, ko, ks, ob, of, osp, groups, batch_groups = attrs
    rank = len(isp)
    images = np.transpose(x, (ib, ifeature, *isp))
    kernel = np.transpose(w, (ko, ki, *ks))
    flips = tuple(2 + k for k in range(rank) if reversal[k])
    kernel = np.flip(kernel, flips) if flips else kernel
    if x.dtype.itemsize < 4 and x.dtype.kind != "b" and not is_int(x):
        images, kernel = images.astype(np.float32), kernel.astype(np.float32)
    padded = spread_and_pad(images, 0, (0, 0, *low), (0, 0, *high), (1, 1, *base))
    view = windows_of(padded, (1, 1, *kernel.shape[2:]), (1, 1, *strides), (1, 1, *dilations))
    view = np.squeeze(view, (2 + rank, 3 + rank))
    total = _grouped(view, kernel, rank, groups, batch_groups)
    order = np.argsort((ob, of, *osp))
    return np.asarray(np.transpose(total, order), dtype=x.dtype)


_MANY_WINDOWS = 64
"""From so many windows an image on, images are done one by one: their windows, laid out, stay in a cache."""

_CACHED_BYTES = 4 << 20


def _grouped(view: Array, kernel: Array, rank: int, groups: int, batch_groups: int) -> Array:
    """view (n, c, windows..., sizes...) and kernel (o, c / groups, sizes...) to (n, o, windows...)."""
    n, outputs, per_group = view.shape[0], kernel.shape[0], kernel.shape[1]
    parts, out = groups * batch_groups, outputs // (groups * batch_groups)
    if groups > 1 and per_group == 1 and batch_groups == 1 and not is_int(view):
        return _depthwise(view, kernel, rank, groups)
    found = []
    for g in range(parts):
        rows = slice(g * n // batch_groups, (g + 1) * n // batch_groups) if batch_groups > 1 else slice(None)
        columns = slice(g * per_group, (g + 1) * per_group) if groups > 1 else slice(None)
        found.append(_one_group(view[rows, columns], kernel[g * out : (g + 1) * out], rank))
    return found[0] if parts == 1 else np.concatenate(found, axis=1)


def _one_group(view: Array, kernel: Array, rank: int) -> Array:
    """view (n, c, windows..., sizes...) and kernel (o, c, sizes...) to (n, o, windows...): one matrix product, or one an image."""
    n, channels, *spatial = view.shape[: 2 + rank]
    count, depth = math.prod(spatial), channels * math.prod(kernel.shape[2:])
    weights = kernel.reshape(len(kernel), depth)
    if count >= _MANY_WINDOWS and view.dtype.kind in "fc" and depth:
        return _by_image(view, weights, rank)
    moved = np.moveaxis(view, 1, 1 + rank).reshape(n * count, depth)
    total = products(moved, weights.T).reshape(n, *spatial, len(kernel))
    return np.moveaxis(total, -1, 1)


def _by_image(view: Array, weights: Array, rank: int) -> Array:
    """Windows are laid out side by side, as many rows of them as a cache holds, and multiplied from the left."""
    n, _, *spatial = view.shape[: 2 + rank]
    outputs, depth = weights.shape
    rest = math.prod(spatial[1:])
    rows = max(1, min(spatial[0], _CACHED_BYTES // max(1, depth * rest * view.dtype.itemsize))) if spatial else 1
    laid = np.moveaxis(view, range(2, 2 + rank), range(-rank, 0))  # (n, c, sizes..., windows...)
    total = np.empty((n, outputs, *spatial), view.dtype)
    buffer = np.empty((*laid.shape[1 : 2 + rank], rows, *spatial[1:]), view.dtype)
    for image in range(n):
        for start in range(0, spatial[0], rows):
            some = min(rows, spatial[0] - start)
            columns = buffer[(slice(None),) * (1 + rank) + (slice(some),)]
            at = (Ellipsis, slice(start, start + some)) + (slice(None),) * (rank - 1)
            columns[...] = laid[(image, *at)]
            total[(image, *at)] = np.matmul(weights, columns.reshape(depth, some * rest)).reshape(outputs, some, *spatial[1:])
    return total


def _depthwise(view: Array, kernel: Array, rank: int, groups: int) -> Array:
    """One input feature a group: a sum over the places of the window, each of whole arrays."""
    n, _, *spatial = view.shape[: 2 + rank]
    out = kernel.shape[0] // groups
    total = np.zeros((n, groups, out, *spatial), view.dtype)
    weights = kernel.reshape(groups, out, *kernel.shape[2:])
    for place in np.ndindex(*kernel.shape[2:]):
        factors = weights[(slice(None), slice(None), *place)].reshape((1, groups, out) + (1,) * rank)
        total += view[(Ellipsis, *place)][:, :, None] * factors
    return total.reshape(n, groups * out, *spatial)


def _conv_attrs(rank: int, **given: Any) -> dict[str, Any]:
    spatial = tuple(range(2, 2 + rank))
    plain = {"window_strides": (1,) * rank, "padding_low": (0,) * rank, "padding_high": (0,) * rank, "lhs_dilation": (1,) * rank,
             "rhs_dilation": (1,) * rank, "window_reversal": (0,) * rank, "feature_group_count": 1, "batch_group_count": 1,
             **dict(zip(_DIMS, (0, 1, spatial, 1, 0, spatial, 0, 1, spatial), strict=True))}  # fmt: skip
    return {**plain, **given}


convolution: Op = Op(
    "convolution", "Products of the kernel with every window of the input, summed over the window and the input features.",
    operands=pair(TENSOR),
    attrs=(
        *_window_attrs_of(*_SPATIAL[:-1]),
        Attr("window_reversal", "ints", summary="1 for each spatial axis along which the kernel is turned round",
             check=NON_NEGATIVE & at_most(1)),
        *(Attr(name, "ints" if name.endswith("s") else "int", check=NON_NEGATIVE) for name in _DIMS),
        Attr("feature_group_count", "int", 1, check=POSITIVE), Attr("batch_group_count", "int", 1, check=POSITIVE),
    ),
    constraints=(
        same_element_type("lhs", "rhs"), axes_of("lhs", *_DIMS[:3]), axes_of("rhs", *_DIMS[3:6]), axes_of("lhs", *_DIMS[6:]),
        equally_many(_DIMS[2], _DIMS[5], _DIMS[8], *_SPATIAL),
        *(Relation(f"a number for each axis of {operand} in {spatial}, beside the two others", (operand, spatial),
                   lambda type, axes: type.rank is None or type.rank == len(axes) + 2)
          for operand, spatial in (("lhs", _DIMS[2]), ("rhs", _DIMS[5]))),
        Relation("feature_group_count or batch_group_count to be 1", ("feature_group_count", "batch_group_count"),
                 lambda features, batch: 1 in (features, batch)),
    ),
    infer=_convolution_type, eval=_convolution, vjp=written_in("convolution_grad", "convolution_vjp"),
    source="StableHLO convolution",
    samples=lambda rng: [
        ((rng.random((2, 4, 5, 6)), rng.random((6, 4, 2, 3))), _conv_attrs(2)),
        ((rng.random((2, 4, 5, 6)), rng.random((6, 2, 2, 3))), _conv_attrs(
            2, feature_group_count=2, padding_low=(1, -1), padding_high=(0, 2), window_strides=(2, 1))),
        ((rng.random((4, 3, 5)), rng.random((6, 3, 2))), _conv_attrs(
            1, batch_group_count=2, lhs_dilation=(2,), window_reversal=(1,))),
        ((rng.random((2, 3, 4, 3)), rng.random((2, 2, 3, 5))), _conv_attrs(2, rhs_dilation=(1, 2), **dict(zip(
            _DIMS, (0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)), strict=True)))),
        ((rng.random((2, 3)), rng.random((4, 3))), _conv_attrs(0)),
        ((rng.random((2, 4, 7)), rng.random((4, 2, 2))), _conv_attrs(
            1, feature_group_count=2, window_strides=(2,), lhs_dilation=(3,), rhs_dilation=(2,),
            padding_low=(-2,), padding_high=(3,), window_reversal=(1,))),
        ((rng.random((5, 6, 4)), rng.random((3, 2, 4))), _conv_attrs(
            1, batch_group_count=2, window_strides=(2,), padding_low=(1,),
            **dict(zip(_DIMS, (1, 2, (0,), 2, 1, (0,), 2, 0, (1,)), strict=True)))),
    ],
)  # fmt: skip

WINDOW: tuple[Op, ...] = (reduce_window, select_and_scatter, convolution)
