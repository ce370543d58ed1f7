"""Running a program: blocks shared out among threads, results written where the caller wants them.

What does not depend on the axis that is cut is computed before the blocks, and what they reduce together after them. A `Kernel` may
be called from several threads at once: each takes memory for the temporaries of a block from a list of spare ones and puts it back.
Arguments are only read, and no reference to them outlives the call.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.ir.evaluation import WORD
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.cuts import BlockCut, CannotCut, cuts
from deepx_graph.runtime.kernels.lower import lower, wider
from deepx_graph.runtime.kernels.machine import MACHINE, Machine, grouped
from deepx_graph.runtime.kernels.memory import ALIGNMENT, aligned
from deepx_graph.runtime.kernels.program import Array, KernelProgram, Levels, Step, leveled, slots
from deepx_graph.runtime.kernels.staged import write
from deepx_graph.runtime.kernels.threads import TEAM
from deepx_graph.runtime.memory.pool import Allowance, delivered, result_memory, room
from deepx_graph.runtime.python_code import PythonFunction

Run = Callable[..., Any]


def build(function: Function, threads: int, block_elements: int = costs.BLOCK_ELEMENTS, *, machine: bool = True) -> Kernel:
    """The kernel of a function of elementwise operations, views and reductions; small arithmetic by numexpr's `machine`, where that
    is faster. Raises Declined (see `lower`)."""
    whole = lower(function)
    for cut in cuts(function, block_elements):
        with contextlib.suppress(CannotCut):
            program = lower(function, cut.axes)
            levels = leveled(program, is_cut=True)
            if levels is not None:
                return Kernel(program, cut, levels, threads)
    program = grouped(whole) if machine else whole
    levels = leveled(program, is_cut=False)
    assert levels is not None
    return Kernel(program, BlockCut(), levels, threads)


class Kernel:
    """A program made callable."""

    def __init__(self, program: KernelProgram, cut: BlockCut, levels: Levels, threads: int) -> None:
        self.program, self.cut, self.levels, self.threads = program, cut, levels, threads
        self.lowering = "numexpr" if any(s.primitive == MACHINE for s in program.steps) else "numpy loops"
        before, block, after = levels
        self.partial = {s.target: s for s in levels.crossing}
        """The reductions across blocks."""
        made, early = {s.target for s in block}, {*program.params, *(s.target for s in before)}
        early.update(r for r, array in program.constants.items() if array.ndim)
        self.filled = [r for r in program.results if r in made and r not in self.partial]
        self.late = [r for r in program.results if r not in self.filled]
        """The results that blocks fill, and those that are known after them."""
        read = {s for step in (*block, *after) for s in step.sources}
        self.given = sorted(early & read.union(self.late))
        """What blocks and later steps read."""
        sizes = {r: self._nbytes(r) for r in (s.target for s in block if not s.is_view)
                 if r not in self.partial and r not in self.filled}
        self.slots, self.slot_sizes = slots(block, sizes)
        self._before, self._block, self._after = self._functions()
        self._results = [(program.registers[r].dtype, shape)
                         for r, shape in zip(program.results, program.result_shapes, strict=True)]
        self._filled = [(program.results.index(r), program.registers[r].shape) for r in self.filled]
        self._late = list(map(program.results.index, self.late))
        self._partial = list(map(program.registers.__getitem__, self.partial))
        self.in_place = tuple(map(self._overwritten, program.results))
        self.is_kept = self.workspace_bytes <= costs.KEPT_BYTES
        self._spare: list[_Workspace] = []

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The results for the arguments; in the arrays of `out`, where one is given. Warns of overflow where numpy does."""
        arrays = [result_memory(shape, dtype, args, None if out is None else out[k], self.in_place[k])
                  for k, (dtype, shape) in enumerate(self._results)]
        given = self._before(*map(np.asarray, args))
        whole = [*given, *(arrays[k].reshape(shape) for k, shape in self._filled)]
        parts = [np.empty((self.cut.count, *r.shape), r.dtype) for r in self._partial]
        workspace = self._take()
        if self.cut.count == 1:
            self._block(*whole, *workspace.temporaries(self.cut.rows))
        else:
            self._run_blocks(workspace, whole, parts)
        self._give_back(workspace)
        if self._late:
            totals = [step.total(p) for step, p in zip(self.levels.crossing, parts, strict=True)]  # type: ignore[misc]
            for k, value in zip(self._late, self._after(*given, *totals), strict=True):
                np.copyto(arrays[k], np.reshape(value, arrays[k].shape))
        return delivered(arrays, out)

    # --- the functions

    def _functions(self) -> tuple[Run, Run, Run]:
        """What gives what blocks read; what computes a block, given also the memory of results, partial results and temporaries;
        and what gives the late results."""
        (before, block, after), program = self.levels, self.program
        made = [_function(program, program.params, before, self.given)]
        out = PythonFunction("block", [f"v{r}" for r in (*self.given, *self.filled, *self.partial, *self.slots)])
        write(out, block, program, _names(out, program, (*self.given, *self.filled, *self.partial, *self.slots)))
        made.append(out.finished())
        made.append(_function(program, (*self.given, *self.partial), after, self.late))
        return made[0], made[1], made[2]

    def _overwritten(self, result: int) -> frozenset[int]:
        """The arguments whose memory a result may take: read at the very elements that are written, and no later."""
        if result not in self.filled:
            return frozenset()
        registers, (before, block, after) = self.program.registers, self.levels
        elsewhere = {s for step in (*before, *after) for s in step.sources}
        written = next(at for at, step in enumerate(block) if step.target == result)
        read = {s: at for at, step in enumerate(block) for s in step.sources}
        return frozenset(
            k for k, p in enumerate(self.program.params)
            if registers[p] == registers[result] and p not in elsewhere
            and (read.get(p, -1) < written or (read[p] == written and block[written].in_place)))

    # --- memory

    def _nbytes(self, register: int) -> int:
        """The most memory that a register takes in a block, in whole lines of a cache."""
        r = self.program.registers[register]
        return -(-math.prod(r.block(self.cut.rows)) * r.dtype.itemsize // ALIGNMENT) * ALIGNMENT

    @property
    def workspace_bytes(self) -> int:
        """The memory for temporaries that all threads of a call have."""
        return min(self.threads, self.cut.count) * sum(self.slot_sizes)

    def keep(self, allowance: Allowance) -> None:
        """Keeps its workspaces only where the allowance has room for them."""
        self.is_kept = self.is_kept and allowance.take(self.workspace_bytes)

    def scratch(self, loose: Mapping[int, int]) -> int:
        """The most bytes that a call has beside arguments and results, where arguments of so many bytes may not lie in order."""
        registers, rows = self.program.registers, self.cut.rows
        apart = (s for s in self.levels.block if not s.primitive and not s.is_view)
        step = max((WORD * sum(math.prod(registers[r].block(rows)) for r in (*s.sources, s.target)) for s in apart), default=0)
        once = sum(registers[s.target].nbytes + WORD * registers[s.target].size
                   for s in (*self.levels.before, *self.levels.after) if not s.is_view)
        partial = sum((self.cut.count * r.dtype.itemsize + 2 * wider(r.dtype).itemsize * self.cut.count) * r.size
                      for r in map(registers.__getitem__, self.partial))
        runners = min(self.threads, self.cut.count)
        return self.workspace_bytes + runners * step + once + partial + sum(loose.values())

    # --- blocks

    def _run_blocks(self, first: _Workspace, whole: Sequence[Array], parts: Sequence[Array]) -> None:
        registers, rows, extent = self.program.registers, self.cut.rows, self.cut.extent
        axes = [registers[r].cut for r in (*self.given, *self.filled)]
        starts, mine = iter(enumerate(range(0, extent, rows))), [first]

        def task() -> None:
            workspace = mine.pop() if mine else self._take()  # one runner takes the caller's
            for k, low in starts:
                high = min(extent, low + rows)
                self._block(*(_cut(x, axis, low, high) for x, axis in zip(whole, axes, strict=True)),
                            *(p[k, ...] for p in parts), *workspace.temporaries(high - low))
            if workspace is not first:
                self._give_back(workspace)

        TEAM.run(task, min(self.threads, self.cut.count))

    def _take(self) -> _Workspace:
        try:
            return self._spare.pop()
        except IndexError:
            return _Workspace(self)

    def _give_back(self, workspace: _Workspace) -> None:
        if self.is_kept:
            self._spare.append(workspace)

    # --- what the cost model makes of a kernel: sizes only, nothing is run

    def predicted(self) -> cost.ForecastParts:
        """How long a call takes by the cost model."""
        registers, count = self.program.registers, self.cut.count
        loops = sum(self._step_ns(s, count if steps is self.levels.block else 1) for steps in self.levels for s in steps)
        outside = {*self.program.params, *self.program.results}
        return cost.blocks(constants(), loops, count if count > 1 else 0, sum(registers[r].nbytes for r in outside), self.threads)

    def _step_ns(self, step: Step, blocks: int) -> float:
        """All calls of one step."""
        c, registers = constants(), self.program.registers
        elements = max(registers[r].size for r in (*step.sources, step.target))
        if isinstance(step.call.value, Machine):
            return cost.vm_ns(c, step.call.value.steps, len(step.sources), elements)
        itemsize = registers[step.target].dtype.itemsize
        wide = max(1.0, itemsize / cost.LANE_BYTES)
        return blocks * cost.ufunc_ns(c, elements / blocks * wide, cost.lane_price(step.primitive, itemsize) / wide)


class _Workspace:
    """The memory that one thread has for the temporaries of a block."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._memory = (aligned if kernel.is_kept else room)(sum(kernel.slot_sizes))
        self._found: dict[int, list[Array]] = {}

    def temporaries(self, rows: int) -> list[Array]:
        """Them, in blocks of so many rows."""
        if rows not in self._found:
            kernel = self._kernel
            starts = [0, *itertools.accumulate(kernel.slot_sizes)]
            made = [(kernel.program.registers[r], starts[slot]) for r, slot in kernel.slots.items()]
            self._found[rows] = [np.ndarray(r.block(rows), r.dtype, self._memory.data, at) for r, at in made]
        return self._found[rows]


def _cut(x: Array, axis: int | None, low: int, high: int) -> Array:
    return x if axis is None else x[(slice(None),) * axis + (slice(low, high),)]


def _names(out: PythonFunction, program: KernelProgram, registers: Iterable[int]) -> dict[int, str]:
    """The names of registers that a function is given, and of constants."""
    return {r: out.bind(array) for r, array in program.constants.items()} | {r: f"v{r}" for r in registers}


def _function(program: KernelProgram, given: Sequence[int], steps: Sequence[Step], results: Sequence[int]) -> Run:
    """What gives those registers as values, of those given."""
    out = PythonFunction("once", [f"v{r}" for r in given])
    names = _names(out, program, given)
    write(out, steps, program, names, results)
    out.give([names[r] for r in results])
    return out.finished()
