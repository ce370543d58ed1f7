"""Sorting by a comparator, and the greatest elements.

Where the comparator has keys (`ops/tensor/comparator.py`), numpy sorts whole arrays; any other comparator runs in a merge sort that
compares many pairs at once. Both are stable.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Builder, Function, Op, Operand, Relation, Result
from deepx_graph.ir.constraint import NON_NEGATIVE, ORDERED, TENSOR, rank, same_shape, some
from deepx_graph.ir.evaluation import WORD
from deepx_graph.ir.signature import MANY
from deepx_graph.literal import Array
from deepx_graph.ops.helpers import one, written_in
from deepx_graph.ops.interpret import combine, report_fallback
from deepx_graph.ops.math.elementwise import compare
from deepx_graph.ops.tensor.comparator import keys_of, order_by, ordered, sorted_alone
from deepx_graph.types import F64, I32, I64, TupleType, Type, as_tensor, merge_dims, nbytes, scalar


def _sort_type(types: Sequence[Type], dimension: int, is_stable: bool, comparator: Function) -> Type:
    inputs = [as_tensor(t, k) for k, t in enumerate(types)]
    dims = functools.reduce(merge_dims, (x.dims for x in inputs), None)
    results = tuple(x.with_dims(dims) for x in inputs)
    return results[0] if len(results) == 1 else TupleType(results)


def _sort(xs: Sequence[Array], dimension: int, is_stable: bool, comparator: Function) -> Any:
    if xs[0].ndim == 0 or xs[0].shape[dimension] < 2 or xs[0].size == 0:
        results = tuple(x.copy() for x in xs)
    else:
        moved = [np.moveaxis(x, dimension, -1) for x in xs]
        results = tuple(np.ascontiguousarray(np.moveaxis(r, -1, dimension)) for r in _sorted(moved, comparator))
    return results[0] if len(xs) == 1 else results


def _sorted(xs: Sequence[Array], comparator: Function) -> list[Array]:
    """The operands in order along the last axis."""
    keys = keys_of(comparator)
    if keys is not None and len(xs) == len(keys) == 1 and keys[0].plain == 0:
        alone = sorted_alone(xs[0], keys[0].descending, keys[0].total)
        if alone is not None:
            return [alone]
    order = order_by(keys, xs) if keys is not None else _merge_order(xs, comparator)
    return [np.take_along_axis(x, order, axis=-1) for x in xs]


def _scratch(types: Sequence[Type], result: Type, dimension: int, *attrs: Any) -> int:
    """One operand that is its own key: keys, sorted and reversed. Else for each element keys and positions, and for merging."""
    comparator: Function = attrs[-1]
    keys = keys_of(comparator)
    each = as_tensor(types[0])
    if keys is not None and len(types) == len(keys) == 1 and keys[0].plain == 0:
        return each.size * max(5 * each.dtype.itemsize + 3, 0 if each.dtype.is_integer else 4 * each.dtype.itemsize + 2 * WORD + 2)
    return each.size * (4 * WORD if keys is not None else 14 * WORD) + sum(3 * nbytes(t) for t in types)


def _merge_order(xs: Sequence[Array], comparator: Function) -> Array:
    """A binary insertion of halves, bottom-up, all rows and runs at once: each round merges runs by counting smaller partners."""
    report_fallback("merging by the comparator")
    n = xs[0].shape[-1]
    rows = [x.reshape(-1, n) for x in xs]
    count = rows[0].shape[0]
    order = np.broadcast_to(np.arange(n), (count, n)).copy()
    width = 1
    lines = np.arange(count)[:, None]
    while width < n:
        column = np.arange(n)
        run = column // (2 * width) * (2 * width)
        left = column < run + width
        other_low = np.where(left, run + width, run)
        other_high = np.minimum(np.where(left, run + 2 * width, run + width), n)
        low = np.broadcast_to(np.minimum(other_low, n), (count, n)).copy()
        high = np.broadcast_to(np.maximum(other_high, np.minimum(other_low, n)), (count, n)).copy()
        while bool((low < high).any()):
            middle = (low + high) // 2
            live = low < high
            theirs = order[lines, np.minimum(middle, n - 1)]
            before = _before(rows, comparator, lines, theirs, order, left)
            low = np.where(live & before, middle + 1, low)
            high = np.where(live & ~before, middle, high)
        position = run + np.where(left, column - run, column - run - width) + (low - np.minimum(other_low, n))
        order = np.take_along_axis(order, np.argsort(position, axis=-1, kind="stable"), axis=-1)
        width *= 2
    return order.reshape(xs[0].shape)


def _before(rows: Sequence[Array], comparator: Function, lines: Array, theirs: Array, mine: Array, left: Array) -> Array:
    """Whether their element precedes mine: on the left side strictly, on the right side unless mine is strictly smaller."""
    a, b = [r[lines, theirs] for r in rows], [r[lines, mine] for r in rows]
    strictly = _less(comparator, a, b)
    not_after = ~_less(comparator, b, a)
    return np.where(left, strictly, not_after)


def _less(comparator: Function, a: Sequence[Array], b: Sequence[Array]) -> Array:
    pairs = [side for pair in zip(a, b, strict=True) for side in pair]
    return np.broadcast_to(combine(comparator, pairs, [])[0], a[0].shape).astype(np.bool_)


def _comparator(direction: str) -> Function:
    t = scalar(F64)
    return Builder().function(direction.lower(), (("a", t), ("b", t)), lambda x, y: [Builder()(compare, x, y, direction=direction)],
                              public=False)


def _by_second() -> Function:
    """The order of the second of three operands, greatest first."""
    params = [(f"{name}{k}", scalar(d)) for name, d in (("x", F64), ("key", F64), ("n", I64)) for k in range(2)]
    b = Builder()
    return b.function("by_second", params, lambda *p: [b(compare, p[2], p[3], direction="GT")], public=False)


sort: Op = Op(
    "sort", "The inputs rearranged along an axis so that the comparator, called on (x0, y0, x1, y1, ...), holds for neighbours.",
    operands=(Operand("inputs", variadic=True, type=TENSOR),),
    attrs=(Attr("dimension", "int", check=NON_NEGATIVE), Attr("is_stable", "bool", True),
           Attr("comparator", "function", summary="(x0, y0, x1, y1, ...) -> whether x precedes y")),
    constraints=(
        some("inputs"), same_shape("inputs"),
        Relation("dimension to be an axis of inputs, or 0 for scalars", ("inputs", "dimension"),
                 lambda xs, k: all(x.rank is None or k < max(1, x.rank) for x in xs)),
        Relation("comparator to take two values for each of inputs and give one", ("comparator", "inputs"),
                 lambda f, xs: len(f.params) == 2 * len(xs) and len(f.results) == 1),
    ),
    infer=_sort_type, eval=_sort, scratch=_scratch, vjp=written_in("sort", "sort_vjp"),
    assembly="operands, dim = $dimension, by $comparator", results=MANY, source="StableHLO sort",
    samples=lambda rng: [((rng.random((3, 5)),), {"dimension": k, "comparator": _comparator(d)})
                         for k in (0, 1) for d in ("LT", "GT", "LE")]
    + [((rng.random((3, 5)),), {"dimension": 0, "is_stable": False, "comparator": _comparator("LT")}),
       ((rng.random((3, 5)), rng.random((3, 5)), rng.integers(0, 9, (3, 5))), {"dimension": 1, "comparator": _by_second()})],
)  # fmt: skip


def _top_k_type(types: Sequence[Type], k: int) -> Type:
    operand = as_tensor(types[0], 0)
    if operand.dims is None:
        return TupleType((operand, operand.with_dtype(I32)))
    if isinstance(operand.dims[-1], int) and operand.dims[-1] < k:
        raise InferError(f"the {k} greatest of {operand}", operand=0, expected=f"a last dimension of at least {k}")
    values = operand.with_dims((*operand.dims[:-1], k))
    return TupleType((values, values.with_dtype(I32)))


def _top_k(xs: Sequence[Array], k: int) -> tuple[Array, Array]:
    order = ordered(xs[0], descending=True, total=True)[..., :k]
    return np.take_along_axis(xs[0], order, axis=-1), order.astype(np.int32)


top_k: Op = Op(
    "top_k", "The k greatest elements of the last axis in the total order of floats, greatest first, and their positions.",
    operands=one(ORDERED & rank(1)), attrs=(Attr("k", "int", check=NON_NEGATIVE),), infer=_top_k_type,
    eval=_top_k, scratch=lambda types, result, k: types[0].size * (4 * types[0].dtype.itemsize + 2 * WORD + 2),
    vjp=written_in("sort", "top_k_vjp"),
    results=(Result("values"), Result("indices")),
    assembly="operands, k = $k",
    source="CHLO top_k", samples=lambda rng: [((rng.random((2, 5)),), {"k": k}) for k in (0, 3, 5)]
    + [((rng.random((2, 5)) < 0.5,), {"k": 3})],
)  # fmt: skip
