"""Types, constants and attribute values as MLIR text.

Every constant reads back to the same bits: floats are written in decimal only where that is exact, otherwise as their bits; large
tensors are hexadecimal blobs, bools never, as MLIR has changed how it packs those. Nothing here knows an operation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, Span
from deepx_graph.ir import Node
from deepx_graph.literal import Array, Literal
from deepx_graph.ops.data.tape import tape_hint
from deepx_graph.text.stablehlo.reader.scanner import MLIR_DTYPES
from deepx_graph.types import ANY, DType, StateType, TensorType, TupleType, Type

LONGEST_LIST = 64
"""Tensors with more elements than this are written as blobs."""

_WORDS = {dtype: word for word, dtype in reversed(MLIR_DTYPES.items())}


class NoText(Exception):
    """What StableHLO cannot express, to be told with the place of the node."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint

    def diagnostic(self, span: Span | None, node: Node | None = None) -> Diagnostic:
        """The same, at its place; about tapes with the node, as loops that grad makes have one place with many values."""
        tapes = tape_hint(node) if node is not None else None
        return Diagnostic(str(self), span, hint=self.hint or tapes, notes=(f"written for {node!r}",) if tapes else ())


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


def float_text(value: Any) -> str:
    """A float scalar exactly: short decimal where that does, else 17 digits; the bits for NaN and infinities."""
    number = float(value)
    if not math.isfinite(number):
        bits = np.asarray(value)
        return f"0x{int(bits.view(f'u{bits.dtype.itemsize}')):0{2 * bits.dtype.itemsize}X}"
    short = f"{number:.6e}"
    return short if float(short) == number else f"{number:.16e}"


# --- attribute values ---------------------------------------------------------------------------------------------


def ints_text(values: Iterable[int]) -> str:
    """`array<i64: 1, 2>`."""
    words = ", ".join(map(str, values))
    return f"array<i64: {words}>" if words else "array<i64>"


def bools_text(values: Iterable[Any]) -> str:
    """`array<i1: true, false>`."""
    words = ", ".join("true" if v else "false" for v in values)
    return f"array<i1: {words}>" if words else "array<i1>"


def pairs_text(low: Sequence[int], high: Sequence[int]) -> str:
    """`dense<[[l, h], ...]> : tensor<Nx2xi64>`."""
    rows = ", ".join(f"[{a}, {b}]" for a, b in zip(low, high, strict=True))
    return f"dense<{f'[{rows}]' if rows else ''}> : tensor<{len(low)}x2xi64>"


def struct_text(name: str, fields: dict[str, Any]) -> str:
    """`#stablehlo.name<field = [..], ...>`, empty lists left out."""
    shown = [f"{k} = {list(v) if isinstance(v, tuple) else v}" for k, v in fields.items() if v != ()]
    return f"#stablehlo.{name}<{', '.join(shown)}>"


def string_text(text: str) -> str:
    """A string in quotes, as MLIR escapes it."""
    plain = "".join(c if " " <= c <= "~" and c not in '"\\' else "".join(f"\\{b:02X}" for b in c.encode()) for c in text)
    return f'"{plain}"'


def word_text(kind: str, word: str) -> str:
    """`#stablehlo<kind WORD>`."""
    return f"#stablehlo<{kind} {word}>"
