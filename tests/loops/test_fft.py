"""Fourier transforms as loop programs, interpreted and as machine code, against the library's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Builder
from deepx_graph.loops.lower import lower
from deepx_graph.loops.program import Load, Store, walk
from deepx_graph.loops.scalar import NotExpressible
from deepx_graph.ops import fft
from deepx_graph.ops.loops import fft as fft_loops
from tests.support.laws import alone, constants
from tests.support.loop_programs import agrees

pytest.importorskip("llvmlite", reason="llvmlite, of the extra deepx-graph[native], is not installed")


def numbers(dtype: str, shape: tuple[int, ...]) -> Any:
    """Of a size at which sums are about 1."""
    rng = np.random.default_rng(0)
    x: Any = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype.startswith("c") else 0)
    return (x / math.sqrt(max(1, math.prod(shape)))).astype(dtype)


@pytest.mark.parametrize(("kind", "dtype"), [("FFT", "c8"), ("IFFT", "c16")])
@pytest.mark.parametrize(("shape", "axes"), [
    ((1,), 1), ((2,), 1), ((13,), 1), ((30,), 1), ((49,), 1), ((128,), 1),
    ((17,), 1), ((3, 38), 1), ((19, 6), 2), ((131,), 1), ((2, 17 * 19), 1), ((29, 37), 2), ((3, 211, 5), 2), ((1021,), 1),
    ((3, 12), 1), ((5, 7), 2), ((2, 3, 4, 5), 3), ((4, 21), 2), ((0, 4), 1), ((1, 1), 2)])
def test_complex_transforms(shape: tuple[int, ...], axes: int, kind: str, dtype: str) -> None:
    agrees(fft, [numbers(dtype, shape)], {"fft_type": kind, "fft_length": shape[-axes:]}, interpreted=math.prod(shape) < 50)


@pytest.mark.parametrize(("shape", "axes", "dtype"), [
    ((2,), 1, "8"), ((4,), 1, "4"), ((48,), 1, "4"), ((5, 6), 2, "8"), ((2, 3, 4, 10), 3, "4"), ((20, 2), 2, "4"),
    ((1,), 1, "4"), ((9,), 1, "8"), ((2, 15), 1, "4"), ((6, 19), 2, "4"), ((2, 51), 1, "8"),
    ((262,), 1, "4"), ((3, 323), 1, "8"), ((4, 137), 2, "4")])
def test_real_transforms(shape: tuple[int, ...], axes: int, dtype: str) -> None:
    """Backwards also of numbers that no real ones have: the imaginary parts of the first and the last are not read."""
    attrs, few = {"fft_length": shape[-axes:]}, math.prod(shape) < 50
    agrees(fft, [numbers(f"f{dtype}", shape)], {"fft_type": "RFFT", **attrs}, interpreted=few)
    half = numbers(f"c{2 * int(dtype)}", (*shape[:-1], shape[-1] // 2 + 1))
    agrees(fft, [half], {"fft_type": "IRFFT", **attrs}, interpreted=few)


@pytest.mark.parametrize("n", [0, 131_073, 1 << 18])
def test_other_lengths_are_left_to_the_library(n: int) -> None:
    b = Builder()
    with pytest.raises(NotExpressible, match="points"):
        lower(alone(b(fft, *constants(b, [np.zeros(n, "c8")]), fft_type="FFT", fft_length=(n,))))


@pytest.mark.parametrize(("shape", "axes"), [((48,), 1), ((3, 40), 1), ((2, 36, 5), 2), ((36, 20), 2), ((1, 1), 2), ((2, 34), 1)])
@pytest.mark.parametrize("most", [0, 16 * 4 * 40])
def test_what_steps_exchange_may_lie_in_memory_of_all_transforms(monkeypatch: pytest.MonkeyPatch, most: int, shape: tuple[int, ...],
                                                                 axes: int) -> None:
    monkeypatch.setattr(fft_loops, "MOST_LOCAL", most)
    lengths = shape[-axes:]
    agrees(fft, [numbers("c8", shape)], {"fft_type": "FFT", "fft_length": lengths}, interpreted=True)
    agrees(fft, [numbers("f4", shape)], {"fft_type": "RFFT", "fft_length": lengths}, interpreted=True)
    half = numbers("c8", (*shape[:-1], shape[-1] // 2 + 1))
    agrees(fft, [half], {"fft_type": "IRFFT", "fft_length": lengths}, interpreted=True)


@pytest.mark.parametrize("shape", [(1 << 17,), (4, 1 << 15), (1 << 14, 32), (5000, 6), (3, 1 << 13, 20), (4, 16_639), (131_071,)])
@pytest.mark.parametrize(("kind", "dtype"), [("FFT", "c8"), ("IFFT", "c16"), ("RFFT", "f4")])
def test_long_transforms_need_little_of_the_stack(shape: tuple[int, ...], kind: str, dtype: str) -> None:
    """Threads have a few megabytes of it; a real transform keeps its half, beside what its steps exchange."""
    b, axes = Builder(), min(2, len(shape))
    x = np.broadcast_to(np.zeros((), dtype), shape)
    program = lower(alone(b(fft, *constants(b, [x]), fft_type=kind, fft_length=shape[-axes:])))
    used = {s.buffer for s in walk(program.body) if isinstance(s, (Load, Store)) and s.buffer.role == "local"}
    assert sum(buffer.nbytes for buffer in used) <= 2 * axes * fft_loops.MOST_LOCAL


@pytest.mark.parametrize("shape", [(1 << 15,), (1 << 14, 8), (16_639,), (131_071,)])
def test_long_transforms_are_those_of_the_library(shape: tuple[int, ...]) -> None:
    agrees(fft, [numbers("c8", shape)], {"fft_type": "FFT", "fft_length": shape}, interpreted=False)


@pytest.mark.parametrize("n", [320, 127, 509, 16_639])
def test_an_axis_is_as_accurate_as_the_library(n: int) -> None:
    """Twice the error of the library's in single precision, against double precision."""
    from deepx_graph.runtime.native.loop_program.kernel import build

    x = numbers("c8", (16, n))
    b = Builder()
    (found,) = build(alone(b(fft, *constants(b, [x]), fft_type="FFT", fft_length=(n,))), 1)([x])
    exact = np.fft.fft(x.astype("c16"))
    from scipy import fft as library

    assert np.abs(found - exact).max() < 2 * np.abs(library.fft(x) - exact).max()
