"""Reductions, running results, order: sums and means, the greatest and where it is, sorting."""

from __future__ import annotations

import math
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node, Op
from deepx_graph.text.common.elements import count, extreme_index, kept, mean, part_of, running, total
from deepx_graph.text.common.nn import back, log_softmax, softmax
from deepx_graph.text.common.steps import Unsupported, comparator
from deepx_graph.text.torch.context import CallContext, Rule, Rules
from deepx_graph.text.torch.promotion import promoted
from deepx_graph.text.torch.rules.elementwise import floating
from deepx_graph.types import BOOL, F32, I32, I64, U8, DType, as_tensor

Axes = tuple[int, ...]


def over(c: CallContext, x: Node) -> tuple[Axes, bool]:
    """The axes of a reduction, and whether they are kept as ones."""
    return c.axes("dim", x), c.flag("keepdim")


def _reduction(op: Op) -> Rule:
    """In the declared type of the result: integers are summed as int64."""

    def build(c: CallContext) -> Node:
        x = c.to(c.node(), c.result_type())
        axes, keep = over(c, x)
        return kept(c, total(c, op, x, axes), c.dims_of(x), axes, keep)

    return build


def _mean(c: CallContext) -> Node:
    x = c.to(c.node(), c.result_type())
    axes, keep = over(c, x)
    return kept(c, mean(c, x, axes) if axes else x, c.dims_of(x), axes, keep)


def _logical(op: Op) -> Rule:
    def build(c: CallContext) -> Node:
        x = c.to(c.node(), BOOL)
        axes, keep = over(c, x)
        return c.to(kept(c, total(c, op, x, axes), c.dims_of(x), axes, keep), c.result_type())

    return build


def _count_nonzero(c: CallContext) -> Node:
    x = c.to(c.to(c.node(), BOOL), I64)
    axes = c.axes("dim", x)
    return total(c, ops.add, x, axes)


# --- spread ---------------------------------------------------------------------------------------------------------


def spread(c: CallContext, x: Node, axes: Axes, correction: float) -> tuple[Node, Node]:
    """The variance with that many degrees of freedom less, and the mean."""
    middle = mean(c, x, axes)
    off = c(ops.subtract, x, back(c, middle, x, axes))
    squares = total(c, ops.add, c(ops.multiply, off, off), axes)
    number = count(c, x, axes) - correction
    return c(ops.divide, squares, c.like(max(number, 0.0), squares)), middle


def _variance(root: bool, both: bool) -> Rule:
    def build(c: CallContext) -> Any:
        x = c.node()
        axes, keep = over(c, x)
        unbiased = c.get("unbiased", True)
        correction = c.real("correction", 1.0) if c.has("correction") or unbiased else 0.0
        found, middle = spread(c, x, axes, correction)
        found = c(ops.sqrt, found) if root else found
        made = [kept(c, v, c.dims_of(x), axes, keep) for v in (found, middle)]
        return made if both else made[0]

    return build


def _norm(c: CallContext) -> Node:
    x = c.to(c.node(), c.result_type())
    axes, keep = over(c, x)
    return kept(c, norm_over(c, x, axes, c.real("ord", c.real("p", 2.0))), c.dims_of(x), axes, keep)


def norm_over(c: CallContext, x: Node, axes: tuple[int, ...], p: float) -> Node:
    """The p-norm of vectors that lie along some axes."""
    size = c(ops.abs_, x)
    if p == math.inf:
        return total(c, ops.maximum, size, axes)
    if p == -math.inf:
        return total(c, ops.minimum, size, axes)
    if p == 0:
        return total(c, ops.add, c.to(c(ops.compare, x, c.like(0, x), direction="NE"), c.dtype_of(x)), axes)
    if p == 1:
        return total(c, ops.add, size, axes)
    if p == 2:
        return c(ops.sqrt, total(c, ops.add, c(ops.multiply, x, x), axes))
    return c(ops.power, total(c, ops.add, c(ops.power, size, c.like(p, x)), axes), c.like(1 / p, x))


def _renormalised(c: CallContext) -> Node:
    """Slices along an axis made no longer than a bound."""
    x, axis, most = c.node(), c.axis("dim"), c.real("maxnorm")
    axes = tuple(k for k in range(len(c.dims_of(x))) if k != axis)
    size = norm_over(c, x, axes, c.real("p"))
    factor = c(ops.divide, c.like(most, size), c(ops.add, size, c.like(1e-7, size)))
    over_it = c(ops.compare, size, c.like(most, size), direction="GT")
    return c(ops.multiply, x, back(c, c(ops.select, over_it, factor, c.full(1, as_tensor(size.type))), x, axes))


def _log_sum_exp(c: CallContext) -> Node:
    x = floating(c)
    axes, keep = over(c, x)
    most = total(c, ops.maximum, x, axes)
    shift = c(ops.select, c(ops.is_finite, most), most, c.full(0, as_tensor(most.type)))
    off = c(ops.subtract, x, back(c, shift, x, axes)) if axes else c(ops.subtract, x, shift)
    found = c(ops.add, c(ops.log, total(c, ops.add, c(ops.exponential, off), axes)), shift)
    return kept(c, found, c.dims_of(x), axes, keep)


# --- the greatest ---------------------------------------------------------------------------------------------------


def _extreme(op: Op) -> Rule:
    """max and min: of all elements, along an axis with the places, or of two tensors."""

    def build(c: CallContext) -> Any:
        overload = c.call.operator.rpartition(".")[2]
        if overload == "other":
            return c(op, *c.pair())
        x = c.node()
        if overload == "dim":
            return _with_place(c, op, x)
        return total(c, op, x, tuple(range(len(c.dims_of(x)))))

    return build


def _with_place(c: CallContext, op: Op, x: Node) -> list[Node]:
    axis, keep = c.axis("dim"), c.flag("keepdim")
    if not c.dims_of(x):
        return [x, c.scalar(0, I64)]
    index = extreme_index(c, c.cast(x, U8) if c.dtype_of(x) is BOOL else x, axis, "GT" if op is ops.maximum else "LT")
    return [kept(c, v, c.dims_of(x), (axis,), keep) for v in (total(c, op, x, (axis,)), index)]


def _extremes(op: Op) -> Rule:
    def build(c: CallContext) -> Node:
        x = c.node()
        axes, keep = over(c, x)
        return kept(c, total(c, op, x, axes), c.dims_of(x), axes, keep)

    return build


def _both_extremes(c: CallContext) -> list[Node]:
    x = c.node()
    axes = (c.axis("dim"),) if c.has("dim") else tuple(range(len(c.dims_of(x))))
    return [kept(c, total(c, op, x, axes), c.dims_of(x), axes, c.flag("keepdim")) for op in (ops.minimum, ops.maximum)]


def _arg(direction: str) -> Rule:
    def build(c: CallContext) -> Node:
        x = c.node()
        dims = c.dims_of(x)
        if not c.has("dim"):
            flat = c.shaped(x, (math.prod(c.shape_of(x)),))
            return c.shaped(extreme_index(c, flat, 0, direction), (1,) * len(dims) if c.flag("keepdim") else ())
        if not dims:
            return c.scalar(0, I64)
        axis = c.axis("dim")
        return kept(c, extreme_index(c, x, axis, direction), dims, (axis,), c.flag("keepdim"))

    return build


# --- order ----------------------------------------------------------------------------------------------------------


def sorted_along(c: CallContext, x: Node, axis: int, descending: bool) -> list[Node]:
    """The elements in order, equal ones as they stood, and where each was."""
    if not c.dims_of(x):
        return [x, c.scalar(0, I64)]
    places = c.indices(I32, c.shape_of(x), axis)
    keys = c.cast(x, U8) if c.dtype_of(x) is BOOL else x
    found = c(ops.sort, keys, places, dimension=axis, comparator=comparator((c.dtype_of(keys), I32), "GT" if descending else "LT"))
    return [c.to(c.b.proj(found, 0), c.dtype_of(x)), c.cast(c.b.proj(found, 1), I64)]


def _sort(c: CallContext) -> list[Node]:
    return sorted_along(c, c.node(), c.axis("dim", -1), c.flag("descending"))


def _argsort(c: CallContext) -> Node:
    return sorted_along(c, c.node(), c.axis("dim", -1), c.flag("descending"))[1]


def _top_k(c: CallContext) -> list[Node]:
    x, k, axis = c.node(), c.number("k"), c.axis("dim", -1)
    return [part_of(c, v, axis, 0, k) if c.dims_of(v) else v for v in sorted_along(c, x, axis, c.flag("largest", True))]


def _kth_value(c: CallContext) -> list[Node]:
    x, k, axis = c.node(), c.number("k"), c.axis("dim", -1)
    found = sorted_along(c, x, axis, False)
    return [kept(c, c.shaped(part_of(c, v, axis, k - 1, k), [d for j, d in enumerate(c.dims_of(x)) if j != axis]), c.dims_of(x),
                 (axis,), c.flag("keepdim")) for v in found]


def _median(c: CallContext) -> Any:
    x = c.node()
    flat = not c.has("dim")
    if flat:
        x = c.shaped(x, (math.prod(c.shape_of(x)),))
    axis = 0 if flat else c.axis("dim")
    size = c.shape_of(x)[axis]
    if not size:
        raise InferError("the median of nothing")
    found = sorted_along(c, x, axis, False)
    k = (size - 1) // 2
    made = [c.shaped(part_of(c, v, axis, k, k + 1), [d for j, d in enumerate(c.dims_of(x)) if j != axis]) for v in found]
    return made[0] if flat else [kept(c, v, c.dims_of(x), (axis,), c.flag("keepdim")) for v in made]


def _bucketize(c: CallContext) -> Node:
    """How many boundaries are below each element."""
    sorted_first = c.call.operator.startswith("aten.searchsorted")
    edges, x = (c.node(0), c.node(1)) if sorted_first else (c.node(1), c.node(0))
    if len(c.dims_of(edges)) > 1 and c.dims_of(edges)[:-1] != c.dims_of(x)[:-1]:
        raise InferError(f"boundaries {edges.type} for {x.type}", expected="one line of them, or one for each row")
    right = c.flag("right") or c.get("side") == "right"
    n, dims = c.shape_of(edges)[-1], c.dims_of(x)
    wide = (*dims, n)
    spread_x = c.along(x, wide, range(len(dims)))
    line = c.along(edges, wide, (len(dims),)) if len(c.dims_of(edges)) == 1 else c.along(
        edges, wide, [*range(len(dims) - 1), len(dims)])
    line, spread_x = c.to(line, _joint(c, edges, x)), c.to(spread_x, _joint(c, edges, x))
    below = c(ops.compare, line, spread_x, direction="LE" if right else "LT")
    return total(c, ops.add, c.cast(below, I64), (len(dims),))


def _joint(c: CallContext, x: Node, y: Node) -> DType:
    return promoted(c.dtype_of(x), c.dtype_of(y))


# --- running results ------------------------------------------------------------------------------------------------


def _running(op: Op) -> Rule:
    def build(c: CallContext) -> Node:
        x = c.to(c.node(), c.result_type())
        axis = c.axis("dim")
        return running(c, op, x, axis) if c.dims_of(x) and c.shape_of(x)[axis] else x

    return build


def _running_extreme(op: Op) -> Rule:
    """The greatest or least so far, and where the last such is."""

    def build(c: CallContext) -> list[Node]:
        x, axis = c.node(), c.axis("dim")
        if not c.dims_of(x):
            return [x, c.full(0, as_tensor(x.type).with_dtype(I64))]
        best = running(c, op, x, axis)
        places = c.indices(I64, c.dims_of(x), axis)
        hit = c(ops.compare, x, best, direction="EQ")
        last = running(c, ops.maximum, c(ops.select, hit, places, c.full(0, as_tensor(places.type))), axis)
        return [best, last]

    return build


def _quantile(c: CallContext) -> Node:
    """Between the neighbours of a place in order, as a straight line has it."""
    x, q = c.node(), c.get("q")
    if isinstance(q, Node) or c.text("interpolation", "linear") != "linear":
        raise Unsupported("quantiles at places that are computed, or not on a line")
    flat = not c.has("dim")
    x = c.shaped(x, (math.prod(c.shape_of(x)),)) if flat else x
    axis = 0 if flat else c.axis("dim")
    place = float(q) * (c.shape_of(x)[axis] - 1)
    low, high = math.floor(place), math.ceil(place)
    order = sorted_along(c, x, axis, False)[0]
    a, b = (part_of(c, order, axis, k, k + 1) for k in (low, high))
    made = c(ops.add, a, c(ops.multiply, c(ops.subtract, b, a), c.like(place - low, a)))
    return made if c.flag("keepdim") and not flat else c.shaped(made, [d for k, d in enumerate(c.dims_of(x)) if k != axis])


def _without_nan(take_mean: bool) -> Rule:
    def build(c: CallContext) -> Node:
        x = c.to(c.node(), c.result_type())
        axes, keep = over(c, x)
        there = c(ops.compare, x, x, direction="EQ")
        made = total(c, ops.add, c(ops.select, there, x, c.full(0, as_tensor(x.type))), axes)
        if take_mean:
            made = c(ops.divide, made, total(c, ops.add, c.to(there, c.dtype_of(x)), axes))
        return kept(c, made, c.dims_of(x), axes, keep)

    return build


def _trapezia(so_far: bool) -> Rule:
    """Areas under straight lines between neighbours, of one width: their sum, or the sums so far."""

    def build(c: CallContext) -> Node:
        if c.has("x"):
            raise Unsupported("widths that are a tensor")
        y, axis = c.to(c.node(), c.result_type()), c.axis("dim", -1)
        size = c.shape_of(y)[axis]
        pairs = c(ops.add, part_of(c, y, axis, 0, size - 1), part_of(c, y, axis, 1, size))
        areas = c(ops.multiply, pairs, c.like(c.real("dx", 1.0) / 2, pairs))
        return running(c, ops.add, areas, axis) if so_far else total(c, ops.add, areas, (axis,))

    return build


def _histogram(c: CallContext) -> Node:
    """How many elements lie in each of equally wide bins; the last has its upper end."""
    x, bins, low, high = c.node(), c.number("bins", 100), c.real("min", 0.0), c.real("max", 0.0)
    if low == high:
        raise Unsupported("a histogram between the least and the greatest element")
    flat = c.shaped(x, (math.prod(c.shape_of(x)),))
    scaled = c(ops.multiply, c(ops.subtract, flat, c.like(low, flat)), c.like(bins / (high - low), flat))
    place = c(ops.minimum, c.cast(c(ops.floor, scaled), I64), c.scalar(bins - 1, I64))
    inside = c(ops.and_, *(c(ops.compare, flat, c.like(v, flat), direction=way) for v, way in ((low, "GE"), (high, "LE"))))
    dims = (c.shape_of(flat)[0], bins)
    hit = c(ops.compare, c.along(place, dims, (0,)), c.indices(I64, dims, 1), direction="EQ")
    return c.to(total(c, ops.add, c.to(c(ops.and_, hit, c.along(inside, dims, (0,))), I64), (0,)), c.result_type())


def _diff(c: CallContext) -> Node:
    axis = c.axis("dim", -1)
    parts = [c.node(k) for k in ("prepend", 0, "append") if c.has(k)]
    x = parts[0] if len(parts) == 1 else c(ops.concatenate, *parts, dimension=axis)
    for _ in range(c.number("n", 1)):
        size = c.shape_of(x)[axis]
        x = c(ops.subtract, part_of(c, x, axis, 1, size), part_of(c, x, axis, 0, size - 1))
    return x


def _log_running(c: CallContext) -> Node:
    """log of the running sum of exponentials."""
    x, axis = c.node(), c.axis("dim")
    most = total(c, ops.maximum, x, (axis,))
    off = c(ops.exponential, c(ops.subtract, x, back(c, most, x, (axis,))))
    return c(ops.add, c(ops.log, running(c, ops.add, off, axis)), back(c, most, x, (axis,)))


# --- softmax --------------------------------------------------------------------------------------------------------


def _normalised(build: Any) -> Rule:
    """In single precision where elements are narrower, and in the declared type after that."""

    def rule(c: CallContext) -> Node:
        x = c.node()
        wide = c.to(x, F32) if c.result_type().bits < 32 else c.to(x, c.result_type())
        made = build(c, wide, (c.axis("dim"),)) if c.dims_of(x) else c.shaped(
            build(c, c.shaped(wide, (1,)), (0,)), ())
        return c.to(made, c.result_type())

    return rule


REDUCE: Rules = {
    "sum": _reduction(ops.add), "prod": _reduction(ops.multiply), "mean": _mean,
    "any": _logical(ops.or_), "all": _logical(ops.and_), "count_nonzero": _count_nonzero, "amax": _extremes(ops.maximum),
    "amin": _extremes(ops.minimum), "aminmax": _both_extremes, "max": _extreme(ops.maximum), "min": _extreme(ops.minimum),
    "argmax": _arg("GT"), "argmin": _arg("LT"), "var": _variance(False, False), "std": _variance(True, False),
    "var_mean": _variance(False, True), "std_mean": _variance(True, True),
    **dict.fromkeys(("norm", "linalg_vector_norm"), _norm), **dict.fromkeys(("logsumexp", "special_logsumexp"), _log_sum_exp),
    "renorm": _renormalised, "cummax": _running_extreme(ops.maximum),
    "cummin": _running_extreme(ops.minimum), "quantile": _quantile, "nansum": _without_nan(False), "nanmean": _without_nan(True),
    **dict.fromkeys(("trapezoid", "trapz"), _trapezia(False)), "cumulative_trapezoid": _trapezia(True), "histc": _histogram,
    "msort": lambda c: sorted_along(c, c.node(), 0, False)[0],
    "sort": _sort, "argsort": _argsort, "topk": _top_k, "kthvalue": _kth_value, "median": _median,
    **dict.fromkeys(("bucketize", "searchsorted"), _bucketize), "cumsum": _running(ops.add), "cumprod": _running(ops.multiply),
    "diff": _diff, "logcumsumexp": _log_running, **dict.fromkeys(("softmax", "_softmax", "special_softmax"), _normalised(softmax)),
    **dict.fromkeys(("log_softmax", "_log_softmax", "special_log_softmax"), _normalised(log_softmax)),
}  # fmt: skip
