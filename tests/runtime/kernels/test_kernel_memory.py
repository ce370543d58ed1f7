"""Sums by numpy's fast loops, and results in the memory of temporaries and arguments: neither shows in the values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ops import add, divide, multiply, sqrt, subtract
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.interpret import evaluate
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.execute import Kernel, build
from deepx_graph.types import F32, type_of_array
from tests.support import laws

Array = np.ndarray[Any, Any]
BLOCKS = (7, 100, costs.BLOCK_ELEMENTS)


def kernel_of(function: Function, block: int = costs.BLOCK_ELEMENTS, threads: int = 2) -> Kernel:
    found = build(function, threads, block)
    assert found is not None
    return found


def function_of(body: Any, *args: Any) -> Function:
    return Builder().function("f", [(f"p{k}", type_of_array(a)) for k, a in enumerate(args)], body)


def whole_numbers(seed: int, *shape: int, dtype: Any = np.float32) -> Array:
    """Small whole numbers, whose sums are exact in every order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


# --- sums


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("shape", [(1,), (2,), (1023,), (1024,), (1025,), (2049,), (4097,), (3, 2500), (9, 2048), (2, 3, 700)])
def test_sums_and_sums_of_products_along_the_last_axes(shape: tuple[int, ...], block: int, dtype: Any) -> None:
    x, y = whole_numbers(1, *shape, dtype=dtype), whole_numbers(2, *shape, dtype=dtype)

    def body(x: Node, y: Node) -> Sequence[Node]:
        b, every = Builder(), tuple(range(len(shape)))
        used = b(multiply, x, y)
        return [reduction(b, add, x, every), reduction(b, add, b(multiply, x, x), every[-1:]), reduction(b, add, used, every),
                reduction(b, add, b(subtract, x, y), every[1:]), used]

    function = function_of(body, x, y)
    args = [(x, y), (x[::-1], y), (np.asfortranarray(x), y[::-1])]
    for given in args:
        want = evaluate(function, given)
        for threads in (1, 2):
            assert all(laws.same(g, w) for g, w in zip(kernel_of(function, block, threads)(given), want, strict=True))


@pytest.mark.parametrize("block", [100, costs.BLOCK_ELEMENTS])
def test_a_sum_keeps_the_sign_of_zero_and_what_is_not_finite(block: int) -> None:
    rows = [[-0.0, -0.0], [-0.0, 0.0], [np.inf, 1], [np.inf, -np.inf], [np.nan, 0], [-1.0, 1.0]]
    x = np.repeat(np.array(rows, np.float32), 600, axis=1)
    function = function_of(lambda x: [reduction(Builder(), add, v, (1,)) for v in (x, Builder()(multiply, x, x))], x)
    with np.errstate(all="ignore"):
        for got, want in zip(kernel_of(function, block)([x]), evaluate(function, [x]), strict=True):
            assert laws.same(got, want)


@pytest.mark.parametrize("size", [100_000, 1_000_000])
def test_a_long_single_precision_sum_is_as_good_as_numpy_s(size: int) -> None:
    for x in (np.full(size, 0.1, np.float32), np.random.default_rng(0).random(size).astype(np.float32)):
        function = function_of(lambda x: [reduction(Builder(), add, x, (0,))], x)
        exact = float(x.astype(np.float64).sum())
        for threads in (1, 2):
            (got,) = kernel_of(function, threads=threads)([x])
            assert abs(float(got) - exact) < 1e-6 * exact


def test_a_sum_does_not_depend_on_the_number_of_threads() -> None:
    x = np.random.default_rng(0).standard_normal((700, 1024)).astype(np.float32)
    function = function_of(lambda x: [reduction(Builder(), add, x, axes) for axes in ((1,), (0, 1), (0,))], x)
    one, two = (kernel_of(function, threads=t)([x]) for t in (1, 2))
    assert all(laws.same(a, b) for a, b in zip(one, two, strict=True))


# --- memory


def update(p: Node, m: Node, v: Node, g: Node) -> Sequence[Node]:
    """A step of Adam."""
    b = Builder()
    m = b(add, b(multiply, b.constant(0.9, F32), m), b(multiply, b.constant(0.1, F32), g))
    v = b(add, b(multiply, b.constant(0.99, F32), v), b(multiply, b(multiply, b.constant(0.01, F32), g), g))
    step = b(divide, m, b(add, b(sqrt, v), b.constant(1e-3, F32)))
    return [b(subtract, p, step), m, v]


@pytest.mark.parametrize("block", BLOCKS)
def test_each_result_of_an_update_takes_the_memory_of_what_it_replaces(block: int) -> None:
    args = [np.abs(np.random.default_rng(k).standard_normal(150)).astype(np.float32) for k in range(4)]
    function = function_of(update, *args)
    kernel, want = kernel_of(function, block), evaluate(function, args)
    assert block == costs.BLOCK_ELEMENTS or all(k in may for k, may in enumerate(kernel.in_place))
    for given in itertools.product((False, True), repeat=3):
        mine = [a.copy() for a in args]
        out = [mine[k] if taken else np.empty_like(args[k]) for k, taken in enumerate(given)]
        got = kernel(mine, out)
        assert all(g is o and laws.same(g, w) for g, o, w in zip(got, out, want, strict=True))


@pytest.mark.parametrize("block", BLOCKS)
def test_any_result_over_any_argument(block: int) -> None:
    args = [np.abs(np.random.default_rng(k).standard_normal(150)).astype(np.float32) for k in range(4)]
    function = function_of(update, *args)
    want = evaluate(function, args)
    for places in itertools.permutations(range(4), 3):
        mine = [a.copy() for a in args]
        got = kernel_of(function, block)(mine, [mine[k] for k in places])
        assert all(laws.same(g, w) for g, w in zip(got, want, strict=True))
