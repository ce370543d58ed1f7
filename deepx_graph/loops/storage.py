"""Floats narrower than single precision: they are computed in that, and rounded once, where they are stored.

f16 and bf16 are converted by instructions, those of a byte or less by tables.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph.literal import Array
from deepx_graph.loops.scalar import Scalar, ScalarConst
from deepx_graph.types import BF16, DTYPES, F16, F32, F64, U8, U32, DType

if TYPE_CHECKING:
    from deepx_graph.loops.builder import LoopBuilder

TABLED = tuple(d for d in DTYPES if d.is_float and d.bits <= 8)

_NARROW = frozenset((F16, BF16, *TABLED))


def is_narrow(dtype: DType) -> bool:
    """Whether elements are computed in a wider dtype than they are stored in."""
    return dtype in _NARROW


def wide(dtype: DType) -> DType:
    """The dtype in which elements are computed: of narrow floats f32, else their own."""
    return F32 if dtype in _NARROW else dtype


def widened(b: LoopBuilder, x: Scalar, dtype: DType) -> Any:
    """A stored element as it is computed with."""
    if dtype in TABLED:
        byte = b.apply("bitcast", x, dtype=U8)
        return b.load(b.table(_values, dtype, F32), [b.index(byte, 0, 255)])
    return b.cast(x, F32) if is_narrow(dtype) else x


def rounded(b: LoopBuilder, x: Scalar, dtype: DType) -> Any:
    """A computed element as it is stored."""
    if dtype not in TABLED or isinstance(x, ScalarConst):
        return b.cast(x, dtype)
    bits = b.apply("bitcast", x, dtype=U32)
    low = b.apply("and", bits, _number(0xFFFF))
    high = b.apply("or", b.apply("lshr", bits, _number(16)), b.cast(b.apply("ne", low, _number(0)), U32))
    return b.apply("bitcast", b.load(b.table(_roundings, dtype, U8), [b.index(high, 0, 0xFFFF)]), dtype=dtype)


def to_odd(b: LoopBuilder, x: Scalar) -> Any:
    """A double in single precision, the last bit set where that is not exact: rounded to f16 it is the double, rounded once.
    Source: Boldo and Melquiond, Emulation of a FMA and correctly rounded sums: proved algorithms using rounding to odd, 2008."""
    if isinstance(x, ScalarConst):
        return ScalarConst(np.float32(np.float16(x.value)), F32)
    near = b.cast(x, F32)
    back, bits = b.cast(near, F64), b.apply("bitcast", near, dtype=U32)
    beyond = b.apply("lt", b.apply("abs", x), b.apply("abs", back))
    inside = b.apply("sub", bits, b.cast(beyond, U32))
    odd = b.apply("where", b.apply("ne", back, x), b.apply("or", inside, _number(1)), bits)
    return b.apply("bitcast", odd, dtype=F32)


def _number(value: int) -> ScalarConst:
    return ScalarConst(np.uint32(value), U32)


@cache
def _values(dtype: DType) -> Array:
    """What each byte stands for, in single precision."""
    assert dtype.np is not None
    return np.arange(256, dtype=np.uint8).view(dtype.np).astype(np.float32)


@cache
def _roundings(dtype: DType) -> Array:
    """The byte nearest to a number in single precision, by its upper 16 bits; the last of them is set where one
    of the lower ones is, which tells on which side of a tie the number is."""
    assert dtype.np is not None
    with np.errstate(all="ignore"):
        return (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32).astype(dtype.np).view(np.uint8)

