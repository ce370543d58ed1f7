"""What the statements of a program cost, and how often they run, about."""

from __future__ import annotations

import math
from collections.abc import Mapping

from deepx_graph.loops.primitives import price
from deepx_graph.loops.program import Combine, Conditional, For, Let, Load, Statement, Store, While, blocks_of
from deepx_graph.loops.scalar import Affine, Scalar, ScalarConst, affine

UNKNOWN_TRIPS = 8
"""How often a loop of unknown length is taken to run."""


def price_of(s: Statement) -> float:
    """What a statement itself costs, in additions."""
    return price(s.primitive) if isinstance(s, (Let, Combine)) else 1.0 if isinstance(s, (Load, Store)) else 0.0


def weighted(body: list[Statement], times: float = 1.0, around: dict[Scalar, Let] | None = None) -> list[tuple[Statement, float]]:
    """All statements with how often each runs, about; `around` are the variables that are known, to which theirs are added."""
    found: list[tuple[Statement, float]] = []
    made = {} if around is None else around
    for s in body:
        found.append((s, times))
        if isinstance(s, Let):
            made[s.target] = s
        if not (blocks := blocks_of(s)):
            continue
        often = [trips(s, made)] * 2
        if isinstance(s, Conditional):
            share = 1.0 if s.usual else likelihood(s.condition, made)
            often = [share, 1 - share]
        for block, count in zip(blocks, often, strict=False):
            found += weighted(block, times * count, made)
    return found


def likelihood(condition: Scalar, made: Mapping[Scalar, Let]) -> float:
    """For which part of the values of an axis a condition holds, about; `made` are the variables that are known."""
    let = made.get(condition)
    if let is not None and let.primitive == "and":
        return math.prod(likelihood(a, made) for a in let.args)
    if let is None or let.primitive != "lt" or not all(isinstance(a, (Affine, ScalarConst)) for a in let.args):
        return 0.5
    ends = (affine(let.args[0]) - affine(let.args[1])).bounds
    return 0.5 if ends is None else min(1.0, max(0.0, -ends[0] / (ends[1] - ends[0] + 1)))


def trips(s: Statement, made: Mapping[Scalar, Let] | None = None) -> float:
    """How often the blocks of a statement run, about; `made` are the variables that are known."""
    if isinstance(s, While):
        return UNKNOWN_TRIPS
    if not isinstance(s, For):
        return 1
    ends = (s.high - s.low).bounds
    if ends is not None:
        return max(0, (ends[0] + ends[1]) / 2)
    low, high = (_middle(end, made or {}) for end in (s.low, s.high))
    return UNKNOWN_TRIPS if low is None or high is None else max(0, high - low)


def _middle(x: Scalar, made: Mapping[Scalar, Let]) -> float | None:
    """What a whole number is in the middle of the axes that it depends on; None where that is not known."""
    if isinstance(x, Affine):
        middles = [_middle(v, made) for v, _ in x.terms]
        known = [m * f for m, (_, f) in zip(middles, x.terms, strict=True) if m is not None]
        return x.constant + sum(known) if len(known) == len(middles) else None
    if isinstance(x, ScalarConst):
        return float(x.value)
    if (let := made.get(x)) is None:
        return None if x.low is None or x.high is None else (x.low + x.high) / 2
    if let.primitive not in ("min", "max"):
        return None
    ends = [m for a in let.args if (m := _middle(a, made)) is not None]
    if len(ends) < len(let.args):
        return None
    return min(ends) if let.primitive == "min" else max(ends)
