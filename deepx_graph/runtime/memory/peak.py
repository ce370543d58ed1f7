"""What is in memory when most is: the values that a bound on memory meets. Read off a plan; nothing is allocated."""

from __future__ import annotations

from deepx_graph.errors import printable
from deepx_graph.runtime.memory.assignment import Piece, Plan

SHOWN = 3
"""How many values a message names."""


def at_peak(plan: Plan) -> list[Piece]:
    """The values alive at the instruction where most bytes are, the largest first. Takes time linear in the code."""
    changes = [0] * (len(plan.code.instructions) + 1)
    for p in plan.pieces:
        changes[p.first] += p.bytes * p.copies
        changes[p.last + 1] -= p.bytes * p.copies
    at = most = now = 0
    for k, change in enumerate(changes):
        now += change
        if now > most:
            at, most = k, now
    return sorted((p for p in plan.pieces if p.first <= at <= p.last), key=lambda p: -p.bytes * p.copies)


def largest(plan: Plan) -> str:
    """The largest values alive at the peak, in words; "" where there is none."""
    alive = at_peak(plan)
    named = [f"{printable(p.node.name or p.node.op.name)}: {p.node.type}{f' x{p.copies}' if p.copies > 1 else ''}"
             f"{f' (line {p.node.span.line})' if p.node.span else ''}" for p in alive[:SHOWN]]
    more = f" and {len(alive) - SHOWN} more" if len(alive) > SHOWN else ""
    return f"the largest at the peak are {', '.join(named)}{more}" if named else ""
