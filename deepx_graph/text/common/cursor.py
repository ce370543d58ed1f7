"""The position of a reader in a text, whatever the language: what comes next, what was expected there, and errors that point at it.

A language derives from `TextCursor`, which stands between characters and asks for words and patterns as it expects them, or from
`TokenCursor`, which stands before a token of a list. It brings its own words, and what it shares is the same for all.
`whole` bounds the numbers of every text.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple, NoReturn, Self, TypeVar

from deepx_graph.errors import Diagnostic, LimitError, ParseError, Source, Span

T = TypeVar("T")


def deeper(depth: int, most: int, what: str = "graphs") -> int:
    """The depth of nesting one level further in. Raises LimitError beyond `most`."""
    if depth >= most:
        raise LimitError(f"{what} nest more than {most} deep")
    return depth + 1


class Cursor(ABC):
    """A position `at` in a text, and a depth of nesting, which `max_depth` bounds."""

    def __init__(self, source: Source, max_depth: int) -> None:
        self.source, self.text, self.at = source, source.text, 0
        self.depth, self.max_depth = 0, max_depth

    @abstractmethod
    def word_range(self, start: int | None = None) -> tuple[int, int]:
        """The offsets of the word at `start`, or of the one that comes next: what an error points at."""

    @abstractmethod
    def peek(self, word: str) -> bool:
        """Whether `word` comes next."""

    @abstractmethod
    def accept(self, word: str) -> bool:
        """Passes `word` if it comes next; whether it did."""

    def expect(self, word: str, what: str = "") -> None:
        """Passes `word`; `what` says what it is for. Raises ParseError when something else comes."""
        if not self.accept(word):
            self.missing(word, what)

    def items(self, close: str, item: Callable[[], T]) -> list[T]:
        """Passes what `item` passes, between commas, up to `close`, and that; a comma may be the last."""
        found: list[T] = []
        while not self.accept(close):
            found.append(item())
            if not self.accept(",") and not self.peek(close):
                self.missing(",", f"or '{close}'")
        return found

    # --- errors

    def missing(self, word: str, what: str) -> NoReturn:
        """Raises ParseError where `word` does not come."""
        self.mismatch(f"'{word}'{' ' + what if what else ''}")

    def mismatch(self, expected: str) -> NoReturn:
        """Raises ParseError: something else than expected comes next."""
        start, end = self.word_range()
        found = f"'{self.text[start:end][:40]}'" if start < end else "the end of the text"
        self.fail(f"found {found}", expected=expected)

    def fail(self, message: str, start: int | None = None, end: int | None = None, *, expected: str | None = None,
             hint: str | None = None) -> NoReturn:
        """Raises ParseError at the offsets; at the next word where none are given, or at the one that begins at `start`."""
        first, last = self.word_range(start)
        last = max(first + 1, last if end is None else end)
        raise ParseError(Diagnostic(message, self.span(first, last), expected=expected, hint=hint)) from None

    def span(self, start: int, end: int) -> Span:
        return Span(self.source, start, end)

    # --- nesting

    def nested(self) -> Self:
        """`with cursor.nested():` is one level further in. Raises LimitError beyond the limit."""
        if self.depth >= self.max_depth:
            raise LimitError(Diagnostic(f"nested deeper than {self.max_depth}", self.span(*self.word_range())))
        return self

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *error: object) -> None:
        self.depth -= 1


class TextCursor(Cursor):
    """A position between characters; it stands before blanks and comments until something asks what comes next."""

    BLANK: re.Pattern[str] = re.compile(r"(?:\s|//[^\n]*)*+")
    """Blanks and comments, as many as there are."""
    COMMENT: str = "/"
    """What a comment begins with."""

    def word_range(self, start: int | None = None) -> tuple[int, int]:
        at = self.at if start is None else start
        return at, min(at + 1, len(self.text))

    def skip(self) -> int:
        """Passes blanks and comments; the position then."""
        if not " " < self.text[self.at : self.at + 1] <= "~" or self.text[self.at] == self.COMMENT:
            found = self.BLANK.match(self.text, self.at)
            assert found is not None
            self.at = found.end()
        return self.at

    def peek(self, word: str) -> bool:
        return self.text.startswith(word, self.at) or self.text.startswith(word, self.skip())

    def accept(self, word: str) -> bool:
        if not self.text.startswith(word, self.at) and not self.text.startswith(word, self.skip()):
            return False
        self.at += len(word)
        return True

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Passes what the pattern matches next, if it does."""
        first = self.text[self.at : self.at + 1]
        found = pattern.match(self.text, self.at if " " < first <= "~" and first != self.COMMENT else self.skip())
        if found is not None:
            self.at = found.end()
        return found


class Token(NamedTuple):
    """A word of a text: its kind, itself and its offsets. The last of a text is of the kind `end`, and empty."""

    kind: str
    text: str
    start: int
    end: int


class TokenCursor(Cursor):
    """A position in a list of tokens: `at` is the number of the one that comes next."""

    def __init__(self, source: Source, tokens: Sequence[Token], max_depth: int) -> None:
        super().__init__(source, max_depth)
        self.tokens = tokens

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    @property
    def last(self) -> Token:
        """The token that was passed last."""
        return self.tokens[self.at - 1]

    def word_range(self, start: int | None = None) -> tuple[int, int]:
        return self.next[2:] if start is None else (start, start + 1)

    def advance(self) -> Token:
        """Passes a token; the end of the text stays."""
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def peek(self, word: str, ahead: int = 0) -> bool:
        """Whether the sign or word `word` comes next, or so many tokens later."""
        at = self.at + ahead
        return at < len(self.tokens) and self.tokens[at].text == word

    def accept(self, word: str) -> bool:
        if self.tokens[self.at].text == word:
            self.at += 1
            return True
        return False

    def expect_kind(self, kind: str, what: str) -> Token:
        """Passes a token of that kind. Raises ParseError when another comes."""
        if self.next.kind != kind:
            self.mismatch(what)
        return self.advance()

    def fail_at(self, token: Token, message: str, *, expected: str | None = None, hint: str | None = None) -> NoReturn:
        """Raises ParseError at a token."""
        self.fail(message, token.start, token.end, expected=expected, hint=hint)


def whole(text: str, digits: int = 18) -> int | None:
    """The number that decimal digits are; None for any other text, and for more digits than that."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None
