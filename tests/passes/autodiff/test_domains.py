"""Gradients outside the domains of the samples: signs, axes, zeros and bounds, against differences and by written conventions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder, Op
from deepx_graph.ops import (
    atan2,
    cbrt,
    clamp,
    divide,
    dynamic_slice,
    dynamic_update_slice,
    floor_mod,
    log,
    power,
    remainder,
    rsqrt,
    sqrt,
)
from deepx_graph.ops.interpret import evaluate
from deepx_graph.ops.vjp.accumulate import pullback
from deepx_graph.types import type_of_array
from tests.support.case_functions import FUNCTIONS
from tests.support.gradient_laws import BY_CONVENTION

POINTS = np.array([-2.7, -1.4, -0.6, -0.2, 0.2, 0.6, 1.4, 2.7])
STEP = 1e-6


def slopes(op: Op, args: list[Any], **attrs: Any) -> list[Any]:
    """The gradients of the sum of an operation's results."""
    b = Builder(peephole=True)
    params = [b.param(k, type_of_array(a)) for k, a in enumerate(args)]
    result = b(op, *params, **attrs)
    found = pullback(b, [result], [b.like(1, result)], params)
    function = b.function("slopes", [(f"x{k}", p.type) for k, p in enumerate(params)], lambda *_: [result]).with_(
        params=tuple(params), results=tuple(b.like(0, p) if g is None else g for g, p in zip(found, params, strict=True)))
    with np.errstate(all="ignore"):
        return [np.broadcast_to(g, a.shape) for g, a in zip(evaluate(function, args), args, strict=True)]


@pytest.mark.parametrize("op", [op for op in FUNCTIONS if op.name not in BY_CONVENTION], ids=lambda op: op.name)
def test_slopes_are_those_of_differences_wherever_there_are_any(op: Op) -> None:
    args = [np.ascontiguousarray(a) for a in np.meshgrid(*[POINTS + 0.013 * k for k in range(len(op.operands))])]

    def at(k: int, step: float) -> Any:
        return op.eval([a + step if i == k else a for i, a in enumerate(args)])  # type: ignore[misc]

    compared = 0
    for k, found in enumerate(slopes(op, args)):
        with np.errstate(all="ignore"):
            near, far = ((at(k, h) - at(k, -h)) / (2 * h) for h in (STEP, 4 * STEP))
            smooth = np.isfinite(near) & (np.abs(near - far) <= 1e-5 * (1 + np.abs(near)))
        np.testing.assert_allclose(found[smooth], near[smooth], rtol=1e-4, atol=1e-5)
        compared += int(smooth.sum())
    assert compared >= POINTS.size // 4


WRITTEN: list[tuple[Op, tuple[float, ...], tuple[float, ...]]] = [
    (remainder, (-5.5, 2.0), (1, 2)), (remainder, (5.5, -2.0), (1, 2)), (remainder, (-5.5, -2.0), (1, -2)),
    (floor_mod, (-5.5, 2.0), (1, 3)), (floor_mod, (5.5, -2.0), (1, 3)),
    (power, (0.0, 2.0), (0, 0)), (power, (0.0, 1.0), (1, 0)), (power, (0.0, 0.0), (0, 0)), (power, (-2.0, 3.0), (12, math.nan)),
    (power, (0.0, 0.5), (math.inf, 0)),
    (atan2, (0.0, 1.0), (1, 0)), (atan2, (1.0, 0.0), (0, -1)), (atan2, (-1.0, 0.0), (0, 1)), (atan2, (0.0, -1.0), (-1, 0)),
    (cbrt, (-8.0,), (1 / 12,)), (log, (-2.0,), (-0.5,)), (sqrt, (0.0,), (math.inf,)), (rsqrt, (0.0,), (-math.inf,)),
    (divide, (1.0, -2.0), (-0.5, -0.25)),
    (clamp, (0.0, 0.0, 1.0), (0, 0, 0)), (clamp, (0.0, 1.0, 1.0), (0, 0, 0)), (clamp, (0.0, -1.0, 1.0), (1, 0, 0)),
]  # fmt: skip


@pytest.mark.parametrize(("op", "at", "wanted"), WRITTEN, ids=lambda x: x.name if isinstance(x, Op) else str(x))
def test_slopes_at_zeros_axes_and_bounds(op: Op, at: tuple[float, ...], wanted: tuple[float, ...]) -> None:
    np.testing.assert_allclose(slopes(op, list(map(np.float64, at))), wanted, rtol=1e-13)


@pytest.mark.parametrize(("start", "first"), [(-3, 0), (0, 0), (2, 2), (3, 3), (9, 3)])
def test_slices_outside_have_the_slopes_of_where_they_are_clamped_to(start: int, first: int) -> None:
    x, box, at = np.arange(5.0), np.ones(2), np.int32(start)
    inside = np.isin(np.arange(5), [first, first + 1]).astype(float)
    np.testing.assert_array_equal(slopes(dynamic_slice, [x, at], slice_sizes=(2,))[0], inside)
    by_x, by_box, _ = slopes(dynamic_update_slice, [x, box, at])
    np.testing.assert_array_equal(by_x, 1 - inside)
    np.testing.assert_array_equal(by_box, 1)
