"""Legalisation as a pass: the operations of a language alone, the same values, one rewrite for each decomposition."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

import deepx_graph as dx
from deepx_graph.errors import UsageError
from deepx_graph.ops import add, digamma, erfc
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.types import F32, tensor

X = np.linspace(0.5, 3, 8, dtype="f4")


def program() -> dx.Module:
    """Two functions that HLO has no operation for."""
    b = dx.Builder()
    return dx.Module((b.function("main", [("x", tensor(F32, (8,)))], lambda x: [b(add, b(erfc, x), b(digamma, x))]),))


@pytest.mark.parametrize("target", ["hlo", "stablehlo"])
def test_what_is_legal_is_written_as_it_is_and_means_the_same(target: str) -> None:
    legal = dx.optimize(program(), f"legalise{{target={target}}}")
    assert dx.dumps(legal, target) == dx.dumps(program(), target)
    (found,) = dx.compile(legal, optimize=False)(X)
    np.testing.assert_allclose(found, special.erfc(X.astype("f8")) + special.digamma(X.astype("f8")), rtol=1e-5, atol=1e-6)


def test_hlo_has_neither_function() -> None:
    legal = dx.optimize(program(), "legalise")
    assert not {n.op.name for n in legal.entry.nodes} & {"erfc", "digamma"} and len(legal.entry.nodes) > 10


def test_each_decomposition_is_a_rewrite() -> None:
    for limit, left in ((0, {"erfc", "digamma"}), (1, {"digamma"}), (2, set[str]())):
        module = run_pipeline(program(), parse_pipeline("legalise"), limit=limit)
        assert {n.op.name for n in module.entry.nodes} & {"erfc", "digamma"} == left


def test_a_program_that_is_legal_is_left_alone() -> None:
    legal = dx.optimize(program(), "legalise")
    assert dx.optimize(legal, "legalise") is legal


def test_an_unknown_target_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'relay'"):
        dx.optimize(program(), "legalise{target=rely}")
