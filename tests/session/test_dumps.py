"""Folders that XLA dumped, as time lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deepx_graph.cli.main import main as cli
from deepx_graph.errors import UsageError
from deepx_graph.session.dumps import chosen, dumped_modules, steps

BEFORE = """HloModule jit_f
ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] negate(x)
  z = f32[4] negate(y)
  ROOT r = f32[4] add(z, x)
}
"""
AFTER = """HloModule jit_f
ENTRY main {
  x = f32[4] parameter(0)
  ROOT r = f32[4] add(x, x)
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in {
        "module_0003.jit_f.before_optimizations.txt": BEFORE,
        "module_0003.jit_f.0001.simplification.after_pipeline-start.before_dce.txt": BEFORE,
        "module_0003.jit_f.0002.simplification.after_algsimp.before_pipeline-end.txt": AFTER,
        "module_0003.jit_f.0003.copy-insertion.after_adding_special-case_copies.txt": AFTER,
        "module_0003.jit_f.cpu_after_optimizations.txt": AFTER,
        "module_0003.jit_f.cpu_after_optimizations-buffer-assignment.txt": "no program",
        "module_0004.jit_g.before_optimizations.txt": AFTER,
        "module_0003.jit_f.debug_options": "no program",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_stages_are_in_the_order_of_passes(folder: Path) -> None:
    first, second = dumped_modules(folder)
    assert [s.title for s in first.stages] == [
        "before optimizations", "simplification: pipeline-start", "simplification: algsimp",
        "copy-insertion: adding_special-case_copies", "cpu after optimizations",
    ]  # fmt: skip
    assert (second.number, second.name, len(second.stages)) == (4, "jit_g", 1)


def test_each_step_says_what_a_pass_changed(folder: Path) -> None:
    found = list(steps(dumped_modules(folder)[0]))
    assert [s.nodes for s in found] == [4, 4, 2, 2, 2]
    assert [bool(s.difference) for s in found] == [False, False, True, False, False]
    assert found[2].change == "-2 ~1"


def test_the_command_lists_passes_that_changed_something(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["stages", str(folder), "jit_f"]) == 0
    out = capsys.readouterr().out
    assert "algsimp" in out
    assert "pipeline-start" not in out
    assert "jit_g" not in out
    assert cli(["stages", str(folder), "--all", "--changes"]) == 0
    out = capsys.readouterr().out
    assert "pipeline-start" in out
    assert "- y = negate(x)" in out
    assert cli(["stages", str(folder), "3", "--json"]) == 0
    (module,) = json.loads(capsys.readouterr().out)["modules"]
    assert [s["nodes"] for s in module["stages"]] == [4, 4, 2, 2, 2]


def test_what_is_no_dump_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no dumped module"):
        dumped_modules(tmp_path / "empty")
    with pytest.raises(UsageError, match="cannot read the folder"):
        dumped_modules(tmp_path / "none")
    with pytest.raises(UsageError, match="did you mean 'jit_f'"):
        chosen(dumped_modules(folder), "jit_ff")
