"""Types and constants as a model declares them. Elements of tensors are little-endian, those of less than a byte packed; a few
integers are varints.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deepx_graph.errors import InferError, Source
from deepx_graph.literal import Array, Literal
from deepx_graph.text.common.protobuf_writer import varint
from deepx_graph.text.onnx.schema import DimensionProto, ItemsTypeProto, TensorProto, TensorShape, TensorTypeProto, TypeProto
from deepx_graph.text.onnx.values import NUMBERS
from deepx_graph.text.onnx.values import literal as read_literal
from deepx_graph.types import BOOL, I32, I64, STRING, DType, TensorType, TupleType, Type

FEW = 4096
"""Elements of an integer tensor that are written as varints where that is shorter."""


def tensor_of(literal: Literal, name: str) -> TensorProto:
    """The constant under a name. Raises InferError for an element type that ONNX has not."""
    dtype = literal.dtype
    if dtype not in NUMBERS:
        raise InferError(f"ONNX has no tensors of {dtype}")
    made = TensorProto(dims=list(literal.type.shape), dtype=NUMBERS[dtype], name=name)
    array = literal.array
    if dtype is STRING:
        made.strings = [str(t).encode() for t in array.reshape(-1)]
    elif dtype in (I32, I64) and array.size <= FEW and sum(len(varint(int(v))) for v in array.flat) < array.nbytes:
        setattr(made, "int32s" if dtype is I32 else "int64s", [np.ascontiguousarray(array).tobytes()])
    else:
        made.raw = packed_elements(array, dtype)
    return made


def packed_elements(array: Array, dtype: DType) -> bytes | memoryview:
    """Elements one after the other, as a file has them; a view where they lie so in memory."""
    if dtype is BOOL or dtype.bits >= 8:
        whole = np.ascontiguousarray(array)
        little = whole if not whole.dtype.isnative or np.little_endian else whole.byteswap()
        return little.reshape(-1).view(np.uint8).data
    patterns = np.ascontiguousarray(array).reshape(-1).astype(np.int8 if dtype.kind == "int" else array.dtype).view(np.uint8)
    bits = (patterns[:, None] >> np.arange(dtype.bits, dtype=np.uint8)) & 1
    return np.packbits(bits.reshape(-1), bitorder="little").tobytes()


def field_numbers(data: TensorProto, source: Source) -> list[Any]:
    """The elements as the numbers that stand in the field of their type: narrow floats as their bits, complex numbers as two, those
    of less than a byte packed into bytes. Raises InferError.
    """
    found = read_literal(data, source, 0)
    array, dtype = np.ascontiguousarray(found.array).reshape(-1), found.dtype
    if dtype.kind == "complex":
        return array.view(array.real.dtype).tolist()
    if dtype.bits in (2, 4):
        return list(bytes(packed_elements(array, dtype)))
    if dtype.is_float and dtype.bits < 32:
        return array.view(f"u{array.dtype.itemsize}").tolist()
    return (array.astype(np.uint8) if dtype is BOOL else array).tolist()


def type_of(type: Type) -> TypeProto:
    """A type as ONNX declares it. Raises InferError for one that it has not."""
    if isinstance(type, TupleType):
        if not type.items or any(t != type.items[0] for t in type.items):
            raise InferError(f"{type} is no sequence of ONNX")
        return TypeProto(sequence=ItemsTypeProto(type_of(type.items[0])))
    if not isinstance(type, TensorType) or type.dtype not in NUMBERS:
        raise InferError(f"ONNX has no type {type}")
    return TypeProto(tensor=TensorTypeProto(NUMBERS[type.dtype], shape_of(type)))


def shape_of(type: TensorType) -> TensorShape | None:
    """The sizes, symbols by name."""
    if type.dims is None:
        return None
    return TensorShape([DimensionProto(value=d) if isinstance(d, int) else DimensionProto(name=d) for d in type.dims])


