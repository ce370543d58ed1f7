"""Second derivatives of programs lowered by JAX: the gradient's gradient against finite differences of the gradient."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import deepx_graph as dx
from deepx_graph.session.gradcheck import check_gradient

JAX = Path(__file__).parents[2] / "shared" / "corpus" / "jax"


def names() -> list[str]:
    cases = json.loads((JAX / "corpus.json").read_text())["cases"] if JAX.is_dir() else []
    return [c["name"] for c in cases if c["grads"]]


def check(name: str) -> None:
    report = check_gradient(dx.grad(dx.load(JAX / f"{name}.stablehlo")), samples=4)
    assert report.ok, str(report)


needs_corpus = pytest.mark.skipif(not JAX.is_dir(), reason="the corpus ../shared/corpus/jax is not here")
SAMPLE = ("cond_true_false", "model_attention", "scan_carry_outputs", "while_fori", "gather_take", "sim_heat_stencil")


@needs_corpus
@pytest.mark.parametrize("name", SAMPLE)
def test_second_derivatives_sampled(name: str) -> None:
    check(name)


@needs_corpus
@pytest.mark.conformance
@pytest.mark.parametrize("name", names())
def test_second_derivatives(name: str) -> None:
    check(name)
