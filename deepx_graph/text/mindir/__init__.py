"""MindSpore MindIR: the binary `.mindir` (protobuf) and, to look at, the `.ir` dumps of its compiler. Read, not written.

The same lowering serves both: func graphs become functions, closures get what they use of their surroundings as captured arguments,
`Switch` becomes a branch, monads become the state of effects where there are any.
"""

from __future__ import annotations

import re

from deepx_graph.errors import Source
from deepx_graph.text.common.options import ReadOptions, ReadResult

__all__ = ["detect", "looks_like_model", "read"]

_DUMP = re.compile(r"^# ?IR entry *: @|^subgraph @\S+.*\{$", re.MULTILINE)


def looks_like_model(head: bytes) -> bool:
    """Whether a file begins as MindSpore's models do: field 1, a short version, then the name of the producer."""
    return head[:1] == b"\x0a" and 0 < len(head) > 2 and head[1] < 32 and b"MindSpore" in head[:96]


def detect(text: str) -> float:
    """How likely the text is a dump of MindSpore's compiler: 0 to 1."""
    return 0.95 if _DUMP.search(text) else 0.0


def read(source: Source, options: ReadOptions) -> ReadResult:
    """The program. Raises ParseError or VerifyError with places, LimitError where a bound is exceeded."""
    from deepx_graph.text.mindir.dump import parse_dump
    from deepx_graph.text.mindir.lower import ModelLowering
    from deepx_graph.text.mindir.schema import decode_model

    model = decode_model(source, options) if source.binary else parse_dump(source, options)
    lowering = ModelLowering(source, model, options)
    return ReadResult(lowering.module(), tuple(lowering.warnings))
