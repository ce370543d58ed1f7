"""A share of a direct convolution as LLVM IR: its tiles, each with all of its sums, or all in turn with a part of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph.runtime.native.convolution.emit import ShareCode
from deepx_graph.runtime.native.convolution.pack import Packing, part_of_range
from deepx_graph.runtime.native.convolution.plan import Lanes, offsets_of, offsets_start, sums_of, sums_start
from deepx_graph.runtime.native.convolution.tile import AT, NEXT, SUMS, TilePointers, W, Walk, X, moved
from deepx_graph.runtime.native.gemm.microkernel import PointerLoop
from deepx_graph.runtime.native.llvm.builder import IRBuilder, greatest, least


class DirectShareCode(ShareCode):
    """Writes the function of a share of one plan."""

    def _windows(self, t: IRBuilder, axis: int, block: str) -> tuple[str, str]:
        """Where the windows of a block begin along an axis, and how many there are."""
        return part_of_range(t, block, self.plan.blocks[axis], self.problem.axes[axis].count)

    def _fill(self, t: IRBuilder, x: str, starts: Sequence[str], counts: Sequence[str]) -> None:
        """Writes into scratch memory what these windows of the image at `x` see."""
        Packing(self.plan, t).write(x, "%scratch", starts, counts)
        if offsets_of(self.plan):
            self._list_windows(t, t.behind("%scratch", offsets_start(self.plan)), counts)

    def _list_windows(self, t: IRBuilder, table: str, counts: Sequence[str]) -> None:
        """Writes where the windows of a block are: the offsets of all in scratch memory, then those in the output."""
        axes, room = self.problem.axes, offsets_of(self.plan) // 2

        def over(depth: int, number: str, x: str, y: str) -> None:
            if depth == len(axes):
                for k, offset in enumerate((x, y)):
                    at = t.let(f"getelementptr i64, ptr {table}, i64 {t.let(f'add i64 {number}, {k * room}')}")
                    t.line(f"store i64 {offset}, ptr {at}")
                return
            a = axes[depth]

            def one(i: str) -> None:
                steps = (1, a.stride * self.tiles.scratch[depth], a.y)
                before = (t.let(f"mul i64 {number}, {counts[depth]}"), x, y)
                over(depth + 1, *(t.let(f"add i64 {b}, {t.let(f'mul i64 {i}, {s}')}") for b, s in zip(before, steps, strict=True)))

            t.rows("0", counts[depth], one)

        over(0, "0", "0", "0")

    def _panels(self, t: IRBuilder, part: tuple[str, str], counts: Sequence[str], at: tuple[str, str, str],
                finish: Callable[[str, str], None]) -> None:
        plan, p, (group, w, y) = self.plan, self.problem, at
        w, w_step = moved(t, w, self.dtype.itemsize, ((group, self.tiles.weights.group),)), self.tiles.weights.panel
        table, sums = (t.behind("%scratch", start) for start in (offsets_start(plan), sums_start(plan)))
        pointers = "%scratch", w, y, table, sums, moved(t, w, self.dtype.itemsize, (("1", w_step),))
        windows = counts[0]
        for count in counts[1:] if self.method.lanes is not Lanes.WINDOWS else ():
            windows = t.let(f"mul i64 {windows}, {count}")
        walks = self.tiles.walks(counts if self.method.lanes is Lanes.WINDOWS else (windows,))
        x_step, y_step = (plan.span, p.y[1]) if self.method.lanes is Lanes.GROUPS else (0, p.y[2])
        edge = "@edge" if plan.features % plan.panel else "@tile"

        def panel(k: str) -> None:
            own = self._moved(t, pointers, k, (x_step, w_step, plan.panel * y_step, 0, 0, w_step))
            last = t.let(f"icmp eq i64 {k}, {plan.panels - 1}")

            def walk(name: str, at: TilePointers, count: str) -> None:
                self._interpret(t, walks, at, t.let(f"select i1 {last}, ptr {edge}{name}, ptr @tile{name}"), count)

            if plan.part:
                self._parts(t, own, lambda at, count: walk(".part", at, count))
            walk("", own, "0")
            if plan.has_panel_rows:
                finish(k, "1")

        low, count = part
        t.rows(low, t.let(f"add i64 {low}, {count}"), panel)
        if not plan.has_panel_rows:
            finish(low, count)

    def _parts(self, t: IRBuilder, pointers: TilePointers, walk: Callable[[TilePointers, str], None]) -> None:
        """Has all tiles go through one part of their sums after the other; the first adds to zeros."""
        zero, loops = t.splat(0, self.dtype), self.tiles.loops
        t.rows("0", str(sums_of(self.plan)), lambda i: t.store(zero, t.address(pointers[SUMS], i, self.dtype), None), t.lanes)

        def along(loop: PointerLoop, at: TilePointers, index: str) -> TilePointers:
            x, w = map(int, loop.steps)
            return self._moved(t, at, index, (x, w, 0, 0, 0, 0))

        def through(depth: int, at: TilePointers) -> None:
            if depth < len(loops.outer):
                t.rows("0", loops.outer[depth].count, lambda k: through(depth + 1, along(loops.outer[depth], at, k)))
                return
            assert loops.split is not None
            split = loops.split

            def part(k: str) -> None:
                low, count = part_of_range(t, k, loops.parts, int(split.count))
                here = along(split, at, low)
                walk((*here[:NEXT], along(split, here, count)[W]), count)

            t.rows("0", str(loops.parts), part)

        through(0, pointers)

    def _moved(self, t: IRBuilder, pointers: TilePointers, index: str, steps: tuple[int, ...]) -> TilePointers:
        """The pointers moved on by an index times elements, or words of the table."""
        sizes = [8 if k == AT else self.dtype.itemsize for k in range(len(pointers))]
        return tuple(moved(t, p, size, ((index, step),)) for p, size, step in zip(pointers, sizes, steps, strict=True))

    def _interpret(self, t: IRBuilder, walks: Sequence[Walk], pointers: TilePointers, function: str, count: str) -> None:
        """Calls the function for every tile of the walks."""
        if not walks:
            t.line(f"call void {function}({', '.join(f'ptr {p}' for p in pointers)}, i64 {count})")
            return
        walk, *inner = walks
        room = t.let(f"sub i64 {walk.count}, {walk.tile}")
        up = t.let(f"add i64 {walk.count}, {walk.tile - 1}")
        tiles = t.let(f"sdiv i64 {up}, {walk.tile}")

        def one(k: str) -> None:
            own = t.let(f"mul i64 {k}, {walk.tile}")
            start = greatest(t, least(t, own, room), "0")
            x, w, y, at, *_ = self._moved(t, pointers, start, (*walk.steps, 0, 0))
            *_, sums, after = self._moved(t, pointers, k, (0, 0, 0, 0, walk.sums, walk.fetched))
            if walk.packed:
                x = moved(t, pointers[X], self.dtype.itemsize, ((k, walk.packed),))
            self._interpret(t, inner, (x, w, y, at, sums, after), function, count)

        t.rows("0", tiles, one)
