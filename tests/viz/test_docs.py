"""The pictures of the documents are those that the library draws now, and show what their captions say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "viz.md"
IMAGES = PAGE.parent / "images"


def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/viz.md", "exec"), {})
    assert {p.name for p in tmp_path.iterdir()} == {"control-flow.svg", "control-flow-dark.svg"}
    assert "loop begin" in (tmp_path / "control-flow.svg").read_text(encoding="utf-8")


def texts(path: Path) -> list[str]:
    """What stands in a picture and its tooltips; not where."""
    return sorted(t for t in ElementTree.parse(path).getroot().itertext() if t.strip())


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    subprocess.run([sys.executable, ROOT / "examples" / "pictures.py", folder], check=True, timeout=600)
    return folder


@pytest.mark.parametrize("name", ["attention", "attention-dark", "control-flow", "control-flow-dark", "folded"])
def test_pictures_are_as_they_would_be_drawn_now(drawn: Path, name: str) -> None:
    assert texts(IMAGES / f"{name}.svg") == texts(drawn / f"{name}.svg"), "make pictures draws them again"


def test_pictures_show_what_their_captions_say(drawn: Path) -> None:
    attention, folded = texts(IMAGES / "attention.svg"), texts(IMAGES / "folded.svg")
    assert {t for t in attention if t.startswith("fusion ")} == {"fusion weights"}, "one fused kernel, the softmax"
    assert attention.count("dot_general") == 6, "among its matrix products"
    assert folded.count("norm + attention + mlp ×12") == 1, "twelve equal layers as one box"


def test_the_pictures_of_the_page_exist() -> None:
    for name in re.findall(r"\]\((images/[^)]*)\)", PAGE.read_text(encoding="utf-8")):
        assert (PAGE.parent / name).stat().st_size < 200_000
