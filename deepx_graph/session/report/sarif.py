"""Findings as SARIF 2.1.0, which hosts of code show beside the lines that they are about.

Source: OASIS, Static Analysis Results Interchange Format (SARIF) Version 2.1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from deepx_graph.errors import Diagnostic
from deepx_graph.session.report.figures import Verdict

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {"error": "error", "warning": "warning", "note": "note"}


def sarif(path: str, verdicts: Sequence[Verdict], diagnostics: Sequence[Diagnostic], version: str) -> dict[str, Any]:
    """The log of one run over a program: its budgets that do not hold, and what readers and passes said of it."""
    results = [_result(f"budget/{v.budget.figure}", "error", f"{v.budget.text} does not hold: {v.value:,}", _location(path))
               for v in verdicts if not v.holds]
    results += [_result(f"program/{d.severity}", _LEVELS[d.severity], _words(d), _place(path, d)) for d in diagnostics]
    rules = sorted({r["ruleId"] for r in results})
    described = [{"id": rule, "shortDescription": {"text": _RULES[rule.partition("/")[0]]}} for rule in rules]
    driver = {"name": "deepx_graph", "version": version, "rules": described}
    return {"$schema": SCHEMA, "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}]}


_RULES = {"budget": "A figure of the program stays within its bound.", "program": "The program can be read and optimised."}


def _result(rule: str, level: str, text: str, location: dict[str, Any]) -> dict[str, Any]:
    return {"ruleId": rule, "level": level, "message": {"text": text}, "locations": [location]}


def _words(d: Diagnostic) -> str:
    more = [f"expected: {d.expected}"] * bool(d.expected) + [f"hint: {d.hint}"] * bool(d.hint)
    return "\n".join([d.message, *more, *d.notes])


def _place(path: str, d: Diagnostic) -> dict[str, Any]:
    if d.span is None or d.span.source.binary:
        return _location(path)
    end_line, end_column = d.span.source.position(max(d.span.start, d.span.end))
    return _location(d.span.source.name, {"startLine": d.span.line, "startColumn": d.span.column, "endLine": end_line,
                                          "endColumn": end_column})


def _location(path: str, region: dict[str, int] | None = None) -> dict[str, Any]:
    """A place in a file; a host shows a result without a region at the first line."""
    uri = quote(PurePath(path).as_posix())
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region or {"startLine": 1}}}
