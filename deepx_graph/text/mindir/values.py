"""MindIR's types and constants in terms of ours.

A value that a program computes is a node; a constant that operations take as an option (an axis, a shape, an element type) stays a
plain Python value until an operation wants a tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deepx_graph.errors import InferError, LimitError
from deepx_graph.literal import Literal
from deepx_graph.text.mindir.schema import Attribute, TensorData, ValueInfo
from deepx_graph.types import (
    BF16,
    BOOL,
    C64,
    C128,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
    TensorType,
    TupleType,
    Type,
    scalar,
    tensor,
)  # fmt: skip

DTYPES: dict[int, DType] = {
    1: F32, 2: U8, 3: I8, 4: U16, 5: I16, 6: I32, 7: I64, 9: BOOL, 10: F16, 11: F64, 12: U32, 13: U64, 14: C64, 15: C128, 16: BF16,
    17: F64,
}  # fmt: skip
"""TensorProto.DataType by number."""

(FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOLEAN, FLOAT16, DOUBLE, UINT32, UINT64, BFLOAT16, TENSOR, TENSORS,
 TUPLE, LIST, UMONAD, IOMONAD, NONE, PARTIAL_CLOSURE, GRAPH_CLOSURE, UNION, TYPE_NULL) = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 16, 17, 19, 20, 21, 23, 24, 25, 28, 27, 29, 36)
"""AttributeProto.AttributeType by number, as far as programs have them."""

_WHOLE = {UINT8: U8, INT8: I8, UINT16: U16, INT16: I16, INT32: I32, INT64: I64, BOOLEAN: BOOL, UINT32: U32, UINT64: U64}
_REAL = {FLOAT: F32, FLOAT16: F16, DOUBLE: F64, BFLOAT16: BF16}
SCALARS: dict[int, DType] = {**_WHOLE, **_REAL}

TYPE_IDS = {30: BOOL, 32: I8, 33: I16, 34: I32, 35: I64, 37: U8, 38: U16, 39: U32, 40: U64, 42: F16, 43: F32, 44: F64, 45: BF16,
            48: C64, 49: C128}  # fmt: skip
"""MindSpore's TypeId, which `Cast` takes as a number."""


class Monad:
    """What orders effects in MindIR; here the order is that of the nodes, so it has no value."""


MONAD = Monad()


def is_monad(attribute: Attribute | None) -> bool:
    return attribute is not None and attribute.type in (UMONAD, IOMONAD)


def tensor_type(data: TensorData, name: str = "") -> TensorType:
    """The type of a tensor; -1 is a size that is not known, -2 an unknown rank. Raises InferError."""
    dtype = DTYPES.get(data.data_type)
    if dtype is None:
        raise InferError(f"the element type has the number {data.data_type}", expected="a number, as in float32")
    if data.dims == [-2]:
        return tensor(dtype, None)
    label = name.rpartition(":")[2] or "d"
    return tensor(dtype, tuple(d if d >= 0 else f"{label}_{k}" for k, d in enumerate(data.dims)))


def literal(data: TensorData, max_bytes: int) -> Literal:
    """A tensor's value. Raises InferError where its bytes are not those of its type, LimitError where they are too many."""
    type = tensor_type(data)
    if data.external:
        raise InferError(f"the values of '{data.name}' are in another file, which is not read")
    if not type.is_static or type.dtype.np is None:
        raise InferError(f"a constant of type {type}")
    if type.nbytes > max_bytes:
        raise LimitError(f"the constant '{data.name}' of type {type} has more than {max_bytes} bytes")
    raw = b"".join((data.raw or b"", *data.elements)) if data.elements else data.raw or b""
    if len(raw) != type.nbytes:
        raise InferError(f"{len(raw)} bytes of data for a constant of type {type}", expected=f"{type.nbytes} bytes")
    return Literal(np.frombuffer(raw, type.dtype.np).reshape(type.shape))


def constant(attribute: Attribute, max_bytes: int) -> Any:
    """What a Constant node holds: a Literal, MONAD, a type as DType, or a plain value. Raises InferError."""
    kind = attribute.type
    if is_monad(attribute):
        return MONAD
    if kind in (TENSOR, TENSORS) and len(attribute.tensors) == 1:
        return literal(attribute.tensors[0], max_bytes)
    if kind in (TUPLE, LIST) or kind == TENSORS:
        return tuple(constant(v, max_bytes) for v in attribute.values)
    if kind in _WHOLE:
        value = (attribute.ints or [attribute.i])[0]
        return bool(value) if kind == BOOLEAN else value
    if kind in _REAL:
        return (attribute.doubles or [attribute.d])[0] if kind == DOUBLE else (attribute.floats or [attribute.f])[0]
    if kind == STRING:
        return (attribute.strings or [attribute.s])[0]
    if kind in (NONE, TYPE_NULL):
        return None
    raise InferError(f"a constant of kind {kind}", expected="a tensor, a number, a string, or a tuple of these")


def plain_type(attribute: Attribute, name: str = "") -> Type | None:
    """The type that an attribute describes; None for closures and monads. Raises InferError."""
    kind = attribute.type
    if kind in (TENSOR, TENSORS) and attribute.tensors:
        return tensor_type(attribute.tensors[0], name)
    if kind in (TUPLE, LIST):
        items = [plain_type(v, f"{name}_{k}") for k, v in enumerate(attribute.values)]
        return TupleType(tuple(t for t in items if t is not None)) if all(t is not None for t in items) else None
    return scalar(SCALARS[kind]) if kind in SCALARS else None


def is_monad_info(info: ValueInfo) -> bool:
    return is_monad(info.info) or info.denotation in ("UMonadType", "IOMonadType")
