"""exp, log, tanh and what is built on them, in vector arithmetic of single and double precision; erf, erfc, sin and cos of single.

Each gives what IEEE arithmetic and C99 ask for NaN, infinities, signed zeros, subnormal numbers and overflow, and is within
5 units in the last place elsewhere (the tests hold every function to its bound). Reductions of the argument follow Cody and Waite;
the logarithms follow FreeBSD's msun (e_log.c, s_log1p.c).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from deepx_graph.runtime.native.llvm.builder import F4, F8, DType, IRBuilder, VectorValue


@dataclass(frozen=True)
class FloatFormat:
    """Numbers that depend on the precision."""

    bits: DType
    mantissa: int
    bias: int
    ln2_high: float
    ln2_low: float
    growth: tuple[float, ...]
    """Of (exp(r) - 1 - r) / r**2 in powers of r: interpolated at Chebyshev's points of [-ln2/2, ln2/2]."""
    lowest: float
    highest: float
    """Beyond these exp is 0, or infinite."""
    negligible: float
    """From this magnitude down, expm1 is -1."""
    half_root: int
    """The bits of sqrt(1/2)."""
    spread: int
    """Divisors between 2 to this power and its reciprocal have reciprocals whose low parts are normal."""
    series: tuple[float, ...]
    """Of (log(1+s) - log(1-s)) / s - 2, in powers of s*s."""


FORMATS = {
    F4: FloatFormat(np.dtype("i4"), 23, 127, 6.9314575195e-01, 1.4286067653e-06,
               (0.5, 0.16666576989698775, 0.041666554617204574, 0.008363179052722578, 0.0013926183587713494),
               -110.0, 88.8, -20.0, 0x3F3504F3, 100,
               (float.fromhex("0xaaaaaa.0p-24"), float.fromhex("0xccce13.0p-25"), float.fromhex("0x91e9ee.0p-25"),
                float.fromhex("0xf89e26.0p-26"))),
    F8: FloatFormat(np.dtype("i8"), 52, 1023, 6.93147180369123816490e-01, 1.90821492927058770002e-10,
               (0.5000000000000001, 0.16666666666666669, 0.04166666666662413, 0.008333333333330062, 0.0013888888917213717,
                0.00019841269863053618, 2.4801521295954376e-05, 2.7557268459997064e-06, 2.7620088445409746e-07,
                2.510038549551032e-08),
               -760.0, 709.9, -50.0,
               0x3FE6A09E_00000000, 900,
               (6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01, 2.222219843214978396e-01,
                1.818357216161805012e-01, 1.531383769920937332e-01, 1.479819860511658591e-01)),
}


_TANH_LINEAR, _TANH_ONE = 0.0004, 8.05
"""Below the first, tanh x is x; from the second on 1, to 4 units: farther out the ratio would pass it."""

_TANH_ABOVE = (4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05, 5.12229709037114e-08, -8.60467152213735e-11,
               2.00018790482477e-13, -2.76076847742355e-16)
_TANH_BELOW = (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06)

_ERF_END, _ERF_BASE = 3.93, 0.25
"""From the first on erf is 1; the second is what erf(x) / x nearly is there."""
_ERF_ABOVE = (8.783791454e-01, 6.517655741e-02, 2.422572543e-02, 3.012305187e-05, -6.484808821e-06, -7.459048030e-06)
_ERF_BELOW = (1.0, 5.024051929e-01, 1.142550452e-01, 1.499692110e-02, 1.165151107e-03, 3.800425859e-05)
"""A ratio of polynomials in x**2: erf(x) / x less `_ERF_BASE`, by least squares with weights that even out the relative error."""

_ERFC_FAR, _ERFC_END = 9.3, 10.1
"""From the first on exp(-x**2) is subnormal; from the second erfc is 0."""
_ERFC = (2.769783772e-01, -9.276395304e-02, -1.660304237e-01, 1.640549982e-01, -5.421416228e-02, -8.061172746e-03, 8.663637821e-03,
         1.328071521e-03, -1.263153446e-03, -4.236795820e-04)
"""Of (1 + 2a) exp(a**2) erfc(a) - 1 in powers of (a - 2) / (a + 2), as Shepherd and Laframboise (1981) have it: interpolated at
Chebyshev's points."""

_PI = (3.1415927410125732, -8.742277657347586e-08, -3.4302490200117637e-15)
"""pi as a sum of single floats."""
_SINE = (-0.16666659712791443, 0.008333064615726471, -0.0001980955566978082, 2.605680037959246e-06)
"""Of (sin(r) - r) / r**3 in powers of r**2, up to half of pi: by least squares as above, then moved by units in the last place
until no sine is beyond 1."""
_SINE_END = 1e5
"""Below this magnitude what remains of multiples of pi is exact enough."""


@dataclass(frozen=True)
class Reciprocal:
    """Of a divisor, as a sum: `high` a little nearer to zero than it, and the small rest of the same sign.

    `usual` says whether the divisor is neither so great nor so small that a part is subnormal.
    """

    usual: str
    high: VectorValue
    low: VectorValue


class Maths:
    """Writes functions of one precision into a `IRBuilder`."""

    def __init__(self, text: IRBuilder, dtype: DType) -> None:
        self.t, self.dtype, self.f = text, dtype, FORMATS[dtype]

    # --- shorthand

    def c(self, value: float) -> VectorValue:
        return self.t.splat(value, self.dtype)

    def i(self, value: int) -> VectorValue:
        return self.t.splat(value, self.f.bits)

    def add(self, x: VectorValue, y: VectorValue) -> VectorValue:
        return self.t.binary("fadd", x, y)

    def sub(self, x: VectorValue, y: VectorValue) -> VectorValue:
        return self.t.binary("fsub", x, y)

    def mul(self, x: VectorValue, y: VectorValue) -> VectorValue:
        return self.t.binary("fmul", x, y)

    def div(self, x: VectorValue, y: VectorValue) -> VectorValue:
        return self.t.binary("fdiv", x, y)

    def fma(self, x: VectorValue, y: VectorValue, z: VectorValue) -> VectorValue:
        return self.t.intrinsic("fma", x, y, z)

    def horner(self, x: VectorValue, coefficients: Sequence[float]) -> VectorValue:
        """The polynomial with these coefficients, that of the highest power last."""
        result = self.c(coefficients[-1])
        for k in reversed(coefficients[:-1]):
            result = self.fma(result, x, self.c(k))
        return result

    def to_bits(self, x: VectorValue) -> VectorValue:
        return self.t.convert("bitcast", x, self.f.bits)

    def from_bits(self, x: VectorValue) -> VectorValue:
        return self.t.convert("bitcast", x, self.dtype)

    def if_nan(self, x: VectorValue, otherwise: VectorValue) -> VectorValue:
        """x where it is NaN."""
        return self.t.select(self.t.compare("fcmp uno", x, x), x, otherwise)

    def clamp(self, x: VectorValue, low: float, high: float) -> VectorValue:
        """x within bounds; NaN stays NaN, and each half is one instruction."""
        x = self.t.select(self.t.compare("fcmp ogt", self.c(low), x), self.c(low), x)
        return self.t.select(self.t.compare("fcmp olt", self.c(high), x), self.c(high), x)

    # --- division by what stays the same

    def reciprocal(self, d: VectorValue) -> Reciprocal:
        """What `quotient` needs; worth it where many elements are divided by d."""
        low, high = np.array([2.0**-self.f.spread, 2.0**self.f.spread], self.dtype).view(self.f.bits).tolist()
        size = self.t.binary("sub", self.to_bits(self.t.intrinsic("fabs", d)), self.i(low))
        usual = self.t.all(self.t.compare("icmp ult", size, self.i(high - low)))
        nearest = self.div(self.c(1), d)
        below = self.from_bits(self.t.binary("sub", self.to_bits(nearest), self.i(1)))
        rest = self.fma(self.t.unary("fneg", d), below, self.c(1))
        return Reciprocal(usual, below, self.mul(rest, nearest))

    def quotient(self, x: VectorValue, d: VectorValue, r: Reciprocal) -> VectorValue:
        """x / d, of which one in some thousands is not the nearest number but its neighbour.

        Both parts of the reciprocal have one sign, so that zeros, infinities and NaN come out as by division.
        """
        return self.t.either(r.usual, lambda: self.fma(x, r.high, self.mul(x, r.low)), lambda: self.div(x, d))

    # --- exp

    def _reduced(self, x: VectorValue, low: float, high: float) -> tuple[VectorValue, VectorValue, VectorValue]:
        """x = n ln2 + r with x clamped: n as a float and as `_whole` gives it, and r."""
        return self._parted(self.clamp(x, low, high))

    def _parted(self, x: VectorValue) -> tuple[VectorValue, VectorValue, VectorValue]:
        """The same of an x that is within bounds."""
        shifted = self.fma(x, self.c(1 / math.log(2)), self.c(self._shift))
        n = self.sub(shifted, self.c(self._shift))
        r = self.fma(n, self.c(-self.f.ln2_high), x)
        return n, self.to_bits(shifted), self.fma(n, self.c(-self.f.ln2_low), r)

    @property
    def _shift(self) -> float:
        """Added to a float, it rounds that to an integer n; the low bits of the sum are those of n + 2 * bias."""
        return 1.5 * 2.0**self.f.mantissa + 2 * self.f.bias

    def _whole(self, n: VectorValue) -> VectorValue:
        """Integers whose low bits, as many as a float has beside its mantissa, are those of n + 2 * bias: of a float that is an
        integer. Processors have no such conversion for double precision before AVX-512, nor shifts with the sign."""
        return self.to_bits(self.add(n, self.c(self._shift)))

    def _power(self, whole: VectorValue, bias: int) -> VectorValue:
        """2**(whole - bias), from low bits as in `_whole`, within the exponents of normal numbers."""
        exponent = self.t.binary("sub", whole, self.i(bias - self.f.bias)) if bias != self.f.bias else whole
        return self.from_bits(self.t.binary("shl", exponent, self.i(self.f.mantissa)))

    def _scaled(self, x: VectorValue, whole: VectorValue, argument: VectorValue) -> VectorValue:
        """x * 2**n, which is exp(argument); at once where neither the power nor the result is subnormal or infinite."""
        low, high = (n * math.log(2) for n in (1 - self.f.bias, self.f.bias + 0.4))
        middle, reach = self.c((low + high) / 2), self.c((high - low) / 2)
        usual = self.t.compare("fcmp olt", self.t.intrinsic("fabs", self.sub(argument, middle)), reach)
        return self.t.either(self.t.all(usual), lambda: self.mul(x, self._power(whole, 2 * self.f.bias)),
                             lambda: self._scaled_far(x, whole, self.t.compare("fcmp olt", argument, self.c(low))))

    def _scaled_far(self, x: VectorValue, whole: VectorValue, subnormal: VectorValue) -> VectorValue:
        """The same in two steps, so that infinite results come out right. What is subnormal is rounded to an integer, the number of
        its bits: processors take many times as long for products that are."""
        least, unit = self.f.mantissa + self.f.bias - 1, self.c(2.0**self.f.mantissa)
        rounded = self.to_bits(self.fma(x, self._power(whole, 2 * self.f.bias - least), unit))
        small = self.from_bits(self.t.binary("sub", rounded, self.to_bits(unit)))
        return self.t.select(subnormal, small, self._in_two_steps(x, self.t.select(subnormal, self.i(2 * self.f.bias), whole)))

    def _in_two_steps(self, x: VectorValue, whole: VectorValue) -> VectorValue:
        """x * 2**n by two powers, neither of which is infinite."""
        half = self.t.binary("shl", self.t.binary("lshr", whole, self.i(1)), self.i(self.f.mantissa))
        rest = self.t.binary("sub", self.t.binary("shl", whole, self.i(self.f.mantissa)), half)
        return self.mul(self.mul(x, self.from_bits(half)), self.from_bits(rest))

    def exp(self, x: VectorValue) -> VectorValue:
        n, whole, r = self._reduced(x, self.f.lowest, self.f.highest)
        y = self.horner(r, (1.0, 1.0, *self.f.growth))
        return self._scalef(y, n) if self._has_scalef else self._scaled(y, whole, x)

    @property
    def _has_scalef(self) -> bool:
        return self.t.has_scalef and self.t.lanes * self.dtype.itemsize == 64

    def _scalef(self, x: VectorValue, n: VectorValue) -> VectorValue:
        """x * 2**n by the instruction of AVX-512."""
        type, kind = self.t.vector(self.dtype), "ps" if self.dtype == F4 else "pd"
        symbol = f"@llvm.x86.avx512.mask.scalef.{kind}.512"
        mask = f"i{self.t.lanes}"
        self.t.declare(f"declare {type} {symbol}({type}, {type}, {type}, {mask}, i32)")
        rest = f"{type} zeroinitializer, {mask} -1, i32 4"
        return self.t.each(lambda a, b: f"call {type} {symbol}({type} {a}, {type} {b}, {rest})", self.dtype, x, n)

    def expm1(self, x: VectorValue) -> VectorValue:
        _, whole, r = self._reduced(x, self.f.negligible, self.f.highest)
        p = self.fma(self.mul(r, r), self.horner(r, self.f.growth), r)
        half = self._power(whole, 2 * self.f.bias + 1)
        y = self.fma(half, p, self.sub(half, self.c(0.5)))
        y = self.add(y, y)
        y = self.t.select(self.t.compare("fcmp oeq", x, self.c(math.inf)), x, y)
        return self.t.select(self.t.compare("fcmp une", x, self.c(0)), self.if_nan(x, y), x)

    def tanh(self, x: VectorValue) -> VectorValue:
        if self.dtype == F4:
            return self._short_tanh(x)
        size = self.t.intrinsic("fabs", x)
        e = self.expm1(self.mul(size, self.c(-2)))
        y = self.div(e, self.sub(self.c(-2), e))
        return self.t.intrinsic("copysign", y, x)

    def _short_tanh(self, x: VectorValue) -> VectorValue:
        """In single precision: a ratio of polynomials, that of Eigen's MathFunctionsImpl.h; x itself near 0, and 1 far from it."""
        z = self.mul(x, x)
        y = self.div(self.mul(x, self.horner(z, _TANH_ABOVE)), self.horner(z, _TANH_BELOW))
        size = self.t.intrinsic("fabs", x)
        y = self.t.select(self.t.compare("fcmp ogt", size, self.c(_TANH_ONE)), self.t.intrinsic("copysign", self.c(1), x), y)
        return self.t.select(self.t.compare("fcmp ult", size, self.c(_TANH_LINEAR)), x, y)

    # --- erf, sin, cos: of single precision

    def erf(self, x: VectorValue) -> VectorValue:
        x = self.clamp(x, -_ERF_END, _ERF_END)
        z = self.mul(x, x)
        rest = self.div(self.horner(z, _ERF_ABOVE), self.horner(z, _ERF_BELOW))
        return self.fma(x, rest, self.mul(x, self.c(_ERF_BASE)))

    def erfc(self, x: VectorValue) -> VectorValue:
        """exp(-x**2) times what decays slowly, with what rounding of the square took; 2 less that for negative x."""
        size, end = self.t.intrinsic("fabs", x), self.c(_ERFC_END)
        a = self.t.select(self.t.compare("fcmp olt", end, size), end, size)
        q = self.div(self.sub(a, self.c(2)), self.add(a, self.c(2)))
        slow = self.div(self.add(self.horner(q, _ERFC), self.c(1)), self.fma(a, self.c(2), self.c(1)))
        exponent = self.t.unary("fneg", self.mul(a, a))
        lost = self.fma(a, a, exponent)
        n, whole, r = self._parted(exponent)
        y = self.mul(self.fma(self.t.unary("fneg", slow), lost, slow), self.horner(r, (1.0, 1.0, *self.f.growth)))
        y = self._scalef(y, n) if self._has_scalef else self.t.either(
            self.t.all(self.t.compare("fcmp olt", a, self.c(_ERFC_FAR))),
            lambda: self.mul(y, self._power(whole, 2 * self.f.bias)), lambda: self._in_two_steps(y, whole))
        return self.t.select(self.t.compare("fcmp olt", x, self.c(0)), self.sub(self.c(2), y), y)

    def sin(self, x: VectorValue, otherwise: Callable[[], VectorValue]) -> VectorValue:
        """Of usual arguments; `otherwise` is what to do with any."""
        size = self.t.intrinsic("fabs", x)
        usual = self.t.all(self.t.compare("fcmp olt", size, self.c(_SINE_END)))

        def near() -> VectorValue:
            k, whole = self._nearest(self.mul(size, self.c(1 / math.pi)))
            sign = self.t.binary("and", self.to_bits(x), self.i(-(1 << 8 * self.dtype.itemsize - 1)))
            return self._flip_sign(self._sine(size, k), self.t.binary("xor", self._parity_as_sign(whole), sign))

        return self.t.either(usual, near, otherwise)

    def cos(self, x: VectorValue, otherwise: Callable[[], VectorValue]) -> VectorValue:
        """As `sin`, of x + pi / 2."""
        usual = self.t.all(self.t.compare("fcmp olt", self.t.intrinsic("fabs", x), self.c(_SINE_END)))

        def near() -> VectorValue:
            k, whole = self._nearest(self.fma(x, self.c(1 / math.pi), self.c(0.5)))
            return self._flip_sign(self._sine(x, self.sub(k, self.c(0.5))), self._parity_as_sign(whole))

        return self.t.either(usual, near, otherwise)

    def _nearest(self, x: VectorValue) -> tuple[VectorValue, VectorValue]:
        """The integer nearest to x as a float, and bits whose lowest is its parity."""
        shift = self.c(1.5 * 2.0**self.f.mantissa)
        shifted = self.add(x, shift)
        return self.sub(shifted, shift), self.to_bits(shifted)

    def _sine(self, x: VectorValue, n: VectorValue) -> VectorValue:
        """sin(x - n pi), for n times two an integer near to x: the first difference is exact."""
        for part in _PI:
            x = self.fma(n, self.c(-part), x)
        z = self.mul(x, x)
        return self.fma(self.mul(x, z), self.horner(z, _SINE), x)

    def _parity_as_sign(self, whole: VectorValue) -> VectorValue:
        """The lowest bit in the place of the sign."""
        return self.t.binary("shl", whole, self.i(8 * self.dtype.itemsize - 1))

    def _flip_sign(self, y: VectorValue, sign: VectorValue) -> VectorValue:
        """y with its sign changed where that bit is set."""
        return self.from_bits(self.t.binary("xor", self.to_bits(y), sign))

    # --- log

    def _split(self, x: VectorValue) -> tuple[VectorValue, VectorValue]:
        """x = 2**k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), for normal positive x: k as a float, and f."""
        one = self.f.bias << self.f.mantissa
        bits = self.t.binary("add", self.to_bits(x), self.i(one - self.f.half_root))
        exponent = self.t.binary("lshr", bits, self.i(self.f.mantissa))
        fraction = self.t.binary("and", bits, self.i((1 << self.f.mantissa) - 1))
        m = self.from_bits(self.t.binary("add", fraction, self.i(self.f.half_root)))
        return self._float(self.t.binary("sub", exponent, self.i(self.f.bias))), self.sub(m, self.c(1))

    def _float(self, n: VectorValue) -> VectorValue:
        """Integers of less than half of the mantissa's bits as floats; AVX2 converts none of 64 bits."""
        if self.dtype == F4:
            return self.t.convert("sitofp", n, self.dtype)
        shift = self.c(1.5 * 2.0**self.f.mantissa)
        return self.sub(self.from_bits(self.t.binary("add", n, self.to_bits(shift))), shift)

    def _log_of(self, k: VectorValue, f: VectorValue) -> VectorValue:
        """k ln2 + log(1 + f)."""
        s = self.div(f, self.add(f, self.c(2)))
        z = self.mul(s, s)
        r = self.mul(z, self.horner(z, self.f.series))
        half = self.mul(self.mul(f, f), self.c(0.5))
        y = self.fma(s, self.add(half, r), self.mul(k, self.c(self._ln2_low)))
        return self.fma(k, self.c(self._ln2_high), self.add(self.sub(y, half), f))

    @property
    def _ln2_high(self) -> float:
        return 6.9313812256e-01 if self.dtype == F4 else self.f.ln2_high

    @property
    def _ln2_low(self) -> float:
        return 9.0580006145e-06 if self.dtype == F4 else self.f.ln2_low

    def log(self, x: VectorValue) -> VectorValue:
        return self.t.either(self._all_usual(x), lambda: self._log_of(*self._split(x)), lambda: self._any_log(x))

    def _all_usual(self, x: VectorValue) -> str:
        """Whether every lane is positive, normal and finite."""
        low, high = np.array([np.finfo(self.dtype).tiny, math.inf], self.dtype).view(self.f.bits).tolist()
        above = self.t.binary("sub", self.to_bits(x), self.i(low))
        return self.t.all(self.t.compare("icmp ult", above, self.i(high - low)))

    def _any_log(self, x: VectorValue) -> VectorValue:
        small = self.t.compare("fcmp olt", x, self.c(float(np.finfo(self.dtype).tiny)))
        grown = self.t.select(small, self.mul(x, self.c(2.0 ** (self.f.mantissa + 2))), x)
        k, f = self._split(grown)
        k = self.t.select(small, self.sub(k, self.c(self.f.mantissa + 2)), k)
        return self._log_limits(x, x, self._log_of(k, f))

    def _log_limits(self, x: VectorValue, argument: VectorValue, y: VectorValue) -> VectorValue:
        """y, with what log gives for 0, negative numbers, infinity and NaN for those."""
        y = self.t.select(self.t.compare("fcmp oeq", argument, self.c(math.inf)), argument, y)
        y = self.t.select(self.t.compare("fcmp oeq", argument, self.c(0)), self.c(-math.inf), y)
        y = self.t.select(self.t.compare("fcmp olt", argument, self.c(0)), self.c(math.nan), y)
        return self.if_nan(x, y)

    def log1p(self, x: VectorValue) -> VectorValue:
        u = self.add(x, self.c(1))
        y = self.t.either(self._all_usual(u), lambda: self._usual_log1p(x, u),
                          lambda: self._log_limits(x, u, self._usual_log1p(x, u)))
        return self.t.select(self.t.compare("fcmp une", x, self.c(0)), y, x)

    def _usual_log1p(self, x: VectorValue, u: VectorValue) -> VectorValue:
        """With u = 1 + x rounded, which is 2**k (1 + g): 1 + x is 2**k (1 + f), and 2**-k x + (2**-k - 1) is f, rounded once."""
        k, g = self._split(u)
        scale = self._power(self._whole(self.t.unary("fneg", k)), 2 * self.f.bias)
        f = self.fma(x, scale, self.sub(scale, self.c(1)))
        f = self.t.select(self.t.compare("fcmp olt", x, self.c(2.0**64)), f, g)
        return self._log_of(k, f)
