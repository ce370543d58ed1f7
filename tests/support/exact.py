"""Exact values of the elementwise functions: points, and what mpmath with 60 digits gives at them.

`python -m tests.support.exact` writes `exact.npz` anew, which needs mpmath; tests read the file. Points of f32
are numbers of f32; each value is rounded once, to f64, so that of an f64 point it is exact to half a unit in the last place.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("exact.npz")

Array = np.ndarray[Any, Any]
EVERYWHERE = (-np.inf, np.inf)

# the functions: how mpmath writes each, where it is defined, and where it bends, crosses zero, overflows or saturates

UNARY: dict[str, tuple[Callable[[Any, Any], Any], tuple[float, float], tuple[float, ...]]] = {
    "exponential": (lambda m, x: m.exp(x), (-750, 710), (88.72, -87.33, -103.9, 709.78, -708.4, -744.4)),
    "exponential_minus_one": (lambda m, x: m.expm1(x), (-1e308, 710), (88.72, -17.3, -37.4, 709.78, -0.69)),
    "log": (lambda m, x: m.log(x), (0, np.inf), (1, 2, 0.5)),
    "log_plus_one": (lambda m, x: m.log1p(x), (-1, np.inf), (-0.999999, 1, -0.5, -0.2928932)),
    "sqrt": (lambda m, x: m.sqrt(x), (0, np.inf), (1, 4)),
    "rsqrt": (lambda m, x: 1 / m.sqrt(x), (0, np.inf), (1, 4)),
    "cbrt": (lambda m, x: m.sign(x) * m.cbrt(abs(x)), EVERYWHERE, (1, -8)),
    "sine": (lambda m, x: m.sin(x), (-1e5, 1e5), (3.1415927, 6.2831855, -1.5707964, 355, 10000)),
    "cosine": (lambda m, x: m.cos(x), (-1e5, 1e5), (3.1415927, 1.5707964, -4.712389, 11, 10000)),
    "tan": (lambda m, x: m.tan(x), (-1e5, 1e5), (3.1415927, 1.5707964, -4.712389, 11, 10000)),
    "tanh": (lambda m, x: m.tanh(x), EVERYWHERE, (0.0004, 0.55, 5.9, 7.905, 8.3, 9.01, -9.02, 12, 19.06, 22)),
    "logistic": (lambda m, x: 1 / (1 + m.exp(-x)), (-745, 1e308), (-87.4, -88.8, -100, 17, 37, -709.8, -740)),
    "cosh": (lambda m, x: m.cosh(x), (-710, 710), (89.4, -89.4, 710, 20)),
    "sinh": (lambda m, x: m.sinh(x), (-710, 710), (89.4, -89.4, 710, 20, 1)),
    "acos": (lambda m, x: m.acos(x), (-1, 1), (1, -1, 0.5, 0.9999)),
    "asin": (lambda m, x: m.asin(x), (-1, 1), (1, -1, 0.5, -0.9999)),
    "atan": (lambda m, x: m.atan(x), EVERYWHERE, (1, -1, 0.4142, 1e8)),
    "acosh": (lambda m, x: m.acosh(x), (1, np.inf), (1, 1.0000001, 2, 1e8, 1.5e154)),
    "asinh": (lambda m, x: m.asinh(x), EVERYWHERE, (1, -1, 1e8, -1e8)),
    "atanh": (lambda m, x: m.atanh(x), (-1, 1), (0.5, -0.5, 0.9999999, -0.9999999)),
    "square": (lambda m, x: x * x, EVERYWHERE, (1, -3)),
    "erf": (lambda m, x: m.erf(x), EVERYWHERE, (0.5, 0.84375, 1.25, 2.857, 3.9, 4, 5.9, 6, -4)),
    "erfc": (lambda m, x: m.erfc(x), (-1e308, 27), (0.84375, 1.25, 9.1, 10.05, 26.5, -4, 0.5, -6)),
    "erf_inv": (lambda m, x: m.erfinv(x), (-1, 1), (0.5, -0.5, 0.75, 0.9375, 0.99999, 0.9999999, -0.9999999)),
    "lgamma": (lambda m, x: m.log(abs(m.gamma(x))) if abs(x) < 1e5 else m.re(m.loggamma(x)), (-170, 1e305),
               (1, 2, 1.0001, 1.999, 0.5, -0.5, -1.5, -2.457, -2.7476827, 3, 1e6)),
    "digamma": (lambda m, x: m.digamma(x), (-1e4, np.inf), (1.4616321, 1, 0.5, -0.5, -1.5, -0.504083, -1.573498, 10)),
    "bessel_i0e": (lambda m, x: m.besseli(0, x) * m.exp(-abs(x)), (-1e6, 1e6), (8, 7.9999, -8, 700)),
    "bessel_i1e": (lambda m, x: m.besseli(1, x) * m.exp(-abs(x)), (-1e6, 1e6), (8, 7.9999, -8, 700)),
}  # fmt: skip

_SIDES = (0.1, 0.5, 0.99, 1.5, 2, 3, 7.25, 20, 150, 1e10)
_BASES = (1e-30, 0.25, 0.7, 0.9999999, 1.0000001, 1.5, 2, 10, 1e5, 1e30)
_LEFT = (-1e-5, -0.25, -0.96875, -1.25, -8.75, -9.25, -9.9921875, -10.25, -99.75, -1234.125, -65537.75)


def _zeta(m: Any, s: Any, q: Any) -> Any:
    """Left of 0 the terms there one by one, as the sum is defined."""
    terms = max(0, int(m.ceil(-q)))
    return m.fsum((q + k) ** -s for k in range(terms)) + m.zeta(s, q + terms)


BINARY: dict[str, tuple[Callable[[Any, Any, Any], Any], list[tuple[float, float]]]] = {
    "power": (lambda m, x, y: x**y, [*((x, y) for x in _BASES for y in (-2.5, -1, -0.3, 0.001, 0.5, 1, 3, 7.7)), (-2, 3), (-2, -5),
                                     (-0.5, 4), (0.99999, 1e6), (1.00001, 1e6), (2, 127), (2, -140), (10, 38)]),
    "atan2": (lambda m, y, x: m.atan2(y, x), [(s * a, t * b) for a in _SIDES for b in _SIDES for s in (1, -1) for t in (1, -1)]),
    "remainder": (lambda m, x, y: m.sign(x) * m.fmod(abs(x), abs(y)), [(s * a, t * b) for a in _SIDES for b in _SIDES
                                                                       for s in (1, -1) for t in (1, -1)]),
    "floor_mod": (lambda m, x, y: x - y * m.floor(x / y), [(s * a, s * b) for a in _SIDES for b in _SIDES for s in (1, -1)]),
    "zeta": (lambda m, s, q: _zeta(m, s, q), [(s, q) for s in (1.0625, 1.5, 2, 3, 7.5, 20, 40)
                                              for q in (0.1, 0.5, 1, 2.5, 10, 100, 1e4)]
             + [(s, q) for s in (2, 3, 4, 20) for q in _LEFT]),
    "polygamma": (lambda m, n, x: m.polygamma(int(n), x) if x > 0 else (-1) ** (int(n) + 1) * m.factorial(n) * _zeta(m, n + 1, x),
                  [(n, x) for n in (0, 1, 2, 3, 5, 10) for x in (0.1, 0.5, 1, 1.5, 3, 10, 100)]
                  + [(n, x) for n in (1, 2, 3, 10) for x in _LEFT]),
}


def unary_points(name: str, dtype: Any) -> Array:
    """Numbers of many magnitudes in the domain, and those about each place where the function bends."""
    _, (low, high), bends = UNARY[name]
    info = np.finfo(dtype)
    low, high = max(low, float(info.min)), min(high, float(info.max))
    rng = np.random.default_rng(len(name))
    sizes = np.exp2(np.linspace(np.log2(float(info.smallest_subnormal)), np.log2(max(abs(low), abs(high))), 60) - rng.random(60))
    near = 10.0 ** rng.uniform(-3, 2, 60)
    spread = np.concatenate([sizes, -sizes, near, -near])
    around = [b + step * np.spacing(dtype(b)) for b in bends if abs(b) < info.max for step in (-2, -1, 0, 1, 2)]
    x = np.concatenate([spread, around]).astype(dtype)
    return np.unique(x[(x >= low) & (x <= high) & (x != 0) & np.isfinite(x)])


def binary_points(name: str, dtype: Any) -> tuple[Array, Array]:
    """The listed pairs, as numbers of the type."""
    x, y = np.array(BINARY[name][1]).T.astype(dtype)
    return x, y


def main() -> None:
    """Writes the file."""
    import mpmath  # type: ignore[import-untyped, import-not-found, unused-ignore]

    mpmath.mp.dps = 60
    found: dict[str, Array] = {}
    for kind in (np.float32, np.float64):
        tag = np.dtype(kind).str[1:]
        for name, (function, _, _) in UNARY.items():
            found[f"{name}.{tag}"] = _values(mpmath, function, [unary_points(name, kind)])
        for name, (function, _) in BINARY.items():
            found[f"{name}.{tag}"] = _values(mpmath, function, binary_points(name, kind))
    np.savez_compressed(FILE, **found)  # type: ignore[arg-type, unused-ignore]


def _values(mpmath: Any, function: Callable[..., Any], points: Any) -> Array:
    """The operands, then the value, one row each."""
    wide = [p.astype(np.float64) for p in points]
    values = [_rounded(function(mpmath, *map(mpmath.mpf, map(float, row)))) for row in zip(*wide, strict=True)]
    return np.array([*wide, values])


def _rounded(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


if __name__ == "__main__":
    main()
