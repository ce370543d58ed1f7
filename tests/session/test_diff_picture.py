"""Two programs compared: across formats and pipelines, as text, and as pictures in colours."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

import deepx_graph as dx
from deepx_graph.cli import main as cli
from deepx_graph.session.report.diff import diff, pairs
from deepx_graph.session.show.picture import both
from deepx_graph.viz.picture.style import LIGHT
from tests.support import viz_modules as programs
from tests.support.paths import ROOT

BLOCK = ROOT / "examples" / "transformer_block.dx"


@pytest.mark.parametrize("form", ["hlo", "stablehlo", "sea"])
def test_the_same_program_in_another_language_is_no_difference(form: str) -> None:
    module = dx.loads(dx.dumps(dx.optimize(dx.load(BLOCK), "inline,cse,dce"), "hlo"))
    assert not diff(module, dx.loads(dx.dumps(module, form)))


def test_pairs_are_of_nodes_that_compute_the_same() -> None:
    a, b = programs.straight(), programs.straight()
    assert [(x.op.name, y.op.name) for x, y in pairs(a, b).items()] == [(n.op.name, n.op.name) for n in a.entry.nodes]
    assert set(pairs(a, b).values()) == set(b.entry.nodes)


def test_one_view_of_both() -> None:
    from deepx_graph.ir import Builder
    from deepx_graph.ops import add, negate, tanh

    b = Builder()
    old = programs.module(b.function("main", [("x", programs.MATRIX)], lambda x: [b(tanh, b(add, x, x))]))
    new = programs.module(b.function("main", [("x", programs.MATRIX)], lambda x: [b(negate, b(add, x, x))]))
    view = both(("a", old), ("b", new))
    assert Counter((n.title, n.change) for n in view.nodes) == Counter(
        {("x", ""): 1, ("add", ""): 1, ("tanh", "removed"): 1, ("negate", "added"): 1, ("out0", ""): 1})  # fmt: skip
    assert all(e.source < e.target for e in view.edges)
    assert not any(n.change for n in both(("a", old), ("b", old)).nodes)


def test_the_command_compares_programs_and_pipelines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, svg = tmp_path / "x.html", tmp_path / "x.svg"
    assert cli.main(["diff", str(BLOCK), "-p", "none"]) == 0
    assert capsys.readouterr().out.startswith("verdict: same mathematics")
    assert cli.main(["diff", str(BLOCK), "-p", "none", "-p", "inline,cse", "-o", str(svg), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["equal"] is False
    fills = Counter(e.get("fill") for e in ElementTree.fromstring(svg.read_bytes()).iter())
    assert any(fills[LIGHT.changes[kind][0]] for kind in LIGHT.changes)
    assert cli.main(["diff", str(BLOCK), str(BLOCK), "-p", "cse", "-o", str(page)]) == 0
    assert page.read_bytes().startswith(b"<!DOCTYPE html>")
    for wrong in (["diff", str(BLOCK)], ["diff", str(BLOCK), "-p", "a", "-p", "b", "-p", "c"],
                  ["diff", str(BLOCK), str(BLOCK), "-p", "cse", "-p", "fold"]):  # fmt: skip
        assert cli.main(wrong) == 2
