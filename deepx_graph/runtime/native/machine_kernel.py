"""What all kernels of machine code have: a workspace for each call, kept while it is small, and threads that share the work.

A kernel may be called from several threads at once, and by other machine code.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from deepx_graph.runtime.array_type import ArrayType
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.memory.pool import LEAST_BYTES, Allowance, delivered, result_memory
from deepx_graph.runtime.memory.sharing import packed
from deepx_graph.runtime.native import dispatch
from deepx_graph.runtime.native.call_image import CallImage, ImageWriter, MemoryOffset, rounded
from deepx_graph.runtime.native.dispatch import DATA, FAILED, HEAD, RESUME
from deepx_graph.runtime.native.llvm.machine_code import FunctionReference
from deepx_graph.runtime.native.threads import pool

KEPT_BYTES = LEAST_BYTES
"""A workspace up to this size is kept from call to call; a larger one is made of the buffer pool's memory for every call."""

FEW_BYTES = 4 << 10
"""So many bytes of a call are not counted: tables, totals of shares, gaps for alignment, which do not grow with tensors."""

LONG_NANOSECONDS = 60_000
"""Work from here on lets other threads of Python run meanwhile, which costs some tenths of a microsecond."""

LONG, SHORT = ctypes.CFUNCTYPE(None, ctypes.c_void_p), ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
"""`dispatch(words)`, while other threads of Python may run, or may not, which costs less."""


@cache
def _dispatch(is_long: bool) -> Callable[[int], object]:
    """`dispatch`, as Python calls it."""
    return (LONG if is_long else SHORT)(dispatch.address())


@cache
def data_is_where_expected() -> bool:
    """Whether array objects keep the address of their elements where kernels read it."""
    probe = np.empty(3)
    return ctypes.c_void_p.from_address(id(probe) + DATA).value == probe.ctypes.data


class MachineKernel:
    """A callable of machine code: `kernel(args, out)` gives all its results, in `out` where that is given. It runs on a
    table: array objects of arguments and results, then addresses of constants and of its own memory."""

    results: tuple[ArrayType, ...]
    in_place: tuple[frozenset[int], ...]
    """For each result, the arguments of its type over which it may be written."""
    giving: MachineKernel | None = None
    """The kernel as it is where results lie over arguments; None where it is the same."""
    lowering: str
    """How it runs, in a few words."""
    scratch_bytes = 0
    """What each thread has for itself."""
    params: tuple[int, ...]
    """The number of the argument whose array object is in each of the first entries of the table; those of results follow."""
    own_bytes: tuple[int, ...] = ()
    """Its temporaries and partial results."""
    own_spans: tuple[tuple[int, int], ...] = ()
    """The parts of its work from which and to which it has each of these, where that is not all of it."""
    threads: int
    nanoseconds: float
    """About how long one thread works on it."""
    called: tuple[tuple[FunctionReference, int], ...] = ()
    """What runs it: machine functions, each with the number of threads that share its work; 0 for one that takes no counter."""
    is_program: bool = False
    """Whether it calls other kernels."""
    is_one_call: bool = True
    """Whether one call of `dispatch` does it all; else there are as many as the words say."""

    @cached_property
    def constants(self) -> tuple[Array, ...]:
        """Arrays whose elements its table has the addresses of."""
        return ()

    @cached_property
    def own(self) -> tuple[list[int], int]:
        """Where each of its temporaries begins in the memory that it has of its own, and the size of that; what threads have begins
        on a cache line behind it."""
        offsets, nbytes = packed(self.own_spans or ((0, 0),) * len(self.own_bytes), self.own_bytes)
        return offsets, rounded(nbytes) if self.scratch_bytes else nbytes

    @cached_property
    def image(self) -> CallImage:
        """The memory of a call; waits for the code of what it calls."""
        writer = ImageWriter(len(self.params) + len(self.results))
        self.write(writer, HEAD, *self.own)
        return writer.image(self.workspace_bytes, 0)

    def write(self, writer: ImageWriter, objects: int, own: Sequence[MemoryOffset], scratch: int) -> None:
        """Puts its instructions into an image, whose last words are the slots of its objects; its temporaries are
        there, and what its threads have so far in the memory of values."""
        for array in self.constants:
            writer.constant(writer.words(1), array)
        for start in own:
            writer.memory(writer.words(1), start)
        for function, threads in self.called:
            writer.run(function.address, objects, threads, (scratch, rounded(self.scratch_bytes)))

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        raise NotImplementedError

    def new_memory(self) -> CallMemory:
        """Memory for one call at a time."""
        return CallMemory(self.image.in_memory())

    @property
    def team(self) -> int:
        """How many threads share its work at most."""
        return max((threads for _, threads in self.called), default=0)

    @property
    def is_long(self) -> bool:
        """Whether other threads of Python should run meanwhile."""
        return self.nanoseconds > LONG_NANOSECONDS or not self.is_one_call

    @property
    def thread_bytes(self) -> int:
        """What its threads have."""
        return rounded(self.scratch_bytes) * self.threads

    @property
    def workspace_bytes(self) -> int:
        """The memory of a call: temporaries, partial results, and what each thread has; the words do not grow with values."""
        return self.own[1] + self.thread_bytes

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
        if self.giving is not None and any(np.may_share_memory(o, np.asarray(a)) for o in out or () if o is not None for a in args):
            return self.giving(args, out)
        given = out or (None,) * len(self.results)
        results = [result_memory(r.shape, r.dtype, args, o, may)
                   for r, o, may in zip(self.results, given, self.in_place, strict=True)]
        memory = self.take_memory()
        self.run(memory, args, results)
        self.give_back(memory)
        return delivered(results, out)

    @cached_property
    def _spare(self) -> list[CallMemory]:
        """Memory that no call has."""
        return []

    def take_memory(self) -> CallMemory:
        """Memory that no other call has."""
        try:
            return self._spare.pop()
        except IndexError:
            return self.new_memory()

    def give_back(self, memory: CallMemory) -> None:
        """Keeps the memory of a call that is done for the next one."""
        if self.is_kept:
            self._spare.append(memory)

    def run(self, memory: CallMemory, args: Sequence[Any], results: Sequence[Array]) -> None:
        """Computes the results call after call, until the words say that all is done; they share no memory with the arguments but
        where they may be written over them."""
        arrays = [np.asarray(args[k], order="C") for k in self.params]
        struct.pack_into(f"{len(arrays) + len(results)}N", memory.words.data, HEAD, *map(id, arrays), *map(id, results))
        if self.team > 1:
            pool().hire(self.team - 1)
        function = _dispatch(self.is_long)
        memory.words[RESUME // 8] = 0
        function(memory.address)
        while memory.words[RESUME // 8]:
            function(memory.address)


class CallMemory:
    """The words of a call, and with them all of its memory."""

    def __init__(self, words: Array) -> None:
        self.words, self.address = words, words.ctypes.data

    @property
    def failed(self) -> int | None:
        """The number of the instruction that had no room; None where there was none."""
        return int(self.words[FAILED // 8]) - 1 if self.words[FAILED // 8] else None
