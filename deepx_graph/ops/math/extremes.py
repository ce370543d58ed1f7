"""The greater and the lesser as IEEE 754-2019 defines `maximum` and `minimum` (9.6): NaN where either is, and +0.0 is above -0.0.

numpy's ufuncs propagate NaN, but of two zeros they give whichever their loops come to, which depends on the element type, the
machine and the order of the operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deepx_graph.literal import Array
from deepx_graph.ops.helpers import is_int

_BITS = {n: np.dtype(f"i{n}") for n in (1, 2, 4, 8)}


class Extreme:
    """`np.maximum` or `np.minimum` with zeros in order, and what reducers ask of a ufunc. Scratch is that of one more result.

    Where two floats differ in the sign of a zero alone, the greater is that of the greater bits, taken as a signed integer.
    """

    __slots__ = ("ufunc",)

    def __init__(self, ufunc: np.ufunc) -> None:
        self.ufunc = ufunc

    def __call__(self, x: Any, y: Any, out: Array | None = None, dtype: Any = None) -> Any:
        """Element by element, broadcast as by the ufunc."""
        alone = y if y.ndim == 0 else x if x.ndim == 0 else None
        if not _has_signed_zeros(x) or (alone is not None and alone != 0):
            return self.ufunc(x, y, out=out, dtype=dtype)
        if alone is not None and self.ufunc is np.maximum and _bits(alone) == 0:
            found = self.ufunc(x, y, out=out, dtype=dtype)
            return np.add(found, alone, out=found if isinstance(found, np.ndarray) else None)  # -0.0 + 0.0 is 0.0
        if alone is None and not (_has_zeros(x) and _has_zeros(y)):
            return self.ufunc(x, y, out=out, dtype=dtype)
        other = self.ufunc(y, x, dtype=dtype)
        found = self.ufunc(x, y, out=out, dtype=dtype)
        if not isinstance(found, np.ndarray):
            return self.ufunc(_bits(found), _bits(other)).view(found.dtype)
        self.ufunc(_bits(found), _bits(other), out=_bits(found))
        return found

    def reduce(self, array: Array, axis: Any = 0, dtype: Any = None, out: Array | None = None, keepdims: bool = False) -> Any:
        """Of all elements along axes."""
        found = self.ufunc.reduce(array, axis=axis, dtype=dtype, out=out, keepdims=keepdims)
        return self._signed(array, found, lambda bits: self.ufunc.reduce(bits, axis=axis, keepdims=keepdims))

    def accumulate(self, array: Array, axis: int = 0, dtype: Any = None, out: Array | None = None) -> Any:
        """Of the elements up to each, along an axis."""
        found = self.ufunc.accumulate(array, axis, dtype, out)
        return self._signed(array, found, lambda bits: self.ufunc.accumulate(bits, axis))

    def at(self, result: Array, positions: Array, values: Array) -> None:
        """Each value into its position of the flat `result`."""
        before = result[positions] if _has_signed_zeros(result) and _has_zeros(values) else result[:0]
        self.ufunc.at(result, positions, values)
        if not before.size:
            return
        winner = np.zeros((), result.dtype) if self.ufunc is np.maximum else -np.zeros((), result.dtype)
        is_zero = result[positions] == 0
        for given in (before, np.broadcast_to(values, before.shape)):
            result[positions[is_zero & (_bits(given) == _bits(winner))]] = winner

    def _signed(self, array: Array, found: Any, of: Callable[[Array], Any]) -> Any:
        """`found` of an array, with the sign that a zero has by the same `of` the bits: all of them are on one side of it."""
        if not _has_signed_zeros(array):
            return found
        if _has_zeros(np.asarray(found)):
            is_zero = np.asarray(found == 0)
            zeros = np.zeros((), found.dtype), -np.zeros((), found.dtype)
            signed = np.where(np.asarray(of(_bits(array))) < 0, zeros[1], zeros[0])
            if not isinstance(found, np.ndarray):
                return signed[()]
            np.copyto(found, signed, where=is_zero)
        return found


def _has_signed_zeros(x: Any) -> bool:
    kind = x.dtype.kind
    return kind == "f" or (kind not in "biucO" and not is_int(x))


def _has_zeros(x: Array) -> bool:
    """Whether there are any; of few elements counting is faster."""
    return bool(np.count_nonzero(x) < x.size if x.size <= FEW else (x == 0).any())


FEW = 1 << 11


def _bits(x: Any) -> Any:
    return x.view(_BITS[x.dtype.itemsize])


maximum = Extreme(np.maximum)
minimum = Extreme(np.minimum)
