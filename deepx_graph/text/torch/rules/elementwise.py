"""Elementwise operators: arithmetic, comparison, logic, bits. Operands are brought to one type first."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node, Op
from deepx_graph.text.common.activations import softplus_of
from deepx_graph.text.torch.context import CallContext, Rule, Rules
from deepx_graph.text.torch.promotion import result_type
from deepx_graph.types import BOOL, F32, F64, I64, DType, as_tensor, dtype_named

# --- one operand ----------------------------------------------------------------------------------------------------


def floating(c: CallContext, key: int | str = 0) -> Node:
    """An operand as floats: integers become the declared type of the result."""
    x = c.node(key)
    dtype = c.dtype_of(x)
    return x if dtype.is_differentiable else c.to(x, c.result_type() if c.result_type().is_float else F32)


def unary(op: Op, **attrs: Any) -> Rule:
    """Of floats; integers are converted."""
    return lambda c: c(op, floating(c), **attrs)


def exact(op: Op) -> Rule:
    """Of any numbers; of integers by the op itself."""
    return lambda c: c(op, c.node())


def whole(op: Op) -> Rule:
    """Roundings, which leave integers as they are."""
    return lambda c: c(op, c.node()) if c.dtype_of(c.node()).is_float else c.node()


def formula(build: Callable[[CallContext, Node], Node]) -> Rule:
    """Of floats, step by step."""
    return lambda c: build(c, floating(c))


def times(c: CallContext, x: Node, factor: float) -> Node:
    return c(ops.multiply, x, c.like(factor, x))


def chosen(c: CallContext, hit: Node, yes: Node, no: Node) -> Node:
    """One of two values by a condition; scalars are made as large as the rest."""
    dims = max((c.dims_of(n) for n in (hit, yes, no)), key=len)
    return c(ops.select, c.filled(hit, dims), c.filled(yes, dims), c.filled(no, dims))


def above(c: CallContext, x: Node, limit: float, yes: Node, no: Node) -> Node:
    return chosen(c, c(ops.compare, x, c.like(limit, x), direction="GT"), yes, no)


def _log_over(base: float) -> Rule:
    return formula(lambda c, x: c(ops.divide, c(ops.log, x), c.like(math.log(base), x)))


def _truncated(c: CallContext, x: Node) -> Node:
    if not c.dtype_of(x).is_float:
        return x
    return chosen(c, c(ops.compare, x, c.like(0, x), direction="LT"), c(ops.ceil, x), c(ops.floor, x))


def _round(c: CallContext) -> Node:
    x, digits = c.node(), c.number("decimals", 0)
    if not c.dtype_of(x).is_float:
        return x
    if not digits:
        return c(ops.round_nearest_even, x)
    scale = 10.0 ** abs(digits)
    wide = times(c, x, scale) if digits > 0 else c(ops.divide, x, c.like(scale, x))
    made = c(ops.round_nearest_even, wide)
    return c(ops.divide, made, c.like(scale, x)) if digits > 0 else times(c, made, scale)


def _bitwise_not(c: CallContext) -> Node:
    return c(ops.not_, c.node())


def _logical_not(c: CallContext) -> Node:
    return c(ops.not_, c.to(c.node(), BOOL))


def _is_nan(c: CallContext) -> Node:
    return c(ops.compare, c.node(), c.node(), direction="NE")


def _is_inf(c: CallContext) -> Node:
    x = c.node()
    return c(ops.is_inf, x) if c.dtype_of(x).is_float else c.full(False, as_tensor(x.type).with_dtype(BOOL))


def _is_finite(c: CallContext) -> Node:
    x = c.node()
    return c(ops.is_finite, x) if c.dtype_of(x).is_float else c.full(True, as_tensor(x.type).with_dtype(BOOL))


def _sign(c: CallContext) -> Node:
    x = c.node()
    return c(ops.compare, x, c.like(False, x), direction="NE") if c.dtype_of(x) is BOOL else c(ops.sign, x)


def _nan_to_num(c: CallContext) -> Node:
    x = c.node()
    if not c.dtype_of(x).is_float:
        return x
    limits = np.finfo(np.float32) if c.dtype_of(x).bits < 32 else np.finfo(c.dtype_of(x).np)
    most = float(limits.max)
    for op, name, default in ((None, "nan", 0.0), (ops.is_pos_inf, "posinf", most), (ops.is_neg_inf, "neginf", -most)):
        hit = c(op, x) if op is not None else c(ops.compare, x, x, direction="NE")
        x = chosen(c, hit, c.like(c.real(name, default), x), x)
    return x


def _polygamma(c: CallContext) -> Node:
    x = c.node(1)
    return c(ops.polygamma, c.full(c.number(0), as_tensor(x.type)), x)


def _logit(c: CallContext, x: Node) -> Node:
    if c.has("eps"):
        eps = c.real("eps")
        x = c(ops.clamp, c.like(eps, x), x, c.like(1 - eps, x))
    return c(ops.log, c(ops.divide, x, c(ops.subtract, c.like(1, x), x)))


# --- two operands ---------------------------------------------------------------------------------------------------


def binary(op: Op, least: DType | None = None, **attrs: Any) -> Rule:
    return lambda c: c(op, *c.pair(least=least), **attrs)


def logical(op: Op) -> Rule:
    def build(c: CallContext) -> Node:
        return c.each(
            op, c.as_node(c.get(0), BOOL) if not isinstance(c.get(0), Node) else c.to(c.node(0), BOOL), c.to(c.node(1), BOOL)
        )

    return build


def added(op: Op, turned: bool = False) -> Rule:
    """x + alpha * y, or the difference; with the operands in turn where `turned`."""

    def build(c: CallContext) -> Node:
        x, y = c.pair(1, 0) if turned else c.pair()
        alpha = c.get("alpha", c.get(2, 1) if c.call.operator.endswith(".Scalar") else 1)
        if alpha != 1:
            y = c(ops.multiply, y, c.as_node(alpha, c.dtype_of(y)))
        return c(op, x, y)

    return build


def _divide(c: CallContext) -> Node:
    mode = c.text("rounding_mode", "")
    if not mode:
        return c(ops.divide, *c.pair(least=c.result_type() if c.result_type().is_float else F32))
    x, y = c.pair()
    return quotient(c, x, y, mode)


def quotient(c: CallContext, x: Node, y: Node, mode: str) -> Node:
    """The quotient rounded toward zero or down."""
    if c.dtype_of(x).is_float:
        if mode == "trunc":
            return _truncated(c, c(ops.divide, x, y))
        # floor((x - mod) / y), as torch does it: exact where x / y rounds up to a whole number
        rest = c(ops.remainder, x, y)
        whole_part = c(ops.divide, c(ops.subtract, x, rest), y)
        other_sign = c(
            ops.xor, c(ops.compare, rest, c.like(0, rest), direction="LT"), c(ops.compare, y, c.like(0, y), direction="LT")
        )
        low = c.each(ops.and_, c(ops.compare, rest, c.like(0, rest), direction="NE"), other_sign)
        made = chosen(c, low, c(ops.subtract, whole_part, c.like(1, whole_part)), whole_part)
        near = c(ops.round_nearest_even, made)
        plain = c(ops.divide, x, y)
        return chosen(c, c(ops.compare, y, c.like(0, y), direction="EQ"), plain, near)
    down = c(ops.divide, x, y)
    if mode == "trunc" or c.dtype_of(x).kind == "uint":
        return down
    rest = c(ops.remainder, x, y)
    other = c.each(ops.xor, c(ops.compare, rest, c.like(0, rest), direction="LT"), c(ops.compare, y, c.like(0, y), direction="LT"))
    low = c.each(ops.and_, c(ops.compare, rest, c.like(0, rest), direction="NE"), other)
    return chosen(c, low, c(ops.subtract, down, c.like(1, down)), down)


def _floor_divide(c: CallContext) -> Node:
    return quotient(c, *c.pair(), "floor")


def _remainder(c: CallContext) -> Node:
    """With the sign of the divisor."""
    x, y = c.pair()
    if not c.dtype_of(x).is_float:
        return c(ops.floor_mod, x, y)
    rest = c(ops.remainder, x, y)
    other = c.each(ops.xor, c(ops.compare, rest, c.like(0, rest), direction="LT"), c(ops.compare, y, c.like(0, y), direction="LT"))
    moved = c.each(ops.and_, c(ops.compare, rest, c.like(0, rest), direction="NE"), other)
    return chosen(c, moved, c(ops.add, rest, y), rest)


def _power(c: CallContext) -> Node:
    x, y = c.pair()
    exponent = c.get(1)
    if isinstance(exponent, (int, float)) and not isinstance(exponent, bool):
        base = x
        if exponent == 2:
            return c(ops.multiply, base, base)
        if exponent == 1:
            return base
        if exponent == 0.5 and c.dtype_of(base).is_float:
            return c(ops.sqrt, base)
        if exponent == 3:
            return c(ops.multiply, c(ops.multiply, base, base), base)
        if exponent < 0 and c.dtype_of(base).is_integer:
            raise InferError("integers to a negative power")
    return c(ops.power, x, y)


def _nan_aware(op: Op) -> Rule:
    """The greater or less of two, of which one may be no number."""

    def build(c: CallContext) -> Node:
        x, y = c.pair()
        made = c(op, x, y)
        if not c.dtype_of(x).is_float:
            return made
        made = chosen(c, c(ops.compare, y, y, direction="NE"), x, made)
        return chosen(c, c(ops.compare, x, x, direction="NE"), y, made)

    return build


def _copysign(c: CallContext) -> Node:
    x, y = c.pair(least=F32)
    size = c(ops.abs_, x)
    bits = c(ops.bitcast_convert, y, dtype={16: _signed(16), 32: _signed(32), 64: I64}[c.dtype_of(y).bits])
    return chosen(c, c(ops.compare, bits, c.like(0, bits), direction="LT"), c(ops.negate, size), size)


def _signed(bits: int) -> DType:
    return dtype_named(f"i{bits}")


def _xlogy(c: CallContext) -> Node:
    x, y = c.pair(least=F32)
    zero = c.each(ops.and_, c(ops.compare, x, c.like(0, x), direction="EQ"), c(ops.compare, y, y, direction="EQ"))
    return chosen(c, zero, c.like(0, x), c(ops.multiply, x, c(ops.log, y)))


def _hypot(c: CallContext) -> Node:
    x, y = (c(ops.abs_, n) for n in c.pair(least=F32))
    return c(ops.sqrt, c(ops.add, c(ops.multiply, x, x), c(ops.multiply, y, y)))


def _log_add_exp(c: CallContext) -> Node:
    x, y = c.pair(least=F32)
    most = c(ops.maximum, x, y)
    tail = softplus_of(c, c(ops.negate, c(ops.abs_, c(ops.subtract, x, y))))
    made = c(ops.add, most, tail)
    same = c(ops.compare, x, y, direction="EQ")
    infinite = c.each(ops.and_, same, c(ops.is_inf, x))
    return chosen(c, infinite, most, made)


def _shift(op: Op) -> Rule:
    def build(c: CallContext) -> Node:
        x, y = c.pair()
        if op is ops.shift_left:
            return c(op, x, y)
        return c(ops.shift_right_arithmetic if c.dtype_of(x).kind == "int" else ops.shift_right_logical, x, y)

    return build


# --- three operands -------------------------------------------------------------------------------------------------


def _where(c: CallContext) -> Any:
    if not c.has(1):
        places = np.nonzero(c.known(c.node()))
        return [c.constant(p, I64) for p in places]
    dtype = result_type([c.get(1), c.get(2)])
    hit, yes, no = c.broadcast(c.to(c.node(0), BOOL), c.as_node(c.get(1), dtype), c.as_node(c.get(2), dtype))
    return chosen(c, hit, yes, no)


def _clamp(c: CallContext) -> Node:
    dtype = result_type([c.get(0), c.get("min"), c.get("max")])
    x = c.as_node(c.get(0), dtype)
    for op, name in ((ops.maximum, "min"), (ops.minimum, "max")):
        if c.has(name):
            x = c.each(op, x, c.as_node(c.get(name), dtype))
    return x


def _bound(op: Op) -> Rule:
    return lambda c: c(op, *c.pair())


def _with_product(op: Op) -> Rule:
    """self + value * (a op b)"""

    def build(c: CallContext) -> Node:
        dtype = result_type([c.get(0), c.get(1), c.get(2)])
        x, a, b = c.broadcast(*(c.as_node(c.get(k), dtype) for k in range(3)))
        made = c(op, a, b)
        value = c.get("value", 1)
        return c(ops.add, x, made if value == 1 else c(ops.multiply, made, c.as_node(value, dtype)))

    return build


def _lerp(c: CallContext) -> Node:
    x, y = c.pair()
    dtype = c.dtype_of(x)
    x, y, w = c.broadcast(x, y, c.as_node(c.get(2), dtype))
    off = c(ops.subtract, y, x)
    near = c(ops.add, x, c(ops.multiply, w, off))
    far = c(ops.subtract, y, c(ops.multiply, off, c(ops.subtract, c.like(1, w), w)))
    return chosen(c, c(ops.compare, c(ops.abs_, w), c.like(0.5, w), direction="LT"), near, far)


def _masked_fill(c: CallContext) -> Node:
    x = c.node()
    hit, value = c.to(c.node(1), BOOL), c.as_node(c.get(2), c.dtype_of(x))
    hit, x, value = c.broadcast(hit, x, c.shaped(value, ()))
    return chosen(c, hit, value, x)


def _is_close(c: CallContext) -> Node:
    x, y = c.pair()
    wide = c.dtype_of(x) if c.dtype_of(x).is_float else F64
    x, y = c.to(x, wide), c.to(y, wide)
    room = c(ops.add, c.like(c.real("atol", 1e-8), y), times(c, c(ops.abs_, y), c.real("rtol", 1e-5)))
    off = c(ops.abs_, c(ops.subtract, x, y))
    near = c.each(ops.and_, c(ops.compare, off, room, direction="LE"), c(ops.is_finite, off))
    made = c.each(ops.or_, near, c(ops.compare, x, y, direction="EQ"))
    if c.flag("equal_nan"):
        none = c.each(ops.and_, c(ops.compare, x, x, direction="NE"), c(ops.compare, y, y, direction="NE"))
        made = c.each(ops.or_, made, none)
    return made


COMPARISONS = {"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE", "not_equal": "NE", "less": "LT",
               "less_equal": "LE", "greater": "GT", "greater_equal": "GE"}  # fmt: skip

ELEMENTWISE: Rules = {
    **{name: unary(op) for name, op in {
        "acos": ops.acos, "acosh": ops.acosh, "asin": ops.asin, "asinh": ops.asinh, "atan": ops.atan, "atanh": ops.atanh,
        "cos": ops.cosine, "cosh": ops.cosh, "sin": ops.sine, "sinh": ops.sinh, "tan": ops.tan, "tanh": ops.tanh,
        "exp": ops.exponential, "expm1": ops.exponential_minus_one, "log": ops.log, "log1p": ops.log_plus_one, "sqrt": ops.sqrt,
        "rsqrt": ops.rsqrt, "sigmoid": ops.logistic, "erf": ops.erf, "erfc": ops.erfc, "erfinv": ops.erf_inv, "lgamma": ops.lgamma,
        "digamma": ops.digamma, "special_erf": ops.erf, "special_expit": ops.logistic, "i0e": ops.bessel_i0e,
    }.items()},
    **{name: exact(op) for name, op in {"abs": ops.abs_, "neg": ops.negate, "square": ops.square}.items()},
    **{name: whole(op) for name, op in {"ceil": ops.ceil, "floor": ops.floor}.items()},
    "trunc": lambda c: _truncated(c, c.node()), "fix": lambda c: _truncated(c, c.node()), "round": _round, "sign": _sign,
    "sgn": _sign,
    "frac": lambda c: c(ops.subtract, c.node(), _truncated(c, c.node())), "reciprocal": formula(
        lambda c, x: c(ops.divide, c.like(1, x), x)),
    "exp2": formula(lambda c, x: c(ops.power, c.like(2, x), x)), "log2": _log_over(2), "log10": _log_over(10),
    "deg2rad": formula(lambda c, x: times(c, x, math.pi / 180)), "rad2deg": formula(lambda c, x: times(c, x, 180 / math.pi)),
    "logit": formula(_logit), "polygamma": _polygamma, "nan_to_num": _nan_to_num, "isnan": _is_nan, "isinf": _is_inf,
    "isfinite": _is_finite, "bitwise_not": _bitwise_not, "logical_not": _logical_not, "real": exact(ops.real),
    "imag": exact(ops.imag), "conj": exact(ops.conj), "_conj": exact(ops.conj), "_conj_physical": exact(ops.conj),
    # two operands
    "add": added(ops.add), "sub": added(ops.subtract), "subtract": added(ops.subtract), "rsub": added(ops.subtract, True),
    **{name: binary(ops.multiply) for name in ("mul", "multiply")}, "maximum": binary(ops.maximum), "minimum": binary(ops.minimum),
    **dict.fromkeys(("div", "divide", "true_divide"), _divide), "floor_divide": _floor_divide, "remainder": _remainder,
    "fmod": binary(ops.remainder), "pow": _power, "atan2": binary(ops.atan2, F32), "arctan2": binary(ops.atan2, F32),
    "fmax": _nan_aware(ops.maximum), "fmin": _nan_aware(ops.minimum), "copysign": _copysign, "xlogy": _xlogy,
    "special_xlogy": _xlogy, "hypot": _hypot, "logaddexp": _log_add_exp,
    **{name: binary(ops.compare, direction=d) for name, d in COMPARISONS.items()},
    **{f"logical_{name}": logical(op) for name, op in {"and": ops.and_, "or": ops.or_, "xor": ops.xor}.items()},
    **{f"bitwise_{name}": binary(op) for name, op in {"and": ops.and_, "or": ops.or_, "xor": ops.xor}.items()},
    **{f"__{name}__": binary(op) for name, op in {"and": ops.and_, "or": ops.or_, "xor": ops.xor}.items()},
    **{name: _shift(op) for name, op in {"bitwise_left_shift": ops.shift_left, "bitwise_right_shift": ops.shift_right_logical,
                                         "__lshift__": ops.shift_left, "__rshift__": ops.shift_right_logical}.items()},
    # three
    "where": _where, **dict.fromkeys(("clamp", "clip"), _clamp), "clamp_min": _bound(ops.maximum), "clamp_max": _bound(ops.minimum),
    "addcmul": _with_product(ops.multiply), "addcdiv": _with_product(ops.divide), "lerp": _lerp, "masked_fill": _masked_fill,
    "isclose": _is_close,
}  # fmt: skip
