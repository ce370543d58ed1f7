"""Sums by dots and by einsum at the ends of their pieces; products that are results too; chains of types in numexpr's machine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ops import add, convert, multiply, subtract
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.interpret import evaluate
from deepx_graph.runtime.kernels.execute import build
from deepx_graph.runtime.kernels.reductions import DOT, PIECE, _dots, _sums
from deepx_graph.types import BOOL, F32, F64, I32, I64, type_of_array

Array = np.ndarray[Any, Any]
ENDS = sorted({1, 7, *(n + k for n in (PIECE, DOT, 2 * DOT) for k in (-1, 0, 1)), 3 * DOT + 5})


def whole(seed: int, *shape: int) -> Array:
    """Small whole numbers, whose sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("size", ENDS)
def test_partial_sums_have_every_element_once(size: int) -> None:
    x, y = whole(1, 3, size), whole(2, 3, size)
    for sums, operands, want in ((_sums, (x,), x.sum(1)), (_dots, (x,), x.sum(1)), (_dots, (x, y), (x * y).sum(1))):
        out = np.full(3, np.nan, np.float32)
        sums(*operands, out)
        np.testing.assert_array_equal(out, want)


def check(make: Any, *arrays: Array) -> None:
    b = Builder()
    function: Function = b.function("f", [(f"x{k}", type_of_array(a)) for k, a in enumerate(arrays)], make)
    kernel = build(function, 1)
    assert kernel is not None
    for got, want in zip(kernel(arrays), evaluate(function, arrays), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("size", [5, DOT + 3])
def test_a_multiplication_that_is_summed_may_be_a_result_too(size: int) -> None:
    b = Builder()

    def body(x: Node, y: Node) -> list[Node]:
        product = b(multiply, x, y)
        return [reduction(b, add, product, (1,)), product]

    check(body, whole(3, 2, size), whole(4, 2, size))


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
