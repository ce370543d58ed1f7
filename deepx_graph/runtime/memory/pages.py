"""Memory for kernels and results."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

from deepx_graph.literal import Array

ALIGNMENT = 64

HUGE = 2 << 20
"""Bytes of a huge page; other sizes of them are as good as small pages here."""


def aligned(size: int) -> Array:
    """Fresh bytes that begin on a cache line."""
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + size]


def pages(size: int) -> Array:
    """Fresh bytes that begin on a page, huge pages where the system has them. Raises MemoryError.

    The array is the base of every view of it.
    """
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return np.empty(size, np.uint8)
    try:
        memory = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as e:
        raise MemoryError(f"{size} bytes") from e
    start = -np.frombuffer(memory, np.uint8).ctypes.data % HUGE
    huge = (size + HUGE // 2) // HUGE * HUGE
    if huge:
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE, start, huge)
    return np.ndarray(size, np.uint8, memory, start)

