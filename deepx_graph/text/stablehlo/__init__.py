"""StableHLO as MLIR text, pretty or generic, with CHLO, `func` and `check`, and as MLIR bytecode; read and written without MLIR."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text.common.options import ReadOptions, ReadResult

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.syntax import ParsedProgram

__all__ = ["detect", "is_binary", "read", "write"]

_DIALECT = re.compile(r"\b(stablehlo|chlo|mhlo)\.[a-z_]+|\bfunc\.func\b")


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
