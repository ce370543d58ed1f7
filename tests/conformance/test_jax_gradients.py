"""Derivatives by the conventions of JAX: ties, edges, complex numbers; in numbers, and against JAX itself where it is at hand."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Builder, Node
from deepx_graph.ops import (
    abs_,
    add,
    ceil,
    clamp,
    compare,
    concatenate,
    floor,
    map_,
    maximum,
    minimum,
    multiply,
    next_after,
    reduce_window,
    reduction,
    reshape,
    scatter,
    sign,
    sort,
    top_k,
)
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.interpret import evaluate
from deepx_graph.ops.vjp.accumulate import pullback
from deepx_graph.types import F64, I32, scalar, type_of_array
from tests.support.jax_gradients import recorded
from tests.support.jax_oracle import VARIABLE, unpacked

needs_jax = pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python that has JAX")


def check(case: dict[str, Any]) -> None:
    module = dx.loads(case["text"])
    args, cts, tangents, grads, pushed = (list(map(unpacked, case[k])) for k in ("args", "cts", "tangents", "grads", "pushed"))
    for program, more, expected in ((dx.grad(module), cts, grads), (dx.jvp(module), tangents, pushed)):
        found = dx.compile(program)(*args, *more)
        for got, want in zip(found, expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-10, err_msg=case["name"])


@needs_jax
@pytest.mark.conformance
def test_jax_agrees() -> None:
    cases = recorded()
    for case in cases:
        check(case)
    assert len(cases) > 30


# --- in numbers ---------------------------------------------------------------------------------------------------


def cotangents(build: Any, *arrays: Any) -> list[Any]:
    """By each operand, the gradient of the sum of 1, 10, 100, ... times the elements of what `build(b, *operands)` gives."""
    b = Builder()

    def body(*x: Node) -> list[Node]:
        y = build(b, *x)
        weights = 10.0 ** np.arange(int(np.prod(y.type.shape))).reshape(y.type.shape)
        found = pullback(b, [y], [b.constant(weights)], x)
        return [b.splat(0, i.type) if g is None else g for g, i in zip(found, x, strict=True)]  # type: ignore[arg-type]

    values = [np.asarray(a, np.float64) for a in arrays]
    return evaluate(b.function("f", [("x", type_of_array(v)) for v in values], body), values)


def scattered(body: Any, at: list[int]) -> Any:
    """Elements of the second operand combined into the first."""
    return lambda b, x, u: b(scatter, x, b.constant(at, I32), u, inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,),
                             index_vector_dim=1, update_computation=body)  # fmt: skip


def replacing() -> Any:
    t = scalar(F64)
    return Builder().function("replace", (("old", t), ("new", t)), lambda old, new: [new], public=False)


def descending() -> Any:
    b, t = Builder(), scalar(F64)
    return b.function("gt", [(n, t) for n in "abcd"], lambda p, q, r, s: [b(compare, p, q, direction="GT")], public=False)


def sorted_payload(b: Builder, keys: Node, payload: Node) -> Node:
    return b.proj(b(sort, keys, payload, dimension=0, comparator=descending()), 1)


def pooled(op: Any, init: float, size: int) -> Any:
    """A window of that size at every place where it fits."""
    return lambda b, x: b(reduce_window, x, b.constant(init), window_dimensions=(size,), window_strides=(1,), base_dilations=(1,),
                          window_dilations=(1,), padding_low=(0,), padding_high=(0,), body=monoid_body(op, F64))  # fmt: skip


def squares(b: Builder, x: Node) -> Node:
    """x * x by a computation that is not elementwise."""
    def body(e: Node) -> list[Node]:
        inner = Builder()
        return [reduction(inner, multiply, inner(concatenate, *(inner(reshape, e, shape=(1,)),) * 2, dimension=0), (0,))]

    return b(map_, x, computation=Builder().function("square", (("e", scalar(F64)),), body, public=False))


CONVENTIONS = {
    "a map of any function": (squares, [[1, 2, 5]], [[2, 40, 1000]]),
    "both take half of a tie": (lambda b, x, y: b(maximum, x, y), [[2, 3, 1], [2, 1, 5]], [[0.5, 10, 0], [0.5, 0, 100]]),
    "of minimum too": (lambda b, x, y: b(minimum, x, y), [[2, 3], [2, 1]], [[0.5, 0], [0.5, 10]]),
    "all greatest share": (lambda b, x: reduction(b, maximum, x, (0,)), [[1, 3, 3, 2]], [[0, 0.5, 0.5, 0]]),
    "all least share": (lambda b, x: reduction(b, minimum, x, (0,)), [[4, 4, 4, 9]], [[1 / 3, 1 / 3, 1 / 3, 0]]),
    "a product with one zero": (lambda b, x: reduction(b, multiply, x, (0,)), [[2, 0, 5]], [[0, 10, 0]]),
    "a product with two zeros": (lambda b, x: reduction(b, multiply, x, (0,)), [[2, 0, 0]], [[0, 0, 0]]),
    "the first of a window": (pooled(maximum, -np.inf, 2), [[1, 3, 3, 2]], [[0, 11, 100, 0]]),
    "the first least of a window": (pooled(minimum, np.inf, 3), [[4, 1, 1, 7]], [[0, 11, 0, 0]]),
    "a window's product with a zero": (pooled(multiply, 1.0, 2), [[2, 0, 5]], [[0, 2 + 50, 0]]),
    "top_k takes the first of equals": (lambda b, x: b.proj(b(top_k, x, k=2), 0), [[5, 7, 7, 7]], [[0, 1, 10, 0]]),
    "sorting is stable": (sorted_payload, [[1, 4, 1, 4], [0, 0, 0, 0]], [[0, 0, 0, 0], [100, 1, 1000, 10]]),
    "abs is flat at 0": (lambda b, x: b(abs_, x), [[-2, 0, 3]], [[-1, 0, 100]]),
    "steps are flat": (lambda b, x: b(add, b(add, b(sign, x), b(floor, x)), b(ceil, x)), [[-2, 0.5]], [[0, 0]]),
    "the next number is flat": (lambda b, x, y: b(next_after, x, y), [[1, 2], [3, 0]], [[0, 0], [0, 0]]),
    "clamping is flat at its bounds": (lambda b, lo, x, hi: b(clamp, lo, x, hi), [0, [-1, 0, 0.5, 1, 2], 1],
                                       [1, [0, 0, 100, 0, 0], 10000]),
    "the last update stays": (scattered(replacing(), [1, 0, 1]), [[0, 0, 0], [5, 6, 7]], [[0, 0, 100], [0, 1, 10]]),
    "equal updates and the old share": (scattered(monoid_body(maximum, F64), [0, 0, 2]), [[3, 1, 9], [3, 3, 2]],
                                        [[1 / 3, 10, 100], [1 / 3, 1 / 3, 0]]),
    "updates outside are lost": (scattered(monoid_body(add, F64), [-1, 2, 3]), [[0, 0, 0], [5, 6, 7]],
                                 [[1, 10, 100], [0, 100, 0]]),
    "the other updates' product": (scattered(monoid_body(multiply, F64), [0, 0, 1]), [[3, 5], [0, 7, 0]],
                                   [[0, 0], [21, 0, 50]]),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVENTIONS)
def test_at_ties_and_edges(name: str) -> None:
    build, arrays, expected = CONVENTIONS[name]
    for got, want in zip(cotangents(build, *arrays), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-14)
