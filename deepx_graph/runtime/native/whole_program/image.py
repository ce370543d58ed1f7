"""The memory of a call of a whole program, as it is when the program begins.

It is one piece: the words of the machine function, a table for each kernel that is called, room for the addresses of what each
thread has, and all values. Its head, all but the values, is plain data: it is copied here, is data of an object file
(`aot/entry.py`), and is written down and read again (`aot/stored_kernel.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from deepx_graph.runtime.kernels.memory import aligned
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.machine_kernel import DATA, memory_sizes, rounded
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


@dataclass(frozen=True)
class ConstantWord:
    """A word that is the address of an array, of which the words `relocations` are addresses of machine functions."""

    at: int
    array: Array
    relocations: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ProgramImage:
    """The head of a call's memory and the size of that; words are numbered."""

    words: Array
    inner: Array
    """The words that are addresses in this memory: they have the offsets."""
    constants: tuple[ConstantWord, ...]
    functions: tuple[tuple[int, int], ...]
    """The words that are addresses of machine functions, and these."""
    nbytes: int

    @staticmethod
    def of(plan: ProgramPlan, limit: int) -> ProgramImage:
        """That of a plan, which does so many jumps back in one call."""
        called = kernels_of(plan)
        kernels = [c.kernel for c in called]
        _, _, threads = memory_sizes(kernels)
        sizes = [words_bytes(plan), *(8 * k.layout.size for k in kernels), 8 * threads]
        *tables, scratches, values = accumulate(map(rounded, sizes))
        head = _Head(values)
        head.words[LIMIT // 8] = limit
        head.point(MEMORY, values)
        head.point(SCRATCHES, scratches)
        for number, storage in enumerate(plan.storages):
            home = plan.homes.get(number)
            if storage.array is not None:
                head.constants.append(ConstantWord((cell(number) + DATA) // 8, storage.array, ()))
            elif home is not None and home.result is None:
                for at in (DATA, HOME):
                    head.point(cell(number) + at, values + home.offset)
        position = calls_at(plan)
        for call, table, starts in zip(called, tables, plan.workspaces, strict=True):
            constants = table + 8 * len(call.objects)
            own = constants + 8 * len(call.kernel.constants)
            for k, object in enumerate(map(cell, call.objects)):
                head.point(table + 8 * k, object)
            for k, array in enumerate(call.kernel.constants):
                head.constants.append(ConstantWord(constants // 8 + k, array, () if k else call.kernel.relocations))
            for k, start in enumerate(starts[:-1]):
                head.point(own + 8 * k, values + start)
            for function, _ in call.kernel.calls:
                head.functions.append((position // 8, function))
                head.point(position + 8, table)
                position += 16
        return ProgramImage(head.words, np.array(head.inner), tuple(head.constants), tuple(head.functions), values + plan.nbytes)

    @property
    def value_bytes(self) -> int:
        """The memory of all values."""
        return self.nbytes - self.words.nbytes

    @property
    def addresses(self) -> tuple[int, ...]:
        """The machine functions of which it has addresses."""
        called = (address for _, address in self.functions)
        return (*called, *(int(c.array[at]) for c in self.constants for at in c.relocations))

    def in_memory(self, stack_bytes: int = 0, most_depth: int = 0) -> Array:
        """The words of one call at a time in this process, with all that they point to but constants; behind it so many bytes for
        the records of recursive calls: that of which nothing is used costs nothing."""
        memory = aligned(rounded(self.nbytes) + stack_bytes)
        words = memory[: self.words.nbytes].view(np.int64)
        words[:] = self.words
        words[self.inner] += words.ctypes.data
        for c in self.constants:
            words[c.at] = c.array.ctypes.data
        for at, function in self.functions:
            words[at] = function
        if (workers := pool()) is not None:
            words[SHARE // 8], words[POOL // 8] = workers.share_address, workers.address
        start = words.ctypes.data + rounded(self.nbytes)
        words[STACK_START // 8], words[STACK_END // 8], words[MOST_DEPTH // 8] = start, start + stack_bytes, most_depth
        return words


class _Head:
    """A head that is being written."""

    def __init__(self, nbytes: int) -> None:
        self.words = np.zeros(nbytes // 8, np.int64)
        self.inner: list[int] = []
        self.constants: list[ConstantWord] = []
        self.functions: list[tuple[int, int]] = []

    def point(self, at: int, offset: int) -> None:
        """Lets the word at so many bytes be an address in this memory."""
        self.words[at // 8] = offset
        self.inner.append(at // 8)
