"""Running a program: leaves bound to arguments, blocks shared out among threads, results written where the caller wants them.

A `Kernel` may be called from several threads at once: each call takes workspaces (buffers, and machine objects of their own) from a
list of spare ones and puts them back. Arguments are only read, and no reference to them outlives the call.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.ir.evaluation import WORD
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.lower import lower, viewed
from deepx_graph.runtime.kernels.memory import aligned, overwritten
from deepx_graph.runtime.kernels.program import BEFORE, BLOCK, Array, BlockPlan, Call, KernelProgram, Shape, Step, plan, wider
from deepx_graph.runtime.kernels.threads import TEAM
from deepx_graph.runtime.kernels.vm import Machine, grouped
from deepx_graph.runtime.memory.pool import Allowance, delivered, result_memory, room
from deepx_graph.runtime.memory.sharing import Handover, Sharing, packed

Index = tuple[slice, ...]
Registers = list[Any]
Getter = Callable[[Registers], tuple[Any, ...]]
Code = list[tuple[Call, Getter]]

EVERYTHING = slice(None)


def build(function: Function, threads: int, block_elements: int = costs.BLOCK_ELEMENTS) -> Kernel:
    """The kernel of a function of elementwise operations, broadcasts and reductions. Raises Declined (see `lower`)."""
    program = lower(function)
    if plan(program, block_elements).axis < 0:
        program = grouped(program)
    return Kernel(program, plan(program, block_elements), threads)


def _run(code: Code, registers: Registers) -> None:
    for call, operands in code:
        call(*operands(registers))


def _code(steps: Sequence[Step]) -> Code:
    return [(s.call.apart() if isinstance(s.call, Machine) else s.call, itemgetter(*s.sources, s.target)) for s in steps]


def _bare(array: Array) -> Array:
    """A single element without axes: numpy's loops take it for all elements at once, and set up half as long."""
    return array.reshape(()) if array.size == 1 else array


class _Workspace:
    """What one thread needs for one kernel: callables, and buffers for whole-sized and for block-sized registers."""

    def __init__(self, kernel: Kernel) -> None:
        self.before, self.block, self.after = map(_code, kernel.plan.levels)
        self._kernel = kernel
        self._memory = (aligned if kernel.is_kept else room)(kernel.own_bytes)
        self._templates: dict[int, Registers] = {}
        self.whole = self._template(0)

    def template(self, rows: int) -> Registers:
        """A register file for blocks of that many rows: buffers in place, everything else None."""
        found = self._templates.get(rows)
        if found is None:
            found = self._templates[rows] = self._template(rows)
        return found.copy()

    def _template(self, rows: int) -> Registers:
        kernel = self._kernel
        file: Registers = [None] * len(kernel.program.registers)
        for r, offset in kernel.offsets.items():
            if (kernel.plan.level_of[r] == BLOCK) == bool(rows):
                shape, dtype = kernel.extent(r, rows), kernel.program.registers[r].dtype
                file[r] = self._memory[offset : offset + math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
        if not rows:
            for r, array in kernel.program.constants:
                file[r] = _bare(array)
        return file


class Kernel:
    """A program made callable."""

    def __init__(self, program: KernelProgram, plan: BlockPlan, threads: int) -> None:
        self.program, self.plan = program, plan
        self.lowering = "numexpr" if any(s.primitive == "vm" for s in program.steps) else "numpy loops"
        self.threads = threads
        self._leaves = tuple((leaf.register, leaf.param, program.registers[leaf.register].shape,
                              leaf if leaf.views or leaf.order is not None else None) for leaf in program.leaves)
        self._results = tuple((r, program.registers[r].dtype, program.registers[r].shape, shape)
                              for r, shape in zip(program.results, program.result_shapes, strict=True))
        self.in_place = overwritten(program, plan)
        self.offsets, self.own_bytes = self._placed()
        self.is_kept = self.workspace_bytes <= costs.KEPT_BYTES
        self._spare: list[_Workspace] = []

    def predicted(self) -> cost.ForecastParts:
        """How long a call takes by the cost model."""
        return predicted(self.program, self.plan, self.threads)

    def __call__(self, args: Sequence[Any], out: Sequence[Any] | None = None) -> list[Array]:
        """The results for the arguments; in the arrays of `out`, where one is given. Warns of overflow where numpy does."""
        arrays = [result_memory(shape, dtype, args, None if out is None else out[k], self.in_place[k])
                  for k, (_, dtype, _, shape) in enumerate(self._results)]
        workspace = self._take()
        file = workspace.whole.copy()
        for r, param, shape, leaf in self._leaves:
            array = np.asarray(args[param])
            if leaf is not None:
                array = viewed(array, leaf.views, leaf.order)
            file[r] = _bare(array) if array.size == 1 else array if array.shape == shape else array.reshape(shape)
        for (r, _, shape, _), array in zip(self._results, arrays, strict=True):
            file[r] = array if array.shape == shape else array.reshape(shape)
        _run(workspace.before, file)
        if self.plan.axis >= 0:
            self._run_blocks(workspace, file)
            _run(workspace.after, file)
        self._give_back(workspace)
        return delivered(arrays, out)

    def one_block(self) -> Registers:
        """Constants, and memory for temporaries, of a kernel of one block; None for all other registers."""
        return _Workspace(self).whole

    def scratch(self, loose: Mapping[int, int]) -> int:
        """The most bytes that a call has beside arguments and results, where arguments of so many bytes may not lie in order."""
        blocks = self.plan.block_count(self.program.space)
        partial = [self.program.registers[r] for r in self.plan.partial]
        copies = {param: loose[param] for _, param, _, _ in self._leaves if param in loose}
        each = self.own_bytes + self._step_bytes()
        return (each * min(self.threads, blocks) + sum(copies.values())
                + sum((blocks * r.dtype.itemsize + 2 * wider(r.dtype).itemsize * blocks) * r.size for r in partial))

    def _step_bytes(self) -> int:
        """Temporaries of a single step: operands in a wider type, and those of an eval."""
        found = [0]
        for level, steps in enumerate(self.plan.levels):
            for step in steps:
                if step.reduction is not None or not step.primitive:
                    shapes = [self.extent(r, self.plan.rows if level == BLOCK else 0) for r in (*step.sources, step.target)]
                    found.append(WORD * sum(map(math.prod, shapes)))
        return max(found)

    # --- workspaces

    def _placed(self) -> tuple[dict[int, int], int]:
        """Where each temporary begins in the memory of a thread, and the size of that. What blocks read is there until the last."""
        program, plan = self.program, self.plan
        steps = [step for steps in plan.levels for step in steps]
        made = {s.target: at for at, s in enumerate(steps) if s.target not in plan.partial.union(program.results)}
        last = made | {s: at for at, step in enumerate(steps) for s in step.sources}
        end = len(plan.levels[BEFORE]) + len(plan.levels[BLOCK]) - 1
        last |= {s: max(end, last[s]) for step in plan.levels[BLOCK] for s in step.sources if plan.level_of[s] == BEFORE}
        number = {r: k for k, r in enumerate(made)}
        handovers = [Handover(at, number[step.target], number[s])
                     for at, step in enumerate(steps) if step.in_place and step.target in made
                     for s in step.sources if s in made and last[s] == at and self._is_alike(s, step.target)]
        sharing = Sharing([((at, last[r]),) for r, at in made.items()], handovers)
        for h in handovers:
            sharing.join(h.value, h.over)
        groups = {sharing.group(k): self._nbytes(r) for r, k in number.items()}
        offsets, size = packed([sharing.span(g) for g in groups], list(groups.values()))
        at_of = dict(zip(groups, offsets, strict=True))
        return {r: at_of[sharing.group(k)] for r, k in number.items()}, size

    def _is_alike(self, one: int, other: int) -> bool:
        """Whether two registers have elements of one size at the same places."""
        a, b = self.program.registers[one], self.program.registers[other]
        return a.shape == b.shape and a.dtype.itemsize == b.dtype.itemsize

    def _nbytes(self, register: int) -> int:
        """The most memory that a register takes."""
        rows = self.plan.rows if self.plan.level_of[register] == BLOCK else 0
        return math.prod(self.extent(register, rows)) * self.program.registers[register].dtype.itemsize

    def extent(self, register: int, rows: int) -> Shape:
        """The shape of a register in a block of that many rows; its whole shape for 0."""
        shape = self.program.registers[register].shape
        if not rows:
            return shape
        axis = self.plan.axis
        return (1,) * axis + (min(shape[axis], rows) if shape[axis] > 1 else 1,) + shape[axis + 1 :]

    @property
    def workspace_bytes(self) -> int:
        """The memory that all threads of a call have."""
        runners = min(self.threads, max(1, self.plan.block_count(self.program.space)))
        return runners * self.own_bytes

    def keep(self, allowance: Allowance) -> None:
        """Keeps its workspaces only where the allowance has room for them."""
        self.is_kept = self.is_kept and allowance.take(self.workspace_bytes)

    def _take(self) -> _Workspace:
        try:
            return self._spare.pop()
        except IndexError:
            return _Workspace(self)

    def _give_back(self, workspace: _Workspace) -> None:
        if self.is_kept:
            self._spare.append(workspace)

    # --- blocks

    @cached_property
    def _cuts(self) -> tuple[list[int], dict[int, tuple[bool, ...]], list[tuple[int, dict[tuple[bool, ...], Index]]]]:
        """Registers that every block reads whole; of those that are cut, which axes vary; and for each block its rows and cuts.
        Worked out when first called: there may be as many blocks as memory would never hold."""
        program, plan = self.program, self.plan
        targets = {s.target for s in plan.levels[BLOCK]}
        read = {s for step in plan.levels[BLOCK] for s in step.sources}
        outside = ((read - targets) | (targets & set(program.results))) - plan.partial
        shared = [r for r in outside if plan.level_of[r] == BEFORE]
        varies = {r: tuple(size > 1 for size in program.registers[r].shape[: plan.axis + 1])
                  for r in outside if plan.level_of[r] == BLOCK}
        blocks = [(index[-1].stop - index[-1].start,
                   {v: tuple(i if k else EVERYTHING for i, k in zip(index, v, strict=True)) for v in set(varies.values())})
                  for index in plan.blocks(program.space)]
        return shared, varies, blocks

    def _run_blocks(self, first: _Workspace, file: Registers) -> None:
        count = len(self._cuts[2])
        partial = {r: np.empty((count, *self.program.registers[r].shape), self.program.registers[r].dtype)
                   for r in self.plan.partial}
        next_block = itertools.count().__next__
        mine = [first]

        def task() -> None:
            try:  # one runner takes the caller's, the others their own
                workspace = mine.pop()
            except IndexError:
                workspace = self._take()
            while (k := next_block()) < count:
                self._run_block(k, workspace, file, partial)
            if workspace is not first:
                self._give_back(workspace)

        TEAM.run(task, min(self.threads, count))
        for r, array in partial.items():
            file[r] = self._total(r, array)

    def _run_block(self, k: int, workspace: _Workspace, file: Registers, partial: dict[int, Array]) -> None:
        shared, varies, blocks = self._cuts
        rows, cuts = blocks[k]
        mine = workspace.template(rows)
        for r in shared:
            mine[r] = file[r]
        for r, axes in varies.items():
            mine[r] = file[r][cuts[axes]]
        for r, array in partial.items():
            mine[r] = array[k]
        _run(workspace.block, mine)

    def _total(self, register: int, partial: Array) -> Array:
        step = next(s for s in self.plan.levels[BLOCK] if s.target == register)
        assert step.reduction is not None
        assert step.reduction.op.monoid is not None
        dtype = self.program.registers[register].dtype
        total = step.reduction.op.monoid(partial.astype(wider(dtype), copy=False), (0,))
        return np.asarray(total).astype(dtype).reshape(partial.shape[1:])


# --- what the cost model makes of a kernel: sizes only, nothing is run


def predicted(program: KernelProgram, plan: BlockPlan, threads: int) -> cost.ForecastParts:
    """The prediction of a whole kernel."""
    count = 0 if plan.axis < 0 else plan.block_count(program.space)
    loops = sum(_step_ns(program, step, count if level == BLOCK else 1)
                for level, steps in enumerate(plan.levels) for step in steps)
    outside = {leaf.register for leaf in program.leaves} | set(program.results)
    nbytes = sum(program.registers[r].size * program.registers[r].dtype.itemsize for r in outside)
    return cost.blocks(constants(), loops, count, nbytes, threads)


def _step_ns(program: KernelProgram, step: Step, blocks: int) -> float:
    """All calls of one step."""
    c, registers = constants(), program.registers
    elements = max(registers[r].size for r in (*step.sources, step.target))
    if isinstance(step.call, Machine):
        return cost.vm_ns(c, step.call.steps, len(step.sources), elements)
    itemsize = registers[step.target].dtype.itemsize
    wide = max(1.0, itemsize / cost.LANE_BYTES)
    return blocks * cost.ufunc_ns(c, elements / blocks * wide, cost.lane_price(step.primitive, itemsize) / wide)
