"""Programs lowered by JAX, as HLO and as StableHLO, optimised, on the default engine, against what XLA computed; gradients too."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import deepx_graph as dx

JAX = Path(__file__).parents[2] / "shared" / "corpus" / "jax"
FORMATS = ("hlo", "stablehlo")


def cases() -> list[dict[str, Any]]:
    return json.loads((JAX / "corpus.json").read_text())["cases"] if JAX.is_dir() else []


def rows(step: int = 1, grads: bool = False) -> list[tuple[str, str]]:
    """Names and formats; one in `step` of them."""
    found = [(c["name"], f) for c in cases() if not grads or c["grads"] for f in FORMATS]
    return found[::step]


@pytest.fixture(scope="module")
def oracle() -> ModuleType:
    sys.path.insert(0, str(JAX.parent))
    import evaluate

    sys.path.pop(0)
    return evaluate


def case_of(name: str) -> tuple[dict[str, Any], Any]:
    return next(c for c in cases() if c["name"] == name), np.load(JAX / f"{name}.npz")


def call(f: Any, arrays: list[Any]) -> tuple[Any, ...]:
    return f(*[np.asarray(x).astype(port.type.dtype.np) for x, port in zip(arrays, f.inputs, strict=True)])


def check_outputs(oracle: ModuleType, name: str, format: str) -> None:
    case, stored = case_of(name)
    f = dx.compile(dx.optimize(dx.load(JAX / f"{name}.{format}")))
    outputs = call(f, [stored[f"in{k}"] for k in range(len(case["inputs"]))])
    assert oracle.mismatches(case, stored, outputs) == []


def check_gradients(oracle: ModuleType, name: str, format: str) -> None:
    """The gradient program as it is made and optimised, on the reference and the default engine."""
    case, stored = case_of(name)
    program = dx.grad(dx.load(JAX / f"{name}.{format}"))
    cotangents = oracle.cotangents(case, stored)
    arrays = [stored[f"in{k}"] for k in range(len(case["inputs"]))] + [cotangents[k] for k in sorted(cotangents)]
    for f in (dx.compile(program, engine="numpy"), dx.compile(dx.optimize(program))):
        got = dict(zip(case["grad_inputs"], call(f, arrays), strict=True))
        assert oracle.mismatches(case, stored, got, "grad") == []


needs_corpus = pytest.mark.skipif(not JAX.is_dir(), reason="the corpus ../shared/corpus/jax is not here")


@needs_corpus
@pytest.mark.parametrize(("name", "format"), rows(step=5))
def test_outputs_sampled(oracle: ModuleType, name: str, format: str) -> None:
    check_outputs(oracle, name, format)


@needs_corpus
@pytest.mark.conformance
@pytest.mark.parametrize(("name", "format"), rows())
def test_outputs(oracle: ModuleType, name: str, format: str) -> None:
    check_outputs(oracle, name, format)


@needs_corpus
@pytest.mark.parametrize(("name", "format"), rows(step=5, grads=True))
def test_gradients_sampled(oracle: ModuleType, name: str, format: str) -> None:
    check_gradients(oracle, name, format)


@needs_corpus
@pytest.mark.conformance
@pytest.mark.parametrize(("name", "format"), rows(grads=True))
def test_gradients(oracle: ModuleType, name: str, format: str) -> None:
    check_gradients(oracle, name, format)
