"""Operations over sliding windows: reduce_window, select_and_scatter; and windows as views, which convolution reads too.

Windows are strided views of the padded operand, so a pooling is one reduction of whole arrays. Padding is (low, high) per axis and
may be negative; dilation puts gaps between elements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Attr, Builder, Function, Op, Operand
from deepx_graph.ir.constraint import (
    NON_NEGATIVE,
    POSITIVE,
    SCALAR,
    TENSOR,
    combines,
    one_for_each_axis,
    same_element_type,
    same_element_types,
    same_shape,
    some,
)
from deepx_graph.ir.evaluation import WORD, wide
from deepx_graph.ir.signature import MANY
from deepx_graph.literal import Array
from deepx_graph.ops.contract.reduce import REDUCED, REDUCER, monoid_body
from deepx_graph.ops.factors.contract import SELECT_AND_SCATTER, WINDOW
from deepx_graph.ops.helpers import loops_in, staged_in, written_in
from deepx_graph.ops.interpret import combine, report_fallback
from deepx_graph.ops.math.elementwise import add, compare, maximum, minimum, multiply
from deepx_graph.ops.tensor.index import in_rounds
from deepx_graph.ops.tensor.shape import spread_and_pad
from deepx_graph.types import (
    F64,
    Dim,
    TupleType,
    Type,
    as_tensor,
    call_dim,
    dilated,
    dtype_of,
    merge_dims,
    nbytes,
    scalar,
    tensor,
    windows_along,
)

Axes = tuple[int, ...]


def window_count(size: Dim, window: int, stride: int, low: int, high: int, base: int = 1, dilation: int = 1) -> Dim:
    """How many windows fit along an axis; symbolic for a symbolic size."""
    return call_dim("window", size, window, stride, low + high, base, dilation)


def windows_of(x: Array, sizes: Axes, strides: Axes, dilations: Axes) -> Array:
    """A view of shape (windows..., sizes...): every window of an already padded array."""
    counts = [windows_along(s, w, t, 0, 1, d) for s, w, t, d in zip(x.shape, sizes, strides, dilations, strict=True)]
    steps = [s * t for s, t in zip(x.strides, strides, strict=True)] + [s * d for s, d in zip(x.strides, dilations, strict=True)]
    shape = (*counts, *sizes)
    if 0 in shape:
        return np.empty(shape, x.dtype)
    raw = x.view(f"V{x.itemsize}")  # numpy cannot name each dtype
    return np.lib.stride_tricks.as_strided(raw, shape, steps, writeable=False).view(x.dtype)


# --- reduce_window ------------------------------------------------------------------------------------------------

_WINDOW = ("window_dimensions", "window_strides", "base_dilations", "window_dilations", "padding_low", "padding_high")


def window_attrs_of(*names: str) -> tuple[Attr, ...]:
    """Window attributes: the size of a window, steps of at least 1, padding of any sign."""
    return tuple(Attr(n, "ints", neutral=0) if n.startswith("padding") else Attr(n, "ints", check=NON_NEGATIVE) if n == _WINDOW[0]
                 else Attr(n, "ints", check=POSITIVE, neutral=1) for n in names)


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
        axis = running_axis(xs[0].shape, sizes, (strides, base, dilations), low, high)
        if axis is not None:
            return _running(op, xs[0], xs[1], axis, max(low[axis], high[axis]) - sizes[axis] + 1, backwards=high[axis] > 0)
    padded = [spread_and_pad(x, init, low, high, base) for x, init in zip(xs[:half], xs[half:], strict=True)]
    views = [windows_of(p, sizes, strides, dilations) for p in padded]
    counts = views[0].shape[: xs[0].ndim]
    if op is not None and math.prod(sizes) > math.prod(counts) > 0:
        return _few_windows(op, views[0], xs[1])
    if op is not None:
        return _position_by_position(op, views[0], xs[1], sizes)
    report_fallback("one position of the window after the other")
    totals: Sequence[Array] = [np.broadcast_to(i, counts).copy() for i in xs[half:]]
    for at in np.ndindex(*sizes):
        totals = combine(body, totals, [v[(slice(None),) * xs[0].ndim + at] for v in views])
    results = tuple(np.asarray(t, dtype=x.dtype) for t, x in zip(totals, xs, strict=False))
    return results[0] if half == 1 else results


def _position_by_position(op: Op, view: Array, init: Array, sizes: Axes) -> Array:
    """Small windows: all first elements, then all second ones, and so on."""
    assert op.monoid is not None
    rank = view.ndim // 2
    positions = (view[(slice(None),) * rank + at] for at in np.ndindex(*sizes))
    return np.asarray(op.monoid.fold(init, positions, view.shape[:rank]))


def _few_windows(op: Op, view: Array, init: Array) -> Array:
    """Large windows, one reduction each."""
    assert op.monoid is not None and op.eval is not None
    rank = view.ndim // 2
    totals = np.empty(view.shape[:rank], view.dtype)
    for at in np.ndindex(*totals.shape):
        totals[at] = op.monoid(view[at], tuple(range(rank)))
    return np.asarray(op.eval([totals, init]), dtype=view.dtype)


def running_axis(shape: Axes, sizes: Axes, factors: Sequence[Axes], low: Axes, high: Axes) -> int | None:
    """The axis along which every window reaches from one end of the operand to its own position; None where they do not.

    Padding holds the initial value, so only where that is the identity are such windows running results. What is padded more than
    that, as the zero in front of sums up to each element, makes windows of padding alone at that end.
    """
    moving = [k for k, size in enumerate(sizes) if size != 1]
    if len(moving) != 1 or any(f != 1 for values in factors for f in values) or 0 in shape:
        return None
    (axis,) = moving
    least, most = sorted((low[axis], high[axis]))
    still = all(low[k] == high[k] == 0 for k in range(len(shape)) if k != axis)
    reach = sizes[axis] - 1
    return axis if still and reach >= shape[axis] - 1 and least == 0 and most >= reach else None


def _running(op: Op, x: Array, init: Array, axis: int, empty: int, *, backwards: bool) -> Array:
    """A cumulative sum, product, ...: one scan, behind so many windows of padding."""
    assert op.monoid is not None and op.eval is not None
    found = op.monoid.scan(np.flip(x, axis) if backwards else x, axis)
    if empty:
        found = np.concatenate([np.full((*x.shape[:axis], empty, *x.shape[axis + 1 :]), init, found.dtype), found], axis)
    return np.asarray(op.eval([np.flip(found, axis) if backwards else found, init]), dtype=x.dtype)


def _reduce_window_scratch(types: Sequence[Type], result: Type, sizes: Axes, strides: Axes, base: Axes, dilations: Axes, low: Axes,
                           high: Axes, body: Function) -> int:
    """The padded operands, totals before and after a position of the window, and one window in the type that sums are taken in."""
    inputs = [as_tensor(t) for t in types[: len(types) // 2]]
    padded = _padded_size(inputs[0].shape, low, high, base)
    running = running_axis(inputs[0].shape, sizes, (strides, base, dilations), low, high) is not None
    copies = 4 if running else 1
    return sum(copies * padded * x.dtype.itemsize for x in inputs) + nbytes(result) + 2 * wide(result) + WORD * min(
        padded, math.prod(sizes))


def _padded_size(shape: Axes, low: Axes, high: Axes, base: Axes) -> int:
    return math.prod(max(0, dilated(s, d) + lo + hi) for s, d, lo, hi in zip(shape, base, low, high, strict=True))


def _window_attrs(rank: int, **given: Any) -> dict[str, Any]:
    plain = {"window_strides": (1,) * rank, "base_dilations": (1,) * rank, "window_dilations": (1,) * rank,
             "padding_low": (0,) * rank, "padding_high": (0,) * rank}  # fmt: skip
    return {**plain, **given}


reduce_window: Op = Op(
    "reduce_window", "Each window's elements combined into one.",
    operands=REDUCED, attrs=(*window_attrs_of(*_WINDOW), REDUCER),
    constraints=(some("inputs"), same_shape("inputs"), same_element_types("inputs", "init_values"),
                 one_for_each_axis("inputs", *_WINDOW), combines("body", "inputs")),
    sharding=WINDOW,
    algebraic=True, infer=_reduce_window_type, eval=_reduce_window,
    staged=staged_in("contract.window_staged", "reduce_window_staged"),
    element=loops_in("window", "reduce_window_element"),
    loops=loops_in("window", "reduce_window_loops"), scratch=_reduce_window_scratch,
    vjp=written_in("reduce", "reduce_window_vjp"),
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
            raise InferError(f"the source is {an(source)}", operand=1, expected=str(source.with_dims(counts))) from None
    return operand


def _select_and_scatter(xs: Sequence[Array], sizes: Axes, strides: Axes, low: Axes, high: Axes, select: Function,
                        scatter: Function) -> Array:
    operand, source, init = xs
    rank = operand.ndim
    ones = (1,) * rank
    view = windows_of(spread_and_pad(operand, 0, low, high, ones), sizes, strides, ones)
    numbers = np.arange(operand.size).reshape(operand.shape)
    positions = windows_of(spread_and_pad(numbers, -1, low, high, ones), sizes, strides, ones)
    best, chosen, padded = np.zeros(source.shape, operand.dtype), np.full(source.shape, -1), any(low) or any(high)
    for at in np.ndindex(*sizes):
        pick = (slice(None),) * rank + at
        value, number = view[pick], positions[pick]
        keep = combine(select, [best], [value])[0]
        if padded or not any(at):
            keep = keep & (chosen >= 0)
        better = (number >= 0) & ~keep if padded else ~keep
        best, chosen = np.where(better, value, best), np.where(better, number, chosen)
    result = np.broadcast_to(init, operand.shape).reshape(-1).copy()
    hit = np.flatnonzero(chosen.reshape(-1) >= 0)
    positions, values = chosen.reshape(-1)[hit], source.reshape(-1)[hit]
    if scatter.reducer is not None and scatter.reducer.monoid is not None:
        scatter.reducer.monoid.at(result, positions, values)
    elif hit.size:
        in_rounds([result], positions, [values], scatter)
    return result.reshape(operand.shape)


def _select_and_scatter_scratch(types: Sequence[Type], result: Type, sizes: Axes, strides: Axes, low: Axes, high: Axes,
                                *bodies: Function) -> int:
    """Padded copies of the operand, its positions and where it is; for each window what is chosen, and the candidate."""
    operand, source = as_tensor(types[0]), as_tensor(types[1])
    padded = _padded_size(operand.shape, low, high, (1,) * len(operand.shape))
    each = operand.dtype.itemsize
    return padded * (each + WORD) + operand.size * 2 * WORD + source.size * (6 * WORD + 3 * each)


def _preferring(direction: str) -> Function:
    t, b = scalar(F64), Builder()
    return b.function("prefer", (("a", t), ("b", t)), lambda x, y: [b(compare, x, y, direction=direction)], public=False)


select_and_scatter: Op = Op(
    "select_and_scatter", "Each source element combined into the position that its window of the operand selects.",
    operands=(Operand("operand", type=TENSOR), Operand("source", type=TENSOR), Operand("init_value", type=TENSOR & SCALAR)),
    attrs=(*window_attrs_of(*_SCATTER_WINDOW), Attr("select", "function", summary="(kept, candidate) -> whether it is kept"),
           Attr("scatter", "function", summary="(total, source element) -> total")),
    constraints=(same_element_type("operand", "source", "init_value"), one_for_each_axis("operand", *_SCATTER_WINDOW),
                 combines("select", "operand"), combines("scatter", "source")),
    sharding=SELECT_AND_SCATTER,
    algebraic=True, infer=_select_and_scatter_type, eval=_select_and_scatter, loops=loops_in("window", "select_and_scatter_loops"),
    scratch=_select_and_scatter_scratch,
    vjp=written_in("reduce", "select_and_scatter_vjp"), source="StableHLO select_and_scatter",
    samples=lambda rng: [((rng.random((4, 6)), rng.random(counts), np.float64(0.5)), {
        "window_dimensions": sizes, "window_strides": strides, "padding_low": low, "padding_high": high,
        "select": _preferring(select), "scatter": monoid_body(op, F64)})
        for counts, sizes, strides, low, high, select, op in (
            ((2, 3), (2, 2), (2, 2), (0, 0), (0, 0), "GE", add), ((3, 2), (3, 2), (2, 2), (1, 0), (2, -1), "GE", add),
            ((4, 3), (2, 2), (2, 2), (4, 0), (0, 1), "GE", add), ((2, 2), (3, 3), (2, 2), (1, 0), (0, -1), "GE", multiply),
            ((3, 2), (2, 3), (1, 3), (0, 0), (0, 0), "LE", add))],
)  # fmt: skip
