"""Blocks of operations: where a sequence repeats, one after another, and what several nodes together are called.

A network of equal layers repeats so. The search is near-linear: candidates for the period are the most frequent distances between
equal short windows, and each is checked in one pass. Names (`norm + attention + mlp`, or the most telling operations) are a reading
of the operations, for the reader only: nothing is decided by them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from deepx_graph.viz.view.labels import short
from deepx_graph.viz.view.model import ViewNode

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


# --- names ----------------------------------------------------------------------------------------------------------


LISTED = 3
"""Operations that a name lists where no word fits."""


@dataclass(frozen=True)
class NameWord:
    """A word, with operations of which at least so many must be there, and operations one of which must be."""

    word: str
    least: tuple[tuple[str, int], ...]
    one_of: tuple[str, ...] = ()


WORDS = (
    NameWord("attention", (("dot_general", 2), ("exponential", 1), ("divide", 1), ("reduce", 1))),
    NameWord("norm", (("reduce", 1),), ("rsqrt", "sqrt")),
    NameWord("mlp", (("dot_general", 2),), ("tanh", "logistic", "erf", "maximum")),
    NameWord("convolution", (("convolution", 1),)),
)
"""Tried in this order; each takes its products away, so that two of them need four."""

TELLING = ("linear", "window", "index", "sort", "linalg", "norm", "reduce", "call", "fusion", "random", "effects")
"""Families whose operations say most of what a part does, the most telling first."""

QUIET = ("layout", "shape")
"""Families whose operations say least."""


def telling(family: str) -> int:
    """How much an operation of a family says of the part that it is in: less is more."""
    return 0 if family in TELLING else 2 if family in QUIET else 1


def op_of(node: ViewNode) -> str:
    """The operation that a box names; its kind where it is none."""
    if node.kind not in ("op", "call"):
        return node.kind
    return node.op or (_first_word(node.title) if node.title else node.kind)


@lru_cache(maxsize=4096)
def _first_word(title: str) -> str:
    return title.split("(")[0].split()[0]


def contents(members: Sequence[ViewNode]) -> str:
    """A name for the nodes together, of the operators of the source where it tells them; `nodes` where there is nothing to say."""
    named = [n for n in members if n.kind not in ("param", "constant", "result")]
    named = [n for n in named if n.kind in ("op", "call", "fusion")] or named
    told = {n.operator: n.family for n in reversed(named) if n.operator is not None and n.operator.kind}
    if 2 * sum(n.operator in told for n in named) > len(named) and len(_words(Counter(map(op_of, named)))) < 2:
        families = {operator.kind: family for operator, family in told.items()}
        return name_of(Counter(operator.kind for operator in told), families)
    return name_of(Counter(map(op_of, named)), {op_of(n): n.family for n in named})


def name_of(ops: Counter[str], families: Mapping[str, str]) -> str:
    """A name for so many of each operation, from the family of each; `nodes` where there is nothing to say."""
    words = _words(ops)
    if words:
        return " + ".join(words)
    listed = sorted(ops, key=lambda op: (telling(families[op]), -ops[op], op))
    if telling(families[listed[0]]) < 2 if listed else False:
        listed = [op for op in listed if telling(families[op]) < 2]
    return short(" + ".join(listed[:LISTED]) + (" + …" if len(listed) > LISTED else ""), 48) or "nodes"


def _words(ops: Counter[str]) -> list[str]:
    found = []
    left = Counter(ops)
    for word in WORDS:
        if all(left[op] >= n for op, n in word.least) and (not word.one_of or any(left[op] for op in word.one_of)):
            found.append(word.word)
            left["dot_general"] -= dict(word.least).get("dot_general", 0)
    return sorted(found, key=["norm", "attention", "mlp", "convolution"].index)
