"""Special, hyperbolic and inverse functions (the CHLO dialect). scipy serves what numpy lacks, imported when first evaluated.

Values of f16, bf16 and f32 are computed in f64 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from deepx_graph.ir import Builder, Node, Op, Result
from deepx_graph.ir.constraint import BOOLS
from deepx_graph.literal import Array
from deepx_graph.ops.helpers import binary, like, loops_in, truth, unary
from deepx_graph.ops.math import complex_math
from deepx_graph.ops.math.elementwise import (
    abs_,
    add,
    compare,
    complex_,
    divide,
    exponential,
    imag,
    is_complex,
    multiply,
    negate,
    real,
    rsqrt,
    select,
    sign,
    subtract,
)
from deepx_graph.types import Kind

FLOAT: tuple[Kind, ...] = ("float",)

_FORMULA = loops_in("math", "formula_element")
_IN_DOUBLE = loops_in("math", "double_element")


def _in_f64(function: Callable[..., Any]) -> Callable[[Sequence[Array]], Array]:
    """The eval of a function that numpy or scipy computes in f64 (c128 for complex operands)."""

    def eval(xs: Sequence[Array]) -> Array:
        wide = np.complex128 if xs[0].dtype.kind == "c" else np.float64
        return like(function(*(x.astype(wide) for x in xs)), xs[0].dtype)

    return eval


def _scipy(name: str) -> Callable[..., Any]:
    """A function of scipy.special, looked up when it is called: importing scipy takes a while."""

    def call(*xs: Array) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(*xs)

    return call


def _odd(function: Callable[..., Any]) -> Callable[..., Any]:
    """With the sign of the operand, which scipy loses at zero."""
    return lambda x: np.copysign(function(x), x)


def _chlo(name: str, summary: str, function: Callable[..., Any], **fields: Any) -> Op:
    return unary(name, summary, _in_f64(function), source=f"CHLO {name}", **fields)


def _square(b: Builder, x: Node) -> Node:
    return b(multiply, x, x)


def _times(b: Builder, g: Node, by: Node) -> Node:
    return b(multiply, g, by)


cosh: Op = _chlo("cosh", "The hyperbolic cosine.", np.cosh, element=_FORMULA,
                 vjp=lambda b, x, y, g: _times(b, g, b(sinh, x)))
sinh: Op = _chlo("sinh", "The hyperbolic sine.", np.sinh, element=_FORMULA,
                 vjp=lambda b, x, y, g: _times(b, g, b(cosh, x)))
acos: Op = _chlo("acos", "The angle with that cosine.", np.arccos, domain=(-0.9, 0.9), element=_FORMULA,
                 vjp=lambda b, x, y, g: b(
    negate, _times(b, g, b(rsqrt, b(subtract, b.like(1, x), _square(b, x))))))
asin: Op = _chlo("asin", "The angle with that sine.", np.arcsin, domain=(-0.9, 0.9), element=_FORMULA,
                 vjp=lambda b, x, y, g: _times(
    b, g, b(rsqrt, b(subtract, b.like(1, x), _square(b, x)))))
atan: Op = _chlo("atan", "The angle with that tangent.", np.arctan, element=_FORMULA,
                 vjp=lambda b, x, y, g: b(
    divide, g, b(add, b.like(1, x), _square(b, x))))
acosh: Op = _chlo("acosh", "The inverse of the hyperbolic cosine.", np.arccosh, domain=(1.2, 3.0), element=_FORMULA,
                  vjp=lambda b, x, y, g: _times(
    b, g, b(rsqrt, b(subtract, _square(b, x), b.like(1, x)))))
asinh: Op = _chlo("asinh", "The inverse of the hyperbolic sine.", np.arcsinh, element=_FORMULA,
                  vjp=lambda b, x, y, g: _times(
    b, g, b(rsqrt, b(add, _square(b, x), b.like(1, x)))))
atanh: Op = _chlo("atanh", "The inverse of the hyperbolic tangent.", np.arctanh, domain=(-0.9, 0.9), element=_FORMULA,
                  vjp=lambda b, x, y, g: b(
    divide, g, b(subtract, b.like(1, x), _square(b, x))))
square: Op = _chlo("square", "The product with itself.", lambda x: complex_math.square(x) if x.dtype.kind == "c" else np.square(x),
                   kernel="x * x",
                   vjp=lambda b, x, y, g: _times(b, g, b(multiply, b.like(2, x), x)))
conj: Op = unary("conj", "The complex conjugate.", lambda xs: np.conj(xs[0]),
                 algebraic=True, source="CHLO conj", involution=True, element=_FORMULA,
                 vjp=lambda b, x, y, g: b(complex_, b(real, g), b(negate, b(imag, g))) if is_complex(x.type) else g)


def _gauss(b: Builder, x: Node, factor: float) -> Node:
    return b(multiply, b.like(factor, x), b(exponential, b(negate, _square(b, x))))


_SLOPE = 2 / math.sqrt(math.pi)


def _erfc(x: Array) -> Any:
    """On the right e^(-x^2) times a slow function, with the square in twice the precision; scipy's own loses places there."""
    right = np.clip(x, 0.5, 30)
    square, lost = complex_math.two_square(right)
    return np.where(x > 0.5, _scipy("erfcx")(right) * np.exp(-square) * (1 - lost), _scipy("erfc")(x))


def _erfc_eval(xs: Sequence[Array]) -> Array:
    """Of narrower floats scipy's own loses nothing."""
    return _in_f64(_erfc if xs[0].dtype == np.float64 else _scipy("erfc"))(xs)


erf: Op = _chlo("erf", "The error function.", _scipy("erf"), kernel="erf(x)", kinds=FLOAT,
                vjp=lambda b, x, y, g: _times(b, g, _gauss(b, x, _SLOPE)))
erfc: Op = unary("erfc", "One minus the error function.", _erfc_eval, source="CHLO erfc", kernel="erfc(x)", kinds=FLOAT,
                 vjp=lambda b, x, y, g: _times(b, g, _gauss(b, x, -_SLOPE)))
erf_inv: Op = _chlo("erf_inv", "The inverse of the error function.", _odd(_scipy("erfinv")), kinds=FLOAT, domain=(-0.9, 0.9),
                    element=_FORMULA,
                    vjp=lambda b, x, y, g: _times(b, g, b(multiply, b.like(1 / _SLOPE, x), b(exponential, _square(b, y)))))


@cache
def _lgamma_series() -> Array:
    """lgamma(2 + d) / d in powers of d: 1 - gamma, then (-1)^k (zeta(k) - 1) / k."""
    k = np.arange(2, 34)
    return np.concatenate([[1 - np.euler_gamma], (-1.0) ** k * _scipy("zetac")(k) / k])


def _lgamma(x: Array) -> Any:
    """About its zeros at 1 and 2 by a series: lgamma(1 + d) = lgamma(2 + d) - log(1 + d)."""
    near = (x > 0.5) & (x < 2.5)
    d = np.where(near, np.where(x < 1.5, x - 1, x - 2), 0)
    series = d * np.polynomial.polynomial.polyval(d, _lgamma_series())
    far = np.where(np.abs(x) < 1e-300, -np.log(np.abs(x)), _scipy("gammaln")(x))
    return np.where(near, np.where(x < 1.5, series - np.log1p(d), series), np.where(np.isinf(x), np.inf, far))


def _digamma(x: Array) -> Any:
    """XLA gives NaN at the poles, scipy -inf at 0."""
    return np.where((x <= 0) & (x == np.floor(x)), np.nan, _scipy("digamma")(x))


def _zeta_of_positive(s: Array, q: Array) -> Any:
    """scipy gives NaN where every power is 0 and s so large that it overflows, as for zeta(inf, 2)."""
    value = _scipy("zeta")(s, q)
    return np.where(np.isnan(value) & (s > 1) & (q > 1), 0, value)


def _zeta(s: Array, q: Array) -> Any:
    """Left of 0 scipy adds a term for each unit, without end far out; it is asked right of 0 alone (`special_functions.zeta`)."""
    mirrored = (q < 0) & (q != np.floor(q)) & (s > 1) & (s == np.floor(s))
    away = np.where(mirrored, -q, 0.5)
    right = _zeta_of_positive(s, np.where(mirrored, q - np.floor(q), q))
    left = _zeta_of_positive(s, away - np.floor(away)) - _zeta_of_positive(s, 1 + away)
    return np.where(mirrored, right + np.where(s * 0.5 == np.floor(s * 0.5), left, -left), right)


def _polygamma(n: Array, x: Array) -> Any:
    order = np.where((n >= 0) & (n == np.floor(n)), n, 0)
    left = (x < 0) & (order > 0)
    sign = np.where(order % 2 == 0, -1.0, 1.0)
    mirrored = sign * _scipy("gamma")(order + 1) * _zeta(order + 1, x)
    value = np.where(left, mirrored, _scipy("polygamma")(order, np.where(left, 1, x)))
    value = np.where(order == 0, _digamma(x), value)
    return np.where((n >= 0) & (n == np.floor(n)), value, np.nan)


lgamma: Op = _chlo("lgamma", "The logarithm of the absolute value of the gamma function.", _lgamma, kinds=FLOAT, domain=(0.5, 3.0),
                   element=loops_in("math", "lgamma_element"),
                   vjp=lambda b, x, y, g: _times(b, g, b(digamma, x)))
digamma: Op = _chlo("digamma", "The derivative of lgamma.", _digamma, kinds=FLOAT, domain=(0.5, 3.0),
                    element=_IN_DOUBLE,
                    vjp=lambda b, x, y, g: _times(b, g, b(polygamma, b.like(1, x), x)))
polygamma: Op = binary(
    "polygamma", "The derivative of digamma, lhs times.", _in_f64(_polygamma), kinds=FLOAT, source="CHLO polygamma",
    element=loops_in("math", "single_element"),
    vjp=lambda b, n, x, y, g: (None, _times(b, g, b(polygamma, b(add, n, b.like(1, n)), x))), no_gradient_by=("lhs",),
    domain=(1.0, 3.0), samples=lambda rng: [((np.float64(n), rng.uniform(0.5, 3, (2, 3))), {}) for n in (0, 1, 2)],
)  # fmt: skip
zeta: Op = binary(
    "zeta", "The Hurwitz zeta function.", _in_f64(_zeta), kinds=FLOAT, source="CHLO zeta", domain=(1.5, 3.0),
    element=_IN_DOUBLE,
    vjp=lambda b, s, q, y, g: (None, b(negate, _times(b, g, b(multiply, s, b(zeta, b(add, s, b.like(1, s)), q))))),
    no_gradient_by=("lhs",),
)  # fmt: skip
bessel_i0e: Op = _chlo(
    "bessel_i0e", "The modified Bessel function of order 0, scaled by e^-|x|.", _scipy("i0e"), kinds=FLOAT,
    element=_IN_DOUBLE,
    vjp=lambda b, x, y, g: _times(b, g, b(subtract, b(bessel_i1e, x), b(multiply, b(sign, x), y))),
)  # fmt: skip


def _i1e_vjp(b: Builder, x: Node, y: Node, g: Node) -> Node:
    """i0e(x) - (sign(x) + 1 / x) i1e(x), which is 1/2 at 0."""
    tiny = b(compare, b(abs_, x), b.like(1e-7, x), direction="LE")
    safe = b(select, tiny, b.like(1, x), x)
    slope = b(subtract, b(bessel_i0e, safe), b(multiply, y, b(add, b(sign, safe), b(divide, b.like(1, x), safe))))
    return _times(b, g, b(select, tiny, b.like(0.5, x), slope))


bessel_i1e: Op = _chlo("bessel_i1e", "The modified Bessel function of order 1, scaled by e^-|x|.", _odd(_scipy("i1e")), kinds=FLOAT,
                       element=_IN_DOUBLE, vjp=_i1e_vjp)


def _next_after(xs: Sequence[Array]) -> Array:
    x, y = np.broadcast_arrays(*xs)
    if x.dtype.kind == "f" and x.dtype.itemsize >= 2:
        return np.asarray(np.nextafter(x, y))
    raw = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}").reshape(x.shape)
    sign_bit = raw.dtype.type(1 << (8 * x.dtype.itemsize - 1))
    up = np.where(x > 0, raw + 1, raw - 1)
    down = np.where(x > 0, raw - 1, raw + 1)
    moved = np.where(y > x, up, down)
    moved = np.where(x == 0, np.where(y > x, 1, 1 | sign_bit), moved).astype(raw.dtype)
    result = np.where(x == y, y.view(raw.dtype).reshape(x.shape), moved).astype(raw.dtype).view(x.dtype).reshape(x.shape)
    return np.where(np.isnan(x) | np.isnan(y), np.asarray(np.nan, x.dtype), result)


next_after: Op = binary("next_after", "The next number from lhs on the way to rhs.", _next_after, kinds=FLOAT,
                        element=_FORMULA,
                        vjp=lambda b, x, y, node, g: (None, None),
                        source="CHLO next_after")


def _class_of(name: str, summary: str, function: Callable[[Array], Any]) -> Op:
    return unary(name, summary, lambda xs: np.asarray(function(xs[0])), infer=truth, kinds=FLOAT, results=(Result(type=BOOLS),),
                 source=f"CHLO {name}", element=_FORMULA)


is_inf: Op = _class_of("is_inf", "Whether it is infinite.", np.isinf)
is_pos_inf: Op = _class_of("is_pos_inf", "Whether it is plus infinity.", lambda x: x == np.inf)
is_neg_inf: Op = _class_of("is_neg_inf", "Whether it is minus infinity.", lambda x: x == -np.inf)
