"""ONNX: the binary form of models (`.onnx`), every version of its operators.

A model is lowered node by node into one function; functions of the model and branches become part of it. What depends on shapes or
values that the model leaves to its inputs is deferred until these are known.
"""

from __future__ import annotations

import re

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text.common.options import ReadOptions, ReadResult

__all__ = ["beginning", "detect", "looks_like_model", "read", "write"]

_HEAD = re.compile(rb"\x08[\x01-\x1f](?:\x12(?![\x80-\xff]{0,4}[\x00-\x7f]\n)|[\x1a\x22\x32\x3a\x42]|\x28.)", re.DOTALL)
"""The producer is a word; a message there is one of Core ML or of a SavedModel."""


def looks_like_model(head: bytes) -> bool:
    """Whether a file begins as a model does: field 1, a small version; then its producer, domain, graph or operator sets."""
    return _HEAD.match(head) is not None


def detect(text: str) -> float:
    """No text is ONNX: its form is binary."""
    return 0.0


def read(source: Source, options: ReadOptions) -> ReadResult:
    """The program. Raises ParseError or VerifyError with places, LimitError where a bound is exceeded."""
    from deepx_graph.text.onnx.model import OnnxLowering

    lowering = OnnxLowering(source, options)
    return ReadResult(lowering.module(), tuple(lowering.warnings))


def beginning(source: Source, operators: int) -> bytes | None:
    """A model of a graph's first operators, to be seen while a large one is read; None for a small one. Raises ParseError."""
    from deepx_graph.text.onnx.messages import beginning_in

    return beginning_in(source, operators)


def write(module: Module, *, opset: int | str | None = None) -> bytes:
    """The bytes of a model. Raises VerifyError at the nodes that ONNX cannot express, UsageError for another operator set."""
    from deepx_graph.text.onnx.printer.model import write

    return write(module, opset=opset)
