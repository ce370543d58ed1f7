"""Second derivatives of programs lowered by JAX: the gradient's gradient against finite differences of the gradient."""

from __future__ import annotations

import pytest

import deepx_graph as dx
from deepx_graph.session.gradcheck import check_gradient
from tests.support.jax_corpus import JAX, cases, needs_corpus


def names() -> list[str]:
    return [c["name"] for c in cases(grads=True)]


ZERO = {"complex_basic": {"ct_5"}, "edge_zero_size": {"ct_2", "ct_3", "ct_5", "ct_9"}}
"""Inputs of gradients whose own gradient is zero everywhere: up to rounding, and of what nothing but empty arrays is made of."""


def check(name: str) -> None:
    report = check_gradient(dx.grad(dx.load(JAX / f"{name}.stablehlo")), samples=4)
    assert {i.name for i in report.inputs if not i.ok} == {i.name for i in report.inputs if not i.checked}, str(report)
    assert {i.name for i in report.inputs if not i.checked} == ZERO.get(name, set()), str(report)


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
