"""The shares of a matrix product: parts of some axes of its result, such as a cache holds and all workers have some of."""

from __future__ import annotations

import math
from dataclasses import dataclass

from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import chunk_ns
from deepx_graph.runtime.native.gemm.plan import LEAST_LANES_READ, LEAST_READERS, PAGE, RESULT, SHARED_READERS, GemmAxis, GemmPlan

SHARES_OF_CHUNK = 6
"""Shares of a product for the work that pays for handing it to a sleeping worker: one that is awake takes the next at once."""

MOST_SHARES, LEAST_LANES = 64, 4
"""The most shares of a product; those along the lanes have at least so many registers."""

STRIP = 4
"""Panels of the operand along the lanes that are packed at a time, on the stack: some 130 KB of an AVX2 machine. Fewer read rows in
pieces that are too short."""

ENOUGH_SHARES = 8
"""Of a product by panels, where more would be of parts narrower than a strip."""

MOST_ROWS, PACKED_BYTES, MOST_ROW_BYTES = 1024, 1 << 19, 512
"""Bounds of a share of a product by panels: rows, bytes of them in panels, and bytes along a row where it has an epilogue."""

EPILOGUE_BYTES, LEAST_ROWS = 512 << 10, 56
"""An epilogue is done with at most so much of the result at a time, but not with fewer rows."""


@dataclass(frozen=True)
class ShareAxis:
    """An axis of the result that shares have parts of, `each` elements long but for the last."""

    axis: GemmAxis
    each: int

    @property
    def count(self) -> int:
        """How many parts there are."""
        return -(-self.axis.size // self.each)


def cuts(plan: GemmPlan) -> tuple[ShareAxis, ...]:
    """The axes that shares have parts of: the one of most parts, and rows where a cache has not room for all. Shares that copy
    panels have parts of the lanes if there are enough, as those of rows would copy them again."""
    rows = _cut(plan.rows, -(-plan.rows.size // _most_rows(plan)), plan.tile.rows)
    wanted, units = _wanted(plan), [(a, 1) for a in plan.outer] + [(plan.rows, _least_rows(plan))]
    if not plan.along:
        units.insert(len(plan.outer) + (not plan.by_panels), (plan.lane, _least_lanes(plan)))
    if plan.by_panels:
        wanted = min(wanted, max(ENOUGH_SHARES, plan.lane.size // (STRIP * plan.tile.vectors * plan.lanes)))
    axis, unit = max(units, key=lambda found: min(found[0].size // found[1], wanted))
    best = _cut(axis, wanted, unit)
    found = (min(best, rows, key=lambda cut: cut.each),) if axis is plan.rows else (rows, best)
    return tuple(cut for cut in found if cut.count > 1)


def cuts_of_rows(plan: GemmPlan, columns: int, *, whole_rows: bool) -> tuple[ShareAxis, ...] | None:
    """The same for an epilogue on rows of so many columns: shares have neighbouring rows, and of them all columns or neighbouring
    ones. None where there are no such shares."""
    axes = [a for a in plan.result_axes if a.size > 1]
    down = sorted((a for a in axes if a.steps[RESULT] >= columns), key=lambda a: -a.steps[RESULT])
    if any(a.steps[RESULT] % columns for a in down):
        return None
    across, width = [], columns
    if plan.by_panels and not whole_rows and [a for a in axes if a not in down] == [plan.lane]:
        lane = _cut(plan.lane, -(-columns * plan.dtype.itemsize // MOST_ROW_BYTES), plan.tile.vectors * plan.lanes)
        across, width = [lane], lane.each
    total = math.prod(a.size for a in down)
    wanted = min(_wanted(plan), ENOUGH_SHARES) if plan.by_panels else _wanted(plan)
    most = min(EPILOGUE_BYTES // (width * plan.dtype.itemsize), -(-total * columns // (width * wanted)))
    most = max(min(most, _most_rows(plan)), LEAST_ROWS) if plan.by_panels else max(most, LEAST_READERS)
    found = []
    for axis in down:
        inside = axis.steps[RESULT] // columns
        unit = {id(plan.rows): plan.tile.rows, id(plan.lane): plan.tile.vectors * plan.lanes}.get(id(axis), 1)
        found.append(_cut(axis, -(-axis.size // max(1, most // inside)), unit))
        if most >= inside:
            break
    return tuple(cut for cut in (*found, *across) if cut.count > 1)


def _wanted(plan: GemmPlan) -> int:
    """How many shares are wanted."""
    return max(1, min(MOST_SHARES, int(SHARES_OF_CHUNK * plan.nanoseconds / chunk_ns(constants()))))


def _cut(axis: GemmAxis, count: int, unit: int) -> ShareAxis:
    """An axis cut into about so many parts of whole units."""
    return ShareAxis(axis, min(axis.size, _whole(-(-axis.size // count), unit)))


def _whole(size: int, unit: int) -> int:
    """A size in whole units, rounded up."""
    return -(-size // unit) * unit


def _least_rows(plan: GemmPlan) -> int:
    """The rows of a share, at least: each copies the panels that it reads."""
    return _whole(SHARED_READERS if plan.by_panels else LEAST_READERS, plan.tile.rows)


def _least_lanes(plan: GemmPlan) -> int:
    """The lanes of a share, at least: each copies the panels of the other operand, if there are any."""
    least = LEAST_LANES_READ if plan.spread_panels else max(LEAST_LANES * plan.lanes, PAGE // plan.dtype.itemsize * plan.is_far)
    return _whole(least, plan.tile.vectors * plan.lanes)


def _most_rows(plan: GemmPlan) -> int:
    """The rows of a share, at most."""
    if not plan.by_panels:
        return plan.rows.size
    return PACKED_BYTES // (plan.depth * plan.dtype.itemsize) if plan.spread_panels else MOST_ROWS
