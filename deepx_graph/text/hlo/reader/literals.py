"""Constants of HLO text to arrays: nested braces, booleans, complex pairs, infinities and NaNs with their payloads.

The nesting is checked as one skeleton of braces and commas against that of the shape, and the numbers are converted in bulk.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from deepx_graph.errors import an
from deepx_graph.literal import Array, Literal
from deepx_graph.text.common.numbers import is_nested
from deepx_graph.text.hlo.reader.shapes import ShapeError
from deepx_graph.types import BF16, F16, F32, F64, DType, TensorType, TupleType

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_PAIR = re.compile(r"\(\s*([^(),]+)\s*,\s*([^(),]+)\s*\)")
_NAN = re.compile(r"(-?)nan(?:\(0x([0-9a-fA-F]+)\))?")
_MARK = re.compile(r"[(){},]")
_BARE = re.compile(r"[^{},]+")
_BITS = {F16: (np.uint16, 0x7C00, 10), BF16: (np.uint16, 0x7F80, 7), F32: (np.uint32, 0x7F800000, 23),
         F64: (np.uint64, 0x7FF0000000000000, 52)}  # fmt: skip


def parse_literal(text: str, type: TensorType, at: int) -> Literal:
    """The constant written in `text`. Raises ShapeError, with an offset counted from `at`, where it is not one of `type`."""
    clean = _COMMENT.sub("", text)
    if "..." in clean:
        raise ShapeError("the constant's values were left out when this text was printed", at, "all values, in braces")
    if type.dtype.kind == "complex":
        clean = _PAIR.sub(lambda m: f"{m[1].strip()}~{m[2].strip()}", clean)
    shape = type.shape
    if type.size == 0:
        if _BARE.sub("", clean.replace(" ", "")).strip("{},"):
            raise ShapeError("values for a constant without elements", at, "{ }")
        return Literal(np.zeros(shape, type.dtype.np))
    skeleton = _BARE.sub("", re.sub(r"\s+", "", clean))
    if not is_nested(skeleton, shape, "{}"):
        raise ShapeError("the braces do not have the shape of the constant", at, f"{_example(shape)} for {type}")
    words = [w.strip() for w in clean.replace("{", " ").replace("}", " ").split(",")]
    return Literal(_numbers(words, type.dtype, at).reshape(shape))


def parse_tuple(text: str, type: TupleType, at: int) -> list[Literal]:
    """The leaves of a constant tuple, `({1, 2}, (3, true))`. Raises ShapeError."""
    inner = _COMMENT.sub("", text).strip()
    parts = _parts(inner[1:-1]) if inner.startswith("(") and inner.endswith(")") else []
    if len(parts) != len(type.items):
        raise ShapeError(f"{len(parts)} values for {an(type)}", at, f"({', '.join(['...'] * len(type.items))})")
    found: list[Literal] = []
    for part, item in zip(parts, type.items, strict=True):
        if isinstance(item, TupleType):
            found += parse_tuple(part, item, at)
        elif isinstance(item, TensorType):
            found.append(parse_literal(part, item, at))
        else:
            raise ShapeError(f"a constant {item}", at, "arrays and tuples of them")
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


def _example(shape: tuple[int, ...]) -> str:
    return "nested braces of " + "x".join(map(str, shape)) if shape else "one number"


def _numbers(words: list[str], dtype: DType, at: int) -> Array:
    try:
        if dtype.kind == "bool":
            return np.array([_BOOLS[w] for w in words], np.bool_)
        if dtype.is_integer:
            return _integers(words, dtype, at)
        if dtype.kind == "complex":
            parts = [w.partition("~") for w in words]
            real = np.array([_float(p[0]) for p in parts])
            imag = np.array([_float(p[2] or "0") for p in parts])
            _check_overflow([p[0] for p in parts] + [p[2] for p in parts], np.concatenate([real, imag]),
                            np.dtype(np.float32 if dtype.bits == 64 else np.float64), at)
            whole = np.empty(len(parts), np.complex128)
            whole.real, whole.imag = real, imag
            return whole.astype(dtype.np)
        return _floats(words, dtype, at)
    except (ValueError, KeyError, OverflowError):
        bad = next((w for w in words if not _is_number(w)), "?")
        raise ShapeError(f"'{bad}' is not {an(dtype)} value", at, "numbers separated by commas") from None


_BOOLS = {"true": True, "false": False, "1": True, "0": False}


def _is_number(word: str) -> bool:
    try:
        _float(word.replace("~", ""))
    except (ValueError, OverflowError):
        return word in _BOOLS
    return True


def _integers(words: list[str], dtype: DType, at: int) -> Array:
    values = list(map(int, words))
    low, high = (-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)
    wrong = next((v for v in values if not low <= v <= high), None)
    if wrong is not None:
        raise ShapeError(f"{wrong} is out of the range of {dtype}", at, f"{low} to {high}")
    return np.array(values, dtype=object).astype(np.uint64 if dtype.kind == "uint" else np.int64).astype(dtype.np)


def _floats(words: list[str], dtype: DType, at: int) -> Array:
    values = np.array([_float(w) for w in words], np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        result = values.astype(dtype.np)
    _check_overflow(words, values, np.dtype(dtype.np), at)
    for k in np.flatnonzero(np.isnan(values)):
        _set_nan(result, int(k), words[k], dtype)
    return result


def _check_overflow(words: list[str], values: Any, np_dtype: Any, at: int) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        infinite = np.isinf(values.astype(np_dtype))
    for k in np.flatnonzero(infinite):
        if "inf" not in words[k].lower():
            raise ShapeError(f"{words[k]} is out of the range of {np_dtype.name}", at)


def _float(word: str) -> float:
    if "nan" in word:
        return float("nan")
    if word.lower().lstrip("+-").startswith("0x"):
        return float.fromhex(word)
    return float(word)


def _set_nan(result: Array, k: int, word: str, dtype: DType) -> None:
    match = _NAN.fullmatch(word)
    if match and dtype in _BITS and (match[1] or match[2]):
        unsigned, exponent, mantissa = _BITS[dtype]
        payload = int(match[2], 16) if match[2] else 1 << (mantissa - 1)
        sign = 1 << (8 * np.dtype(unsigned).itemsize - 1) if match[1] else 0
        result.view(unsigned)[k] = sign | exponent | (payload & ((1 << mantissa) - 1) or 1)
