"""`dense<...>` to arrays: nested lists, one value for all, hexadecimal blobs, hexadecimal floats, complex pairs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from deepx_graph.literal import Array, Literal
from deepx_graph.text.common.numbers import is_nested
from deepx_graph.types import DType, TensorType

_PAIR = re.compile(r"\(\s*([^(),]+)\s*,\s*([^(),]+)\s*\)")
_HEX_FLOAT = re.compile(r"-?0x[0-9A-Fa-f]+")


class DenseFault(ValueError):
    """What is wrong with the text of a constant."""


def parse_dense(text: str, type: TensorType) -> Literal:
    """The constant of a static type. Raises DenseFault."""
    if text.startswith('"'):
        return _blob(text.strip('"'), type)
    if not text:
        if type.size:
            raise DenseFault(f"no values for {type}")
        return Literal(np.zeros(type.shape, type.dtype.np))
    if type.dtype.kind == "complex":
        text = _PAIR.sub(lambda m: f"{m[1]}~{m[2]}", text)
    skeleton = re.sub(r"[^\[\],]+", "", text)
    words = [w.strip() for w in text.replace("[", " ").replace("]", " ").split(",")]
    words = [w for w in words if w]
    try:
        values = _values(words, type.dtype)
    except (ValueError, KeyError, OverflowError) as e:
        raise DenseFault(f"not values of {type.dtype}: {e}") from None
    if not skeleton:
        return Literal.splat(values[0], type)
    if values.size != type.size or not is_nested(skeleton, type.shape, "[]"):
        raise DenseFault(f"the brackets do not have the shape of {type}")
    return Literal(values.reshape(type.shape))


def _blob(text: str, type: TensorType) -> Literal:
    """Raw little-endian bytes; bools are packed eight to a byte unless they fill a byte each."""
    try:
        raw = bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise DenseFault("the string is not hexadecimal") from None
    if type.dtype.kind == "bool":
        return _bools(raw, type)
    if type.dtype.bits < 8:
        return _small(raw, type)
    if len(raw) == type.dtype.itemsize and type.size != 1:
        return Literal.splat(np.frombuffer(raw, type.dtype.np)[0], type)
    if len(raw) != type.nbytes:
        raise DenseFault(f"{len(raw)} bytes for {type}, which has {type.nbytes}")
    return Literal(np.frombuffer(raw, type.dtype.np).reshape(type.shape))


def _bools(raw: bytes, type: TensorType) -> Literal:
    if len(raw) == 1 and type.size != 1 and raw in (b"\x00", b"\xff"):
        return Literal.splat(raw == b"\xff", type)
    if len(raw) == type.size:
        return Literal(np.frombuffer(raw, np.uint8).astype(np.bool_).reshape(type.shape))
    bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")
    if bits.size < type.size:
        raise DenseFault(f"{len(raw)} bytes for {type}")
    return Literal(bits[: type.size].astype(np.bool_).reshape(type.shape))


def _small(raw: bytes, type: TensorType) -> Literal:
    values = np.frombuffer(raw, np.int8 if type.dtype.kind == "int" else np.uint8)
    if values.size != type.size:
        raise DenseFault(f"{len(raw)} bytes for {type}")
    return Literal(values.astype(type.dtype.np).reshape(type.shape))


_BOOLS = {"true": True, "false": False, "1": True, "0": False}


def _values(words: list[str], dtype: DType) -> Array:
    if dtype.kind == "bool":
        return np.array([_BOOLS[w] for w in words], np.bool_)
    if dtype.is_integer:
        return _integers(words, dtype)
    if dtype.kind == "complex":
        part = np.dtype(np.float32 if dtype.bits == 64 else np.float64)
        whole = np.empty(len(words), dtype.np)
        for k, w in enumerate(words):
            re_, _, im = w.partition("~")
            whole[k] = complex(float(_float(re_, part)), float(_float(im or "0", part)))
        return whole
    np_dtype: Any = np.dtype(dtype.np)
    if any(_HEX_FLOAT.fullmatch(w) for w in words):
        return np.array([_float(w, np_dtype) for w in words], np_dtype)
    return np.array(list(map(float, words)), np.float64).astype(np_dtype)


def _integers(words: list[str], dtype: DType) -> Array:
    values = [int(w, 0) for w in words]
    low, high = (-(1 << (dtype.bits - 1)), (1 << dtype.bits) - 1)
    wrong = next((v for v in values if not low <= v <= high), None)
    if wrong is not None:
        raise ValueError(f"{wrong} is out of range")
    wide = np.array([v & ((1 << 64) - 1) for v in values], np.uint64)
    return wide.astype(dtype.np) if dtype.kind == "uint" else wide.view(np.int64).astype(dtype.np)


def _float(word: str, np_dtype: Any) -> Any:
    """A decimal, or the bits of a float in hexadecimal."""
    if _HEX_FLOAT.fullmatch(word.strip()):
        bits = int(word, 16)
        return np.array(bits, f"u{np_dtype.itemsize}").view(np_dtype)[()]
    return np.float64(word).astype(np_dtype)
