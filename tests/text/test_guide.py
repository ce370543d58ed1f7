"""The guide to readers: its language is read, recognised, and refused with a place where it is wrong."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import deepx_graph as dx
from deepx_graph.cli.main import main
from deepx_graph.errors import LimitError, ParseError
from deepx_graph.text import FORMATS
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "adding-a-reader.md").read_text(encoding="utf-8")


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What the example prints; its language is known meanwhile."""
    import sys
    import types

    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    package = types.ModuleType("rpn_guide")
    monkeypatch.setitem(sys.modules, "rpn_guide", package)
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(code, "adding-a-reader.md", "exec", dont_inherit=True), vars(package))
        yield out.getvalue().strip()
    finally:
        FORMATS.pop("rpn", None)


def test_the_example_prints_what_the_page_says(said: str) -> None:
    (wanted,) = re.findall(r"It prints `(.*?)`", PAGE)
    assert said == wanted


def test_errors_are_shown_as_on_the_page(said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    command, _, shown = re.findall(r"```\n\$ deepx-graph (.*?)```", PAGE, re.DOTALL)[0].partition("\n")
    Path("wrong.rpn").write_text("a b + *\n")
    assert main(command.split()) == 3
    assert shown in capsys.readouterr().err


@pytest.mark.parametrize("text", ["a b", "a b ^ 2 +", "1 2 + +"])
def test_what_is_wrong_is_refused_with_a_location(said: str, text: str) -> None:
    with pytest.raises(ParseError) as caught:
        dx.loads(text, "rpn")
    assert caught.value.diagnostics[0].span is not None


def test_bounds_hold(said: str) -> None:
    with pytest.raises(LimitError):
        dx.loads("a b + 2 * c - d +", max_nodes=3)
