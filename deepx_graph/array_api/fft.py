"""Discrete Fourier transforms: the extension `fft` of the standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.array_api.array import Array, C, as_array, as_dtype, cast, constant
from deepx_graph.array_api.dtypes import with_number
from deepx_graph.array_api.elementwise import conj, multiply
from deepx_graph.array_api.errors import ArrayValueError
from deepx_graph.array_api.manipulation import axis_number, axis_numbers, concat, moveaxis, roll
from deepx_graph.text.common.elements import part_of
from deepx_graph.types.dtypes import F64

NORMS = ("backward", "ortho", "forward")


def _resized(x: Array, size: int, axis: int) -> Array:
    """Cut, or filled up with zeros, to a size along an axis."""
    if size <= x.shape[axis]:
        return Array(part_of(C, x.node, axis, 0, size))
    dims = tuple(size - d if k == axis else d for k, d in enumerate(x.shape))
    return concat([x, Array(C.full(0, x.type.with_dims(dims)))], axis=axis)


def _transform(kind: str, x: Array, n: int | None, axis: int, norm: str) -> Array:
    """One transform along an axis; of n points, for IRFFT of the result. Raises ArrayValueError for another norm, or no points."""
    if norm not in NORMS:
        raise ArrayValueError(f"norm {norm!r} is none of {', '.join(NORMS)}")
    at = axis_number(axis, x.ndim)
    size = n if n is not None else 2 * (x.shape[at] - 1) if kind == "IRFFT" else x.shape[at]
    if size < 1:
        raise ArrayValueError(f"a transform of {size} points")
    moved = moveaxis(_resized(x, size // 2 + 1 if kind == "IRFFT" else size, at), at, -1)
    found = moveaxis(Array(C(ops.fft, moved.node, fft_type=kind, fft_length=(size,))), -1, at)
    back = kind in ("IFFT", "IRFFT")
    power = {"backward": 0.0, "ortho": 0.5, "forward": 1.0}[norm]
    return found if power == 0 else multiply(found, float(size) ** (power if back else -power))


def _complex(x: Any) -> Array:
    x = as_array(x)
    return cast(x, with_number(x.dtype, 0j))


def _axes(x: Array, s: Sequence[int] | None, axes: Sequence[int] | None) -> list[tuple[int, int | None]]:
    """The axes and how many points each has."""
    chosen = axes if axes is not None else range(x.ndim - len(s), x.ndim) if s is not None else range(x.ndim)
    numbers = axis_numbers(tuple(chosen), x.ndim)
    if s is not None and len(s) != len(numbers):
        raise ArrayValueError(f"{len(s)} sizes for {len(numbers)} axes")
    return list(zip(numbers, s if s is not None else [None] * len(numbers), strict=True))


def _some_axes(x: Array, s: Sequence[int] | None, axes: Sequence[int] | None) -> list[tuple[int, int | None]]:
    """The axes and how many points each has. Raises ArrayValueError for none, of which the last could be halved."""
    found = _axes(x, s, axes)
    if not found:
        raise ArrayValueError("a transform of real numbers along no axis")
    return found


def fft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The transform along an axis, of n points."""
    return _transform("FFT", _complex(x), n, axis, norm)


def ifft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The inverse transform along an axis, of n points."""
    return _transform("IFFT", _complex(x), n, axis, norm)


def fftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Array:
    """The transform along several axes."""
    x = _complex(x)
    for axis, n in _axes(x, s, axes):
        x = fft(x, n=n, axis=axis, norm=norm)
    return Array(x.node)


def ifftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Array:
    """The inverse transform along several axes."""
    x = _complex(x)
    for axis, n in _axes(x, s, axes):
        x = ifft(x, n=n, axis=axis, norm=norm)
    return Array(x.node)


def rfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The half of the transform of real numbers that says it all."""
    x = as_array(x)
    return _transform("RFFT", x if x.dtype.is_float else cast(x, F64), n, axis, norm)


def irfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The real numbers whose half transform this is, n of them."""
    return _transform("IRFFT", _complex(x), n, axis, norm)


def rfftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Array:
    """The half of the transform of real numbers along several axes; the last one is halved."""
    x = as_array(x)
    *others, (last, n) = _some_axes(x, s, axes)
    found = rfft(x, n=n, axis=last, norm=norm)
    for axis, size in others:
        found = fft(found, n=size, axis=axis, norm=norm)
    return found


def irfftn(x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward") -> Array:
    """The real numbers whose half transform along several axes this is."""
    x = _complex(x)
    *others, (last, n) = _some_axes(x, s, axes)
    for axis, size in others:
        x = ifft(x, n=size, axis=axis, norm=norm)
    return irfft(x, n=n, axis=last, norm=norm)


_OTHER = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def hfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The transform, which is real, of a signal of which this is the half."""
    return irfft(conj(_complex(x)), n=n, axis=axis, norm=_OTHER.get(norm, norm))


def ihfft(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The half of the inverse transform of real numbers."""
    return conj(rfft(x, n=n, axis=axis, norm=_OTHER.get(norm, norm)))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of a transform of n points at distance d."""
    return constant(np.fft.fftfreq(n, d), F64 if dtype is None else as_dtype(dtype))


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of the half of a transform of n points at distance d."""
    return constant(np.fft.rfftfreq(n, d), F64 if dtype is None else as_dtype(dtype))


def fftshift(x: Any, /, *, axes: Any = None) -> Array:
    """The frequency zero moved to the middle."""
    x = as_array(x)
    numbers = axis_numbers(axes, x.ndim)
    return roll(x, tuple(x.shape[a] // 2 for a in numbers), axis=numbers)


def ifftshift(x: Any, /, *, axes: Any = None) -> Array:
    """The frequency zero moved back to the start."""
    x = as_array(x)
    numbers = axis_numbers(axes, x.ndim)
    return roll(x, tuple(-(x.shape[a] // 2) for a in numbers), axis=numbers)


