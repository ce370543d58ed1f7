"""Gradients where samples hardly ever lie: products with zeros among their factors, extremes that several elements share.

A product has a derivative everywhere, so finite differences tell it. An extreme has none at a tie; but adding a number to all
elements adds it to the result, so that the shares of those that tie sum to one, and which of them gets what is said by XLA.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Op
from deepx_graph.ops import (
    clamp,
    maximum,
    minimum,
    multiply,
    reduce,
    reduce_window,
    scatter,
    select_and_scatter,
    sort,
    top_k,
)
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.vjp.reduce import comparison
from deepx_graph.types import F64
from tests.support.gradient_laws import Arrays, drawn, function_of, gradient, paired, run, slope

Case = tuple[Op, Arrays, dict[str, Any], list[int]]
"""An op, its operands and attributes, and the operands by which to differentiate."""

FEW = np.array([[0, 1, 2, 1], [2, 2, 0, 1], [0, 0, 0, 3]], np.float64)
"""Zeros alone, several, and one in a row or column; ties of the least and the greatest."""


def window(**given: Any) -> dict[str, Any]:
    ones, none = (1, 1), (0, 0)
    return {"window_dimensions": (2, 3), "window_strides": ones, "base_dilations": ones, "window_dilations": ones,
            "padding_low": none, "padding_high": none, **given}  # fmt: skip


WINDOWS = [window(), window(window_strides=(2, 1)), window(window_dimensions=(2, 1)), window(window_dimensions=(1, 3)),
           window(window_dimensions=(3, 2), window_dilations=(1, 3)), window(window_dimensions=(3, 1), padding_low=(2, 0)),
           window(window_dimensions=(1, 3), base_dilations=(1, 2), window_dilations=(1, 2))]  # fmt: skip

NUMBERS = {"update_window_dims": (1,), "inserted_window_dims": (0,), "input_batching_dims": (), "scatter_indices_batching_dims": (),
           "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1}  # fmt: skip
PLACES = [np.array([[0], [2], [2]]), np.array([[1], [1], [1]]), np.array([[5], [0], [0]])]
UPDATES = np.array([[0, 2, 1, 0], [0, 0, 3, 1], [2, 0, 1, 3]], np.float64)


def products() -> Iterator[Case]:
    body, one = monoid_body(multiply, F64), np.float64(1)
    for axes in ((0,), (1,), (0, 1), (1, 0)):
        yield reduce, [FEW, one], {"dimensions": axes, "body": body}, [0]
        yield reduce, [FEW, np.float64(0)], {"dimensions": axes, "body": body}, [0, 1]
    for attrs in WINDOWS:
        yield reduce_window, [FEW, one], {**attrs, "body": body}, [0]
        yield reduce_window, [FEW, np.float64(2)], {**attrs, "body": body}, [0, 1]
    for places in PLACES:
        yield scatter, [FEW, places, UPDATES], {**NUMBERS, "update_computation": body}, [0, 2]


@pytest.mark.parametrize("case", products(), ids=lambda c: c[0].name)
def test_products_with_zeros_agree_with_finite_differences(case: Case) -> None:
    op, arrays, attrs, by = case
    rng = np.random.default_rng(1)
    function = function_of(op, arrays, attrs, by)
    cts = [drawn(rng, y) for y in run(function, arrays)]
    for k, g in zip(by, run(gradient(function, cts, by), arrays), strict=True):
        v = drawn(rng, arrays[k])
        assert paired([g], [v]) == pytest.approx(slope(function, arrays, [k], [v], cts), rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("x", [0.2, 0.7, 1.5])
def test_clamp_between_bounds_that_cross_agrees_with_finite_differences(x: float) -> None:
    """Where the lower bound is above the higher one the result is the higher one, and so is the derivative."""
    arrays, by = [np.float64(1), np.array([x]), np.float64(0.5)], [0, 1, 2]
    function = function_of(clamp, arrays, {}, by)
    cts = [drawn(np.random.default_rng(1), y) for y in run(function, arrays)]
    for k, g in zip(by, run(gradient(function, cts, by), arrays), strict=True):
        v = np.ones_like(arrays[k])
        assert paired([g], [v]) == pytest.approx(slope(function, arrays, [k], [v], cts), rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("x", [0.2, 1.5])
def test_clamp_between_bounds_that_are_one_agrees_with_finite_differences(x: float) -> None:
    """The bounds move together: the result is theirs, and the derivative one."""
    arrays = [np.float64(1), np.array([x]), np.float64(1)]
    function = function_of(clamp, arrays, {}, [0, 1, 2])
    cts = [drawn(np.random.default_rng(1), y) for y in run(function, arrays)]
    low, inner, high = run(gradient(function, cts, [0, 1, 2]), arrays)
    assert float(low) + float(high) == pytest.approx(slope(function, arrays, [0, 2], [np.float64(1), np.float64(1)], cts), rel=1e-7)
    assert not np.any(inner)


def extremes() -> Iterator[Case]:
    for op in (maximum, minimum):
        body = monoid_body(op, F64)
        least = np.float64(-np.inf if op is maximum else np.inf)
        for axes in ((0,), (1,), (0, 1)):
            yield reduce, [FEW, least], {"dimensions": axes, "body": body}, [0]
            yield reduce, [FEW, np.float64(1)], {"dimensions": axes, "body": body}, [0, 1]
        for attrs in WINDOWS[:5]:
            yield reduce_window, [FEW, least], {**attrs, "body": body}, [0]
        for places in PLACES[:2]:
            yield scatter, [FEW, places, UPDATES], {**NUMBERS, "update_computation": body}, [0, 2]
    yield top_k, [FEW], {"k": 3}, [0]
    yield sort, [FEW], {"dimension": 1, "comparator": comparison("LT", F64)}, [0]


@pytest.mark.parametrize("case", extremes(), ids=lambda c: c[0].name)
def test_the_shares_of_a_tie_sum_to_one(case: Case) -> None:
    op, arrays, attrs, by = case
    function = function_of(op, arrays, attrs, by)
    cts = [drawn(np.random.default_rng(2), y) for y in run(function, arrays)]
    shares = run(gradient(function, cts, by), arrays)
    assert sum(map(np.sum, shares)) == pytest.approx(sum(map(np.sum, cts)), rel=1e-12)


def by_loops(x: Any, g: Any, is_greatest: bool) -> Any:
    """Each element of g at the first place, in rows, of its window of 2 by 2 that holds the extreme."""
    found = np.zeros_like(x)
    for i, j in np.ndindex(*g.shape):
        part = x[i : i + 2, j : j + 2]
        at = np.unravel_index(part.argmax() if is_greatest else part.argmin(), part.shape)
        found[i + at[0], j + at[1]] += g[i, j]
    return found


@pytest.mark.parametrize("op", [maximum, minimum], ids=lambda op: op.name)
@pytest.mark.parametrize("dilated", [False, True])
def test_the_first_of_a_window_has_it_all(op: Op, dilated: bool) -> None:
    """As XLA's select_and_scatter; dilation takes another way to the same."""
    attrs = window(window_dimensions=(2, 2), window_dilations=(1, 2) if dilated else (1, 1))
    x = FEW.repeat(2, 1) if dilated else FEW
    least = np.float64(-np.inf if op is maximum else np.inf)
    function = function_of(reduce_window, [x, least], {**attrs, "body": monoid_body(op, F64)}, [0])
    (y,) = run(function, [x, least])
    g = np.arange(1.0, y.size + 1).reshape(y.shape)
    (found,) = run(gradient(function, [g], [0]), [x, least])
    if not dilated:
        np.testing.assert_array_equal(found, by_loops(x, g, op is maximum))
        return
    even, odd = (by_loops(x[:, k::2], g[:, k::2], op is maximum) for k in (0, 1))
    np.testing.assert_array_equal(found[:, 0::2], even)
    np.testing.assert_array_equal(found[:, 1::2], odd)


def test_elements_that_tie_in_a_reduction_share() -> None:
    least = np.float64(-np.inf)
    function = function_of(reduce, [FEW, least], {"dimensions": (1,), "body": monoid_body(maximum, F64)}, [0])
    (found,) = run(gradient(function, [np.array([6.0, 4.0, 5.0])], [0]), [FEW, least])
    np.testing.assert_array_equal(found, [[0, 0, 6, 0], [2, 2, 0, 0], [0, 0, 0, 5]])


def test_what_a_window_selects_is_its_first() -> None:
    source = np.array([[1, 2, 3], [4, 5, 6]], np.float64)
    attrs = {"window_dimensions": (2, 2), "window_strides": (1, 1), "padding_low": (0, 0), "padding_high": (0, 0),
             "select": comparison("GE", F64), "scatter": monoid_body(multiply, F64)}  # fmt: skip
    function = function_of(select_and_scatter, [FEW, source, np.float64(1)], attrs, [1])
    (y,) = run(function, [FEW, source, np.float64(1)])
    np.testing.assert_array_equal(y, [[1, 1, 6, 1], [4, 5, 1, 1], [1, 1, 1, 6]])
    (found,) = run(gradient(function, [np.ones_like(y)], [1]), [FEW, source, np.float64(1)])
    np.testing.assert_array_equal(found, [[4, 3, 2], [1, 1, 1]])
