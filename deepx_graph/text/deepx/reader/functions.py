"""The parser of dialect F: `func f(a: tensor<?1x3xf32>, axis: i32) -> (out: tensor<?1xf32>) { sum(a, axis)-> out }`.

Recursive descent over a token list without recursion that a text could deepen: brackets of a type nest at most
`options.max_depth` deep. A statement that cannot be read is one Diagnostic and reading goes on at the next line; a broken
function header ends the file. Gives the same records as the line dialects.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn, TypeVar

from deepx_graph.errors import ParseError
from deepx_graph.text.common.cursor import Token, TokenCursor
from deepx_graph.text.deepx.reader.instr import SHORT_DTYPES, Arg, Formal, FunctionText, Instr, Problems
from deepx_graph.types import ANY, Dim, TensorType, tensor

KEYWORDS = ("deepxir", "function", "func", "def")

_TOKEN = re.compile(
    r"(?P<skip>[ \t\r]+|//[^\n]*)|(?P<newline>\n)|(?P<arrow>->|=>)|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w?.]))"
    r"|(?P<word>[\w.?]+)|(?P<mark>[(){}\[\]<>|,:;])|(?P<other>.)"
)
_MAX_DIM_DIGITS = 18
T = TypeVar("T")


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
        for line in re.finditer(r"[^\n]+", problems.source.text):
            problems.check_length(*line.span())
        parser = _Parser(problems, max_depth)
        while parser.skip_newlines() and not problems.is_full:
            found.append(parser.function())
    except ParseError as e:
        problems.errors += e.diagnostics
    return tuple(found)


class _Parser(TokenCursor):
    """Parses functions. Newlines are tokens."""

    def __init__(self, problems: Problems, max_depth: int) -> None:
        text = problems.source.text
        tokens = [Token(m.lastgroup or "", m[0], *m.span()) for m in _TOKEN.finditer(text) if m.lastgroup != "skip"]
        super().__init__(problems.source, [*tokens, Token("end", "", len(text), len(text))], max_depth)
        self.problems = problems

    # --- tokens

    def mismatch(self, expected: str) -> NoReturn:
        found = {"end": "the file ends", "newline": "the line ends"}.get(self.next.kind, f"unexpected '{self.next.text[:40]}'")
        self.fail(found, expected=expected)

    def items(self, close: str, item: Callable[[], T]) -> list[T]:
        """Passes items on one or several lines up to `close`, and that."""
        found: list[T] = []
        self.skip_newlines()
        while not self.accept(close):
            if found:
                self.expect(",", f"or '{close}'")
                self.skip_newlines()
            found.append(item())
            self.skip_newlines()
        return found

    def skip_newlines(self) -> bool:
        """Go to the next token that is not a newline; whether there is one."""
        while self.next.kind == "newline":
            self.at += 1
        return self.next.kind != "end"

    @property
    def ends_line(self) -> bool:
        """Whether the statement ends here: with its line, the text or the body."""
        return self.next.kind in ("newline", "end") or self.peek("}")

    def word(self, what: str) -> Arg:
        """Passes a name. Raises ParseError."""
        if self.next.kind != "word" or not (self.next.text[0].isalpha() or self.next.text[0] == "_"):
            self.mismatch(what)
        return Arg(*self.advance()[1:])

    # --- functions

    def function(self) -> FunctionText:
        if self.next.text not in KEYWORDS:
            self.mismatch(f"a function: {' or '.join(KEYWORDS)}")
        self.advance()
        name = self.word("the function's name")
        params = self.formals()
        self.skip_newlines()
        self.expect("->", "and the results")
        self.skip_newlines()
        results = self.formals()
        self.skip_newlines()
        self.expect("{", "and the body")
        body: list[Instr] = []
        while self.skip_newlines() and not self.accept("}"):
            instr = self.statement_or_none()
            if instr is not None:
                body.append(instr)
        if self.last.text != "}":
            self.fail(f"the body of '{name.text}' is not closed", expected="'}' to end the function")
        return FunctionText(name, params, results, tuple(body))

    def formals(self) -> tuple[Formal, ...]:
        self.expect("(", "and the parameters")
        return tuple(self.items(")", self.formal))

    def formal(self) -> Formal:
        name = self.word("a parameter's name")
        self.expect(":", f"and the type of '{name.text}'")
        return Formal(name, *self.type(name.text, 0))

    def type(self, owner: str, depth: int) -> tuple[str, TensorType]:
        """A type with its alternatives; those that differ leave the element type open."""
        if depth > self.max_depth:
            self.fail("types nest too deeply", expected=f"nesting of at most {self.max_depth}")
        kind, found = self.one_type(owner, depth)
        while self.accept("|"):
            other_kind, other = self.one_type(owner, depth)
            if other_kind != kind:
                self.mismatch(f"another {kind} type")
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
        self.expect(">", "to end the type")
        return "tensor", type

    def tensor_content(self, owner: str) -> TensorType:
        """`2x?1xf32`, or only the element type, or `2x?1, f32` as the specification's heading has it."""
        if self.next.kind not in ("word", "number"):
            self.mismatch("a shape and element type such as 2x?1xf32")
        _, text, start, _ = self.advance()
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
            while not self.ends_line:
                self.at += 1
            return None

    def statement(self) -> Instr:
        op = self.word("an operation")
        inputs = self.actuals("(")
        has_arrow = self.accept("->") or self.accept("=>")
        outputs: tuple[Arg, ...] = ()
        if has_arrow:
            outputs = self.actuals("(") if self.peek("(") else (self.actual(),)
        end = self.last.end
        self.accept(";")
        if not self.ends_line:
            self.mismatch("the end of the line")
        return Instr(op, None, inputs, outputs, op.start, end, has_arrow=has_arrow)

    def actuals(self, bracket: str) -> tuple[Arg, ...]:
        """Operands between brackets; they may go over several lines."""
        close = ")" if bracket == "(" else "]"
        self.expect(bracket)
        return tuple(self.items(close, lambda: self.actual(bracket == "(")))

    def actual(self, may_nest: bool = True) -> Arg:
        start = self.next.start
        if self.peek("[") and may_nest:
            items = self.actuals("[")
            return Arg(self.text[start : self.last.end], start, self.last.end, items=items)
        if self.next.kind not in ("word", "number"):
            self.mismatch("a name, number or [list]")
        return Arg(*self.advance()[1:])
