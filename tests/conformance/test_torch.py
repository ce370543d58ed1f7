"""Programs of torch.export against torch: operators and networks, raw and decomposed, plain and optimised; gradients of networks.

    PYTHON tests/support/torch_cases.py FOLDER             # in an environment with torch
    DEEPX_GRAPH_TORCH_CASES=FOLDER make conformance
"""

from __future__ import annotations

import numpy as np
import pytest

import deepx_graph as dx
from tests.support.torch_suite import TorchCase, torch_cases, torch_outcome

SKIPPED = "DEEPX_GRAPH_TORCH_CASES names no folder of cases: tests/support/torch_cases.py writes them"


@pytest.mark.conformance
@pytest.mark.parametrize(("engine", "pipeline"), [("numpy", ""), ("auto", ""), ("numpy", "default"), ("auto", "default")])
def test_programs_give_what_torch_gives(engine: str, pipeline: str) -> None:
    every = [c for c in torch_cases() if c.kind != "gradient"]
    if not every:
        pytest.skip(SKIPPED)
    assert len({c.name for c in every if c.kind == "network"}) >= 60
    ended = {c.path.stem: torch_outcome(c, engine, pipeline) for c in every}
    assert {name: how for name, how in ended.items() if how != "passed"} == {}


@pytest.mark.conformance
def test_gradients_are_those_of_torch() -> None:
    every = torch_cases("gradient")
    if not every:
        pytest.skip(SKIPPED)
    assert len(every) == 5
    for case in every:
        check_gradients(case)


def check_gradients(case: TorchCase) -> None:
    """The derivative of half the sum of squares of the result, by each parameter."""
    module = dx.load(case.path, weights="inputs")
    given, wanted = case.data("in"), case.gradients()
    weights = {p.name: p for p in module.entry.params if p.name in wanted}
    assert set(weights) == set(wanted)
    plain = dx.load(case.path)
    (out, *_) = dx.compile(plain, engine="numpy", optimize=False)(*given)
    values = stored(case)
    inputs = [*given, *(values[p.name] for p in module.entry.params[len(given) :])]
    cotangents = [out, *(np.zeros(r.type.shape, r.type.dtype.np) for r in module.entry.results[1:] if r.type.dtype.is_float)]
    found = dx.compile(dx.grad(module, list(wanted)), engine="numpy", optimize=False)(*inputs, *cotangents)
    for name, value in zip(wanted, found, strict=True):
        np.testing.assert_allclose(value, wanted[name], rtol=2e-3, atol=1e-4, err_msg=f"{case.name} {name}")


def stored(case: TorchCase) -> dict[str, object]:
    """The weights of a program by name."""
    from deepx_graph.text import open_source
    from deepx_graph.text.common.options import ReadOptions
    from deepx_graph.text.torch.program import lowering_of

    tensors = lowering_of(open_source(case.path), ReadOptions()).stored
    return {name: tensors[name].array for name in tensors.found}
