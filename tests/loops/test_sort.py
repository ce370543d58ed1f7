"""Sorts and greatest elements as loops: what numpy's stable sorts give, by the interpreter and by machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.loops.interpret import interpret
from deepx_graph.loops.lower import lower
from deepx_graph.ops.math.elementwise import and_, compare, or_, select
from deepx_graph.ops.tensor.sort import keys_of, sort, top_k
from deepx_graph.types import BF16, BOOL, F32, I32, I64, U8, DType, TensorType, scalar

LENGTHS = (0, 1, 2, 3, 5, 16, 17, 40, 129, 300)


def comparator(dtypes: list[DType], body: Any) -> Function:
    """A comparator of two elements of each dtype."""
    params = [(f"{side}{k}", scalar(d)) for k, d in enumerate(dtypes) for side in "xy"]
    b = Builder()
    return b.function("less", params, lambda *p: [body(b, *p)], public=False)


def canonical(b: Builder, x: Node) -> Node:
    """A float with one zero and one NaN, as JAX writes it."""
    zero, nan = b.splat(0.0, x.type), b.splat(float("nan"), x.type)
    unsigned = b(select, b(compare, x, zero, direction="EQ", compare_type="FLOAT"), zero, x)
    return b(select, b(compare, x, x, direction="NE", compare_type="FLOAT"), nan, unsigned)


def by_first(direction: str) -> Any:
    """The order of the first operand by its numbers."""
    def body(b: Builder, x: Node, y: Node, *rest: Node) -> Node:
        if x.type.dtype.is_float:  # type: ignore[attr-defined]
            return b(compare, canonical(b, x), canonical(b, y), direction=direction, compare_type="TOTALORDER")
        return b(compare, x, y, direction=direction)

    return body


def by_both(b: Builder, x: Node, y: Node, u: Node, v: Node, *rest: Node) -> Node:
    """The order of the first operand, then of the second, greatest first."""
    tie = b(and_, b(compare, x, y, direction="EQ"), b(compare, u, v, direction="GT"))
    return b(or_, b(compare, x, y, direction="LT"), tie)


def by_remainder(b: Builder, x: Node, y: Node, *rest: Node) -> Node:
    """No keys: x precedes y where either x < y or both are negative and x > y."""
    zero = b.splat(0, x.type)
    negative = b(and_, b(compare, x, zero, direction="LT"), b(compare, y, zero, direction="LT"))
    return b(select, negative, b(compare, x, y, direction="GT"), b(compare, x, y, direction="LT"))


def sorting(shape: tuple[int, ...], dtypes: list[DType], axis: int, body: Any) -> Function:
    """A function that sorts operands."""
    b = Builder()
    xs = [b.param(k, TensorType(d, shape)) for k, d in enumerate(dtypes)]
    node = b(sort, *xs, dimension=axis, comparator=comparator(dtypes, body))
    results = (node,) if len(dtypes) == 1 else tuple(b.proj(node, k) for k in range(len(dtypes)))
    return Function("main", tuple(xs), results)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Any:
    """Elements with ties; of floats also zeros of both signs, infinities and NaN."""
    if dtype is BOOL:
        return rng.random(shape) < 0.5
    low = 0 if dtype.kind == "uint" else -60
    found = rng.integers(low, 60, shape)
    if dtype.is_float:
        special = rng.choice([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-30], shape)
        return np.where(rng.random(shape) < 0.2, special, found / 7).astype(dtype.np)
    return (found * (1 << 40) if dtype is I64 else found).astype(dtype.np)


def stable(x: Any, axis: int) -> Any:
    """Positions in stable order; numpy puts NaN last and takes zeros as equal."""
    return np.argsort(x.astype(np.float64) if x.dtype.kind not in "iub" else x, axis=axis, kind="stable")


def both_ways(function: Function, arrays: list[Any]) -> list[list[Any]]:
    """The results by the interpreter of loop programs, and by machine code."""
    compiled = dx.compile(Module((function,)), engine="native", threads=2, optimize=False)(*arrays)
    found = compiled if isinstance(compiled, (tuple, list)) else [compiled]
    return [interpret(lower(function), arrays), [np.asarray(x) for x in found]]


def same(found: Any, expected: Any) -> None:
    """Equal to the bit, but for the bits of NaN."""
    found, expected = np.asarray(found), np.asarray(expected)
    if expected.dtype.kind not in "iub":
        np.testing.assert_array_equal(np.signbit(found) & ~np.isnan(found), np.signbit(expected) & ~np.isnan(expected))
        found, expected = found.astype("f8"), expected.astype("f8")
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [F32, I32, U8, BF16, BOOL, I64], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_any_length_are_sorted_with_what_goes_along(dtype: DType, axis: int) -> None:
    rng = np.random.default_rng(7)
    for n in LENGTHS:
        shape = (n, 3) if axis == 0 else (2, n)
        x, y = numbers(rng, shape, dtype), np.broadcast_to(np.arange(shape[1], dtype="i4"), shape).copy()
        order = stable(x, axis)
        for found in both_ways(sorting(shape, [dtype, I32], axis, by_first("LT")), [x, y]):
            same(found[0], np.take_along_axis(x, order, axis))
            same(found[1], np.take_along_axis(y, order, axis))


@pytest.mark.parametrize("body", [by_both, by_remainder], ids=["two keys", "no keys"])
@pytest.mark.parametrize("n", [3, 40, 150])
def test_comparators_of_other_forms(body: Any, n: int) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.integers(-9, 9, (2, n), "i4"), rng.integers(-9, 9, (2, n), "i4")
    key = np.where(x < 0, -100 - x, x)
    order = np.lexsort((-y, x)) if body is by_both else np.argsort(key, axis=-1, kind="stable")
    function = sorting((2, n), [I32, I32], 1, body)
    assert (keys_of(function.results[0].inputs[0].attr("comparator")) is None) == (body is by_remainder)
    for found in both_ways(function, [x, y]):
        same(found[0], np.take_along_axis(x, order, -1))
        same(found[1], np.take_along_axis(y, order, -1))


@pytest.mark.parametrize("n", [2, 20000])
def test_one_long_row_in_falling_order(n: int) -> None:
    x = numbers(np.random.default_rng(5), (n,), F32)
    x = x[~np.isnan(x)]
    function = sorting(x.shape, [F32], 0, by_first("GT"))
    (found,) = dx.compile(Module((function,)), engine="native", threads=2, optimize=False)(x)
    same(found, x[np.argsort(-x, kind="stable")])


@pytest.mark.parametrize("dtype", [F32, I32, BOOL, BF16], ids=str)
@pytest.mark.parametrize(("n", "k"), [(5, 0), (5, 5), (40, 3), (200, 64), (200, 70)])
def test_the_greatest_elements_and_where_they_are(dtype: DType, n: int, k: int) -> None:
    x = numbers(np.random.default_rng(11), (3, n), dtype)
    if dtype.is_float:
        x = np.where(np.isnan(x), np.ones((), x.dtype), np.where(x == 0, np.zeros((), x.dtype), x))
    order = np.argsort(-x.astype("f8"), axis=-1, kind="stable")[:, :k]
    b = Builder()
    p = b.param(0, TensorType(dtype, x.shape))
    node = b(top_k, p, k=k)
    for values, positions in both_ways(Function("main", (p,), (b.proj(node, 0), b.proj(node, 1))), [x]):
        same(positions, order.astype("i4"))
        same(values, np.take_along_axis(x, order, -1))
