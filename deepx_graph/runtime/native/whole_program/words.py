"""The words that the machine function of a plan works on, and everything that they point to.

What they hold when a program begins is plain data (`ProgramWords`), so that it can be written down and read again.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from deepx_graph.runtime.kernels.memory import aligned
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.machine_kernel import DATA, KernelMemory, KernelState, MachineKernel, address_of
from deepx_graph.runtime.native.threads import pool
from deepx_graph.runtime.native.whole_program.emit import (
    HOME,
    LIMIT,
    MEMORY,
    MOST_DEPTH,
    POOL,
    SCRATCHES,
    SHARE,
    STACK_END,
    STACK_START,
    calls_at,
    cell,
    kernels_of,
    words_bytes,
)
from deepx_graph.runtime.native.whole_program.plan import ProgramPlan


class TableCall(NamedTuple):
    """A kernel that is called: the bytes of the words at which its objects are, and where the memory that it has of its own begins
    in that of all values."""

    kernel: MachineKernel
    objects: tuple[int, ...]
    own: int


@dataclass(frozen=True, eq=False)
class ProgramWords:
    """The words of a program when it begins, all offsets in bytes."""

    nbytes: int
    value_bytes: int
    """Of the memory of all values."""
    limit: int
    """Jumps back in one call."""
    arrays: tuple[tuple[int, Array], ...]
    """Words that are addresses of constants."""
    homes: tuple[tuple[int, int], ...]
    """Words that are addresses in the memory of all values, and where there."""
    calls_at: int
    calls: tuple[TableCall, ...]

    @staticmethod
    def of(plan: ProgramPlan, limit: int) -> ProgramWords:
        """Those of a plan."""
        storages = [(cell(k), plan.homes.get(k), s.array) for k, s in enumerate(plan.storages)]
        return ProgramWords(
            words_bytes(plan), plan.nbytes, limit, tuple((at + DATA, array) for at, _, array in storages if array is not None),
            tuple((at + word, home.offset) for at, home, array in storages
                  if array is None and home is not None and home.result is None for word in (DATA, HOME)),
            calls_at(plan), tuple(TableCall(c.kernel, tuple(map(cell, c.objects)), own)
                                  for c, own in zip(kernels_of(plan), plan.workspaces, strict=True)))


class WordsInMemory:
    """The words of one call at a time."""

    def __init__(self, words: ProgramWords) -> None:
        kernels = [c.kernel for c in words.calls]
        self.array = aligned(words.nbytes).view(np.int64)
        self.array[:] = 0
        base = self.array.ctypes.data
        memory, values = KernelMemory(kernels, own=False), aligned(words.value_bytes)
        self._kept: list[Any] = [memory, values, words]
        self.state = KernelState(self.array, self._kept)
        start = values.ctypes.data
        self.array[LIMIT // 8] = words.limit
        self.array[MEMORY // 8] = start
        self.array[SCRATCHES // 8] = ctypes.addressof(memory.scratches)
        if (workers := pool()) is not None:
            self.array[SHARE // 8], self.array[POOL // 8] = workers.share_address, workers.address
        for at, array in words.arrays:
            self.array[at // 8] = array.ctypes.data
        for at, offset in words.homes:
            self.array[at // 8] = start + offset
        position = words.calls_at // 8
        for kernel, objects, own in words.calls:
            table = memory.table(kernel, start + own)
            np.frombuffer(table, np.int64)[: len(objects)] = [base + at for at in objects]
            self._kept.append(table)
            for function, _ in kernel.calls:
                self.array[position : position + 2] = function, address_of(table)
                position += 2

    def give_stack(self, nbytes: int, most_depth: int) -> None:
        """Memory for the records of recursive calls; that of which nothing is used costs nothing."""
        stack = aligned(nbytes)
        self._kept.append(stack)
        self.array[STACK_START // 8] = stack.ctypes.data
        self.array[STACK_END // 8] = stack.ctypes.data + nbytes
        self.array[MOST_DEPTH // 8] = most_depth
