"""ONNX's types and constants in terms of ours. Sources: onnx.proto; onnx/docs/ExternalData.md.

Elements in `raw_data`, or in a file beside the model, stay where they are: literals are views of the mapped bytes.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, LimitError, Source
from deepx_graph.files import mapped
from deepx_graph.literal import Array, Literal
from deepx_graph.text.onnx.schema import Bytes, DimensionProto, SparseTensorProto, TensorProto, TensorTypeProto
from deepx_graph.types import (
    ANY,
    BF16,
    BOOL,
    C64,
    C128,
    F4E2M1FN,
    F6E2M3FN,
    F6E3M2FN,
    F8E4M3FN,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0FNU,
    F16,
    F32,
    F64,
    I2,
    I4,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U2,
    U4,
    U8,
    U16,
    U32,
    U64,
    DType,
    TensorType,
    tensor,
)

DTYPES: dict[int, DType] = {
    1: F32, 2: U8, 3: I8, 4: U16, 5: I16, 6: I32, 7: I64, 8: STRING, 9: BOOL, 10: F16, 11: F64, 12: U32, 13: U64, 14: C64, 15: C128,
    16: BF16, 17: F8E4M3FN, 18: F8E4M3FNUZ, 19: F8E5M2, 20: F8E5M2FNUZ, 21: U4, 22: I4, 23: F4E2M1FN,
    24: F8E8M0FNU, 25: U2, 26: I2, 27: F6E2M3FN, 28: F6E3M2FN,
}  # fmt: skip
"""TensorProto.DataType by number."""

NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
"""The number of each element type."""

NAMES = {"FLOAT": 1, "UINT8": 2, "INT8": 3, "UINT16": 4, "INT16": 5, "INT32": 6, "INT64": 7, "STRING": 8, "BOOL": 9, "FLOAT16": 10,
         "DOUBLE": 11, "UINT32": 12, "UINT64": 13, "COMPLEX64": 14, "COMPLEX128": 15}  # fmt: skip
"""Element types by name, as the first version of Cast has them."""

MAX_ELEMENTS = 1 << 40


def dtype_numbered(number: Any) -> DType:
    """The element type of that number. Raises InferError for one that there is not."""
    dtype = DTYPES.get(number)
    if dtype is None:
        raise InferError(f"the element type has the number {number}", expected="the number of an element type, 1 to 28")
    return dtype


# --- types ----------------------------------------------------------------------------------------------------------


def tensor_type(info: TensorTypeProto, name: str, symbols: dict[str, str], item: str = "") -> TensorType:
    """The type that a model declares; `symbols` has its names of sizes as ours. Those of an `item` of a sequence are its own.

    Raises InferError.
    """
    dtype = dtype_numbered(info.dtype) if info.dtype else ANY
    if info.shape is None:
        return tensor(dtype, None)
    return tensor(dtype, tuple(_size(d, f"{name}_{k}", symbols, item) for k, d in enumerate(info.shape.dims)))


def _size(dimension: DimensionProto, unnamed: str, symbols: dict[str, str], item: str) -> int | str:
    if dimension.value is not None and dimension.value >= 0 and not dimension.name:
        return dimension.value
    return symbol(f"{item} {dimension.name}".strip() if dimension.name else unnamed, symbols)


def symbol(name: str, symbols: dict[str, str]) -> str:
    """The symbol for a name of the model: letters, digits and `_`, unlike those of other names."""
    if name not in symbols:
        plain = "".join(c if c.isalnum() and c.isascii() else "_" for c in name).strip("_") or "n"
        plain = plain if not plain[0].isdigit() else f"n{plain}"
        taken, made, k = set(symbols.values()), plain, 0
        while made in taken:
            k += 1
            made = f"{plain}_{k}"
        symbols[name] = made
    return symbols[name]


# --- constants ------------------------------------------------------------------------------------------------------


def literal(data: TensorProto, source: Source, max_bytes: int) -> Literal:
    """A tensor's value. Raises InferError where its bytes are not those of its type, LimitError where they are too many."""
    dtype = dtype_numbered(data.dtype)
    if any(d < 0 for d in data.dims) or math.prod(data.dims) > MAX_ELEMENTS:
        raise InferError(f"'{data.name}' has the shape {data.dims}", expected="sizes from 0")
    count = math.prod(data.dims)
    if dtype is STRING and (data.location == 1 or data.raw):
        raise InferError(f"the texts of '{data.name}' stand as bytes", expected="each as a text of its own")
    raw = external_bytes(data, source) if data.location == 1 else data.raw
    absent = raw is None or (not len(raw) and count)
    found = _typed(data, dtype) if raw is None or absent else unpacked(raw, dtype, count, data.name)
    if found.size != count:
        raise InferError(f"'{data.name}' has {found.size} elements", expected=f"{count} of the shape {data.dims}")
    return Literal(found.reshape(data.dims))


def unpacked(raw: Bytes, dtype: DType, count: int, name: str = "") -> Array:
    """Elements that stand one after the other, those of less than a byte in its low bits first. Raises InferError."""
    wanted = -(-count * _width(dtype) // 8)
    if len(raw) != wanted:
        raise InferError(f"'{name}' has {len(raw)} bytes of data", expected=f"{wanted} for {count} elements of {dtype}")
    assert dtype.np is not None
    if _width(dtype) >= 8:
        return np.frombuffer(raw, dtype.np.newbyteorder("<") if dtype.np.kind in "iufc" else dtype.np)
    bits = np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little")[: count * dtype.bits].reshape(count, dtype.bits)
    whole = (bits << np.arange(dtype.bits, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
    return _narrow(whole, dtype)


def _width(dtype: DType) -> int:
    """Bits of an element where they are stored."""
    return 8 if dtype is BOOL else dtype.bits


def _narrow(patterns: Array, dtype: DType) -> Array:
    """Elements of less than a byte from their bits, one in each byte."""
    assert dtype.np is not None
    if dtype.kind == "int":
        half = 1 << (dtype.bits - 1)
        patterns = ((patterns.astype(np.int16) ^ half) - half).astype(np.int8)
        return patterns.astype(dtype.np)
    return patterns.astype(dtype.np) if dtype.kind == "uint" else patterns.astype(np.uint8).view(dtype.np)


def _typed(data: TensorProto, dtype: DType) -> Array:
    """Elements that stand as numbers, or texts, in the field of their type."""
    assert dtype.np is not None
    if dtype is STRING:
        found = np.empty(len(data.strings), np.object_)
        found[:] = [str(s, "utf-8", "replace") for s in data.strings]
        return found
    if dtype in (F32, C64):
        return np.frombuffer(b"".join(data.floats), dtype.np)
    if dtype in (F64, C128):
        return np.frombuffer(b"".join(data.doubles), dtype.np)
    if dtype is I64:
        return np.frombuffer(b"".join(data.int64s), np.int64)
    if dtype in (U32, U64):
        return np.frombuffer(b"".join(data.uint64s), np.uint64).astype(dtype.np)
    whole = np.frombuffer(b"".join(data.int32s), np.int32)
    if dtype.bits in (2, 4):
        return unpacked(whole.astype(np.uint8).tobytes()[: -(-math.prod(data.dims) * dtype.bits // 8)], dtype, math.prod(data.dims))
    if dtype.bits < 8:
        return _narrow(whole.astype(np.uint8), dtype)
    if dtype.is_float:
        return whole.astype(f"u{dtype.itemsize}").view(dtype.np)
    return whole.astype(dtype.np)


def dense(sparse: SparseTensorProto, source: Source, max_bytes: int) -> Literal:
    """A sparse tensor with all its elements. Raises InferError, LimitError."""
    if sparse.values is None or sparse.indices is None:
        raise InferError("a sparse tensor without values or indices")
    values, places = literal(sparse.values, source, max_bytes), literal(sparse.indices, source, max_bytes).array
    size = math.prod(sparse.dims)
    if min(sparse.dims, default=0) < 0 or size * values.dtype.itemsize > max_bytes:
        raise LimitError(f"the sparse tensor '{sparse.values.name}' of shape {sparse.dims} has more than {max_bytes} bytes")
    if places.ndim == 2 and places.shape[1] == len(sparse.dims):
        inside = bool(((places >= 0) & (places < np.asarray(sparse.dims))).all())
        flat = np.ravel_multi_index(tuple(places.T), tuple(sparse.dims)) if inside else None
    else:
        flat = places if places.ndim == 1 and bool(((places >= 0) & (places < size)).all()) else None
    if flat is None or len(flat) != values.array.size:
        raise InferError(f"the indices of the sparse tensor '{sparse.values.name}' are not places in {sparse.dims}")
    made = np.zeros(size, values.array.dtype)
    made[flat] = values.array.reshape(-1)
    return Literal(made.reshape(sparse.dims))


# --- data in other files --------------------------------------------------------------------------------------------


def external_bytes(data: TensorProto, source: Source) -> memoryview:
    """The bytes of a tensor that stand in a file beside the model, mapped. Raises InferError for a path that leads out of the
    model's folder, and for a range that the file does not have.
    """
    told = {e.key: e.value for e in data.external}
    place = told.get("location", "")
    if source.folder is None:
        raise InferError(f"the values of '{data.name}' are in the file '{place}'", hint="read the model from its file")
    path = inside(source.folder, place, data.name)
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError as e:
        raise InferError(f"the values of '{data.name}' are in '{place}', which cannot be read: {e.strerror}") from None
    try:
        size = os.fstat(handle).st_size
        start, length = _whole(told.get("offset", "0"), data.name), _whole(told.get("length", ""), data.name, size)
        length = min(length, size - start) if "length" not in told else length
        if start > size or length > size - start:
            raise InferError(f"the values of '{data.name}' are {length} bytes at {start} of '{place}'", expected=f"at most {size}")
        return mapped(handle)[start : start + length]
    except (OSError, ValueError) as e:
        raise InferError(f"the values of '{data.name}' are in '{place}', which cannot be mapped: {e}") from None
    finally:
        os.close(handle)


def inside(folder: Path, place: str, name: str) -> Path:
    """The file of that name in a folder. Raises InferError for one that is elsewhere, links followed."""
    parts = place.replace("\\", "/").split("/")
    if not place or "\0" in place or place.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
        raise InferError(f"the values of '{name}' are in '{place}'", expected="a file in the model's folder")
    try:
        path = (folder / place).resolve(strict=True)
        known = path.is_relative_to(folder.resolve()) and path.is_file()
    except (OSError, RuntimeError):
        raise InferError(f"the values of '{name}' are in '{place}', which is not there") from None
    if not known:
        raise InferError(f"the values of '{name}' are in '{place}'", expected="a file in the model's folder, not a link out of it")
    return path


def _whole(text: str, name: str, missing: int = 0) -> int:
    if not text:
        return missing
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InferError(f"the values of '{name}' are at '{text[:30]}'", expected="a whole number")
    return int(text)
