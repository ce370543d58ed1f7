"""Programs lowered by JAX, as HLO and as StableHLO, optimised, on the default engine, against what XLA computed; gradients too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import deepx_graph as dx
from tests.support.jax_corpus import JAX, case_of, cases, mismatches, needs_corpus, oracle

pytestmark = pytest.mark.validated

FORMATS = ("hlo", "stablehlo")


def rows(step: int = 1, grads: bool = False) -> list[tuple[str, str]]:
    """Names and formats; one in `step` of them."""
    found = [(c["name"], f) for c in cases(grads) for f in FORMATS]
    return found[::step]


def call(f: Any, arrays: list[Any]) -> tuple[Any, ...]:
    return f(*[np.asarray(x).astype(port.type.dtype.np) for x, port in zip(arrays, f.inputs, strict=True)])


def check_outputs(name: str, format: str) -> None:
    case, stored = case_of(name)
    f = dx.compile(dx.load(JAX / f"{name}.{format}"))
    outputs = call(f, [stored[f"in{k}"] for k in range(len(case["inputs"]))])
    assert mismatches(name, outputs) == []


def check_gradients(name: str, format: str) -> None:
    """The gradient program as it is made and optimised, on the reference and the default engine."""
    case, stored = case_of(name)
    program = dx.grad(dx.load(JAX / f"{name}.{format}"))
    cotangents = oracle().cotangents(case, stored)
    arrays = [stored[f"in{k}"] for k in range(len(case["inputs"]))] + [cotangents[k] for k in sorted(cotangents)]
    for f in (dx.compile(program, engine="numpy", optimize=False), dx.compile(program)):
        got = dict(zip(case["grad_inputs"], call(f, arrays), strict=True))
        assert mismatches(name, got, "grad") == []


@needs_corpus
@pytest.mark.parametrize(("name", "format"), rows(step=5))
def test_outputs_sampled(name: str, format: str) -> None:
    check_outputs(name, format)


@needs_corpus
@pytest.mark.conformance
@pytest.mark.parametrize(("name", "format"), rows())
def test_outputs(name: str, format: str) -> None:
    check_outputs(name, format)


@needs_corpus
@pytest.mark.parametrize(("name", "format"), rows(step=5, grads=True))
def test_gradients_sampled(name: str, format: str) -> None:
    check_gradients(name, format)


@needs_corpus
@pytest.mark.conformance
@pytest.mark.parametrize(("name", "format"), rows(grads=True))
def test_gradients(name: str, format: str) -> None:
    check_gradients(name, format)
