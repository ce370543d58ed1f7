"""ONNX models in the text syntax of the standard (`.onnxtxt`): the same messages, and so the same lowering, as of a binary file."""

from __future__ import annotations

import re
from dataclasses import replace

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text.common.options import ReadOptions, ReadResult

__all__ = ["detect", "read", "write"]

_HEAD = re.compile(r"(?:\s|#[^\n]*\n)*<[^<>]*?\bir_version\s*:")


def detect(text: str) -> float:
    """Certain where a text begins with the header of a model."""
    return 1.0 if _HEAD.match(text) else 0.0


def read(source: Source, options: ReadOptions) -> ReadResult:
    """The program. Raises ParseError or VerifyError with places, LimitError where a bound is exceeded."""
    from deepx_graph.text.onnx import read

    found = read(source, options)
    return replace(found, module=replace(found.module, format="onnxtxt"))


def write(module: Module, *, opset: int | str | None = None) -> str:
    """The text of a model. Raises VerifyError at the nodes that ONNX cannot express, UsageError for another operator set."""
    from deepx_graph.text.onnx.printer.model import model_of
    from deepx_graph.text.onnx.printer.values import field_numbers
    from deepx_graph.text.onnx.syntax.printer import OnnxTextPrinter

    source = module.source or Source("model")
    return OnnxTextPrinter(lambda data: field_numbers(data, source)).model(model_of(module, opset))
