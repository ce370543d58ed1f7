"""The loops of a matrix product, or of a batch of them, of any layout and size; `emit.py` writes their code.

Registers lie across the result where an operand lies along it. Where none does, or that operand is large, panels of it are copied
for all rows that read it; else they lie along the terms, or each takes one element. The other operand is read where it lies, an
element for all lanes, or from panels, where its lines would meet in the cache. Every element of the result is summed by itself, so
what is not finite stays where it belongs. Operands of other types than the sums' are converted while they are packed. Integers of
at most 16 bits are packed in pairs of terms: a term of the loops is two then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.loops.cache import share_sets
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import LANE_BYTES, memory_ns
from deepx_graph.runtime.native.gemm.microkernel import PAIRED, Tile, registers
from deepx_graph.runtime.native.llvm.builder import F4, F8, DType
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loop_program.primitives import has_vectors
from deepx_graph.types import DType as ElementType
from deepx_graph.types import TensorType, dtype_of

PAGE, FAR_BYTES, FEW_TERMS = 4096, 1 << 20, 8
"""Of terms that lie at least that far apart, in operands larger than this, so many are added to whole rows of the result at a time:
pages are then read from end to end."""

SUMMED_TERMS, MOST_ALONG = 1024, 1 << 18
"""Of others so many, which keeps rounding small; sums along the lanes have at most so many terms."""

LATENCY = 5
"""Cycles from the begin of a multiplication and addition to its sum; two begin in each, and two loads."""

KEPT_BYTES, STREAMED_BYTES = 1 << 17, 1 << 21
"""Of small matrices: the face of the two shortest sides, and the operand of which panels are copied, are not larger."""

KIND_COST = 1 / 200
"""What code of a further kind of tiles must gain: it takes time to compile."""

MOST_STREAMS = 16
"""Rows that are read along memory at a time, which processors fetch ahead."""

ENOUGH_ROWS = 64
"""Of axes with so many elements or more that may be the rows, it is the one whose elements are nearest to one another."""

CACHED_BYTES = 1 << 16
"""About so much of the operand along the lanes is read by all rows before the next terms of it are."""

LEAST_READERS, SHARED_READERS, LARGE_BYTES, PANEL_TERMS = 8, 64, 1 << 18, 512
"""A panel is copied for at least so many rows (the second number where threads share the rows), of an operand that does not lie
along the result, or is larger than this; it has at most so many terms, which a cache holds."""

LEAST_PASS = 64
"""Terms of each of several passes, at least: all of the result is read and written in each."""

LEAST_CONVERTED, LEAST_PAIRS = 1 << 17, 1 << 13
"""Multiplications of floats, or of pairs, of a product whose operands are converted while they are packed, at least."""

WORD, BYTE = 4, 8
"""Bytes of a pair, and of its sums; bits of a byte."""

LEAST_READ, LEAST_LANES_READ = 32, 256
"""Bytes of a line of the cache that a tile should take of the other operand, where rows lie along memory: half of it. Of fewer, and
of rows whose lines meet in the cache, panels are copied, too, for at least so many lanes."""


@dataclass(frozen=True)
class GemmAxis:
    """An axis of the product: its size, and how far its next element is in the left operand, the right one and the result."""

    size: int
    steps: tuple[int, int, int]


Sources = tuple[ElementType | None, ElementType | None]
"""The types of operands that are converted while they are packed."""

LEFT, RIGHT, RESULT = range(3)
ONE = GemmAxis(1, (0, 0, 0))


@dataclass(frozen=True)
class GemmPlan:
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
    spread_panels: bool = False
    """Whether they are of the other operand."""
    sources: Sources = (None, None)
    alone: bool = False
    """Whether the last term of a row is one of an odd number of integers, and not a pair."""
    apart: tuple[int, int] = (0, 0)
    """How far from one another the two terms of a pair are."""
    scale: float = 1.0
    """What the product is multiplied by, before it is added to another operand: alpha of BLAS."""
    passes: tuple[GemmAxis, ...] = ()
    """The axes of terms around those that panels have: each of their elements is a pass, which adds to the result."""

    @property
    def spread(self) -> int:
        """The operand of which an element is read for all lanes, where they are no terms."""
        return LEFT + RIGHT - self.vector

    @cached_property
    def lanes(self) -> int:
        """Lanes of a vector: those of a register, or fewer where there are few elements."""
        return min(this_machine().register_bytes // self.dtype.itemsize, max(2, 1 << (self.lane.size - 1).bit_length()))

    @cached_property
    def tile(self) -> Tile:
        """What is summed in registers at a time."""
        machine = this_machine()
        most = registers(machine.register_bytes, machine.triple)
        if self.along:
            return _tile(self.rows.size, 1, min(most, MOST_STREAMS + 2))
        most -= self.pairs  # their products are in a register before they are added
        return _tile(self.rows.size, -(-self.lane.size // self.lanes), most)

    @property
    def pairs(self) -> bool:
        """Whether terms are pairs of integers."""
        return self.dtype.kind != "f"

    @property
    def converts_rows(self) -> bool:
        """Whether the operand of which an element is read for all lanes is packed, some rows at a time, as it is converted."""
        return self.sources[self.spread] is not None

    @property
    def result_axes(self) -> tuple[GemmAxis, ...]:
        """The axes of the result, each once."""
        return (*self.outer, self.rows, *(() if self.along else (self.lane,)))

    @property
    def work(self) -> int:
        return math.prod(a.size for a in (*self.outer, self.rows, self.lane, *self.passes, *self.terms))

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
    def is_scalar(self) -> bool:
        """Whether registers hold one element, as neither results nor terms lie side by side."""
        return not self.along and self.lane.size == 1

    @property
    def is_picked(self) -> bool:
        """Whether panels are copied element by element, as neither what is in a row of one nor its terms are neighbours."""
        return self.by_panels and 1 not in (self.lane.steps[self.vector], *(a.steps[self.vector] for a in self.terms[-1:]))

    @property
    def is_far(self) -> bool:
        """Whether terms lie in memory pages of their own."""
        inside = len(self.terms) == 1 and not self.along and not self.by_panels
        apart = self.terms[0].steps[self.vector] * self.dtype.itemsize if inside else 0
        return apart >= PAGE and self.operand_bytes > FAR_BYTES

    @property
    def is_over_left(self) -> bool:
        """Whether the result may lie over the left operand: a tile reads whole rows of that, no other reads them, and it stores the
        same ones afterwards."""
        if self.along or self.passes or self.vector == LEFT or any(self.sources):
            return False
        if self.lane.size > self.tile.vectors * self.lanes:
            return False
        same = all(a.steps[LEFT] == a.steps[RESULT] for a in (*self.outer, self.rows))
        ends = [(a.size, a.steps[LEFT]) for a in self.terms] == [(self.lane.size, self.lane.steps[RESULT])]
        return same and ends and self.at_once == self.lane.size

    @property
    def at_once(self) -> int:
        """How many of the terms of the last axis are summed before they are added to the result: all, or a part."""
        row = self.lane.size * self.dtype.itemsize
        most = min(SUMMED_TERMS, max(PANEL_TERMS // 4, CACHED_BYTES // row // 8 * 8))
        many = PANEL_TERMS if self.by_panels else FEW_TERMS if self.is_far else most
        one = len(self.terms) == 1 and not self.along and self.terms[0].size > many
        return many if one else self.terms[-1].size if self.terms else 1

    @property
    def depth(self) -> int:
        """Terms that are summed before they are added to the result."""
        return math.prod(a.size for a in self.terms[:-1]) * self.at_once

    @property
    def operand_bytes(self) -> int:
        """The bytes of the larger operand."""
        axes = (*self.outer, self.rows, self.lane, *self.passes, *self.terms)
        return self.dtype.itemsize * max(math.prod(a.size for a in axes if a.steps[side]) for side in (LEFT, RIGHT))

    @cached_property
    def nanoseconds(self) -> float:
        """About how long one thread takes: at the rate of a library's products, as far as its registers are full."""
        c, lanes = constants(), this_machine().register_bytes // self.dtype.itemsize
        results = math.prod(a.size for a in self.result_axes)
        busy = self.lane.size / -(-self.lane.size // lanes)
        full = lanes * self.dtype.itemsize / LANE_BYTES / busy
        arithmetic = (self.work * 2 * full + results * (200.0 if self.along else 50.0 / busy)) / c.product_gflops
        return max(arithmetic, memory_ns(c, self.operand_bytes, 1))


# --- which loops


def plan_of(node: Node, order: Sequence[int] = ()) -> GemmPlan | None:
    """The loops of a `dot_general` of floats, whose result is transposed in that order; None for other types, and for long sums
    along the lanes."""
    types = [t for t in (*(i.type for i in node.inputs), node.type) if isinstance(t, TensorType) and t.is_static]
    if len(types) != 3 or len({t.dtype.np for t in types}) != 1 or types[2].dtype.np not in (F4, F8):
        return None
    plan = planned(types[2].dtype.np, types[0].shape, types[1].shape, *node.attrs, order=order)
    return None if plan.work == 0 or (plan.along and plan.lane.size > MOST_ALONG) else plan


def converting_plan(dtype: DType, types: Sequence[TensorType], attrs: Sequence[Any], order: Sequence[int] = ()) -> GemmPlan | None:
    """The loops of a product in a type, of operands of other ones that are converted while they are packed; None where that does
    not pay, as floats that nobody packs are best converted before, or no sums of that type are known."""
    left, right = (None if t.dtype.np == dtype else t.dtype for t in types)
    sources = left, right
    if dtype.kind == "f":
        fits = dtype in (F4, F8) and any(sources) and all(s is None or _is_read(s, dtype) for s in sources)
    else:
        fits = dtype.itemsize == WORD and this_machine().triple.startswith("x86_64") and all(
            t.dtype.is_integer and t.dtype.bits - (t.dtype.kind == "int") < 2 * BYTE for t in types)
    if not fits:
        return None
    plan = planned(dtype, types[0].shape, types[1].shape, *attrs, sources=sources, order=order)
    pays = plan.work >= LEAST_PAIRS and plan.lanes in PAIRED if plan.pairs else plan.work >= LEAST_CONVERTED
    return plan if plan.by_panels and pays else None


def _is_read(source: ElementType, dtype: DType) -> bool:
    """Whether vectors of a type are converted to such floats."""
    return source.itemsize < dtype.itemsize and has_vectors("cast", [source], dtype_of(dtype), this_machine())


def planned(dtype: DType, left: Sequence[int], right: Sequence[int], left_batch: Sequence[int], right_batch: Sequence[int],
            left_terms: Sequence[int], right_terms: Sequence[int], *,
            sources: Sources = (None, None), order: Sequence[int] = ()) -> GemmPlan:
    """The loops of a product of operands of those shapes, which are converted from those types; of its transpose, where there is an
    order of its axes."""
    x, y = steps_of(left), steps_of(right)
    rows = [k for k in range(len(left)) if k not in (*left_batch, *left_terms)]
    columns = [k for k in range(len(right)) if k not in (*right_batch, *right_terms)]
    result = [*(left[k] for k in (*left_batch, *rows)), *(right[k] for k in columns)]
    order = order or range(len(result))
    z = dict(zip(order, steps_of([result[k] for k in order]), strict=True))
    batch = joined([GemmAxis(left[i], (x[i], y[j], z[k])) for k, (i, j) in enumerate(zip(left_batch, right_batch, strict=True))])
    down = joined([GemmAxis(left[i], (x[i], 0, z[k])) for k, i in enumerate(rows, len(left_batch))])
    across = joined([GemmAxis(right[j], (0, y[j], z[k])) for k, j in enumerate(columns, len(left_batch) + len(rows))])
    terms = joined([GemmAxis(left[i], (x[i], y[j], 0)) for i, j in zip(left_terms, right_terms, strict=True)])
    if dtype.kind == "f" or not terms:
        return _arranged(dtype, batch, [down, across], terms, sources)
    *outer, last = terms
    pairs = GemmAxis(-(-last.size // 2), (2 * last.steps[LEFT], 2 * last.steps[RIGHT], 0))
    plan = _arranged(dtype, batch, [down, across], [*outer, pairs], sources)
    return replace(plan, alone=bool(last.size % 2), apart=(last.steps[LEFT], last.steps[RIGHT]))


def steps_of(shape: Sequence[int]) -> list[int]:
    """How far the next element along each axis is, of an array in C order."""
    return [math.prod(shape[k + 1 :]) for k in range(len(shape))]


def joined(axes: Sequence[GemmAxis]) -> list[GemmAxis]:
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
              terms: Sequence[GemmAxis], sources: Sources) -> GemmPlan:
    lanes = this_machine().register_bytes // dtype.itemsize
    along_result = [(a, side) for side in (LEFT, RIGHT) for a in free[side] if a.steps[RESULT] == 1]
    found = [(a, side) for a, side in along_result if a.steps[side] == 1]
    lane, vector = found[0] if found else (ONE, RIGHT)
    by_panels, packed = False, _of_panels(terms)
    for wide, side in found or along_result:
        readers = max((a.size for a in free[LEFT + RIGHT - side]), default=1)
        bytes_ = dtype.itemsize * math.prod(a.size for a in (wide, *terms))
        is_crowded = readers >= 2 * SHARED_READERS and any(  # fewer rows could not be shared
            share_sets(a.size, a.steps[side] * dtype.itemsize) for a in terms)
        is_copied = not found or bytes_ > LARGE_BYTES or is_crowded or dtype.kind != "f"
        if wide.size >= lanes // 2 and readers >= LEAST_READERS and is_copied and packed:
            lane, vector, by_panels = wide, side, True
    dense = next((t for t in terms if t.steps[LEFT] == 1 == t.steps[RIGHT]), None)
    along = dense is not None and 2 * lane.size < min(lanes, dense.size)
    if along:
        assert dense is not None
        lane, terms = dense, [t for t in terms if t is not dense]
    other = [a for side in (LEFT, RIGHT) for a in free[side] if a is not lane and (along or side != vector)]
    rows = max(other, key=lambda a: (min(a.size, ENOUGH_ROWS), -max(a.steps[:RESULT])), default=ONE)
    outer = [a for a in (*batch, *free[LEFT], *free[RIGHT]) if a is not lane and a is not rows]
    by_panels = by_panels and not along
    passes, inner = (terms[: -len(packed)], packed) if by_panels else ([], terms)
    plan = GemmPlan(dtype, tuple(outer), rows, lane, tuple(inner), along, vector, by_panels, sources=sources, passes=tuple(passes))
    if not along and not plan.by_panels:  # of the operand whose elements are read one by one, the rest of a line is read next
        plan = replace(plan, terms=tuple(sorted(terms, key=lambda a: -a.steps[plan.spread])))
    return replace(plan, spread_panels=not plan.converts_rows and _meets(plan))


def _meets(plan: GemmPlan) -> bool:
    """Whether the lines of a tile's rows meet in the cache, or a tile takes little of each, for many lanes."""
    if not plan.by_panels or len(plan.terms) != 1 or plan.lane.size < LEAST_LANES_READ or plan.rows.size < SHARED_READERS:
        return False
    height, size = plan.tile.rows, plan.dtype.itemsize
    row, deep = plan.rows.steps[plan.spread], plan.terms[0].steps[plan.spread]
    if deep == 1:
        return share_sets(height, row * size)
    return row != 1 or height * size < LEAST_READ or share_sets(plan.at_once, deep * size)


def _of_panels(terms: Sequence[GemmAxis]) -> Sequence[GemmAxis]:
    """The last axes of terms, of which panels are copied: as many as are few enough elements together, or one, which is cut. None
    where there would be more passes than pay."""
    for k in range(len(terms)):
        size = math.prod(a.size for a in terms[k:])
        if len(terms) == k + 1 or 1 < size <= PANEL_TERMS:
            return terms[k:] if k == 0 or size >= LEAST_PASS else ()
    return ()


@lru_cache(maxsize=256)
def _tile(rows: int, vectors: int, registers: int) -> Tile:
    """How many rows of how many vectors stay in registers, with a row of one operand and an element of the other, so that all take
    the least time."""
    def cycles(height: int, width: int) -> float:
        return max(height * width / 2, (height + width) / 2, LATENCY) + (height + width) / 64

    def total(height: int, width: int) -> float:
        return sum(cycles(h, w) * n * m for h, n in _parts(rows, height) for w, m in _parts(vectors, width))

    def kinds(height: int, width: int) -> int:
        return len(_parts(rows, height)) * len(_parts(vectors, width))

    fitting = [(h, w) for w in range(1, registers) for h in range(1, registers) if h * w + w + 1 <= registers]
    return Tile(*min(fitting, key=lambda found: total(*found) * (1 + KIND_COST * kinds(*found))))


def _parts(total: int, each: int) -> list[tuple[int, int]]:
    """The sizes of parts and how many there are of each."""
    whole, rest = divmod(total, each)
    return [(each, whole)] * (whole > 0) + [(rest, 1)] * (rest > 0)
