"""The machine code of a tile of a convolution: the loops of its sums, and storing them where they belong.

A tile reads scratch memory and weights without a test; of the output it writes the results of its own rows and lanes alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepx_graph.runtime.native.convolution.pack import weights_of
from deepx_graph.runtime.native.convolution.plan import ConvolutionPlan, Lanes, lane_step, phase_columns, scratch_steps
from deepx_graph.runtime.native.gemm import microkernel
from deepx_graph.runtime.native.gemm.microkernel import PointerLoop, Tile, TileOperand
from deepx_graph.runtime.native.llvm.builder import IRBuilder, scalar_type

X, W, Y, AT = range(4)
"""Scratch memory, weights, output and the table of windows, in steps and offsets."""

TilePointers = tuple[str, str, str, str]

LONG_SUM, PART = 8192, 1024
"""Sums of more terms in single precision are taken in parts of so many, which keeps their rounding as small as BLAS does."""


@dataclass(frozen=True)
class Walk:
    """An axis of the results gone through in tiles of `tile` elements, the last one overlapping the one before.

    `steps`: elements in scratch memory, packed weights, output and table from one to the next. `packed`: those in scratch memory
    from one tile to the next, where it is kept by tiles.
    """

    count: str
    tile: int
    steps: tuple[int, int, int, int]
    packed: int = 0


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

    def tile(self, name: str, features: int) -> str:
        """The function of one tile of so many features: `(scratch, weights, output, table)`, each at its first element."""
        t, width, plan = IRBuilder(self.plan.width), self.plan.width, self.plan
        t.declarations = self.declarations
        in_windows, in_outputs = self.method.lanes is Lanes.WINDOWS, self.method.lanes is Lanes.OUTPUTS
        rows = self._features_and_windows(features) if in_windows else self._listed_windows(t)
        lanes, tile = min(plan.span, plan.in_lanes) if in_windows else features, Tile(len(rows), self.method.tile.vectors)
        x = TileOperand(tuple(r.x for r in rows), 0 if in_outputs else width, in_outputs)
        w = TileOperand(tuple(r.w for r in rows), 0 if in_windows else width, in_windows)
        loops, steps, start = self._sums()
        first = t.address("%x", str(start), self.dtype)
        outer, inner = self._in_parts(loops, len(steps))

        def part(pointers: tuple[str, str]) -> microkernel.Tiles:
            return microkernel.accumulate(t, self.dtype, tile, (x, w), pointers, inner, steps)

        sums = self._in_memory(t, tile, outer, (first, "%w"), part) if outer else part((first, "%w"))
        if lane_step(self.problem, self.method.lanes) == 1:
            self._store(t, sums, rows, lanes)
        else:
            (self._store_transposed if plan.stores_transposed else self._store_scattered)(t, sums, rows, lanes)
        params = ", ".join(f"ptr noalias %{name}" for name in ("x", "w", "y", "at"))
        head = f"define internal void @{name}({params}) nounwind \"stackrealign\" {{"
        return "\n".join([head, "entry:", *t.lines, "  ret void", "}"])

    def _features_and_windows(self, features: int) -> list[TileRow]:
        """The rows of a tile with windows in the lanes: those of each feature, one below another."""
        x, y = next(((a.stride * self.scratch[k], a.y) for k, a in list(enumerate(self.problem.axes))[-2:-1]), (0, 0))
        return [TileRow(r * x, f, f * self.problem.y[2] + r * y) for f in range(features) for r in range(self.method.windows)]

    def _listed_windows(self, t: IRBuilder) -> list[TileRow]:
        """The rows of a tile of neighbouring windows, of which a table tells where they are."""
        windows = range(self.method.windows)

        def listed(first: int, count: int) -> list[str]:
            return [t.let(f"load i64, ptr {t.let(f'getelementptr i64, ptr %at, i64 {first + k}')}") for k in range(count)]

        x = list(windows) if self.plan.has_packed_tiles else listed(0, len(windows))
        y = listed(math.prod(self.plan.longest), 1 if self.plan.stores_transposed else len(windows))
        return [TileRow(x[k], 0, y[k] if k < len(y) else y[0]) for k in windows]

    def walks(self, counts: Sequence[str]) -> list[Walk]:
        """The axes along which the tiles of one panel follow each other, outermost first; `counts` are the windows of the block
        along each axis, or of all of it."""
        plan = self.plan
        packed = self.scratch[0] if plan.has_packed_tiles else 0
        if self.method.lanes is not Lanes.WINDOWS:
            return [Walk(counts[0], self.method.windows, (0, 0, 0, 1), packed)]
        *outer, last = self.problem.axes
        walks = [Walk(counts[k], self.method.windows if k == len(outer) - 1 else 1, (a.stride * self.scratch[k], 0, a.y, 0))
                 for k, a in enumerate(outer)]
        return [*walks, Walk(counts[-1], plan.span, (1, 0, last.y, 0), packed)]

    def _sums(self) -> tuple[list[PointerLoop], list[tuple[int, int]], int]:
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

    def _in_parts(self, loops: Sequence[PointerLoop], steps: int) -> tuple[list[PointerLoop], list[PointerLoop]]:
        """The loops apart: a long sum in single precision is taken in parts of at most PART terms, as far as loops divide."""
        if self.problem.depth <= LONG_SUM or self.dtype.itemsize > 4:
            return [], list(loops)
        outer, inner, terms = list(loops), list[PointerLoop](), steps
        while outer:
            *outer, loop = outer
            count = int(loop.count)
            own = max(d for d in range(1, count + 1) if count % d == 0 and (d * terms <= PART or d == 1))
            inner.insert(0, PointerLoop(str(own), loop.steps))
            terms *= own
            if own < count:
                first, second = (str(own * int(step)) for step in loop.steps)
                return [*outer, PointerLoop(str(count // own), (first, second))], inner
        return [], inner

    def _in_memory(self, t: IRBuilder, tile: Tile, loops: Sequence[PointerLoop], pointers: tuple[str, str],
                   part: Callable[[tuple[str, str]], microkernel.Tiles]) -> microkernel.Tiles:
        """The totals of the parts that loops go through."""
        totals = t.let(f"alloca [{tile.rows * tile.vectors} x {t.vector(self.dtype)}], align 64")
        addresses = [[t.address(totals, str((r * tile.vectors + v) * t.lanes), self.dtype) for v in range(tile.vectors)]
                  for r in range(tile.rows)]
        for address in (p for row in addresses for p in row):
            t.store(t.splat(0, self.dtype), address, None)

        def through(depth: int, at: tuple[str, str]) -> None:
            if depth < len(loops):
                loop, size = loops[depth], self.dtype.itemsize
                t.rows("0", loop.count, lambda k: through(depth + 1, (
                    moved(t, at[0], size, ((k, int(loop.steps[0])),)), moved(t, at[1], size, ((k, int(loop.steps[1])),)))))
                return
            for values, row in zip(part(at), addresses, strict=True):
                for value, address in zip(values, row, strict=True):
                    t.store(t.binary("fadd", t.load(address, self.dtype, None), value), address, None)

        through(0, pointers)
        return [[t.load(address, self.dtype, None) for address in row] for row in addresses]

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

    def _store_transposed(self, t: IRBuilder, sums: microkernel.Tiles, rows: Sequence[TileRow], lanes: int) -> None:
        """Rows are neighbours in memory: squares of rows and lanes are transposed."""
        kept, span, step = self._kept(t, sums), self.plan.span, lane_step(self.problem, self.method.lanes)
        first = t.address("%y", str(rows[0].y), self.dtype)
        for start in range(0, len(rows), t.lanes):
            for lane in range(0, lanes, t.lanes):
                source = t.address(kept, str(start * span + lane), self.dtype)
                target = t.address(first, str(start + lane * step), self.dtype)
                t.line(f"call void @transpose(ptr {source}, i64 {span}, i64 {t.lanes - 1}, ptr {target}, i64 {step},"
                       f" i64 {min(t.lanes, len(rows) - start)}, i64 {min(t.lanes, lanes - lane)})")

    def _store_scattered(self, t: IRBuilder, sums: microkernel.Tiles, rows: Sequence[TileRow], lanes: int) -> None:
        """Element by element."""
        kept, kind, size = self._kept(t, sums), scalar_type(self.dtype), self.dtype.itemsize
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
            pointer = t.let(f"getelementptr i8, ptr {pointer}, i64 {t.let(f'mul i64 {index}, {step * itemsize}')}")
    return pointer
