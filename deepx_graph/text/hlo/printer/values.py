"""The words of HLO text that is written: names, shapes with layouts, constants in full.

Every word is accepted by XLA's own parser and read back as the same value; a float is written with as many digits as that takes.
Nothing here knows graphs. What HLO has no word for raises `NoWord`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from deepx_graph.errors import an
from deepx_graph.literal import Array, Literal
from deepx_graph.text.hlo.reader.shapes import HLO_DTYPES
from deepx_graph.types import ANY, BF16, BOOL, F16, F32, F64, DType, StateType, TensorType, TupleType, Type

_DTYPE_WORDS: dict[DType, str] = {dtype: word for word, dtype in HLO_DTYPES.items()}
_ILLEGAL = re.compile(r"[^A-Za-z0-9_.\-]")
_RESERVED = frozenset((
    *HLO_DTYPES, "s1", "u1", "token", "opaque", "opaque_type", "true", "false", "nan", "inf",
    "HloModule", "ENTRY", "ROOT", "maximal", "replicated", "manual", "unreduced", "last_tile_dim_replicate", "shard_as",
    "shard_like", "unknown", "devices", "w", "sort", "error",
))  # fmt: skip
"""Words that XLA's lexer takes for something else than a name."""
_BITS = {F16: (np.uint16, 10), BF16: (np.uint16, 7), F32: (np.uint32, 23), F64: (np.uint64, 52)}


class NoWord(ValueError):
    """Something that HLO text cannot say."""


def word(name: str) -> str:
    """`name` with illegal characters as underscores."""
    found = _ILLEGAL.sub("_", name)
    return found if found and (found[0].isalpha() or found[0] == "_") else "_" + found


def legal(name: str) -> str:
    """`name` as HLO takes it for an instruction or computation: a word, never a reserved one."""
    found = word(name)
    return found + "_" if found in _RESERVED else found


@lru_cache(maxsize=65536)
def type_text(type: Type) -> str:
    """A shape, with the row-major layout. Raises NoWord."""
    match type:
        case TensorType(dtype, dims):
            if dims is None or dtype is ANY:
                raise NoWord(f"{an(type)} has no shape in HLO until its rank and element type are known")
            inner = ",".join("?" if isinstance(d, str) else str(d) for d in dims)
            layout = "{" + ",".join(str(k) for k in reversed(range(len(dims)))) + "}" if dims else ""
            return f"{_DTYPE_WORDS[dtype]}[{inner}]{layout}"
        case TupleType(items):
            return tuple_text(map(type_text, items))
        case StateType():
            return "token[]"
    raise NoWord(f"HLO has no values of type {type}")


def tuple_text(items: Iterable[str]) -> str:
    """The shape of a tuple of these shapes."""
    return f"({', '.join(items)})"


# --- constants ----------------------------------------------------------------------------------------------------


def literal_text(literal: Literal) -> str:
    """All values in nested braces."""
    array = literal.array
    with np.errstate(all="ignore"):  # signalling NaNs
        words = _words(array.reshape(-1), literal.dtype, array.ndim == 0) if array.size else []
    for size in reversed(array.shape):
        groups = range(len(words) // size) if size else range(0)
        words = ["{" + ", ".join(words[k * size : (k + 1) * size]) + "}" for k in groups] if size else _empty(array.shape)
        if not size:
            break
    return words[0]


def _empty(shape: tuple[int, ...]) -> list[str]:
    """The braces of an array without elements."""
    text = "{}"
    for size in reversed(shape[: shape.index(0)]):
        text = "{" + ", ".join([text] * size) + "}"
    return [text]


def _words(flat: Array, dtype: DType, scalar: bool) -> list[str]:
    if dtype is BOOL:
        return [("true" if v else "false") if scalar else str(int(v)) for v in flat.tolist()]
    if dtype.is_integer:
        return list(map(str, flat.astype(np.int64 if dtype.kind == "int" else np.uint64).tolist()))
    if dtype.kind == "complex":
        real, imag = _floats(flat.real), _floats(flat.imag)
        return [f"({a}, {b})" for a, b in zip(real, imag, strict=True)]
    words = _floats(flat)
    if dtype in _BITS:
        for k in np.flatnonzero(np.isnan(flat.astype(np.float64))):
            words[k] = _nan(flat, int(k), dtype)
    return words


def _floats(flat: Array) -> list[str]:
    """The shortest decimals that read back the same, by way of f64 as XLA reads them; whole numbers as XLA writes them."""
    return [w.removesuffix(".0") for w in _decimals(flat)]


def _decimals(flat: Array) -> list[str]:
    if flat.dtype == np.float64:
        return list(map(repr, flat.tolist()))
    narrow = np.ascontiguousarray(flat).astype(np.float32)
    words: list[str] = narrow.astype("U24").tolist()
    wrong = np.array(words, np.float64).astype(np.float32) != narrow
    for k in np.flatnonzero(wrong & ~np.isnan(narrow)):
        words[k] = repr(float(narrow[k]))
    return words


def _nan(flat: Any, k: int, dtype: DType) -> str:
    """`nan`, `-nan`, or with the payload where it is not that of the default NaN."""
    unsigned, mantissa = _BITS[dtype]
    bits = int(np.ascontiguousarray(flat).view(unsigned)[k])
    payload, negative = bits & ((1 << mantissa) - 1), bits >> (dtype.bits - 1)
    word = "nan" if payload == 1 << (mantissa - 1) else f"nan(0x{payload:x})"
    return f"-{word}" if negative else word
