"""The machine code of a tile of a convolution: the loops of its sums, and storing them where they belong.

A tile reads scratch memory and weights without a test; of the output it writes the results of its own rows and lanes alone.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from deepx_graph.runtime.native.convolution.plan import ConvolutionPlan, DirectPlan, Lanes
from deepx_graph.runtime.native.gemm import microkernel
from deepx_graph.runtime.native.gemm.microkernel import PointerLoop, Tile, TileOperand
from deepx_graph.runtime.native.llvm.builder import IRBuilder, least

MOST_TERMS = 4096
"""Sums of more terms are taken in parts, so that little is lost by rounding."""

Pointers = tuple[str, ...]


def call_tile(t: IRBuilder, plan: ConvolutionPlan, panel: str, *pointers: str) -> None:
    """Calls the function of a tile of a panel, of which the last one may have fewer features."""
    function = "@tile"
    if plan.features % plan.panel:
        function = t.let(f"select i1 {t.let(f'icmp eq i64 {panel}, {plan.panels - 1}')}, ptr @edge, ptr @tile")
    t.line(f"call void {function}({', '.join(f'ptr {p}' for p in pointers)})")


class TileCode:
    """Writes the tiles of one plan."""

    def __init__(self, plan: DirectPlan) -> None:
        self.plan, self.problem, self.method, self.dtype = plan, plan.problem, plan.method, plan.problem.dtype
        self.declarations: dict[str, None] = {}
        last, terms = len(self.problem.axes) - 1, plan.terms
        self.loops = [PointerLoop(str(term.size), (str(term.x), str(term.packed))) for term in terms
                      if term.axis != last or plan.phases == 1]
        """The loops over what is summed up, outermost first."""
        a, packed = self.problem.axes[last], next(term.packed for term in terms if term.axis == last)
        self.steps = [(plan.phase(k * a.dilation), k * packed) for k in range(a.window if plan.phases > 1 else 1)]
        """What is written out within them: an axis that is kept by remainders."""

    def function(self, name: str, features: int) -> str:
        """The function `(scratch, weights, output, list of positions)` of one tile of so many features, which are stored."""
        t, plan, width, lanes = IRBuilder(self.plan.width), self.plan, self.plan.width, self.method.lanes
        t.declarations = self.declarations
        listed = [(t.word("%at", 2 * k), t.word("%at", 2 * k + 1)) for k in range(self.method.positions)]
        rows = list(itertools.product(range(features if lanes is Lanes.WINDOWS else 1), listed))
        x = TileOperand(tuple(x for _, (x, _) in rows), 0 if lanes is Lanes.OUTPUTS else width, lanes is Lanes.OUTPUTS)
        w = TileOperand(tuple(f for f, _ in rows), 0 if lanes is Lanes.WINDOWS else width, lanes is Lanes.WINDOWS)
        sums = self._summed(t, Tile(len(rows), self.method.tile.vectors), (x, w))
        into = [t.moved("%y", self.dtype, (y, 1), (str(f), self.problem.y[2])) for f, (_, y) in rows]
        self._store(t, sums, into, min(plan.span, self.problem.axes[-1].count) if lanes is Lanes.WINDOWS else features)
        params = ", ".join(f"ptr noalias %{name}" for name in ("x", "w", "y", "at"))
        return t.function(f"internal void @{name}({params}) nounwind \"stackrealign\"")

    def _summed(self, t: IRBuilder, tile: Tile, operands: tuple[TileOperand, TileOperand]) -> microkernel.Tiles:
        """The sums: at once, or where they are long in about as many parts as each has terms, which are added up in memory."""
        loops, inner, terms = list(self.loops), list[PointerLoop](), len(self.steps)

        def summed(pointers: Pointers, loops: Sequence[PointerLoop]) -> microkernel.Tiles:
            return microkernel.accumulate(t, self.dtype, tile, operands, pointers, loops, self.steps)

        if self.problem.depth <= max(1, MOST_TERMS):
            return summed(("%x", "%w"), loops)
        while (most := math.isqrt(self.problem.depth) // terms) >= int(loops[-1].count):
            inner.insert(0, loops.pop())
            terms *= int(inner[0].count)
        kept = self._kept(t, [[t.splat(0, self.dtype)] * tile.vectors] * tile.rows)
        sums = [[t.address(kept, str(r * self.plan.span + v * t.lanes), self.dtype) for v in range(tile.vectors)]
                for r in range(tile.rows)]

        def through(depth: int, pointers: Pointers) -> None:
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

        through(0, ("%x", "%w"))
        return [[t.load(address, self.dtype, None) for address in row] for row in sums]

    # --- storing a tile

    def _store(self, t: IRBuilder, sums: microkernel.Tiles, rows: Sequence[str], lanes: int) -> None:
        """The first so many lanes of each row."""
        if self.plan.lane_step != 1:
            self._scatter(t, self._kept(t, sums), rows, lanes)
            return
        for into, vectors in zip(rows, sums, strict=True):
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

    def _scatter(self, t: IRBuilder, kept: str, rows: Sequence[str], lanes: int) -> None:
        """Element by element."""

        def lane(k: str) -> None:
            for r, into in enumerate(rows):
                source = t.address(t.address(kept, k, self.dtype), str(r * self.plan.span), self.dtype)
                t.copy_one(source, t.moved(into, self.dtype, (k, self.plan.lane_step)), self.dtype)

        t.rows("0", str(lanes), lane)
