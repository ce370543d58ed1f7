"""A share of a convolution by Winograd's minimal filtering as LLVM IR.

The block's input is copied, padded, and transformed; then for some features at a time there are 16 products, whose sums are
transformed to results. An element that is infinite or no number would reach results that do not see it: where a result comes out as
one, those of its vector are summed up from their windows instead, by weights as they were given.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from deepx_graph.runtime.native.convolution.block_copy import BlockCopy
from deepx_graph.runtime.native.convolution.emit import ConvolutionOperands, ShareCode
from deepx_graph.runtime.native.convolution.plan import FEATURES, scratch_steps
from deepx_graph.runtime.native.convolution.tile import call_tile
from deepx_graph.runtime.native.convolution.winograd import POINTS, RESULTS, SEEN, TAPS, WinogradPlan
from deepx_graph.runtime.native.gemm.microkernel import PointerLoop, Tile, TileOperand, accumulate
from deepx_graph.runtime.native.llvm.builder import BOOL, IRBuilder, VectorValue, branch, least, of_parts, part_of_range

Square = list[list[VectorValue]]


class WinogradShareCode(ShareCode[WinogradPlan]):
    """Writes the function of a share of one plan."""

    def __init__(self, plan: WinogradPlan, operands: ConvolutionOperands) -> None:
        super().__init__(plan, operands)
        self.copied = scratch_steps(plan.copy)
        _, self.input_step, _ = plan.products.problem.x
        _, self.sum_step, self.row_step = plan.products.problem.y

    def functions(self) -> list[str]:
        return [*super().functions(), self._by_windows()]

    def _windows(self, axis: int, block: str) -> tuple[str, str]:
        t, count = self.t, self.problem.axes[axis].count
        if self.plan.blocks[axis] == 1:
            return "0", str(count)
        low, tiles = part_of_range(t, block, self.plan.blocks[axis], self.plan.tile_counts[axis])
        first = t.let(f"mul i64 {low}, {RESULTS}")
        return first, least(t, t.let(f"mul i64 {tiles}, {RESULTS}"), t.let(f"sub i64 {count}, {first}"))

    # --- the input

    def _fill(self, x: str, starts: Sequence[str], counts: Sequence[str]) -> None:
        t, plan, inputs = self.t, self.plan, self.problem.inputs
        starts, counts = ([self._tiles(n) for n in of] for of in (starts, counts))
        BlockCopy(self.plan.copy, t).write(x, "%scratch", starts, counts)
        target, vectors = t.behind("%scratch", plan.input_start), plan.method.tile.vectors

        def vector(row: str, column: str) -> None:
            number = t.let(f"add i64 {t.let(f'mul i64 {row}, {plan.row_vectors}')}, {column}")
            group, rest = (t.let(f"{how} i64 {number}, {vectors}") for how in ("udiv", "urem"))
            source = self._seen(row, column)
            into = self._at(target, (group, inputs * plan.span), (rest, plan.width))
            t.rows("0", str(inputs), lambda c: self._transform_input(
                self._at(source, (c, self.copied[FEATURES])), self._at(into, (c, plan.span))))

        t.rows("0", counts[0], lambda r: t.rows("0", str(plan.row_vectors), lambda v: vector(r, v)))

    def _tiles(self, windows: str) -> str:
        """The tiles of so many windows."""
        return self.t.let(f"udiv i64 {self.t.let(f'add i64 {windows}, {RESULTS - 1}')}, {RESULTS}")

    def _seen(self, row: str, column: str) -> str:
        """Where, in the copy, a vector of tiles begins."""
        return self._at("%scratch", (row, RESULTS * self.copied[0]), (column, self.plan.width))

    def _offset(self, row: int, column: int) -> int:
        """Where an element that a tile sees is, from its begin: the last axis is kept by remainders."""
        return row * self.copied[0] + self.plan.copy.phase(column)

    def _transform_input(self, source: str, target: str) -> None:
        t = self.t
        seen = [[t.load(t.address(source, str(self._offset(i, j)), self.dtype), self.dtype, None) for j in range(SEEN)]
                for i in range(SEEN)]

        def line(d: Sequence[VectorValue]) -> list[VectorValue]:
            return [t.binary("fsub", d[0], d[2]), t.binary("fadd", d[1], d[2]), t.binary("fsub", d[2], d[1]),
                    t.binary("fsub", d[1], d[3])]

        for k, value in enumerate(itertools.chain(*_on_both_axes(line, seen))):
            t.store(value, t.address(target, str(k * self.input_step), self.dtype), None)

    # --- products and results

    def _panels(self, part: tuple[str, str], counts: Sequence[str], at: tuple[str, str, str]) -> None:
        t, plan, (low, panels), (group, w, y) = self.t, self.plan, part, at
        source, sums = (t.behind("%scratch", start) for start in (plan.input_start, plan.sums_start))
        rows, vectors = self._tiles(counts[0]), plan.method.tile.vectors
        count = t.let(f"add i64 {t.let(f'mul i64 {rows}, {plan.row_vectors}')}, {vectors - 1}")
        groups, size = t.let(f"udiv i64 {count}, {vectors}"), plan.products.panel_size
        nowhere = t.let("alloca [2 x i64]")
        t.line(f"store [2 x i64] zeroinitializer, ptr {nowhere}")

        def product(point: str) -> None:
            x, m = self._at(source, (point, self.input_step)), self._at(sums, (point, self.sum_step))
            number = t.let(f"add i64 {t.let(f'mul i64 {group}, {POINTS}')}, {point}")
            own = self._at(w, (number, plan.panels * size), (low, size))
            t.rows("0", panels, lambda k: panel(t.let(f"add i64 {low}, {k}"), x, self._at(own, (k, size)),
                                                self._at(m, (k, plan.panel * self.row_step))))

        def panel(number: str, x: str, w: str, m: str) -> None:
            t.rows("0", groups, lambda k: call_tile(
                t, plan, number, self._at(x, (k, self.problem.inputs * plan.span)), w, self._at(m, (k, plan.span)), nowhere))

        t.rows("0", str(POINTS), product)
        first = t.let(f"mul i64 {low}, {plan.panel}")
        features = least(t, t.let(f"sub i64 {plan.features}, {first}"), t.let(f"mul i64 {panels}, {plan.panel}"))
        _, step, _ = self.problem.w
        given = self._at(self.operands.given.address(t), (group, self.problem.w[0]), (first, step))
        y = self._at(y, (first, self.problem.y[2]))
        t.rows("0", features, lambda f: self._results((rows, counts[0]), self._at(sums, (f, self.row_step)),
                                                      self._at(given, (f, step)), self._at(y, (f, self.problem.y[2]))))

    def _results(self, rows: tuple[str, str], sums: str, weights: str, y: str) -> None:
        """The results of a feature, of so many rows of tiles and of windows."""
        t = self.t
        outer, inner = self.problem.axes
        whole, rest = divmod(inner.count, RESULTS * self.plan.width)

        def vector(row: str, column: str, lanes: int) -> None:
            into = self._at(y, (row, RESULTS * outer.y), (column, RESULTS * self.plan.width))
            own = self._at(sums, (row, self.plan.row_vectors * self.plan.width), (column, self.plan.width))
            found = self._square(own, self._seen(row, column), weights, -(-lanes // RESULTS))
            self._store(found[0], into, lanes)
            below = self._at(into, ("1", outer.y))
            if outer.count % RESULTS == 0:
                self._store(found[1], below, lanes)
                return
            next_row = t.let(f"add i64 {t.let(f'mul i64 {row}, {RESULTS}')}, 1")
            branch(t, t.let(f"icmp slt i64 {next_row}, {rows[1]}"), lambda: self._store(found[1], below, lanes))

        def row(r: str) -> None:
            t.rows("0", str(whole), lambda v: vector(r, v, RESULTS * self.plan.width))
            if rest:
                vector(r, str(whole), rest)

        t.rows("0", rows[0], row)

    def _square(self, sums: str, x: str, weights: str, tiles: int) -> Square:
        """The results of a vector of tiles, of which so many are there: the others are of whatever lies behind the input."""
        t = self.t
        points = [t.address(sums, str(k * self.sum_step), self.dtype) for k in range(POINTS)]
        loaded = [t.load(at, self.dtype, None) for at in points]

        def line(m: Sequence[VectorValue]) -> list[VectorValue]:
            middle, apart = t.binary("fadd", m[1], m[2]), t.binary("fsub", m[1], m[2])
            return [t.binary("fadd", m[0], middle), t.binary("fsub", apart, m[3])]

        found = list(itertools.chain(*_on_both_axes(line, [loaded[k : k + SEEN] for k in range(0, POINTS, SEEN)])))
        zero, *others = (t.binary("fsub", v, v) for v in found)
        for other in others:
            zero = t.binary("fadd", zero, other)
        if tiles < t.lanes:
            there = VectorValue(f"<{', '.join(f'i1 {int(k < tiles)}' for k in range(t.lanes))}>", BOOL)
            zero = t.select(there, zero, t.splat(0, self.dtype))

        def by_windows() -> VectorValue:
            t.line(f"call void @windows(ptr {x}, ptr {weights}, ptr {sums})")
            return of_parts([t.load(at, self.dtype, None).text for at in points[: len(found)]], self.dtype)

        made = t.either(t.all(t.compare("fcmp oeq", zero, t.splat(0, self.dtype))),
                        lambda: of_parts([v.text for v in found], self.dtype), by_windows)
        values = [VectorValue(part, self.dtype) for part in made.parts]
        return [values[:RESULTS], values[RESULTS:]]

    def _store(self, row: Sequence[VectorValue], into: str, lanes: int) -> None:
        """So many results of a row of tiles, whose even and odd ones are apart."""
        t, kind, width = self.t, self.t.vector(self.dtype), self.t.lanes
        for v in range(0, lanes, width):
            order = [(v + k) // RESULTS + (v + k) % RESULTS * width for k in range(width)]
            value = VectorValue(t.shuffle(kind, row[0].text, order, row[1].text), self.dtype)
            t.store_first(value, t.address(into, str(v), self.dtype), min(width, lanes - v))

    # --- windows

    def _by_windows(self) -> str:
        """The function `windows(x, weights, sums)`: the results of a vector of tiles as the first sums."""
        t, p = IRBuilder(self.plan.width), self.problem
        t.declarations = self.tiles.declarations
        one = [TileOperand((0,), 0, spread) for spread in (False, True)]
        loop = PointerLoop(str(p.inputs), (str(self.copied[FEATURES]), str(p.w[2])))
        taps = list(itertools.product(range(TAPS), repeat=2))
        for k, (i, j) in enumerate(itertools.product(range(RESULTS), repeat=2)):
            steps = [(self._offset(i + r, j + c), r * p.axes[0].w + c * p.axes[1].w) for r, c in taps]
            ((value,),) = accumulate(t, self.dtype, Tile(1, 1), (one[0], one[1]), ("%x", "%w"), [loop], steps)
            t.store(value, t.address("%m", str(k * self.sum_step), self.dtype), None)
        return t.function("internal void @windows(ptr noalias %x, ptr noalias %w, ptr noalias %m) nounwind noinline cold")


def _on_both_axes(line: Callable[[Sequence[VectorValue]], list[VectorValue]], square: Square) -> Square:
    """A transform of lines for the columns of a square, then for its rows."""
    columns = [line(column) for column in zip(*square, strict=True)]
    return [line(row) for row in zip(*columns, strict=True)]
