"""Element types, types and constants of MLIR text, read and written.

Every constant is written such that it reads back to the same bits: floats in decimal only where that is exact, otherwise as their
bits; large tensors as hexadecimal blobs, bools never, as MLIR has changed how it packs those.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from deepx_graph.literal import Array, Literal
from deepx_graph.text.stablehlo.syntax import Dense
from deepx_graph.text.xla.hlo_text import AttributeFault
from deepx_graph.text.xla.literals import LiteralSyntax
from deepx_graph.text.xla.mlir_text import NoText, float_text
from deepx_graph.types import ANY, DTYPES, I64, DType, StateType, TensorType, TupleType, Type


def _dtype_words(dtype: DType) -> tuple[str, ...]:
    """What MLIR calls an element type, the usual word first."""
    match dtype.kind:
        case "bool":
            return ("i1",)
        case "int":
            return dtype.name, f"s{dtype.name}"
        case "uint":
            return (f"ui{dtype.bits}",)
        case "complex":
            return (f"complex<f{dtype.bits // 2}>",)
        case _:
            return (dtype.name[:2] + dtype.name[2:].upper(),)  # f8E4M3FN


MLIR_DTYPES: dict[str, DType] = {word: d for d in DTYPES if d is not ANY for word in _dtype_words(d)} | {"index": I64}
"""MLIR's names of the element types."""

MLIR_WORDS = {dtype: word for word, dtype in reversed(MLIR_DTYPES.items())}
"""The first of these names of each."""


@lru_cache(maxsize=65536)
def type_text(type: Type) -> str:
    """`tensor<2x3xf32>`, `tuple<...>`, `!stablehlo.token`. Raises NoText for another type and for an unknown dtype or rank."""
    match type:
        case TensorType(dtype, _) if dtype is not ANY and dtype not in MLIR_WORDS:
            raise NoText(f"StableHLO has no elements of type {dtype}")
        case TensorType(dtype, dims) if dims is not None and dtype is not ANY:
            return f"tensor<{''.join(f'{d}x' if isinstance(d, int) else '?x' for d in dims)}{MLIR_WORDS[dtype]}>"
        case TupleType(items):
            return f"tuple<{', '.join(map(type_text, items))}>"
        case StateType():
            return "!stablehlo.token"
    hint = "give the inputs' types first" if isinstance(type, TensorType) else None
    raise NoText(f"StableHLO has no values of type {type}", hint)


# --- constants ------------------------------------------------------------------------------------------------------

_HEX = re.compile(r"-?0x[0-9A-Fa-f]+")
_SYNTAX = LiteralSyntax("[]", "brackets", lambda word, dtype: int(word, 16) if _HEX.fullmatch(word) else None, strict=False)


def dense_value(dense: Dense, type: TensorType) -> Literal:
    """The constant of a static type that an attribute holds. Raises AttributeFault."""
    return parse_dense(dense.text, type) if dense.raw is None else parse_blob(dense.raw, type)


def parse_dense(text: str, type: TensorType) -> Literal:
    """The same from its text: nested lists, one value for all, or a blob."""
    if not text.startswith('"'):
        return _SYNTAX.parse(text, type)
    try:
        raw = bytes.fromhex(text.strip('"').removeprefix("0x"))
    except ValueError:
        raise AttributeFault("the string is not hexadecimal", "two digits for each byte") from None
    return parse_blob(raw, type)


def parse_blob(raw: bytes | memoryview, type: TensorType) -> Literal:
    """Raw little-endian bytes, those of one element for all; bools are packed eight to a byte unless they fill a byte each."""
    dtype = type.dtype
    stored = np.dtype(dtype.np if dtype.bits >= 8 else np.int8 if dtype.kind == "int" else np.uint8)
    if dtype.kind == "bool" and len(raw) != type.size and raw not in (b"\x00", b"\xff"):
        raw = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")[: type.size].tobytes()
    if len(raw) == stored.itemsize and type.size != 1:
        return Literal.splat(_elements(raw, stored, dtype)[0], type)
    if len(raw) != type.size * stored.itemsize:
        raise AttributeFault(f"{len(raw)} bytes for {type}", f"{type.size * stored.itemsize} bytes")
    return Literal(_elements(raw, stored, dtype).reshape(type.shape))


def _elements(raw: bytes | memoryview, stored: np.dtype[Any], dtype: DType) -> Array:
    found = np.frombuffer(raw, stored)
    if dtype.is_float and dtype.bits < 8 and dtype.np is not None:
        return (found & ((1 << dtype.bits) - 1)).view(dtype.np)
    return found.astype(dtype.np)


LONGEST_LIST = 64
"""Tensors with more elements than this are written as blobs."""


def dense_text(literal: Literal) -> str:
    """`dense<...>`, without its type. Raises NoText for elements that there are not."""
    type_text(literal.type)
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
    if dtype.is_integer and dtype.bits < 8:
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
