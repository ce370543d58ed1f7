"""What is in memory when most is: the values that a bound on memory meets. Read off a plan; nothing is allocated."""

from __future__ import annotations

from itertools import accumulate

from deepx_graph.errors import printable
from deepx_graph.runtime.bytecode.code import Run
from deepx_graph.runtime.memory.assignment import Allocation, BufferAssignment
from deepx_graph.units import sized

SHOWN = 3
"""How many values a message names."""


def in_words(values: int, peak: int) -> str:
    """A peak, and how much of it is there for values alone."""
    return f"{sized(peak)} at the peak: {sized(values)} of values, {sized(peak - values)} of scratch memory"


def changes(plan: BufferAssignment) -> list[int]:
    """By how many bytes what is in memory grows or shrinks at each instruction, kernels' scratch memory included."""
    found = [0] * (len(plan.code.instructions) + 1)
    for p in plan.pieces:
        found[p.first] += p.bytes * p.copies
        found[p.last + 1] -= p.bytes * p.copies
    for at, scratch in plan.scratch.items():
        found[at] += scratch
        found[at + 1] -= scratch
    return found


def peak_at(plan: BufferAssignment) -> int:
    """The instruction at which most bytes are in memory. Takes time linear in the code."""
    alive = list(accumulate(changes(plan)))
    return max(range(len(alive)), key=alive.__getitem__)


def at_peak(plan: BufferAssignment) -> list[Allocation]:
    """The values in memory there, the largest first."""
    at = peak_at(plan)
    return sorted((p for p in plan.pieces if p.first <= at <= p.last), key=lambda p: -p.bytes * p.copies)


def largest(plan: BufferAssignment) -> str:
    """The largest values in memory at the peak, in words, and the scratch memory of the kernel there; "" where there is none."""
    alive = at_peak(plan)
    named = [f"{printable(p.node.name or p.node.op.name)}: {p.node.type}{f' x{p.copies}' if p.copies > 1 else ''}"
             f"{f' (line {p.node.span.line})' if p.node.span else ''}" for p in alive[:SHOWN]]
    more = f" and {len(alive) - SHOWN} more" if len(alive) > SHOWN else ""
    values = f"the largest at the peak are {', '.join(named)}{more}" if named else ""
    return "; ".join(filter(None, (values, _scratch(plan, peak_at(plan)))))


def _scratch(plan: BufferAssignment, at: int) -> str:
    run = plan.code.instructions[at] if at in plan.scratch else None
    if not isinstance(run, Run):
        return ""
    span = run.node.span
    where = f" (line {span.line})" if span else ""
    return f"{printable(run.node.name or run.node.op.name)}{where} needs {plan.scratch[at]} bytes of scratch memory while it runs"
