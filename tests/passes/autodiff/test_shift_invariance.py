"""Maxima that cancel get no backward code; all others do. Values against finite differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from deepx_graph.ir import Builder, Node
from deepx_graph.ops import (
    add,
    broadcast_in_dim,
    compare,
    divide,
    exponential,
    log,
    maximum,
    multiply,
    reduction,
    reshape,
    subtract,
)
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.types import F64, tensor
from tests.support.grad_programs import Body, M, finite_difference, module, sampled
from tests.support.reference import evaluate


def spread(b: Builder, x: Node) -> Node:
    return b(broadcast_in_dim, x, shape=(2, 3), broadcast_dimensions=(0,))


def top(b: Builder, x: Node) -> Node:
    return reduction(b, maximum, x, (1,))


def shifted(b: Builder, x: Node) -> Node:
    return b(subtract, x, spread(b, top(b, x)))


def row_sum(b: Builder, x: Node) -> Node:
    return reduction(b, add, x, (1,))


def softmax(b: Builder, x: Node) -> list[Node]:
    e = b(exponential, shifted(b, x))
    return [b(divide, e, spread(b, row_sum(b, e)))]


def log_softmax(b: Builder, x: Node) -> list[Node]:
    z = shifted(b, x)
    return [b(subtract, z, spread(b, b(log, row_sum(b, b(exponential, z)))))]


def log_sum_exp(b: Builder, x: Node) -> list[Node]:
    m = top(b, x)
    return [b(add, b(log, row_sum(b, b(exponential, b(subtract, x, spread(b, m))))), m)]


def jax_softmax(b: Builder, x: Node) -> list[Node]:
    m = b(maximum, b(broadcast_in_dim, b.constant(-np.inf), shape=(2,), broadcast_dimensions=()), top(b, x))
    wide = b(broadcast_in_dim, b(reshape, m, shape=(2, 1)), shape=(2, 3), broadcast_dimensions=(0, 1))
    e = b(exponential, b(subtract, x, wide))
    total = b(broadcast_in_dim, b(reshape, row_sum(b, e), shape=(2, 1)), shape=(2, 3), broadcast_dimensions=(0, 1))
    return [b(divide, e, total)]


def shift_alone(b: Builder, x: Node) -> list[Node]:
    return [shifted(b, x)]


def wrong_axis(b: Builder, x: Node) -> list[Node]:
    e = b(exponential, shifted(b, x))
    columns = b(broadcast_in_dim, reduction(b, add, e, (0,)), shape=(2, 3), broadcast_dimensions=(1,))
    return [b(divide, e, columns)]


def also_used(b: Builder, x: Node) -> list[Node]:
    return [*softmax(b, x), b(multiply, top(b, x), top(b, x))]


def half_cancelled(b: Builder, x: Node) -> list[Node]:
    e = b(exponential, shifted(b, x))
    return [b(divide, b(multiply, e, e), spread(b, row_sum(b, e)))]


CANCEL: dict[str, Body] = {"softmax": softmax, "log softmax": log_softmax, "log sum exp": log_sum_exp, "as JAX": jax_softmax}
STAY: dict[str, Body] = {"shift": shift_alone, "wrong axis": wrong_axis, "also used": also_used, "half": half_cancelled}


@pytest.mark.parametrize("name", [*CANCEL, *STAY])
def test_equals_finite_differences(name: str) -> None:
    m = module((CANCEL | STAY)[name], M)
    args, cts = sampled((M,)), sampled(m.entry.type.results, seed=1)
    found, = evaluate(grad(m), [*args, *cts])
    np.testing.assert_allclose(found, finite_difference(m, args, cts, 0), rtol=1e-5, atol=1e-8)


def searches(m: Sequence[Node]) -> bool:
    """Whether a gradient looks for where the maximum stands."""
    return any(n.op is compare for n in m)


@pytest.mark.parametrize("name", [*CANCEL, *STAY])
def test_only_what_cancels_is_left_out(name: str) -> None:
    m = module((CANCEL | STAY)[name], tensor(F64, (2, 3)))
    assert searches(grad(m).entry.nodes) == (name in STAY)
