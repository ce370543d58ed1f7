"""Constants of HLO text, read and written: nested braces, complex pairs, infinities and NaNs with their payloads.

A float is written with as many digits as reading it back takes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import numpy as np

from deepx_graph.errors import an
from deepx_graph.literal import Array, Literal
from deepx_graph.text.xla.hlo_text import AttributeFault
from deepx_graph.text.xla.literals import LiteralSyntax
from deepx_graph.types import BF16, F16, F32, F64, DType, TensorType, TupleType

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_NAN = re.compile(r"(-?)nan(?:\(0x([0-9a-fA-F]+)\))?")
_MARK = re.compile(r"[(){},]")
_MANTISSA = {F16: 10, BF16: 7, F32: 23, F64: 52}


def _bits(word: str, dtype: DType) -> int | None:
    """The bits of a NaN, with its payload, or of a hexadecimal float."""
    if word.lstrip("+-")[:2].lower() == "0x":
        return int(np.array(float.fromhex(word)).astype(dtype.np).view(f"u{dtype.itemsize}"))
    found, mantissa = _NAN.fullmatch(word), _MANTISSA.get(dtype)
    if found is None or mantissa is None:
        return None
    payload = int(found[2], 16) if found[2] else 1 << (mantissa - 1)
    exponent = (1 << (dtype.bits - 1)) - (1 << mantissa)
    return bool(found[1]) << (dtype.bits - 1) | exponent | (payload & ((1 << mantissa) - 1) or 1)


_SYNTAX = LiteralSyntax("{}", "braces", _bits, strict=True)


def parse_literal(text: str, type: TensorType) -> Literal:
    """The constant written in `text`. Raises AttributeFault where it is not one of `type`."""
    return _SYNTAX.parse(_COMMENT.sub("", text), type) if type.dims else _number(text, type)


@lru_cache(maxsize=4096)
def _number(text: str, type: TensorType) -> Literal:
    """One value, as long programs have the same few again and again."""
    return _SYNTAX.parse(_COMMENT.sub("", text), type)


def parse_tuple(text: str, type: TupleType) -> list[Literal]:
    """The leaves of a constant tuple, `({1, 2}, (3, true))`. Raises AttributeFault."""
    inner = _COMMENT.sub("", text).strip()
    parts = _parts(inner[1:-1]) if inner.startswith("(") and inner.endswith(")") else []
    if len(parts) != len(type.items):
        raise AttributeFault(f"{len(parts)} values for {an(type)}", f"({', '.join(['...'] * len(type.items))})")
    found: list[Literal] = []
    for part, item in zip(parts, type.items, strict=True):
        if isinstance(item, TupleType):
            found += parse_tuple(part, item)
        elif isinstance(item, TensorType):
            found.append(parse_literal(part, item))
        else:
            raise AttributeFault(f"a constant {item}", "arrays and tuples of them")
    return found


def _parts(text: str) -> list[str]:
    """What stands between the outer commas."""
    cuts, depth = [-1], 0
    for mark in _MARK.finditer(text):
        depth += (mark[0] in "({") - (mark[0] in ")}")
        if mark[0] == "," and depth == 0:
            cuts.append(mark.start())
    ends = [*cuts[1:], len(text)]
    return [text[a + 1 : b].strip() for a, b in zip(cuts, ends, strict=True)] if text.strip() else []


# --- written ------------------------------------------------------------------------------------------------------


def literal_text(literal: Literal) -> str:
    """All values in nested braces."""
    return _number_text(literal) if literal.array.ndim == 0 else _text(literal)


@lru_cache(maxsize=4096)
def _number_text(literal: Literal) -> str:
    """Of one value, as long programs have the same few again and again."""
    return _text(literal)


def _text(literal: Literal) -> str:
    array = literal.array
    with np.errstate(all="ignore"):  # signalling NaNs
        words = _words(array.reshape(-1), literal.dtype, array.ndim == 0) if array.size else []
    shape = array.shape
    if 0 in shape:
        words, shape = ["{}"] * int(np.prod(shape[: shape.index(0)])), shape[: shape.index(0)]
    for size in reversed(shape):
        words = ["{" + ", ".join(words[k : k + size]) + "}" for k in range(0, len(words), size)]
    return words[0]


def _words(flat: Array, dtype: DType, scalar: bool) -> list[str]:
    if dtype.kind == "bool":
        return [("true" if v else "false") if scalar else str(int(v)) for v in flat.tolist()]
    if dtype.is_integer:
        return list(map(str, flat.astype(np.int64 if dtype.kind == "int" else np.uint64).tolist()))
    if dtype.kind == "complex":
        real, imag = _decimals(flat.real), _decimals(flat.imag)
        return [f"({a}, {b})" for a, b in zip(real, imag, strict=True)]
    words = _decimals(flat)
    return [_nan(flat, k, dtype) if w == "nan" else w for k, w in enumerate(words)] if dtype in _MANTISSA else words


def _decimals(flat: Array) -> list[str]:
    """The shortest decimals that read back the same, by way of f64 as XLA reads them; whole numbers as XLA writes them."""
    if flat.dtype == np.float64:
        return [repr(v).removesuffix(".0") for v in flat.tolist()]
    narrow = np.ascontiguousarray(flat).astype(np.float32)
    words: list[str] = narrow.astype("U24").tolist()
    wrong = np.array(words, np.float64).astype(np.float32) != narrow
    if wrong.any():
        for k in np.flatnonzero(wrong & ~np.isnan(narrow)):
            words[k] = repr(float(narrow[k]))
    return [w.removesuffix(".0") for w in words]


def _nan(flat: Any, k: int, dtype: DType) -> str:
    """`nan`, `-nan`, or with the payload where it is not that of the default NaN."""
    mantissa = _MANTISSA[dtype]
    bits = int(np.ascontiguousarray(flat).view(f"u{dtype.itemsize}")[k])
    payload, negative = bits & ((1 << mantissa) - 1), bits >> (dtype.bits - 1)
    word = "nan" if payload == 1 << (mantissa - 1) else f"nan(0x{payload:x})"
    return f"-{word}" if negative else word
