"""The notebooks run from top to bottom, and what is stored below their cells is what a run gives."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
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


def executed(stored: Any, notebook: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, at: int = 0,
             more: Sequence[str] = ()) -> Any:
    """The notebook after a run of all cells, with more cells of code before the one `at`."""
    monkeypatch.setenv("IPYTHONDIR", str(folder))
    run = nbformat.from_dict(copy.deepcopy(stored))
    run.cells[at:at] = [nbformat.v4.new_code_cell(source) for source in more]
    resources = {"metadata": {"path": str(notebook.parent)}}
    nbclient.NotebookClient(run, timeout=120, coalesce_streams=True, resources=resources).execute()
    return run


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_stored(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = nbformat.read(notebook, as_version=4)
    nbformat.validate(stored)
    codes = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert all(cell.get("execution_count") for cell in codes), "the notebook is stored as it was run"
    run = executed(stored, notebook, tmp_path, monkeypatch)
    assert outputs(run) == outputs(stored)


def packages_of_jax() -> str:
    """The folder of JAX's packages, for this Python; skips the test where there is none."""
    if find_spec("jax"):
        return ""
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"{VARIABLE} names no Python with JAX, and there is none here")
    asked = "import os, sys, jax; print(*sys.version_info[:2], os.path.dirname(os.path.dirname(jax.__file__)))"
    done = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True)
    major, minor, folder = done.stdout.strip().split(" ", 2)
    if (int(major), int(minor)) != sys.version_info[:2]:
        pytest.skip(f"JAX is there for Python {major}.{minor}, and this is another")
    return folder


def test_the_notebook_runs_with_jax_as_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All cells, in a kernel that has JAX: what it traces computes what the text computes that stands in for it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), packages_of_jax()])))
    stored = nbformat.read(WITH_JAX, as_version=4)
    traced = tmp_path / "traced.sea"
    more = f"assert 'jax' in globals()\nopen({str(traced)!r}, 'w').write(dx.dumps(program, 'sea'))"
    first = next(k for k, cell in enumerate(stored.cells) if cell.cell_type == "code")
    run = executed(stored, WITH_JAX, tmp_path, monkeypatch, at=first + 1, more=[more])
    del run.cells[first + 1]
    assert outputs(run)[0] == outputs(stored)[0]
    assert [(source, [o[:2] for o in found]) for source, found in outputs(run)] == [
        (source, [o[:2] for o in found]) for source, found in outputs(stored)]  # fmt: skip
    assert dx.equivalent(dx.load(traced), dx.load(ROOT / "examples" / "classifier_loss.mlir"), count=2)
