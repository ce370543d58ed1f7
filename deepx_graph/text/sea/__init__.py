"""The sea form: our own text, exact and readable. What is written reads back as a structurally identical module."""

from deepx_graph.text.sea.printer import write
from deepx_graph.text.sea.reader import detect, read

__all__ = ["detect", "read", "write"]
