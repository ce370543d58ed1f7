"""Numbers as deepx texts write them, and their conversion to an element type as C casts do.

A literal keeps its full precision until the dtype of the tensor beside it is known: integers are exact, floats are doubles.
Conversion to an integer type truncates toward zero and wraps.
"""

from __future__ import annotations

import math
import re

from deepx_graph.errors import InferError
from deepx_graph.types import DType

Number = int | float
"""A literal; bools are the ints 0 and 1 in Python too."""

_INTEGER = re.compile(r"[+-]?\d{1,400}")
_FLOAT = re.compile(r"[+-]?(?:\d{1,400}\.?\d{0,400}|\.\d{1,400})(?:[eE][+-]?\d{1,6})?|[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_WORDS: dict[str, bool] = {"true": True, "false": False}


def parse_number(text: str) -> Number | None:
    """The number that the whole text is, or None."""
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else None


def parse_bool(text: str) -> bool | None:
    """True or False in any case of letters, or None."""
    return _WORDS.get(text.lower())


def cast(value: Number, dtype: DType) -> Number:
    """The number as an element of `dtype`, as a C cast gives it. Raises InferError for an infinity or NaN as an integer."""
    if dtype.kind == "bool":
        return bool(value)
    if not dtype.is_integer:
        return _as_float(value)
    if not math.isfinite(value):
        raise InferError(f"{value} as an element of type {dtype}", expected="a finite number")
    whole = int(value)
    half = 1 << (dtype.bits - 1) if dtype.kind == "int" else 0
    return (whole + half) % (1 << dtype.bits) - half


def _as_float(value: Number) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
