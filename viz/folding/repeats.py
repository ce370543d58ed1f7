"""Finding what repeats: the period of a sequence whose parts occur again and again, one after another.

A network of equal layers gives such a sequence of ops. Near-linear: candidates for the period are the most frequent distances
between equal short windows, and each is checked in one pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence

WINDOWS = (1, 4, 16)
"""Lengths of the windows whose distances vote: a long one tells apart what a single op cannot."""

CANDIDATES = 12

ENOUGH = 0.9
"""A period is considered when it covers at least this share of what the best one covers; fewest runs win, then the shortest."""


def best_period(tokens: Sequence[Hashable], windows: Sequence[int] = WINDOWS) -> tuple[int, list[tuple[int, int]]]:
    """The period that explains most of the sequence, and its runs `(start, repeats)`, each of two repeats or more.

    Period 0 and no runs where nothing of two or more tokens repeats.
    """
    number: dict[Hashable, int] = {}
    ids = [number.setdefault(t, len(number)) for t in tokens]
    found = {p: runs(ids, p) for p in _candidates(ids, windows)}
    covered = {p: sum(p * n for _, n in r) for p, r in found.items()}
    best = max(covered.values(), default=0)
    if not best:
        return 0, []
    good = [p for p, c in covered.items() if c >= ENOUGH * best]
    period = min(good, key=lambda p: (len(found[p]), p))  # layers repeat in one run, what repeats inside each layer in many
    return period, found[period]


def _candidates(ids: Sequence[int], windows: Sequence[int]) -> list[int]:
    votes: Counter[int] = Counter()
    for width in windows:
        last: dict[tuple[int, ...], int] = {}
        for k in range(len(ids) - width + 1):
            window = tuple(ids[k : k + width])
            if window in last:
                votes[k - last[window]] += 1
            last[window] = k
    return [p for p, _ in sorted(votes.items(), key=lambda v: (-v[1], v[0])) if p > 1][:CANDIDATES]


def runs(ids: Sequence[int], period: int) -> list[tuple[int, int]]:
    """The maximal stretches in which every element equals the one a period later, as `(start, repeats)`; two repeats at least."""
    found: list[tuple[int, int]] = []
    start = 0
    for k in range(len(ids) - period + 1):
        if k + period < len(ids) and ids[k] == ids[k + period]:
            continue
        repeats = (k - start + period) // period
        if repeats > 1:
            found.append((start, repeats))
        start = k + 1
    return _apart(found, period)


def _apart(found: list[tuple[int, int]], period: int) -> list[tuple[int, int]]:
    """The runs without their overlaps: a run begins where the one before it has ended."""
    apart: list[tuple[int, int]] = []
    free = 0
    for start, repeats in found:
        late = max(start, free)
        repeats = (start + repeats * period - late) // period
        if repeats > 1:
            apart.append((late, repeats))
            free = late + repeats * period
    return apart
