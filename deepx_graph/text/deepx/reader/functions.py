"""The parser of dialect F: `func f(a: tensor<?1x3xf32>, axis: i32) -> (out: tensor<?1xf32>) { sum(a, axis)-> out }`.

Recursive descent over a token list without recursion that a text could deepen: brackets of a type nest at most
`options.max_depth` deep. A statement that cannot be read is one Diagnostic and reading goes on at the next line; a broken
function header ends the file. Gives the same records as the line dialects.
"""

from __future__ import annotations

import re
from typing import NoReturn

from deepx_graph.errors import ParseError
from deepx_graph.text.deepx.reader.instr import SHORT_DTYPES, Arg, Formal, FunctionText, Instr, Problems
from deepx_graph.types import ANY, Dim, DType, TensorType, tensor

KEYWORDS = ("deepxir", "function", "func", "def")
HEADER = re.compile(r"(?:deepxir|function|func|def)[ \t]+[A-Za-z_][\w.]*[ \t]*\(")
"""What the first line of a file of this dialect begins with."""

_TOKEN = re.compile(
    r"(?P<skip>[ \t\r]+|//[^\n]*)|(?P<newline>\n)|(?P<arrow>->|=>)|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w?.]))"
    r"|(?P<word>[\w.?]+)|(?P<mark>[(){}\[\]<>|,:;])|(?P<other>.)"
)
_MAX_DIM_DIGITS = 18


def parse_dims(text: str, owner: str) -> tuple[Dim, ...] | None:
    """The dims of `2x?1x?`; each `?` is a symbol of its own, made from `owner`. None when it is not a shape."""
    parts = text.split("x")
    dims: list[Dim] = []
    for k, part in enumerate(parts):
        if part.isascii() and part.isdigit() and len(part) <= _MAX_DIM_DIGITS:
            dims.append(int(part))
        elif part == "?":
            dims.append(f"?{owner}.{k}")
        elif part.startswith("?") and part[1:].isascii() and part[1:].isdigit():
            dims.append(part)
        else:
            return None
    return tuple(dims)


def parse_functions(problems: Problems, max_depth: int) -> tuple[FunctionText, ...]:
    """The functions of the text; errors go to `problems`."""
    found: list[FunctionText] = []
    try:
        _check_lines(problems)
        parser = _Parser(problems, max_depth)
        while parser.skip_newlines() and not problems.is_full:
            found.append(parser.function())
    except ParseError as e:
        problems.errors += e.diagnostics
    return tuple(found)


def _check_lines(problems: Problems) -> None:
    text, start = problems.source.text, 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        problems.check_length(start, end)
        start = end + 1


class _Parser:
    """The tokens of a text and a place among them. A token is `(kind, text, start)`; newlines are tokens."""

    def __init__(self, problems: Problems, max_depth: int) -> None:
        self.problems, self.max_depth = problems, max_depth
        text = problems.source.text
        self.tokens = [(m.lastgroup or "", m[0], m.start()) for m in _TOKEN.finditer(text) if m.lastgroup != "skip"]
        self.tokens.append(("end", "", len(text)))
        self.at = 0

    # --- tokens

    def fail(self, expected: str, message: str = "") -> NoReturn:
        kind, text, start = self.tokens[self.at]
        shown = {"end": "the file ends", "newline": "the line ends"}.get(kind, f"unexpected '{text[:40]}'")
        raise self.problems.parse_error(message or shown, start, start + max(1, len(text)), expected=expected)

    def skip_newlines(self) -> bool:
        """Go to the next token that is not a newline; whether there is one."""
        while self.tokens[self.at][0] == "newline":
            self.at += 1
        return self.tokens[self.at][0] != "end"

    def accept(self, text: str) -> bool:
        if self.tokens[self.at][1] != text:
            return False
        self.at += 1
        return True

    def expect(self, text: str, what: str = "") -> None:
        if not self.accept(text):
            self.fail(what or f"'{text}'")

    def word(self, what: str) -> Arg:
        kind, text, start = self.tokens[self.at]
        if kind != "word" or not (text[0].isalpha() or text[0] == "_"):
            self.fail(what)
        self.at += 1
        return Arg(text, start, start + len(text))

    # --- functions

    def function(self) -> FunctionText:
        keyword = self.tokens[self.at][1]
        if keyword not in KEYWORDS:
            self.fail(f"a function: {' or '.join(KEYWORDS)}")
        self.at += 1
        name = self.word("the function's name")
        params = self.formals()
        self.skip_newlines()
        if not self.accept("->"):
            self.fail("'->' and the results")
        self.skip_newlines()
        results = self.formals()
        self.skip_newlines()
        self.expect("{", "'{' and the body")
        body: list[Instr] = []
        while self.skip_newlines() and not self.accept("}"):
            instr = self.statement_or_none()
            if instr is not None:
                body.append(instr)
        if self.tokens[self.at - 1][1] != "}":
            self.fail("'}' to end the function", f"the body of '{name.text}' is not closed")
        return FunctionText(name, params, results, tuple(body))

    def formals(self) -> tuple[Formal, ...]:
        self.expect("(", "'(' and the parameters")
        found: list[Formal] = []
        self.skip_newlines()
        while not self.accept(")"):
            if found:
                self.expect(",", "',' or ')'")
                self.skip_newlines()
            name = self.word("a parameter's name")
            self.expect(":", f"':' and the type of '{name.text}'")
            kind, type = self.type(name.text, 0)
            found.append(Formal(name, kind, type))
            self.skip_newlines()
        return tuple(found)

    def type(self, owner: str, depth: int) -> tuple[str, TensorType]:
        """A type with its alternatives; those that differ leave the element type open."""
        if depth > self.max_depth:
            self.fail(f"nesting of at most {self.max_depth}", "types nest too deeply")
        kind, found = self.one_type(owner, depth)
        while self.accept("|"):
            other_kind, other = self.one_type(owner, depth)
            if other_kind != kind:
                self.fail(f"another {kind} type")
            found = tensor(found.dtype if found.dtype is other.dtype else ANY, found.dims if found.dims == other.dims else None)
        return kind, found

    def one_type(self, owner: str, depth: int) -> tuple[str, TensorType]:
        word = self.word("a type")
        if word.text == "list":
            self.expect("<")
            self.type(owner, depth + 1)
            self.expect(">")
            return "list", tensor(ANY, None)
        if word.text != "tensor":
            return "scalar", tensor(self.problems.dtype(word.text, word.start, SHORT_DTYPES), ())
        if not self.accept("<"):
            return "tensor", tensor(ANY, None)
        type = self.tensor_content(owner)
        self.expect(">", "'>' to end the type")
        return "tensor", type

    def tensor_content(self, owner: str) -> TensorType:
        """`2x?1xf32`, or only the element type, or `2x?1, f32` as the specification's heading has it."""
        kind, text, start = self.tokens[self.at]
        if kind not in ("word", "number"):
            self.fail("a shape and element type such as 2x?1xf32")
        self.at += 1
        shape, cut, word = text.rpartition("x")
        if self.accept(","):
            shape, word = text, self.word("an element type").text
        elif not cut:
            return tensor(self.problems.dtype(word, start, SHORT_DTYPES), None)
        dims = parse_dims(shape, owner)
        if dims is None:
            raise self.problems.parse_error(f"'{shape}' is not a shape", start, start + max(1, len(shape)),
                                            expected="dimensions such as 2x?1 ('?' for an unknown one)")
        return tensor(self.problems.dtype(word, start + text.rfind(word), SHORT_DTYPES), dims)

    # --- statements

    def statement_or_none(self) -> Instr | None:
        """The statement here, or None after noting what is wrong with it and going on to the end of its line."""
        try:
            return self.statement()
        except ParseError as e:
            self.problems.errors += e.diagnostics
            if self.problems.is_full:
                raise ParseError() from None
            while self.tokens[self.at][0] not in ("newline", "end") and self.tokens[self.at][1] != "}":
                self.at += 1
            return None

    def statement(self) -> Instr:
        op = self.word("an operation")
        inputs = self.actuals("(")
        has_arrow = self.accept("->") or self.accept("=>")
        outputs: tuple[Arg, ...] = ()
        if has_arrow:
            outputs = self.actuals("(") if self.tokens[self.at][1] == "(" else (self.actual(),)
        last = self.tokens[self.at - 1]
        end = last[2] + len(last[1])
        self.accept(";")
        if self.tokens[self.at][0] not in ("newline", "end") and self.tokens[self.at][1] != "}":
            self.fail("the end of the line")
        return Instr(op, None, inputs, outputs, op.start, end, has_arrow=has_arrow)

    def actuals(self, bracket: str) -> tuple[Arg, ...]:
        """Operands between brackets; they may go over several lines."""
        close = ")" if bracket == "(" else "]"
        self.expect(bracket)
        found: list[Arg] = []
        self.skip_newlines()
        while not self.accept(close):
            if found:
                self.expect(",", f"',' or '{close}'")
                self.skip_newlines()
            found.append(self.actual(bracket == "("))
            self.skip_newlines()
        return tuple(found)

    def actual(self, may_nest: bool = True) -> Arg:
        kind, text, start = self.tokens[self.at]
        if text == "[" and may_nest:
            items = self.actuals("[")
            end = self.tokens[self.at - 1][2] + 1
            return Arg(self.problems.source.text[start:end], start, end, items=items)
        if kind not in ("word", "number"):
            self.fail("a name, number or [list]")
        self.at += 1
        return Arg(text, start, start + len(text))


def element_type(word: str) -> DType | None:
    """The element type that a word of dialect F names, or None."""
    return SHORT_DTYPES.get(word)
