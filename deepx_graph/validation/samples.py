"""Inputs that find mistakes: ordinary numbers, and the edges at which a rewrite forgets a case.

Sample k is of family k modulo their number: ordinary numbers; positions in range and out of it; ties, small numbers and zeros of
both signs; the extremes of the type, denormal numbers included; a few NaN and infinities among ordinary numbers. Empty and size-1
dimensions are a matter of the program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.literal import Array
from deepx_graph.runtime.inputs import Port
from deepx_graph.types import DType, TensorType

FIRST = 7
"""What samples are drawn from that are kept."""

Draw = Callable[[DType, int, np.random.Generator], Any]
"""Numbers of an element type, as many as asked for, before they are rounded to it."""


def ordinary(dtype: DType, count: int, rng: np.random.Generator) -> Any:
    """Standard normal numbers, coin flips, small integers that index most dimensions; or each integer once, so that none hides
    from where it was taken."""
    if dtype.is_differentiable:
        return rng.standard_normal(count)
    if dtype.is_integer and count > 1 and rng.random() < 0.5:
        return rng.permutation(count) % (_range(dtype)[1] + 1 if dtype.bits < 32 else count)
    return rng.integers(0, 2 if dtype.kind == "bool" else 4, count)


def positions(dtype: DType, count: int, rng: np.random.Generator) -> Any:
    """Integers around the ends of small dimensions: negative ones, those inside, those just and far outside."""
    if not dtype.is_integer:
        return ordinary(dtype, count, rng)
    far = np.array([*range(-9, 18), -100, 100, 1 << 20])
    return np.where(rng.random(count) < 0.5, rng.integers(-3, 6, count), rng.choice(far, count))


def ties(dtype: DType, count: int, rng: np.random.Generator) -> Any:
    """Few different numbers, zeros of both signs among them."""
    if dtype.is_differentiable:
        return rng.choice(np.array([0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0]), count)
    return rng.integers(0, 2, count) if dtype.kind == "bool" else rng.choice(np.array([0, 1, -1, 2]), count)


def extremes(dtype: DType, count: int, rng: np.random.Generator) -> Any:
    """The largest, smallest and denormal numbers of the type, and what overflows when squared or exponentiated."""
    if dtype.is_integer:
        low, high = _range(dtype)
        return rng.choice(np.array([low, low + 1, high, high - 1, high // 2, low // 2, 0, 1, 2], object), count)
    if not dtype.is_differentiable:
        return ordinary(dtype, count, rng)
    info = _float_info(dtype)
    largest, smallest, denormal = float(info.max), float(info.tiny), float(info.smallest_subnormal)
    root = math.sqrt(largest) * 2
    edge = [largest, -largest, smallest, -smallest, denormal, root, -root, math.log(largest) + 1, math.sqrt(smallest) / 2,
            1.0, -1.0, 0.5, 3.0]
    return rng.choice(np.array(edge), count)


def special(dtype: DType, count: int, rng: np.random.Generator) -> Any:
    """Ordinary numbers; of floats about a sixth are NaN or infinite."""
    drawn = ordinary(dtype, count, rng)
    if not dtype.is_differentiable:
        return drawn
    odd = rng.choice(np.array([math.nan, math.inf, -math.inf]), count)
    return np.where(rng.random(count) < 1 / 6, odd, drawn)


FAMILIES: tuple[Draw, ...] = (ordinary, positions, ties, extremes, special)


def varied(dtype: DType, count: int, rng: np.random.Generator) -> Any:
    """Numbers of all families side by side."""
    families = [np.asarray(draw(dtype, count, rng)) for draw in FAMILIES]
    if not dtype.is_differentiable and len({f.dtype.kind for f in families}) > 1:
        families = [f.astype(object) for f in families]  # no type of numpy holds integers of both signs and of 64 bits
    return np.choose(rng.integers(0, len(families), count), families) if count else families[0]


def _range(dtype: DType) -> tuple[int, int]:
    low = -(1 << (dtype.bits - 1)) if dtype.kind == "int" else 0
    return low, (1 << (dtype.bits - (dtype.kind == "int"))) - 1


def _float_info(dtype: DType) -> Any:
    part = np.dtype({"c64": np.float32, "c128": np.float64}[dtype.name]) if dtype.kind == "complex" else dtype.np
    return ml_dtypes.finfo(part)  # type: ignore[no-untyped-call]


def sample_array(type: TensorType, number: int, rng: np.random.Generator) -> Array:
    """An array of a static type, of the family that a sample of that number is of."""
    return drawn_array(type, FAMILIES[number % len(FAMILIES)], rng)


def drawn_array(type: TensorType, draw: Draw, rng: np.random.Generator) -> Array:
    """An array of a static type."""
    dtype, size = type.dtype, type.size
    drawn = draw(dtype, size, rng)
    if dtype.kind == "complex":
        with np.errstate(all="ignore"):
            drawn = drawn + 1j * draw(dtype, size, rng)
    if dtype.is_integer:
        low, high = _range(dtype)
        drawn = np.clip(drawn, low, high) if dtype.kind == "int" else np.abs(np.asarray(drawn, object)) & high
    with np.errstate(all="ignore"):
        return np.asarray(drawn).astype(dtype.np).reshape(type.shape)


@lru_cache(maxsize=4096)
def cached_sample(type: TensorType, draw: Draw, which: int) -> Array:
    """The same array for equal arguments, not to be changed; `which` tells apart values of one type."""
    array = drawn_array(type, draw, np.random.default_rng([FIRST, which]))
    array.setflags(write=False)
    return array


def samples(ports: Sequence[Port], count: int, seed: int = 0) -> list[dict[str, Array]]:
    """So many sets of inputs. Raises UsageError for an input whose type is not known."""
    for port in ports:
        if not isinstance(port.type, TensorType) or not port.type.is_static:
            raise UsageError(Diagnostic(f"the shape of input '{port.name}' is not known, so it cannot be generated: give it",
                                        expected="an archive of inputs"))
    return [{p.name: sample_array(p.type, k, np.random.default_rng([seed, k, n]))  # type: ignore[arg-type]
             for n, p in enumerate(ports)} for k in range(count)]
