"""A place in a sea text: what comes next, and errors that point at it.

The form needs no separate list of tokens: the reader asks for the word or the pattern that it expects at the place where it is.
`skip` passes blanks and `//` comments; everything else leaves the place where it was unless it matched.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span

STRING = r'"(?:[^"\\\n]|\\.)*"'
BARE = r"[A-Za-z_][\w.$-]*"
VALUE = rf"%(?:\d+|{BARE}|{STRING})(?:\#\d+)?"
NAME = rf"(?:{BARE}|{STRING})"

_BLANK = re.compile(r"(?:\s|//[^\n]*)*+")
_WORD = re.compile(rf"{STRING}|[%@]?[\w.$?#-]+|->|.", re.ASCII | re.DOTALL)
_NAME = re.compile(NAME, re.ASCII)
_STRING = re.compile(STRING)


class Cursor:
    """A position in a text. `depth_limit` bounds how deep `nested` may go."""

    def __init__(self, source: Source, depth_limit: int) -> None:
        self.source = source
        self.text = source.text
        self.at = 0
        self.depth_limit = depth_limit

    def skip(self) -> int:
        """Passes blanks and comments; the position then."""
        found = _BLANK.match(self.text, self.at)
        assert found is not None
        self.at = found.end()
        return self.at

    def peek(self, word: str) -> bool:
        """Whether `word` comes next."""
        return self.text.startswith(word, self.skip())

    def accept(self, word: str) -> bool:
        """Passes `word`, a sign, if it comes next."""
        if self.peek(word):
            self.at += len(word)
            return True
        return False

    def accept_word(self, word: str) -> bool:
        """Passes `word`, made of letters, if it comes next as a whole."""
        after = self.skip() + len(word)
        if not self.peek(word) or self.text[after : after + 1].isalnum():
            return False
        self.at = after
        return True

    def expect(self, word: str, what: str = "") -> None:
        """Passes `word`. Raises ParseError when something else comes."""
        if not self.accept(word):
            self.fail(f"found {self.next_word()}", expected=f"'{word}'{' ' + what if what else ''}")

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Passes what the pattern matches here, if it does."""
        found = pattern.match(self.text, self.skip())
        if found is not None:
            self.at = found.end()
        return found

    def name(self, what: str) -> str:
        """Passes a name, bare or quoted. Raises ParseError."""
        found = self.match(_NAME)
        if found is None:
            self.fail(f"found {self.next_word()}", expected=what)
        return self.unquote(found[0], found.start())

    def string(self) -> str:
        """Passes a quoted string. Raises ParseError."""
        found = self.match(_STRING)
        if found is None:
            self.fail("this string does not end", expected='"', end=self.text.find("\n", self.at))
        return self.unquote(found[0], found.start())

    def unquote(self, word: str, at: int) -> str:
        """What a word means, its quotes and escapes taken away."""
        if not word.startswith('"'):
            return word
        try:
            return str(json.loads(word))
        except ValueError as e:
            self.fail(f"not a string: {str(e).split(':')[0]}", start=at, end=at + len(word), expected="a JSON string")

    def nested(self, depth: int) -> int:
        """The depth one further in. Raises LimitError beyond the limit."""
        if depth >= self.depth_limit:
            raise LimitError(Diagnostic(f"nested deeper than {self.depth_limit}", self.span(self.at, self.at + 1)))
        return depth + 1

    def next_word(self) -> str:
        """What comes next, for a message."""
        found = _WORD.match(self.text, self.skip())
        return f"'{found[0][:40]}'" if found else "the end of the text"

    def span(self, start: int, end: int) -> Span:
        return Span(self.source, start, end)

    def fail(self, message: str, *, expected: str | None = None, hint: str | None = None, start: int = -1,
             end: int = -1) -> NoReturn:
        """Raises ParseError at the given range, or at the next word."""
        if start < 0:
            start = self.skip()
        if end < 0:
            found = _WORD.match(self.text, start)
            end = found.end() if found else start
        raise ParseError(Diagnostic(message, self.span(start, end), expected=expected, hint=hint))
