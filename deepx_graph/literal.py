"""Constant tensors as values: read-only arrays compared and hashed by their bits.

`Literal` keeps one element when all are equal (a splat), so a filled tensor of any size costs nothing until it is used.
NaNs with the same bits are equal here, and 0.0 and -0.0 are not: a literal stands for exactly one array. The weights of a model may
be larger than memory: they are told apart by a few elements, and read whole only where those are the same in two places.
"""

from __future__ import annotations

import hashlib
import math
from functools import cached_property
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.files import pieces
from deepx_graph.types import DType, TensorType, dtype_of, tensor

Array = np.ndarray[Any, np.dtype[Any]]

MAX_BOUNDED = 1 << 20
"""Elements of an array that is an option and no operand: a shape, say. A splat takes no memory and may stand for any number."""


SAMPLED = 1 << 10
"""Elements at the beginning, in the middle and at the end of an array that are looked at before all of them are."""


def content(array: Array) -> bytes:
    """The elements as bytes, different for different arrays of one type: those in memory, texts in UTF-8 each behind its length."""
    if not array.dtype.hasobject:
        return np.ascontiguousarray(array).tobytes()
    texts = [str(t).encode("utf-8", "surrogatepass") for t in array.reshape(-1).tolist()]
    return b"".join(len(t).to_bytes(8, "little") + t for t in texts)


def bits(array: Array) -> Array:
    """The elements as bytes, in memory as they are where they lie in order. Not for texts."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Literal:
    """An immutable array. `Literal(array)` copies nothing it need not; the array must not be changed afterwards."""

    __slots__ = ("__dict__", "array", "is_splat")

    def __init__(self, array: Any) -> None:
        array = np.asarray(array)
        self.is_splat: bool = array.size == 1 or (array.size > 0 and not any(
            s for s, d in zip(array.strides, array.shape, strict=True) if d > 1))
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        if array.flags.writeable:
            array = array.view()
            array.flags.writeable = False
        self.array: Array = array

    @classmethod
    def splat(cls, value: Any, type: TensorType) -> Literal:
        """The tensor of `type` (static) whose every element is `value`, already of its dtype or converted to it.

        Raises InferError for a shape that no array has, such as `[0, 2**62, 2**62]`.
        """
        element = np.asarray(value, dtype=type.dtype.np)
        try:
            return cls(np.broadcast_to(element, type.shape))
        except ValueError as e:
            raise InferError(f"no array is {an(type)}: {e}") from None

    def bounded(self) -> Array:
        """The array, to be copied or taken apart. Raises InferError where it has more than `MAX_BOUNDED` elements or empty rows."""
        if math.prod(max(1, n) for n in self.array.shape) > MAX_BOUNDED:
            raise InferError(f"{an(self.type)} where numbers are asked for", expected=f"at most {MAX_BOUNDED} of them")
        return self.array

    @cached_property
    def type(self) -> TensorType:
        return tensor(dtype_of(self.array.dtype), self.array.shape)

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @cached_property
    def splat_value(self) -> np.generic | None:
        """The one element value when all elements have the same bits, else None; of texts always None. Costs a pass over the data
        once, where a few elements do not differ."""
        if self.array.size == 0 or self.array.dtype.hasobject:
            return None
        first: np.generic = self.array[(0,) * self.array.ndim]
        if self.is_splat:
            return first
        size = self.array.itemsize
        if len(self._sample) > size:
            return None
        word, words = f"u{min(size, 8)}", -(-size // 8)
        same = np.frombuffer(self._sample, word)
        return first if all(bool((p.view(word).reshape(-1, words) == same).all()) for p in pieces(bits(self.array))) else None

    @cached_property
    def _sample(self) -> bytes:
        """The bits of elements at both ends and in the middle, those of one element where they are all equal; a digest of texts."""
        array = self.array
        if array.dtype.hasobject:
            return hashlib.blake2b(content(array)).digest()
        if self.is_splat:
            element: bytes = array[(0,) * array.ndim].tobytes()
            return element
        flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
        starts = (0,) if array.size <= 3 * SAMPLED else (0, array.size // 2, array.size - SAMPLED)
        count = array.size if array.size <= 3 * SAMPLED else SAMPLED
        found = b"".join(flat[k : k + count].tobytes() for k in starts)
        one: bytes = found[: array.itemsize]
        return one if found == one * (len(found) // array.itemsize) else found

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Literal) or hash(self) != hash(other) or self.type != other.type or self._sample != other._sample:
            return False
        ours, theirs = self.array, other.array
        stored_once = ours.ctypes.data == theirs.ctypes.data and ours.strides == theirs.strides
        if stored_once or ours.size <= 3 * SAMPLED or ours.dtype.hasobject:
            return True
        uniform = self.splat_value is not None, other.splat_value is not None
        if any(uniform):
            return all(uniform)
        return all(np.array_equal(x, y) for x, y in zip(pieces(bits(ours)), pieces(bits(theirs)), strict=True))

    def __hash__(self) -> int:
        return hash((self.type, self._sample))

    def __repr__(self) -> str:
        value = self.splat_value
        shown = str(value) if value is not None else np.array2string(self.array, threshold=4, separator=",")
        return f"{shown}:{self.type}"
