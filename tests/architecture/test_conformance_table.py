"""The table of the long suites: each row counts tests that there are."""

from __future__ import annotations

import ast
import re

from tests.support.conformance_table import ROWS
from tests.support.paths import ROOT


def names() -> list[str]:
    """Every test function as pytest names it."""
    files = {p.relative_to(ROOT).as_posix(): ast.parse(p.read_text(encoding="utf-8")) for p in (ROOT / "tests").rglob("test_*.py")}
    return [f"{path}::{n.name}" for path, tree in files.items() for n in tree.body if isinstance(n, ast.FunctionDef)]


def test_every_row_has_tests() -> None:
    known = names()
    functions = {title: pattern.partition(r"\[")[0] for title, pattern in ROWS.items()}
    assert [title for title, function in functions.items() if not any(re.search(function, n) for n in known)] == []
