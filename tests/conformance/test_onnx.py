"""The official ONNX backend suite at its own tolerances, plain and optimised, beside what onnxruntime passes of it.

    PYTHON tests/support/onnx_cases.py FOLDER             # in an environment with onnx and onnxruntime
    DEEPX_GRAPH_ONNX_CASES=FOLDER make conformance
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.onnx_suite import cases, outcome

LEAST = {"node": 1842, "simple": 17, "pytorch-converted": 82, "pytorch-operator": 35, "real": 9}
"""How many cases of each kind pass. The others have tensors of strings, pictures in files, or random numbers without a seed."""


@pytest.mark.conformance
@pytest.mark.parametrize(("engine", "pipeline"), [("numpy", ""), ("auto", ""), ("numpy", "default")])
def test_the_suite_passes(engine: str, pipeline: str) -> None:
    every = cases()
    if not every:
        pytest.skip("DEEPX_GRAPH_ONNX_CASES names no folder of cases: tests/support/onnx_cases.py writes them")
    ended = {(c.kind, c.name): outcome(c, engine, pipeline) for c in every}
    passed = Counter(kind for (kind, _), how in ended.items() if how == "passed")
    crashed = {name: how for (_, name), how in ended.items() if how.startswith("crashed")}
    assert crashed == {}
    assert all(passed[kind] >= least for kind, least in LEAST.items()), [k for k, how in ended.items() if how != "passed"]
