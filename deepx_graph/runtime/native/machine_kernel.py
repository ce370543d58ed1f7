"""What all kernels of machine code have: a workspace for each call, kept while it is small, and threads that share the work.

A kernel may be called from several threads at once, and by other machine code.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph.runtime.array_type import ArrayType
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.kernels.memory import ALIGNMENT
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.memory.pool import LEAST_BYTES, Allowance, delivered, result_memory, room
from deepx_graph.runtime.memory.sharing import packed
from deepx_graph.runtime.native.llvm.machine_code import FunctionReference
from deepx_graph.runtime.native.threads import SHARED, pool, run_shared

if TYPE_CHECKING:
    from deepx_graph.runtime.native.whole_program.image import ProgramImage

KEPT_BYTES = LEAST_BYTES
"""A workspace up to this size is kept from call to call; a larger one is made of the buffer pool's memory for every call."""

FEW_BYTES = 4 << 10
"""So many bytes of a call are not counted: tables, totals of shares, gaps for alignment, which do not grow with tensors."""

DATA = 16
"""Where an array object of CPython keeps the address of its elements; the trampoline checks it."""

LONG_NANOSECONDS = 60_000
"""Work from here on lets other threads of Python run meanwhile, which costs some tenths of a microsecond."""

ALONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
"""`function(table, scratch)`, while other threads of Python may run."""

ALONE_AND_SHORT = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
"""The same while they may not, which costs less."""


@cache
def data_is_where_expected() -> bool:
    """Whether array objects keep the address of their elements where kernels read it."""
    probe = np.empty(3)
    return ctypes.c_void_p.from_address(id(probe) + DATA).value == probe.ctypes.data


@dataclass(frozen=True)
class Layout:
    """The slots of a table: `objects` array objects (arguments, then results), then plain addresses of everything else. Each thread
    has so many bytes of scratch memory."""

    scratch_bytes: int
    objects: int
    size: int


class MachineKernel:
    """A callable of machine code: `kernel(args, out)` gives all its results, in `out` where that is given. It runs on a
    table: array objects, then addresses of constants and of its own memory."""

    results: tuple[ArrayType, ...]
    in_place: tuple[frozenset[int], ...]
    """For each result, the arguments of its type over which it may be written."""
    lowering: str
    """How it runs, in a few words."""
    layout: Layout
    params: tuple[int, ...]
    """The number of the argument whose array object is in each of the first entries of the table; those of results follow."""
    relocations: tuple[int, ...] = ()
    """The words of the first constant that are addresses of machine functions."""
    own_bytes: tuple[int, ...]
    """Its temporaries and partial results."""
    own_spans: tuple[tuple[int, int], ...] = ()
    """The parts of its work from which and to which it has each of these, where that is not all of it."""
    threads: int
    nanoseconds: float
    """About how long one thread works on it."""
    called: tuple[tuple[FunctionReference, int], ...]
    """What runs it: machine functions, each with the number of threads that share its work; 0 for one that takes no counter."""
    image: ProgramImage | None = None
    """Of a whole program the memory of a call when it begins, whose words are one constant more in its table: the first is not 0 as
    long as there is more to do."""
    is_one_call: bool = True
    """Whether one round of the calls does it all; else there are as many as its words say."""

    @cached_property
    def constants(self) -> tuple[Array, ...]:
        """Arrays whose elements its table has the addresses of."""
        return ()

    @cached_property
    def calls(self) -> tuple[tuple[int, int], ...]:
        """Those that are `called`, by their addresses; waits for their code."""
        return tuple((function.address, threads) for function, threads in self.called)

    @cached_property
    def own(self) -> tuple[list[int], int]:
        """Where each of its temporaries begins in the memory that it has of its own, and the size of that; what threads have begins
        on a cache line behind it."""
        offsets, nbytes = packed(self.own_spans or ((0, 0),) * len(self.own_bytes), self.own_bytes)
        return offsets, rounded(nbytes) if self.layout.scratch_bytes else nbytes

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        raise NotImplementedError

    def new_words(self) -> Array | None:
        """The words of the image in new memory, if there is one."""
        return None if self.image is None else self.image.in_memory()

    def lasting_memory(self) -> KernelMemory:
        """Memory for a caller that keeps it from call to call."""
        return KernelMemory(self)

    @property
    def team(self) -> int:
        """How many threads share its work at most."""
        return max((threads for _, threads in self.called), default=0)

    @property
    def is_long(self) -> bool:
        """Whether other threads of Python should run meanwhile."""
        return self.nanoseconds > LONG_NANOSECONDS or not self.is_one_call

    @property
    def workspace_bytes(self) -> int:
        """The memory of a call: temporaries, partial results, and what each thread has; the words do not grow with values."""
        return workspace_bytes([self]) + (0 if self.image is None else self.image.value_bytes)

    def scratch(self, loose: Mapping[int, int]) -> int:
        """The most bytes that a call has beside arguments and results, but for a few, where arguments of so many bytes may not lie
        in order."""
        return max(0, self.workspace_bytes - FEW_BYTES) + sum(bytes_ for k, bytes_ in loose.items() if k in self.params)

    @cached_property
    def is_kept(self) -> bool:
        """Whether its workspace is kept from call to call; it may be part of a longer call then."""
        return self.workspace_bytes <= KEPT_BYTES

    def keep(self, allowance: Allowance) -> None:
        """Keeps its workspace only where the allowance has room for it, twice: calls in a row of kernels have one of their own."""
        self.is_kept = self.is_kept and allowance.take(2 * self.workspace_bytes)

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The results for the arguments; in the arrays of `out`, where one is given."""
        given = out or (None,) * len(self.results)
        results = [result_memory(r.shape, r.dtype, args, o, may)
                   for r, o, may in zip(self.results, given, self.in_place, strict=True)]
        try:
            workspace = self._spare.pop()
        except IndexError:
            workspace = Workspace(self)
        self.run(workspace, args, results)
        self.give_back(workspace)
        return delivered(results, out)

    @cached_property
    def _spare(self) -> list[Workspace]:
        """Workspaces that no call has."""
        return []

    def give_back(self, workspace: Workspace) -> None:
        """Keeps the workspace of a call that is done for the next one."""
        if self.is_kept:
            self._spare.append(workspace)

    @cached_property
    def _steps(self) -> list[tuple[Any, int]]:
        """The calls, to be made from Python."""
        alone = ALONE if self.is_long else ALONE_AND_SHORT
        return [(SHARED(address) if threads else alone(address), threads) for address, threads in self.calls]

    def run(self, workspace: Workspace, args: Sequence[Any], results: Sequence[Array]) -> None:
        """Computes the results call after call, until its words say that all is done; they share no memory with the arguments but
        where they may be written over them."""
        arrays = [np.asarray(args[k], order="C") for k in self.params]
        workspace.fill([*arrays, *results])
        words = workspace.memory.words
        if words is None:
            self._round(workspace)
            return
        words[0] = 0
        if self.team > 1 and (workers := pool()) is not None:
            workers.hire(self.team - 1)
        self._round(workspace)
        while words[0]:
            self._round(workspace)

    def _round(self, workspace: Workspace) -> None:
        memory = workspace.memory
        for function, threads in self._steps:
            if threads:
                run_shared(function, workspace.address, threads, memory.scratches)
            else:
                function(workspace.address, memory.scratch[0])


class KernelMemory:
    """Temporaries, partial results, words and scratch memory of a kernel, for one call at a time."""

    def __init__(self, kernel: MachineKernel) -> None:
        nbytes, each, threads = memory_sizes([kernel])
        self._own, self._scratch = room(nbytes), [room(each) for _ in range(threads)]
        self.scratch = [s.ctypes.data for s in self._scratch]
        self.scratches = (ctypes.c_void_p * len(self.scratch))(*self.scratch)
        self.words = kernel.new_words()

    def table(self, kernel: MachineKernel) -> bytearray:
        """A table for the kernel in which all but the array objects is filled in."""
        table = bytearray(8 * kernel.layout.size)
        constants = kernel.constants if self.words is None else (*kernel.constants, self.words)
        start = self._own.ctypes.data
        addresses = [*(a.ctypes.data for a in constants), *(start + offset for offset in kernel.own[0])]
        struct.pack_into(f"{len(addresses)}N", table, 8 * kernel.layout.objects, *addresses)
        return table


def workspace_bytes(kernels: Sequence[MachineKernel]) -> int:
    """The bytes of the memory of kernels that run one after the other."""
    own, each, threads = memory_sizes(kernels)
    return own + each * threads


def memory_sizes(kernels: Sequence[MachineKernel]) -> tuple[int, int, int]:
    """Bytes of temporaries, bytes for each thread, and threads."""
    own = max((k.own[1] for k in kernels), default=0)
    each = max((rounded(k.layout.scratch_bytes) for k in kernels), default=0)
    return own, each, max((k.threads for k in kernels), default=1)


def rounded(size: int) -> int:
    """A size in whole units of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT


class Workspace:
    """The table and the memory of one call."""

    def __init__(self, kernel: MachineKernel) -> None:
        self.memory = KernelMemory(kernel)
        self.table = self.memory.table(kernel)
        self.address = address_of(self.table)

    def fill(self, objects: Sequence[Array]) -> None:
        """Puts the array objects in, which must outlive the call."""
        struct.pack_into(f"{len(objects)}N", self.table, 0, *map(id, objects))


def address_of(table: bytearray) -> int:
    """Where the bytes of a table are, which stay there."""
    return ctypes.addressof(ctypes.c_char.from_buffer(table))
