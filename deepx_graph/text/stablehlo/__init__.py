"""StableHLO as MLIR text, pretty or generic, with CHLO, `func` and `check`, and as MLIR bytecode; read and written without MLIR."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text.common.options import ReadOptions, ReadResult

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.syntax import ParsedProgram

__all__ = ["beginning", "detect", "is_binary", "read", "write"]

_DIALECT = re.compile(r"\b(stablehlo|chlo|mhlo)\.[a-z_]+|\bfunc\.func\b")

_MAIN = re.compile(r"^[^\S\n]*func\.func\s+(?:public\s+)?@main(\(.*)\{[^\S\n]*\n", re.MULTILINE)
_GIVES = re.compile(r"\s*(%[\w.$-]+)\s*=.*?(tensor<[^<>]*>)\s*$")
_LOCATION = re.compile(r"[^\S\n]*\bloc\((?:\"[^\"\n]*\"|[^()\"\n]|\((?:\"[^\"\n]*\"|[^()\"\n])*\))*\)")
_CALL = re.compile(r"\bcall\s+@([\w.$-]+)")
_TOKEN = re.compile(r'"[^"]*"|[(){}]')

LINE = 1000
"""Letters of a line, on average, that are looked at."""

BEFORE = 1 << 18
"""Letters before `main` that are read again."""


def is_bytecode(head: bytes) -> bool:
    """Whether a file that begins like this is MLIR bytecode."""
    return head[:4] == b"ML\xefR"


def is_binary(head: bytes) -> bool:
    """Whether a file that begins like this is MLIR bytecode, or one of jax.export, which has some."""
    if is_bytecode(head):
        return True
    if head[1:4] != b"\0\0\0":  # where the root of a FlatBuffer is
        return False
    from deepx_graph.text.stablehlo.bytecode.exported import is_exported

    return is_exported(head)


def detect(text: str) -> float:
    """How likely the text is StableHLO: 0 to 1."""
    return 0.95 if _DIALECT.search(text) else 0.0


def read(source: Source, options: ReadOptions) -> ReadResult:
    """The program. Raises ParseError or VerifyError with spans, LimitError where a bound is exceeded."""
    if source.data is not None and not is_bytecode(bytes(source.data[:4])):
        from deepx_graph.text.stablehlo.bytecode.exported import read_exported

        return read_exported(source, options)
    from deepx_graph.text.stablehlo.reader.lower import MlirLowering

    lowering = MlirLowering(source, parsed(source, options))
    return ReadResult(lowering.module(), tuple(lowering.kept.values()))


def parsed(source: Source, options: ReadOptions) -> ParsedProgram:
    """The syntax tree of a text or of bytecode. Raises ParseError, LimitError."""
    if source.binary:
        from deepx_graph.text.stablehlo.bytecode.operations import parse

        return parse(source, options)
    from deepx_graph.text.stablehlo.reader.parser import MlirParser

    return MlirParser(source, options.max_nodes, options.unregistered).program()


def write(module: Module) -> str:
    """The module's text. Raises VerifyError with every node that StableHLO cannot express."""
    from deepx_graph.text.stablehlo.printer.module import write as write_module

    return write_module(module)


def beginning(text: str, operations: int) -> str | None:
    """A program of the first operations of `main`, to be seen while a large one is read; None for a small one.

    What is before `main` is kept, and the functions that its first lines call; it ends behind an operation on one line, of one
    tensor, which is what it gives. Locations of operations are left out, as their names are defined at the end of a text.
    """
    main = _MAIN.search(text)
    if main is None or main.start() > BEFORE:
        return None
    lines = [_LOCATION.sub("", line) for line in text[main.end() : main.end() + operations * LINE].split("\n")[:operations]]
    cut, depth = 0, 0
    for k, line in enumerate(lines):
        depth += _opened(line)
        if depth < 0:
            return None
        cut = k + 1 if depth == 0 and _GIVES.match(line) else cut
    last = _GIVES.match(lines[cut - 1]) if cut else None
    if last is None or len(lines) < operations:
        return None
    head = f"func.func public @main{_operands(main[1])} -> {last[2]} {{"
    body = [head, *lines[:cut], f"return {last[1]} : {last[2]}", "}"]
    return "\n".join([text[: main.start()], *body, *_called(text, lines[:cut]), "}", ""])


def _opened(line: str) -> int:
    """How many braces a line opens and does not close."""
    found = _TOKEN.findall(line)
    return found.count("{") - found.count("}")


def _operands(signature: str) -> str:
    """The parameters, which a signature begins with, in their parentheses."""
    depth = 0
    for token in _TOKEN.finditer(signature):
        depth += (token[0] == "(") - (token[0] == ")")
        if depth == 0 and token[0] == ")":
            return signature[: token.end()]
    return signature


def _called(text: str, lines: list[str]) -> list[str]:
    """The functions that lines call, and those that these call."""
    found: dict[str, str] = {}
    waiting = list(lines)
    while waiting:
        for name in _CALL.findall(waiting.pop()):
            if name not in found:
                head = rf"^([^\S\n]*)func\.func private @{re.escape(name)}\("
                function = re.search(head + r".*?^\1\}", text, re.MULTILINE | re.DOTALL)
                found[name] = _LOCATION.sub("", function[0]) if function else ""
                waiting.append(found[name])
    return list(found.values())
