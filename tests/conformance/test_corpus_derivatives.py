"""Real programs in double precision: tangents against differences, and Hessian-vector products against those of the gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from tests.support.jax_corpus import JAX, cases, needs_corpus

LEFT_OUT = {"bf16_elementwise": "computes in bf16", "constant_large": "holds raw bits of f32"}
"""Programs that do not become double precision by renaming their types."""
INFINITIES = {"0xFF800000": "0xFFF0000000000000", "0x7F800000": "0x7FF0000000000000", "0x7FC00000": "0x7FF8000000000000"}


def names() -> list[str]:
    return [c["name"] for c in cases(grads=True) if c["name"] not in LEFT_OUT]


def in_double(name: str) -> dx.Module:
    text = (JAX / f"{name}.stablehlo").read_text().replace("f32", "f64")
    for narrow, wide in INFINITIES.items():
        text = text.replace(narrow, wide)
    return dx.loads(text)


def check(name: str, program: Any, derivative: Any) -> bool:
    """Whether any derivative of what `program` makes of the module is not zero; fails where one is wrong."""
    module, stored, rng = in_double(name), np.load(JAX / f"{name}.npz"), np.random.default_rng(0)
    plain, forward = (dx.compile(make(module)) for make in (program, derivative))
    inputs = len(module.entry.params)
    args: list[Any] = [np.asarray(stored[f"in{k}"]).astype(p.type.dtype.np) for k, p in enumerate(plain.inputs[:inputs])]
    cts = [rng.standard_normal(p.type.shape).astype(p.type.dtype.np) for p in plain.inputs[inputs:]]
    moving = [k for k, p in enumerate(plain.inputs[:inputs]) if p.type.dtype.is_differentiable]
    direction = [rng.standard_normal(args[k].shape) for k in moving]

    def at(step: float) -> list[Any]:
        moved = list(args)
        for k, v in zip(moving, direction, strict=True):
            moved[k] = np.asarray(args[k] + step * v)
        return [y for y in plain(*moved, *cts) if y.dtype.kind in "fc"]

    found = forward(*args, *cts, *direction)
    for got, plus, minus in zip(found, at(1e-6), at(-1e-6), strict=True):
        np.testing.assert_allclose(got, (plus - minus) / 2e-6, rtol=1e-5, atol=1e-6)
    return any(np.any(x) for x in found)


def itself(module: dx.Module) -> dx.Module:
    return module


@needs_corpus
@pytest.mark.parametrize("name", names()[::5])
def test_derivatives_sampled(name: str) -> None:
    check(name, itself, dx.jvp)
    check(name, dx.grad, dx.hvp)


@needs_corpus
@pytest.mark.conformance
def test_second_derivatives() -> None:
    assert sum(check(name, dx.grad, dx.hvp) for name in names()) >= 20


@needs_corpus
@pytest.mark.conformance
def test_tangents() -> None:
    assert sum(check(name, itself, dx.jvp) for name in names()) >= 40
