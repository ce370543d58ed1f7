"""What stands in a sea text: words, names, strings.

The form needs no separate list of tokens: the reader asks for the word or the pattern that it expects at the place where it is.
"""

from __future__ import annotations

import json
import re

from deepx_graph.text.common.cursor import TextCursor
from deepx_graph.text.sea.words import name_text

STRING = r'"(?:[^"\\\n]|\\.)*"'
BARE = r"[A-Za-z_][\w.$-]*"
VALUE = rf"%(?:\d+|{BARE}|{STRING})(?:\#\d+)?"
NAME = rf"(?:{BARE}|{STRING})"

_VALUE = re.compile(VALUE, re.ASCII)
_WORD = re.compile(rf"{STRING}|[%@]?[\w.$?#-]+|->|.", re.ASCII | re.DOTALL)
_NAME = re.compile(NAME, re.ASCII)
_STRING = re.compile(STRING)


class SeaCursor(TextCursor):
    """A position in a text of the sea form, or of one with its words."""

    def word_range(self, start: int | None = None) -> tuple[int, int]:
        at = self.skip() if start is None else start
        found = _WORD.match(self.text, at)
        return at, found.end() if found else at

    def accept_word(self, word: str) -> bool:
        """Passes `word`, made of letters, if it comes next as a whole."""
        after = self.skip() + len(word)
        if not self.peek(word) or self.text[after : after + 1].isalnum():
            return False
        self.at = after
        return True

    def expect_word(self, word: str) -> None:
        """Passes `word`, made of letters. Raises ParseError."""
        if not self.accept_word(word):
            self.missing(word, "")

    def name(self, what: str) -> str:
        """Passes a name, bare or quoted. Raises ParseError."""
        found = self.match(_NAME)
        if found is None:
            self.mismatch(what)
        return self.unquote(found[0], found.start())

    def at_name(self, what: str) -> str:
        """Passes `@` and a name. Raises ParseError."""
        self.expect("@", f"and {what}")
        return self.name(what)

    def type_param(self) -> str:
        """Passes `$` and the name of a type parameter. Raises ParseError."""
        self.expect("$", "and the name of a type parameter")
        return self.name("the name of a type parameter")

    def value_name(self) -> str:
        """Passes the name of a value; gives its key. Raises ParseError."""
        found = self.match(_VALUE)
        if found is None:
            self.mismatch("a value, like %x")
        return self.key(found[0], found.start())

    def key(self, word: str, at: int) -> str:
        """The one spelling of a value's name: quoted only where it must be."""
        if '"' not in word:
            return word
        quoted, _, number = word[1:].rpartition('"')
        return f"%{name_text(self.unquote(quoted + chr(34), at))}{number}"

    def plain_name(self, word: str) -> str:
        """The name a value had where it came from: without `%`, quotes and number; empty for a value that is only numbered."""
        if '"' in word:
            return self.unquote(word[1 : word.rindex('"') + 1], self.at)
        name = word[1:].partition("#")[0]
        return "" if name.isdecimal() else name

    def string(self) -> str:
        """Passes a quoted string. Raises ParseError."""
        found = self.match(_STRING)
        if found is None:
            end = self.text.find("\n", self.at)
            self.fail("this string does not end", self.at, None if end < 0 else end, expected='"')
        return self.unquote(found[0], found.start())

    def unquote(self, word: str, at: int) -> str:
        """What a word means, its quotes and escapes taken away."""
        if not word.startswith('"'):
            return word
        try:
            return str(json.loads(word))
        except ValueError as e:
            self.fail(f"not a string: {str(e).split(':')[0]}", at, at + len(word), expected="a JSON string")
