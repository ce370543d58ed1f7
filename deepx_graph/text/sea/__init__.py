"""The sea form: our own text, exact and readable. What is written reads back as a structurally identical module."""

from __future__ import annotations

import re

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text.common.options import ReadOptions, ReadResult

__all__ = ["detect", "read", "write"]

_HEADER = re.compile(r"(?:\s|//[^\n]*)*+sea[ \t]+\d")


def detect(text: str) -> float:
    """Whether the text is of this form: it says so in its first word."""
    return 1.0 if _HEADER.match(text) else 0.0


def read(source: Source, options: ReadOptions | None = None) -> ReadResult:
    """The module that the text describes. Raises ParseError, VerifyError (types, arity, attributes), LimitError."""
    from deepx_graph.text.sea.reader import SeaReader

    return ReadResult(SeaReader(source, options or ReadOptions()).module())


def write(module: Module) -> str:
    """The text of the module. Raises UsageError for an attribute value that has no text form, naming the node."""
    from deepx_graph.text.sea.printer import write as write_module

    return write_module(module)
