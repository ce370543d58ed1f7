"""The program in docs/viz.md runs and draws what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "viz.md"


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/viz.md", "exec"), {})
    assert {p.name for p in tmp_path.iterdir()} == {"control-flow.svg", "control-flow-dark.svg"}
    assert "loop begin" in (tmp_path / "control-flow.svg").read_text(encoding="utf-8")


def test_the_pictures_of_the_page_exist() -> None:
    for name in re.findall(r"\]\((images/[^)]*)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / name).stat().st_size < 200_000
