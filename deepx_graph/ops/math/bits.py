"""Operations on the bits of integers, and on how numbers are represented.

Shifts by a negative amount or by the width or more give 0, or all sign bits for the arithmetic shift to the right, as in XLA.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Op, Result, at_least
from deepx_graph.ir.constraint import FLOATS, TENSOR
from deepx_graph.ir.evaluation import WORD
from deepx_graph.literal import Array
from deepx_graph.ops.factors.layout import BITCAST
from deepx_graph.ops.helpers import EVERY, binary, dtype_attr, like, loops_in, one, unary
from deepx_graph.types import (
    ANY,
    BF16,
    F32,
    F64,
    I32,
    U8,
    U32,
    Dims,
    DType,
    Kind,
    Type,
    as_tensor,
    dtype_of,
    nbytes,
    tensor,
)

INTEGER: tuple[Kind, ...] = ("int", "uint")


def _width(array: Array) -> int:
    return dtype_of(array.dtype).bits


def _unsigned(array: Array) -> Array:
    """The same bits as unsigned integers; types narrower than a byte in its low bits."""
    raw = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)
    return raw & np.uint8((1 << _width(array)) - 1) if _width(array) < 8 else raw


def _shift(function: Callable[[Array, Array], Array], beyond: Callable[[Array], Any]) -> Callable[[Sequence[Array]], Array]:
    """A shift that numpy does within the width, and `beyond(x)` outside it."""

    def eval(xs: Sequence[Array]) -> Array:
        x, amount = np.broadcast_arrays(*xs)
        inside = (amount >= 0) & (amount < np.asarray(_width(x), np.int16))
        safe = np.where(inside, amount, np.zeros((), amount.dtype)).astype(x.dtype)
        return like(np.where(inside, function(x, safe), beyond(x)), x.dtype)

    return eval


def _logical_right(x: Array, amount: Array) -> Array:
    if _width(x) < 8:
        return np.right_shift(_unsigned(x), amount.astype(np.uint8)).astype(np.int8).astype(x.dtype)
    return np.right_shift(_unsigned(x), _unsigned(amount)).view(x.dtype).reshape(x.shape)


def _wide_left(x: Array, amount: Array) -> Array:
    if _width(x) < 8:
        return np.left_shift(x.astype(np.int8), amount.astype(np.int8)).astype(x.dtype)
    return np.asarray(np.left_shift(x, amount))


def _wide_right(x: Array, amount: Array) -> Array:
    if _width(x) < 8:
        return np.right_shift(x.astype(np.int8), amount.astype(np.int8)).astype(x.dtype)
    return np.asarray(np.right_shift(x, amount))


def _signs(x: Array) -> Any:
    return np.where(x < 0, like(-1, x.dtype), like(0, x.dtype)) if dtype_of(x.dtype).kind == "int" else like(0, x.dtype)


shift_left: Op = binary("shift_left", "Bits moved up, zeros coming in.", _shift(_wide_left, lambda x: like(0, x.dtype)),
                        kernel="shl(x, y)", kinds=INTEGER, identity=0, domain=(0, 6))
shift_right_logical: Op = binary(
    "shift_right_logical", "Bits moved down, zeros coming in.", _shift(_logical_right, lambda x: like(0, x.dtype)),
    kernel="lshr(x, y)", kinds=INTEGER, identity=0, domain=(0, 6),
)  # fmt: skip
shift_right_arithmetic: Op = binary(
    "shift_right_arithmetic", "Bits moved down, copies of the sign coming in.", _shift(_wide_right, _signs),
    kernel="ashr(x, y)", kinds=INTEGER, identity=0, domain=(0, 6),
)  # fmt: skip


def _popcnt(xs: Sequence[Array]) -> Array:
    return like(np.bitwise_count(_unsigned(xs[0])), xs[0].dtype)


def _clz(xs: Sequence[Array]) -> Array:
    """Smear the highest bit downwards, then count what is not covered."""
    (x,) = xs
    bits, width = _unsigned(x).copy(), _width(x)
    step = 1
    while step < width:
        bits |= bits >> bits.dtype.type(step)
        step *= 2
    return like(width - np.bitwise_count(bits).astype(np.int8), x.dtype)


popcnt: Op = unary("popcnt", "The number of bits that are 1.", _popcnt, kinds=INTEGER,
                   element=loops_in("math", "popcnt_element"))
count_leading_zeros: Op = unary("count_leading_zeros", "The number of zero bits above the highest 1.", _clz, kinds=INTEGER,
                                element=loops_in("math", "clz_element"))


def _high_half(xs: Sequence[Array]) -> Array:
    """Through twice the width; 64-bit integers through Python's."""
    x, y = xs
    bits = _width(x)
    wide: Any = object if bits > 32 else f"{'u' if dtype_of(x.dtype).kind == 'uint' else 'i'}8"
    product = np.asarray(np.multiply(x.astype(wide), y.astype(wide)), wide)  # of rank 0, objects would be Python's integers
    return np.asarray(np.right_shift(product, bits), wide).astype(x.dtype)


mulhi: Op = binary("mulhi", "The upper half of the product of twice the width.", _high_half, kinds=INTEGER, commutative=True,
                   element=loops_in("math", "formula_element"), source="CHLO mulhi")


# --- representation -----------------------------------------------------------------------------------------------


def _bitcast_type(types: Sequence[Type], dtype: DType) -> Type:
    operand = as_tensor(types[0], 0)
    if operand.dtype is ANY or operand.dims is None:
        return tensor(dtype, None)
    old, new = _bits(operand.dtype), _bits(dtype)
    dims: Dims = operand.dims
    if old > new:
        return tensor(dtype, (*dims, old // new))
    if new > old:
        if not dims or dims[-1] != new // old:
            raise InferError(f"{operand} cannot become {dtype}", operand=0, expected=f"a last dimension of {new // old}")
        return tensor(dtype, dims[:-1])
    return tensor(dtype, dims)


def _bits(dtype: DType) -> int:
    return 1 if dtype.kind == "bool" else dtype.bits


def _bitcast(xs: Sequence[Array], dtype: DType) -> Array:
    (x,) = xs
    old, new = _bits(dtype_of(x.dtype)), _bits(dtype)
    shape: tuple[int, ...] = x.shape + (old // new,) if old > new else x.shape[: x.ndim - (new > old)]
    if min(old, new) < 8 and x.dtype != dtype.np:
        return _repack(x, old, new, dtype).reshape(shape)
    assert dtype.np is not None
    if x.size == 0:
        return np.zeros(shape, dtype.np)
    return np.ascontiguousarray(x).reshape(-1).view(dtype.np).reshape(shape)


def _repack(x: Array, old: int, new: int, dtype: DType) -> Array:
    """Through single bits, the lowest first, for types that are narrower than a byte."""
    raw = _unsigned(x).reshape(-1)
    planes = (raw[:, None].astype(np.uint64) >> np.arange(old, dtype=np.uint64)) & np.uint64(1)
    groups = planes.reshape(-1, new)
    values = (groups << np.arange(new, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
    if new < 8 and dtype.kind != "float":
        signed = (values.astype(np.int16) ^ (1 << (new - 1))) - (1 << (new - 1))
        return np.asarray((signed if dtype.kind == "int" else values.astype(np.uint8)).astype(dtype.np))
    if new < 8:
        return np.asarray(values.astype(np.uint8).view(dtype.np))
    return np.asarray(values.astype(f"u{new // 8}").view(dtype.np))


def _bitcast_scratch(types: Sequence[Type], result: Type, dtype: DType) -> int:
    """A copy in order; bits of types narrower than a byte become words of their own."""
    operand = as_tensor(types[0])
    narrow = min(_bits(operand.dtype), _bits(dtype)) < 8
    return nbytes(operand) + (4 * WORD * operand.size * _bits(operand.dtype) if narrow else 0)


bitcast_convert: Op = Op(
    "bitcast_convert", "The same bits read as another type; a wider one takes its parts from the last dimension.",
    operands=one(TENSOR), attrs=(dtype_attr(*EVERY),), sharding=BITCAST, infer=_bitcast_type, eval=_bitcast,
    element=loops_in("math", "bitcast_element"), scratch=_bitcast_scratch, source="StableHLO bitcast_convert",
    samples=lambda rng: [
        ((rng.standard_normal((2, 3)).astype("f4"),), {"dtype": d}) for d in (I32, U8, BF16)
    ] + [((rng.integers(0, 100, (3, 4)).astype("i1"),), {"dtype": d}) for d in (U32, U8)] + [
        ((rng.standard_normal((2, 2)).astype("f4"),), {"dtype": F64}), ((np.zeros((0, 4), "i1"),), {"dtype": F32})],
)  # fmt: skip


def _reduce_precision(xs: Sequence[Array], exponent_bits: int, mantissa_bits: int) -> Array:
    """Rounded to nearest even at the mantissa's width; overflow becomes infinite and underflow zero of the same sign."""
    (x,) = xs
    wide = x.astype(np.float64)
    mantissa, exponent = np.frexp(wide)
    unit = np.ldexp(1.0, mantissa_bits + 1)
    rounded = np.ldexp(np.rint(mantissa * unit) / unit, exponent)
    bias = (1 << (exponent_bits - 1)) - 1
    largest = math.ldexp(2.0 - math.ldexp(1.0, -mantissa_bits), min(bias, 1023))
    smallest = math.ldexp(1.0, max(1 - bias, -1074))
    result = np.where(np.abs(rounded) > largest, np.copysign(np.inf, wide), rounded)
    result = np.where(np.abs(result) < smallest, np.copysign(0.0, wide), result)
    return like(np.where(np.isnan(wide) | (wide == 0) | np.isinf(wide), wide, result), x.dtype)


reduce_precision: Op = Op(
    "reduce_precision", "Rounded as if stored in a float of that many exponent and mantissa bits.",
    operands=one(FLOATS), results=(Result("output"),),
    attrs=(Attr("exponent_bits", "int", check=at_least(1)), Attr("mantissa_bits", "int", check=at_least(0))),
    infer=lambda types, exponent_bits, mantissa_bits: types[0], eval=_reduce_precision, elementwise=True, vjp=lambda b, node, g: (
        b(reduce_precision, g, exponent_bits=node.attr("exponent_bits"), mantissa_bits=node.attr("mantissa_bits")),),
    element=loops_in("math", "reduce_precision_element"), source="StableHLO reduce_precision",
    samples=lambda rng: [((rng.standard_normal((2, 3)).astype("f4"),), {"exponent_bits": e, "mantissa_bits": m})
                         for e, m in ((5, 10), (8, 7), (8, 23), (4, 3))],
)  # fmt: skip
