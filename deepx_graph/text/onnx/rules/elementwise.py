"""Elementwise operators: arithmetic, comparison, logic, bits, casts, activations."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node, Op
from deepx_graph.text.common.activations import gelu_of, hard_sigmoid_of, softplus_of
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.onnx.context import NodeContext, Rule, Rules
from deepx_graph.text.onnx.values import NAMES, dtype_numbered
from deepx_graph.types import BOOL, F32, F64, STRING, DType

# --- one operand ----------------------------------------------------------------------------------------------------


def unary(op: Op, **attrs: Any) -> Rule:
    return lambda c: c(op, c.node(), **attrs)


def _reciprocal(c: NodeContext) -> Node:
    return c(ops.divide, c.like(1, c.node()), c.node())


def _is_nan(c: NodeContext) -> Node:
    return c(ops.compare, c.node(), c.node(), direction="NE")


def _is_inf(c: NodeContext) -> Node:
    x = c.node()
    low, high = c.flag("detect_negative", True), c.flag("detect_positive", True)
    if not (low or high):
        return c.full(False, c.type().with_dtype(BOOL))
    return c(ops.is_inf if low and high else ops.is_neg_inf if low else ops.is_pos_inf, _wide(c, x))


def _wide(c: NodeContext, x: Node) -> Node:
    """Floats that numpy has no functions of, in single precision."""
    return c.cast(x, F32) if c.dtype_of(x).is_float and c.dtype_of(x).bits < 16 else x


# --- two operands ---------------------------------------------------------------------------------------------------


def _aligned(c: NodeContext) -> tuple[Node, Node]:
    """The operands; before version 7 the second is aligned at an axis of the first where `broadcast` asks for it."""
    x, y = c.node(), c.node(1)
    if c.version < 7 and c.flag("broadcast") and c.given("axis"):
        axis = axis_of(c.number("axis"), c.rank())
        y = c.shaped(y, (*c.dims(1), *(1,) * (c.rank() - axis - c.rank(1))))
    return x, y


def binary(op: Op, **attrs: Any) -> Rule:
    return lambda c: c.each(op, *_aligned(c), **attrs)


def compared(direction: str) -> Rule:
    return binary(ops.compare, direction=direction)


def _equal(c: NodeContext) -> Node:
    if c.dtype() is STRING:
        return c.each(ops.string_equal, c.node(), c.node(1))
    return compared("EQ")(c)  # type: ignore[no-any-return]


def _mod(c: NodeContext) -> Node:
    x, y = c.broadcast(c.node(), c.node(1))
    if c.flag("fmod"):
        return c(ops.remainder, x, y)
    if not c.dtype().is_float:
        return c(ops.floor_mod, x, y)
    rest = c(ops.remainder, x, y)
    zero = c.like(0, rest)
    differs = c(ops.and_, c(ops.compare, rest, zero, direction="NE"),
                c(ops.xor, c(ops.compare, rest, zero, direction="LT"), c(ops.compare, y, c.like(0, y), direction="LT")))
    moved = c(ops.select, c.filled(differs, c.dims_of(rest)), c.filled(c(ops.add, rest, y), c.dims_of(rest)), rest)
    signed = c(ops.select, c(ops.compare, y, c.like(0, y), direction="LT"), c(ops.negate, c(ops.abs_, rest)), c(ops.abs_, rest))
    return c(ops.select, c(ops.compare, rest, zero, direction="EQ"), signed, moved)


def _power(c: NodeContext) -> Node:
    """The result has the type of the base; types are brought together as numpy does."""
    x, y = _aligned(c)
    dtype = c.dtype()
    if c.dtype(1) is dtype:
        return c.each(ops.power, x, y)
    if dtype.is_integer and c.dtype(1).is_integer:
        joint = next(d for d in (dtype, c.dtype(1)) if d.bits == max(dtype.bits, c.dtype(1).bits))
    elif dtype.is_integer:
        joint = F64
    else:
        joint = dtype if c.dtype(1).is_integer or dtype.bits >= c.dtype(1).bits else c.dtype(1)
    return c.cast(c.each(ops.power, c.cast(x, joint), c.cast(y, joint)), dtype)


def _shift(c: NodeContext) -> Node:
    left = c.one_of("direction", "", "LEFT", "RIGHT") == "LEFT"
    right = ops.shift_right_arithmetic if c.dtype().kind == "int" else ops.shift_right_logical
    return c.each(ops.shift_left if left else right, c.node(), c.node(1))


def _prelu(c: NodeContext) -> Node:
    x, slope = c.node(), c.node(1)
    if c.version < 7 and c.rank(1) == 1 and c.rank() > 1:
        slope = c.shaped(slope, (*c.dims(1), *(1,) * (c.rank() - 2)))
    scaled = c(ops.multiply, x, c.filled(slope, c.dims()) if c.dims_of(slope) else slope)
    return c(ops.select, c(ops.compare, x, c.like(0, x), direction="LT"), scaled, x)


# --- any number of operands -----------------------------------------------------------------------------------------


def variadic(op: Op) -> Rule:
    def build(c: NodeContext) -> Node:
        nodes = c.broadcast(*c.nodes())
        return reduce(lambda x, y: c(op, x, y), nodes)

    return build


def _mean(c: NodeContext) -> Node:
    total = variadic(ops.add)(c)
    return c(ops.divide, total, c.like(len(c.inputs), total))


# --- casts ----------------------------------------------------------------------------------------------------------


def convert(c: NodeContext, x: Node, dtype: DType, saturate: bool = True, mode: str = "up") -> Node:
    """Elements in another type as ONNX has it: floats below a half saturate or overflow, integers wrap."""
    source = c.dtype_of(x)
    if source is dtype:
        return x
    if STRING in (source, dtype):
        return c(ops.number_to_string, x) if dtype is STRING else c(ops.string_to_number, x, dtype=dtype)
    if dtype is BOOL:
        return c(ops.compare, x, c.like(0, x), direction="NE")
    if dtype.name == "f8e8m0fnu":
        return _power_of_two(c, x, dtype, saturate, mode)
    if dtype.is_float and dtype.bits <= 8 and dtype.name in LARGEST:
        return _narrow_float(c, x, dtype, saturate)
    if dtype.is_integer and source.is_integer and dtype.bits < source.bits:
        return _wrapped(c, x, dtype)
    if dtype.is_integer and dtype.bits < 8:
        return _wrapped(c, c(ops.convert, _wide(c, x), dtype=dtype_numbered(6)), dtype)
    return c(ops.convert, x, dtype=dtype)


def _wrapped(c: NodeContext, x: Node, dtype: DType) -> Node:
    """Integers modulo the range of a narrower type."""
    if dtype.bits >= 8:
        return c(ops.convert, x, dtype=dtype)
    half = 1 << (dtype.bits - 1) if dtype.kind == "int" else 0
    mask = (1 << dtype.bits) - 1
    low = c(ops.and_, c(ops.add, x, c.like(half, x)), c.like(mask, x))
    return c(ops.convert, c(ops.subtract, low, c.like(half, x)), dtype=dtype)


LARGEST = {"f8e4m3fn": 448.0, "f8e4m3fnuz": 240.0, "f8e5m2": 57344.0, "f8e5m2fnuz": 57344.0, "f4e2m1fn": 6.0, "f6e2m3fn": 7.5,
           "f6e3m2fn": 28.0}  # fmt: skip


def _narrow_float(c: NodeContext, x: Node, dtype: DType, saturate: bool) -> Node:
    """Overflow and infinity become the greatest number where it saturates; else what the type has for them."""
    if not c.dtype_of(x).is_float:
        x = c.cast(x, F32)
    wide = _wide(c, x)
    most = LARGEST[dtype.name]
    if saturate or dtype.bits < 8:
        held = c(ops.clamp, c.like(-most, wide), wide, c.like(most, wide))
        kept = c(ops.select, c(ops.compare, wide, wide, direction="NE"), wide, held)
        return c(ops.convert, kept, dtype=dtype)
    made = c(ops.convert, wide, dtype=dtype)
    if dtype.name == "f8e5m2":
        return made
    over = c(ops.is_inf, wide)
    return c(ops.select, over, c.like(math.nan, made), made)


def _power_of_two(c: NodeContext, x: Node, dtype: DType, saturate: bool, mode: str) -> Node:
    """The exponent alone, rounded up, down or to the nearest."""
    bits = c(ops.bitcast_convert, c.cast(x, F32), dtype=dtype_numbered(12))
    exponent = c(ops.and_, c(ops.shift_right_logical, bits, c.like(23, bits)), c.like(255, bits))
    rest = c(ops.and_, bits, c.like((1 << 23) - 1, bits))
    half = 1 << 22
    if mode == "up":
        more = c(ops.compare, rest, c.like(0, rest), direction="GT")
    elif mode == "nearest":
        more = c(ops.compare, rest, c.like(half, rest), direction="GE")
    else:
        more = c(ops.compare, rest, rest, direction="NE")
    least = c(ops.compare, exponent, c.like(0, exponent), direction="EQ")
    if mode == "up" or mode == "nearest":
        more = c(ops.or_, c(ops.and_, more, c(ops.not_, least)),
                 c(ops.and_, least, c(ops.compare, rest, c.like(half, rest), direction="GT")))
    most = c.like(254 if saturate else 255, exponent)
    number = c(ops.compare, exponent, c.like(255, exponent), direction="LT")
    raised = c(ops.minimum, c(ops.add, exponent, c(ops.convert, more, dtype=dtype_numbered(12))), most)
    is_nan = c(ops.compare, x, x, direction="NE")
    infinite = most
    chosen = c(ops.select, number, raised, c(ops.select, is_nan, c.like(255, exponent), infinite))
    return c(ops.bitcast_convert, c(ops.convert, chosen, dtype=dtype_numbered(2)), dtype=dtype)


def _cast(c: NodeContext) -> Node:
    to = c.attrs.get("to")
    if isinstance(to, str):
        if to not in NAMES:
            raise InferError(f"to = '{to:.40}'", expected=" | ".join(NAMES))
        to = NAMES[to]
    dtype = dtype_numbered(to if to is not None else c.number("to"))
    return convert(c, c.node(), dtype, c.flag("saturate", True), c.one_of("round_mode", "up", "up", "down", "nearest"))


def _cast_like(c: NodeContext) -> Node:
    return convert(c, c.node(), c.dtype(1), c.flag("saturate", True), c.one_of("round_mode", "up", "up", "down", "nearest"))


def _bit_cast(c: NodeContext) -> Node:
    dtype = c.element_type("to")
    if BOOL in (c.dtype(), dtype):
        return convert(c, c.node(), dtype)
    return c(ops.bitcast_convert, c.node(), dtype=dtype)


# --- activations ----------------------------------------------------------------------------------------------------

Step = Callable[..., Node]


def _relu(c: NodeContext) -> Node:
    return c(ops.maximum, c.node(), c.like(0, c.node()))


def _positive(c: NodeContext, x: Node, yes: Node, no: Node) -> Node:
    return c(ops.select, c(ops.compare, x, c.like(0, x), direction="GT"), yes, no)


def _elu_of(c: NodeContext, x: Node, alpha: float) -> Node:
    return _positive(c, x, x, c(ops.multiply, c(ops.exponential_minus_one, x), c.like(alpha, x)))


def _elu(c: NodeContext) -> Node:
    return _elu_of(c, c.node(), c.real("alpha", 1.0))


def _celu(c: NodeContext) -> Node:
    x, alpha = c.node(), c.real("alpha", 1.0)
    low = c(ops.multiply, c(ops.exponential_minus_one, c(ops.divide, x, c.like(alpha, x))), c.like(alpha, x))
    return c(ops.add, c(ops.maximum, x, c.like(0, x)), c(ops.minimum, low, c.like(0, x)))


def _selu(c: NodeContext) -> Node:
    defaults = (1.6732, 1.0507) if c.version < 6 else (1.67326319217681884765625, 1.05070102214813232421875)
    alpha, gamma = (c.real(name, d) for name, d in zip(("alpha", "gamma"), defaults, strict=True))
    x = c.node()
    return c(ops.multiply, _elu_of(c, x, alpha), c.like(gamma, x))


def _leaky_relu(c: NodeContext) -> Node:
    x = c.node()
    scaled = c(ops.multiply, x, c.like(c.real("alpha", 0.01), x))
    return c(ops.select, c(ops.compare, x, c.like(0, x), direction="LT"), scaled, x)


def _thresholded_relu(c: NodeContext) -> Node:
    x = c.node()
    return c(ops.select, c(ops.compare, x, c.like(c.real("alpha", 1.0), x), direction="GT"), x, c.full(0, c.type()))


def _hard_sigmoid(c: NodeContext) -> Node:
    return hard_sigmoid_of(c, c.node(), c.real("alpha", 0.2), c.real("beta", 0.5))


def _hard_swish(c: NodeContext) -> Node:
    return c(ops.multiply, c.node(), hard_sigmoid_of(c, c.node(), 1 / 6, 0.5))


def _softplus(c: NodeContext) -> Node:
    return softplus_of(c, c.node())


def _softsign(c: NodeContext) -> Node:
    x = c.node()
    return c(ops.divide, x, c(ops.add, c(ops.abs_, x), c.like(1, x)))


def _mish(c: NodeContext) -> Node:
    return c(ops.multiply, c.node(), c(ops.tanh, softplus_of(c, c.node())))


def _swish(c: NodeContext) -> Node:
    x = c.node()
    return c(ops.multiply, x, c(ops.logistic, c(ops.multiply, x, c.like(c.real("alpha", 1.0), x))))


def _swiglu(c: NodeContext) -> Node:
    gate, x = c.node(), c.node(1)
    if c.dims() != c.dims(1):
        raise InferError(f"operands {c.type()} and {c.type(1)}", expected="equal shapes")
    scaled = c(ops.multiply, gate, c.like(c.real("alpha", 1.0), gate))
    return c(ops.multiply, c(ops.multiply, gate, c(ops.logistic, scaled)), x)


def _gelu(c: NodeContext) -> Node:
    return gelu_of(c, c.node(), c.one_of("approximate", "none", "none", "tanh") == "tanh")


def _shrink(c: NodeContext) -> Node:
    x, bias, most = c.node(), c.real("bias", 0.0), c.real("lambd", 0.5)
    least, most = (-most, most) if c.dtype().is_float else (math.ceil(-most), math.floor(most))
    low = c(ops.compare, x, c.like(least, x), direction="LT")
    high = c(ops.compare, x, c.like(most, x), direction="GT")
    zero = c.full(0, c.type())
    below, above = c(ops.add, x, _number(c, bias, x)), c(ops.subtract, x, _number(c, bias, x))
    return c(ops.select, low, below, c(ops.select, high, above, zero))


def _number(c: NodeContext, value: float, x: Node) -> Node:
    return c.like(value if c.dtype_of(x).is_float else int(value), x)


def _clip(c: NodeContext) -> Node:
    x = c.node()
    if c.version < 11:
        low = c.real("min", -3.4028235e38) if c.given("min") else None
        high = c.real("max", 3.4028235e38) if c.given("max") else None
        bounds = [None if v is None else c.like(v, x) for v in (low, high)]
    else:
        bounds = [c.shaped(c.node(k), ()) if c.has(k) else None for k in (1, 2)]
    if bounds[0] is not None:
        x = c(ops.maximum, x, bounds[0])
    return x if bounds[1] is None else c(ops.minimum, x, bounds[1])


def _where(c: NodeContext) -> Node:
    nodes = [c.node(k) for k in range(3)]
    shapes = [s for n in nodes if (s := c.dims_of(n))]
    parts = c.broadcast(*nodes)
    if shapes:
        dims = max((c.dims_of(p) for p in parts), key=len)
        parts = [c.filled(p, dims) for p in parts]
    return c(ops.select, *parts)


def _identity(c: NodeContext) -> Any:
    return [c.inputs[0] if c.inputs else None]


def _bitwise(op: Op) -> Rule:
    return lambda c: c.each(op, c.node(), c.node(1))


ELEMENTWISE: Rules = {
    **{name: unary(op) for name, op in {
        "Abs": ops.abs_, "Neg": ops.negate, "Floor": ops.floor, "Ceil": ops.ceil, "Sqrt": ops.sqrt, "Exp": ops.exponential,
        "Log": ops.log, "Sin": ops.sine, "Cos": ops.cosine, "Tan": ops.tan, "Asin": ops.asin, "Acos": ops.acos, "Atan": ops.atan,
        "Sinh": ops.sinh, "Cosh": ops.cosh, "Asinh": ops.asinh, "Acosh": ops.acosh, "Atanh": ops.atanh, "Tanh": ops.tanh,
        "Sigmoid": ops.logistic, "Erf": ops.erf, "Sign": ops.sign, "Not": ops.not_, "BitwiseNot": ops.not_,
        "Round": ops.round_nearest_even,
    }.items()},
    "Identity": _identity, "Reciprocal": _reciprocal, "IsNaN": _is_nan, "IsInf": _is_inf,
    **{name: binary(op) for name, op in {
        "Add": ops.add, "Sub": ops.subtract, "Mul": ops.multiply, "Div": ops.divide, "And": ops.and_, "Or": ops.or_, "Xor": ops.xor,
        "BitwiseAnd": ops.and_, "BitwiseOr": ops.or_, "BitwiseXor": ops.xor,
    }.items()},
    "Pow": _power, "Mod": _mod, "BitShift": _shift, "PRelu": _prelu,
    **{name: compared(d) for name, d in {
        "Less": "LT", "Greater": "GT", "LessOrEqual": "LE", "GreaterOrEqual": "GE"}.items()},
    "Equal": _equal, "Max": variadic(ops.maximum), "Min": variadic(ops.minimum), "Sum": variadic(ops.add), "Mean": _mean,
    "Cast": _cast, "CastLike": _cast_like, "BitCast": _bit_cast, "Where": _where, "Clip": _clip,
    "Relu": _relu, "Elu": _elu, "Celu": _celu, "Selu": _selu, "LeakyRelu": _leaky_relu, "ThresholdedRelu": _thresholded_relu,
    "HardSigmoid": _hard_sigmoid, "HardSwish": _hard_swish, "Softplus": _softplus, "Softsign": _softsign, "Mish": _mish,
    "Swish": _swish, "SwiGLU": _swiglu, "Gelu": _gelu, "Shrink": _shrink,
}  # fmt: skip
