"""Texts in several pieces, and the diagnostics that a text expects of itself, as mlir-opt has them.

    // -----                                        between pieces (--split-input-file)
    // expected-error@+1 {{unknown operation}}      the next line gives an error whose message has these words
    // expected-warning-re@below {{line {{[0-9]+}}}}

A place is `@above`, `@below`, `@+N`, `@-N`, or `@unknown` for what has no line in the text; without one it is the line itself.
Source: MLIR, `SourceMgrDiagnosticVerifierHandler`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from deepx_graph.errors import Diagnostic, ParseError, Source, Span

SEPARATOR = "// -----"
_SEPARATORS = re.compile(r"^[ \t]*// -----[^\n]*\n?", re.MULTILINE)
_EXPECTED = re.compile(r"expected-(error|warning|note)(-re)?[ \t]*(?:@(above|below|unknown|[+-]\d{1,6}))?[ \t]*\{\{(.*)\}\}")
_REGEX = re.compile(r"\{\{(.*?)\}\}")


def pieces(source: Source) -> Iterator[Source]:
    """The parts of a text between separators, each with its lines where they were; a binary file is one piece."""
    start = 0
    for cut in _SEPARATORS.finditer(source.text):
        yield _piece(source, start, cut.start())
        start = cut.end()
    yield _piece(source, start, len(source.text)) if start else source


def _piece(source: Source, start: int, end: int) -> Source:
    return replace(source, text="\n" * source.text.count("\n", 0, start) + source.text[start:end])


@dataclass(frozen=True)
class Expectation:
    """A diagnostic that a text expects: its severity, its line (None where it has none), and a pattern of its message."""

    severity: str
    line: int | None
    pattern: re.Pattern[str]
    words: str
    span: Span

    def meets(self, found: Diagnostic) -> bool:
        line = found.span.line if found.span else None
        return (found.severity, line) == (self.severity, self.line) and self.pattern.search(found.message) is not None


def expectations(source: Source) -> list[Expectation]:
    """Those that stand in a text. Raises ParseError, with its place, for a pattern that is none."""
    return [_expectation(source, found) for found in _EXPECTED.finditer(source.text)]


def _expectation(source: Source, found: re.Match[str]) -> Expectation:
    severity, is_pattern, place, words = found.groups()
    span = Span(source, *found.span())
    offset = {None: 0, "above": -1, "below": 1}.get(place)
    line = None if place == "unknown" else span.line + (int(place) if offset is None else offset)
    parts = _REGEX.split(words) if is_pattern else [words]
    text = "".join(f"(?:{part})" if k % 2 else re.escape(part) for k, part in enumerate(parts))
    try:
        return Expectation(severity, line, re.compile(text), words, span)
    except re.error as e:
        raise ParseError(Diagnostic(f"the pattern is none: {e}", span)) from None


def unmet(expected: Sequence[Expectation], given: Sequence[Diagnostic]) -> list[Diagnostic]:
    """What was expected and did not come, and what came unexpected, notes aside; each diagnostic meets one expectation."""
    left, wrong = list(expected), []
    for found in given:
        match = next((e for e in left if e.meets(found)), None)
        if match is not None:
            left.remove(match)
        elif found.severity != "note":
            wrong.append(replace(found, severity="error", message=f"unexpected {found.severity}: {found.message}"))
    return wrong + [Diagnostic(f'expected {e.severity} "{e.words}" was not produced', e.span) for e in left]
