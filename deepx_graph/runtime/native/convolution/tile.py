"""The machine code of a tile of a convolution: the loops of its sums, and storing them where they belong.

A tile reads scratch memory and weights without a test; of the output it writes the results of its own rows and lanes alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from deepx_graph.runtime.native.convolution.pack import packed_size, weights_of
from deepx_graph.runtime.native.convolution.plan import (
    CACHE_BYTES,
    ConvolutionPlan,
    Lanes,
    ceil_div,
    lane_step,
    phase_columns,
    scratch_steps,
)
from deepx_graph.runtime.native.gemm import microkernel
from deepx_graph.runtime.native.gemm.microkernel import PointerLoop, Tile, TileOperand
from deepx_graph.runtime.native.llvm.builder import IRBuilder, scalar_type

X, W, Y, AT, SUMS, NEXT = range(6)
"""Scratch memory, weights, output, the table of windows, the sums of parts, and weights to fetch for the next part or panel."""

TilePointers = tuple[str, ...]


@dataclass(frozen=True)
class Walk:
    """An axis of the results gone through in tiles of `tile` elements, the last one overlapping the one before.

    `steps`: elements in scratch memory, packed weights, output and table from one to the next. From one tile to the next: `sums`
    those in the sums of parts, `fetched` of weights; `packed` in scratch memory, where it is kept by tiles.
    """

    count: str
    tile: int
    steps: tuple[int, int, int, int]
    sums: int
    fetched: int
    packed: int = 0


@dataclass(frozen=True)
class SumLoops:
    """The loops over what is summed up, outermost first: `outer` and the parts of the `split` one go from part to part, the others
    through a part. `steps` are written out within them; `start` is where in the scratch memory they begin."""

    outer: tuple[PointerLoop, ...]
    split: PointerLoop | None
    parts: int
    inner: tuple[PointerLoop, ...]
    steps: list[tuple[int, int]]
    start: int


@dataclass(frozen=True)
class TileRow:
    """The offsets of a row of a tile in scratch memory, weights and output: numbers, or values of the code."""

    x: int | str
    w: int
    y: int | str


class TileCode:
    """Writes the tiles of one plan."""

    def __init__(self, plan: ConvolutionPlan) -> None:
        self.plan, self.problem, self.method = plan, plan.problem, plan.method
        self.dtype = plan.problem.dtype
        self.scratch, self.weights = scratch_steps(plan), weights_of(plan)
        self.declarations: dict[str, None] = {}

    def functions(self, name: str, features: int) -> list[str]:
        """The function `name` of one tile of so many features, which are stored; and where sums are taken in parts, of which that
        one stores what they come to, `name.part` of one part."""
        if not self.plan.part:
            return [self._function(name, features, sums=True, stores=True)]
        return [self._function(name, features, sums=False, stores=True),
                self._function(f"{name}.part", features, sums=True, stores=False)]

    def _function(self, name: str, features: int, *, sums: bool, stores: bool) -> str:
        """`(scratch, weights, output, table, sums, count)`: pointers at the first elements, `count` for the loop that is split."""
        t, width, plan = IRBuilder(self.plan.width), self.plan.width, self.plan
        t.declarations = self.declarations
        in_windows, in_outputs = self.method.lanes is Lanes.WINDOWS, self.method.lanes is Lanes.OUTPUTS
        rows = self._features_and_windows(features) if in_windows else self._listed_windows(t)
        lanes, tile = min(plan.span, plan.in_lanes) if in_windows else features, Tile(len(rows), self.method.tile.vectors)
        kept = [[t.address("%sums", str(r * plan.span + v * width), self.dtype) for v in range(tile.vectors)]
                for r in range(tile.rows)]
        if sums:
            x = TileOperand(tuple(r.x for r in rows), 0 if in_outputs else width, in_outputs)
            w = TileOperand(tuple(r.w for r in rows), 0 if in_windows else width, in_windows)
            pointers = t.address("%x", str(self.loops.start), self.dtype), "%w", *(["%next"] if self.ahead else [])
            found = microkernel.accumulate(t, self.dtype, tile, (x, w), pointers, self._inner(), self.loops.steps)
        else:
            found = [[t.load(at, self.dtype, None) for at in row] for row in kept]
        if stores:
            self._store(t, found, rows, lanes)
        else:
            for value, at in zip(itertools.chain(*found), itertools.chain(*kept), strict=True):
                t.store(t.binary("fadd", t.load(at, self.dtype, None), value), at, None)
        params = ", ".join(f"ptr noalias %{name}" for name in ("x", "w", "y", "at", "sums", "next"))
        return t.function(f"internal void @{name}({params}, i64 %count) nounwind \"stackrealign\"")

    @property
    def fetched(self) -> int:
        """Elements of weights for the next part or panel that each tile fetches, so that all of them do."""
        return self.ahead[0] if self.ahead else 0

    @cached_property
    def ahead(self) -> list[int]:
        """How far a tile and, outermost first, each loop of its sum move on in weights that are fetched. Empty where weights
        stay in a cache or are read once."""
        loops, tiles = self.loops, math.prod(self.plan.tiles)
        if tiles == 1 or packed_size(self.plan) * self.dtype.itemsize <= CACHE_BYTES:
            return []
        counts = [int(loop.count) for loop in loops.inner[loops.split is not None :]]
        if loops.split is not None:
            counts.insert(0, ceil_div(int(loops.split.count), loops.parts))
        found = [ceil_div(len(loops.steps) * self.plan.panel, tiles)]
        for count in reversed(counts):
            found.insert(0, found[0] * count)
        return found

    def _inner(self) -> Sequence[PointerLoop]:
        """The loops of a tile's sums, each with the steps of all pointers."""
        if not self.ahead:
            return self.loops.inner
        return [replace(loop, steps=(*loop.steps, str(step))) for loop, step in zip(self.loops.inner, self.ahead[1:], strict=True)]

    def _features_and_windows(self, features: int) -> list[TileRow]:
        """The rows of a tile with windows in the lanes: those of each feature, one below another."""
        x, y = next(((a.stride * self.scratch[k], a.y) for k, a in list(enumerate(self.problem.axes))[-2:-1]), (0, 0))
        return [TileRow(r * x, f, f * self.problem.y[2] + r * y) for f in range(features) for r in range(self.method.windows)]

    def _listed_windows(self, t: IRBuilder) -> list[TileRow]:
        """The rows of a tile of neighbouring windows, of which a table tells where they are."""
        windows = range(self.method.windows)

        def listed(first: int, count: int) -> list[str]:
            return [t.word("%at", first + k) for k in range(count)]

        x = list(windows) if self.plan.has_packed_tiles else listed(0, len(windows))
        y = listed(math.prod(self.plan.longest), 1 if self.plan.stores_transposed else len(windows))
        return [TileRow(x[k], 0, y[k] if k < len(y) else y[0]) for k in windows]

    def walks(self, counts: Sequence[str]) -> list[Walk]:
        """The axes along which the tiles of one panel follow each other, outermost first; `counts` are the windows of the block
        along each axis, or of all of it."""
        plan, size, fetched = self.plan, self.method.tile.rows * self.plan.span, self.fetched
        packed = self.scratch[0] if plan.has_packed_tiles else 0
        if self.method.lanes is not Lanes.WINDOWS:
            return [Walk(counts[0], self.method.windows, (0, 0, 0, 1), size, fetched, packed)]
        *outer, last = self.problem.axes
        after = [math.prod(plan.tiles[k + 1 :]) for k in range(len(outer))]
        walks = [Walk(counts[k], self.method.windows if k == len(outer) - 1 else 1, (a.stride * self.scratch[k], 0, a.y, 0),
                      size * after[k], fetched * after[k]) for k, a in enumerate(outer)]
        return [*walks, Walk(counts[-1], plan.span, (1, 0, last.y, 0), size, fetched, packed)]

    @cached_property
    def loops(self) -> SumLoops:
        """The loops of a sum, from the innermost one as many in a part as its terms allow."""
        loops, steps, start = self._all_loops()
        terms, inner = len(steps), list[PointerLoop]()
        while self.plan.part and loops:
            *loops, loop = loops
            most = max(1, self.plan.part // terms)
            if int(loop.count) > most or not loops:
                parts = -(-int(loop.count) // most)
                return SumLoops(tuple(loops), loop, parts, (PointerLoop("%count", loop.steps), *inner), steps, start)
            inner.insert(0, loop)
            terms *= int(loop.count)
        return SumLoops((), None, 1, tuple(loops), steps, start)

    def _all_loops(self) -> tuple[list[PointerLoop], list[tuple[int, int]], int]:
        """The loops over what is summed up, what is written out within them, and where in the scratch memory they start."""
        p, w = self.problem, self.weights
        loops, steps, start = [], [(0, 0)], 0
        for k in w.order:
            if k < 0:
                loops.append(PointerLoop(str(p.inputs), (str(self.scratch[-1]), str(w.steps[-1]))))
                continue
            a = p.axes[k]
            if self._has_phases(k):
                steps = [(self._phase(t * a.dilation), (a.window - 1 - t if a.is_reversed else t) * w.steps[k])
                         for t in range(a.window)]
                continue
            step = a.dilation * self.scratch[k]
            start += (a.window - 1) * step if a.is_reversed else 0
            loops.append(PointerLoop(str(a.window), (str(-step if a.is_reversed else step), str(w.steps[k]))))
        return loops, steps, start

    def _has_phases(self, axis: int) -> bool:
        """Whether the axis is kept by remainders."""
        last = len(self.problem.axes) - 1
        return self.method.lanes is Lanes.WINDOWS and axis == last and self.problem.axes[axis].stride > 1

    def _phase(self, offset: int) -> int:
        """Where an element of the last axis is kept."""
        stride = self.problem.axes[-1].stride
        return offset % stride * phase_columns(self.plan) + offset // stride

    # --- storing a tile

    def _store(self, t: IRBuilder, sums: microkernel.Tiles, rows: Sequence[TileRow], lanes: int) -> None:
        if lane_step(self.problem, self.method.lanes) == 1:
            self._store_rows(t, sums, rows, lanes)
            return
        kept = "%sums" if self.plan.part else self._kept(t, sums)
        (self._store_transposed if self.plan.stores_transposed else self._store_scattered)(t, kept, rows, lanes)

    def _store_rows(self, t: IRBuilder, sums: microkernel.Tiles, rows: Sequence[TileRow], lanes: int) -> None:
        for row, vectors in zip(rows, sums, strict=True):
            into = t.address("%y", str(row.y), self.dtype)
            for v, value in enumerate(vectors):
                left = lanes - v * t.lanes
                if left > 0:
                    t.store_first(value, t.address(into, str(v * t.lanes), self.dtype), min(left, t.lanes))

    def _kept(self, t: IRBuilder, sums: microkernel.Tiles) -> str:
        """Memory of the sums, row after row, and room for a square from any row of it."""
        tile = self.method.tile
        kept = t.let(f"alloca [{(tile.rows + t.lanes) * tile.vectors} x {t.vector(self.dtype)}], align 64")
        for r, vectors in enumerate(sums):
            for v, value in enumerate(vectors):
                t.store(value, t.address(kept, str(r * self.plan.span + v * t.lanes), self.dtype), None)
        return kept

    def _store_transposed(self, t: IRBuilder, kept: str, rows: Sequence[TileRow], lanes: int) -> None:
        """Rows are neighbours in memory: squares of rows and lanes are transposed."""
        span, step = self.plan.span, lane_step(self.problem, self.method.lanes)
        first = t.address("%y", str(rows[0].y), self.dtype)
        for start in range(0, len(rows), t.lanes):
            for lane in range(0, lanes, t.lanes):
                source = t.address(kept, str(start * span + lane), self.dtype)
                target = t.address(first, str(start + lane * step), self.dtype)
                t.line(f"call void @transpose(ptr {source}, i64 {span}, i64 {t.lanes - 1}, ptr {target}, i64 {step},"
                       f" i64 {min(t.lanes, len(rows) - start)}, i64 {min(t.lanes, lanes - lane)})")

    def _store_scattered(self, t: IRBuilder, kept: str, rows: Sequence[TileRow], lanes: int) -> None:
        """Element by element."""
        kind, size = scalar_type(self.dtype), self.dtype.itemsize
        step = lane_step(self.problem, self.method.lanes)

        def lane(k: str) -> None:
            into = moved(t, "%y", size, ((k, step),))
            for r, row in enumerate(rows):
                source = t.address(t.address(kept, k, self.dtype), str(r * self.plan.span), self.dtype)
                one = t.let(f"load {kind}, ptr {source}, align {size}")
                t.line(f"store {kind} {one}, ptr {t.address(into, str(row.y), self.dtype)}, align {size}")

        t.rows("0", str(lanes), lane)


def moved(t: IRBuilder, pointer: str, itemsize: int, by: Sequence[tuple[str, int]]) -> str:
    """A pointer moved on by indices times element steps."""
    for index, step in by:
        if index != "0" and step:
            pointer = t.behind(pointer, t.let(f"mul i64 {index}, {step * itemsize}"))
    return pointer
