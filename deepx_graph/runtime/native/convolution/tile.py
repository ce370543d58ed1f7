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
    ConvolutionPlan,
    Lanes,
    ceil_div,
    phase_columns,
    scratch_steps,
)
from deepx_graph.runtime.native.gemm import microkernel
from deepx_graph.runtime.native.gemm.microkernel import PointerLoop, Tile, TileOperand
from deepx_graph.runtime.native.llvm.builder import IRBuilder, least, scalar_type

X, W, Y, AT, NEXT = range(5)
"""Scratch memory, weights, output, the table of windows, and weights to fetch for the next panel."""

CACHE_BYTES = 340 << 10
"""Weights of no more than so many bytes stay in a second-level cache."""

MOST_TERMS = 4096
"""Sums of more terms are taken in parts, so that little is lost by rounding."""

TilePointers = tuple[str, ...]


@dataclass(frozen=True)
class Walk:
    """An axis of the results gone through in tiles of `tile` elements, the last one overlapping the one before.

    `steps`: elements in scratch memory, packed weights, output and table from one to the next. From one tile to the next: `fetched`
    of weights; `packed` in scratch memory, where it is kept by tiles.
    """

    count: str
    tile: int
    steps: tuple[int, int, int, int]
    fetched: int
    packed: int = 0


@dataclass(frozen=True)
class SumLoops:
    """The loops over what is summed up, outermost first. `steps` are written out within them; `start` is where in the scratch
    memory they begin."""

    loops: tuple[PointerLoop, ...]
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

    def function(self, name: str, features: int) -> str:
        """The function `(scratch, weights, output, table, next)` of one tile of so many features, which are stored."""
        t, width, plan = IRBuilder(self.plan.width), self.plan.width, self.plan
        t.declarations = self.declarations
        in_windows, in_outputs = self.method.lanes is Lanes.WINDOWS, self.method.lanes is Lanes.OUTPUTS
        rows = self._features_and_windows(features) if in_windows else self._listed_windows(t)
        lanes, tile = min(plan.span, plan.in_lanes) if in_windows else features, Tile(len(rows), self.method.tile.vectors)
        x = TileOperand(tuple(r.x for r in rows), 0 if in_outputs else width, in_outputs)
        w = TileOperand(tuple(r.w for r in rows), 0 if in_windows else width, in_windows)
        pointers = t.address("%x", str(self.loops.start), self.dtype), "%w", *(["%next"] if self.ahead else [])
        self._store(t, self._summed(t, tile, (x, w), pointers), rows, lanes)
        params = ", ".join(f"ptr noalias %{name}" for name in ("x", "w", "y", "at", "next"))
        return t.function(f"internal void @{name}({params}) nounwind \"stackrealign\"")

    def _summed(self, t: IRBuilder, tile: Tile, operands: tuple[TileOperand, TileOperand],
                pointers: TilePointers) -> microkernel.Tiles:
        """The sums: at once, or where they are long in about as many parts as each has terms, which are added up in memory."""
        loops, inner, terms = list(self._inner()), list[PointerLoop](), len(self.loops.steps)

        def summed(pointers: TilePointers, loops: Sequence[PointerLoop]) -> microkernel.Tiles:
            return microkernel.accumulate(t, self.dtype, tile, operands, pointers, loops, self.loops.steps)

        if self.problem.depth <= max(1, MOST_TERMS):
            return summed(pointers, loops)
        while (most := math.isqrt(self.problem.depth) // terms) >= int(loops[-1].count):
            inner.insert(0, loops.pop())
            terms *= int(inner[0].count)
        kept = self._kept(t, [[t.splat(0, self.dtype)] * tile.vectors] * tile.rows)
        sums = [[t.address(kept, str(r * self.plan.span + v * t.lanes), self.dtype) for v in range(tile.vectors)]
                for r in range(tile.rows)]

        def through(depth: int, pointers: TilePointers) -> None:
            loop, is_last = loops[depth], depth == len(loops) - 1

            def one(k: str) -> None:
                at = tuple(t.moved(p, self.dtype, (k, int(s))) for p, s in zip(pointers, loop.steps, strict=True))
                if not is_last:
                    through(depth + 1, at)
                    return
                count = least(t, t.let(f"sub i64 {loop.count}, {k}"), str(max(1, most)))
                part = summed(at, [replace(loop, count=count), *inner])
                for value, address in zip(itertools.chain(*part), itertools.chain(*sums), strict=True):
                    t.store(t.binary("fadd", t.load(address, self.dtype, None), value), address, None)

            t.rows("0", loop.count, one, max(1, most) if is_last else 1)

        through(0, pointers)
        return [[t.load(address, self.dtype, None) for address in row] for row in sums]

    @property
    def fetched(self) -> int:
        """Elements of weights for the next panel that each tile fetches, so that all of them do."""
        return self.ahead[0] if self.ahead else 0

    @cached_property
    def ahead(self) -> list[int]:
        """How far a tile and, outermost first, each loop of its sum move on in weights that are fetched. Empty where weights
        stay in a cache or are read once."""
        tiles = math.prod(self.plan.tiles)
        if tiles == 1 or packed_size(self.plan) * self.dtype.itemsize <= CACHE_BYTES:
            return []
        found = [ceil_div(len(self.loops.steps) * self.plan.panel, tiles)]
        for loop in reversed(self.loops.loops):
            found.insert(0, found[0] * int(loop.count))
        return found

    def _inner(self) -> Sequence[PointerLoop]:
        """The loops of a tile's sums, each with the steps of all pointers."""
        if not self.ahead:
            return self.loops.loops
        return [replace(loop, steps=(*loop.steps, str(step))) for loop, step in zip(self.loops.loops, self.ahead[1:], strict=True)]

    def _features_and_windows(self, features: int) -> list[TileRow]:
        """The rows of a tile with windows in the lanes: those of each feature, one below another."""
        x, y = next(((a.stride * self.scratch[k], a.y) for k, a in list(enumerate(self.problem.axes))[-2:-1]), (0, 0))
        return [TileRow(r * x, f, f * self.problem.y[2] + r * y) for f in range(features) for r in range(self.method.windows)]

    def _listed_windows(self, t: IRBuilder) -> list[TileRow]:
        """The rows of a tile of neighbouring windows, of which a table tells where they are."""
        room, is_packed = math.prod(self.plan.longest), self.plan.has_packed_tiles
        return [TileRow(k if is_packed else t.word("%at", k), 0, t.word("%at", room + k)) for k in range(self.method.windows)]

    def walks(self, counts: Sequence[str]) -> list[Walk]:
        """The axes along which the tiles of one panel follow each other, outermost first; `counts` are the windows of the block
        along each axis, or of all of it."""
        plan, fetched = self.plan, self.fetched
        packed = self.scratch[0] if plan.has_packed_tiles else 0
        if self.method.lanes is not Lanes.WINDOWS:
            return [Walk(counts[0], self.method.windows, (0, 0, 0, 1), fetched, packed)]
        *outer, last = self.problem.axes
        after = [math.prod(plan.tiles[k + 1 :]) for k in range(len(outer))]
        walks = [Walk(counts[k], self.method.windows if k == len(outer) - 1 else 1, (a.stride * self.scratch[k], 0, a.y, 0),
                      fetched * after[k]) for k, a in enumerate(outer)]
        return [*walks, Walk(counts[-1], plan.span, (1, 0, last.y, 0), fetched, packed)]

    @cached_property
    def loops(self) -> SumLoops:
        """The loops over what is summed up."""
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
        return SumLoops(tuple(loops), steps, start)

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
        if self.plan.lane_step == 1:
            self._store_rows(t, sums, rows, lanes)
            return
        self._store_scattered(t, self._kept(t, sums), rows, lanes)

    def _store_rows(self, t: IRBuilder, sums: microkernel.Tiles, rows: Sequence[TileRow], lanes: int) -> None:
        for row, vectors in zip(rows, sums, strict=True):
            into = t.address("%y", str(row.y), self.dtype)
            for v, value in enumerate(vectors):
                left = lanes - v * t.lanes
                if left > 0:
                    t.store_first(value, t.address(into, str(v * t.lanes), self.dtype), min(left, t.lanes))

    def _kept(self, t: IRBuilder, sums: microkernel.Tiles) -> str:
        """Memory of the sums, row after row."""
        tile = self.method.tile
        kept = t.let(f"alloca [{tile.rows * tile.vectors} x {t.vector(self.dtype)}], align 64")
        for r, vectors in enumerate(sums):
            for v, value in enumerate(vectors):
                t.store(value, t.address(kept, str(r * self.plan.span + v * t.lanes), self.dtype), None)
        return kept

    def _store_scattered(self, t: IRBuilder, kept: str, rows: Sequence[TileRow], lanes: int) -> None:
        """Element by element."""
        kind, size = scalar_type(self.dtype), self.dtype.itemsize
        step = self.plan.lane_step

        def lane(k: str) -> None:
            into = t.moved("%y", self.dtype, (k, step))
            for r, row in enumerate(rows):
                source = t.address(t.address(kept, k, self.dtype), str(r * self.plan.span), self.dtype)
                one = t.let(f"load {kind}, ptr {source}, align {size}")
                t.line(f"store {kind} {one}, ptr {t.address(into, str(row.y), self.dtype)}, align {size}")

        t.rows("0", str(lanes), lane)
