"""A place in a text of S-expressions: what comes next, and where every bracket closes.

Comments run from `;` to the end of the line. Brackets are matched once, before anything is read, so that a form can be passed
over, and read later, at no cost.
"""

from __future__ import annotations

import re

from deepx_graph.errors import Diagnostic, ParseError, Source
from deepx_graph.text.sea.cursor import STRING, SeaCursor

_MARK = re.compile(rf'{STRING}|;[^\n]*|[()"]')


class Forms(SeaCursor):
    """A position in a text of S-expressions. Raises ParseError at once when its brackets do not match."""

    BLANK = re.compile(r"(?:\s|;[^\n]*)*+")
    COMMENT = ";"

    def __init__(self, source: Source, max_depth: int) -> None:
        super().__init__(source, max_depth)
        self._closes: dict[int, int] = {}
        self.tops: list[int] = []
        """Where the outermost forms begin."""
        opened: list[int] = []
        for mark in _MARK.finditer(source.text):
            if mark[0] == "(":
                if not opened:
                    self.tops.append(mark.start())
                opened.append(mark.start())
            elif mark[0] == ")":
                if not opened:
                    self.fail("this bracket closes nothing", mark.start(), mark.end())
                self._closes[opened.pop()] = mark.end()
        if opened:
            at = opened[-1]
            raise ParseError(Diagnostic("this bracket is never closed", self.span(at, at + 1), expected="')'"))

    def form(self, word: str) -> bool:
        """Passes `(word` if it comes next as a whole."""
        start = self.skip()
        if self.accept("(") and self.accept_word(word):
            return True
        self.at = start
        return False

    def end_of_form(self) -> int:
        """Where the form or the word that comes next ends."""
        start = self.skip()
        if start in self._closes:
            return self._closes[start]
        found = re.compile(rf"{STRING}|[^\s()]+").match(self.text, start)
        return found.end() if found else start
