"""What the cost model makes of a kernel of numpy's loops and numexpr's machine. Sizes only; nothing is run."""

from __future__ import annotations

import math

from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.kernels.plan import BLOCK, BlockPlan
from deepx_graph.runtime.kernels.program import KernelProgram, Step
from deepx_graph.runtime.kernels.vm import Machine


def block_count(program: KernelProgram, plan: BlockPlan) -> int:
    """How many blocks a plan has; none where the kernel is in one piece."""
    if plan.axis < 0:
        return 0
    return math.prod(program.space[: plan.axis]) * -(-program.space[plan.axis] // plan.rows)


def predicted(program: KernelProgram, plan: BlockPlan, threads: int) -> cost.ForecastParts:
    """The prediction of a whole kernel."""
    count = block_count(program, plan)
    loops = sum(_step_ns(program, step, count if level == BLOCK else 1)
                for level, steps in enumerate(plan.levels) for step in steps)
    outside = {leaf.register for leaf in program.leaves} | set(program.results)
    nbytes = sum(program.registers[r].size * program.registers[r].dtype.itemsize for r in outside)
    return cost.blocks(constants(), loops, count, nbytes, threads)


def _step_ns(program: KernelProgram, step: Step, blocks: int) -> float:
    """All calls of one step."""
    c, registers = constants(), program.registers
    if not step.sources:
        return 0.0
    elements = max(registers[r].size for r in (*step.sources, step.target))
    if isinstance(step.make, Machine):
        return cost.vm_ns(c, step.make.steps, len(step.sources), elements)
    itemsize = registers[step.target].dtype.itemsize
    wide = max(1.0, itemsize / cost.LANE_BYTES)
    return blocks * cost.ufunc_ns(c, elements / blocks * wide, cost.lane_price(step.primitive, itemsize) / wide)
