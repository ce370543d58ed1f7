"""Gradients by place: indices that fall outside or meet, elements that tie. Differences where they are smooth, else conventions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ops import (
    add,
    compare,
    dynamic_slice,
    dynamic_update_slice,
    gather,
    maximum,
    minimum,
    monoid_body,
    multiply,
    reduce,
    reduce_window,
    scatter,
    select_and_scatter,
    sort,
    subtract,
    top_k,
)
from deepx_graph.ops.vjp.window import comparison
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.types import F64, I32, scalar, tensor
from tests.ops.test_gradient_laws import drawn, function_of, gradient, paired, run, slope
from tests.passes.autodiff.test_grad import module
from tests.support.reference import evaluate

Arrays = list[Any]
REPLACE = Builder().function("replace", (("old", scalar(F64)), ("new", scalar(F64))), lambda old, new: [new], public=False)
COMBINE = {**{op.name: monoid_body(op, F64) for op in (add, subtract, multiply, maximum, minimum)}, "replace": REPLACE}


def gradients(op: Op, arrays: Arrays, cts: Arrays, by: list[int], **attrs: Any) -> Arrays:
    return run(gradient(function_of(op, arrays, attrs, by), cts, by), arrays)


def agrees_with_differences(op: Op, arrays: Arrays, by: list[int], **attrs: Any) -> None:
    rng = np.random.default_rng(3)
    function = function_of(op, arrays, attrs, by)
    cts = [drawn(rng, y) for y in run(function, arrays)]
    for k, g in zip(by, run(gradient(function, cts, by), arrays), strict=True):
        for _ in range(3):
            v = drawn(rng, arrays[k])
            assert paired([g], [v]) == pytest.approx(slope(function, arrays, [k], [v], cts), rel=1e-7, abs=1e-8)


def strewn(rng: np.random.Generator, like: Any, size: int) -> Any:
    """Indices of which many meet and many fall outside, at both ends where their dtype has them."""
    low = 0 if like.dtype.kind == "u" else -3
    return rng.integers(low, size + 3, like.shape).astype(like.dtype)


def indexed(op: Op, seed: int) -> list[tuple[Arrays, dict[str, Any]]]:
    """The op's samples with strewn indices, of unsigned and narrow dtypes too."""
    rng = np.random.default_rng(seed)
    found = []
    for arrays, attrs in op.samples(rng):  # type: ignore[misc]
        for dtype in (arrays[1].dtype, np.int8, np.uint8, np.int64):
            found.append(([arrays[0], strewn(rng, arrays[1].astype(dtype), max(arrays[0].shape)), *arrays[2:]], attrs))
    return found


@pytest.mark.parametrize("seed", range(3))
def test_gather_at_indices_that_meet_and_fall_outside(seed: int) -> None:
    for arrays, attrs in indexed(gather, seed):
        agrees_with_differences(gather, arrays, [0], **attrs)


@pytest.mark.parametrize("body", COMBINE.values(), ids=COMBINE)
def test_scatter_at_indices_that_meet_and_fall_outside(body: Function) -> None:
    for arrays, attrs in indexed(scatter, 1):
        agrees_with_differences(scatter, arrays, [0, 2], **{**attrs, "update_computation": body})


def test_scatter_that_multiplies_by_zeros_at_places_that_meet() -> None:
    at = {"inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1}
    for updates in ([0.0, 2.0, 3.0, 5.0], [0.0, 0.0, 3.0, 0.0], [2.0, 0.0, 0.0, 0.0]):
        arrays = [np.array([3.0, 0.0, -2.0]), np.array([[1], [1], [0], [0]]), np.array(updates)]
        agrees_with_differences(scatter, arrays, [0, 2], update_computation=COMBINE["multiply"], **at)


@pytest.mark.parametrize("op", [maximum, minimum], ids=lambda op: op.name)
def test_updates_that_tie_share_with_the_old_value_where_it_ties(op: Op) -> None:
    rng = np.random.default_rng(5)
    at = {"inserted_window_dims": (0,), "scatter_dims_to_operand_dims": (0,), "index_vector_dim": 1}
    for _ in range(8):
        x, indices = rng.integers(0, 3, 4).astype(float), rng.integers(-1, 6, (9, 1))
        updates, ct = rng.integers(0, 3, 9).astype(float), rng.random(4)
        by_x, by_updates = gradients(scatter, [x, indices, updates], [ct], [0, 2], update_computation=monoid_body(op, F64), **at)
        wanted_x, wanted_updates = np.zeros(4), np.zeros(9)
        for place in range(4):
            here = [k for k in range(9) if indices[k, 0] == place]
            best = (max if op is maximum else min)([x[place], *updates[here]])
            winners = [k for k in here if updates[k] == best]
            share = ct[place] / (len(winners) + (x[place] == best))
            wanted_updates[winners] = share
            wanted_x[place] = share * (x[place] == best)
        np.testing.assert_allclose(by_x, wanted_x, rtol=1e-14)
        np.testing.assert_allclose(by_updates, wanted_updates, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64])
def test_boxes_at_starts_that_fall_outside(dtype: Any) -> None:
    x, box = np.arange(20.0).reshape(4, 5), np.ones((2, 3))
    for starts in ((0, 0), (1, 2), (2, 3), (100, 1), (1, 100), (3, 4), *(() if np.dtype(dtype).kind == "u" else ((-1, -100),))):
        at = [np.array(s, dtype) for s in starts]
        agrees_with_differences(dynamic_slice, [x, *at], [0], slice_sizes=(2, 3))
        agrees_with_differences(dynamic_update_slice, [x, box, *at], [0, 1])


@pytest.mark.parametrize(("first", "step", "size"), [
    (0, 1, 1), (2, 1, 1), (3, 1, 1), (-1, 1, 1), (0, 2, 1), (5, -1, 1), (3, -1, 1), (2, -1, 1), (6, -1, 1),
    (0, 1, 2), (1, 1, 2), (3, 1, 2), (4, -1, 2), (0, 2, 2), (-3, 2, 2), (6, -2, 2), (0, 1, 3), (0, 3, 3),
])  # fmt: skip
def test_loops_over_boxes_that_meet_or_fall_outside(first: int, step: int, size: int) -> None:
    """What a loop reads and writes box by box, four times, in six elements; boxes that fall outside are moved inside."""
    def body(b: Builder, x: Node) -> list[Node]:
        def turn(v: tuple[Node, ...]) -> tuple[Node, list[Node]]:
            k, out = v
            box = b(dynamic_slice, x, k, slice_sizes=(size,))
            put = b(dynamic_update_slice, out, b(multiply, box, box), k)
            more = b(compare, k, b.constant(first + 4 * step, I32), direction="LT" if step > 0 else "GT")
            return more, [b(add, k, b.constant(step, I32)), put]

        return [b.loop([b.constant(first, I32), b.splat(0, tensor(F64, (6,)))], turn)[1]]

    m, x, ct = module(body, tensor(F64, (6,))), np.linspace(0.5, 3, 6), np.linspace(1, 2, 6)
    (found,) = evaluate(grad(m), [x, ct])
    steps = np.eye(6) * 1e-6
    wanted = [float(np.sum(ct * (evaluate(m, [x + s])[0] - evaluate(m, [x - s])[0]))) / 2e-6 for s in steps]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


# --- ties: by the conventions of docs/gradients.md, written as loops ---------------------------------------------------


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (2, 1), (0, 1, 2)], ids=str)
@pytest.mark.parametrize("op", [maximum, minimum], ids=lambda op: op.name)
def test_all_that_equal_an_extreme_share(op: Op, axes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    x = rng.integers(0, 2, (3, 4, 2)).astype(float)
    best = (np.max if op is maximum else np.min)(x, axes, keepdims=True)
    ct = rng.random(np.squeeze(best, axes).shape)
    wins = x == best
    wanted = wins * (ct.reshape(best.shape) / wins.sum(axes, keepdims=True))
    init = np.array(-np.inf if op is maximum else np.inf)
    (found,) = gradients(reduce, [x, init], [ct], [0], dimensions=axes, body=monoid_body(op, F64))
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


WINDOWS = [
    {"window_dimensions": (2, 3), "window_strides": (1, 1), "padding_low": (0, 0), "padding_high": (0, 0)},
    {"window_dimensions": (2, 2), "window_strides": (1, 2), "padding_low": (1, 0), "padding_high": (0, 1)},
    {"window_dimensions": (1, 3), "window_strides": (2, 1), "padding_low": (0, 2), "padding_high": (1, 0)},
]
DILATED = {"window_dimensions": (2, 2), "window_strides": (1, 1), "padding_low": (1, 0), "padding_high": (0, 2)}


def first_of_each(x: Any, op: Op, shape: tuple[int, ...], attrs: dict[str, Any]) -> dict[tuple[int, ...], tuple[int, ...] | None]:
    """For each window the first place, in row-major order, that holds its extreme; None where it holds no element."""
    found: dict[tuple[int, ...], tuple[int, ...] | None] = {}
    ones = (1,) * x.ndim
    base, spread = attrs.get("base_dilations", ones), attrs.get("window_dilations", ones)
    for at in np.ndindex(shape):
        best: tuple[int, ...] | None = None
        for offset in np.ndindex(attrs["window_dimensions"]):
            rows = zip(at, attrs["window_strides"], offset, spread, attrs["padding_low"], base, x.shape, strict=True)
            places = [(a * s + o * d - low, b, n) for a, s, o, d, low, b, n in rows]
            if all(p >= 0 and p % b == 0 and p // b < n for p, b, n in places):
                here = tuple(p // b for p, b, _ in places)
                if best is None or (x[here] > x[best] if op is maximum else x[here] < x[best]):
                    best = here
        found[at] = best
    return found


@pytest.mark.parametrize("attrs", [
    *({**w, "base_dilations": (1, 1), "window_dilations": (1, 1)} for w in WINDOWS),
    {**DILATED, "base_dilations": (1, 1), "window_dilations": (1, 2)},
    {**DILATED, "base_dilations": (2, 1), "window_dilations": (1, 1)},
], ids=["plain", "strides", "rows", "window dilations", "base dilations"])  # fmt: skip
@pytest.mark.parametrize("op", [maximum, minimum], ids=lambda op: op.name)
def test_the_first_of_a_window_takes_it_all(op: Op, attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(7)
    x = rng.integers(0, 2, (4, 5)).astype(float)
    arrays = [x, np.array(-np.inf if op is maximum else np.inf)]
    attrs = {**attrs, "body": monoid_body(op, F64)}
    (y,) = run(function_of(reduce_window, arrays, attrs, [0]), arrays)
    ct, wanted = rng.random(y.shape), np.zeros(x.shape)
    for at, place in first_of_each(x, op, y.shape, attrs).items():
        if place is not None:
            wanted[place] += ct[at]
    (found,) = gradients(reduce_window, arrays, [ct], [0], **attrs)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


@pytest.mark.parametrize("attrs", WINDOWS, ids=["plain", "strides", "rows"])
@pytest.mark.parametrize("op", [maximum, minimum], ids=lambda op: op.name)
def test_what_the_first_of_a_window_is_given_comes_from_its_window(op: Op, attrs: dict[str, Any]) -> None:
    rng = np.random.default_rng(8)
    x = rng.integers(0, 2, (4, 5)).astype(float)
    rows = zip(x.shape, *(attrs[k] for k in ("padding_low", "padding_high", "window_dimensions", "window_strides")), strict=True)
    shape = tuple((n + low + high - w) // s + 1 for n, low, high, w, s in rows)
    arrays, ct = [x, rng.random(shape), np.array(0.0)], rng.random(x.shape)
    given = {**attrs, "select": comparison("GE" if op is maximum else "LE", F64), "scatter": monoid_body(add, F64)}
    by_x, by_source, by_init = gradients(select_and_scatter, arrays, [ct], [0, 1, 2], **given)
    places = first_of_each(x, op, shape, attrs)
    wanted = np.array([0.0 if (place := places[at]) is None else ct[place] for at in np.ndindex(shape)]).reshape(shape)
    np.testing.assert_array_equal(by_x, 0)
    np.testing.assert_allclose(by_source, wanted, rtol=1e-14)
    np.testing.assert_allclose(by_init, ct.sum(), rtol=1e-13)


@pytest.mark.parametrize("direction", ["LT", "GT"])
@pytest.mark.parametrize("is_stable", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_equal_keys_stay_in_order_and_so_do_their_gradients(axis: int, is_stable: bool, direction: str) -> None:
    rng = np.random.default_rng(9)
    keys, values, t = rng.integers(0, 3, (5, 6)).astype(float), rng.random((5, 6)), scalar(F64)
    names = [(n, t) for n in ("a", "b", "u", "v")]
    before = Builder().function("before", names, lambda a, b, *_: [Builder()(compare, a, b, direction=direction)], public=False)
    order = np.argsort(keys if direction == "LT" else -keys, axis, kind="stable")
    cts = [rng.random((5, 6)), rng.random((5, 6))]
    found = gradients(sort, [keys, values], cts, [0, 1], dimension=axis, is_stable=is_stable, comparator=before)
    for g, ct in zip(found, cts, strict=True):
        wanted = np.zeros((5, 6))
        np.put_along_axis(wanted, order, ct, axis)
        np.testing.assert_array_equal(g, wanted)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_of_equal_elements_the_first_are_at_the_top(k: int) -> None:
    rng = np.random.default_rng(10)
    x, ct, wanted = rng.integers(0, 3, (4, 6)).astype(float), rng.random((4, k)), np.zeros((4, 6))
    (found,) = gradients(top_k, [x], [ct], [0], k=k)
    np.put_along_axis(wanted, np.argsort(-x, 1, kind="stable")[:, :k], ct, 1)
    np.testing.assert_array_equal(found, wanted)
