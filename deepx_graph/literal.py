"""Constant tensors as values: read-only arrays compared and hashed by their bits.

`Literal` keeps one element when all are equal (a splat), so a filled tensor of any size costs nothing until it is used.
NaNs with the same bits are equal here, and 0.0 and -0.0 are not: a literal stands for exactly one array.
"""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.types import DType, TensorType, dtype_of, tensor

Array = np.ndarray[Any, np.dtype[Any]]

MAX_BOUNDED = 1 << 20
"""Elements of an array that is an option and no operand: a shape, say. A splat takes no memory and may stand for any number."""


BLOCK = 1 << 16
"""Elements that are compared at a time: an array may be larger than memory, and is seldom all of one value."""


def content(array: Array) -> bytes:
    """The elements as bytes, different for different arrays of one type: those in memory, texts in UTF-8 each behind its length."""
    if not array.dtype.hasobject:
        return np.ascontiguousarray(array).tobytes()
    texts = [str(t).encode("utf-8", "surrogatepass") for t in array.reshape(-1).tolist()]
    return b"".join(len(t).to_bytes(8, "little") + t for t in texts)


class Literal:
    """An immutable array. `Literal(array)` copies nothing it need not; the array must not be changed afterwards."""

    __slots__ = ("__dict__", "array", "is_splat")

    def __init__(self, array: Any) -> None:
        array = np.asarray(array)
        self.is_splat: bool = array.size > 0 and not any(
            s for s, d in zip(array.strides, array.shape, strict=True) if d > 1
        )
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
        """The array, to be copied or taken apart. Raises InferError where it has more than `MAX_BOUNDED` elements."""
        if self.array.size > MAX_BOUNDED:
            raise InferError(f"{an(self.type)} where numbers are asked for", expected=f"at most {MAX_BOUNDED} of them")
        return self.array

    @cached_property
    def type(self) -> TensorType:
        return tensor(dtype_of(self.array.dtype), tuple(int(d) for d in self.array.shape))

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @cached_property
    def splat_value(self) -> np.generic | None:
        """The one element value when all elements have the same bits, else None; of texts always None. Costs a pass over the data
        once."""
        if self.array.size == 0 or self.array.dtype.hasobject:
            return None
        first = self.array[(0,) * self.array.ndim]
        if self.is_splat:
            return first  # type: ignore[no-any-return]
        bits = np.ascontiguousarray(self.array).reshape(-1).view(np.uint8).reshape(self.array.size, -1)
        blocks = range(0, len(bits), BLOCK)
        return first if all(bool((bits[k : k + BLOCK] == bits[0]).all()) for k in blocks) else None

    @cached_property
    def _key(self) -> tuple[Any, ...]:
        value = self.splat_value
        if value is not None:
            return self.type, True, value.tobytes()
        if self.array.dtype.hasobject:
            return self.type, False, hashlib.blake2b(content(self.array)).digest()
        return self.type, False, hashlib.blake2b(np.ascontiguousarray(self.array).view(np.uint8).data).digest()

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Literal) and self._hash == other._hash and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        value = self.splat_value
        shown = str(value) if value is not None else np.array2string(self.array, threshold=4, separator=",")
        return f"{shown}:{self.type}"
