"""No gradient comes from the side of a select that was not taken, whatever the slopes are there; and nothing else pays for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Module, Node, Op
from deepx_graph.ops import (
    OPS,
    abs_,
    add,
    and_,
    broadcast_in_dim,
    compare,
    divide,
    dot_general,
    exponential,
    exponential_minus_one,
    log,
    maximum,
    multiply,
    power,
    reduction,
    reshape,
    rsqrt,
    select,
    sqrt,
    stop_gradient,
    subtract,
    tanh,
    transpose,
)
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.passes.autodiff.jvp import jvp
from deepx_graph.types import BOOL, F64, TensorType, tensor, type_of_array
from tests.support.case_functions import AWKWARD, FUNCTIONS, P, V
from tests.support.grad_programs import module
from tests.support.laws import samples
from tests.support.reference import evaluate


def gradients(m: Module, args: Sequence[Any], cts: Sequence[Any]) -> list[Any]:
    return evaluate(grad(m), [*args, *cts])


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda op: op.name)
def test_the_other_side_has_no_part_in_a_gradient(op: Op) -> None:
    """Every function at awkward points that are not selected, alone and with functions before and after it."""
    count = len(op.operands)
    taken = np.full(AWKWARD.shape, False)
    cts = [np.linspace(1, 2, taken.size)]

    def chains(b: Builder, p: Node, *x: Node) -> Sequence[Node]:
        y = b(reshape, b(op, *(b(sqrt, i) for i in x)), shape=(2, 5))
        spread = b(broadcast_in_dim, b(exponential, y), shape=(3, 2, 5), broadcast_dimensions=(1, 2))
        total = reduction(b, add, b(transpose, spread, permutation=(0, 2, 1)), (0,))
        back = b(reshape, b(transpose, total, permutation=(1, 0)), shape=taken.shape)
        return [b(select, p, back, b(op, *x))]

    def alone(b: Builder, p: Node, *x: Node) -> Sequence[Node]:
        return [b(select, p, b(op, *x), b.like(0, x[0]))]

    for arrays in ([AWKWARD] * count, [AWKWARD, AWKWARD[::-1]][:count]):
        for g in gradients(module(alone, P, *[V] * count), [taken, *arrays], cts):
            np.testing.assert_array_equal(g, 0)
    good = [np.linspace(*op.domain, 12)[1:-1].clip(0.1)] * count
    for g in gradients(module(alone, P, *[V] * count), [~taken, *good], cts):
        assert np.all(np.isfinite(g))
    plain = gradients(module(lambda b, *x: [b(op, *x)], *[V] * count), good, cts)
    for g, wanted in zip(gradients(module(chains, P, *[V] * count), [taken, *good], cts), plain, strict=True):
        np.testing.assert_array_equal(g, wanted)


FINITE = np.array([0.0, -0.0, -1.0, 1.0, -2.5, 1e308, -1e308, 3.0, 0.5, 7.0])


@pytest.mark.parametrize("constant", [AWKWARD, FINITE], ids=["awkward", "finite"])
@pytest.mark.parametrize("op", [op for op in FUNCTIONS if len(op.operands) == 2], ids=lambda op: op.name)
def test_constants_on_the_other_side_have_no_part_either(op: Op, constant: np.ndarray) -> None:
    """By zero, infinities and NaN as constants, on either side of the operand."""
    def right(b: Builder, p: Node, x: Node) -> Sequence[Node]:
        return [b(select, p, b(op, b(op, x, b.constant(constant)), b.constant(constant[::-1].copy())), x)]

    def left(b: Builder, p: Node, x: Node) -> Sequence[Node]:
        return [b(select, p, b(op, b.constant(constant), b(op, b.constant(constant[::-1].copy()), x)), x)]

    cts = np.linspace(1, 2, constant.size)
    for body in (right, left):
        (found,) = gradients(module(body, P, V), [np.full(constant.shape, False), np.linspace(0.5, 2, constant.size)], [cts])
        np.testing.assert_array_equal(found, cts)


VIEWS = [op for op in OPS.values() if op.view and op.vjp is not None and op.operands]


@pytest.mark.parametrize("op", VIEWS, ids=lambda op: op.name)
def test_one_predicate_for_all_elements_masks_them_wherever_they_are_moved(op: Op) -> None:
    """The root of what an operation moves: no slope comes of it where the other side is taken, the usual one where it is."""
    tried = 0
    for arrays, attrs in samples(op):
        x, *rest = arrays
        if x.dtype.kind != "f":
            continue

        def body(b: Builder, p: Node, x: Node, attrs: dict[str, Any] = attrs, rest: Sequence[Any] = rest) -> Sequence[Node]:
            moved = b(op, b(sqrt, x), *map(b.constant, rest), **attrs)
            return [b(select, p, b(exponential, b(sqrt, moved)), b.like(0, moved))]

        m = module(body, tensor(BOOL, ()), type_of_array(x))
        (y,) = evaluate(m, [np.bool_(False), x])
        (masked,) = gradients(m, [np.bool_(False), np.zeros_like(x)], [np.ones_like(y)])
        np.testing.assert_array_equal(masked, np.zeros_like(x))
        positive = abs(x) + x.dtype.type(1)
        (taken,) = gradients(m, [np.bool_(True), positive], [np.ones_like(y)])
        assert np.all(np.isfinite(taken))
        assert op is stop_gradient or x.size == 0 or y.size == 0 or np.any(taken)
        tried += 1
    assert tried


def expanded(b: Builder, x: Node) -> Sequence[Node]:
    """As compilers spell out functions: by case, each with a formula that means nothing outside its case."""

    def like(value: float) -> Node:
        return b.like(value, x)

    def above(v: Node, limit: float) -> Node:
        return b(compare, v, like(limit), direction="GT")

    w = b(log, b(abs_, x))
    near = b(power, w, like(0.5))  # log x <= 1: elsewhere taken of negative numbers
    far = b(sqrt, b(subtract, w, like(1.0)))
    inner = b(select, above(w, 1.0), far, b(select, above(w, 0.0), near, b(divide, like(1.0), x)))
    return [b(select, above(x, 0.0), inner, b(exponential, x))]


def slope_of_expanded(x: Any) -> Any:
    w = np.log(np.abs(x))
    by_case = [(x <= 0, np.exp(x)), (w > 1, 0.5 / (x * np.sqrt(w - 1))), (w > 0, 0.5 / (x * np.sqrt(w)))]
    return np.select([c for c, _ in by_case], [v for _, v in by_case], -1 / x**2)


def test_formulas_by_case_have_the_slope_of_their_case() -> None:
    x = np.array([-3.0, -0.5, 0.0, 0.3, 0.9, 1.5, 2.0, 5.0, 30.0])
    m = module(lambda b, x: expanded(b, x), tensor(F64, x.shape))
    with np.errstate(all="ignore"):
        wanted = slope_of_expanded(x)
    (found,) = gradients(m, [x], [np.ones(x.shape)])
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    pushed = evaluate(jvp(m), [x, np.ones(x.shape)])[-1]
    np.testing.assert_allclose(pushed, wanted, rtol=1e-13)


def test_second_derivatives_are_masked_too() -> None:
    x = np.array([-1.0, 0.0, 2.0])

    def body(b: Builder, x: Node) -> Sequence[Node]:
        return [b(select, b(compare, x, b.like(0, x), direction="GT"), b(log, x), b.like(0, x))]

    ones = np.ones(3)
    twice = grad(grad(module(body, tensor(F64, (3,)))), ["x0"])
    (found,) = evaluate(twice, [x, ones, ones])
    np.testing.assert_array_equal(found, [0, 0, -0.25])


def test_what_cases_share_is_masked_where_none_is_taken() -> None:
    """One value under two predicates: its cotangent is zero where neither holds."""
    x = np.array([-1.0, 0.0, 1.0, 4.0])

    def body(b: Builder, x: Node) -> Sequence[Node]:
        zero, shared = b.like(0, x), b(sqrt, x)
        large = b(compare, x, b.like(2, x), direction="GT")
        small = b(and_, b(compare, x, zero, direction="GT"), b(compare, x, b.like(2, x), direction="LT"))
        return [b(select, large, b(multiply, shared, shared), b(select, small, b(tanh, shared), zero))]

    (found,) = gradients(module(body, tensor(F64, (4,))), [x], [np.ones(4)])
    np.testing.assert_allclose(found, [0, 0, (1 - np.tanh(1) ** 2) / 2, 1], rtol=1e-14)


M, S = tensor(F64, (4, 4)), tensor(F64, ())


def over_zero(b: Builder, x: Node, yes: Callable[[Node], Node], no: Callable[[Node], Node]) -> list[Node]:
    return [b(select, b(compare, x, b.like(0, x), direction="GT"), yes(x), no(x))]


def masked_scores(b: Builder, p: Node, q: Node, k: Node) -> list[Node]:
    scores = b(dot_general, q, k, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
    return [b(select, p, b(divide, scores, b.like(2.0, scores)), b.like(-1e9, scores))]


def elu(b: Builder, x: Node) -> list[Node]:
    def no(v: Node) -> Node:
        return b(exponential_minus_one, b(select, b(compare, v, b.like(0, v), direction="GT"), b.like(0, v), v))

    return over_zero(b, x, lambda v: v, no)


FREE: dict[str, tuple[Callable[..., list[Node]], tuple[TensorType, ...], int]] = {
    "no select": (lambda b, x: [b(log, b(rsqrt, b(divide, x, b(sqrt, x))))], (M,), 0),
    "maximum": (lambda b, x, y: [b(maximum, b(multiply, x, y), b.like(0, x))], (M, M), 2),
    "leaky relu": (lambda b, x: over_zero(b, x, lambda v: v, lambda v: b(multiply, v, b.like(0.01, v))), (M,), 2),
    "elu": (elu, (M,), 4),
    "masked attention": (masked_scores, (tensor(BOOL, (4, 4)), M, M), 1),
}
"""Programs, and how many selects a gradient of each has that puts no zero back; its own included."""


@pytest.mark.parametrize("name", FREE)
def test_where_zeros_stay_zeros_nothing_is_added(name: str) -> None:
    body, types, count = FREE[name]
    assert sum(n.op is select for n in grad(module(body, *types)).entry.nodes) == count


def test_a_mask_is_kept_through_a_select_that_takes_what_it_masks() -> None:
    """Where the outer select is not taken and the inner one is, an infinite slope between them counts for nothing."""
    x = np.array([0.0, 0.0, 4.0, 4.0, 0.0])
    outer, inner = np.array([False, False, True, True, False]), np.array([True, False, True, False, True])

    def body(b: Builder, x: Node, p: Node, q: Node) -> Sequence[Node]:
        return [b(select, p, b(sqrt, b(select, q, x, b.like(1, x))), b.like(0, x))]

    t = tensor(BOOL, x.shape)
    (found,) = gradients(module(body, tensor(F64, x.shape), t, t), [x, outer, inner], [np.ones(x.shape)])
    np.testing.assert_array_equal(found, [0, 0, 0.25, 0, 0])
