"""The notebooks run from top to bottom, and what is stored below their cells is what a run gives."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import deepx_graph as dx
from tests.support.jax_oracle import VARIABLE
from tests.support.paths import ROOT

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install '.[dev]'")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install '.[dev]'")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install '.[dev]'")

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
WITH_JAX = ROOT / "examples" / "from_jax_to_a_profile.ipynb"
MEASURED = "measured"
"""The tag of cells whose text depends on the machine."""


def outputs(notebook: Any) -> list[tuple[str, list[Any]]]:
    """The source of each cell of code, and its outputs: kinds, and texts where they are the same on every machine."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            measured = MEASURED in cell.metadata.get("tags", ())
            found.append((cell.source, [output(o, measured) for o in cell.outputs]))
    return found


def output(out: Any, measured: bool) -> Any:
    """A stream or a result; nodes without a name are numbered in the order of their making, which no output depends on."""
    kinds = sorted(out.get("data", ()))
    text = out.get("text") or out.get("data", {}).get("text/plain", "")
    return out.output_type, kinds, "" if measured else re.sub(r"#\d+", "#", text)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    stored = nbformat.read(notebook, as_version=4)
    nbformat.validate(stored)
    codes = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert all(cell.get("execution_count") for cell in codes), "the notebook is stored as it was run"
    run = nbformat.from_dict(stored)
    resources = {"metadata": {"path": str(notebook.parent)}}
    nbclient.NotebookClient(run, timeout=120, coalesce_streams=True, resources=resources).execute()
    assert outputs(run) == outputs(stored)


def test_what_jax_writes_is_the_text_that_stands_in_for_it(tmp_path: Path) -> None:
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"{VARIABLE} names no Python with JAX")
    first = next(c.source for c in nbformat.read(WITH_JAX, as_version=4).cells if c.cell_type == "code")
    traced = tmp_path / "traced.sea"
    code = f"{first}\nassert 'jax' in globals()\nopen({str(traced)!r}, 'w').write(dx.dumps(program, 'sea'))"
    done = subprocess.run([python, "-c", code], cwd=WITH_JAX.parent, capture_output=True, text=True, check=False,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert dx.equivalent(dx.load(traced), dx.load(ROOT / "examples" / "classifier_loss.mlir"), count=2)
