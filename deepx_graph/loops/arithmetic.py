"""Primitives that are more than one instruction: divisions of integers by 0 and -1, remainders with the divisor's sign, powers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deepx_graph.loops import primitives
from deepx_graph.loops.scalar import Scalar, ScalarConst

if TYPE_CHECKING:
    from deepx_graph.loops.builder import LoopBuilder


def divided(b: LoopBuilder, primitive: str, x: Scalar, y: Scalar, at_zero: Scalar, at_minus_one: Scalar) -> Any:
    """`quotient` or `modulo` of integers, with a result of its own for the divisors 0 and -1."""
    dtype = x.dtype
    assert dtype.np is not None
    one, zero, minus_one = (ScalarConst(primitives.cast(v, dtype), dtype) for v in (1, 0, -1))
    special = is_zero = b.apply("eq", y, zero)
    found = at_zero
    if dtype.kind == "int":
        special = b.apply("or", is_zero, b.apply("eq", y, minus_one))
        found = b.apply("where", is_zero, at_zero, at_minus_one)
    return b.apply("where", special, found, b.apply(primitive, x, b.apply("where", special, one, y)))


def _integer_div(b: LoopBuilder, x: Scalar, y: Scalar) -> Any:
    ones = ScalarConst(primitives.evaluate("not", (primitives.cast(0, x.dtype),), x.dtype), x.dtype)
    return divided(b, "quotient", x, y, ones, b.apply("neg", x))


def _integer_floor_mod(b: LoopBuilder, x: Scalar, y: Scalar) -> Any:
    zero = ScalarConst(primitives.cast(0, x.dtype), x.dtype)
    rest = divided(b, "modulo", x, y, x, zero)
    opposite = b.apply("ne", b.apply("lt", rest, zero), b.apply("lt", y, zero))
    return b.apply("where", b.apply("and", b.apply("ne", rest, zero), opposite), b.apply("add", rest, y), rest)


def _float_floor_mod(b: LoopBuilder, x: Scalar, y: Scalar) -> Any:
    """A zero takes the sign of the divisor."""
    zero = ScalarConst(primitives.cast(0, x.dtype), x.dtype)
    rest = b.apply("fmod", x, y)
    opposite = b.apply("ne", b.apply("lt", rest, zero), b.apply("lt", y, zero))
    moved = b.apply("where", opposite, b.apply("add", rest, y), rest)
    nothing = b.apply("where", b.apply("eq", y, zero), rest, b.apply("copysign", zero, y))
    return b.apply("where", b.apply("eq", rest, zero), nothing, moved)


def _integer_pow(b: LoopBuilder, x: Scalar, y: Scalar) -> Any:
    """By repeated squaring. A power below 0 is 0, unless x is 1 or -1."""
    dtype = x.dtype
    zero, one = (ScalarConst(primitives.cast(v, dtype), dtype) for v in (0, 1))
    if dtype.kind == "uint":
        return _squared_up(b, x, y, one)
    minus_one = ScalarConst(primitives.cast(-1, dtype), dtype)
    below = b.apply("lt", y, zero)
    found = _squared_up(b, x, b.apply("where", below, zero, y), one)
    odd = b.apply("eq", b.apply("and", y, one), one)
    inverse = b.apply("where", b.apply("eq", x, minus_one), b.apply("where", odd, minus_one, one), zero)
    inverse = b.apply("where", b.apply("eq", x, one), one, inverse)
    return b.apply("where", below, inverse, found)


def _squared_up(b: LoopBuilder, x: Scalar, y: Scalar, one: ScalarConst) -> Any:
    """A power that is not below 0."""
    if isinstance(y, ScalarConst):
        found: Any = one
        for k in range(int(y.value).bit_length()):
            found = b.apply("mul", found, x) if int(y.value) >> k & 1 else found
            x = b.apply("mul", x, x)
        return found
    power, rest, total = b.cell(x.dtype, x), b.cell(x.dtype, y), b.cell(x.dtype, one)

    def step() -> None:
        base, bits = b.get(power), b.get(rest)
        odd = b.apply("eq", b.apply("and", bits, one), one)
        b.set(total, b.apply("mul", b.get(total), b.apply("where", odd, base, one)))
        b.set(power, b.apply("mul", base, base))
        b.set(rest, b.apply("lshr", bits, one))

    b.repeat(lambda: b.apply("ne", b.get(rest), ScalarConst(primitives.cast(0, x.dtype), x.dtype)), step)
    return b.get(total)


RULES: dict[tuple[str, bool], Callable[..., Any]] = {
    ("div", False): _integer_div, ("floor_mod", False): _integer_floor_mod, ("pow", False): _integer_pow,
    ("floor_mod", True): _float_floor_mod,
}  # fmt: skip
"""By primitive, and whether it is one of floats."""
