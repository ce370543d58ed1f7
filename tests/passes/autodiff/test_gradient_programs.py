"""Gradients of programs that hypothesis draws, with branches, loops, calls and closures: reverse mode agrees with finite
differences, and forward mode is its transpose.

In double precision. A point counts where everything is finite and, for differences, where two step sizes agree: elsewhere a
comparison flips or a function has no derivative.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deepx_graph as dx
from deepx_graph.ir import Module
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.session.gradcheck.samples import random_value
from deepx_graph.session.gradcheck.to_double import widened
from deepx_graph.verify import verify
from tests.support.generate import random_module

PROGRAMS = st.randoms(use_true_random=False)
STEPS = (1e-5, 3e-6)

drawn = settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
many = settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Point:
    """A program, inputs in double precision, tangents of them and cotangents of its outputs."""

    def __init__(self, rng: random.Random) -> None:
        self.module = widened(random_module(rng, max_ops=25))
        self.rng = np.random.default_rng(rng.getrandbits(32))
        self.f = dx.compile(self.module, engine="numpy")
        self.args = [random_value(self.rng, p.type) for p in self.f.inputs]
        self.outs = self.run(self.f, self.args)
        self.floats = [k for k, a in enumerate(self.args) if a.dtype.kind == "f"]
        self.tangents = [self.rng.uniform(-1, 1, self.args[k].shape) for k in self.floats]
        self.cts = [self.rng.uniform(-1, 1, o.shape) for o in self.outs if o.dtype.kind == "f"]

    def run(self, f: Any, args: Sequence[Any]) -> Sequence[Any]:
        with np.errstate(all="ignore"):
            return list(f(*args))

    def derived(self, module: Module, more: Sequence[Any]) -> list[Any]:
        """What a gradient or tangent program gives, after its check."""
        verify(module)
        return list(self.run(dx.compile(module, engine="numpy"), [*self.args, *more]))

    def value(self, h: float) -> float:
        """The outputs weighted with their cotangents, `h` along the tangents."""
        args = list(self.args)
        for k, t in zip(self.floats, self.tangents, strict=True):
            args[k] = np.asarray(args[k] + h * t)
        outs = [o for o in self.run(self.f, args) if o.dtype.kind == "f"]
        return paired(outs, self.cts)


def paired(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    with np.errstate(all="ignore"):
        return float(sum(np.sum(x * y) for x, y in zip(xs, ys, strict=True)))


def size(xs: Sequence[Any], ys: Sequence[Any]) -> float:
    with np.errstate(all="ignore"):
        return float(1 + sum(np.sum(np.abs(x * y)) for x, y in zip(xs, ys, strict=True)))


def transposed(rng: random.Random) -> None:
    """<ct, J t> = <J' ct, t>."""
    p = Point(rng)
    if not p.floats or not p.cts:
        return
    back, forth = p.derived(grad(p.module), p.cts), p.derived(dx.jvp(p.module), p.tangents)
    scale = size(back, p.tangents) + size(forth, p.cts)
    if np.isfinite(scale):
        assert abs(paired(back, p.tangents) - paired(forth, p.cts)) <= 1e-9 * scale


def differing(rng: random.Random) -> bool:
    """Compares with differences; whether the point counts."""
    p = Point(rng)
    if not p.floats or not p.cts:
        return False
    back = p.derived(grad(p.module), p.cts)
    slopes = [(p.value(h) - p.value(-h)) / (2 * h) for h in STEPS]
    scale = max(size(back, p.tangents), size([o for o in p.outs if o.dtype.kind == "f"], p.cts))
    if not np.all(np.isfinite([*slopes, scale])) or abs(slopes[0] - slopes[1]) > 1e-6 * scale:
        return False
    assert abs(paired(back, p.tangents) - slopes[1]) <= 2e-6 * scale
    return True


@drawn
@given(PROGRAMS)
def test_forward_mode_is_the_transpose_of_reverse_mode(rng: random.Random) -> None:
    transposed(rng)


@drawn
@given(PROGRAMS)
def test_reverse_mode_agrees_with_differences(rng: random.Random) -> None:
    differing(rng)


def test_most_points_count() -> None:
    assert sum(differing(random.Random(seed)) for seed in range(20)) >= 8


@pytest.mark.conformance
@many
@given(PROGRAMS)
def test_many_programs(rng: random.Random) -> None:
    transposed(rng)
    differing(rng)
