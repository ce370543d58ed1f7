"""The how-to guides: every command and every line of Python in them works, each section in a folder of its own."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph.cli.main import main
from deepx_graph.passes import REGISTRY
from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))


def answers(names: Mapping[str, Any]) -> None:
    assert np.shape(names["answer"]["outputs"]) == (1, 2, 4)
    (problem,) = names["refusal"]["error"]
    assert "f32[2,3]" in str(problem)


def finds(names: Mapping[str, Any]) -> None:
    assert "exp" in "\n".join(names["report"].lines())


CHECKS = {"Embed in a service": answers, "Find a NaN": finds}
"""What the names of a section are at its end."""


@pytest.mark.parametrize("section", SECTIONS)
def test_a_guide_works_from_top_to_bottom(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                          capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(REGISTRY, "added", dict(REGISTRY.added))
    names: dict[str, Any] = {"__name__": "__main__"}
    done = 0
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", SECTIONS[section], re.MULTILINE | re.DOTALL):
        if language == "toml":
            Path("pyproject.toml").write_text(block)
        elif language == "python":
            exec(compile(block, "how-to.md", "exec", dont_inherit=True), names)
        elif language == "console":
            for command in re.findall(r"^\$ deepx-graph (.*)$", block, re.MULTILINE):
                assert main(shlex.split(command)) == 0, (command, capsys.readouterr().err)
        done += language in ("python", "console")
    assert done
    CHECKS.get(section, lambda names: None)(names)
    if section == "Gate a pull request":
        assert main(["check", "examples/transformer_block.dx", "-p", "none"]) == 1, "without the passes it is larger"


def test_the_guides_are_those_that_are_asked_for() -> None:
    assert len(SECTIONS) == 6
