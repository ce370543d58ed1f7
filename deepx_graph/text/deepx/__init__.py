"""deepx IR: all its dialects, from the seed's `add@float32 t1 t2->t3` to the function form."""

from __future__ import annotations

import re

from deepx_graph.cycles import no_collection
from deepx_graph.errors import Diagnostic, ParseError, Source
from deepx_graph.ir import Module
from deepx_graph.text.common.options import ReadOptions, ReadResult

_LOOKED_AT = 40
_LINE = 1 << 10
"""Letters of a line of which the beginning of a program is made."""

_HEAD = re.compile(r"[ \t]*([A-Za-z_]\w*)(@\w+)?(?=[\s(])")
_FUNCTION_FORM = re.compile(r"(?:\s*+//[^\n]*+)*+\s*+(?:deepxir|function|func|def)[ \t]+[A-Za-z_][\w.]*[ \t]*\([^%\n]*+(?:\n|\Z)")
"""The first line that says something begins a function. Signs that MLIR or Relay put in a header are not deepx's."""


_WRITTEN = re.compile(r"(?:->|=>)[ \t]*\(?[ \t]*(?:\w+(?:<[^<>]*>)?[ \t]*:[ \t]*)?([A-Za-z_]\w*)")
"""The first variable that a line writes."""


def detect(text: str) -> float:
    """The likelihood that the text is deepx, 0 to 1: the share of its first lines that begin with a deepx operation."""
    lines = [line for line in text[: 1 << 16].split("\n") if line.strip() and not line.lstrip().startswith("//")][:_LOOKED_AT]
    if not lines:
        return 0.0
    if _FUNCTION_FORM.match(text):
        return 0.9
    hits = 0.0
    for line in lines:
        head = _HEAD.match(line)
        code = line.split("//")[0]
        if head is not None and "=" not in code and "%" not in code:  # those of other languages that look like ours
            arrow = "->" in line or "<-" in line or head[2] is not None
            known = _is_operation(head[1])
            hits += 1.0 if arrow and known else 0.7 if known else 0.4 if arrow else 0.0
    return hits / len(lines)


def _is_operation(name: str) -> bool:
    from deepx_graph.text.deepx.reader.rules import rule_named  # only for a text that looks like deepx

    return rule_named(name) is not None


@no_collection()
def read(source: Source, options: ReadOptions) -> ReadResult:
    """The module of a deepx text in any dialect.

    Raises ParseError when lines are not instructions, VerifyError when instructions do not fit together (both with every problem
    found), LimitError where a bound is exceeded.
    """
    from deepx_graph.text.deepx.reader.functions import parse_functions
    from deepx_graph.text.deepx.reader.instr import Problems
    from deepx_graph.text.deepx.reader.lines import parse_lines
    from deepx_graph.text.deepx.reader.lower import finish, lower_functions, lower_program

    problems = Problems(source)
    if _FUNCTION_FORM.match(source.text):
        functions = parse_functions(problems, options.max_depth)
        finish(problems, ParseError)
        module = lower_functions(problems, options, functions)
    else:
        body = parse_lines(problems)
        if not body and not problems.errors:
            raise ParseError(Diagnostic(f"{source.name} holds no instruction", expected="op@T inputs -> result"))
        module = lower_program(problems, options, body)
    return ReadResult(module, tuple(problems.warnings))


def beginning(text: str, instructions: int) -> str | None:
    """A program of the first lines, of a function of its first statements, to be seen while a large one is read; None for a small
    one."""
    start = text.find("{") + 1 if _FUNCTION_FORM.match(text) else 0
    lines = text[start : start + instructions * _LINE].split("\n")[:instructions]
    if len(lines) < instructions or any("}" in line for line in lines):
        return None
    if not start:
        return "\n".join([*lines, ""])
    written = next((m[1] for m in map(_WRITTEN.search, reversed(lines)) if m), None)
    head, arrow, _ = text[: start - 1].rpartition("->")
    return "\n".join([f"{head}-> ({written}: tensor) {{", *lines, "}", ""]) if arrow and written else None


def write(module: Module, dialect: str | None = None) -> str:
    """The module as deepx text. Raises VerifyError for what the dialect cannot express, UsageError for an unknown dialect."""
    from deepx_graph.text.deepx.printer.module import write as write_dialect

    return write_dialect(module, dialect)

