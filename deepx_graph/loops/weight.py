"""How often the statements of a program run, about."""

from __future__ import annotations

from deepx_graph.loops.program import For, Statement, While, blocks_of

UNKNOWN_TRIPS = 8
"""How often a loop of unknown length is taken to run."""


def weighted(body: list[Statement], times: float = 1.0) -> list[tuple[Statement, float]]:
    """All statements with how often each runs, about."""
    found: list[tuple[Statement, float]] = []
    for s in body:
        found.append((s, times))
        inner = times * trips(s)
        for block in blocks_of(s):
            found += weighted(block, inner)
    return found


def trips(s: Statement) -> float:
    """How often the blocks of a statement run, about."""
    if isinstance(s, While):
        return UNKNOWN_TRIPS
    if not isinstance(s, For):
        return 1
    ends = (s.high - s.low).bounds
    return UNKNOWN_TRIPS if ends is None else max(0, (ends[0] + ends[1]) / 2)
