"""The sea form: our own text, exact and readable. What is written reads back as a structurally identical module.

Modules pickle in this form.
"""

import copyreg

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text.sea.printer import write
from deepx_graph.text.sea.reader import detect, read

__all__ = ["detect", "read", "write"]


def _module(text: str) -> Module:
    return read(Source("<pickled>", text)).module


copyreg.pickle(Module, lambda module: (_module, (write(module),)))
