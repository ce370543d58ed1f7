"""Special functions as formulas of plain operations, for targets without an operation for them.

f32 and f64 are computed in their own precision. Polynomials are those of Cephes (erfc, and the Chebyshev series of the Bessel
functions) and of Giles, "Approximating the erfinv function";
lgamma and digamma are the Lanczos sum with g = 7, reflected below 1/2; zeta is Euler-Maclaurin summation,
reflected left of 0.
Every function takes operands of one float type, f32 or f64.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import dropwhile

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Builder, Node, Op
from deepx_graph.types import F32, as_tensor


def _single(x: Node) -> bool:
    return as_tensor(x.type).dtype is F32


def greatest(x: Node) -> float:
    """The greatest finite number of the node's type."""
    return float(np.finfo(np.float32 if _single(x) else np.float64).max)


def _is(b: Builder, x: Node, direction: str, y: Node | float) -> Node:
    return b(ops.compare, x, y if isinstance(y, Node) else b.like(y, x), direction=direction)


def _choose(b: Builder, test: Node, yes: Node | float, no: Node) -> Node:
    return b(ops.select, test, yes if isinstance(yes, Node) else b.like(yes, no), no)


def _with(b: Builder, op: Op, x: Node, y: float) -> Node:
    return b(op, x, b.like(y, x))


def _polynomial(b: Builder, x: Node, coefficients: Sequence[float]) -> Node:
    """By Horner, highest power first."""
    total = b.like(coefficients[0], x)
    for c in coefficients[1:]:
        total = _with(b, ops.add, b(ops.multiply, total, x), c)
    return total


# --- the angle of a point -----------------------------------------------------------------------------------------

_ATAN_F32 = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_ATAN_P = (-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1, -1.228866684490136173410e2,
           -6.485021904942025371773e1)  # fmt: skip
_ATAN_Q = (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2, 4.853903996359136964868e2,
           1.945506571482613964425e2)  # fmt: skip


def _atan_within_1(b: Builder, t: Node) -> Node:
    """Of 0 to 1; beyond tan(pi / 8) by atan(t) = pi / 4 + atan((t - 1) / (t + 1))."""
    beyond = _is(b, t, "GT", math.tan(math.pi / 8))
    x = _choose(b, beyond, b(ops.divide, _with(b, ops.subtract, t, 1), _with(b, ops.add, t, 1)), t)
    z = b(ops.multiply, x, x)
    above, below = (_ATAN_F32, (1.0,)) if _single(t) else (_ATAN_P, _ATAN_Q)
    slope = b(ops.divide, _polynomial(b, z, above), _polynomial(b, z, below))
    angle = b(ops.add, b(ops.multiply, b(ops.multiply, slope, z), x), x)
    return _choose(b, beyond, _with(b, ops.add, angle, math.pi / 4), angle)


def _is_negative(b: Builder, x: Node) -> Node:
    """Whether its sign is set, that of a zero too."""
    return _is(b, _choose(b, _is(b, x, "EQ", 0), b(ops.divide, b.like(1, x), x), x), "LT", 0)


def atan2(b: Builder, y: Node, x: Node) -> Node:
    """The angle of the point (x, y), from its octant in the first quadrant."""
    a, c = b(ops.abs_, y), b(ops.abs_, x)
    most = b(ops.maximum, a, c)
    t = _choose(b, _is(b, a, "EQ", c), 1, b(ops.divide, b(ops.minimum, a, c), most))
    angle = _atan_within_1(b, _choose(b, _is(b, most, "EQ", 0), 0, t))
    angle = _choose(b, _is(b, a, "GT", c), b(ops.subtract, b.like(math.pi / 2, x), angle), angle)
    angle = _choose(b, _is_negative(b, x), b(ops.subtract, b.like(math.pi, x), angle), angle)
    return _choose(b, _is_negative(b, y), b(ops.negate, angle), angle)


# --- error functions ----------------------------------------------------------------------------------------------

_ERFC_1_F32 = (
    7.85386146e-05, -0.000801019371, 0.00518832775, -0.0268538129, 0.112835854, -0.37612626, 1.12837911,
)
_ERFC_2_F32 = (
    0.0232682, -0.138703942, 0.368742466, -0.582473278, 0.621000469, -0.494451523, 0.340488, -0.274112701, 0.563825965,
)
_ERFC_3_F32 = (-10.477664, 12.9772, -7.49551868, 2.92101908, -1.01526523, 0.42184633, -0.282076746, 0.564189494)
_ERFC_T = (9.6049737398705162, 90.026019720384269, 2232.0053459468431, 7003.3251411280507, 55592.301301039493)
_ERFC_U = (1.0, 33.561714164750313, 521.35794978015269, 4594.3238297098014, 22629.000061389095, 49267.394260863592)
_ERFC_P = (
    2.4619698147353052e-10, 0.56418956483106886, 7.4632105644226989, 48.637197098568137, 196.5208329560771,
    526.44519499547732, 934.52852717195765, 1027.5518868951572, 557.53533536939938,
)
_ERFC_Q = (
    1.0, 13.228195115474499, 86.707214088598974, 354.93777888781989, 975.70850174320549, 1823.9091668790973,
    2246.3376081871097, 1656.6630919416134, 557.53534081772773,
)
_ERFC_R = (
    0.56418958354775506, 1.275366707599781, 5.0190504225118051, 6.160210979930536, 7.4097426995044895, 2.9788666537210022,
)
_ERFC_S = (
    1.0, 2.2605286322011726, 9.3960352493800148, 12.048953980809666, 17.081445074756591, 9.6089680906328585,
    3.3690764510008151,
)


def _erf_within_1(b: Builder, x: Node, square: Node) -> Node:
    if _single(x):
        return b(ops.multiply, x, _polynomial(b, square, _ERFC_1_F32))
    return b(ops.multiply, x, b(ops.divide, _polynomial(b, square, _ERFC_T), _polynomial(b, square, _ERFC_U)))


def erfc(b: Builder, x: Node) -> Node:
    """1 - erf(x): a polynomial of x^2 within 1, outside e^(-x^2) times one; 0 where that underflows."""
    a, square = b(ops.abs_, x), b(ops.multiply, x, x)
    e = b(ops.exponential, b(ops.negate, square))
    if _single(x):
        inverse = b(ops.divide, b.like(1, x), square)
        far = _choose(b, _is(b, a, "LT", 2), _polynomial(b, inverse, _ERFC_2_F32), _polynomial(b, inverse, _ERFC_3_F32))
        far = b(ops.divide, b(ops.multiply, e, far), a)
    else:
        middle = b(ops.divide, _polynomial(b, a, _ERFC_P), _polynomial(b, a, _ERFC_Q))
        outer = b(ops.divide, _polynomial(b, a, _ERFC_R), _polynomial(b, a, _ERFC_S))
        far = b(ops.multiply, e, _choose(b, _is(b, a, "LT", 8), middle, outer))
    far = _choose(b, _is(b, square, "GT", math.log(greatest(x))), 0, far)
    far = _choose(b, _is(b, x, "LT", 0), b(ops.subtract, b.like(2, x), far), far)
    return _choose(b, _is(b, a, "LT", 1), b(ops.subtract, b.like(1, x), _erf_within_1(b, x, square)), far)


def erf(b: Builder, x: Node) -> Node:
    """A polynomial within 1, outside 1 - erfc(x)."""
    a, square = b(ops.abs_, x), b(ops.multiply, x, x)
    return _choose(b, _is(b, a, "LT", 1), _erf_within_1(b, x, square), b(ops.subtract, b.like(1, x), erfc(b, x)))


_ERF_INV_F32 = (
    (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
     0.246640727, 1.50140941),
    (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
     1.00167406, 2.83297682),
)  # fmt: skip
_ERF_INV = (
    (-3.64441206401782e-21, -1.6850591381820166e-19, 1.28584807152564e-18, 1.1157877678025181e-17, -1.3331716628546209e-16,
     2.0972767875968562e-17, 6.6376381343583238e-15, -4.0545662729752069e-14, -8.1519341976054722e-14,
     2.6335093153082323e-12, -1.2975133253453532e-11, -5.4154120542946279e-11, 1.0512122733215323e-09,
     -4.1126339803469837e-09, -2.9070369957882005e-08, 4.2347877827932404e-07, -1.3654692000834679e-06,
     -1.3882523362786469e-05, 0.00018673420803405714, -0.000740702534166267, -0.0060336708714301491,
     0.24015818242558962, 1.6536545626831027),
    (2.2137376921775787e-09, 9.0756561938885391e-08, -2.7517406297064545e-07, 1.8239629214389228e-08,
     1.5027403968909828e-06, -4.013867526981546e-06, 2.9234449089955446e-06, 1.2475304481671779e-05,
     -4.7318229009055734e-05, 6.8284851459573175e-05, 2.4031110387097894e-05, -0.00035503752036284748,
     0.0009532893797373805, -0.0016882755560235047, 0.0024914420961078508, -0.0037512085075692412,
     0.0053709145535900636, 1.0052589676941592, 3.0838856104922208),
    (-2.7109920616438573e-11, -2.5556418169965252e-10, 1.5076572693500548e-09, -3.789465440126737e-09,
     7.61570120807834e-09, -1.496002662714924e-08, 2.9147953450901081e-08, -6.7711997758452339e-08,
     2.2900482228026655e-07, -9.9298272942317e-07, 4.5260625972231537e-06, -1.9681778105531671e-05,
     7.5995277030017761e-05, -0.00021503011930044477, -0.00013871931833623122, 1.0103004648645344, 4.8499064014085844),
)  # fmt: skip


def erf_inv(b: Builder, x: Node) -> Node:
    """x times a polynomial of w = -log((1 - x) (1 + x)), or of its root where w is large; infinite at -1 and 1."""
    one = b.like(1, x)
    w = b(ops.negate, b(ops.log, b(ops.multiply, b(ops.subtract, one, x), b(ops.add, one, x))))
    root = b(ops.sqrt, w)
    pieces, limits, shifts = (_ERF_INV_F32, (5.0,), (2.5, 3.0)) if _single(x) else (_ERF_INV, (6.25, 16.0), (3.125, 3.25, 5.0))
    values = [_polynomial(b, _with(b, ops.subtract, root if k else w, shift), piece)
              for k, (piece, shift) in enumerate(zip(pieces, shifts, strict=True))]
    slope = values[-1]
    for limit, value in reversed(list(zip(limits, values[:-1], strict=True))):
        slope = _choose(b, _is(b, w, "LT", limit), value, slope)
    at_end = _is(b, b(ops.abs_, x), "EQ", 1)
    return _choose(b, at_end, _with(b, ops.multiply, x, math.inf), b(ops.multiply, x, slope))


# --- the gamma function -------------------------------------------------------------------------------------------

_LANCZOS = (
    676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059, 12.507343278686905,
    -0.13857109526572012, 9.9843695780195716e-06, 1.5056327351493116e-07,
)
_LANCZOS_0, _G, _LARGE = 0.99999999999980993, 7.5, 1e17


def _reflected(b: Builder, x: Node) -> tuple[Node, Node]:
    """Whether x < 1/2, and z with gamma(z + 1) = gamma(x), or gamma(1 - x) there."""
    below = _is(b, x, "LT", 0.5)
    return below, b(ops.select, below, b(ops.negate, x), _with(b, ops.subtract, x, 1))


def _lanczos(b: Builder, z: Node) -> tuple[Node, Sequence[Node], Node]:
    """The Lanczos sum at z, the inverses of z + 1, z + 2, ... of which it is made, and the logarithm of z + g + 1/2. A division
    gives two inverses; those of a large z do not count, and are kept from infinities."""
    near = _with(b, ops.minimum, z, _LARGE)
    inverses: list[Node] = []
    for k in range(1, len(_LANCZOS), 2):
        one, other = (_with(b, ops.add, near, n) for n in (k, k + 1))
        both = b(ops.divide, b.like(1, z), b(ops.multiply, one, other))
        inverses += b(ops.multiply, both, other), b(ops.multiply, both, one)
    total = b.like(_LANCZOS_0, z)
    for inverse, c in zip(inverses, _LANCZOS, strict=True):
        total = b(ops.add, total, _with(b, ops.multiply, inverse, c))
    return total, inverses, _with(b, ops.add, b(ops.log_plus_one, _with(b, ops.divide, z, _G)), math.log(_G))


def lgamma(b: Builder, x: Node) -> Node:
    """log |gamma(x)|; below 1/2 by log pi - log |sin pi x| - lgamma(1 - x). Infinite at the poles and at both infinities,
    and 0 at 1 and 2 to the bit."""
    below, z = _reflected(b, x)
    total, _, log_t = _lanczos(b, z)
    t = _with(b, ops.add, z, _G)
    power = b(ops.multiply, b(ops.subtract, _with(b, ops.add, z, 0.5), b(ops.divide, t, log_t)), log_t)
    above = b(ops.add, _with(b, ops.add, power, math.log(2 * math.pi) / 2), b(ops.log, total))
    a = b(ops.abs_, x)
    part = b(ops.subtract, a, b(ops.floor, a))
    part = _choose(b, _is(b, part, "GT", 0.5), b(ops.subtract, b.like(1, x), part), part)
    log_sine = b(ops.log, b(ops.sine, _with(b, ops.multiply, part, math.pi)))
    mirrored = b(ops.subtract, b(ops.subtract, b.like(math.log(math.pi), x), log_sine), above)
    mirrored = b(ops.select, b(ops.is_finite, log_sine), mirrored, b(ops.negate, log_sine))
    value = b(ops.select, below, mirrored, above)
    value = _choose(b, b(ops.or_, _is(b, x, "EQ", 1), _is(b, x, "EQ", 2)), 0, value)
    return _choose(b, _is(b, a, "EQ", math.inf), math.inf, value)


def digamma(b: Builder, x: Node) -> Node:
    """The derivative of lgamma; below 1/2 by digamma(1 - x) - pi / tan(pi x). NaN at the poles."""
    below, z = _reflected(b, x)
    total, inverses, log_t = _lanczos(b, z)
    slope = b.like(0, z)
    for inverse, c in zip(inverses, _LANCZOS, strict=True):
        slope = b(ops.subtract, slope, b(ops.multiply, inverse, _with(b, ops.multiply, inverse, c)))
    above = b(ops.add, log_t, b(ops.divide, slope, total))
    above = b(ops.subtract, above, b(ops.divide, b.like(_G - 0.5, x), _with(b, ops.add, z, _G)))
    nearest = b(ops.abs_, b(ops.floor, _with(b, ops.add, x, 0.5)))
    angle = _with(b, ops.multiply, b(ops.add, x, nearest), math.pi)
    cotangent = b(ops.divide, _with(b, ops.multiply, b(ops.cosine, angle), math.pi), b(ops.sine, angle))
    value = b(ops.select, below, b(ops.subtract, above, cotangent), above)
    pole = b(ops.and_, _is(b, x, "LE", 0), _is(b, x, "EQ", b(ops.floor, x)))
    return _choose(b, pole, math.nan, value)


_ZETA_TERMS = 9
_BERNOULLI = (
    -7.1661652561756670113e18, 1.8152105401943546773e17, -4.5979787224074726105e15, 1.1646782814350067249e14,
    -2.950130727918164224e12, 7.47242496e10, -1.8924375803183791606e9, 47900160.0, -1209600.0, 30240.0, -720.0, 12.0,
)
"""(2j)! / B_2j from j = 12 down to 1."""


def _zeta_of_positive(b: Builder, s: Node, q: Node) -> Node:
    """Ten terms of the sum, the integral of the rest, and corrections by Bernoulli numbers, none where the last term is 0."""
    minus_s = b(ops.negate, s)
    a, total = q, b(ops.power, q, minus_s)
    for _ in range(_ZETA_TERMS):
        a = _with(b, ops.add, a, 1)
        total = b(ops.add, total, b(ops.power, a, minus_s))
    a = _with(b, ops.add, a, 1)
    last = b(ops.power, a, minus_s)
    beyond_1 = _with(b, ops.subtract, s, 1)
    total = b(ops.add, total, b(ops.divide, b(ops.power, a, b(ops.negate, beyond_1)), beyond_1))
    over = b(ops.divide, b.like(1, a), b(ops.multiply, a, a))
    sums = b.like(1 / _BERNOULLI[0], s)
    for k, c in enumerate(_BERNOULLI[1:]):
        rise = 2 * (len(_BERNOULLI) - 1 - k)
        factors = b(ops.multiply, _with(b, ops.add, s, rise - 1), _with(b, ops.add, s, rise))
        sums = _with(b, ops.add, b(ops.multiply, b(ops.multiply, factors, over), sums), 1 / c)
    correction = _with(b, ops.add, b(ops.multiply, b(ops.divide, s, a), sums), 0.5)
    return b(ops.select, _is(b, last, "EQ", 0), total, b(ops.add, total, b(ops.multiply, last, correction)))


def _is_even(b: Builder, n: Node) -> Node:
    half = _with(b, ops.multiply, n, 0.5)
    return _is(b, half, "EQ", b(ops.floor, half))


def zeta(b: Builder, s: Node, q: Node) -> Node:
    """The Hurwitz zeta function: the sum of (q + k)^-s over all k from 0 on.

    Left of 0 there are terms on both sides of 0. With frac x = x - floor(x) those right of it are zeta(s, frac q), the others
    (-1)^s (zeta(s, frac(-q)) - zeta(s, 1 - q)), so that none is added one by one, however far q is. Defined there for whole s only.
    """
    left, mirrored = _is(b, q, "LT", 0), b(ops.abs_, q)
    right_terms = _zeta_of_positive(b, s, b(ops.select, left, b(ops.subtract, q, b(ops.floor, q)), q))
    near = _zeta_of_positive(b, s, b(ops.subtract, mirrored, b(ops.floor, mirrored)))
    left_terms = b(ops.subtract, near, _zeta_of_positive(b, s, _with(b, ops.add, mirrored, 1)))
    left_terms = b(ops.select, _is_even(b, s), left_terms, b(ops.negate, left_terms))
    value = b(ops.select, left, b(ops.add, right_terms, left_terms), right_terms)
    whole_s, whole_q = (_is(b, v, "EQ", b(ops.floor, v)) for v in (s, q))
    beyond = _choose(b, whole_q, math.inf, _choose(b, whole_s, value, b.like(math.nan, value)))
    value = b(ops.select, _is(b, q, "LE", 0), beyond, value)
    return _choose(b, _is(b, s, "LT", 1), math.nan, _choose(b, _is(b, s, "EQ", 1), math.inf, value))


def polygamma(b: Builder, n: Node, x: Node) -> Node:
    """(-1)^(n+1) n! zeta(n + 1, x); digamma for n = 0. NaN unless n is a whole number that is not negative."""
    successor = _with(b, ops.add, n, 1)
    size = b(ops.multiply, b(ops.exponential, lgamma(b, successor)), zeta(b, successor, x))
    value = b(ops.select, _is_even(b, n), b(ops.negate, size), size)
    value = b(ops.select, _is(b, n, "EQ", 0), digamma(b, x), value)
    right = b(ops.and_, _is(b, n, "GE", 0), _is(b, n, "EQ", b(ops.floor, n)))
    return b(ops.select, right, value, b.like(math.nan, value))


# --- Bessel -------------------------------------------------------------------------------------------------------

_I0E_WITHIN_8_F32 = (
    -1.30002498e-08, 6.04699508e-08, -2.67079372e-07, 1.11738757e-06, -4.41673819e-06, 1.64484482e-05,
    -5.75419508e-05, 0.000188502891, -0.000576375576, 0.00163947558, -0.00432431, 0.0105464607, -0.0237374157,
    0.0493052825, -0.0949011, 0.171620905, -0.304682672, 0.676795304,
)
_I0E_BEYOND_8_F32 = (
    3.39623196e-09, 2.26666899e-08, 2.04891862e-07, 2.89137051e-06, 6.88975852e-05, 0.00336911646, 0.804490387,
)
_I0E_WITHIN_8 = (
    -4.4153416464793395e-18, 3.3307945188222384e-17, -2.431279846547955e-16, 1.715391285555133e-15,
    -1.1685332877993451e-14, 7.676185498604936e-14, -4.856446783111929e-13, 2.95505266312964e-12,
    -1.726826291441556e-11, 9.675809035373237e-11, -5.189795601635263e-10, 2.6598237246823866e-09,
    -1.300025009986248e-08, 6.046995022541919e-08, -2.670793853940612e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05, 0.00018850288509584165,
    -0.0005763755745385824, 0.0016394756169413357, -0.004324309995050576, 0.010546460394594998, -0.02373741480589947,
    0.04930528423967071, -0.09490109704804764, 0.17162090152220877, -0.3046826723431984, 0.6767952744094761,
)
_I0E_BEYOND_8 = (
    -7.233180487874754e-18, -4.830504485944182e-18, 4.46562142029676e-17, 3.461222867697461e-17,
    -2.8276239805165836e-16, -3.425485619677219e-16, 1.7725601330565263e-15, 3.8116806693526224e-15,
    -9.554846698828307e-15, -4.150569347287222e-14, 1.54008621752141e-14, 3.8527783827421426e-13,
    7.180124451383666e-13, -1.7941785315068062e-12, -1.3215811840447713e-11, -3.1499165279632416e-11,
    1.1889147107846439e-11, 4.94060238822497e-10, 3.3962320257083865e-09, 2.266668990498178e-08,
    2.0489185894690638e-07, 2.8913705208347567e-06, 6.889758346916825e-05, 0.0033691164782556943, 0.8044904110141088,
)
_I1E_WITHIN_8_F32 = (
    9.38153732e-09, -4.44505908e-08, 2.00329481e-07, -8.56872e-07, 3.47025139e-06, -1.32731639e-05, 4.78156508e-05,
    -0.000161760821, 0.000512286, -0.00151357241, 0.0041564228, -0.0105640851, 0.0247264486, -0.0529459827, 0.102643661,
    -0.176416516, 0.252587199,
)
_I1E_BEYOND_8_F32 = (
    -3.83538046e-09, -2.63146891e-08, -2.51223611e-07, -3.88256467e-06, -0.000110588939, -0.00976109784, 0.778576255,
)
_I1E_WITHIN_8 = (
    2.7779141127610464e-18, -2.111421214358166e-17, 1.5536319577362005e-16, -1.1055969477353862e-15, 7.6006842947354077e-15,
    -5.0421855047279118e-14, 3.2237933659455748e-13, -1.9839743977649436e-12, 1.1736186298890901e-11,
    -6.6634897235020271e-11, 3.6255902815521172e-10, -1.8872497517228294e-09, 9.3815373864957726e-09,
    -4.4450591287963281e-08, 2.0032947535521353e-07, -8.5687202646954547e-07, 3.4702513081376785e-06,
    -1.3273163656039436e-05, 4.7815651075500542e-05, -0.00016176081582589674, 0.00051228595616857576,
    -0.0015135724506312532, 0.0041564229443128882, -0.010564084894626197, 0.024726449030626516, -0.052945981208094989,
    0.10264365868984709, -0.17641651835783406, 0.25258718644363365,
)
_I1E_BEYOND_8 = (
    7.5172963108421052e-18, 4.4143483230717077e-18, -4.6503053684893586e-17, -3.2095259219934238e-17, 2.96262899764595e-16,
    3.3082023109209285e-16, -1.8803547755107825e-15, -3.8144030724370075e-15, 1.0420276984128802e-14,
    4.272440016711951e-14, -2.1015418427726643e-14, -4.0835511110921974e-13, -7.1985517762459084e-13,
    2.0356285441470896e-12, 1.4125807436613782e-11, 3.2526035830154884e-11, -1.8974958123505413e-11,
    -5.5897434621965838e-10, -3.835380385964237e-09, -2.6314688468895196e-08, -2.5122362378702088e-07,
    -3.8825648088776906e-06, -0.00011058893876262371, -0.0097610974913614687, 0.77857623501828011,
)


def _chebyshev(b: Builder, x: Node, coefficients: Sequence[float]) -> Node:
    """Half the difference of the last terms of Clenshaw's recurrence, as in Cephes' chbevl."""
    b0 = b1 = b2 = b.like(0, x)
    for c in coefficients:
        b0, b1, b2 = _with(b, ops.add, b(ops.subtract, b(ops.multiply, x, b0), b1), c), b0, b1
    return _with(b, ops.multiply, b(ops.subtract, b0, b2), 0.5)


def _bessel(b: Builder, a: Node, within: Sequence[float], beyond: Sequence[float], least: float) -> tuple[Node, Node]:
    """The series in a / 2 - 2, for a within 8; and that in 32 / a - 2, over the root of a; without the first, smaller terms."""
    within, beyond = (tuple(dropwhile(lambda c: abs(c) < least, terms)) for terms in (within, beyond))
    near = _chebyshev(b, _with(b, ops.subtract, _with(b, ops.multiply, a, 0.5), 2), within)
    far = _chebyshev(b, _with(b, ops.subtract, b(ops.divide, b.like(32, a), a), 2), beyond)
    return near, b(ops.divide, far, b(ops.sqrt, a))


def bessel_i0e(b: Builder, x: Node, least: float = 0.0) -> Node:
    """e^-|x| times the modified Bessel function of order 0; even. Terms of its series less than `least` are left out."""
    a = b(ops.abs_, x)
    within, beyond = (_I0E_WITHIN_8_F32, _I0E_BEYOND_8_F32) if _single(x) else (_I0E_WITHIN_8, _I0E_BEYOND_8)
    return b(ops.select, _is(b, a, "LE", 8), *_bessel(b, a, within, beyond, least))


def bessel_i1e(b: Builder, x: Node, least: float = 0.0) -> Node:
    """e^-|x| times the modified Bessel function of order 1; odd. Terms of its series less than `least` are left out."""
    a = b(ops.abs_, x)
    within, beyond = (_I1E_WITHIN_8_F32, _I1E_BEYOND_8_F32) if _single(x) else (_I1E_WITHIN_8, _I1E_BEYOND_8)
    near, far = _bessel(b, a, within, beyond, least)
    return b(ops.multiply, b(ops.sign, x), b(ops.select, _is(b, a, "LE", 8), b(ops.multiply, a, near), far))
