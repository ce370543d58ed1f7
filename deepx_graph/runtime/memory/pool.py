"""Memory for large results that is used again once the caller has let go of it.

Fresh memory costs a page fault every 4 KiB, which is most of the time of a large elementwise kernel. So the memory behind results
is kept, and used again when no array over it is left: its reference count says so. An array that somebody holds, or of which
somebody holds any view, is never touched. What is kept is bounded; when memory runs out it is all given back.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.forking import Lock
from deepx_graph.literal import Array
from deepx_graph.runtime.memory.pages import ALIGNMENT, aligned, pages

LEAST_BYTES = 256 << 10
"""Smaller results come from numpy's own allocator, which keeps such memory itself."""

GRAIN = 64 << 10
"""Sizes are rounded up to this, so that results of nearly one size can follow each other."""


def _limit() -> int:
    """The sixteenth part of the machine's memory, at most 1 GiB."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        machine = 4 << 30
    return int(min(1 << 30, machine // 16))


def _references(blocks: list[Array], k: int) -> int:
    return sys.getrefcount(blocks[k])


_UNUSED = _references([np.empty(0)], 0)
"""The count, by `_references`, of a block that only its list holds."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes kept for results: `in_use` by arrays, `free`, and the `limit` of both."""

    in_use: int
    free: int
    limit: int


class BufferPool:
    """Keeps at most `limit` bytes, in use or not."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = _limit() if limit is None else limit
        self._lock = Lock()
        self._blocks: dict[int, list[Array]] = {}
        self._total = 0

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """A C-contiguous array with arbitrary contents. Raises MemoryError when there is no memory even so."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < LEAST_BYTES or nbytes > self._limit:
            return self._allocate(shape, dtype)
        size = -(-nbytes // GRAIN) * GRAIN
        with self._lock:
            block = self._free(size)
            if block is None:
                block = self._new(size)
        return block[:nbytes].view(dtype).reshape(shape)

    def is_in_use_once(self, array: Array) -> bool:
        """Whether the array lies in memory in use from this pool, and no other array does."""
        block = array.base
        if type(block) is not np.ndarray:
            return False
        with self._lock:
            ours = any(b is block for b in self._blocks.get(block.nbytes, ()))
        return ours and sys.getrefcount(block) <= _IN_USE_ONCE

    def use(self) -> MemoryUse:
        """What is kept now."""
        with self._lock:
            in_use = sum(size for size, blocks in self._blocks.items() for k in range(len(blocks))
                       if _references(blocks, k) != _UNUSED)
            return MemoryUse(in_use, self._total - in_use, self._limit)

    def release(self) -> None:
        """Gives back what nobody holds."""
        with self._lock:
            self._drop_unused()

    def clear(self) -> None:
        """Keeps nothing any more; what is in use stays its holder's."""
        with self._lock:
            self._blocks.clear()
            self._total = 0

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        try:
            return np.empty(shape, dtype)
        except MemoryError:
            self.clear()
            return np.empty(shape, dtype)

    def _free(self, size: int) -> Array | None:
        blocks = self._blocks.get(size, [])
        for k in range(len(blocks)):
            if _references(blocks, k) == _UNUSED:
                return blocks[k]
        return None

    def _new(self, size: int) -> Array:
        if self._total + size > self._limit:
            self._drop_unused()
        try:
            block = pages(size)
        except MemoryError:
            self._drop_unused()
            block = pages(size)
        if self._total + size <= self._limit:
            self._blocks.setdefault(size, []).append(block)
            self._total += size
        return block

    def _drop_unused(self) -> None:
        for size, blocks in self._blocks.items():
            used = [k for k in range(len(blocks)) if _references(blocks, k) != _UNUSED]
            self._total -= size * (len(blocks) - len(used))
            self._blocks[size] = [blocks[k] for k in used]


def _in_use_once() -> int:
    """The count, as `is_in_use_once` takes it, of a block that its list and one array hold."""
    blocks = [np.empty(1)]
    array = blocks[0][:]
    block = array.base
    assert block is not None
    return sys.getrefcount(block)


_IN_USE_ONCE = _in_use_once()

RESULTS = BufferPool()
"""The one of the process: results of every kernel come from here."""


def owned(value: Any) -> Array:
    """A copy of an array in memory that belongs to the caller."""
    array = np.asarray(value)
    copy = RESULTS.empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def result_memory(shape: tuple[int, ...], dtype: np.dtype[Any], args: Sequence[Any], out: Any, in_place: frozenset[int]) -> Array:
    """Memory for a result: `out` itself where writing there early does no harm to the arguments; `in_place` may be written over."""
    if out is None or not out.flags.c_contiguous or out.shape != shape:
        return RESULTS.empty(shape, dtype)
    for k, arg in enumerate(args):
        if np.may_share_memory(out, arg):
            may_overwrite = k in in_place and arg.ctypes.data == out.ctypes.data and arg.strides == out.strides
            if not may_overwrite:
                return RESULTS.empty(shape, dtype)
    return out  # type: ignore[no-any-return]


def delivered(made: list[Array], out: Sequence[Any] | None) -> list[Array]:
    """The results in the arrays of `out`, where one is given: those that were made elsewhere are copied there."""
    if out is None:
        return made
    for given, array in zip(out, made, strict=True):
        if given is not None and given is not array:
            np.copyto(given, array)
    return [array if given is None else given for given, array in zip(out, made, strict=True)]


def room(size: int) -> Array:
    """Bytes on a cache line, from the buffer pool when they are large."""
    if size < LEAST_BYTES:
        return aligned(size)
    whole = RESULTS.empty((size + ALIGNMENT,), np.dtype(np.uint8))
    start = -whole.ctypes.data % ALIGNMENT
    return whole[start : start + size]


KEPT_BYTES = 32 << 20
"""The kernels of an engine keep their workspaces, those of all threads, from call to call up to this size in all; those above it
take them from the buffer pool for every call."""


class Allowance:
    """Bytes that the kernels of an engine may keep from call to call, all together."""

    def __init__(self, nbytes: int) -> None:
        self.left = nbytes

    def take(self, nbytes: int) -> bool:
        """Whether there are so many left, which are then taken."""
        if nbytes > self.left:
            return False
        self.left -= nbytes
        return True
