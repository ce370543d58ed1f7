"""StableHLO as MLIR text, pretty or generic, with CHLO, `func` and `check`; read and written without MLIR."""

from __future__ import annotations

import re

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text.common.options import ReadOptions, ReadResult

__all__ = ["detect", "read", "write"]

_DIALECT = re.compile(r"\b(stablehlo|chlo|mhlo)\.[a-z_]+|\bfunc\.func\b")


def detect(text: str) -> float:
    """How likely the text is StableHLO: 0 to 1."""
    return 0.95 if _DIALECT.search(text) else 0.0


def read(source: Source, options: ReadOptions) -> ReadResult:
    """The program. Raises ParseError or VerifyError with spans, LimitError where a bound is exceeded."""
    from deepx_graph.text.stablehlo.reader.lower import MlirLowering
    from deepx_graph.text.stablehlo.reader.parser import MlirParser

    parser = MlirParser(source, options.max_nodes)
    functions = parser.program()
    lowering = MlirLowering(source, functions, parser.aliases, parser.module)
    return ReadResult(lowering.module(), tuple(lowering.kept.values()))


def write(module: Module) -> str:
    """The module's text. Raises VerifyError with every node that StableHLO cannot express."""
    from deepx_graph.text.stablehlo.printer.module import write as write_module

    return write_module(module)
