"""Running a program: blocks shared out among threads, results written where the caller wants them.

What does not depend on the axis that is cut is computed before the blocks, and what they reduce together after them. A `Kernel` may
be called from several threads at once. Arguments are only read, and no reference to them outlives the call.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.ir.evaluation import WORD
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.cuts import BlockCut, CannotCut, cuts
from deepx_graph.runtime.kernels.lower import lower, wider
from deepx_graph.runtime.kernels.machine import MACHINE, Machine, in_machine
from deepx_graph.runtime.kernels.program import Array, KernelProgram, Levels, Step, leveled
from deepx_graph.runtime.kernels.staged import begun, within, write
from deepx_graph.runtime.kernels.threads import TEAM
from deepx_graph.runtime.memory.pool import delivered, result_memory

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
    program = (in_machine(whole) if machine else None) or whole
    levels = leveled(program, is_cut=False)
    assert levels is not None
    return Kernel(program, BlockCut(), levels, threads)


class Kernel:
    """A program made callable."""

    def __init__(self, program: KernelProgram, cut: BlockCut, levels: Levels, threads: int) -> None:
        self.program, self.cut, self.levels, self.threads = program, cut, levels, threads
        self.lowering = "numexpr" if any(s.primitive == MACHINE for s in program.steps) else "numpy loops"
        made, early = {s.target for s in levels.block}, {*program.params, *(s.target for s in levels.before)}
        early.update(r for r, array in program.constants.items() if array.ndim)
        partial = [s.target for s in levels.crossing]
        filled = [r for r in program.results if r in made]
        late = [r for r in program.results if r not in made]
        read = {s for step in (*levels.block, *levels.after) for s in step.sources}
        given = sorted(early & read.union(late))
        self._before, early_bytes = _function(program, program.params, levels.before, given)
        self._block, early_rows = self._per_block((*given, *filled, *partial), within(levels.block, program, filled))
        self._block_over, late_rows = self._per_block((*given, *filled, *partial), {})
        self._after, late_bytes = _function(program, (*given, *partial), levels.after, late)
        self._once_bytes = early_bytes + late_bytes
        registers = program.registers
        self._cuts = [registers[r].cut for r in (*given, *filled)]
        self._results = [(registers[r].dtype, shape) for r, shape in zip(program.results, program.result_shapes, strict=True)]
        self._filled = [(program.results.index(r), registers[r].shape) for r in filled]
        self._late = list(map(program.results.index, late))
        self._partial = list(map(registers.__getitem__, partial))
        self.in_place = tuple(self._overwritten(r) if r in made else frozenset() for r in program.results)
        self._block_bytes = max(early_rows, late_rows if any(self.in_place) else 0)

    def _per_block(self, given: Sequence[int], held: Mapping[int, int]) -> tuple[Run, int]:
        """What computes a block, of registers and memory that are given, values in the memory of others where they are `held`; and
        the bytes of what else it makes."""
        out, names = begun(self.program, given, "rows")
        nbytes = write(out, self.levels.block, self.program, names | {r: names[other] for r, other in held.items()}, rows="rows")
        return out.finished(), nbytes

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The results for the arguments; in the arrays of `out`, where one is given. Warns of overflow where numpy does."""
        arrays = [result_memory(shape, dtype, args, None if out is None else out[k], self.in_place[k])
                  for k, (dtype, shape) in enumerate(self._results)]
        over = out is not None and any(np.may_share_memory(array, x) for array in arrays for x in args)
        block = self._block_over if over else self._block
        given = self._before(*map(np.asarray, args))
        whole = [*given, *(arrays[k].reshape(shape) for k, shape in self._filled)]
        parts = [np.empty((self.cut.count, *r.shape), r.dtype) for r in self._partial]
        if self.cut.count == 1:
            block(1, *whole)
        else:
            self._run_blocks(block, whole, parts)
        if self._late:
            totals = [step.total(p) for step, p in zip(self.levels.crossing, parts, strict=True)]  # type: ignore[misc]
            for k, value in zip(self._late, self._after(*given, *totals), strict=True):
                np.copyto(arrays[k], np.reshape(value, arrays[k].shape))
        return delivered(arrays, out)

    def _run_blocks(self, block: Run, whole: Sequence[Array], parts: Sequence[Array]) -> None:
        rows, extent = self.cut.rows, self.cut.extent
        starts = iter(enumerate(range(0, extent, rows)))

        def task() -> None:
            for k, low in starts:
                high = min(extent, low + rows)
                block(high - low, *(_cut(x, axis, low, high) for x, axis in zip(whole, self._cuts, strict=True)),
                      *(p[k, ...] for p in parts))

        TEAM.run(task, min(self.threads, self.cut.count))

    def _overwritten(self, result: int) -> frozenset[int]:
        """The arguments whose memory a result of the blocks may take: read at the very elements that are written, and no later."""
        registers, (before, block, after) = self.program.registers, self.levels
        elsewhere = {s for step in (*before, *after) for s in step.sources}
        written = next(at for at, step in enumerate(block) if step.target == result)
        read = {s: at for at, step in enumerate(block) for s in step.sources}
        return frozenset(
            k for k, p in enumerate(self.program.params)
            if registers[p] == registers[result] and p not in elsewhere
            and (read.get(p, -1) < written or (read[p] == written and block[written].in_place)))

    def scratch(self, loose: Mapping[int, int]) -> int:
        """The most bytes that a call has beside arguments and results, where arguments of so many bytes may not lie in order."""
        registers, count = self.program.registers, self.cut.count
        apart = (s for s in self.levels.block if not s.primitive and not s.is_view)
        each = self._block_bytes + max((WORD * sum(registers[r].size for r in (*s.sources, s.target)) for s in apart), default=0)
        partial = sum((r.dtype.itemsize + 2 * wider(r.dtype).itemsize) * count * r.size for r in self._partial)
        part = self.cut.rows / self.cut.extent
        return math.ceil(min(self.threads, count) * part * each) + self._once_bytes + partial + sum(loose.values())

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


def _cut(x: Array, axis: int | None, low: int, high: int) -> Array:
    return x if axis is None else x[(slice(None),) * axis + (slice(low, high),)]


def _function(program: KernelProgram, given: Sequence[int], steps: Sequence[Step], results: Sequence[int]) -> tuple[Run, int]:
    """What gives those registers as values, of those given; and the bytes of what it makes."""
    out, names = begun(program, given)
    nbytes = write(out, steps, program, names, results)
    out.give([names[r] for r in results])
    return out.finished(), nbytes + sum(program.registers[s.target].nbytes for s in steps if s.target in results and not s.is_view)
