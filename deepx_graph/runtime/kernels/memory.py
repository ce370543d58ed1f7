"""Memory for kernels, and which results of one may lie in the memory of an argument: that follows from the order of its steps."""

from __future__ import annotations

import contextlib
import mmap

import numpy as np

from deepx_graph.runtime.kernels.program import Array, BlockPlan, KernelProgram, Leaf

ALIGNMENT = 64

HUGE = 2 << 20
"""Bytes of a huge page; other sizes of them are as good as small pages here."""


def aligned(size: int) -> Array:
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


def overwritten(program: KernelProgram, plan: BlockPlan) -> tuple[frozenset[int], ...]:
    """For each result, the parameters whose memory it may take: read at the very elements that are written, and no later."""
    steps = [((level, k), step) for level, steps in enumerate(plan.levels) for k, step in enumerate(steps)]
    made = {step.target: (at, step) for at, step in steps}
    last_read = {s: at for at, step in steps for s in step.sources}
    by_param: dict[int, list[Leaf]] = {}
    for leaf in program.leaves:
        by_param.setdefault(leaf.param, []).append(leaf)

    def may_take(result: int, leaf: Leaf) -> bool:
        is_plain = not leaf.views and leaf.order is None
        same = program.registers[leaf.register].shape == program.registers[result].shape
        at, step = made[result]
        read = last_read.get(leaf.register)
        return is_plain and same and (read is None or read < at or (read == at and step.in_place))

    return tuple(
        frozenset(p for p, leaves in by_param.items() if r not in plan.partial and all(may_take(r, leaf) for leaf in leaves))
        for r in program.results)
