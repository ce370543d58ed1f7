"""Options from pyproject.toml: what the command line says overrides them, and what no command takes is refused with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_runner import Run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sea: str) -> Path:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    return tmp_path / "pyproject.toml"


def test_a_command_takes_its_table_and_the_shared_one(run: Run, project: Path, sea: str) -> None:
    project.write_text('[tool.deepx_graph]\nengine = "numpy"\nmax-nodes = 3\n'
                       '[tool.deepx_graph.check]\nbudget = ["ops<=1", "depth<=9"]\n')
    assert "more than 3" in run("check", sea).err
    done = run("check", sea, "--max-nodes", "99")
    assert done.code == 1
    assert done.out.split() == ["EXCEEDED", "ops<=1", *done.out.split()[2:3], "ok", "depth<=9", done.out.split()[-1]]
    assert "edges<=50" in run("check", sea, "--max-nodes", "99", "--budget", "edges<=50").out, "what may be repeated is added"
    assert "numpy" in run("info", sea, "--max-nodes", "99", "-p", "none").out
    assert run("check", sea, "--no-config").code == 2


def test_a_switch_is_on_or_off(run: Run, project: Path, sea: str) -> None:
    project.write_text("[tool.deepx_graph]\nfast-math = true\nverify-each = false\n[tool.deepx_graph.opt]\ntiming = true\n")
    assert "read" in run("opt", sea).err
    assert run("opt", sea, "--no-config").err == ""


@pytest.mark.parametrize(("text", "place", "words"), [
    ('[tool.deepx_graph]\nengin = "numpy"\n', "2:1", "did you mean 'engine'?"),
    ('[tool.deepx_graph.check]\nbudgt = "x"\n', "2:1", "did you mean 'budget'?"),
    ("[tool.deepx_graph.run]\nprofile = 3\n", "2:1", "true or false"),
    ('[tool.deepx_graph]\nplugin = ["evil.py"]\n', "2:1", "cannot be configured"),
    ('[tool.deepx_graph.run]\noutput = "x.npz"\n', "2:1", "cannot be configured"),
    ('[tool.deepx_graph\n', "", "pyproject.toml"),
])  # fmt: skip
def test_what_cannot_be_is_refused_with_its_place(run: Run, project: Path, sea: str, text: str, place: str, words: str) -> None:
    project.write_text(text)
    command = "check" if "check" in text else "run"
    done = run(command, sea)
    assert (done.code, done.bytes) == (2, b"")
    assert words in done.err
    assert f"pyproject.toml:{place}" in done.err


def test_another_projects_file_says_nothing(run: Run, project: Path, sea: str) -> None:
    project.write_text("[project]\nname = 'x'\n")
    assert run("info", sea).code == 0
