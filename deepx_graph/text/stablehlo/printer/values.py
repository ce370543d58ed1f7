"""Types and constants as MLIR text.

Every constant reads back to the same bits: floats are written in decimal only where that is exact, otherwise as their bits; large
tensors are hexadecimal blobs, bools never, as MLIR has changed how it packs those. Nothing here knows an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from deepx_graph.literal import Array, Literal
from deepx_graph.text.stablehlo.reader.scanner import MLIR_DTYPES
from deepx_graph.text.xla.mlir_text import NoText, float_text
from deepx_graph.types import ANY, DType, StateType, TensorType, TupleType, Type

LONGEST_LIST = 64
"""Tensors with more elements than this are written as blobs."""

_WORDS = {dtype: word for word, dtype in reversed(MLIR_DTYPES.items())}


@lru_cache(maxsize=65536)
def type_text(type: Type) -> str:
    """`tensor<2x3xf32>`, `tuple<...>`, `!stablehlo.token`. Raises NoText for another type and for an unknown dtype or rank."""
    match type:
        case TensorType(dtype, dims) if dims is not None and dtype is not ANY:
            return f"tensor<{''.join(f'{d}x' if isinstance(d, int) else '?x' for d in dims)}{_WORDS[dtype]}>"
        case TupleType(items):
            return f"tuple<{', '.join(map(type_text, items))}>"
        case StateType():
            return "!stablehlo.token"
    hint = "give the inputs' types first" if isinstance(type, TensorType) else None
    raise NoText(f"StableHLO has no values of type {type}", hint)


# --- constants ----------------------------------------------------------------------------------------------------


def dense_text(literal: Literal) -> str:
    """`dense<...>`, without its type."""
    array = literal.array
    if array.size == 0:
        return "dense<>"
    splat = literal.splat_value
    if splat is not None:
        return f"dense<{_element(splat, literal.dtype)}>"
    if array.size > LONGEST_LIST and literal.dtype.kind != "bool":
        return f'dense<"0x{_bytes(array, literal.dtype).hex().upper()}">'
    return f"dense<{_nested([_element(x, literal.dtype) for x in array.reshape(-1)], array.shape)}>"


def _bytes(array: Array, dtype: DType) -> bytes:
    if dtype.bits < 8:
        array = array.astype(np.int8)
    return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _nested(words: list[str], shape: Sequence[int]) -> str:
    """The words in brackets of that shape; the innermost dimension is joined first."""
    for size in reversed(shape):
        words = [f"[{', '.join(words[k : k + size])}]" for k in range(0, len(words), size)]
    return words[0]


def _element(value: Any, dtype: DType) -> str:
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))
    if dtype.kind == "complex":
        return f"({float_text(value.real)}, {float_text(value.imag)})"
    return float_text(value)
