"""XLA HLO text: written as XLA's parser takes it; read as any printer of XLA's writes it, long or short, layouts or none."""

from __future__ import annotations

import re

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text.common.options import ReadOptions, ReadResult

__all__ = ["detect", "read", "write"]

_COMPUTATION = re.compile(r"^\s*(ENTRY\s+)?%?[\w.\-]+\s*(\([^)]*\)\s*->\s*[^{]+)?\{\s*$", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s*(ROOT\s+)?%?[\w.\-]+\s*=\s*\(?\s*[a-z]\w*\[[\d,<=\s?]*\]", re.MULTILINE)


def detect(text: str) -> float:
    """How likely the text is HLO: 0 to 1."""
    if re.search(r"^\s*HloModule\s", text, re.MULTILINE):
        return 1.0
    return 0.7 if _COMPUTATION.search(text) and _INSTRUCTION.search(text) else 0.0


def read(source: Source, options: ReadOptions) -> ReadResult:
    """The program. Raises ParseError or VerifyError with spans, LimitError where a bound is exceeded."""
    from deepx_graph.text.hlo.reader.lower import HloLowering
    from deepx_graph.text.hlo.reader.parser import HloParser

    program = HloParser(source, options.max_nodes).program()
    lowering = HloLowering(program)
    return ReadResult(lowering.module(), tuple(lowering.warnings))


def write(module: Module) -> str:
    """The text of a module. Raises VerifyError for a node that HLO cannot express."""
    from deepx_graph.text.hlo.printer.module import write as write_module

    return write_module(module)
