"""The official ONNX backend suite at its own tolerances, plain and optimised, beside what onnxruntime passes of it.

    PYTHON tests/support/onnx_cases.py FOLDER             # in an environment with onnx and onnxruntime
    DEEPX_GRAPH_ONNX_CASES=FOLDER make conformance

With DEEPX_GRAPH_ONNX_PYTHON=PYTHON too, every model is also written back, and onnxruntime runs what was written. Gradients:

    PYTHON tests/support/onnx_gradients.py FOLDER         # in an environment with torch
    DEEPX_GRAPH_ONNX_GRADIENTS=FOLDER make conformance
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.session import programs
from deepx_graph.text import ReadOptions
from deepx_graph.text.onnx.merge import merged
from deepx_graph.text.onnx.printer.model import original
from deepx_graph.text.onnx.values import literal
from tests.support.onnx_suite import cases, outcome, told_lengths

PYTHON = os.environ.get("DEEPX_GRAPH_ONNX_PYTHON", "")

LEAST = {"node": 1877, "simple": 23, "pytorch-converted": 82, "pytorch-operator": 35, "real": 9}
"""How many cases of each kind pass. The others expect the random numbers of NumPy, but for one in half precision."""


@pytest.mark.conformance
@pytest.mark.parametrize(("engine", "pipeline"), [("numpy", ""), ("auto", ""), ("numpy", "default"), ("auto", "default")])
def test_the_suite_passes(engine: str, pipeline: str) -> None:
    every = cases()
    if not every:
        pytest.skip("DEEPX_GRAPH_ONNX_CASES names no folder of cases: tests/support/onnx_cases.py writes them")
    ended = {(c.kind, c.name): outcome(c, engine, pipeline) for c in every}
    passed = Counter(kind for (kind, _), how in ended.items() if how == "passed")
    crashed = {name: how for (_, name), how in ended.items() if how.startswith("crashed")}
    assert crashed == {}
    assert all(passed[kind] >= least for kind, least in LEAST.items()), [k for k, how in ended.items() if how != "passed"]


@pytest.mark.conformance
def test_what_is_written_back_passes_in_onnxruntime(tmp_path: Path) -> None:
    """Every model that is read, where onnxruntime takes it as it was."""
    if not cases() or not PYTHON:
        pytest.skip("DEEPX_GRAPH_ONNX_CASES and DEEPX_GRAPH_ONNX_PYTHON name no cases or no Python with onnxruntime")
    rows = []
    for k, case in enumerate(c for c in cases() if c.onnxruntime == "passed" and outcome(c) == "passed"):
        options = ReadOptions(operators="kept", lengths=told_lengths(case))
        file = tmp_path / f"{k}.onnx"
        file.write_bytes(programs.encoded(merged(programs.load(case.folder / "model.onnx", None, options).module), "onnx"))
        rows.append({"name": case.name, "folder": str(case.folder), "rtol": case.rtol, "atol": case.atol, "file": str(file)})
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    judge = Path(__file__).parents[1] / "support" / "onnx_cases.py"
    done = subprocess.run([PYTHON, str(judge), "--judge", str(tmp_path / "rows.json")], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert {r["name"]: found[r["file"]] for r in rows if found[r["file"]] != "passed"} == {}
    assert len(rows) > 1600


GRADIENTS = os.environ.get("DEEPX_GRAPH_ONNX_GRADIENTS", "")


@pytest.mark.conformance
@pytest.mark.parametrize("optimize", [False, True])
def test_gradients_of_networks_are_those_of_torch(optimize: bool) -> None:
    """The derivative of half the sum of squares of the result, by each parameter."""
    models = sorted(Path(GRADIENTS).glob("*.onnx")) if GRADIENTS else []
    if not models:
        pytest.skip("DEEPX_GRAPH_ONNX_GRADIENTS names no folder of networks: tests/support/onnx_gradients.py writes them")
    assert len(models) == 5
    for path in models:
        wanted = np.load(path.with_suffix(".npz"))
        module = dx.load(path, weights="inputs")
        model = original(module.source)
        assert module.source is not None and model is not None and model.graph is not None
        values = {w.name: literal(w, module.source, 1 << 30).array for w in model.graph.initializers} | {"x": wanted["in"]}
        inputs = [values[p.name] for p in module.entry.params]
        (out,) = dx.compile(module, optimize=optimize)(*inputs)
        np.testing.assert_allclose(out, wanted["out"], rtol=1e-4, atol=1e-5, err_msg=path.stem)
        names = [key.removeprefix("grad:") for key in wanted if key.startswith("grad:")]
        found = dx.compile(dx.grad(module, names), optimize=optimize)(*inputs, out)
        for name, value in zip(names, found, strict=True):
            np.testing.assert_allclose(value, wanted[f"grad:{name}"], rtol=1e-3, atol=1e-5, err_msg=f"{path.stem} {name}")
