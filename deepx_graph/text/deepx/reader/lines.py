"""The parser of dialects A to E, line by line: `op@T a b -> c`, `op a,b -> c` and `op (type:a, type:b) -> (type:c)`.

Each line is recognised for itself, so a file may mix them. Offsets of every token are kept. A line that is not an instruction
is one Diagnostic, and the lines after it are still read. Time is linear in the text; a line longer than `MAX_LINE` is refused.
"""

from __future__ import annotations

import re

from deepx_graph.errors import ParseError
from deepx_graph.text.deepx.reader.instr import CATEGORIES, DTYPE_WORDS, Arg, Instr, Problems
from deepx_graph.types import DType

_OP = re.compile(r"[ \t]*([A-Za-z_][\w.]*)(?:@([^\s(),]*))?")
_TAG = re.compile(r"([A-Za-z]+(?:\|[A-Za-z]+)*)\s*(?:<([^<>]*)>)?\s*(?::|(?<=>)[ \t]+|(?<=>)(?=\[))[ \t]*")
_TOKEN = re.compile(r"[ \t]*(?:([^\s()\[\],]+)(\(([^()\s]*)\))?|(\[)([^\[\]]*)\]|(,))")
_ITEM = re.compile(r"[^\s,]+")
_COMMON_TAGS = {(category, word): (category, dtype) for category in CATEGORIES for word, dtype in DTYPE_WORDS.items()}
_LIST = re.compile(r"[ \t]*(?:[A-Za-z]+(?:<[^<>]*>)?[ \t]*:?[ \t]*)?\[")
_STRAY = re.compile(r"[()]")
_BLANKS = " \t\r"


def parse_lines(problems: Problems) -> tuple[Instr, ...]:
    """The instructions of the text; errors go to `problems`."""
    text = problems.source.text
    found: list[Instr] = []
    start = 0
    while start < len(text) and not problems.is_full:
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        try:
            instr = _line(problems, text, start, end)
            if instr is not None:
                found.append(instr)
        except ParseError as e:
            problems.errors += e.diagnostics
        start = end + 1
    return tuple(found)


def _line(problems: Problems, text: str, start: int, end: int) -> Instr | None:
    problems.check_length(start, end)
    comment = text.find("//", start, end)
    metadata = "" if comment < 0 else text[comment + 2 : end].strip()
    end = end if comment < 0 else comment
    while end > start and text[end - 1] in _BLANKS:
        end -= 1
    while start < end and text[start] in _BLANKS:
        start += 1
    if start == end:
        return None
    head = _OP.match(text, start, end)
    if head is None:
        raise problems.parse_error("not an instruction", start, _word_end(text, start, end),
                                   expected="an operation, its operands, '->' and what it writes")
    op = Arg(head[1], head.start(1), head.end(1))
    dtype = None if head[2] is None else problems.dtype(head[2], head.start(2), DTYPE_WORDS)
    at = head.end()
    while at < end and text[at] in _BLANKS:
        at += 1
    in_parens = at < end and text[at] == "("
    cut, width, backward = _arrow(problems, text, at, end)
    parse = _parenthesised if in_parens else _spaced
    if cut < 0:
        if in_parens:
            close = text.find(")", at, end)
            what, place = ("'(' without ')'", at) if close < 0 else ("the arrow '->' is missing", close)
            raise problems.parse_error(what, place, place + 1, expected="(operands) -> (results)")
        return Instr(op, dtype, _spaced(problems, text, at, end), (), start, end, False, False, metadata)
    inputs = parse(problems, text, at, cut)
    after = cut + width
    while after < end and text[after] in _BLANKS:
        after += 1
    parse = _parenthesised if after < end and text[after] == "(" else _spaced
    return Instr(op, dtype, inputs, parse(problems, text, after, end), start, end, backward, True, metadata)


def _word_end(text: str, start: int, end: int) -> int:
    blank = re.compile(r"[\s(]").search(text, start, end)
    return max(start + 1, blank.start() if blank else end)


def _arrow(problems: Problems, text: str, start: int, end: int) -> tuple[int, int, bool]:
    """Offset, width and direction of the line's arrow; -1 where it has none."""
    forward, backward = text.find("->", start, end), text.find("<-", start, end)
    if forward >= 0 and (backward < 0 or forward < backward):
        return forward, 2, False
    if backward >= 0:
        return backward, 2, True
    lone = text.find(">", start, end)
    if lone >= 0 and text.find("<", start, end) < 0:
        problems.warn("'>' is taken for '->'", lone, lone + 1, expected="'->'")
        return lone, 1, False
    return -1, 0, False


# --- operands separated by blanks or commas (A, B, C) -------------------------------------------------------------


def _spaced(problems: Problems, text: str, start: int, end: int) -> tuple[Arg, ...]:
    args: list[Arg] = []
    at = start
    while at < end:
        match = _TOKEN.match(text, at, end)
        if match is None:
            while at < end and text[at] in _BLANKS:
                at += 1
            if at == end:
                break
            raise _unbalanced(problems, text, at, end)
        at = match.end()
        if match[1] is not None:
            args.append(_plain(problems, text, match.start(1), match.end(1), _grad(match)))
        elif match[4] is not None:
            items = _items(text, match.start(5), match.end(5))
            args.append(Arg(text[match.start(4) : at], match.start(4), at, items=items))
    return tuple(args)


def _grad(match: re.Match[str]) -> Arg | None:
    return None if match[2] is None else Arg(match[3], match.start(3), match.end(3))


def _unbalanced(problems: Problems, text: str, at: int, end: int) -> ParseError:
    what = {"(": "'(' without ')'", ")": "')' without '('", "[": "'[' without ']'", "]": "']' without '['"}
    return problems.parse_error(what.get(text[at], f"unexpected '{text[at]}'"), at, at + 1,
                                expected="operands separated by blanks, name(gradient) for a gradient")


def _items(text: str, start: int, end: int) -> tuple[Arg, ...]:
    return tuple(Arg(m[0], m.start(), m.end()) for m in _ITEM.finditer(text, start, end))


# --- operands in parentheses (C, D, E) ----------------------------------------------------------------------------


def _parenthesised(problems: Problems, text: str, start: int, end: int) -> tuple[Arg, ...]:
    """The parameters between the `(` at `start` and the last `)`; an empty untyped one is left out."""
    while end > start and text[end - 1] in _BLANKS:
        end -= 1
    if end == start or text[start] != "(":
        at = min(start, end)
        raise problems.parse_error("'(' is missing", at, max(at + 1, end), expected="(operands) -> (results)")
    if text[end - 1] != ")":
        close = text.rfind(")", start, end)
        at = start if close < 0 else close + 1
        what = "'(' without ')'" if close < 0 else "unexpected text after ')'"
        raise problems.parse_error(what, at, start + 1 if close < 0 else end, expected="(operands) -> (results)")
    args: list[Arg] = []
    at, last = start + 1, end - 1
    while at <= last:
        cut = text.find(",", at, last)
        cut = last if cut < 0 else cut
        opened = _LIST.match(text, at, cut)
        if opened is not None:  # commas inside a list, as dialect F writes them, do not end the operand
            close = text.find("]", opened.end(), last)
            if close < 0:
                raise problems.parse_error("'[' without ']'", opened.end() - 1, opened.end(), expected="[item item ...]")
            cut = text.find(",", close, last)
            cut = last if cut < 0 else cut
        arg = _parameter(problems, text, at, cut)
        if arg is not None:
            args.append(arg)
        at = cut + 1
    return tuple(args)


def _parameter(problems: Problems, text: str, start: int, end: int) -> Arg | None:
    while start < end and text[start] in _BLANKS:
        start += 1
    while end > start and text[end - 1] in _BLANKS:
        end -= 1
    tag = _TAG.match(text, start, end)
    category, dtype = "", None
    if tag is not None:
        category, dtype = _tag(problems, tag)
        start = tag.end()
        if category == "var" and tag[2] == "string":
            return Arg(text[start:end], start, end, "string", None)
    if start == end:
        return None if tag is None else Arg("", tag.start(), end, category, dtype)
    if text[start] == "[":
        if text[end - 1] != "]" or text.find("]", start, end) != end - 1:
            raise problems.parse_error("'[' without ']'", start, end, expected="[item item ...]")
        return Arg(text[start:end], start, end, category, dtype, _items(text, start + 1, end - 1))
    open_paren = text.find("(", start, end)
    if open_paren > start and text[end - 1] == ")":
        grad = Arg(text[open_paren + 1 : end - 1], open_paren + 1, end - 1)
        if not any(c in "() \t" for c in grad.text):
            return _plain(problems, text, start, open_paren, grad)._replace(category=category, dtype=dtype)
    stray = _STRAY.search(text, start, end)
    if stray is not None:
        raise _unbalanced(problems, text, stray.start(), end)
    return Arg(text[start:end], start, end, category, dtype)


def _tag(problems: Problems, tag: re.Match[str]) -> tuple[str, DType | None]:
    known = _COMMON_TAGS.get((tag[1], tag[2]))
    if known is not None:
        return known
    category = tag[1].lower()
    for word in category.split("|"):
        if word not in CATEGORIES:
            raise problems.parse_error(f"unknown kind of operand '{tag[1]}'", tag.start(1), tag.end(1),
                                       expected=" | ".join(CATEGORIES))
    if tag[2] is None:
        return category, None
    dtypes = [problems.dtype(word.strip(), tag.start(2), DTYPE_WORDS) for word in tag[2].split("|")]
    return category, dtypes[0] if len(dtypes) == 1 else None


def _plain(problems: Problems, text: str, start: int, end: int, grad: Arg | None) -> Arg:
    return Arg(text[start:end], start, end, grad=grad)
