"""Fourier transforms as loop programs: an axis after the other by Stockham's algorithm, which sorts itself (Van Loan,
"Computational Frameworks for the Fast Fourier Transform", 1992, 1.7), with butterflies of up to 13 points in each step.

Lengths with larger primes are convolutions of a length that has none (Bluestein, "A linear filtering approach to the computation of
discrete Fourier transform", 1970). Neighbouring columns are transformed side by side; what the steps exchange is in local
memory, or, where that is large, in memory of all transforms, which are then done one after the other. Real transforms of even
length are complex ones of half the length (Press et al., "Numerical Recipes", 12.3), of odd length complex ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.literal import Array
from deepx_graph.loops import Affine, LazyTensor, LoopBuilder
from deepx_graph.loops.builder import part_of
from deepx_graph.loops.complex import Complex, whole
from deepx_graph.loops.scalar import NotExpressible, affine
from deepx_graph.loops.tensor import in_memory
from deepx_graph.types import DType, prime_factors

LARGEST_PRIME = 13
"""Prime factors up to this have butterflies."""

SMALL_PRIMES = 2, 3, 5, 7
"""Those of a length that may be chosen: longer butterflies take longer than the points that they save."""

LONGEST = 1 << 17
"""Longer axes are left to the library: their steps do not stay in a cache."""

MOST_LOCAL = 1 << 20
"""The bytes on the stack by which the steps of a transform exchange its points."""

COLUMNS = 16, 8, 4
"""So many neighbouring columns are transformed side by side: the most of which the stack has room."""

Source = Callable[[Affine, Affine], Any]
"""Gives a point of a column."""
Target = Callable[[Affine, Affine, Any], None]
"""Takes one."""


def fft_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The last axis first, and the others in place; for IRFFT last. Raises NotExpressible for lengths left to the library."""
    (x,), (out,) = xs, outs
    kind, lengths = node.attrs
    _check(lengths)
    *others, last = range(len(out.shape) - len(lengths), len(out.shape))
    sign = -1 if kind in ("FFT", "RFFT") else 1
    if kind == "IRFFT" and others:
        half = in_memory(b.buffer(x.dtype, x.shape), x.dtype)
        for axis in others:
            _complex_axis(b, x, half, axis, sign)
            x = half
    if kind in ("RFFT", "IRFFT"):
        is_odd = lengths[-1] % 2
        along = (_to_part if is_odd else _to_half) if kind == "RFFT" else (_from_part if is_odd else _from_half)
        along(b, x, out, lengths[-1])
    else:
        _complex_axis(b, x, out, last, sign)
    for axis in others if kind != "IRFFT" else ():
        _complex_axis(b, out, out, axis, sign)


def _check(lengths: Sequence[int]) -> None:
    for n in lengths:
        if not 0 < n <= LONGEST:
            raise NotExpressible(f"Fourier transforms of {n} points")


def _complex_axis(b: LoopBuilder, x: LazyTensor, out: LazyTensor, axis: int, sign: int) -> None:
    """Transforms an axis; `out` may be the same tensor, as columns are read before they are stored."""
    n, behind = out.shape[axis], out.shape[axis + 1 :]
    scale = 1 / n if sign > 0 else 1.0
    lanes = behind[-1] if behind else 1
    columns = next((width for width in COLUMNS if not _Points(out.dtype, n, width).is_large), COLUMNS[-1])
    whole_tiles, rest = divmod(lanes, columns)
    for first, count, width in ((0, whole_tiles, columns), (whole_tiles * columns, 1, rest)):
        if not count * width:
            continue
        points = _Points(out.dtype, n, width)
        with points.each(b, (*out.shape[:axis], *behind[:-1], count)) as at:

            def index(k: Affine, lane: Affine, at: Sequence[Affine] = at, first: int = first) -> tuple[Affine, ...]:
                column = (at[-1] * columns + first + lane,) if behind else ()
                return (*at[:axis], k, *at[axis:-1], *column)

            _transform(b, points, sign, lambda k, lane: x.at(b, index(k, lane)),
                       lambda k, lane, value: b.put(out, index(k, lane), _scaled(b, value, scale)))


def _to_half(b: LoopBuilder, x: LazyTensor, out: LazyTensor, n: int) -> None:
    """The real numbers of the last axis, in pairs that are taken for complex ones, and what these would be apart."""
    half, dtype, none = n // 2, part_of(out.dtype), Affine()
    points = _Points(out.dtype, half)
    with points.each(b, out.shape[:-1]) as at:
        fetch, put = points.memory(b)
        _transform(b, points, -1, lambda k, _: Complex(x.at(b, (*at, k * 2)), x.at(b, (*at, k * 2 + 1))), put)
        put(Affine((), half), none, fetch(none, none))
        root = _loaded(b, _Roots(n, 2, -1, half + 1), dtype)
        with b.loop(half + 1, parallel=True) as k:
            even, odd = _apart(b, fetch(k, none), fetch(half - k, none))
            rotated = b.apply("mul", Complex(odd.imag, b.apply("neg", odd.real)), root(0, k))
            b.put(out, (*at, k), _scaled(b, b.apply("add", even, rotated), 0.5))


def _from_half(b: LoopBuilder, x: LazyTensor, out: LazyTensor, n: int) -> None:
    """The same backwards. The first and the last number of a half are taken for real ones."""
    half, dtype, none = n // 2, part_of(x.dtype), Affine()
    points = _Points(x.dtype, half)
    with points.each(b, out.shape[:-1]) as at:
        fetch, keep = points.memory(b)
        root = _loaded(b, _Roots(n, 2, 1, half + 1), dtype)
        first, last = (x.at(b, (*at, Affine((), k))).real for k in (0, half))
        keep(none, none, Complex(b.apply("add", first, last), b.apply("sub", first, last)))
        with b.loop(half, 1, parallel=True) as k:
            even, odd = _apart(b, x.at(b, (*at, k)), x.at(b, (*at, half - k)))
            rotated = b.apply("mul", odd, root(0, k))
            keep(k, none, b.apply("add", even, Complex(b.apply("neg", rotated.imag), rotated.real)))

        def put(k: Affine, _: Affine, value: Complex) -> None:
            scaled = _scaled(b, value, 1 / n)
            b.put(out, (*at, k * 2), scaled.real)
            b.put(out, (*at, k * 2 + 1), scaled.imag)

        _transform(b, points, 1, fetch, put)


def _to_part(b: LoopBuilder, x: LazyTensor, out: LazyTensor, n: int) -> None:
    """An odd number of real numbers as complex ones, of whose transform half is kept."""
    dtype, none = part_of(out.dtype), Affine()
    points = _Points(out.dtype, n)
    with points.each(b, out.shape[:-1]) as at:
        fetch, put = points.memory(b)
        _transform(b, points, -1, lambda k, _: Complex(x.at(b, (*at, k)), b.const(0, dtype)), put)
        with b.loop(n // 2 + 1, parallel=True) as k:
            b.put(out, (*at, k), fetch(k, none))


def _from_part(b: LoopBuilder, x: LazyTensor, out: LazyTensor, n: int) -> None:
    """The same backwards: the other half are conjugates."""
    dtype, none = part_of(x.dtype), Affine()
    points = _Points(x.dtype, n)
    with points.each(b, out.shape[:-1]) as at:
        fetch, keep = points.memory(b)
        keep(none, none, Complex(x.at(b, (*at, none)).real, b.const(0, dtype)))
        with b.loop(n // 2 + 1, 1, parallel=True) as k:
            value = x.at(b, (*at, k))
            keep(k, none, value)
            keep(n - k, none, _conjugate(b, value))
        _transform(b, points, 1, fetch, lambda k, _, value: b.put(out, (*at, k), _scaled(b, value, 1 / n).real))


def _apart(b: LoopBuilder, x: Complex, y: Complex) -> tuple[Complex, Complex]:
    """x + conj(y) and x - conj(y)."""
    mirrored = _conjugate(b, y)
    return b.apply("add", x, mirrored), b.apply("sub", x, mirrored)


def _conjugate(b: LoopBuilder, x: Complex) -> Complex:
    return Complex(x.real, b.apply("neg", x.imag))


def _scaled(b: LoopBuilder, x: Complex, scale: float) -> Complex:
    return x if scale == 1 else _times(b, x, b.const(scale, x.dtype))


# --- one axis -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Points:
    """So many columns of n complex numbers, side by side."""

    dtype: DType
    n: int
    width: int = 1

    @property
    def steps_length(self) -> int:
        """The points of the steps: of a convolution more than there are."""
        return _convolved_length(self.n) if _is_convolved(self.n) else self.n

    @property
    def is_large(self) -> bool:
        """Whether what the steps of a transform exchange is too much for the stack."""
        return 2 * self.steps_length * self.width * self.dtype.itemsize > MOST_LOCAL

    @contextmanager
    def each(self, b: LoopBuilder, outer: Sequence[int]) -> Iterator[tuple[Affine, ...]]:
        """Loops over transforms, which threads share; of large ones they share the steps."""
        if not self.is_large:
            with b.nest(outer) as at:
                yield at
        elif math.prod(outer) == 1:
            yield tuple(Affine() for _ in outer)
        else:
            with b.loops(outer) as at:
                yield at

    def memory(self, b: LoopBuilder) -> tuple[Source, Target]:
        """Memory for the points, and one more of each column: what gives them, and what takes them."""
        part = part_of(self.dtype)
        kept = [in_memory(b.buffer(part, (self.n + 1, self.width), None if self.is_large else "local"), part) for _ in range(2)]

        def put(k: Affine, lane: Affine, value: Complex) -> None:
            for tensor, x in zip(kept, (value.real, value.imag), strict=True):
                b.put(tensor, (k, lane), x)

        return (lambda k, lane: Complex(*(b.fetch(tensor, (k, lane)) for tensor in kept))), put


def _transform(b: LoopBuilder, points: _Points, sign: int, read: Source, write: Target) -> None:
    """The transform of each column. Each step makes of `rest` numbers butterflies of `radix`, for every one of the `done` points
    that earlier steps made of each; two pieces of memory lie between steps in turns."""
    if _is_convolved(points.n):
        _convolved(b, points, sign, read, write)
        return
    n, part = points.n, part_of(points.dtype)
    radices = _radices(n)
    between = [points.memory(b) for _ in radices[1:3]]
    done, rest = 1, n
    for step, radix in enumerate(radices, 1):
        rest //= radix
        again, target = between[step % len(between)] if step < len(radices) else (read, write)
        root = _loaded(b, _Roots(rest * radix, radix, sign, rest), part) if rest > 1 else None
        with b.loops((rest, done, points.width), parallel=True) as (p, q, lane):
            found = _butterfly(b, [whole(read((p + rest * k) * done + q, lane)) for k in range(radix)], sign)
            for j, value in enumerate(found):
                rotated = b.apply("mul", value, root(j - 1, p)) if root is not None and j else value
                target((p * radix + j) * done + q, lane, rotated)
        read, done = again, done * radix


def _is_convolved(n: int) -> bool:
    return prime_factors(n)[-1:] > [LARGEST_PRIME]


@cache
def _convolved_length(n: int) -> int:
    """A length for the convolution of n points with 2 n - 1 others: that whose steps do least."""
    least, smooth = 2 * n - 1, [1]
    for p in SMALL_PRIMES:
        for m in smooth:  # which grows
            if m * p < 2 * least:
                smooth.append(m * p)
    return min((m for m in smooth if m >= least), key=lambda m: m * len(_radices(m)))


def _convolved(b: LoopBuilder, points: _Points, sign: int, read: Source, write: Target) -> None:
    """As j k is (j^2 + k^2 - (k - j)^2) / 2, the transform is a convolution with a chirp, between products with its conjugate. The
    convolution is by the same transform twice: the conjugate of that of conjugates is the inverse."""
    n, part, width = points.n, part_of(points.dtype), points.width
    long = _Points(points.dtype, points.steps_length, width)
    chirp, (fetch, put) = _loaded(b, _Chirps(n, long.n, sign), part), long.memory(b)
    with b.loops((n, width), parallel=True) as (k, lane):
        put(k, lane, b.apply("mul", whole(read(k, lane)), chirp(2, k)))
    with b.loops((long.n - n, width), parallel=True) as (k, lane):
        put(k + n, lane, Complex(b.const(0, part), b.const(0, part)))
    with b.loop(2) as turn:
        _transform(b, long, -1, fetch, lambda k, lane, value: put(k, lane, _conjugate(b, b.apply("mul", value, chirp(turn, k)))))
    with b.loops((n, width), parallel=True) as (k, lane):
        write(k, lane, fetch(k, lane))


def _times(b: LoopBuilder, x: Complex, factor: Any) -> Complex:
    return Complex(*(b.apply("mul", each, factor) for each in (x.real, x.imag)))


def _radices(n: int) -> list[int]:
    """Few steps: eights first, which fill a vector, then what is left of twos, then the other primes."""
    found = [p for p in prime_factors(n) if p > 2]
    twos = n.bit_length() - 1 if not found else (n // math.prod(found)).bit_length() - 1
    eights, left = divmod(twos, 3)
    if left == 1 and eights:
        return [8] * (eights - 1) + [4, 4] + found
    return [8] * eights + ([1 << left] if left or n == 1 else []) + found


@dataclass(frozen=True)
class _Roots:
    """The powers j p of the n-th root of unity, for j from 1 below `radix` and p below `count`: real and imaginary parts."""

    n: int
    radix: int
    sign: int
    count: int

    def __call__(self, dtype: DType) -> Array:
        powers = np.outer(np.arange(1, self.radix), np.arange(self.count)) % self.n
        roots = np.exp(self.sign * 2j * np.pi * powers / self.n)
        return np.stack([roots.real, roots.imag], axis=1).astype(dtype.np)


@dataclass(frozen=True)
class _Chirps:
    """By what n points are multiplied: once they are transformed, in `length` points, by the transform of a chirp; then by the
    conjugate of another chirp; and at first by that chirp."""

    n: int
    length: int
    sign: int

    def __call__(self, dtype: DType) -> Array:
        squares = np.arange(self.n) ** 2 % (2 * self.n)
        chirp, table = np.exp(self.sign * 1j * np.pi / self.n * squares), np.zeros((3, self.length), "c16")
        table[0, : self.n] = np.conj(chirp) / self.length
        table[0, 1 - self.n :] = table[0, self.n - 1 : 0 : -1]
        table[0] = np.fft.fft(table[0])
        table[1, : self.n], table[2, : self.n] = np.conj(chirp), chirp
        return np.stack([table.real, table.imag], axis=1).astype(dtype.np)


def _loaded(b: LoopBuilder, numbers: _Roots | _Chirps, dtype: DType) -> Callable[[Affine | int, Affine], Complex]:
    """Gives the p-th complex number of a row of a table."""
    table = b.table(numbers, dtype, dtype)
    return lambda row, p: Complex(*(b.load(table, (affine(row), Affine((), part), p)) for part in (0, 1)))


# --- a few points ---------------------------------------------------------------------------------------------------


def _butterfly(b: LoopBuilder, xs: Sequence[Complex], sign: int) -> list[Complex]:
    """The transform of a few points, without a loop: by the smallest prime factor (Cooley and Tukey)."""
    n = len(xs)
    if n == 1:
        return list(xs)
    p = prime_factors(n)[0]
    if p == n:
        return _prime(b, xs, sign)
    parts = [_butterfly(b, xs[j::p], sign) for j in range(p)]
    found = [_butterfly(b, [_rotated(b, part[k], sign * j * k, n) for j, part in enumerate(parts)], sign) for k in range(n // p)]
    return [points[j] for j in range(p) for points in found]


def _prime(b: LoopBuilder, xs: Sequence[Complex], sign: int) -> list[Complex]:
    """The points j and n - j at once: one is a sum, the other a difference, of the same two numbers."""
    first, *others = xs
    n = len(xs)
    if n == 2:
        return [b.apply("add", first, others[0]), b.apply("sub", first, others[0])]
    sums = [b.apply("add", x, y) for x, y in zip(others[: n // 2], reversed(others), strict=False)]
    differences = [b.apply("sub", x, y) for x, y in zip(others[: n // 2], reversed(others), strict=False)]
    found = {0: first}
    for x in sums:
        found[0] = b.apply("add", found[0], x)
    for j in range(1, n // 2 + 1):
        even, odd = first, None
        for k, (x, y) in enumerate(zip(sums, differences, strict=True), 1):
            angle = 2 * math.pi * (j * k % n) / n
            even = b.apply("add", even, _scaled(b, x, math.cos(angle)))
            term = _scaled(b, y, sign * math.sin(angle))
            odd = term if odd is None else b.apply("add", odd, term)
        assert odd is not None
        rotated = Complex(b.apply("neg", odd.imag), odd.real)
        found[j], found[n - j] = b.apply("add", even, rotated), b.apply("sub", even, rotated)
    return [found[j] for j in range(n)]


def _rotated(b: LoopBuilder, x: Complex, k: int, n: int) -> Complex:
    """x times the k-th power of the n-th root of unity: by quarters without products, by eighths with one a part."""
    eighths, rest = divmod(8 * (k % n), n)
    if rest:
        angle = 2 * math.pi * (k % n) / n
        return b.apply("mul", x, Complex(b.const(math.cos(angle), x.dtype), b.const(math.sin(angle), x.dtype)))  # type: ignore[no-any-return]
    if eighths % 2:
        both = Complex(b.apply("sub", x.real, x.imag), b.apply("add", x.real, x.imag))
        x = _scaled(b, both, math.sqrt(0.5))
    re, im = x.real, x.imag
    for _ in range(eighths // 2):
        re, im = b.apply("neg", im), re
    return Complex(re, im)
