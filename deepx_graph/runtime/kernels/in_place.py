"""Which values live in the memory of a result before it is there, and which arguments a result may write over.

A temporary whose last reader writes a result elementwise needs no buffer: it lives where the result will be. So fewer arrays
compete for the cache. Both answers follow from the order in which the steps run; nothing is decided about the arrays themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

from deepx_graph.runtime.kernels.plan import BlockPlan
from deepx_graph.runtime.kernels.program import KernelProgram, Leaf, Step

Position = tuple[int, int]
"""Level and place within it: positions compare in the order in which a block's steps run."""


def temporary_homes(program: KernelProgram, plan: BlockPlan) -> dict[int, int]:
    """For registers that live in a result's memory, the result. None keeps a result from taking a parameter's memory."""
    maker = {s.target: (at, s) for at, s in _positions(plan).items()}
    last, may = _last_reads(plan), overwritten(program, plan, {})
    homes: dict[int, int] = {}
    for result, params in zip(program.results, may, strict=True):
        read = max((last[leaf.register] for leaf in program.leaves if leaf.param in params and leaf.register in last), default=None)
        at, step = maker[result]
        while step.in_place and result not in plan.partial:
            found = next((maker[s] for s in step.sources if s in maker and s not in homes and s not in program.results
                          and s not in plan.partial and last[s] == at and maker[s][0][0] == at[0]
                          and _alike(program, s, result) and _writes_late_enough(*maker[s], read)), None)
            if found is None:
                break
            at, step = found
            homes[step.target] = result
    return homes


def _writes_late_enough(at: Position, step: Step, read: Position | None) -> bool:
    """Whether the step may write over a parameter last read then. A step without sources is memory without a value."""
    return bool(step.sources) and (read is None or read < at or (read == at and step.in_place))


def overwritten(program: KernelProgram, plan: BlockPlan, homes: Mapping[int, int]) -> tuple[frozenset[int], ...]:
    """For each result, the parameters whose memory it may take: read at the very elements that are written, and no later."""
    by_param: dict[int, list[Leaf]] = {}
    for leaf in program.leaves:
        by_param.setdefault(leaf.param, []).append(leaf)
    last, first = _last_reads(plan), {}
    for at, step in reversed(_positions(plan).items()):
        first[homes.get(step.target, step.target)] = (at, step)

    def may_take(result: int, leaf: Leaf) -> bool:
        is_plain = not leaf.views and leaf.order is None
        same = program.registers[leaf.register].shape == program.registers[result].shape
        return is_plain and same and _writes_late_enough(*first[result], last.get(leaf.register))

    return tuple(
        frozenset(p for p, leaves in by_param.items() if r not in plan.partial and all(may_take(r, leaf) for leaf in leaves))
        for r in program.results)


def _positions(plan: BlockPlan) -> dict[Position, Step]:
    return {(level, k): step for level, steps in enumerate(plan.levels) for k, step in enumerate(steps)}


def _last_reads(plan: BlockPlan) -> dict[int, Position]:
    return {s: at for at, step in _positions(plan).items() for s in step.sources}


def _alike(program: KernelProgram, one: int, other: int) -> bool:
    a, b = program.registers[one], program.registers[other]
    return a.shape == b.shape and a.dtype == b.dtype
