"""Ufuncs as reducers of whole arrays: sums, products and extremes, rounded once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from deepx_graph.ir.evaluation import WORD
from deepx_graph.literal import Array
from deepx_graph.ops.helpers import is_int, like, wider
from deepx_graph.ops.math.extremes import Extreme
from deepx_graph.types import TensorType

_PIECE = 1 << 18
"""Elements that are held in a wider type at a time."""

_LEAST_BLOCK = 64
"""Elements that become one, where the last block is no longer than the others, at the least."""

_FEW = 8
"""Where less than one position in so many is written to, only these are looked at."""


class UfuncMonoid:
    """A ufunc as a reducer, of integers that wrap and floats of any width. The arrays keep their dtype.

    `rounds` says that each step rounds. Then what is combined is kept in a wider type, and rounded once at the end; where there is
    none, it is combined in blocks of blocks, so that the error grows with the logarithm of their number. With `negative_zero` a
    float zero that changes nothing is -0.0, where numpy would begin with the other one.
    """

    __slots__ = ("function", "negative_zero", "rounds")

    def __init__(self, function: np.ufunc | Extreme, rounds: bool = False, negative_zero: bool = False) -> None:
        self.function, self.rounds, self.negative_zero = function, rounds, negative_zero

    def _reduce(self, array: Array, axis: Any, dtype: Any, keepdims: bool = False) -> Any:
        start: dict[str, Any] = {"initial": -dtype.type(0)} if self.negative_zero and dtype.kind in "fc" else {}
        return self.function.reduce(array, axis=axis, dtype=dtype, keepdims=keepdims, **start)

    def __call__(self, array: Array, axes: tuple[int, ...]) -> Array:
        """Reduced along axes."""
        return like(self.unrounded(array, axes), array.dtype)

    def unrounded(self, array: Array, axes: tuple[int, ...]) -> Array:
        """Reduced along axes, in the type in which that is done."""
        wide = self.accumulator(array)
        if wide == array.dtype and self.rounds and array.dtype.kind in "fc":
            return self.in_blocks(array, axes)
        return np.asarray(self._reduce(array, axes, wide))

    def scratch(self, operand: TensorType, axes: tuple[int, ...]) -> int:
        """The bytes that a reduction along the axes takes beside operand and result: wide results, blocks, what one axis leaves."""
        shape, size, each = operand.shape, operand.size, max(WORD, operand.dtype.itemsize)
        if not self.rounds or not operand.dtype.is_differentiable or not axes or not size:
            return 0
        kept = size // math.prod(shape[k] for k in axes)
        return each * (kept if operand.dtype.itemsize < WORD else size // _LEAST_BLOCK + 2 * size // shape[max(axes)])

    def accumulator(self, array: Array) -> np.dtype[Any]:
        """The type in which elements of the array are combined."""
        exact = not self.rounds or array.dtype.kind in "biu" or is_int(array)
        return array.dtype if exact else wider(array.dtype)

    def quickly(self, array: Array, axes: tuple[int, ...]) -> Array:
        """Reduced along axes as engines do it: what the machine adds itself is not widened."""
        return self.in_blocks(array, axes) if self.rounds and array.dtype.char in "fdFD" else self(array, axes)

    def in_blocks(self, array: Array, axes: tuple[int, ...], block: int = 128) -> Array:
        """Reduced along axes in the arrays' own dtype, no more than `block` elements one after the other."""
        for axis in sorted(axes, reverse=True):
            while array.shape[axis] > block:
                array = self._blocks(array, axis, block)
            array = self._reduce(array, axis, array.dtype)
        return like(array, array.dtype)

    def _blocks(self, array: Array, axis: int, block: int) -> Array:
        """Each block along the axis combined into one element."""
        before, size, after = array.shape[:axis], array.shape[axis], array.shape[axis + 1 :]
        whole = size // block * block
        head, tail = np.split(array, [whole], axis)
        found = self._reduce(head.reshape(*before, size // block, block, *after), axis + 1, array.dtype)
        if whole == size:
            return like(found, array.dtype)
        return np.concatenate([found, self._reduce(tail, axis, array.dtype, keepdims=True)], axis)

    def at(self, result: Array, positions: Array, values: Array) -> None:
        """Each value combined into its position of the flat `result`, one after the other."""
        wide = self.accumulator(result)
        if wide == result.dtype:
            self.function.at(result, positions, values)
            return
        touched: Any = slice(None)
        if positions.size < result.size // _FEW:
            touched, positions = np.unique(positions, return_inverse=True)
        totals = result[touched].astype(wide)
        self.function.at(totals, positions, values.astype(wide))
        result[touched] = totals

    def fold(self, init: Array, arrays: Iterable[Array], shape: tuple[int, ...]) -> Array:
        """The initial value in every position, combined with arrays of that shape one after the other."""
        total = np.broadcast_to(init, shape).astype(self.accumulator(init))
        for array in arrays:
            total = self.function(total, array, dtype=total.dtype)
        return total.astype(init.dtype)

    def scan(self, array: Array, axis: int, block: int = 16) -> Array:
        """Running results along an axis, each rounded once.

        Where no wider type is kept (f64, and types narrower than f32, whose every step XLA rounds), long ones go by blocks, whose
        totals are scanned in turn.
        """
        size, wide = array.shape[axis], self.accumulator(array)
        if wide != array.dtype and array.dtype.itemsize >= 4:
            return self._wide_scan(array, axis, wide)
        if size <= block or not self.rounds or is_int(array):
            return like(self.function.accumulate(array, axis=axis, dtype=array.dtype), array.dtype)
        whole = size // block * block
        lines = np.moveaxis(array, axis, -1)
        inner = self.scan(lines[..., :whole].reshape(*lines.shape[:-1], -1, block), lines.ndim)
        totals = self.scan(inner[..., -1], lines.ndim - 1)
        inner[..., 1:, :] = self.function(totals[..., :-1, None], inner[..., 1:, :])
        rest = self.scan(lines[..., whole:], lines.ndim - 1) if whole < size else lines[..., :0]
        parts = [inner.reshape(*lines.shape[:-1], whole), self.function(totals[..., -1:], rest)]
        return np.moveaxis(like(np.concatenate(parts, axis=-1), array.dtype), -1, axis)

    def _wide_scan(self, array: Array, axis: int, wide: np.dtype[Any]) -> Array:
        """Running results, a piece at a time in the wider type."""
        size = array.shape[axis]
        if array.size <= _PIECE:
            return like(self.function.accumulate(array, axis, wide), array.dtype)
        step = max(1, _PIECE * size // max(1, array.size))
        result, lines = np.empty_like(array), np.moveaxis(array, axis, 0)
        target, last = np.moveaxis(result, axis, 0), None
        for k in range(0, size, step):
            piece = lines[k : k + step].astype(wide)
            if last is not None:
                piece[0] = self.function(last, piece[0])
            self.function.accumulate(piece, axis=0, out=piece)
            target[k : k + step], last = piece, piece[-1]
        return result
