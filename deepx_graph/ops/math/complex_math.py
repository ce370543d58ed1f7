"""Functions of complex numbers where numpy's lose digits near a cancellation, or where XLA answers otherwise at infinity.

Arrays in and out, complex64 or complex128, any shape. Single precision is computed in double and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deepx_graph.literal import Array


def joined(real: Any, imag: Any, dtype: Any) -> Array:
    """The complex array of those parts."""
    whole = np.empty(np.broadcast_shapes(np.shape(real), np.shape(imag)), dtype)
    whole.real, whole.imag = real, imag
    return whole


def exp(x: Array) -> Array:
    """e^x; no number where both parts are infinite."""
    wide = x.astype(np.complex128)
    return np.where(np.isinf(x.real) & np.isinf(x.imag), complex(np.nan, np.nan), np.exp(wide)).astype(x.dtype)


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum, and what rounding lost (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def two_square(a: Array) -> tuple[Array, Array]:
    """The rounded square, and what rounding lost (Dekker, Veltkamp)."""
    shifted = a * 134217729.0
    high = shifted - (shifted - a)
    low = a - high
    square = a * a
    return square, ((high * high - square) + 2 * high * low) + low * low


def log1p(x: Array) -> Array:
    """log(1 + x): the modulus from |1 + x|^2 - 1 in twice the precision, where that is near 0."""
    wide = x.astype(np.complex128)
    near = (np.abs(wide.real) < 4) & (np.abs(wide.imag) < 4)
    re, im = np.where(near, wide.real, 0.0), np.where(near, wide.imag, 0.0)
    (re2, re2_lost), (im2, im2_lost) = two_square(re), two_square(im)
    first, first_lost = _two_sum(2 * re, re2)
    excess, excess_lost = _two_sum(first, im2)
    lost = first_lost + excess_lost + re2_lost + im2_lost
    total = excess + lost
    modulus = 0.5 * (np.log1p(total) + (lost - (total - excess)) / (1 + total))
    far = np.log(wide + 1)
    return joined(np.where(near & (total > -0.5), modulus, far.real), np.arctan2(wide.imag, wide.real + 1), x.dtype)


def square(x: Array) -> Array:
    """x x, without the difference of two squares."""
    wide = x.astype(np.complex128)
    re, im = wide.real, wide.imag
    return joined(np.where((np.abs(re) == np.abs(im)) & np.isfinite(re), 0.0, (re - im) * (re + im)), 2 * (re * im), x.dtype)


def logistic(x: Array) -> Array:
    """1 / (1 + e^-x), by whichever exponential does not overflow."""
    wide = x.astype(np.complex128)
    left = wide.real < 0
    power = np.exp(np.where(left, wide, -wide))
    return np.asarray(np.where(left, power, 1) / (1 + power)).astype(x.dtype)


def divide(x: Array, y: Array) -> Array:
    """x / y. At infinities and zeros what the formula makes two NaNs is an infinity or a zero, as in C99 Annex G and XLA."""
    with np.errstate(all="ignore"):
        found = np.asarray(np.divide(x, y))
        unknown = (np.isnan(found.real) & np.isnan(found.imag)) | (y == 0)
        return _at_limits(x, y, found) if unknown.any() else found


def _at_limits(x: Array, y: Array, found: Array) -> Array:
    """Quotients by zero, of infinite by finite numbers, and of finite by infinite ones; the others as found."""
    zero = np.copysign(np.inf, y.real)
    quotient = np.where(y == 0, joined(zero * x.real, zero * x.imag, found.dtype), found)
    unknown = np.isnan(quotient.real) & np.isnan(quotient.imag) & (y != 0)
    far, near = unknown & np.isinf(x) & np.isfinite(y), unknown & np.isfinite(x) & np.isinf(y)
    quotient = np.where(far, _along(_corner(x), y, np.inf), quotient)
    return np.where(near, _along(x, _corner(y), 0.0), quotient).astype(found.dtype)


def _corner(x: Array) -> Array:
    """1 for each infinite part and 0 for each other, signs kept."""
    return joined(np.copysign(np.isinf(x.real), x.real), np.copysign(np.isinf(x.imag), x.imag), x.dtype)


def _along(x: Array, y: Array, size: float) -> Array:
    """x conj(y), each part times `size`: what remains of a quotient when its modulus is known."""
    return joined(size * (x.real * y.real + x.imag * y.imag), size * (x.imag * y.real - x.real * y.imag), x.dtype)


def cbrt(x: Array) -> Array:
    """The principal cube root."""
    wide = x.astype(np.complex128)
    size, angle = np.cbrt(np.abs(wide)), np.angle(wide) / 3
    return joined(size * np.cos(angle), size * np.sin(angle), x.dtype)


def atan2(y: Array, x: Array) -> Array:
    """-i log((x + i y) / sqrt(x^2 + y^2))."""
    a, b = y.astype(np.complex128), x.astype(np.complex128)
    return np.asarray(-1j * np.log((b + 1j * a) / np.sqrt(b * b + a * a))).astype(y.dtype)
