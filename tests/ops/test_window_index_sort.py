"""Gather, scatter, windows, convolution and sort against their definitions, written here as plain loops over elements."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function
from deepx_graph.ops import (
    add,
    and_,
    compare,
    convolution,
    gather,
    maximum,
    minimum,
    or_,
    reduce_window,
    reshape,
    scatter,
    select,
    select_and_scatter,
    sort,
    subtract,
    top_k,
)
from deepx_graph.ops.contract.convolution import conv_attrs
from deepx_graph.ops.contract.linalg import triangular_solve
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.helpers import like
from deepx_graph.ops.interpret import combine
from deepx_graph.ops.tensor.sort import keys_of
from deepx_graph.types import BF16, BOOL, F32, F64, I8, I64, U8, scalar

RNG = np.random.default_rng(11)


def attrs(op, given):
    return op.bind(given)


GATHERS = gather.samples(RNG)


@pytest.mark.parametrize(("arrays", "given"), GATHERS)
def test_gather_by_definition(arrays, given) -> None:
    operand, indices = arrays
    got = gather.eval(list(arrays), *attrs(gather, given))
    vector_dim = given["index_vector_dim"]
    batch_dims = [d for d in range(got.ndim) if d not in given["offset_dims"]]
    for result_index in np.ndindex(got.shape):
        batch = [result_index[d] for d in batch_dims]
        at = (*batch[:vector_dim], slice(None), *batch[vector_dim:]) if vector_dim < indices.ndim else tuple(batch)
        start_vector = np.atleast_1d(indices[at])
        full = [0] * operand.ndim
        for k, axis in enumerate(given["start_index_map"]):
            full[axis] = int(np.clip(start_vector[k], 0, operand.shape[axis] - given["slice_sizes"][axis]))
        for axis, where in zip(given["operand_batching_dims"], given["start_indices_batching_dims"], strict=True):
            full[axis] = batch[where if where < vector_dim else where - 1]
        offsets = iter(result_index[d] for d in given["offset_dims"])
        for axis in range(operand.ndim):
            if axis not in given["collapsed_slice_dims"] + given["operand_batching_dims"]:
                full[axis] += next(offsets)
        assert got[result_index] == operand[tuple(full)]


@pytest.mark.parametrize("op", [add, maximum, minimum, subtract, None], ids=lambda op: op.name if op else "set")
def test_scatter_by_definition(op) -> None:
    t = scalar(I64)
    body = monoid_body(op, I64) if op else Builder().function("set", (("a", t), ("b", t)), lambda x, y: [y])
    operand, updates = RNG.integers(0, 50, (5, 4)), RNG.integers(0, 50, (6, 2))
    indices = np.array([[0, 0], [4, 2], [0, 1], [0, 0], [9, 0], [2, -1]])
    given = {"update_window_dims": (1,), "inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0, 1),
             "index_vector_dim": 1, "update_computation": body}  # fmt: skip
    want = operand.copy()
    for n, w in itertools.product(range(6), range(2)):
        row, column = int(indices[n, 0]), int(indices[n, 1]) + w
        if 0 <= row < 5 and 0 <= column < 4:
            new = updates[n, w]
            want[row, column] = op.eval([want[row, column], new]) if op else new
    np.testing.assert_array_equal(scatter.eval([operand, indices, updates], *attrs(scatter, given)), want)


@pytest.mark.parametrize(("arrays", "given"), reduce_window.samples(RNG))
def test_reduce_window_by_definition(arrays, given) -> None:
    x, init = arrays
    got = reduce_window.eval([x, np.asarray(init)], *attrs(reduce_window, given))
    op = given["body"].reducer
    for at in np.ndindex(got.shape):
        total = init
        for offset in np.ndindex(given["window_dimensions"]):
            axes = zip(at, given["window_strides"], offset, given["window_dilations"], given["padding_low"], strict=True)
            place = [a * s + o * w - low for a, s, o, w, low in axes]
            base = given["base_dilations"]
            inside = all(p >= 0 and p % d == 0 and p // d < n for p, d, n in zip(place, base, x.shape, strict=True))
            total = op.eval([total, x[tuple(p // d for p, d in zip(place, base, strict=True))] if inside else np.asarray(init)])
        assert got[at] == pytest.approx(float(total), rel=1e-12)


@pytest.mark.parametrize(("arrays", "given"), convolution.samples(RNG))
def test_convolution_by_definition(arrays, given) -> None:
    x, w = arrays
    a = conv_attrs(len(given["input_spatial_dimensions"]), **given)
    got = convolution.eval([x, w], *attrs(convolution, given))
    groups, batch_groups = a["feature_group_count"], a["batch_group_count"]
    per_group = w.shape[a["kernel_input_feature_dimension"]]
    outputs = w.shape[a["kernel_output_feature_dimension"]]
    kernel_shape = [w.shape[k] for k in a["kernel_spatial_dimensions"]]
    for at in np.ndindex(got.shape):
        out = at[a["output_feature_dimension"]]
        group = out // (outputs // (groups * batch_groups))
        batch = at[a["output_batch_dimension"]] + (group * got.shape[a["output_batch_dimension"]] if batch_groups > 1 else 0)
        total = 0.0
        for tap in np.ndindex(*kernel_shape):
            place = []
            for k, t in enumerate(tap):
                p = at[a["output_spatial_dimensions"][k]] * a["window_strides"][k] + t * a["rhs_dilation"][k] - a["padding_low"][k]
                size = x.shape[a["input_spatial_dimensions"][k]]
                ok = p >= 0 and p % a["lhs_dilation"][k] == 0 and p // a["lhs_dilation"][k] < size
                place.append(p // a["lhs_dilation"][k] if ok else None)
            if None in place:
                continue
            turned = [n - 1 - t if r else t for n, t, r in zip(kernel_shape, tap, a["window_reversal"], strict=True)]
            for c in range(per_group):
                xi, wi = [0] * x.ndim, [0] * w.ndim
                xi[a["input_batch_dimension"]] = batch
                xi[a["input_feature_dimension"]] = c + (group * per_group if groups > 1 else 0)
                wi[a["kernel_input_feature_dimension"]], wi[a["kernel_output_feature_dimension"]] = c, out
                for k in range(len(tap)):
                    xi[a["input_spatial_dimensions"][k]] = place[k]
                    wi[a["kernel_spatial_dimensions"][k]] = turned[k]
                total += x[tuple(xi)] * w[tuple(wi)]
        assert got[at] == pytest.approx(total, rel=1e-12)


def test_select_and_scatter_is_the_gradient_of_max_pooling() -> None:
    (x, source, init), given = select_and_scatter.samples(RNG)[0]
    got = select_and_scatter.eval([x, source, np.asarray(init)], *attrs(select_and_scatter, given))
    want = np.full_like(x, init)
    for i, j in np.ndindex(2, 3):
        window = x[2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        a, b = np.unravel_index(np.argmax(window), (2, 2))
        want[2 * i + a, 2 * j + b] += source[i, j]
    np.testing.assert_array_equal(got, want)


def lexicographic() -> Function:
    """a0 < b0, or equal and a1 > b1."""
    t = scalar(I64)
    b = Builder()

    def body(a0, b0, a1, b1):
        equal = b(compare, a0, b0, direction="EQ")
        return [b(or_, b(compare, a0, b0, direction="LT"), b(and_, equal, b(compare, a1, b1, direction="GT")))]

    return b.function("lexicographic", (("a0", t), ("b0", t), ("a1", t), ("b1", t)), body)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 33])
def test_sort_by_any_comparator(n: int) -> None:
    x, y = RNG.integers(0, 4, (3, n)), RNG.integers(0, 3, (3, n))
    number = np.broadcast_to(np.arange(n), (3, n))
    t = scalar(I64)
    inner = lexicographic()
    body = Function("cmp", (*inner.params, *(Builder().param(4 + k, t) for k in range(2))), inner.results)
    got = sort.eval([x, y, number], *attrs(sort, {"dimension": 1, "comparator": body}))
    for row in range(3):
        want = sorted(zip(x[row], y[row], number[row], strict=True), key=lambda v: (v[0], -v[1]))
        assert list(zip(*(g[row] for g in got), strict=True)) == want, "stable too"


@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_sort_is_stable_in_both_directions(direction: str) -> None:
    t = scalar(I64)
    b = Builder()
    body = b.function("c", [(n, t) for n in "abcd"], lambda a0, b0, a1, b1: [b(compare, a0, b0, direction=direction)])
    x, number = RNG.integers(0, 4, 50), np.arange(50)
    got = sort.eval([x, number], *attrs(sort, {"dimension": 0, "comparator": body}))
    sign = 1 if direction == "LT" else -1
    assert list(zip(*got, strict=True)) == sorted(zip(x, number, strict=True), key=lambda p: sign * p[0])


@pytest.mark.parametrize(("arrays", "given"), triangular_solve.samples(RNG))
def test_triangular_solve_solves(arrays, given) -> None:
    a, b = arrays
    x = triangular_solve.eval([a, b], *attrs(triangular_solve, given))
    m = np.tril(a) if given["lower"] else np.triu(a)
    if given["unit_diagonal"]:
        m = m - m * np.eye(3) + np.eye(3)
    m = m if given["transpose_a"] == "NO_TRANSPOSE" else np.swapaxes(m, -1, -2)
    m = np.conj(m) if given["transpose_a"] == "ADJOINT" else m
    np.testing.assert_allclose(m @ x if given["left_side"] else x @ m, b, rtol=1e-9, atol=1e-9)


def test_like_gives_the_dtype_asked_for() -> None:
    assert like(1.5, np.dtype("f4")).dtype == np.float32
    assert F64.itemsize == 8


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), ()])
def test_a_body_that_is_not_elementwise_runs_element_by_element(shape: tuple[int, ...]) -> None:
    t = scalar(I64)
    b = Builder()
    body = b.function("f", (("a", t), ("b", t)), lambda x, y: [b(reshape, b(add, x, y), shape=())])
    x = RNG.integers(0, 9, shape)
    (got,) = combine(body, [x], [x])
    np.testing.assert_array_equal(got, 2 * x, strict=True)


def jax_order(dtype, count: int) -> Function:
    """JAX's comparator: zeros and NaNs made one, total order, the keys one after the other."""
    t = scalar(dtype)
    b = Builder()

    def one(x):
        zero = b(select, b(compare, x, b.constant(0, dtype), direction="EQ"), b.constant(0, dtype), x)
        return b(select, b(compare, zero, zero, direction="NE"), b.constant(np.nan, dtype), zero)

    def body(*p):
        before = None
        for x, y in reversed([(one(p[2 * k]), one(p[2 * k + 1])) for k in range(count)]):
            less = b(compare, x, y, direction="LT", compare_type="TOTALORDER")
            same = b(compare, x, y, direction="EQ", compare_type="TOTALORDER")
            before = less if before is None else b(or_, less, b(and_, same, before))
        return [before]

    return b.function("before", [(f"p{k}", t) for k in range(2 * count)], body)


@pytest.mark.parametrize("dtype", [F32, F64, BF16], ids=str)
@pytest.mark.parametrize("count", [1, 2])
def test_sort_by_comparators_of_jax(dtype, count: int) -> None:
    special = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5, -2.0])
    xs = [RNG.choice(special, (2, 40)).astype(dtype.np) for _ in range(count)]
    comparator = jax_order(dtype, count)
    assert len(keys_of(comparator)) == count
    got = sort.eval(xs, 1, True, comparator)
    got = [got] if count == 1 else got
    for row in range(2):
        pairs = zip(*(x[row].astype(float) for x in xs), strict=True)
        want = sorted(pairs, key=lambda p: [(np.isnan(v), 0 if np.isnan(v) else v + 0.0) for v in p])
        np.testing.assert_array_equal(list(zip(*(g[row].astype(float) for g in got), strict=True)), want)


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("kind", ["", "TOTALORDER"])
def test_sort_with_numbers_that_are_none(direction: str, kind: str) -> None:
    """A comparator that NaN makes inconsistent still gives a permutation; total order puts -NaN first and NaN last."""
    b, t = Builder(), scalar(F32)
    body = b.function("c", [("a", t), ("b", t)], lambda a, c: [b(compare, a, c, direction=direction, compare_type=kind)])
    x = np.array([1, np.nan, -0.0, 0.0, -1, np.copysign(np.nan, -1), 2], np.float32)
    got = sort.eval([x], 0, True, body)
    assert sorted(map(repr, got[~np.isnan(got)])) == sorted(map(repr, x[~np.isnan(x)]))
    assert np.isnan(got).sum() == 2
    if kind:
        ascending = got if direction == "LT" else got[::-1]
        assert ascending[1:-1].tolist() == [-1, 0, 0, 1, 2]
        assert np.signbit(ascending[:3]).all()
        assert not np.signbit(ascending[3:]).any()


def test_sort_by_an_inconsistent_comparator_is_a_permutation() -> None:
    b, t = Builder(), scalar(I64)
    body = b.function("c", [("a", t), ("b", t)], lambda a, c: [b(compare, b(and_, a, b.constant(1, I64)), c, direction="NE")])
    x = RNG.integers(0, 9, 50)
    assert sorted(sort.eval([x], 0, True, body)) == sorted(x)


def test_integers_and_bools_sort_both_ways() -> None:
    for dtype, values in ((I8, [3, -128, 127, 0, 3]), (U8, [255, 0, 7, 7]), (BOOL, [True, False, True])):
        b, t = Builder(), scalar(dtype)
        for direction in ("LT", "GT"):
            body = b.function("c", [("a", t), ("b", t)], lambda a, c, d=direction, b=b: [b(compare, a, c, direction=d)])
            got = sort.eval([np.array(values).astype(dtype.np)], 0, True, body)
            assert got.tolist() == sorted(values, reverse=direction == "GT")


@pytest.mark.parametrize("k", [1, 2, 9, 12, 40, 100])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?"])
def test_the_greatest_come_in_the_order_of_their_positions(dtype: str, k: int) -> None:
    """Few different numbers, NaN and zeros of both signs among them: sorted by Python."""
    rng = np.random.default_rng(k)
    numbers = [0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, -np.nan, 7.0] if dtype[0] == "f" else [0, 1, 0 if dtype == "?" else 200]
    x = rng.choice(np.array(numbers).astype(dtype), (3, 2, 100))
    values, indices = top_k.eval([x], k)

    def place(v: float) -> tuple[float, float]:
        """In the total order, in which NaN is beyond the infinities."""
        sign = float(np.copysign(1, v))
        return (sign * np.inf, sign) if v != v else (v, sign if v == 0 else 0)

    def order(row: np.ndarray[Any, Any]) -> list[int]:
        return sorted(range(len(row)), key=lambda n: tuple(-x for x in place(float(row[n]))))[:k]

    want = np.array([[order(row) for row in rows] for rows in x])
    np.testing.assert_array_equal(indices, want)
    np.testing.assert_array_equal(values, np.take_along_axis(x, want, -1))
