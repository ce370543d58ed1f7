"""The loops of a small or thin matrix product, or of a batch of them, of any layout; `small.py` writes their code.

Registers lie across the result where an operand lies along it. Where none does, or that operand is large, a panel of it is copied
for all rows that read it; else they lie along the terms, or each takes one element. The other operand is read where it lies, an
element for all lanes. Every element of the result is summed by itself, so what is not finite stays where it belongs. Shares of a
large one are parts of one axis of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import LANE_BYTES, chunk_ns, memory_ns
from deepx_graph.runtime.native.llvm.builder import DType
from deepx_graph.runtime.native.llvm.target import this_machine

PAGE, FAR_BYTES, FEW_TERMS = 4096, 1 << 20, 8
"""Of terms that lie at least that far apart, in operands larger than this, so many are added to whole rows of the result at a time:
pages are then read from end to end."""

SUMMED_TERMS, MOST_ALONG = 1024, 1 << 18
"""Of others so many, which keeps rounding small; sums along the lanes have at most so many terms."""

SET_LINES, SET_STRIDE = 8, 1 << 12
"""Lines of the first cache that lie a multiple of `SET_STRIDE` apart share a set, which holds `SET_LINES` of them."""

SHARES_OF_CHUNK = 6
"""Shares of a product for the work that pays for handing it to a sleeping worker: one that is awake takes the next at once."""

MOST_SHARES, LEAST_LANES = 64, 4
"""The most shares of a product; those along the lanes have at least so many registers."""

LATENCY = 5
"""Cycles from the begin of a multiplication and addition to its sum; two begin in each, and two loads."""

KEPT_BYTES, STREAMED_BYTES = 1 << 17, 1 << 21
"""Of small matrices: the face of the two shortest sides, and the operand of which panels are copied, are not larger."""

ENOUGH_ROWS = 64
"""Of axes with so many elements or more that may be the rows, it is the one whose elements are nearest to one another."""

CACHED_BYTES = 1 << 16
"""About so much of the operand along the lanes is read by all rows before the next terms of it are."""

LEAST_READERS, SHARED_READERS, LARGE_BYTES, PANEL_TERMS = 8, 64, 1 << 18, 512
"""A panel is copied for at least so many rows (the second number where threads share the rows), of an operand that does not lie
along the result, or is larger than this; it has at most so many terms, which a cache holds."""


@dataclass(frozen=True)
class GemmAxis:
    """An axis of the product: its size, and how far its next element is in the left operand, the right one and the result."""

    size: int
    steps: tuple[int, int, int]


LEFT, RIGHT, RESULT = range(3)
_ONE = GemmAxis(1, (0, 0, 0))


@dataclass(frozen=True)
class SmallGemmPlan:
    """The loops of a product: `outer` around blocks of `rows`, with registers along `lane`, which is summed over where `along`."""

    dtype: DType
    outer: tuple[GemmAxis, ...]
    rows: GemmAxis
    lane: GemmAxis
    terms: tuple[GemmAxis, ...]
    along: bool
    vector: int
    """The operand that lies along the lanes, where they are no terms."""
    by_panels: bool = False
    """Whether panels of that operand are copied."""

    @property
    def work(self) -> int:
        return math.prod(a.size for a in (*self.outer, self.rows, self.lane, *self.terms))

    @property
    def is_small(self) -> bool:
        """Whether what is read again and again, of every matrix, stays in a cache as it lies: packing it would cost more."""
        depth = math.prod(a.size for a in ((self.lane, *self.terms) if self.along else self.terms))
        least, middle, _ = sorted((self.rows.size, 1 if self.along else self.lane.size, depth))
        streamed = self.lane.size * depth * self.dtype.itemsize if self.by_panels else 0
        return least * middle * self.dtype.itemsize <= KEPT_BYTES and streamed <= STREAMED_BYTES

    @property
    def is_narrow(self) -> bool:
        """Whether most lanes of a register are idle, as where few elements of a row lie side by side."""
        return not self.along and 2 * self.lane.size < this_machine().register_bytes // self.dtype.itemsize

    @property
    def is_far(self) -> bool:
        """Whether terms lie in memory pages of their own."""
        inside = len(self.terms) == 1 and not self.along and not self.by_panels
        apart = self.terms[0].steps[self.vector] * self.dtype.itemsize if inside else 0
        return apart >= PAGE and self.operand_bytes > FAR_BYTES

    @property
    def at_once(self) -> int:
        """How many of the terms are summed before they are added to the result; 0 for all."""
        row = self.lane.size * self.dtype.itemsize
        most = min(SUMMED_TERMS, max(PANEL_TERMS // 4, CACHED_BYTES // row // 8 * 8))
        many = PANEL_TERMS if self.by_panels else FEW_TERMS if self.is_far else most
        return many if len(self.terms) == 1 and not self.along and self.terms[0].size > many else 0

    @property
    def operand_bytes(self) -> int:
        """The bytes of the larger operand."""
        axes = (*self.outer, self.rows, self.lane, *self.terms)
        return self.dtype.itemsize * max(math.prod(a.size for a in axes if a.steps[side]) for side in (LEFT, RIGHT))

    def nanoseconds(self, lanes: int) -> float:
        """About how long one thread takes: at the rate of a library's products, as far as its registers are full."""
        c = constants()
        results = self.work // math.prod(a.size for a in ((self.lane, *self.terms) if self.along else self.terms))
        busy = min(lanes, self.lane.size)
        full = lanes * self.dtype.itemsize / LANE_BYTES / busy
        arithmetic = self.work * 2 * full / c.product_gflops + results * (2.0 if self.along else 0.5 / busy)
        return max(arithmetic, memory_ns(c, self.operand_bytes, 1))


# --- which loops


def planned(dtype: DType, left: Sequence[int], right: Sequence[int], left_batch: Sequence[int], right_batch: Sequence[int],
            left_terms: Sequence[int], right_terms: Sequence[int]) -> SmallGemmPlan:
    """The loops of a product of operands of those shapes."""
    x, y = _steps(left), _steps(right)
    rows = [k for k in range(len(left)) if k not in (*left_batch, *left_terms)]
    columns = [k for k in range(len(right)) if k not in (*right_batch, *right_terms)]
    z = _steps([*(left[k] for k in (*left_batch, *rows)), *(right[k] for k in columns)])
    batch = _joined([GemmAxis(left[i], (x[i], y[j], z[k])) for k, (i, j) in enumerate(zip(left_batch, right_batch, strict=True))])
    down = _joined([GemmAxis(left[i], (x[i], 0, z[k])) for k, i in enumerate(rows, len(left_batch))])
    across = _joined([GemmAxis(right[j], (0, y[j], z[k])) for k, j in enumerate(columns, len(left_batch) + len(rows))])
    terms = _joined([GemmAxis(left[i], (x[i], y[j], 0)) for i, j in zip(left_terms, right_terms, strict=True)])
    return _arranged(dtype, batch, [down, across], terms)


def _steps(shape: Sequence[int]) -> list[int]:
    """How far the next element along each axis is."""
    return [math.prod(shape[k + 1 :]) for k in range(len(shape))]


def _joined(axes: Sequence[GemmAxis]) -> list[GemmAxis]:
    """The axes of more than one element; those that lie one in the other as one."""
    found: list[GemmAxis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if found and found[-1].steps == tuple(axis.size * s for s in axis.steps):
            axis = replace(axis, size=axis.size * found.pop().size)
        found.append(axis)
    return found


def _arranged(dtype: DType, batch: Sequence[GemmAxis], free: Sequence[Sequence[GemmAxis]],
              terms: Sequence[GemmAxis]) -> SmallGemmPlan:
    lanes = this_machine().register_bytes // dtype.itemsize
    along_result = [(a, side) for side in (LEFT, RIGHT) for a in free[side] if a.steps[RESULT] == 1]
    found = [(a, side) for a, side in along_result if a.steps[side] == 1]
    lane, vector = found[0] if found else (_ONE, RIGHT)
    by_panels = False
    for wide, side in found or along_result:
        readers = max((a.size for a in free[LEFT + RIGHT - side]), default=1)
        bytes_ = dtype.itemsize * math.prod(a.size for a in (wide, *terms))
        is_crowded = readers >= 2 * SHARED_READERS and any(  # fewer rows could not be shared
            share_sets(a.size, a.steps[side] * dtype.itemsize) for a in terms)
        is_copied = not found or bytes_ > LARGE_BYTES or is_crowded
        if wide.size >= lanes // 2 and readers >= LEAST_READERS and is_copied and _has_panels(terms):
            lane, vector, by_panels = wide, side, True
    dense = next((t for t in terms if t.steps[LEFT] == 1 == t.steps[RIGHT]), None)
    along = dense is not None and 2 * lane.size < min(lanes, dense.size)
    if along:
        assert dense is not None
        lane, terms = dense, [t for t in terms if t is not dense]
    other = [a for side in (LEFT, RIGHT) for a in free[side] if a is not lane and (along or side != vector)]
    rows = max(other, key=lambda a: (min(a.size, ENOUGH_ROWS), -max(a.steps[:RESULT])), default=_ONE)
    outer = [a for a in (*batch, *free[LEFT], *free[RIGHT]) if a is not lane and a is not rows]
    return SmallGemmPlan(dtype, tuple(outer), rows, lane, tuple(terms), along, vector, by_panels and not along)


def share_sets(count: int, distance: int) -> bool:
    """Whether so many lines so many bytes apart share few sets of the first cache, which does not hold as many of them."""
    return count * math.gcd(distance, SET_STRIDE) > SET_LINES * SET_STRIDE


def _has_panels(terms: Sequence[GemmAxis]) -> bool:
    """Whether panels have few enough terms: one axis is cut."""
    return len(terms) == 1 or math.prod(a.size for a in terms) <= PANEL_TERMS


@lru_cache(maxsize=256)
def tile(rows: int, vectors: int, registers: int) -> tuple[int, int]:
    """How many rows of how many vectors stay in registers, with a row of one operand and an element of the other, so that all take
    the least time."""
    def cycles(height: int, width: int) -> float:
        return max(height * width / 2, (height + width) / 2, LATENCY) + (height + width) / 64

    def total(height: int, width: int) -> float:
        return sum(cycles(h, w) * n * m for h, n in _parts(rows, height) for w, m in _parts(vectors, width))

    fitting = [(h, w) for w in range(1, registers) for h in range(1, registers) if h * w + w + 1 <= registers]
    return min(fitting, key=lambda found: total(*found))


def _parts(total: int, each: int) -> list[tuple[int, int]]:
    """The sizes of parts and how many there are of each."""
    whole, rest = divmod(total, each)
    return [(each, whole)] * (whole > 0) + [(rest, 1)] * (rest > 0)


# --- shares


@dataclass(frozen=True)
class ShareAxis:
    """The axis of the result that shares have parts of: so many parts, of `each` elements."""

    axis: GemmAxis
    each: int
    count: int


def shared(plan: SmallGemmPlan, lanes: int) -> ShareAxis | None:
    """The shares of a product; None where the whole is too little for several."""
    units = [(a, 1) for a in plan.outer] + [(plan.rows, _least_rows(plan))] + (
        [] if plan.along else [(plan.lane, PAGE // plan.dtype.itemsize if plan.is_far else LEAST_LANES * lanes)])
    found = _cut(plan, lanes, *max(units, key=lambda found: found[0].size // found[1]))
    return found if found.count > 1 else None


def shared_rows(plan: SmallGemmPlan, lanes: int) -> ShareAxis | None:
    """Shares of neighbouring rows of the result, one perhaps; None where it has no such axis."""
    units = [(a, 1) for a in plan.outer] + [(plan.rows, _least_rows(plan))]
    axis, unit = max(units, key=lambda found: found[0].size * found[0].steps[RESULT])
    size = math.prod(a.size for a in (*plan.outer, plan.rows, plan.lane) if a.steps[RESULT])
    return _cut(plan, lanes, axis, unit) if axis.size * axis.steps[RESULT] == size else None


def _least_rows(plan: SmallGemmPlan) -> int:
    """The rows of a share, at least: each copies the panels that it reads."""
    return SHARED_READERS if plan.by_panels else LEAST_READERS


def _cut(plan: SmallGemmPlan, lanes: int, axis: GemmAxis, unit: int) -> ShareAxis:
    wanted = min(MOST_SHARES, int(SHARES_OF_CHUNK * plan.nanoseconds(lanes) / chunk_ns(constants())))
    each = min(axis.size, -(-axis.size // (wanted * unit)) * unit) if wanted > 1 else axis.size
    return ShareAxis(axis, each, -(-axis.size // each))


def part_of(plan: SmallGemmPlan, axis: GemmAxis, size: int) -> SmallGemmPlan:
    """The plan for the first elements of an axis."""
    part = replace(axis, size=size)
    outer = tuple(part if a is axis else a for a in plan.outer)
    rows, lane = (part if a is axis else a for a in (plan.rows, plan.lane))
    return replace(plan, outer=outer, rows=rows, lane=lane)
