"""The files of the package, and the pages of its documentation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

SOURCES = ("deepx_graph", "passes", "viz", "tui")


def source_files() -> Iterator[Path]:
    """Every module of the package once, not through the links."""
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any(p.is_symlink() for p in path.parents):
                yield path


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "bench").glob("*.md"))]


@cache
def trees() -> list[tuple[str, ast.Module]]:
    """Every module by its path."""
    return [(p.relative_to(ROOT).as_posix(), ast.parse(p.read_text(encoding="utf-8"))) for p in source_files()]
