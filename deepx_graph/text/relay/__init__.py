"""Relay text of TVM: functional programs with closures, recursion, data types and references; read and written without TVM."""

from __future__ import annotations

import re

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text.common.options import ReadOptions, ReadResult

__all__ = ["detect", "read", "write"]

_SIGNS = re.compile(r"^\s*def @\w|^\s*(?:extern )?type [A-Za-z_]\w*(?:\[[^\]]*\])?\s*\{"
                    r"|\bTensor\[\(|\bfree_var %|/\* ty=", re.MULTILINE)
_VERSION = re.compile(r'(?:\s|//[^\n]*+|/\*.*?\*/)*+#\[version = "0\.0\.\d+"\]', re.DOTALL)
_EXPRESSION = re.compile(r"\s*(?:let %\w+(?:\s*:[^=]+)?\s*=|%\d+ = [\w.]+\(|fn\s*(?:\[\w+\])?\s*\(%)")


def detect(text: str) -> float:
    """How likely the text is Relay: 0 to 1."""
    if _VERSION.match(text):
        return 1.0
    return 0.9 if _SIGNS.search(text) else 0.6 if _EXPRESSION.match(text) else 0.0


def read(source: Source, options: ReadOptions) -> ReadResult:
    """The program. Raises ParseError or VerifyError with spans, LimitError where a bound is exceeded."""
    from deepx_graph.text.relay.reader.infer import Inference
    from deepx_graph.text.relay.reader.lower import Lowering
    from deepx_graph.text.relay.reader.parser import parse

    inference = Inference(source, parse(source, options))
    inference.run()
    return ReadResult(Lowering(inference, options.max_nodes).module(), tuple(inference.warnings))


def write(module: Module) -> str:
    """The text of the module. Raises VerifyError with what Relay cannot express, naming the nodes."""
    from deepx_graph.text.relay.printer.module import write as write_module

    return write_module(module)
