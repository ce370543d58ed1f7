"""Programs of `torch.export` (`.pt2`), of torch 2.1 to 2.13: read without torch, and without unpickling anything.

The graph is lowered call by call into one function. What depends on sizes or values that the program leaves to its inputs is
deferred until these are known.
"""

from __future__ import annotations

import re

from deepx_graph.errors import Source
from deepx_graph.text.common.options import ReadOptions, ReadResult

__all__ = ["detect", "looks_like_program", "read"]

_HEAD = re.compile(
    rb"PK\x03\x04.{26}(?:[^/\x00]{1,200}/)?"
    rb"(?:archive_format|archive_version|version|serialized_exported_program|data/(?:weights|constants|sample_inputs|aotinductor)/|models/)",
    re.DOTALL)  # fmt: skip


def looks_like_program(head: bytes) -> bool:
    """Whether a file begins as an archive of torch.export does: with one of its own files."""
    return _HEAD.match(head) is not None


def detect(text: str) -> float:
    """No text is such a program: it is an archive."""
    return 0.0


def read(source: Source, options: ReadOptions) -> ReadResult:
    """The program. Raises ParseError or VerifyError with places, LimitError where a bound is exceeded."""
    from deepx_graph.text.torch.program import lowering_of

    lowering = lowering_of(source, options)
    return ReadResult(lowering.module(), tuple(lowering.warnings))
