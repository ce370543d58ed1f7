"""Operations written as HLO that computes the same: those that are ours alone, and those whose opcodes XLA parses and cannot run.

A formula makes nodes of other ops from the operands; it gives None where the plain opcode must do. Floats narrower than f32 are
computed in f32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Builder, Node, Op
from deepx_graph.text.common import special
from deepx_graph.text.common.special import Formula, in_f32
from deepx_graph.types import BOOL, F32, DType, as_tensor, dtype_named


def _dtype(x: Node) -> DType:
    return as_tensor(x.type).dtype


def _floor_mod(b: Builder, x: Node, y: Node) -> Node:
    """The remainder, moved by the divisor where the signs differ; a zero takes the sign of the divisor."""
    rest, zero = b(ops.remainder, x, y), b.like(0, x)
    if _dtype(x).kind == "uint":
        return rest
    y_below = b(ops.compare, y, zero, direction="LT")
    nonzero = b(ops.compare, rest, zero, direction="NE")
    apart = b(ops.and_, b(ops.compare, b(ops.compare, rest, zero, direction="LT"), y_below, direction="NE"), nonzero)
    kept = b(ops.select, nonzero, rest, b(ops.select, y_below, b.like(-0.0, x), zero)) if _dtype(x).is_float else rest
    return b(ops.select, apart, b(ops.add, rest, y), kept)


def _abs(b: Builder, x: Node) -> Node | None:
    return x if _dtype(x).kind == "uint" else None


def _sign(b: Builder, x: Node) -> Node | None:
    return b(ops.minimum, x, b.like(1, x)) if _dtype(x).kind == "uint" else None


def _conj(b: Builder, x: Node) -> Node:
    return b(ops.complex_, b(ops.real, x), b(ops.negate, b(ops.imag, x))) if _dtype(x).kind == "complex" else x


def _convert_complex(b: Builder, x: Node, dtype: DType) -> Node | None:
    if _dtype(x).kind != "complex" or dtype.kind == "complex":
        return None
    if dtype is BOOL:
        return b(ops.compare, x, b.like(0, x), direction="NE")
    part = b(ops.real, x)
    return part if _dtype(part) is dtype else b(ops.convert, part, dtype=dtype)


def _is(value: float, absolute: bool = False) -> Formula:
    def formula(b: Builder, x: Node) -> Node:
        return b(ops.compare, b(ops.abs_, x) if absolute else x, b.like(value, x), direction="EQ")

    return formula


# --- inverse and hyperbolic functions -----------------------------------------------------------------------------


def _other_side(b: Builder, x: Node) -> Node:
    """sqrt(1 - x^2), accurate near 1."""
    one = b.like(1, x)
    return b(ops.sqrt, b(ops.multiply, b(ops.subtract, one, x), b(ops.add, one, x)))


def _log_of_twice(b: Builder, x: Node) -> Node:
    return b(ops.add, b(ops.log, x), b.like(math.log(2), x))


def _large(b: Builder, x: Node, power: float) -> Node:
    """Whether x is near the power of the largest number of its type."""
    most = float(np.finfo(np.float32 if _dtype(x) is F32 else np.float64).max)
    return b(ops.compare, x, b.like(most**power / 4, x), direction="GT")


def _acosh(b: Builder, x: Node) -> Node:
    t = b(ops.subtract, x, b.like(1, x))
    root = b(ops.multiply, b(ops.sqrt, t), b(ops.sqrt, b(ops.add, t, b.like(2, x))))
    return b(ops.select, _large(b, x, 1), _log_of_twice(b, x), b(ops.log_plus_one, b(ops.add, t, root)))


def _asinh(b: Builder, x: Node) -> Node:
    a, one = b(ops.abs_, x), b.like(1, x)
    square = b(ops.multiply, a, a)
    more = b(ops.divide, square, b(ops.add, one, b(ops.sqrt, b(ops.add, square, one))))
    size = b(ops.select, _large(b, a, 0.5), _log_of_twice(b, a), b(ops.log_plus_one, b(ops.add, a, more)))
    return b(ops.multiply, b(ops.sign, x), size)


def _atanh(b: Builder, x: Node) -> Node:
    apart = b(ops.subtract, b(ops.log_plus_one, x), b(ops.log_plus_one, b(ops.negate, x)))
    return b(ops.multiply, b.like(0.5, x), apart)


def _halves(b: Builder, a: Node) -> tuple[Node, Node]:
    """exp(a) / 2 and exp(-a) / 2, by way of exp(a / 2), which does not overflow before they do."""
    half = b.like(0.5, a)
    h = b(ops.exponential, b(ops.multiply, a, half))
    return b(ops.multiply, b(ops.multiply, half, h), h), b(ops.divide, b(ops.divide, half, h), h)


def _cosh(b: Builder, x: Node) -> Node:
    return b(ops.add, *_halves(b, b(ops.abs_, x)))


def _sinh(b: Builder, x: Node) -> Node:
    a, one = b(ops.abs_, x), b.like(1, x)
    e = b(ops.exponential_minus_one, a)
    small = b(ops.multiply, b.like(0.5, x), b(ops.add, e, b(ops.divide, e, b(ops.add, e, one))))
    size = b(ops.select, b(ops.compare, a, one, direction="LT"), small, b(ops.subtract, *_halves(b, a)))
    return b(ops.multiply, b(ops.sign, x), size)


def _real_or_complex(formula: Callable[[Builder, Node], Node], join: Op) -> Formula:
    """A hyperbolic function: exp(x) / 2 joined with exp(-x) / 2 for complex numbers."""
    real = in_f32(formula)

    def either(b: Builder, x: Node) -> Node | None:
        if _dtype(x).kind != "complex":
            return real(b, x)
        both = b(join, b(ops.exponential, x), b(ops.exponential, b(ops.negate, x)))
        return b(ops.multiply, b.like(0.5, x), both)

    return either


def _mulhi(b: Builder, x: Node, y: Node) -> Node:
    """By halves, as in Warren's Hacker's Delight, 8-2: no product of two halves leaves the width."""
    dtype = _dtype(x)
    half = b.like(dtype.bits // 2, x)
    mask = b.like((1 << (dtype.bits // 2)) - 1, x)
    down = ops.shift_right_arithmetic if dtype.kind == "int" else ops.shift_right_logical
    (x0, x1), (y0, y1) = ((b(ops.and_, v, mask), b(down, v, half)) for v in (x, y))
    low = b(ops.shift_right_logical, b(ops.multiply, x0, y0), half)
    middle = b(ops.add, b(ops.multiply, x1, y0), low)
    other = b(ops.add, b(ops.multiply, x0, y1), b(ops.and_, middle, mask))
    return b(ops.add, b(ops.add, b(ops.multiply, x1, y1), b(down, middle, half)), b(down, other, half))


def _next_after(b: Builder, x: Node, y: Node) -> Node:
    """One more or one less than the bits of x: towards 0 when y lies that way, else away from it."""
    whole = dtype_named(f"u{_dtype(x).bits}")
    bits, other = (b(ops.bitcast_convert, v, dtype=whole) for v in (x, y))
    sign = b.like(1 << (whole.bits - 1), bits)
    one, zero = b.like(1, bits), b.like(0, x)
    inwards = b(ops.compare, b(ops.compare, x, zero, direction="GT"), b(ops.compare, y, x, direction="LT"), direction="EQ")
    moved = b(ops.select, inwards, b(ops.subtract, bits, one), b(ops.add, bits, one))
    least = b(ops.or_, b(ops.and_, other, sign), one)
    moved = b(ops.select, b(ops.compare, x, zero, direction="EQ"), least, moved)
    value = b(ops.select, b(ops.compare, x, y, direction="EQ"), y, b(ops.bitcast_convert, moved, dtype=_dtype(x)))
    nan = b(ops.or_, *(b(ops.compare, v, v, direction="NE") for v in (x, y)))
    return b(ops.select, nan, b.like(math.nan, value), value)


FORMULAS: dict[Op, Formula] = {
    ops.mulhi: _mulhi,
    ops.floor_mod: _floor_mod,
    ops.abs_: _abs,
    ops.sign: _sign,
    ops.conj: _conj,
    ops.square: lambda b, x: b(ops.multiply, x, x),
    ops.convert: _convert_complex,
    ops.is_inf: _is(math.inf, absolute=True),
    ops.is_pos_inf: _is(math.inf),
    ops.is_neg_inf: _is(-math.inf),
    ops.atan: in_f32(lambda b, x: b(ops.atan2, x, b.like(1, x))),
    ops.asin: in_f32(lambda b, x: b(ops.atan2, x, _other_side(b, x))),
    ops.acos: in_f32(lambda b, x: b(ops.atan2, _other_side(b, x), x)),
    ops.acosh: in_f32(_acosh),
    ops.asinh: in_f32(_asinh),
    ops.atanh: in_f32(_atanh),
    ops.erfc: in_f32(special.erfc),
    ops.erf_inv: in_f32(special.erf_inv),
    ops.lgamma: in_f32(special.lgamma),
    ops.digamma: in_f32(special.digamma),
    ops.polygamma: in_f32(special.polygamma),
    ops.zeta: in_f32(special.zeta),
    ops.bessel_i0e: in_f32(special.bessel_i0e),
    ops.bessel_i1e: in_f32(special.bessel_i1e),
    ops.next_after: _next_after,
    ops.cosh: _real_or_complex(_cosh, ops.add),
    ops.sinh: _real_or_complex(_sinh, ops.subtract),
}
"""Formulas by op."""


def formula(node: Node, params: list[Node], b: Builder) -> Node | None:
    """The node as other ops on `params`; None where it has no formula or keeps its opcode."""
    made = FORMULAS.get(node.op)
    attrs: tuple[Any, ...] = node.attrs
    return made(b, *params, *attrs) if made else None
