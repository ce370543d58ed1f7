"""Which buffer each temporary register of a kernel uses, and the arrays over those buffers.

Registers of one level whose lifetimes do not overlap share a slot; an in-place step writes over a source that ends there. A slot is
plain bytes; `Arena` makes the typed arrays over it once, for each height of a block. Some results lie in the memory of an argument,
which follows from the order in which the steps run.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.runtime.kernels.program import Array, BlockPlan, KernelProgram, Leaf, Register, Shape, Step

ALIGNMENT = 64

HUGE = 2 << 20
"""Bytes of a huge page; other sizes of them are as good as small pages here."""


@dataclass(frozen=True)
class Slots:
    """`of` maps a register to its slot; `sizes` are the slots' bytes."""

    of: dict[int, int]
    sizes: tuple[int, ...]


def allot(steps: Sequence[Step], registers: Sequence[Register], shapes: Sequence[Shape], own: Collection[int],
          kept: Collection[int] = ()) -> Slots:
    """Slots for the targets of `steps`, apart from those in `own`, which have memory of their own; `kept` ones are never reused.

    `shapes` are the largest shapes that the registers take.
    """
    last = {s: k for k, step in enumerate(steps) for s in step.sources}
    sizes: list[int] = []
    free: dict[int, list[int]] = {}
    of: dict[int, int] = {}
    for k, step in enumerate(steps):
        ending = [s for s in dict.fromkeys(step.sources) if s in of and last[s] == k and s not in kept]
        register = registers[step.target]
        if step.target not in own:
            reused = _reusable(step, ending, registers) if step.in_place else None
            if reused is not None:
                of[step.target] = of[reused]
                ending.remove(reused)
            else:
                need = math.prod(shapes[step.target]) * register.dtype.itemsize
                of[step.target] = _take(free, sizes, need)
        for s in ending:
            free.setdefault(sizes[of[s]], []).append(of[s])
    return Slots(of, tuple(sizes))


def _reusable(step: Step, ending: Sequence[int], registers: Sequence[Register]) -> int | None:
    target = registers[step.target]
    for s in ending:
        if registers[s].shape == target.shape and registers[s].dtype.itemsize == target.dtype.itemsize:
            return s
    return None


def _take(free: dict[int, list[int]], sizes: list[int], need: int) -> int:
    if free.get(need):
        return free[need].pop()
    sizes.append(need)
    return len(sizes) - 1


class Arena:
    """Memory for some slots, and the arrays over it."""

    def __init__(self, slots: Slots, make: Callable[[int], Array]) -> None:
        """`make` gives bytes on a cache line."""
        self.slots = slots
        self._buffers = [make(size) for size in slots.sizes]

    def array(self, register: int, dtype: np.dtype[Any], shape: Shape) -> Array:
        """The register's array in that shape."""
        size = math.prod(shape) * dtype.itemsize
        return self._buffers[self.slots.of[register]][:size].view(dtype).reshape(shape)


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
