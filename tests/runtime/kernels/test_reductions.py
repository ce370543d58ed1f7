"""Products that are summed; chains of types in numexpr's machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ops import add, convert, multiply, subtract
from deepx_graph.ops.contract.reduce import broadcast_in_dim, reduction
from deepx_graph.ops.interpret import evaluate
from deepx_graph.runtime.kernels.execute import build
from deepx_graph.runtime.kernels.lower_primitives import SHORT
from deepx_graph.runtime.kernels.staged import staged_function
from deepx_graph.types import BOOL, F32, F64, I32, I64, type_of_array

Array = np.ndarray[Any, Any]

def whole(seed: int, *shape: int) -> Array:
    """Small whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def check(make: Any, *arrays: Array) -> None:
    b = Builder()
    function: Function = b.function("f", [(f"x{k}", type_of_array(a)) for k, a in enumerate(arrays)], make)
    kernel = build(function, 1)
    assert kernel is not None
    for got, want in zip(kernel(arrays), evaluate(function, arrays), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("size", [5, SHORT + 3])
def test_a_multiplication_that_is_summed_may_be_a_result_too(size: int) -> None:
    b = Builder()

    def body(x: Node, y: Node) -> list[Node]:
        product = b(multiply, x, y)
        return [reduction(b, add, product, (1,)), product]

    check(body, whole(3, 2, size), whole(4, 2, size))


@pytest.mark.parametrize("size", [3, SHORT, 4096])
@pytest.mark.parametrize("kept", [(0, 2), (1, 2), (2,), (0, 1, 2)])
def test_products_of_what_varies_along_other_axes_are_summed(size: int, kept: tuple[int, ...]) -> None:
    """One factor is the same along some of the axes that stay, or that go: expected of numpy's own products and sums."""
    shape = (2, 3, size)
    x, y = whole(5, *shape), whole(6, *(shape[k] for k in kept))
    wide = y.reshape([shape[k] if k in kept else 1 for k in range(3)])
    b = Builder()

    def body(x: Node, y: Node) -> list[Node]:
        whole_y = y if len(kept) == 3 else b(broadcast_in_dim, y, shape=shape, broadcast_dimensions=kept)
        return [reduction(b, add, b(multiply, x, whole_y), axes) for axes in ((2,), (1, 2), (0, 1, 2), (0,))]

    function = b.function("f", [("x", type_of_array(x)), ("y", type_of_array(y))], body)
    want = [(x * wide).sum(axes) for axes in ((2,), (1, 2), (0, 1, 2), (0,))]
    staged = staged_function(function)
    for found in (build(function, 1)([x, y]), build(function, 1, 16)([x, y]), staged(x, y)):
        for got, right in zip(found, want, strict=True):
            np.testing.assert_array_equal(got, right)


NUMBERS = {I32: np.array([0, 1, -7, 2**24 + 1], np.int32), I64: np.array([0, 1, -7, 2**53 + 1]),
           BOOL: np.array([False, True, True, False]), F32: np.array([0, -0.5, 1e30, 3], np.float32),
           F64: np.array([0.1, -1e300, 1e-300, 3])}  # fmt: skip


@pytest.mark.parametrize("source", NUMBERS, ids=str)
@pytest.mark.parametrize("target", NUMBERS, ids=str)
def test_conversions_within_chains(source: Any, target: Any) -> None:
    """Of a few elements, so that a chain of small steps is worth the machine; before the conversion and after it."""
    b = Builder()

    def body(x: Node) -> list[Node]:
        other = b(convert, x if source is BOOL else b(add, x, x), dtype=target)
        return [other] if target is BOOL else [b(subtract, b(multiply, other, other), b(add, other, other))]

    with np.errstate(all="ignore"):
        check(body, NUMBERS[source])
