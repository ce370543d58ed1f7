"""The messages of a model, whatever a source has them in: the wire format, or the text syntax of the standard."""

from __future__ import annotations

from deepx_graph.errors import Source
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.common.protobuf import Decoder
from deepx_graph.text.onnx.schema import SCHEMA, ModelProto

FORMS = ("onnx", "onnxtxt")
"""The formats of modules that come from a model: binary, and in the text syntax."""


def model_in(source: Source, options: ReadOptions) -> ModelProto:
    """The model that a source holds. Raises ParseError, LimitError."""
    if source.data is not None:
        return Decoder(source, SCHEMA, options).whole(ModelProto)
    from deepx_graph.text.onnx.syntax.parser import OnnxTextParser

    return OnnxTextParser(source, options).model()
