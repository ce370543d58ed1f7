"""The tour of the library uses names that `dir(dx)` has alone, says what it finds, and draws."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

from tests.support.paths import ROOT

TOUR = ROOT / "examples" / "library_tour.py"


def test_the_tour_is_written_from_the_interface_alone() -> None:
    imported = [n for node in ast.walk(ast.parse(TOUR.read_text())) if isinstance(node, (ast.Import, ast.ImportFrom))
                for n in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])]
    assert [n for n in imported if n.startswith("deepx_graph")] == ["deepx_graph"]


def test_the_tour_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(TOUR))["main"](str(tmp_path))
    said = capsys.readouterr().out
    for words in ("a product: q_rows f32[256,256], of x, wq", "within the budget: True", "neither elementwise nor a reduction",
                  "outputs [(256, 256)]", "read back: the same", "error: 'users' is compared with 'many'"):
        assert words in said, words
    assert (tmp_path / "attention.svg").read_text().rstrip().endswith("</svg>")
    assert (tmp_path / "attention.html").stat().st_size > 10_000
