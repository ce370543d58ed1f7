"""Both modes on random programs with branches, loops, calls and closures: the transpose identity, and symmetry of the Hessian."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Module
from deepx_graph.passes.autodiff.grad import grad
from deepx_graph.passes.autodiff.jvp import hvp, jvp
from deepx_graph.types import F64, I32
from deepx_graph.verify import verify
from tests.support import generate
from tests.support.reference import evaluate

Arrays = list[Any]


def program(seed: int, max_ops: int) -> Module | None:
    """A program whose floating results are all of double precision; None where the seed gives another."""
    m = generate.random_module(random.Random(seed), max_ops=max_ops)
    return None if any(t.dtype.is_float and t.dtype is not F64 for t in m.entry.type.results) else m  # type: ignore[union-attr]


def arguments(m: Module, seed: int) -> tuple[Arrays, list[int]]:
    """Inputs, the floating ones normally distributed, and which those are."""
    rng = random.Random(seed)
    args = [generate.random_array(rng, p.type) for p in m.entry.params]  # type: ignore[arg-type]
    moving = [k for k, a in enumerate(args) if a.dtype == np.float64]
    for k in moving:
        args[k] = np.random.default_rng(seed + k).standard_normal(args[k].shape)
    return args, moving


def like(arrays: Arrays, seed: int) -> Arrays:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(np.shape(a)) for a in arrays]


def paired(a: Arrays, b: Arrays) -> float:
    return float(sum(np.sum(x * y) for x, y in zip(a, b, strict=True)))


def agree(left: float, right: float, a: Arrays, b: Arrays) -> bool:
    scale = 1 + sum(float(np.sum(np.abs(x * y))) for x, y in zip(a, b, strict=True))
    return abs(left - right) <= 1e-9 * scale


def check_transpose(seed: int, max_ops: int) -> bool:
    """<ct, jvp(t)> = <grad(ct), t>; False where a number on the way is not finite."""
    m = program(seed, max_ops)
    if m is None:
        return False
    args, moving = arguments(m, seed)
    outputs = [y for y in map(np.asarray, evaluate(m, args)) if y.dtype == np.float64]
    cts, tangents = like(outputs, seed + 1), like([args[k] for k in moving], seed + 2)
    forward, backward = jvp(m), grad(m)
    verify(forward)
    pushed, pulled = evaluate(forward, [*args, *tangents]), evaluate(backward, [*args, *cts])
    if not all(np.isfinite(x).all() for x in (*pushed, *pulled)):
        return False
    assert agree(paired(cts, pushed), paired(pulled, tangents), cts, pushed), seed
    return True


def check_symmetry(seed: int, max_ops: int) -> bool:
    """<u, H v> = <v, H u>, H v being forward mode over reverse mode; False where all is zero or not finite."""
    m = program(seed, max_ops)
    if m is None:
        return False
    args, moving = arguments(m, seed)
    outputs = [y for y in map(np.asarray, evaluate(m, args)) if y.dtype == np.float64]
    cts = like(outputs, seed + 1)
    u, v = (like([args[k] for k in moving], seed + more) for more in (2, 3))
    h = hvp(m)
    verify(h)
    hu, hv = evaluate(h, [*args, *cts, *u]), evaluate(h, [*args, *cts, *v])
    if not all(np.isfinite(x).all() for x in (*hu, *hv)) or not any(np.any(x) for x in hv):
        return False
    assert agree(paired(u, hv), paired(v, hu), u, hv), seed
    return True


@pytest.fixture(autouse=True)
def in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "DTYPES", (F64, F64, F64, I32))


def test_the_transpose_identity_sampled() -> None:
    assert sum(check_transpose(seed, 40) for seed in range(150)) > 100


def test_hessians_are_symmetric_sampled() -> None:
    assert sum(check_symmetry(seed, 60) for seed in range(150)) > 10


@pytest.mark.conformance
def test_the_transpose_identity() -> None:
    assert sum(check_transpose(seed, 120) for seed in range(1000, 4000)) > 2000


@pytest.mark.conformance
def test_hessians_are_symmetric() -> None:
    assert sum(check_symmetry(seed, 60) for seed in range(1000, 4000)) > 300
