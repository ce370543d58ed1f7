"""Reductions, running results, and the greatest: ReduceX, ArgMax, CumSum, TopK, Softmax and its kind."""

from __future__ import annotations

import math
from collections.abc import Callable

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node, Op
from deepx_graph.text.common.elements import count, extreme_index, kept, running, total
from deepx_graph.text.common.nn import back, log_softmax, softmax
from deepx_graph.text.common.steps import axis_of, comparator
from deepx_graph.text.onnx.context import NodeContext, Rule, Rules
from deepx_graph.types import BOOL, F32, F64, I32, I64, U8, DType

Axes = tuple[int, ...]


def reduced_axes(c: NodeContext, since: int) -> Axes | None:
    """The axes that a reduction goes over; None where it goes over none and is but what it does to each element."""
    given = c.axes_at(1) if c.version >= since else c.ints("axes") if c.given("axes") else None
    if not given:
        return None if c.flag("noop_with_empty_axes") else tuple(range(c.rank()))
    return tuple(sorted({axis_of(a, c.rank()) for a in given}))


def _reduction(op: Op, before: Callable[[NodeContext, Node], Node] | None = None,
               after: Callable[[NodeContext, Node, Node, Axes], Node] | None = None, since: int = 18) -> Rule:
    def build(c: NodeContext) -> Node:
        x, axes = c.node(), reduced_axes(c, since)
        over = () if axes is None else axes
        prepared = before(c, x) if before is not None else x
        made = total(c, op, prepared, over)
        if after is not None:
            made = after(c, made, x, over)
        return kept(c, made, c.dims(), over, axes is not None and c.flag("keepdims", True))

    return build


def _squares(c: NodeContext, x: Node) -> Node:
    return c(ops.multiply, x, x)


def _root(c: NodeContext, t: Node, x: Node, axes: Axes) -> Node:
    if c.dtype_of(t).is_float:
        return c(ops.sqrt, t)
    return c.cast(c(ops.sqrt, c.cast(t, F64)), c.dtype_of(t))


def _log(c: NodeContext, t: Node, x: Node, axes: Axes) -> Node:
    if c.dtype_of(t).is_float:
        return c(ops.log, t)
    return c.cast(c(ops.log, c.cast(t, F64)), c.dtype_of(t))


def _average(c: NodeContext, t: Node, x: Node, axes: Axes) -> Node:
    return c(ops.divide, t, c.like(count(c, x, axes), t)) if axes else t


def _log_sum_exp(c: NodeContext) -> Node:
    """log of the sum of exponentials, without overflow; the greatest value where that is infinite."""
    x, axes = c.node(), reduced_axes(c, 18)
    if axes is None:
        return x
    most = total(c, ops.maximum, x, axes)
    shift = c(ops.select, c(ops.is_finite, most), most, c.full(0, c.type_of(most))) if c.dtype().is_float else most
    off = c(ops.subtract, x, back(c, shift, x, axes)) if axes else c(ops.subtract, x, shift)
    wide = c.cast(off, F64) if not c.dtype().is_float else off
    found = c(ops.add, c.cast(c(ops.log, total(c, ops.add, c(ops.exponential, wide), axes)), c.dtype()), shift)
    return kept(c, found, c.dims(), axes, c.flag("keepdims", True))


# --- the greatest ---------------------------------------------------------------------------------------------------


def _arg(direction: str) -> Rule:
    def build(c: NodeContext) -> Node:
        x, axis = c.node(), c.axis(default=0)
        shape = c.shape()
        last = c.flag("select_last_index")
        found = extreme_index(c, c.cast(x, U8) if c.dtype() is BOOL else x, axis, direction, last)
        dims = [1 if k == axis else d for k, d in enumerate(shape)]
        return c.shaped(found, dims if c.flag("keepdims", True) else [d for k, d in enumerate(shape) if k != axis])

    return build


def _top_k(c: NodeContext) -> list[Node]:
    x, shape = c.node(), c.shape()
    k = int(c.number_at(1)) if c.version >= 10 else c.number("k")
    axis = c.axis(default=-1)
    if not 0 <= k <= shape[axis]:
        raise InferError(f"k = {k} of {shape[axis]} elements", expected=f"0 to {shape[axis]}")
    largest = c.flag("largest", True)
    places = c.indices(I32, shape, axis)
    found = c(ops.sort, x, places, dimension=axis, comparator=comparator((c.dtype(), I32), "GT" if largest else "LT"))
    limit = [k if j == axis else d for j, d in enumerate(shape)]
    parts = [c.sliced(c.b.proj(found, j), (0,) * len(shape), limit) for j in (0, 1)]
    return [parts[0], c.cast(parts[1], I64)]


# --- running results ------------------------------------------------------------------------------------------------


def _running(op: Op) -> Rule:
    def build(c: NodeContext) -> Node:
        x, shape = c.node(), c.shape()
        axis = axis_of(int(c.number_at(1)), len(shape))
        reverse, exclusive = c.flag("reverse"), c.flag("exclusive")
        if reverse:
            x = c(ops.reverse, x, dimensions=(axis,))
        if exclusive and shape[axis]:
            ones = c.full(op.identity_for(c.dtype()), c.type().with_dims([1 if k == axis else d for k, d in enumerate(shape)]))
            rest = c.sliced(x, (0,) * len(shape), [d - (k == axis) for k, d in enumerate(shape)])
            x = c(ops.concatenate, ones, rest, dimension=axis)
        if shape[axis]:
            x = running(c, op, x, axis)
        return c(ops.reverse, x, dimensions=(axis,)) if reverse else x

    return build


# --- softmax --------------------------------------------------------------------------------------------------------


def _normalised(build: Callable[..., Node]) -> dict[int, Rule]:
    """A function of one axis; before version 13 of all axes from one on, taken together."""

    def coerced(c: NodeContext) -> Node:
        shape, axis = c.shape(), c.number("axis", 1)
        axis = axis_of(axis, len(shape)) if axis != len(shape) else axis
        x = c.shaped(c.node(), (math.prod(shape[:axis]), math.prod(shape[axis:])))
        return c.shaped(build(c, x, (1,)), shape)

    return {1: coerced, 13: lambda c: build(c, c.node(), (c.axis(default=-1),))}


def _precise(build: Callable[..., Node]) -> Callable[..., Node]:
    """In single precision where elements are narrower."""

    def wide(c: NodeContext, x: Node, axes: Axes) -> Node:
        dtype: DType = c.dtype_of(x)
        return c.cast(build(c, c.cast(x, F32), axes), dtype) if dtype.bits < 32 else build(c, x, axes)

    return wide


def _hardmax(c: NodeContext, x: Node, axes: Axes) -> Node:
    """One where the first greatest element is, and zero."""
    (axis,) = axes
    dims = c.dims_of(x)
    first = extreme_index(c, x, axis, "GT")
    hit = c(ops.compare, c.indices(I64, dims, axis), back(c, first, x, axes), direction="EQ")
    return c(ops.convert, hit, dtype=c.dtype_of(x))


REDUCE: Rules = {
    "ReduceSum": _reduction(ops.add, since=13), "ReduceProd": _reduction(ops.multiply), "ReduceMax": _reduction(ops.maximum),
    "ReduceMin": _reduction(ops.minimum), "ReduceMean": _reduction(ops.add, after=_average),
    "ReduceL1": _reduction(ops.add, lambda c, x: c(ops.abs_, x)), "ReduceL2": _reduction(ops.add, _squares, _root),
    "ReduceSumSquare": _reduction(ops.add, _squares), "ReduceLogSum": _reduction(ops.add, after=_log),
    "ReduceLogSumExp": _log_sum_exp, "ArgMax": _arg("GT"), "ArgMin": _arg("LT"), "TopK": _top_k,
    "CumSum": _running(ops.add), "CumProd": _running(ops.multiply),
    "Softmax": _normalised(_precise(softmax)), "LogSoftmax": _normalised(_precise(log_softmax)), "Hardmax": _normalised(_hardmax),
}  # fmt: skip
