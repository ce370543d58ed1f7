"""Elementwise operators of Relay: the plain ones in tables that the printer reads too, the others by a rule each.

Operands broadcast as in numpy; that becomes explicit. Divisions of integers round toward zero (`divide`, `trunc_*`) or down
(`floor_*`).
"""

from __future__ import annotations

import math

from deepx_graph import ops
from deepx_graph.errors import InferError, an
from deepx_graph.ir import Node, Op
from deepx_graph.text.relay.rules.context import Context, Operator
from deepx_graph.types import BOOL, F32, F64, DType, as_tensor

UNARY: dict[str, Op] = {
    "negative": ops.negate, "abs": ops.abs_, "exp": ops.exponential, "log": ops.log, "sqrt": ops.sqrt, "rsqrt": ops.rsqrt,
    "sin": ops.sine, "cos": ops.cosine, "tan": ops.tan, "sinh": ops.sinh, "cosh": ops.cosh, "tanh": ops.tanh, "asin": ops.asin,
    "acos": ops.acos, "atan": ops.atan, "asinh": ops.asinh, "acosh": ops.acosh, "atanh": ops.atanh, "sigmoid": ops.logistic,
    "erf": ops.erf, "floor": ops.floor, "ceil": ops.ceil, "round": ops.round_nearest_afz, "sign": ops.sign,
    "isfinite": ops.is_finite, "isinf": ops.is_inf,
}  # fmt: skip
"""Operators of one operand that are one of ours."""

BINARY: dict[str, Op] = {
    "add": ops.add, "subtract": ops.subtract, "multiply": ops.multiply, "divide": ops.divide, "power": ops.power,
    "mod": ops.remainder, "floor_mod": ops.floor_mod, "maximum": ops.maximum, "minimum": ops.minimum,
    "left_shift": ops.shift_left, "bitwise_and": ops.and_, "bitwise_or": ops.or_, "bitwise_xor": ops.xor,
}  # fmt: skip
"""Operators of two operands that are one of ours."""

LOGICAL: dict[str, Op] = {"logical_and": ops.and_, "logical_or": ops.or_, "logical_xor": ops.xor}
"""The same on bools."""

COMPARE = {"equal": "EQ", "not_equal": "NE", "less": "LT", "less_equal": "LE", "greater": "GT", "greater_equal": "GE"}


_OF_FLOATS = frozenset(set(UNARY.values()) - {ops.negate, ops.abs_, ops.sign})


def _unary(op: Op) -> Operator:
    """Integers go through floats where our operation is of floats only: Relay's gives what it is given."""

    def build(c: Context) -> Node:
        dtype = c.type().dtype
        if dtype.is_integer and op in _OF_FLOATS:
            return c.cast(c(op, c.cast(c.args[0], F64 if dtype.bits > 16 else F32)), dtype)
        return c(op, c.args[0])

    return Operator(build)


def _logical(op: Op) -> Operator:
    def build(c: Context) -> Node:
        for k in (0, 1):
            if c.type(k).dtype is not BOOL and c.type(k).dtype.np is not None:
                raise InferError(f"operand {k} is {an(c.type(k))}", operand=k, expected="bool")
        return c.both(op, c.args[0], c.args[1])

    return Operator(build, 2)


def _binary(op: Op, **attrs: str) -> Operator:
    return Operator(lambda c: c.both(op, c.args[0], c.args[1], **attrs), 2)


def _rounded(op: Op) -> Operator:
    """Floor and ceil: integers stay as they are."""
    return Operator(lambda c: c.args[0] if c.type().dtype.is_integer else c(op, c.args[0]))


def _scaled_log(base: float) -> Operator:
    return Operator(lambda c: c(ops.multiply, c(ops.log, c.args[0]), c.like(1 / math.log(base), c.args[0])))


def _right_shift(c: Context) -> Node:
    signed = c.type().dtype.kind == "int"
    return c.both(ops.shift_right_arithmetic if signed else ops.shift_right_logical, c.args[0], c.args[1])


def trunc(c: Context, x: Node) -> Node:
    """Rounded toward zero; integers as they are."""
    if as_tensor(x.type).dtype.is_integer:
        return x
    negative = c(ops.compare, x, c.like(0, x), direction="LT")
    return c(ops.select, negative, c(ops.ceil, x), c(ops.floor, x))


def _floor_divide(c: Context) -> Node:
    x, y = c.broadcast(c.args[0], c.args[1])
    if not c.type().dtype.is_integer:
        return c(ops.floor, c(ops.divide, x, y))
    exact = c(ops.subtract, x, c(ops.floor_mod, x, y))  # a multiple of y, so the division has no rest
    return c(ops.divide, exact, y)


def _trunc_divide(c: Context) -> Node:
    quotient = c.both(ops.divide, c.args[0], c.args[1])
    return quotient if c.type().dtype.is_integer else trunc(c, quotient)


def _clip(c: Context) -> Node:
    x = c.args[0]
    low, high = (c.like(_fitting(c.real(n), c.type().dtype), x) for n in ("a_min", "a_max"))
    return c(ops.clamp, low, x, high)


def _fitting(value: float, dtype: DType) -> float | int:
    """A bound of `clip` in the element type: integers get the nearest one that they have."""
    if not dtype.is_integer:
        return value
    low, high = (0, (1 << dtype.bits) - 1) if dtype.kind == "uint" else (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
    return int(min(max(value, low), high))


def _where(c: Context) -> Node:
    condition, x, y = c.broadcast(*c.args[:3])
    if as_tensor(condition.type).dtype is not BOOL:
        condition = c(ops.compare, condition, c.like(0, condition), direction="NE")
    return c(ops.select, condition, x, y)


def relu(c: Context, x: Node) -> Node:
    """max(x, 0)"""
    return c(ops.maximum, x, c.like(0, x))


def _leaky_relu(c: Context) -> Node:
    x = c.args[0]
    positive = c(ops.compare, x, c.like(0, x), direction="GT")
    return c(ops.select, positive, x, c(ops.multiply, x, c.like(c.real("alpha", 0.01), x)))


def _prelu(c: Context) -> Node:
    x, alpha = c.args[0], c.args[1]
    dims = c.known().dims or ()
    slope = c.along(alpha, dims, (c.axis(len(dims), default=1),))
    positive = c(ops.compare, x, c.like(0, x), direction="GT")
    return c(ops.select, positive, x, c(ops.multiply, x, slope))


def _gelu(c: Context) -> Node:
    x = c.args[0]
    half = c(ops.multiply, x, c.like(0.5, x))
    return c(ops.multiply, half, c(ops.add, c(ops.erf, c(ops.multiply, x, c.like(math.sqrt(0.5), x))), c.like(1, x)))


_passed_on = Operator(lambda c: c.args[0], takes_tuple=True)
_inverted = Operator(lambda c: c(ops.not_, c.args[0]))

ELEMENTWISE: dict[str, Operator] = {
    **{n: _unary(op) for n, op in UNARY.items()}, **{n: _binary(op) for n, op in BINARY.items()},
    **{n: _logical(op) for n, op in LOGICAL.items()}, **{n: _binary(ops.compare, direction=d) for n, d in COMPARE.items()},
    "floor": _rounded(ops.floor), "ceil": _rounded(ops.ceil), "round": _rounded(ops.round_nearest_afz),
    "trunc": Operator(lambda c: trunc(c, c.args[0])), "logical_not": _inverted, "bitwise_not": _inverted,
    "isnan": Operator(lambda c: c(ops.compare, c.args[0], c.args[0], direction="NE")),
    "log2": _scaled_log(2), "log10": _scaled_log(10), "atan2": _binary(ops.atan2), "right_shift": Operator(_right_shift, 2),
    "floor_divide": Operator(_floor_divide, 2),
    "trunc_divide": Operator(_trunc_divide, 2), "trunc_mod": _binary(ops.remainder), "clip": Operator(_clip),
    "cast": Operator(lambda c: c(ops.convert, c.args[0], dtype=c.dtype())), "where": Operator(_where, 3),
    "cast_like": Operator(lambda c: c(ops.convert, c.args[0], dtype=c.type(1).dtype), 2),
    **dict.fromkeys(("copy", "identity", "on_device", "device_copy", "annotation.stop_fusion", "annotation.compiler_begin",
                     "annotation.compiler_end"), _passed_on),
    "memory.kill": Operator(lambda c: c.b.pack(), takes_tuple=True), "nn.relu": Operator(lambda c: relu(c, c.args[0])),
    "nn.leaky_relu": Operator(_leaky_relu), "nn.prelu": Operator(_prelu, 2), "nn.gelu": Operator(_gelu),
    "zeros_like": Operator(lambda c: c.full(0, c.known())), "ones_like": Operator(lambda c: c.full(1, c.known())),
    "fast_exp": _unary(ops.exponential), "fast_tanh": _unary(ops.tanh), "fast_erf": _unary(ops.erf),
}  # fmt: skip
