"""A program as a callable of machine code.

The addresses of arguments and results go into a table; a nest with work enough is shared out among the workers in chunks that
depend on shapes alone, so that sums do too. A kernel may be called from several threads at once: each call has its own workspace.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels import lower_primitives
from deepx_graph.runtime.kernels.lower import lower, viewed
from deepx_graph.runtime.kernels.program import Array, KernelProgram, Leaf, Step
from deepx_graph.runtime.memory.pool import RESULTS, delivered, result_memory
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loopnest.emit import module_text
from deepx_graph.runtime.native.loopnest.nest import (
    Chunks,
    Nest,
    Nests,
    NestStage,
    arrange,
    layout,
    partial_dtype,
    registers_used,
    sums_columns,
    together,
)
from deepx_graph.runtime.native.machine_kernel import (
    ALONE,
    ALONE_AND_SHORT,
    DATA,
    LONG_NANOSECONDS,
    SHARED,
    Layout,
    MachineCode,
    Workspace,
    run_shared,
)
from deepx_graph.runtime.native.transpose import contiguous
from deepx_graph.runtime.straightline import ArrayType

MOST_CHUNKS, MOST_LONG_CHUNKS, LONG_CHUNK_NS = 16, 64, 100_000
"""How many chunks there are at most; and where each is at least so long, which evens out what else the cores do."""

FINER = 3
"""Work that is shared out at all is shared out in chunks so much smaller than the least for that: they are cheap to take."""

VECTOR_BYTES = 64
"""A row takes whole vectors: the last one is masked."""


def chunks_of(program: KernelProgram, nests: Nests, nest: Nest) -> Chunks:
    """How a nest is shared out; a matter of its shape and of the constants of the machine, never of the number of threads."""
    least, whole, step = cost.chunk_ns(constants()), alone_ns(program, nests, nest), together(nests, nest)
    if whole < 2 * least:
        return Chunks(1, step)
    long = whole > MOST_LONG_CHUNKS * LONG_CHUNK_NS and not sums_columns(nests, nest)
    most = min(MOST_LONG_CHUNKS if long else MOST_CHUNKS, nests.count(nest) // step, int(FINER * whole / least))
    return Chunks(1 << max(0, most.bit_length() - 1), step)  # a power of two: threads get as many each


def alone_ns(program: KernelProgram, nests: Nests, nest: Nest) -> float:
    """How long one thread works on a nest."""
    whole = work_of(program, nests, nest)
    return cost.nest_ns(constants(), whole.elements, whole.work, _bytes(program, nest))


def work_of(program: KernelProgram, nests: Nests, nest: Nest, shares: int = 1) -> cost.NestWork:
    """A nest as the cost model sees it."""
    steps = [s for stage in nest.stages for s in (*stage.steps, *stage.reductions)]
    sizes = [program.registers[s.target].dtype.itemsize for s in steps] or [cost.LANE_BYTES]
    wide = max(1.0, max(sizes) / cost.LANE_BYTES)
    lanes = max(1, VECTOR_BYTES // max(sizes))
    elements = nests.count(nest) * -(-nests.width(nest) // lanes) * lanes
    return cost.NestWork(elements * wide, sum(map(_price, steps, sizes)) / wide, shares)


def _price(step: Step, itemsize: int) -> float:
    return cost.lane_price(step.primitive, itemsize)


def _bytes(program: KernelProgram, nest: Nest) -> int:
    return sum(program.registers[r].size * program.registers[r].dtype.itemsize for r in registers_used(nest))


def predicted(program: KernelProgram, nests: Nests, chunks: Sequence[Chunks], threads: int) -> cost.ForecastParts:
    """The prediction of a whole kernel."""
    work = [work_of(program, nests, n, c.count) for n, c in zip(nests.nests, chunks, strict=True)]
    return cost.machine_code(constants(), work, sum(_bytes(program, n) for n in nests.nests), threads)


MOST_STEPS = 4000
"""Programs beyond this go elsewhere: the time to compile grows with them."""

NARROWEST = 8
"""Rows shorter than this leave most lanes idle; programs with such rows, and many of them, go elsewhere."""


def build(function: Function, threads: int, apart: int = 0) -> NativeKernel:
    """The kernel of a function of elementwise operations, broadcasts and reductions. Raises Declined.

    Its rows end within neither the first `apart` axes nor the others (see `lower`).
    """
    program = lower(function, apart)
    _check(program)
    return NativeKernel(program, arrange(program), threads)


def _check(program: KernelProgram) -> None:
    """Raises Declined for a program that does not become machine code."""
    if not _data_is_where_expected():
        raise Declined("arrays of this Python are not laid out as kernels expect")
    if len(program.steps) > MOST_STEPS:
        raise Declined(f"more than {MOST_STEPS} steps")
    other = next((r.dtype for r in program.registers if r.dtype not in lower_primitives.ALL), None)
    if other is not None:
        raise Declined(f"no machine code for {other}")
    if any(not s.primitive and s.reduction is None for s in program.steps):
        raise Declined("an operation without a kernel expression")
    if len(program.space) > 1 and program.space[-1] < NARROWEST < program.space[0]:
        raise Declined(f"rows of fewer than {NARROWEST} elements")


def in_place_params(program: KernelProgram, nests: Nests) -> frozenset[int]:
    """Parameters whose memory a result may take: in the one nest that writes results, nothing written of a row is read again."""
    writing = [n for n in nests.nests if any(_writes(s, program) for s in n.stages)]
    if len(writing) != 1 or writing[0] is not nests.nests[-1]:
        return frozenset()
    stages = writing[0].stages
    first = min(k for k, s in enumerate(stages) if _writes(s, program))
    again = {r for s in stages[first + 1 :] for r in (*s.loads, *s.row_loads)}
    return whole_params(program) - {leaf.param for leaf in program.leaves if leaf.register in again}


def _writes(stage: NestStage, program: KernelProgram) -> bool:
    return not {*stage.stores, *stage.row_stores}.isdisjoint(program.results)


def whole_params(program: KernelProgram) -> frozenset[int]:
    """Parameters of which all elements are read just where those of the results are written, and in no other order."""
    whole = program.space or (1,)
    plain = {leaf.param: True for leaf in program.leaves}
    for leaf in program.leaves:
        same = (program.registers[leaf.register].shape or (1,)) == whole
        plain[leaf.param] &= same and not leaf.views and leaf.order is None
    results = all((program.registers[r].shape or (1,)) == whole for r in program.results)
    return frozenset(p for p, is_plain in plain.items() if is_plain and results)


@cache
def _data_is_where_expected() -> bool:
    """Whether array objects keep the address of their elements where the kernels read it."""
    probe = np.empty(3)
    return ctypes.c_void_p.from_address(id(probe) + DATA).value == probe.ctypes.data


def phantom(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array | None:
    """An array that lies in the order of C but has no memory: to look at views of it, never at elements. None where numpy has no
    such array."""
    strides = [dtype.itemsize * math.prod(shape[k + 1 :]) for k in range(len(shape))]
    try:
        return np.lib.stride_tricks.as_strided(np.empty(1, dtype), shape, strides)
    except (ValueError, OverflowError):
        return None


def _is_plain(array: Array, leaf: Leaf) -> bool:
    """Whether a leaf reads the elements of an array without memory as they lie. Views of what lies in order copy nothing."""
    start = array.ctypes.data
    for op, attrs in leaf.views:
        if not array.flags.c_contiguous:
            return False
        assert op.eval is not None
        array = op.eval([array], *attrs)
    array = array if leaf.order is None else array.transpose(leaf.order)
    return bool(array.flags.c_contiguous) and array.ctypes.data == start


class NativeKernel(MachineCode):
    """Compiled nests and how to call them."""

    lowering = "machine code"

    def __init__(self, program: KernelProgram, nests: Nests, threads: int) -> None:
        self.program, self.nests, self.threads = program, nests, threads
        self.chunks = [chunks_of(program, nests, n) for n in nests.nests]
        self.layout: Layout = layout(program, nests)
        taken = {leaf.register for leaf in program.leaves} | set(program.results)
        arrays = {r: a for r, a in program.constants if a.size > 1}
        self.constants = tuple(np.ascontiguousarray(arrays[r]) for r in arrays)
        self.temporaries = tuple(r for r in sorted(nests.stored) if r not in taken and r not in arrays)
        temporary_bytes = tuple(program.registers[r].size * program.registers[r].dtype.itemsize for r in self.temporaries)
        self.own_bytes = temporary_bytes + self._partial_bytes(nests)
        self.nanoseconds = sum(alone_ns(program, nests, n) for n in nests.nests)
        self._functions(module_text(program, nests, self.layout, self.chunks, this_machine()), len(nests.nests))
        self._leaves = tuple((leaf.param, leaf if leaf.views or leaf.order is not None else None) for leaf in program.leaves)
        self.results = tuple(ArrayType(program.registers[r].dtype, shape)
                             for r, shape in zip(program.results, program.result_shapes, strict=True))
        self.in_place = (in_place_params(program, nests),) * len(program.results)
        self.params = tuple(leaf.param for leaf in program.leaves)
        self._pack = struct.Struct(f"{self.layout.objects}N").pack_into

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        return predicted(self.program, self.nests, self.chunks, self.threads)

    def _partial_bytes(self, nests: Nests) -> tuple[int, ...]:
        steps = {s.target: s for s in self.program.steps}
        where = {s.target: k for k, n in enumerate(nests.nests) for stage in n.stages
                 for s in (*stage.reductions, *stage.row_reductions)}
        sizes = []
        for r in sorted(nests.crossing):
            step, register = steps[r], self.program.registers[r]
            assert step.reduction is not None
            each = partial_dtype(register.dtype, step.reduction.op).itemsize
            sizes.append(self.chunks[where[r]].count * register.size * each)
        return tuple(sizes)

    def _functions(self, ir: str, nests: int) -> None:
        names = [f"{kind}{k}" for kind in ("nest", "work", "total") for k in range(nests)] + ["whole"]
        at = machine_code.functions(ir, names, self)
        self.nest_addresses = [at[f"nest{k}"] for k in range(nests)]
        """The functions `nest(table, low, high, scratch, chunk)`, for who calls them where rows are ready."""
        self._works = [SHARED(at[f"work{k}"]) for k in range(nests)]
        self._totals = [ALONE(at[f"total{k}"]) for k in range(nests)]
        alone = all(c.count == 1 for c in self.chunks)
        kind = ALONE if self.nanoseconds > LONG_NANOSECONDS else ALONE_AND_SHORT
        self._whole = kind(at["whole"]) if alone else None
        threads = [min(self.threads, c.count) for c in self.chunks]
        self.calls = ((at["whole"], 0),) if alone else tuple(
            call for k in range(nests) for call in ((at[f"work{k}"], threads[k]), (at[f"total{k}"], 0)))

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The results for the arguments; in the arrays of `out`, where one is given."""
        arrays = self.leaves(args)
        if out is None:
            results = [RESULTS.empty(form.shape, form.dtype) for form in self.results]
        else:
            results = [result_memory(form.shape, form.dtype, args, o, may)
                       for form, o, may in zip(self.results, out, self.in_place, strict=True)]
        workspace = self.workspace()
        self._pack(workspace.table, 0, *map(id, arrays), *map(id, results))
        if self._whole is not None:
            self._whole(workspace.address, workspace.memory.scratch[0])
        else:
            self._run(workspace)
        self.give_back(workspace)
        return delivered(results, out)

    def leaves(self, args: Sequence[Any]) -> list[Array]:
        """The arrays that come first in the table."""
        return [self._leaf(args[param], leaf) for param, leaf in self._leaves]

    def reads_plainly(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether it reads the elements of C-contiguous arguments of those shapes in the order in which they lie in memory."""
        for leaf in self.program.leaves:
            array = phantom(shapes[leaf.param], self.program.registers[leaf.register].dtype)
            if array is None or not _is_plain(array, leaf):
                return False
        return True

    def scratch(self, loose: Mapping[int, int]) -> int:
        """Its workspace, and copies of what it does not read as it lies."""
        copies: dict[int, int] = {}
        for leaf in self.program.leaves:
            if leaf.views or leaf.order is not None or leaf.param in loose:
                register = self.program.registers[leaf.register]
                copies[leaf.register] = register.size * register.dtype.itemsize
        return self.workspace_bytes + sum(copies.values())

    def _leaf(self, array: Any, leaf: Leaf | None) -> Array:
        """An argument, its elements in the order of the register."""
        if type(array) is not np.ndarray:
            array = np.asarray(array)
        if leaf is not None:
            array = viewed(array, leaf.views, leaf.order)
        if not array.flags.c_contiguous:
            array = contiguous(array, self.threads)
        return array  # type: ignore[no-any-return]

    def _run(self, workspace: Workspace) -> None:
        table, memory = workspace.address, workspace.memory
        for work, total, chunks in zip(self._works, self._totals, self.chunks, strict=True):
            run_shared(work, table, memory.scratch, ctypes.addressof(memory.scratches), min(self.threads, chunks.count))
            total(table, memory.scratch[0])
