"""The README: every command and every line of Python in it works, in a folder that holds nothing but the examples."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph.cli.main import main
from tests.support.paths import ROOT
from tests.support.widths import has_native

README = (ROOT / "README.md").read_text(encoding="utf-8")
BROKEN = "newtensor 2 3 -> t1\nnewtensor 3 2 -> t2\nadd@float32 t1 t2 -> t1\n"
CODES = {"run broken.dx": 4}
"""Exit codes of the commands that show something else than success."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    """Every command, and the output that is shown below it."""
    parts = [p for block in blocks("console") for p in re.split(r"^\$ deepx-graph ", block, flags=re.MULTILINE)[1:]]
    return [(p.partition("\n")[0], p.partition("\n")[2]) for p in parts]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_works_one_after_the_other_and_prints_what_is_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.dx").write_text(BROKEN)
    ran = 0
    for command, shown in commands():
        if command.startswith("tui"):  # takes the terminal; tested by test_tui
            continue
        assert main(shlex.split(command)) == CODES.get(command, 0), command
        out, err = capsys.readouterr()
        if "--timing" not in command and ("native" not in shown or has_native()):
            assert shown in out + err, command
        ran += 1
    assert ran > 12


def test_the_python_works(folder: Path) -> None:
    assert main(["opt", "examples/transformer_block.dx", "-p", "none", "--emit", "hlo", "-o", "model.hlo"]) == 0
    (code,) = blocks("python")
    rng = np.random.default_rng(0)
    names: dict[str, Any] = {}
    before, call, after = code.partition("outputs = ")
    exec(before, names)
    names["arrays"] = [rng.standard_normal(p.type.shape).astype(p.type.dtype.np) for p in names["f"].inputs]
    exec(call + after, names)
    assert np.isfinite(names["outputs"][0]).all()
    assert len(names["g"].entry.params) > len(names["m"].entry.params)
    assert (folder / "model.svg").exists()
