"""Kernels as machine code, and how wide its vectors are.

`loop_program`, `gemm`, `convolution` and `whole_program` write it, `llvm` compiles it, `trampoline` enters it. Only our own names
and numbers ever stand in the IR: no text of an input file reaches it. Needs llvmlite, but for this file.

Vectors are as wide as the machine has them, unless less is asked for: by the environment, for all of a process, or within a `with`
statement.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from deepx_graph.errors import Diagnostic, UsageError

WIDTHS = (128, 256, 512)
VARIABLE = "DEEPX_GRAPH_VECTOR_BITS"

_asked: ContextVar[int | None] = ContextVar("vector_bits", default=None)


def asked() -> int | None:
    """The width asked for; None for the widest. Raises UsageError where the environment asks for one that there is not."""
    bits = _asked.get()
    if bits is not None:
        return bits
    text = os.environ.get(VARIABLE, "")
    return _checked(text, f"{VARIABLE} is") if text else None


@contextmanager
def vectors(bits: int | None) -> Iterator[None]:
    """Machine code made inside has vectors of so many bits; None changes nothing. Raises UsageError for no width at all."""
    token = _asked.set(_asked.get() if bits is None else _checked(bits, "vector_bits is"))
    try:
        yield
    finally:
        _asked.reset(token)


def _checked(given: int | str, what: str) -> int:
    known = {str(bits): bits for bits in WIDTHS}
    if str(given) not in known:
        raise UsageError(Diagnostic(f"{what} '{given}'", expected=" | ".join(known)))
    return known[str(given)]
