"""Relay text as tokens, whose kinds are the groups of one pattern. Comments are left out; where one states a type is remembered.

Tokens never fail to cover the text: what is no word of the language is a ParseError at its place. The metadata section is not
tokens but JSON; the scanner gives its offset.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from deepx_graph.errors import Diagnostic, ParseError, Source, Span
from deepx_graph.text.common.cursor import Token

METADATA = re.compile(r"#\[\s*metadata\s*\]")

_TOKEN = re.compile(
    r"(?P<blank>\s+)"
    r"|(?P<line>//[^\n]*)"
    r"|(?P<block>/\*)"
    r"|(?P<header>\#\[[^\]\n]*\])"
    r"|(?P<graph>%\d+)"
    r"|(?P<local>%[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r"|(?P<globl>@[A-Za-z_][\w.]*)"
    r"|(?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[fiu]\d*)?(?!\w))"
    r"|(?P<item>\.\d+)"
    r"|(?P<word>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<sign>->|=>|==|!=|<=|>=|[(){}\[\],;:=+\-*/<>?.&])",
    re.ASCII,
)
_COMMENT = re.compile(r"/\*|\*/")
_STATED = re.compile(r"/\*\s*ty=")


@dataclass
class Tokens:
    """The tokens of a text, with what else the scanner saw. `stated` maps a token's number to the type comment before it."""

    source: Source
    tokens: list[Token]
    stated: dict[int, tuple[int, int]]
    metadata: int | None
    """Where the JSON of the metadata section begins, if there is one."""


def scan(source: Source, start: int = 0, end: int | None = None) -> Tokens:
    """The tokens between two places. Raises ParseError for a character that begins no word, or a comment without end."""
    text = source.text
    metadata = METADATA.search(text, start) if end is None else None
    limit = len(text) if end is None else end
    if metadata is not None:
        limit = metadata.start()
    tokens: list[Token] = []
    stated: dict[int, tuple[int, int]] = {}
    at, match = start, _TOKEN.match
    while at < limit:
        found = match(text, at, limit)
        if found is None:
            raise ParseError(Diagnostic(f"'{text[at]}' begins no word of Relay", Span(source, at, at + 1)))
        kind = found.lastgroup or ""
        if kind == "block":
            at = _comment_end(source, at, limit)
            if _STATED.match(text, found.start()):
                stated[len(tokens)] = (found.start(), at)
            continue
        at = found.end()
        if kind not in ("blank", "line"):
            tokens.append(Token(kind, found[0], found.start(), at))
    tokens.append(Token("end", "", limit, limit))
    return Tokens(source, tokens, stated, None if metadata is None else metadata.end())


def _comment_end(source: Source, start: int, limit: int) -> int:
    """The end of the comment that begins at `start`; comments nest."""
    depth = 0
    for found in _COMMENT.finditer(source.text, start, limit):
        depth += 1 if found[0] == "/*" else -1
        if depth == 0:
            return found.end()
    raise ParseError(Diagnostic("this comment does not end", Span(source, start, start + 2), expected="*/"))
