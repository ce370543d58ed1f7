"""The operators of ONNX in terms of ours, by kind. Each is stated once, with the versions since which a rule holds.

Semantics: onnx/docs/Operators.md and Changelog.md of ONNX 1.23 (operator set 28).
"""

from __future__ import annotations

from deepx_graph.text.onnx.context import Rule, Rules
from deepx_graph.text.onnx.rules.attention import ATTENTION, PREVIEW
from deepx_graph.text.onnx.rules.control import CONTROL
from deepx_graph.text.onnx.rules.domains.fused import FUSED, UNLISTED
from deepx_graph.text.onnx.rules.domains.learned import LEARNED
from deepx_graph.text.onnx.rules.domains.trees import TREES
from deepx_graph.text.onnx.rules.elementwise import ELEMENTWISE
from deepx_graph.text.onnx.rules.image import IMAGE
from deepx_graph.text.onnx.rules.index import INDEX
from deepx_graph.text.onnx.rules.linear import LINEAR
from deepx_graph.text.onnx.rules.norm import NORM
from deepx_graph.text.onnx.rules.quantize import QUANTIZE
from deepx_graph.text.onnx.rules.random import RANDOM
from deepx_graph.text.onnx.rules.recurrent import RECURRENT
from deepx_graph.text.onnx.rules.reduce import REDUCE
from deepx_graph.text.onnx.rules.sequence import SEQUENCE
from deepx_graph.text.onnx.rules.shape import SHAPE
from deepx_graph.text.onnx.rules.signal import SIGNAL
from deepx_graph.text.onnx.rules.strings import LABELS, STRINGS
from deepx_graph.text.onnx.rules.training import LOSS, TRAINING
from deepx_graph.text.onnx.rules.window import WINDOW

_TABLES: dict[str, tuple[Rules, ...]] = {
    "": (ELEMENTWISE, REDUCE, SHAPE, INDEX, LINEAR, WINDOW, NORM, CONTROL, SEQUENCE, ATTENTION, IMAGE, LOSS, QUANTIZE, RANDOM,
         RECURRENT, SIGNAL, STRINGS, UNLISTED),
    "ai.onnx.ml": (LABELS, LEARNED, TREES), "com.microsoft": (FUSED,),
    "ai.onnx.preview": (PREVIEW,), "ai.onnx.preview.training": (TRAINING,),
}
"""The tables of each domain."""

RULES: dict[tuple[str, str], Rule | dict[int, Rule]] = {
    (domain, name): entry if callable(entry) else dict(entry)
    for domain, tables in _TABLES.items() for table in tables for name, entry in table.items()
}
"""The rules by domain and operator."""
