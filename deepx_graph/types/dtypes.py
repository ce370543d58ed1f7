"""Element types: one object for each, with its name, width and numpy form."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import ml_dtypes
import numpy as np

Kind = Literal["bool", "int", "uint", "float", "complex", "text", "any"]


@dataclass(frozen=True, eq=False)
class DType:
    """An element type; there is one object for each, so identity is equality.

    `bits` is the width of an element as specified, 0 where it varies; `np` its numpy form (None for `any`, not yet known).
    """

    name: str
    kind: Kind
    bits: int
    np: np.dtype[Any] | None

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_differentiable(self) -> bool:
        return self.kind in ("float", "complex")

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return 1 if self.np is None else self.np.itemsize

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype_named, (self.name,)


def _make(name: str, kind: Kind, bits: int, np_type: Any) -> DType:
    return DType(name, kind, bits, None if np_type is None else np.dtype(np_type))


BOOL = _make("bool", "bool", 8, np.bool_)
I2, U2 = _make("i2", "int", 2, ml_dtypes.int2), _make("u2", "uint", 2, ml_dtypes.uint2)
I4, U4 = _make("i4", "int", 4, ml_dtypes.int4), _make("u4", "uint", 4, ml_dtypes.uint4)
I8, I16, I32, I64 = (_make(f"i{b}", "int", b, f"int{b}") for b in (8, 16, 32, 64))
U8, U16, U32, U64 = (_make(f"u{b}", "uint", b, f"uint{b}") for b in (8, 16, 32, 64))
F16, F32, F64 = (_make(f"f{b}", "float", b, f"float{b}") for b in (16, 32, 64))
BF16 = _make("bf16", "float", 16, ml_dtypes.bfloat16)
F4E2M1FN = _make("f4e2m1fn", "float", 4, ml_dtypes.float4_e2m1fn)
F6E2M3FN = _make("f6e2m3fn", "float", 6, ml_dtypes.float6_e2m3fn)
F6E3M2FN = _make("f6e3m2fn", "float", 6, ml_dtypes.float6_e3m2fn)
F8E8M0FNU = _make("f8e8m0fnu", "float", 8, ml_dtypes.float8_e8m0fnu)
F8E5M2 = _make("f8e5m2", "float", 8, ml_dtypes.float8_e5m2)
F8E4M3FN = _make("f8e4m3fn", "float", 8, ml_dtypes.float8_e4m3fn)
F8E4M3 = _make("f8e4m3", "float", 8, ml_dtypes.float8_e4m3)
F8E3M4 = _make("f8e3m4", "float", 8, ml_dtypes.float8_e3m4)
F8E4M3B11FNUZ = _make("f8e4m3b11fnuz", "float", 8, ml_dtypes.float8_e4m3b11fnuz)
F8E4M3FNUZ = _make("f8e4m3fnuz", "float", 8, ml_dtypes.float8_e4m3fnuz)
F8E5M2FNUZ = _make("f8e5m2fnuz", "float", 8, ml_dtypes.float8_e5m2fnuz)
C64, C128 = _make("c64", "complex", 64, np.complex64), _make("c128", "complex", 128, np.complex128)
ANY = _make("any", "any", 0, None)
"""The dtype of a tensor whose element type the text does not say (a loaded file); known once specialised."""

STRING = _make("string", "text", 0, np.object_)
"""Texts: arrays of Python's `str`. They are moved, compared and taken apart by the reference engine, and by no other."""

DTYPES: tuple[DType, ...] = (
    BOOL, I2, I4, I8, I16, I32, I64, U2, U4, U8, U16, U32, U64, F4E2M1FN, F6E2M3FN, F6E3M2FN, F8E8M0FNU, F8E5M2, F8E4M3FN,
    F8E4M3, F8E3M4, F8E4M3B11FNUZ, F8E4M3FNUZ, F8E5M2FNUZ, F16, BF16, F32, F64, C64, C128, ANY,
)  # fmt: skip
"""Those of numbers, which have a fixed width, and the one not yet known."""

_BY_NAME = {d.name: d for d in (*DTYPES, STRING)}
_BY_NP = {d.np: d for d in (*DTYPES, STRING) if d.np is not None}


def dtype_named(name: str) -> DType:
    """The dtype of that name. Raises KeyError for a name that is none."""
    return _BY_NAME[name]


def dtype_names() -> tuple[str, ...]:
    """All dtype names."""
    return tuple(_BY_NAME)


def dtype_of(np_dtype: np.dtype[Any]) -> DType:
    """The dtype that numpy calls `np_dtype`, in native byte order. Raises KeyError for one with no counterpart."""
    return _BY_NP[np.dtype(np_dtype).newbyteorder("=")]
