"""Products summed over axes as loop programs: dot_general, convolution, reductions, batch normalisation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.loops import Affine, LazyTensor, LoopBuilder, NotExpressible, Scalar, accumulate
from deepx_graph.loops.elements import settled
from deepx_graph.loops.fold import (
    JAM,
    ROW,
    RowFold,
    add_steps,
    fold,
    fold_rows,
    fold_strips,
    fold_tiles,
    primitive_of,
    row_fold,
    row_sums,
)
from deepx_graph.loops.scalar import Index, affine, identity
from deepx_graph.loops.storage import wide
from deepx_graph.loops.tensor import in_memory
from deepx_graph.ops.contract.linear import FEW_TERMS, free_axes
from deepx_graph.ops.contract.selection import is_any_order
from deepx_graph.ops.loops.window import WindowAxis
from deepx_graph.types import DType

LEAST_ROW = 4
"""From so many neighbours on along the last axis, they are computed side by side."""

STRIP, LEAST_STRIP_ROWS, MOST_COLUMNS = 1 << 16, 64, 768
"""Sums of all rows of a matrix are made in strips of so many elements and at least so many rows; totals of a row fit a cache."""

LANES = 16
"""So many rows, or pieces of a long row, are reduced at once by a function of which nothing is known."""

SHORT_ROW = 16
"""A row of so many elements is reduced without a loop, all totals in registers."""

LEAST_PIECE = 8
"""Elements of a piece."""


def _sum(b: LoopBuilder, dtype: DType, extents: Sequence[int], element: Callable[[Index], Any]) -> Any:
    """The sum of elements over extents, in order where they are few."""
    if math.prod(extents) <= FEW_TERMS:
        total = b.const(0, dtype)
        for at in itertools.product(*map(range, extents)):
            total = b.apply("add", total, element([affine(i) for i in at]))
        return settled(b, total, dtype)
    return settled(b, accumulate(b, "add", b.const(0, dtype), extents, element), dtype)


# --- dot_general --------------------------------------------------------------------------------------------------


def dot_general_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """A sum of products over the contracting axes."""
    return _sum(b, xs[0].dtype, _depth(node, xs), lambda inner: _product(b, node, xs, at, inner))


def dot_general_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """Rows of the result, some at a time, where neighbours are neighbours in the right operand: one row of that after the other."""
    x, y = xs
    _, rhs_batch, _, rhs_contract = node.attrs
    free = free_axes(len(y.shape), rhs_batch, rhs_contract)
    if not free or free[-1] != len(y.shape) - 1 or y.shape[-1] < LEAST_ROW:
        raise NotExpressible("rows of the result that lie apart in the right operand")
    extents = _depth(node, xs)
    if math.prod(extents) <= FEW_TERMS:
        raise NotExpressible("the element says as much")

    def row(width: int) -> RowFold:
        return row_sums(b, x.dtype, math.prod(extents), width)

    def elements(at: Index, inner: Index) -> list[Any]:
        return [_product(b, node, xs, at, inner)]

    rows = len(x.shape) - len(extents) - 1
    if x.dtype.kind != "complex" and rows >= len(rhs_batch) and outs[0].shape[rows] > 1:
        fold_tiles(b, outs, row, lambda: [b.const(0, x.dtype)], extents, elements, rows)
    else:
        fold_rows(b, outs, row, lambda: [b.const(0, x.dtype)], extents, elements)


def _depth(node: Node, xs: Sequence[LazyTensor]) -> list[int]:
    return [xs[0].shape[k] for k in node.attr("lhs_contracting_dimensions")]


def _product(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index, inner: Index) -> Any:
    """The factors' product for an element of the result and a term."""
    lhs_batch, rhs_batch, lhs_contract, rhs_contract = node.attrs
    x, y = xs
    lhs_free, rhs_free = free_axes(len(x.shape), lhs_batch, lhs_contract), free_axes(len(y.shape), rhs_batch, rhs_contract)
    batch, rows, columns = at[: len(lhs_batch)], at[len(lhs_batch) : len(lhs_batch) + len(lhs_free)], at[len(at) - len(rhs_free) :]
    left = dict(zip((*lhs_batch, *lhs_free, *lhs_contract), (*batch, *rows, *inner), strict=True))
    right = dict(zip((*rhs_batch, *rhs_free, *rhs_contract), (*batch, *columns, *inner), strict=True))
    return b.apply("mul", x.at(b, [left[k] for k in range(len(left))]), y.at(b, [right[k] for k in range(len(right))]))


# --- convolution --------------------------------------------------------------------------------------------------

_AXIS = ("window_strides", "padding_low", "lhs_dilation", "rhs_dilation")


def convolution_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """A sum over the input features of the group and the window, of which only what is inside counts."""
    x, kernel = xs
    batch, feature, spatial, inputs, outputs, taps, out_batch, out_feature, out_spatial, groups, batch_groups = node.attrs[6:]
    axes = [WindowAxis(x.shape[i], kernel.shape[k], *numbers)
            for i, k, *numbers in zip(spatial, taps, *map(node.attr, _AXIS), strict=True)]
    per_group = kernel.shape[inputs]
    group = b.quotient(at[out_feature], kernel.shape[outputs] // (groups * batch_groups))
    image = at[out_batch] + (group * (x.shape[batch] // batch_groups) if batch_groups > 1 else 0)

    def term(inner: Index) -> Any:
        channel, *window = inner
        found = [a.element(b, at[o], w) for a, o, w in zip(axes, out_spatial, window, strict=True)]
        places = {batch: image, feature: channel + (group * per_group if groups > 1 else 0)}
        places |= {s: i for s, (_, i) in zip(spatial, found, strict=True)}
        flipped = [a.window - 1 - w if r else w for a, w, r in zip(axes, window, node.attr("window_reversal"), strict=True)]
        weight = {inputs: channel, outputs: at[out_feature], **dict(zip(taps, flipped, strict=True))}
        return b.choose(b.both(*(inside for inside, _ in found)), lambda: b.apply(
            "mul", x.at(b, [places[k] for k in range(len(places))]), kernel.at(b, [weight[k] for k in range(len(weight))])),
            lambda: b.const(0, x.dtype))

    return _sum(b, x.dtype, [per_group, *(a.window for a in axes)], term)


# --- reduce -------------------------------------------------------------------------------------------------------


def reduced_elements(b: LoopBuilder, xs: Sequence[LazyTensor], dims: Sequence[int], at: Index, inner: Index) -> list[Any]:
    """The operands' elements at a subscript of the result, and one of the axes that are reduced."""
    outer, reduced = iter(at), dict(zip(dims, inner, strict=True))
    index = [reduced[k] if k in reduced else next(outer) for k in range(len(xs[0].shape))]
    return [x.at(b, index) for x in xs]


def reduce_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """A fold over the axes that are reduced."""
    dims, operands = node.attr("dimensions"), xs[: len(xs) // 2]
    starts = [x.at(b, ()) for x in xs[len(operands) :]]
    found = fold(b, node.attr("body"), starts, [x.dtype for x in operands], [xs[0].shape[d] for d in dims],
                 lambda inner: reduced_elements(b, operands, dims, at, inner))
    return found[0] if len(found) == 1 else found


def reduce_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """Totals that are neighbours along the last axis side by side; by any function also pieces of a long row, or short rows."""
    dims, body, half = sorted(node.attr("dimensions")), node.attr("body"), len(outs)
    shape, operands, dtypes = xs[0].shape, xs[:half], [x.dtype for x in xs[:half]]
    extents = [shape[d] for d in dims]

    def elements(at: Index, inner: Index) -> list[Any]:
        return reduced_elements(b, operands, dims, at, inner)

    def starts() -> list[Any]:
        return [x.at(b, ()) for x in xs[half:]]

    if not dims or 0 in shape:
        raise NotExpressible("nothing is reduced")
    whole_rows = dims[-1] == len(shape) - 1
    if whole_rows and (primitive_of(body, dtypes) is not None or max(shape[-1] // LEAST_PIECE, *outs[0].shape[-1:], 0) < LANES):
        raise NotExpressible("the element says as much")
    if not whole_rows and shape[-1] < LEAST_ROW:
        raise NotExpressible("short rows")
    primitive = primitive_of(body, dtypes)
    if primitive and dims == list(range(len(shape) - 1)) and dtypes[0].kind != "complex" and identity(primitive, dtypes[0]):
        strip = max(LEAST_STRIP_ROWS, STRIP // shape[-1])
        if shape[-1] <= MOST_COLUMNS and math.prod(extents) >= 4 * strip:
            fold_strips(b, outs[0], primitive, starts, extents, strip, lambda at, inner: elements(at, inner)[0])
            return
    if not whole_rows or shape[-1] < LANES * LEAST_PIECE:
        fold_rows(b, outs, lambda width: row_fold(b, body, dtypes, math.prod(extents), width), starts, extents, elements,
                  LANES if whole_rows else ROW, at_once=whole_rows and shape[-1] <= SHORT_ROW)
        return
    with b.nest(outs[0].shape) as at:
        totals = row_fold(b, body, dtypes, math.prod(extents), 1)
        totals.put(0, starts())
        with b.loops(extents[:-1]) as inner:
            _reduce_row(b, totals, row_fold(b, body, dtypes, shape[-1], LANES), shape[-1], lambda i: elements(at, (*inner, i)),
                        is_any_order(body))
        totals.store(affine(0), outs, at)


def _reduce_row(b: LoopBuilder, totals: RowFold, lanes: RowFold, size: int, elements: Callable[[Affine], Sequence[Any]],
                is_any_order: bool) -> None:
    """A row combined into the first totals: so many lanes at once, then one lane after the other. Lanes are pieces of the row,
    or, where the order of elements makes no difference, neighbours in memory, of which several steps are done at a time."""
    length = size // LANES
    along, across, jam = (LANES, 1, JAM) if is_any_order else (1, length, 1)
    with b.loop(LANES) as k:
        lanes.put(k, elements(k * across))
    add_steps(b, lanes, LANES, [length - 1], lambda inner, k: elements((inner[0] + 1) * along + k * across), jam, 2 * jam)
    with b.loop(LANES) as k:
        totals.add(0, lanes.at(k))
    with b.loop(size, LANES * length) as i:
        totals.add(0, elements(i))


# --- batch normalisation ------------------------------------------------------------------------------------------


class _Normalised:
    """The operand of a batch normalisation, in the dtype in which it is computed."""

    def __init__(self, b: LoopBuilder, node: Node, x: LazyTensor) -> None:
        self.b, self.x, self.feature = b, x, node.attr("feature_index")
        self.dtype = wide(x.dtype)
        self.others = [n for k, n in enumerate(x.shape) if k != self.feature]
        self.count = b.const(math.prod(self.others), self.dtype)
        self.epsilon = b.const(node.attr("epsilon"), self.dtype)

    def total(self, element: Callable[[Index], Any]) -> LazyTensor:
        """For each feature the sum of what an element gives, over all other axes."""
        b, size = self.b, self.x.shape[self.feature]
        found, zero = in_memory(b.buffer(self.dtype, (size,)), self.dtype), b.const(0, self.dtype)

        def at(outer: Index, inner: Index) -> Any:
            return element([*inner[: self.feature], outer[0], *inner[self.feature :]])

        if self.feature == len(self.x.shape) - 1 and size >= LEAST_ROW:
            fold_rows(b, [found], lambda width: row_sums(b, self.dtype, math.prod(self.others), width), lambda: [zero],
                      self.others, lambda outer, inner: [at(outer, inner)])
        else:
            with b.nest((size,)) as outer:
                b.put(found, outer, accumulate(b, "add", zero, self.others, lambda inner: at(outer, inner)))
        return found

    def mean(self, element: Callable[[Index], Any]) -> LazyTensor:
        """For each feature the mean of what an element gives."""
        total = self.total(element)
        return LazyTensor(self.dtype, total.shape, lambda b, at: b.apply("div", total.at(b, at), self.count))

    def centered(self, mean: LazyTensor, at: Index) -> Any:
        return self.b.apply("sub", self.x.at(self.b, at), self.of(mean, at))

    def of(self, vector: LazyTensor, at: Index) -> Any:
        """The vector's element for the feature of a position."""
        return vector.at(self.b, [at[self.feature]])

    def deviation(self, variance: LazyTensor, at: Index) -> Any:
        """The standard deviation, a little more than zero."""
        return self.b.apply("sqrt", self.b.apply("add", self.of(variance, at), self.epsilon))

    def scaled(self, mean: LazyTensor, variance: LazyTensor, scale: LazyTensor, offset: LazyTensor, at: Index) -> Any:
        """The normalised element."""
        normal = self.b.apply("div", self.centered(mean, at), self.deviation(variance, at))
        return self.b.apply("add", self.b.apply("mul", normal, self.of(scale, at)), self.of(offset, at))


def batch_norm_inference_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """The element by the mean and the variance of its feature."""
    x, scale, offset, mean, variance = xs
    return settled(b, _Normalised(b, node, x).scaled(mean, variance, scale, offset, at), x.dtype)


def batch_norm_training_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """Means, then variances, then all elements."""
    x, scale, offset = xs
    norm = _Normalised(b, node, x)
    mean = norm.mean(lambda at: x.at(b, at))

    def squared(at: Index) -> Scalar:
        centered = norm.centered(mean, at)
        return b.apply("mul", centered, centered)  # type: ignore[no-any-return]

    variance = norm.mean(squared)
    with b.nest(x.shape) as at:
        b.put(outs[0], at, norm.scaled(mean, variance, scale, offset, at))
    with b.nest(mean.shape) as at:
        b.put(outs[1], at, mean.at(b, at))
        b.put(outs[2], at, variance.at(b, at))


def batch_norm_grad_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The sums by scale and offset, then all elements."""
    x, scale, mean, variance, g = xs
    norm = _Normalised(b, node, x)

    def normal(at: Index) -> Any:
        return b.apply("div", norm.centered(mean, at), norm.deviation(variance, at))

    by_offset = norm.total(lambda at: g.at(b, at))
    by_scale = norm.total(lambda at: b.apply("mul", g.at(b, at), normal(at)))
    with b.nest(x.shape) as at:
        whole = b.apply("sub", b.apply("mul", g.at(b, at), norm.count), norm.of(by_offset, at))
        rest = b.apply("sub", whole, b.apply("mul", normal(at), norm.of(by_scale, at)))
        rate = b.apply("div", norm.of(scale, at), b.apply("mul", norm.deviation(variance, at), norm.count))
        b.put(outs[0], at, b.apply("mul", rate, rest))
    with b.nest(by_scale.shape) as at:
        b.put(outs[1], at, by_scale.at(b, at))
        b.put(outs[2], at, by_offset.at(b, at))
