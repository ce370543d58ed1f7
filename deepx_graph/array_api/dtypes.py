"""Element types of the standard: promotion, kinds, limits."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from deepx_graph.array_api.errors import ArrayTypeError, ArrayValueError
from deepx_graph.types import DType, dtype_of
from deepx_graph.types.dtypes import BF16, BOOL, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64

bool_, int8, int16, int32, int64 = BOOL, I8, I16, I32, I64
uint8, uint16, uint32, uint64 = U8, U16, U32, U64
float16, bfloat16, float32, float64, complex64, complex128 = F16, BF16, F32, F64, C64, C128

STANDARD = {
    "bool": BOOL, "int8": I8, "int16": I16, "int32": I32, "int64": I64, "uint8": U8, "uint16": U16, "uint32": U32, "uint64": U64,
    "float32": F32, "float64": F64, "complex64": C64, "complex128": C128,
}  # fmt: skip
"""The element types that the standard has, by name."""

KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",), "signed integer": ("int",), "unsigned integer": ("uint",), "integral": ("int", "uint"),
    "real floating": ("float",), "complex floating": ("complex",), "numeric": ("int", "uint", "float", "complex"),
}  # fmt: skip


def default_dtype(number: Any) -> DType:
    """The dtype of an array that is made of a number of Python."""
    if isinstance(number, bool):
        return BOOL
    return I64 if isinstance(number, int) else F64 if isinstance(number, float) else C128


def joint_dtype(a: DType, b: DType) -> DType:
    """The dtype that holds both. Raises ArrayTypeError where there is none: int64 with uint64, say."""
    if a is b:
        return a
    try:
        found = np.promote_types(a.np, b.np)  # type: ignore[arg-type]
    except TypeError:
        raise ArrayTypeError(f"no element type holds {a} and {b}") from None
    if found.kind == "f" and a.is_integer and b.is_integer:
        raise ArrayTypeError(f"no integer type holds {a} and {b}")
    return dtype_of(found)


def with_number(dtype: DType, number: Any) -> DType:
    """The dtype of an array of that dtype and a number of Python together."""
    if isinstance(number, bool):
        return dtype
    if isinstance(number, int):
        return I64 if dtype is BOOL else dtype
    if isinstance(number, float):
        return dtype if dtype.is_differentiable else F64
    if dtype.kind == "complex":
        return dtype
    return C64 if dtype.is_float and dtype.bits <= 32 else C128


def is_kind(dtype: DType, kind: Any) -> bool:
    """Whether a dtype is of a kind: a name of the standard, a dtype, or a tuple of them. Raises ArrayValueError for another."""
    if isinstance(kind, tuple):
        return any(is_kind(dtype, k) for k in kind)
    if isinstance(kind, DType):
        return dtype is kind
    if kind not in KINDS:
        raise ArrayValueError(f"{kind!r} is no kind of dtypes: {', '.join(KINDS)}")
    return dtype.kind in KINDS[kind]


class FloatLimits(NamedTuple):
    """Machine limits of a floating dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


class IntegerLimits(NamedTuple):
    """Machine limits of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def float_limits(dtype: DType) -> FloatLimits:
    """The limits of a floating dtype; of a complex one, those of its parts. Raises ArrayValueError for another."""
    real = {C64: F32, C128: F64}.get(dtype, dtype)
    if not real.is_float:
        raise ArrayValueError(f"{dtype} is no floating dtype")
    found: Any = ml_dtypes.finfo(real.np)  # type: ignore[no-untyped-call]
    return FloatLimits(int(found.bits), float(found.eps), float(found.max), float(found.min), float(found.smallest_normal), real)


def integer_limits(dtype: DType) -> IntegerLimits:
    """The limits of an integer dtype. Raises ArrayValueError for another."""
    if not dtype.is_integer:
        raise ArrayValueError(f"{dtype} is no integer dtype")
    found: Any = ml_dtypes.iinfo(dtype.np)  # type: ignore[no-untyped-call]
    return IntegerLimits(int(found.bits), int(found.max), int(found.min), dtype)
