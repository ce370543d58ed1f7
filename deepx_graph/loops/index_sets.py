"""Nests cut where a condition on a subscript changes (index-set splitting), so that most loops have none.

The innermost axis becomes one loop after the other. An outer axis is asked once for each row: in the longest of its ranges, or in
which of them where several are long. Rows near an edge keep their conditions, as do folds within: those are left to `split_guards`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

from deepx_graph.loops.builder import LoopBuilder
from deepx_graph.loops.program import Statement, walk
from deepx_graph.loops.scalar import Affine, Index, ScalarVar
from deepx_graph.types import I64

Write = Callable[[LoopBuilder, Index], None]
"""Writes what is done for the element at a subscript."""

Range = tuple[int, int]

LEAST_ELEMENTS = 64
"""A nest of fewer is not split."""

MOST_RANGES, MOST_STATEMENTS = 32, 1500
"""An axis of more ranges is not cut, nor a nest of which all copies together would have more statements."""

LONG, MANY = 8, 16
"""A range of at least this part of the longest of its axis, or of so many rows, is long: so are all where arrays are stacked."""


def filled(b: LoopBuilder, shape: Sequence[int], write: Write) -> None:
    """A nest over a shape, split where that takes conditions out of it; nothing where there is no element."""
    if 0 in shape:
        return
    written, asked = len(b.here), len(b.undecided)
    with b.nest(shape) as at:
        write(b, at)
    has_conditions = len(b.undecided) > asked and math.prod(shape) >= LEAST_ELEMENTS
    ranges = _ranges(shape, write) if has_conditions else None
    if ranges is None:
        return
    del b.here[written:]
    if len(shape) == 1:
        for low, high in ranges[0]:
            with b.loop(high - low, parallel=True) as i:
                write(b, (i + low,))
    else:
        with b.nest(shape[:-1]) as outer:
            _row(b, list(outer), 0, ranges, write)


def _ranges(shape: Sequence[int], write: Write) -> list[list[Range]] | None:
    """The ranges of each axis in which all conditions on it alone are decided; None where there is nothing to cut."""
    trial, axes, statements = _trial([(0, n) for n in shape], write)
    found = [_cut(axis, n, trial.undecided) for axis, n in zip(axes, shape, strict=True)]
    if all(len(ranges) == 1 for ranges in found):
        return None
    _, _, decided = _trial([max(ranges, key=lambda r: r[1] - r[0]) for ranges in found], write)
    copies = 1
    for k in reversed(range(len(shape))):
        copies *= len(found[k]) if k == len(shape) - 1 else max(1, len(_long(found[k])))
        if len(found[k]) > MOST_RANGES or decided * copies + statements * (len(shape) - k) > MOST_STATEMENTS:
            found[: k + 1] = [[(0, n)] for n in shape[: k + 1]]
    return found if any(len(r) > 1 for r in found) else None


def _trial(ranges: Sequence[Range], write: Write) -> tuple[LoopBuilder, list[ScalarVar], int]:
    """What is done for the element at variables in ranges: the builder that wrote it, the variables, how many statements it has."""
    trial, body = LoopBuilder(), list[Statement]()
    axes = [trial.var(I64, low, high - 1) for low, high in ranges]
    with trial.block(body):
        write(trial, [Affine(((axis, 1),)) for axis in axes])
    return trial, axes, sum(1 for _ in walk(body))


def _cut(axis: ScalarVar, size: int, conditions: Sequence[Affine]) -> list[Range]:
    """An axis cut where one of the subscripts, which depend on it alone, becomes negative or stops to be so."""
    cuts = {0, size}
    for x in conditions:
        if len(x.terms) == 1 and x.terms[0][0] is axis:
            factor = x.terms[0][1]
            cuts.add(-(x.constant // factor) if factor > 0 else x.constant // -factor + 1)
    return list(pairwise(sorted(c for c in cuts if 0 <= c <= size)))


def _long(ranges: Sequence[Range]) -> list[Range]:
    longest = max(high - low for low, high in ranges)
    return [(low, high) for low, high in ranges if (high - low) * LONG >= longest or high - low >= MANY]


def _row(b: LoopBuilder, at: list[Affine], axis: int, ranges: Sequence[Sequence[Range]], write: Write) -> None:
    """The loops over the last axis, once it is known in which ranges the outer axes from `axis` on are."""
    if axis == len(at):
        for low, high in ranges[-1]:
            with b.loop(high, low) as i:
                write(b, (*at, i))
    elif len(ranges[axis]) == 1:
        _row(b, at, axis + 1, ranges, write)
    elif len(_long(ranges[axis])) > 1:
        _choose_range(b, at, axis, ranges, write, ranges[axis])
    else:
        low, high = max(ranges[axis], key=lambda r: r[1] - r[0])
        b.when(b.within(at[axis], low, high), lambda: _row(b, _known(b, at, axis, (low, high)), axis + 1, ranges, write),
               lambda: _guarded(b, at, ranges[-1][-1][1], write))


def _choose_range(b: LoopBuilder, at: list[Affine], axis: int, ranges: Sequence[Sequence[Range]], write: Write,
                  among: Sequence[Range]) -> None:
    """The loops for the one of some ranges in which an axis is."""
    if not any(r in _long(ranges[axis]) for r in among):
        _guarded(b, at, ranges[-1][-1][1], write)
        return
    if len(among) == 1:
        _row(b, _known(b, at, axis, among[0]), axis + 1, ranges, write)
        return
    middle = len(among) // 2
    b.when(b.less(at[axis], among[middle][0]), lambda: _choose_range(b, at, axis, ranges, write, among[:middle]),
           lambda: _choose_range(b, at, axis, ranges, write, among[middle:]))


def _known(b: LoopBuilder, at: list[Affine], axis: int, within: Range) -> list[Affine]:
    return [*at[:axis], b.known(at[axis], within[0], within[1] - 1), *at[axis + 1 :]]


def _guarded(b: LoopBuilder, at: list[Affine], size: int, write: Write) -> None:
    with b.loop(size) as i:
        write(b, (*at, i))
