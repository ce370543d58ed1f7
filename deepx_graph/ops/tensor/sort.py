"""Sorting by a comparator, and the greatest elements.

A comparator that compares one value computed from each side, or such values one after the other, has keys: each is a function
of one side's elements. Then numpy sorts whole arrays; any other comparator runs in a merge sort that compares many pairs at
once. Both are stable. Keys become unsigned integers of the same order, which numpy sorts fast. A cotangent goes back to the
positions that the elements came from.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Builder, Function, Node, Op, Operand, Relation, Result
from deepx_graph.ir.constraint import NON_NEGATIVE, ORDERED, TENSOR, rank, same_shape, some
from deepx_graph.ir.evaluation import WORD
from deepx_graph.ir.node import reachable
from deepx_graph.ir.op import Cotangents
from deepx_graph.ir.rebuild import on_demand
from deepx_graph.ir.signature import MANY
from deepx_graph.ir.structure import PARAM
from deepx_graph.literal import Array
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.factors.index import SORT, TOP_K
from deepx_graph.ops.helpers import is_int, loops_in, one
from deepx_graph.ops.interpret import combine, report_fallback
from deepx_graph.ops.math.elementwise import add, and_, compare, or_, select
from deepx_graph.ops.tensor.index import scatter
from deepx_graph.ops.tensor.shape import iota
from deepx_graph.types import F64, I32, I64, TupleType, Type, as_tensor, merge_dims, nbytes, scalar


@dataclass(frozen=True)
class Key:
    """`value` of the operands so numbered; `total` orders all floats, -0 below 0 and -NaN first, else 0 and -0 are equal."""

    value: Function
    operands: tuple[int, ...]
    descending: bool
    total: bool

    def of(self, xs: Sequence[Array]) -> Array:
        """The key of every element."""
        return np.asarray(combine(self.value, [xs[k] for k in self.operands], [])[0])

    @property
    def plain(self) -> int | None:
        """The operand that is the key itself; None where the key is computed."""
        return self.operands[0] if self.value.results[0].op is PARAM else None


# --- comparators --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def keys_of(comparator: Function) -> tuple[Key, ...] | None:
    """The keys, the most important first; None for a comparator of another form."""
    found: list[Key] = []
    node = comparator.results[0]
    while node.op is or_ or node.op is select:
        step = _first_of_several(comparator, node)
        if step is None:
            return None
        found.append(step[0])
        node = step[1]
    last = _key(comparator, node)
    return None if last is None else (*found, last)


def _first_of_several(comparator: Function, node: Node) -> tuple[Key, Node] | None:
    """The key and the rest of `before or (equal and rest)`, or of `select(equal, rest, before)`."""
    if node.op is select:
        choices = [(node.inputs[2], node.inputs[0], node.inputs[1])]
    else:
        pairs = [node.inputs, node.inputs[::-1]]
        both = [(a, *pair) for a, b in pairs if b.op is and_ for pair in (b.inputs, b.inputs[::-1])]
        choices = [(a, equal, rest) for a, equal, rest in both]
    for before, equal, rest in choices:
        key = _key(comparator, before)
        if key is not None and equal.op is compare and equal.attr("direction") == "EQ":
            same = _key(comparator, equal, ("EQ",))
            if same is not None and same.value == key.value and same.operands == key.operands:
                return key, rest
    return None


def _key(comparator: Function, node: Node, directions: tuple[str, ...] = ("LT", "GT")) -> Key | None:
    """The key of `compare f(x), f(y)`, either side first."""
    if node.op is not compare or node.attr("direction") not in directions:
        return None
    (left, x), (right, y) = (_side(comparator, i) for i in node.inputs)
    flipped = bool(left) and left[0] % 2 == 1
    if flipped:
        left, right = right, left
    if not left or any(k % 2 for k in left) or right != tuple(k + 1 for k in left) or x != y:
        return None
    descending = (node.attr("direction") == "GT") != flipped
    return Key(x, tuple(k // 2 for k in left), descending, node.attr("compare_type") == "TOTALORDER")


def _side(comparator: Function, node: Node) -> tuple[tuple[int, ...], Function]:
    """The parameters that a value depends on, and the value as a function of them."""
    used = set(reachable([node]))
    positions = tuple(k for k, p in enumerate(comparator.params) if p in used)
    b = Builder()
    new = {comparator.params[k]: b.param(n, comparator.params[k].type) for n, k in enumerate(positions)}
    params = tuple(new.values())
    results = on_demand([node], new, lambda n: n.inputs, _anew)
    return positions, Function("key", params, tuple(results), public=False)


def _anew(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The node made again, so that equal functions have their nodes in one order."""
    return Node(node.op, inputs, node.attrs, node.type)


# --- arrays -------------------------------------------------------------------------------------------------------


def ordered(keys: Array, descending: bool = False, total: bool = False) -> Array:
    """The positions of the elements along the last axis in stable order; NaN comes last, or first when descending."""
    bits = _unsigned(keys, total)
    return np.argsort(~bits if descending else bits, axis=-1, kind="stable")


def first(keys: Array, count: int) -> Array:
    """The first so many of these positions; where they are few, of those alone that are among them (quickselect, Hoare 1961)."""
    size = keys.shape[-1]
    if count == 0 or count * FEW > size:
        return np.argsort(keys, axis=-1, kind="stable")[..., :count]
    last = np.partition(keys, count - 1, axis=-1)[..., count - 1 : count]
    chosen, level = keys < last, keys == last
    chosen |= level & (level.cumsum(-1) <= count - chosen.sum(-1, keepdims=True))
    found = np.nonzero(chosen)[-1].reshape(*keys.shape[:-1], count)
    return np.take_along_axis(found, np.argsort(np.take_along_axis(keys, found, -1), axis=-1, kind="stable"), -1)


FEW = 8
"""Of so many elements one is looked for without putting all in order."""


def order_by(keys: Sequence[Key], xs: Sequence[Array]) -> Array:
    """The positions along the last axis by several keys, the most important first."""
    order: Array | None = None
    for key in reversed(keys):
        values = key.of(xs)
        if order is None:
            order = ordered(values, key.descending, key.total)
        else:
            moved = np.take_along_axis(values, order, axis=-1)
            order = np.take_along_axis(order, ordered(moved, key.descending, key.total), axis=-1)
    assert order is not None
    return order


def sorted_alone(keys: Array, descending: bool, total: bool) -> Array | None:
    """The elements themselves in order, by a sort that need not be stable; None where equal keys may have different bits."""
    is_number = keys.dtype.kind in "iub"
    if not is_number and (keys.dtype.kind != "f" or (not total and bool(((keys == 0) | (keys != keys)).any()))):
        return None
    bits = np.sort(_unsigned(keys, total=True), axis=-1)
    if descending:
        bits = bits[..., ::-1]
    return _from_unsigned(bits, keys.dtype)


def _unsigned(keys: Array, total: bool) -> Array:
    """Unsigned integers in the order of the keys."""
    if keys.dtype.kind == "b":
        return keys.astype(np.uint8)
    if is_int(keys):
        wide = keys if keys.dtype.kind in "iu" else keys.astype(np.int8)
        bits = _raw(wide)
        return bits ^ _top(bits) if wide.dtype.kind == "i" else bits
    if keys.dtype.itemsize == 1:
        keys = keys.astype(np.float32)
    if not total:
        keys = np.where(keys == 0, np.zeros((), keys.dtype), np.where(keys != keys, np.asarray(np.nan, keys.dtype), keys))
    bits = _raw(keys)
    return np.where(bits >= _top(bits), ~bits, bits | _top(bits))


def _from_unsigned(bits: Array, dtype: np.dtype[np.generic]) -> Array:
    """The keys of a numpy number type that `_unsigned` made these of."""
    if dtype.kind == "b":
        return bits.astype(np.bool_)
    if dtype.kind == "f":
        raw = np.where(bits >= _top(bits), bits ^ _top(bits), ~bits)
        return raw.view(f"f{raw.itemsize}").astype(dtype, copy=False)
    return (bits ^ _top(bits) if dtype.kind == "i" else bits).view(dtype)


def _raw(x: Array) -> Array:
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape)


def _top(bits: Array) -> Array:
    """The highest bit."""
    return np.asarray(1 << (8 * bits.dtype.itemsize - 1), bits.dtype)


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


# --- gradients ----------------------------------------------------------------------------------------------------


def _sort_vjp(b: Builder, node: Node, g: Any) -> Cotangents:
    """A further operand that counts along the axis is sorted with the rest, and tells where each element came from."""
    items: Sequence[Node | None] = g if isinstance(g, tuple) else (g,)
    shape, axis = as_tensor(node.inputs[0].type).shape, node.attr("dimension")
    if not shape:
        return items
    positions = b(iota, dtype=I32, shape=shape, iota_dimension=axis)
    whole = b(sort, *node.inputs, positions, dimension=axis, is_stable=node.attr("is_stable"),
              comparator=_wider(node.attr("comparator")))
    order = b.proj(whole, len(node.inputs))
    return [None if item is None else _put_back(b, item, order, axis, x) for item, x in zip(items, node.inputs, strict=True)]


def _top_k_vjp(b: Builder, node: Node, g: Sequence[Node | None]) -> Cotangents:
    """The second result has the positions."""
    axis = len(as_tensor(node.inputs[0].type).shape) - 1
    return (None if g[0] is None else _put_back(b, g[0], b.proj(node, 1), axis, node.inputs[0]),)


@lru_cache(maxsize=256)
def _wider(comparator: Function) -> Function:
    """The comparator with a further pair of operands, which it does not look at."""
    count = len(comparator.params)
    more = tuple(Builder().param(count + k, scalar(I32), f"position{k}") for k in range(2))
    return Function(comparator.name, (*comparator.params, *more), comparator.results, public=False)


def _put_back(b: Builder, g: Node, order: Node, axis: int, x: Node) -> Node:
    """Zeros shaped as `x` with `g` added at the positions `order` along the axis."""
    type = as_tensor(x.type)
    others = tuple(k for k in range(len(type.shape)) if k != axis)
    return b(scatter, b.splat(0, type), order, g, inserted_window_dims=(axis,), input_batching_dims=others,
             scatter_indices_batching_dims=others, scatter_dims_to_operand_dims=(axis,), index_vector_dim=len(type.shape),
             update_computation=monoid_body(add, type.dtype))  # fmt: skip


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
    sharding=SORT,
    algebraic=True, infer=_sort_type, eval=_sort, loops=loops_in("sort", "sort_loops"), scratch=_scratch, vjp=_sort_vjp,
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
    order = first(~_unsigned(xs[0], total=True), k)
    return np.take_along_axis(xs[0], order, axis=-1), order.astype(np.int32)


top_k: Op = Op(
    "top_k", "The k greatest elements of the last axis in the total order of floats, greatest first, and their positions.",
    operands=one(ORDERED & rank(1)), attrs=(Attr("k", "int", check=NON_NEGATIVE),), sharding=TOP_K,
    algebraic=True, infer=_top_k_type,
    eval=_top_k, loops=loops_in("sort", "top_k_loops"),
    scratch=lambda types, result, k: types[0].size * (4 * types[0].dtype.itemsize + 2 * WORD + 2),
    vjp=_top_k_vjp,
    results=(Result("values"), Result("indices")),
    assembly="operands, k = $k",
    source="CHLO top_k", samples=lambda rng: [((rng.random((2, 5)),), {"k": k}) for k in (0, 3, 5)]
    + [((rng.random((2, 5)) < 0.5,), {"k": 3})],
)  # fmt: skip
