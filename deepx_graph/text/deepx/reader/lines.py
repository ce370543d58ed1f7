"""The parser of dialects A to E, line by line: `op@T a b -> c`, `op a,b -> c` and `op (type:a, type:b) -> (type:c)`.

Each line is recognised for itself, so a file may mix them. Offsets of every token are kept. A line that is not an instruction
is one Diagnostic, and the lines after it are still read. Time is linear in the text; a line longer than `MAX_LINE` is refused.
"""

from __future__ import annotations

import re

from deepx_graph.errors import ParseError
from deepx_graph.text.deepx.reader.instr import CATEGORIES, DTYPE_WORDS, Arg, Instr, Problems
from deepx_graph.types import DType

_LINE = re.compile(r"[^\n]+")
_OP = re.compile(r"([A-Za-z_][\w.]*)(?:@([^\s(),]*))?[ \t\r]*")
_TAG = re.compile(r"([A-Za-z]+(?:\|[A-Za-z]+)*)\s*(?:<([^<>]*)>)?\s*(?::|(?<=>)[ \t]+|(?<=>)(?=\[))[ \t]*")
_TOKEN = re.compile(r"(?:([^\s()\[\],]+)(?:\(([^()\s]*)\))?|(\[([^\[\]]*)\])|,)[ \t\r]*")
_ITEM = re.compile(r"[^\s,]+")
_COMMON_TAGS = {(category, word): (category, dtype) for category in CATEGORIES for word, dtype in DTYPE_WORDS.items()}
_LIST = re.compile(r"[ \t]*(?:[A-Za-z]+(?:<[^<>]*>)?[ \t]*:?[ \t]*)?\[")
_STRAY = re.compile(r"[()]")
_WORD = re.compile(r"[^\s(]+|\(")
_BLANKS = " \t\r"


def parse_lines(problems: Problems) -> tuple[Instr, ...]:
    """The instructions of the text; errors go to `problems`."""
    text = problems.source.text
    found: list[Instr] = []
    for line in _LINE.finditer(text):
        if problems.is_full:
            break
        try:
            instr = _line(problems, text, *line.span())
            if instr is not None:
                found.append(instr)
        except ParseError as e:
            problems.errors += e.diagnostics
    return tuple(found)


def _line(problems: Problems, text: str, start: int, end: int) -> Instr | None:
    problems.check_length(start, end)
    comment = _find(text, "//", start, end)
    metadata = text[comment + 2 : end].strip()
    start, end = _trimmed(text, start, comment)
    if start == end:
        return None
    head = _OP.match(text, start, end)
    if head is None:
        word = _WORD.match(text, start, end)
        raise problems.parse_error("not an instruction", start, word.end() if word else end,
                                   expected="an operation, its operands, '->' and what it writes")
    op = Arg(head[1], head.start(1), head.end(1))
    dtype = None if head[2] is None else problems.dtype(head[2], head.start(2), DTYPE_WORDS)
    at = head.end()
    cut, width, backward = _arrow(problems, text, at, end)
    if cut >= 0:
        inputs, outputs = _operands(problems, text, at, cut), _operands(problems, text, cut + width, end)
        return Instr(op, dtype, inputs, outputs, start, end, backward, True, metadata)
    if text.startswith("(", at, end):
        close = text.find(")", at, end)
        what, start = ("'(' without ')'", at) if close < 0 else ("the arrow '->' is missing", close)
        raise problems.parse_error(what, start, start + 1, expected="(operands) -> (results)")
    return Instr(op, dtype, _operands(problems, text, at, end), (), start, end, False, False, metadata)


def _find(text: str, word: str, start: int, end: int) -> int:
    """The offset of the first such word; `end` where there is none."""
    at = text.find(word, start, end)
    return end if at < 0 else at


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The range without blanks at its ends."""
    while end > start and text[end - 1] in _BLANKS:
        end -= 1
    while start < end and text[start] in _BLANKS:
        start += 1
    return start, end


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


def _operands(problems: Problems, text: str, start: int, end: int) -> tuple[Arg, ...]:
    start, end = _trimmed(text, start, end)
    return (_parenthesised if text.startswith("(", start, end) else _spaced)(problems, text, start, end)


# --- operands separated by blanks or commas (A, B, C) -------------------------------------------------------------


def _spaced(problems: Problems, text: str, start: int, end: int) -> tuple[Arg, ...]:
    args: list[Arg] = []
    at = start
    while at < end:
        match = _TOKEN.match(text, at, end)
        if match is None:
            raise _unbalanced(problems, text, at)
        at = match.end()
        if match[1] is not None:
            grad = None if match[2] is None else Arg(match[2], match.start(2), match.end(2))
            args.append(Arg(match[1], match.start(1), match.end(1), grad=grad))
        elif match[3] is not None:
            args.append(Arg(match[3], match.start(3), match.end(3), items=_items(text, match.start(4), match.end(4))))
    return tuple(args)


def _unbalanced(problems: Problems, text: str, at: int) -> ParseError:
    what = {"(": "'(' without ')'", ")": "')' without '('", "[": "'[' without ']'", "]": "']' without '['"}
    return problems.parse_error(what.get(text[at], f"unexpected '{text[at]}'"), at, at + 1,
                                expected="operands separated by blanks, name(gradient) for a gradient")


def _items(text: str, start: int, end: int) -> tuple[Arg, ...]:
    return tuple(Arg(m[0], m.start(), m.end()) for m in _ITEM.finditer(text, start, end))


# --- operands in parentheses (C, D, E) ----------------------------------------------------------------------------


def _parenthesised(problems: Problems, text: str, start: int, end: int) -> tuple[Arg, ...]:
    """The parameters between the `(` at `start` and the last `)`; an empty untyped one is left out."""
    if text[end - 1] != ")":
        close = text.rfind(")", start, end)
        at = start if close < 0 else close + 1
        what = "'(' without ')'" if close < 0 else "unexpected text after ')'"
        raise problems.parse_error(what, at, start + 1 if close < 0 else end, expected="(operands) -> (results)")
    args: list[Arg] = []
    at, last = start + 1, end - 1
    while at <= last:
        cut = _find(text, ",", at, last)
        opened = _LIST.match(text, at, cut)
        if opened is not None:  # commas inside a list, as dialect F writes them, do not end the operand
            close = text.find("]", opened.end(), last)
            if close < 0:
                raise problems.parse_error("'[' without ']'", opened.end() - 1, opened.end(), expected="[item item ...]")
            cut = _find(text, ",", close, last)
        arg = _parameter(problems, text, at, cut)
        if arg is not None:
            args.append(arg)
        at = cut + 1
    return tuple(args)


def _parameter(problems: Problems, text: str, start: int, end: int) -> Arg | None:
    start, end = _trimmed(text, start, end)
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
            return Arg(text[start:open_paren], start, open_paren, category, dtype, grad=grad)
    stray = _STRAY.search(text, start, end)
    if stray is not None:
        raise _unbalanced(problems, text, stray.start())
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
