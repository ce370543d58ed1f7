"""The position that hand-written readers share."""

from __future__ import annotations

import re

import pytest

from deepx_graph.errors import LimitError, ParseError, Source
from deepx_graph.text.common.cursor import TextCursor, Token, TokenCursor


def tokens(text: str) -> TokenCursor:
    found = [Token("word", m[0], *m.span()) for m in re.finditer(r"\S", text)]
    return TokenCursor(Source("t", text), [*found, Token("end", "", len(text), len(text))], 3)


def test_blanks_and_comments_are_passed_when_something_is_asked() -> None:
    c = TextCursor(Source("t", " // a\n\t x//b"), 3)
    assert (c.at, c.peek("x"), c.at) == (0, True, 8)
    assert c.accept("x") and not c.accept("x")
    assert c.at == len(c.text)


@pytest.mark.parametrize("cursor", [TextCursor(Source("t", "[a , b,]c"), 3), tokens("[a , b,]c")], ids=["text", "tokens"])
def test_items_stand_between_commas(cursor: TextCursor | TokenCursor) -> None:
    cursor.expect("[")
    assert cursor.items("]", lambda: cursor.accept("a") or cursor.accept("b")) == [True, True]
    cursor.expect("c")


@pytest.mark.parametrize("cursor", [TextCursor(Source("t", "a\n  b c"), 3), tokens("a\n  b c")], ids=["text", "tokens"])
def test_an_error_points_at_what_comes_instead(cursor: TextCursor | TokenCursor) -> None:
    cursor.expect("a")
    with pytest.raises(ParseError) as caught:
        cursor.expect(";", "at the end")
    assert str(caught.value) == "t:2:3: error: found 'b'\n2 |   b c\n  |   ^\n  expected: ';' at the end"


@pytest.mark.parametrize("cursor", [TextCursor(Source("t", ""), 3), tokens("")], ids=["text", "tokens"])
def test_an_error_at_the_end_says_so(cursor: TextCursor | TokenCursor) -> None:
    with pytest.raises(ParseError, match="found the end of the text"):
        cursor.expect("a")


def test_a_range_is_at_least_one_character() -> None:
    with pytest.raises(ParseError) as caught:
        TextCursor(Source("t", "abc"), 3).fail("no", 1, 1, hint="h")
    (found,) = caught.value.diagnostics
    assert (found.span.text if found.span else "", found.hint) == ("b", "h")


def test_depth_is_bounded_and_given_back() -> None:
    c = tokens("a")
    with c.nested(), c.nested(), c.nested():
        with pytest.raises(LimitError, match="nested deeper than 3"), c.nested():
            pass
        assert c.depth == 3
    assert c.depth == 0
    with pytest.raises(ParseError), c.nested():
        c.expect("b")
    assert c.depth == 0, "an error leaves no depth behind"


def test_tokens_are_passed_by_kind_and_the_end_stays() -> None:
    c = tokens("ab")
    assert c.peek("b", 1) and not c.peek("b", 2)
    assert c.expect_kind("word", "a word").text == c.last.text == "a"
    assert [c.advance().kind for _ in range(3)] == ["word", "end", "end"]
    with pytest.raises(ParseError, match="found the end"):
        c.expect_kind("word", "a word")
    with pytest.raises(ParseError) as caught:
        c.fail_at(c.tokens[0], "this one")
    assert str(caught.value).startswith("t:1:1: error: this one")
