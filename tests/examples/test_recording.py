"""The recording at the top of README.md is what its command draws now."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

STORED = ROOT / "docs" / "images" / "recording.svg"


def texts(svg: str) -> list[str]:
    """What is written in a picture, in order."""
    return re.findall(r">([^<>]+)</text>", svg)


def test_the_recording_is_current(tmp_path: Path) -> None:
    target = tmp_path / "recording.svg"
    subprocess.run([sys.executable, ROOT / "examples" / "recording.py", target], check=True, timeout=120, cwd=ROOT)
    assert texts(target.read_text(encoding="utf-8")) == texts(STORED.read_text(encoding="utf-8"))


def test_it_is_text_that_moves_and_asks_for_nothing() -> None:
    svg = STORED.read_text(encoding="utf-8")
    assert svg.count('<g class="frame"') > 4 and "@keyframes" in svg and "prefers-reduced-motion" in svg
    assert "<image" not in svg and "<script" not in svg and not re.search(r'(href|src)="|url\(http', svg)
    assert any("ResBlock_3" in t for t in texts(svg)), "a real network, by its modules"
