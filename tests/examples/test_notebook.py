"""The notebook runs from top to bottom, and what is stored below its cells is what a run gives."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install '.[dev]'")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install '.[dev]'")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install '.[dev]'")

NOTEBOOK = ROOT / "examples" / "from_text_to_machine_code.ipynb"
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


def test_the_notebook_runs_and_shows_what_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    stored = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(stored)
    codes = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert all(cell.get("execution_count") for cell in codes), "the notebook is stored as it was run"
    run = nbformat.from_dict(stored)
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    nbclient.NotebookClient(run, timeout=120, coalesce_streams=True, resources=resources).execute()
    assert outputs(run) == outputs(stored)
