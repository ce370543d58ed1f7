"""Complex scalars: pairs of reals, and what primitives, and ops whose kernel is of reals only, make of them.

The formulas are those of `ops/math/complex_math.py` and of numpy: functions are computed in double precision and rounded once, and
what they give at zeros and infinities is that of C99 Annex G.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepx_graph.loops.primitives import COMPLEX
from deepx_graph.loops.scalar import NotExpressible, Scalar, ScalarConst
from deepx_graph.types import F64, DType

if TYPE_CHECKING:
    from deepx_graph.loops.builder import LoopBuilder


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex number in its two parts."""

    real: Scalar
    imag: Scalar

    @property
    def dtype(self) -> DType:
        """Of a part."""
        return self.real.dtype


Rule = Callable[..., Any]


def parts(x: Any) -> tuple[Scalar, ...]:
    """The reals that a scalar consists of."""
    return (x.real, x.imag) if isinstance(x, Complex) else (x,)


def joined(parts: Sequence[Scalar]) -> Any:
    """The scalar of its parts."""
    return parts[0] if len(parts) == 1 else Complex(*parts)


def apply(b: LoopBuilder, primitive: str, args: Sequence[Any]) -> Any:
    """A primitive of operands of which some are complex. Raises NotExpressible for one that is not written for them."""
    rule = RULES.get(primitive)
    if rule is None:
        raise NotExpressible(f"{primitive} of complex numbers")
    if primitive == "where":
        return rule(b, args[0], *(whole(x) for x in args[1:]))
    return rule(b, *map(whole, args))


def whole(x: Any) -> Complex:
    """A number with its imaginary part."""
    return x if isinstance(x, Complex) else Complex(x, _number(0, x))


def _number(value: float, like: Any) -> ScalarConst:
    return ScalarConst(like.dtype.np.type(value), like.dtype)


def _in_double(rule: Rule) -> Rule:
    """The rule with operands in double precision, and its result rounded."""

    def rounded(b: LoopBuilder, *xs: Complex) -> Any:
        dtype = xs[0].dtype
        found = rule(b, *(_cast(b, x, F64) for x in xs))
        return _cast(b, found, dtype)

    return rounded


def _cast(b: LoopBuilder, x: Any, dtype: DType) -> Any:
    return Complex(b.cast(x.real, dtype), b.cast(x.imag, dtype)) if isinstance(x, Complex) else b.cast(x, dtype)


# --- arithmetic -----------------------------------------------------------------------------------------------------


def _part_by_part(primitive: str) -> Rule:
    return lambda b, *xs: Complex(b.apply(primitive, *(x.real for x in xs)), b.apply(primitive, *(x.imag for x in xs)))


def _mul(b: LoopBuilder, x: Complex, y: Complex) -> Complex:
    """The sums of four products, also at infinities."""
    real = b.apply("sub", b.apply("mul", x.real, y.real), b.apply("mul", x.imag, y.imag))
    return Complex(real, b.apply("add", b.apply("mul", x.real, y.imag), b.apply("mul", x.imag, y.real)))


def _div(b: LoopBuilder, x: Complex, y: Complex) -> Complex:
    """Smith's quotient; what it makes two NaNs of zeros and infinities is an infinity or a zero."""
    found = _smith(b, x, y)
    zero, infinite = _number(0, x), _number(math.inf, x)
    by_zero = _eq(b, y, whole(zero))
    unknown = b.both(_is_nan(b, found.real), _is_nan(b, found.imag), b.apply("not", by_zero))
    far = b.both(unknown, _is_infinite(b, x), _is_finite(b, y))
    near = b.both(unknown, _is_finite(b, x), _is_infinite(b, y))
    found = _where(b, far, _along(b, _corner(b, x), y, infinite), found)
    found = _where(b, near, _along(b, x, _corner(b, y), zero), found)
    pole = b.apply("copysign", infinite, y.real)
    return _where(b, by_zero, Complex(b.apply("mul", pole, x.real), b.apply("mul", pole, x.imag)), found)


def _quotient(b: LoopBuilder, x: Complex, y: Complex) -> Complex:
    """Smith's; by zero each part divided."""
    size = b.apply("abs", y.real)
    by_zero = Complex(b.apply("div", x.real, size), b.apply("div", x.imag, size))
    return _where(b, _eq(b, y, whole(_number(0, x))), by_zero, _smith(b, x, y))


def _smith(b: LoopBuilder, x: Complex, y: Complex) -> Complex:
    """Scaled by the larger part of the divisor, as numpy does it."""
    swapped = b.apply("lt", b.apply("abs", y.real), b.apply("abs", y.imag))
    larger, smaller = b.apply("where", swapped, y.imag, y.real), b.apply("where", swapped, y.real, y.imag)
    first, second = b.apply("where", swapped, x.imag, x.real), b.apply("where", swapped, x.real, x.imag)
    ratio = b.apply("div", smaller, larger)
    scale = b.apply("div", _number(1, x), b.apply("add", larger, b.apply("mul", smaller, ratio)))
    product = b.apply("mul", first, ratio)
    imag = b.apply("where", swapped, b.apply("sub", product, second), b.apply("sub", second, product))
    return Complex(b.apply("mul", b.apply("add", first, b.apply("mul", second, ratio)), scale), b.apply("mul", imag, scale))


def _corner(b: LoopBuilder, x: Complex) -> Complex:
    """1 for each infinite part and 0 for each other, signs kept."""
    one, zero = _number(1, x), _number(0, x)
    return Complex(*(b.apply("copysign", b.apply("where", _is_infinite_part(b, p), one, zero), p) for p in parts(x)))


def _along(b: LoopBuilder, x: Complex, y: Complex, size: ScalarConst) -> Complex:
    """x conj(y), each part times `size`."""
    real = b.apply("add", b.apply("mul", x.real, y.real), b.apply("mul", x.imag, y.imag))
    imag = b.apply("sub", b.apply("mul", x.imag, y.real), b.apply("mul", x.real, y.imag))
    return Complex(b.apply("mul", size, real), b.apply("mul", size, imag))


def _sign(b: LoopBuilder, x: Complex) -> Complex:
    """x / |x|; a zero itself."""
    return _where(b, _eq(b, x, whole(_number(0, x))), x, _quotient(b, x, whole(_abs(b, x))))


def _square(b: LoopBuilder, x: Complex) -> Complex:
    """Without the difference of two squares."""
    re, im = x.real, x.imag
    real = b.apply("mul", b.apply("sub", re, im), b.apply("add", re, im))
    equal = b.both(b.apply("eq", b.apply("abs", re), b.apply("abs", im)), b.apply("lt", b.apply("abs", re), _number(math.inf, x)))
    return Complex(b.apply("where", equal, _number(0, x), real), b.apply("mul", _number(2, x), b.apply("mul", re, im)))


# --- comparison and choice ------------------------------------------------------------------------------------------


def _eq(b: LoopBuilder, x: Complex, y: Complex) -> Scalar:
    return b.both(b.apply("eq", x.real, y.real), b.apply("eq", x.imag, y.imag))


def _where(b: LoopBuilder, condition: Scalar, x: Complex, y: Complex) -> Complex:
    return Complex(b.apply("where", condition, x.real, y.real), b.apply("where", condition, x.imag, y.imag))


def _extreme(beyond: str) -> Rule:
    """By the real parts, among equal ones by the imaginary parts; NaN where either is."""

    def rule(b: LoopBuilder, x: Complex, y: Complex) -> Complex:
        tie = b.both(b.apply("eq", x.real, y.real), b.apply(f"{beyond[0]}e", x.imag, y.imag))
        ordered = b.apply("not", b.apply("or", _is_nan(b, y.imag), _is_nan(b, y.real)))
        first = b.apply("or", tie, b.both(b.apply(beyond, x.real, y.real), ordered))
        nan = b.apply("or", _is_nan(b, x.real), _is_nan(b, x.imag))
        return _where(b, b.apply("or", nan, first), x, y)

    return rule


def _is_nan(b: LoopBuilder, x: Scalar) -> Scalar:
    found: Scalar = b.apply("ne", x, x)
    return found


def _is_infinite_part(b: LoopBuilder, x: Scalar) -> Scalar:
    found: Scalar = b.apply("eq", b.apply("abs", x), _number(math.inf, x))
    return found


def _is_infinite(b: LoopBuilder, x: Complex) -> Scalar:
    found: Scalar = b.apply("or", _is_infinite_part(b, x.real), _is_infinite_part(b, x.imag))
    return found


def _is_finite(b: LoopBuilder, x: Complex) -> Scalar:
    limit = _number(math.inf, x)
    return b.both(b.apply("lt", b.apply("abs", x.real), limit), b.apply("lt", b.apply("abs", x.imag), limit))


# --- functions, of parts in double precision --------------------------------------------------------------------------


def _abs(b: LoopBuilder, x: Complex) -> Scalar:
    found: Scalar
    if x.dtype is F64:
        found = b.apply("hypot", x.real, x.imag)
        return found
    wide = _cast(b, x, F64)
    size = b.apply("sqrt", b.apply("add", b.apply("mul", wide.real, wide.real), b.apply("mul", wide.imag, wide.imag)))
    found = b.cast(b.apply("where", _is_infinite(b, wide), _number(math.inf, wide), size), x.dtype)
    return found


_EXP_STEP = 700.0


def _exp(b: LoopBuilder, x: Complex) -> Complex:
    """No number where both parts are infinite."""
    nan = _number(math.nan, x)
    return _where(b, b.both(_is_infinite_part(b, x.real), _is_infinite_part(b, x.imag)), Complex(nan, nan), _power_of_e(b, x))


def _power_of_e(b: LoopBuilder, x: Complex) -> Complex:
    """e^re (cos im, sin im). What overflows before it is multiplied is scaled."""
    re, im = x.real, x.imag
    zero, large = _number(0, x), b.apply("lt", _number(_EXP_STEP, x), re)
    power = b.apply("exp", b.apply("where", large, b.apply("sub", re, _number(_EXP_STEP, x)), re))
    scale = b.apply("where", large, _number(math.exp(_EXP_STEP), x), _number(1, x))
    real, imag = (b.apply("mul", b.apply("mul", power, b.apply(f, im)), scale) for f in ("cos", "sin"))
    imag = b.apply("where", b.apply("eq", im, zero), im, imag)
    no_angle = b.apply("not", b.apply("lt", b.apply("abs", im), _number(math.inf, x)))
    real = b.apply("where", b.both(no_angle, b.apply("eq", re, _number(math.inf, x))), re, real)
    vanishes = b.both(no_angle, b.apply("eq", re, _number(-math.inf, x)))
    return _where(b, vanishes, Complex(zero, zero), Complex(real, imag))


def _expm1(b: LoopBuilder, x: Complex) -> Complex:
    """Of the real part without cancellation: expm1(re) cos im - 2 sin^2(im / 2)."""
    half = b.apply("sin", b.apply("mul", x.imag, _number(0.5, x)))
    lost = b.apply("mul", b.apply("mul", _number(2, x), half), half)
    real = b.apply("sub", b.apply("mul", b.apply("expm1", x.real), b.apply("cos", x.imag)), lost)
    return Complex(real, b.apply("mul", b.apply("exp", x.real), b.apply("sin", x.imag)))


def _two_sum(b: LoopBuilder, x: Scalar, y: Scalar) -> tuple[Any, Any]:
    """The rounded sum, and what rounding lost (Knuth)."""
    total = b.apply("add", x, y)
    part = b.apply("sub", total, x)
    lost = b.apply("add", b.apply("sub", x, b.apply("sub", total, part)), b.apply("sub", y, part))
    return total, lost


def _two_square(b: LoopBuilder, x: Scalar) -> tuple[Any, Any]:
    """The rounded square, and what rounding lost (Dekker, Veltkamp)."""
    shifted = b.apply("mul", x, _number(134217729.0, x))
    high = b.apply("sub", shifted, b.apply("sub", shifted, x))
    low = b.apply("sub", x, high)
    square = b.apply("mul", x, x)
    cross = b.apply("mul", b.apply("mul", _number(2, x), high), low)
    lost = b.apply("add", b.apply("sub", b.apply("mul", high, high), square), cross)
    return square, b.apply("add", lost, b.apply("mul", low, low))


def _log1p(b: LoopBuilder, x: Complex) -> Complex:
    """The modulus from |1 + x|^2 - 1 in twice the precision, where that is near 0."""
    one, four, zero = _number(1, x), _number(4, x), _number(0, x)
    near = b.both(*(b.apply("lt", b.apply("abs", part), four) for part in (x.real, x.imag)))
    re, im = (b.apply("where", near, part, zero) for part in (x.real, x.imag))
    (re2, re2_lost), (im2, im2_lost) = _two_square(b, re), _two_square(b, im)
    first, first_lost = _two_sum(b, b.apply("mul", _number(2, x), re), re2)
    excess, excess_lost = _two_sum(b, first, im2)
    lost = b.apply("add", b.apply("add", b.apply("add", first_lost, excess_lost), re2_lost), im2_lost)
    total = b.apply("add", excess, lost)
    rest = b.apply("div", b.apply("sub", lost, b.apply("sub", total, excess)), b.apply("add", one, total))
    modulus = b.apply("mul", _number(0.5, x), b.apply("add", b.apply("log1p", total), rest))
    shifted = b.apply("add", x.real, one)
    far = _library("log")(b, Complex(shifted, x.imag)).real
    near = b.both(near, b.apply("lt", _number(-0.5, x), total))
    return Complex(b.apply("where", near, modulus, far), b.apply("atan2", x.imag, shifted))


def _logistic(b: LoopBuilder, x: Complex) -> Complex:
    """1 / (1 + e^-x), by whichever exponential does not overflow."""
    left, one = b.apply("lt", x.real, _number(0, x)), whole(_number(1, x))
    power = _power_of_e(b, _where(b, left, x, _part_by_part("neg")(b, x)))
    return _quotient(b, _where(b, left, power, one), _part_by_part("add")(b, one, power))


def _cbrt(b: LoopBuilder, x: Complex) -> Complex:
    """The principal cube root."""
    size = b.apply("cbrt", _abs(b, x))
    angle = b.apply("div", b.apply("atan2", x.imag, x.real), _number(3, x))
    return Complex(b.apply("mul", size, b.apply("cos", angle)), b.apply("mul", size, b.apply("sin", angle)))


def _atan2(b: LoopBuilder, y: Complex, x: Complex) -> Complex:
    """-i log((x + i y) / sqrt(x^2 + y^2))."""
    i, minus_i = (Complex(_number(re, x), _number(im, x)) for re, im in ((0.0, 1.0), (-0.0, -1.0)))
    add = _part_by_part("add")
    length = _library("sqrt")(b, add(b, _mul(b, x, x), _mul(b, y, y)))
    return _mul(b, minus_i, _library("log")(b, _quotient(b, add(b, x, _mul(b, i, y)), length)))


def _rsqrt(b: LoopBuilder, x: Complex) -> Complex:
    return _quotient(b, whole(_number(1, x)), _in_double(_library("sqrt"))(b, x))


def _pow(b: LoopBuilder, x: Complex, y: Complex) -> Complex:
    """1 for the power 0; of the base 0 only powers with a positive real part."""
    zero = whole(_number(0, x))
    positive, nan = b.apply("lt", zero.real, y.real), _number(math.nan, x)
    at_zero = _where(b, positive, zero, Complex(nan, nan))
    found = _where(b, _eq(b, x, zero), at_zero, _library("pow")(b, x, y))
    return _where(b, _eq(b, y, zero), whole(_number(1, x)), found)


def _library(name: str) -> Rule:
    """A function of the C library; its parts are two primitives."""

    def rule(b: LoopBuilder, *xs: Complex) -> Complex:
        reals = [part for x in xs for part in parts(x)]
        return Complex(b.apply(f"{name}.real", *reals), b.apply(f"{name}.imag", *reals))

    return rule


RULES: dict[str, Rule] = {
    "copy": lambda b, x: x, "add": _part_by_part("add"), "sub": _part_by_part("sub"), "neg": _part_by_part("neg"), "mul": _mul,
    "div": _div, "eq": _eq, "ne": lambda b, x, y: b.apply("not", _eq(b, x, y)), "where": _where, "abs": _abs, "sign": _sign,
    "max": _extreme("gt"), "min": _extreme("lt"), "rsqrt": _rsqrt, "conj": lambda b, x: Complex(x.real, b.apply("neg", x.imag)),
    **{name: _in_double(_library(name)) for name in COMPLEX},
    **{name: _in_double(rule) for name, rule in (
        ("exp", _exp), ("expm1", _expm1), ("log1p", _log1p), ("logistic", _logistic), ("cbrt", _cbrt), ("atan2", _atan2),
        ("pow", _pow), ("square", _square))},
}  # fmt: skip
"""By primitive, or by the op where its kernel is of reals only."""
