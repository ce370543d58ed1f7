"""Special functions and composites of elementwise operators, step by step; simulated quantisation."""

from __future__ import annotations

import math
from collections.abc import Callable

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.text.torch.context import CallContext, Rules
from deepx_graph.text.torch.rules.elementwise import chosen, floating, formula, times, unary
from deepx_graph.types import BOOL, F32, F64


def _is(c: CallContext, x: Node, number: float, direction: str = "EQ") -> Node:
    return c(ops.compare, x, c.like(number, x), direction=direction)


def _heaviside(c: CallContext) -> Node:
    x, at_zero = c.pair()
    return chosen(c, _is(c, x, 0), at_zero, c.to(c.to(_is(c, x, 0, "GT"), BOOL), c.dtype_of(x)))


def _float_power(c: CallContext) -> Node:
    return c(ops.power, *c.broadcast(c.as_node(c.get(0), F64), c.as_node(c.get(1), F64)))


def _sinc(c: CallContext, x: Node) -> Node:
    angle = times(c, x, math.pi)
    return chosen(c, _is(c, x, 0), c.like(1, x), c(ops.divide, c(ops.sine, angle), angle))


def _entropy(c: CallContext, x: Node) -> Node:
    """-x ln x; 0 at 0, minus infinity below."""
    inside = c(ops.negate, c(ops.multiply, x, c(ops.log, x)))
    return chosen(c, _is(c, x, 0, "LT"), c.like(-math.inf, x), chosen(c, _is(c, x, 0), c.like(0, x), inside))


def _x_log1p_y(c: CallContext) -> Node:
    x, y = c.pair(least=F32)
    made = chosen(c, _is(c, x, 0), c.like(0, x), c(ops.multiply, x, c(ops.log_plus_one, y)))
    return chosen(c, c(ops.compare, y, y, direction="NE"), y, made)


def _bessel_i0(c: CallContext, x: Node) -> Node:
    return c(ops.multiply, c(ops.bessel_i0e, x), c(ops.exponential, c(ops.abs_, x)))


def _bessel_i1(c: CallContext, x: Node) -> Node:
    return c(ops.multiply, c(ops.bessel_i1e, x), c(ops.exponential, c(ops.abs_, x)))


TERMS = 24
"""Of the continued fraction of erfcx, for arguments from 3."""


def _erfcx(c: CallContext, x: Node) -> Node:
    """e^(x^2) erfc(x): as it says up to 3, then by Laplace's continued fraction (Abramowitz and Stegun 7.1.14)."""
    near = c(ops.minimum, x, c.like(3, x))
    direct = c(ops.multiply, c(ops.exponential, c(ops.multiply, near, near)), c(ops.erfc, near))
    far = c(ops.maximum, x, c.like(3, x))
    rest = far
    for k in range(TERMS, 0, -1):
        rest = c(ops.add, far, c(ops.divide, c.like(k / 2, x), rest))
    return chosen(c, _is(c, x, 3, "LT"), direct, c(ops.divide, c.like(1 / math.sqrt(math.pi), x), rest))


def _log_ndtr(c: CallContext, x: Node) -> Node:
    """ln of the normal distribution's integral: for x < -1 by erfcx, as it would be 0."""
    t = times(c, x, 1 / math.sqrt(2))
    low = c(ops.subtract, c(ops.log, times(c, _erfcx(c, c(ops.negate, t)), 0.5)), c(ops.multiply, t, t))
    high = c(ops.log_plus_one, times(c, c(ops.erfc, t), -0.5))
    return chosen(c, _is(c, x, -1, "LT"), low, high)


def _ndtr(c: CallContext, x: Node) -> Node:
    return times(c, c(ops.erfc, times(c, x, -1 / math.sqrt(2))), 0.5)


def _ldexp(c: CallContext) -> Node:
    dtype = c.result_type()
    x, e = c.broadcast(c.as_node(c.get(0), dtype), c.as_node(c.get(1), dtype))
    return c(ops.multiply, x, c(ops.power, c.like(2, e), e))


def _rrelu(c: CallContext) -> Node:
    """A leaky ReLU: of the middle slope, where nothing is drawn."""
    x = c.node()
    slope = (c.real("lower", 1 / 8) + c.real("upper", 1 / 3)) / 2
    return chosen(c, _is(c, x, 0, "GE"), x, times(c, x, slope))


def _rrelu_with_noise(c: CallContext) -> list[Node]:
    return [_rrelu(c), c.node("noise")]


def _gcd(c: CallContext) -> Node:
    """By Euclid, until nothing is left anywhere."""
    x, y = (c(ops.abs_, n) for n in c.pair())

    def step(now: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        a, b = now
        over = _is(c, b, 0, "NE")
        divisor = chosen(c, over, b, c.like(1, b))
        rank = len(c.dims_of(b))
        going = ops.reduction(c.b, ops.or_, over, tuple(range(rank))) if rank else over
        return going, [chosen(c, over, b, a), chosen(c, over, c(ops.remainder, a, divisor), b)]

    return c.b.loop([x, y], step)[0]


def _lcm(c: CallContext) -> Node:
    x, y = (c(ops.abs_, n) for n in c.pair())
    divisor = _gcd(c)
    one = chosen(c, _is(c, divisor, 0), c.like(1, divisor), divisor)
    return c(ops.multiply, c(ops.divide, x, one), y)


# --- quantisation ---------------------------------------------------------------------------------------------------


def _quantised(c: CallContext, scale: Callable[[Node], Node], zero: Callable[[Node], Node], low: int, high: int) -> list[Node]:
    """Rounded to a grid and back, and which elements lie on it."""
    x = c.node()
    place = c(ops.add, c(ops.round_nearest_even, c(ops.multiply, x, c(ops.divide, c.like(1, x), scale(x)))), zero(x))
    held = c(ops.clamp, c.like(low, x), place, c.like(high, x))
    return [c(ops.multiply, c(ops.subtract, held, zero(x)), scale(x)), c(ops.compare, held, place, direction="EQ")]


def _per_tensor(c: CallContext) -> list[Node]:
    def whole(key: str) -> Callable[[Node], Node]:
        return lambda x: c.filled(c.shaped(c.as_node(c.get(key), c.dtype_of(x)), ()), c.dims_of(x))

    return _quantised(c, whole("scale"), whole("zero_point"), c.number("quant_min"), c.number("quant_max"))


def _per_channel(c: CallContext) -> list[Node]:
    axis = c.axis("axis")

    def along(key: str) -> Callable[[Node], Node]:
        return lambda x: c.along(c.to(c.node(key), c.dtype_of(x)), c.dims_of(x), (axis,))

    return _quantised(c, along("scale"), along("zero_point"), c.number("quant_min"), c.number("quant_max"))


def _angle(c: CallContext) -> Node:
    x = c.node()
    if c.dtype_of(x).kind == "complex":
        return c(ops.atan2, c(ops.imag, x), c(ops.real, x))
    x = floating(c)
    turned = chosen(c, _is(c, x, 0, "LT"), c.like(math.pi, x), c.like(0, x))
    return chosen(c, c(ops.compare, x, x, direction="NE"), x, turned)


SPECIAL: Rules = {
    "heaviside": _heaviside, "float_power": _float_power, "ldexp": _ldexp, "rrelu": _rrelu, "gcd": _gcd, "lcm": _lcm,
    "rrelu_with_noise_functional": _rrelu_with_noise, "angle": _angle,
    **{name: formula(build) for names, build in {
        ("sinc", "special_sinc"): _sinc, ("special_entr",): _entropy, ("i0", "special_i0"): _bessel_i0,
        ("special_i1",): _bessel_i1, ("special_erfcx",): _erfcx, ("special_log_ndtr",): _log_ndtr, ("special_ndtr",): _ndtr,
    }.items() for name in names},
    **{name: unary(op) for name, op in {
        "special_i0e": ops.bessel_i0e, "special_i1e": ops.bessel_i1e, "special_gammaln": ops.lgamma, "special_psi": ops.digamma,
        "special_digamma": ops.digamma, "special_erfc": ops.erfc, "special_erfinv": ops.erf_inv,
        "special_expm1": ops.exponential_minus_one, "special_log1p": ops.log_plus_one, "arccos": ops.acos, "arcsin": ops.asin,
        "arctan": ops.atan, "arccosh": ops.acosh, "arcsinh": ops.asinh, "arctanh": ops.atanh,
    }.items()},
    "special_xlog1py": _x_log1p_y,
    "fake_quantize_per_tensor_affine": lambda c: _per_tensor(c)[0],
    "fake_quantize_per_channel_affine": lambda c: _per_channel(c)[0],
    **dict.fromkeys(("fake_quantize_per_tensor_affine_cachemask", "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams"),
                    _per_tensor),
    "fake_quantize_per_channel_affine_cachemask": _per_channel,
}  # fmt: skip
