"""A convolution as LLVM IR: what each thread runs, and what its shares have in common, however their sums are taken.

`work(table, counter, scratch)` takes shares from the counter until there are none; before it, `pack` does so with shares of packing
the weights. The table of `work` holds the addresses of input, packed weights and output, and of what is done with finished rows.
Of the three arrays nothing outside is read or written; of the scratch memory only what the share has filled counts, the rest is
arbitrary and ends in lanes that are not stored.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from deepx_graph.runtime.native.convolution.pack import Packing, pack_shares, part_of_range, weight_packing
from deepx_graph.runtime.native.convolution.plan import (
    FEATURES,
    IMAGES,
    ConvolutionPlan,
    Lanes,
    ceil_div,
    offsets_of,
    offsets_start,
)
from deepx_graph.runtime.native.convolution.tile import AT, TileCode, TilePointers, W, Walk, X, Y
from deepx_graph.runtime.native.llvm.builder import IRBuilder, branch, digit, greatest, least, leave_if

WORD = np.dtype("i8")
"""An entry of the table of windows."""

EPILOGUE, EPILOGUE_TABLE = range(3, 5)
"""The slots of the table behind X, W and Y: the function of the epilogue and its own table."""

CHUNKS, COUNT_BITS = 64, 16
"""About so many chunks of shares, as threads wait for one another's access to their counter; fewer than twice as many, so that the
number taken from one side has room in so many bits."""


def module_text(code: ShareCode) -> str:
    """The IR of a whole convolution."""
    tiles = code.tiles
    plan = tiles.plan
    functions = [tiles.function("tile", plan.panel), *code.functions(), work_text("work", "share", code.plan.shares),
                 *weight_packing(plan, tiles.declarations), work_text("pack", "packed", pack_shares(plan))]
    if rest := plan.features % plan.panel:
        functions.append(tiles.function("edge", rest))
    return "\n".join([*functions, *tiles.declarations, ""])


def work_text(name: str, share: str, shares: int) -> str:
    """What each thread runs. It keeps the number of the block of input that is in its scratch memory.

    Threads take chunks of shares from the first on and from the last on in turn, so that two have blocks of their own to copy. The
    counter has the numbers of chunks taken from either side, and of threads that came, whose last bit counts.
    """
    t, side, chunk = IRBuilder(1), COUNT_BITS, max(1, shares // CHUNKS)
    chunks, mask = ceil_div(shares, chunk), (1 << side) - 1
    block = t.let("alloca i64")
    t.line(f"store i64 -1, ptr {block}")
    came = t.let(f"atomicrmw add ptr %counter, i64 {1 << 2 * side} monotonic")
    forward = t.let(f"icmp eq i64 {t.let(f'and i64 {came}, {1 << 2 * side}')}, 0")
    one = t.let(f"select i1 {forward}, i64 1, i64 {1 << side}")
    t.line("br label %next")
    t.start("next")
    taken = t.let(f"atomicrmw add ptr %counter, i64 {one} monotonic")
    first, last = t.let(f"and i64 {taken}, {mask}"), t.let(f"and i64 {t.let(f'lshr i64 {taken}, {side}')}, {mask}")
    leave_if(t, t.let(f"icmp uge i64 {t.let(f'add i64 {first}, {last}')}, {chunks}"), lambda: t.line("ret void"))
    number = t.let(f"select i1 {forward}, i64 {first}, i64 {t.let(f'sub i64 {chunks - 1}, {last}')}")
    low = t.let(f"mul i64 {number}, {chunk}")
    t.rows(low, least(t, t.let(f"add i64 {low}, {chunk}"), str(shares)),
           lambda k: t.line(f"call void @{share}(ptr %table, i64 {k}, ptr %scratch, ptr {block})"))
    return t.function(f"void @{name}(ptr %table, ptr %counter, ptr %scratch) nounwind", "br label %next")


class ShareCode(ABC):
    """Writes the function of a share of one plan."""

    def __init__(self, plan: ConvolutionPlan, has_epilogue: bool) -> None:
        self.has_epilogue = has_epilogue
        self.plan, self.problem, self.method = plan, plan.problem, plan.method
        self.dtype = plan.problem.dtype
        self.tiles = TileCode(plan.products)

    # --- a share

    def functions(self) -> list[str]:
        """The function `share(table, number, scratch, block)`, and those that it calls beside tiles."""
        t, plan, p = IRBuilder(self.plan.width), self.plan, self.problem
        t.declarations = self.tiles.declarations
        rest = "%number"
        part, rest = digit(t, rest, plan.parts)
        number = rest
        blocks: list[str] = []
        for count in reversed(plan.blocks):
            block, rest = digit(t, rest, count)
            blocks.insert(0, block)
        group, image = digit(t, rest, 1 if self.method.lanes is Lanes.GROUPS else p.groups)
        starts, counts = zip(*(self._windows(t, k, block) for k, block in enumerate(blocks)), strict=True)
        x, w, y = (t.word("%table", k, "ptr") for k in (X, W, Y))
        x = t.moved(x, self.dtype, (image, p.x[0]), (group, p.x[1]))
        y = t.moved(y, self.dtype, (image, p.y[0]), (group, p.y[1]), *((s, a.y) for s, a in zip(starts, p.axes, strict=True)))
        self._unless_there(t, number, lambda: self._fill(t, x, starts, counts))
        low, panels = part_of_range(t, part, plan.parts, plan.panels)

        def finish(low: str, panels: str) -> None:
            if self.has_epilogue:
                self._epilogue(t, {IMAGES: (image, "1"), FEATURES: self._features(t, group, low, panels)} | dict(enumerate(
                    zip(starts, counts, strict=True))))

        self._panels(t, (low, panels), counts, (group, w, y), finish)
        params = "ptr noalias %table, i64 %number, ptr noalias %scratch, ptr noalias %block"
        return [t.function(f"internal void @share({params}) nounwind")]

    @abstractmethod
    def _windows(self, t: IRBuilder, axis: int, block: str) -> tuple[str, str]:
        """Where the windows of a block begin along an axis, and how many there are."""

    @abstractmethod
    def _fill(self, t: IRBuilder, x: str, starts: Sequence[str], counts: Sequence[str]) -> None:
        """Writes into scratch memory what these windows of the image at `x` see."""

    @abstractmethod
    def _panels(self, t: IRBuilder, part: tuple[str, str], counts: Sequence[str], at: tuple[str, str, str],
                finish: Callable[[str, str], None]) -> None:
        """The results of each panel, from one on so many. `at`: the group, and where the weights and its results begin. Calls
        `finish` with panels whose results are there."""

    def _unless_there(self, t: IRBuilder, number: str, write: Callable[[], None]) -> None:
        """Fills the scratch memory, unless the last share of this thread had the same block."""
        if self.plan.parts == 1:
            write()
            return

        def fill() -> None:
            t.line(f"store i64 {number}, ptr %block")
            write()

        branch(t, t.let(f"icmp ne i64 {t.let('load i64, ptr %block')}, {number}"), fill)

    # --- the epilogue

    def _features(self, t: IRBuilder, group: str, low: str, panels: str) -> tuple[str, str]:
        """The first output feature of so many panels from one on, and how many there are."""
        p, plan = self.problem, self.plan
        if self.method.lanes is Lanes.GROUPS:
            return "0", str(p.groups * p.outputs)
        begin = t.let(f"mul i64 {low}, {plan.panel}")
        most, whole = t.let(f"sub i64 {p.outputs}, {begin}"), t.let(f"mul i64 {panels}, {plan.panel}")
        return t.let(f"add i64 {t.let(f'mul i64 {group}, {p.outputs}')}, {begin}"), least(t, most, whole)

    def _epilogue(self, t: IRBuilder, share: dict[int, tuple[str, str]]) -> None:
        """Runs the epilogue over rows whose results are still in a cache."""
        epilogue, table = (t.word("%table", k, "ptr") for k in (EPILOGUE, EPILOGUE_TABLE))
        cut, row = self.plan.extents[: self.plan.apart], self.plan.extents[self.plan.apart :]
        left, right = "0", str(math.prod(e.size for e in row))
        if self.plan.cuts_rows:
            left, count = share[row[0].axis]
            right = t.let(f"add i64 {left}, {count}")

        def over(depth: int, before: str) -> None:
            first, count = share[cut[depth].axis] if cut else ("0", "1")
            low = t.let(f"add i64 {t.let(f'mul i64 {before}, {cut[depth].size if cut else 1}')}, {first}")
            high = t.let(f"add i64 {low}, {count}")
            if depth < len(cut) - 1:
                t.rows(low, high, lambda index: over(depth + 1, index))
                return
            t.line(f"call void {epilogue}(ptr {table}, i64 {low}, i64 {high}, i64 {left}, i64 {right})")

        over(0, "0")


class DirectShareCode(ShareCode):
    """That of a direct convolution: its tiles, panel after panel."""

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
        w, w_step = t.moved(w, self.dtype, (group, self.tiles.weights.group)), self.tiles.weights.panel
        table = t.behind("%scratch", offsets_start(plan))
        pointers = "%scratch", w, y, table, t.moved(w, self.dtype, ("1", w_step))
        windows = counts[0]
        for count in counts[1:] if self.method.lanes is not Lanes.WINDOWS else ():
            windows = t.let(f"mul i64 {windows}, {count}")
        walks = self.tiles.walks(counts if self.method.lanes is Lanes.WINDOWS else (windows,))
        x_step, y_step = (plan.span, p.y[1]) if self.method.lanes is Lanes.GROUPS else (0, p.y[2])
        edge = "@edge" if plan.features % plan.panel else "@tile"

        def panel(k: str) -> None:
            own = self._moved(t, pointers, k, (x_step, w_step, plan.panel * y_step, 0, w_step))
            last = t.let(f"icmp eq i64 {k}, {plan.panels - 1}")
            self._interpret(t, walks, own, t.let(f"select i1 {last}, ptr {edge}, ptr @tile"))
            if plan.has_panel_rows:
                finish(k, "1")

        low, count = part
        t.rows(low, t.let(f"add i64 {low}, {count}"), panel)
        if not plan.has_panel_rows:
            finish(low, count)

    def _moved(self, t: IRBuilder, pointers: TilePointers, index: str, steps: tuple[int, ...]) -> TilePointers:
        """The pointers moved on by an index times elements, or words of the table."""
        kinds = [WORD if k == AT else self.dtype for k in range(len(pointers))]
        return tuple(t.moved(p, kind, (index, step)) for p, kind, step in zip(pointers, kinds, steps, strict=True))

    def _interpret(self, t: IRBuilder, walks: Sequence[Walk], pointers: TilePointers, function: str) -> None:
        """Calls the function for every tile of the walks."""
        if not walks:
            t.line(f"call void {function}({', '.join(f'ptr {p}' for p in pointers)})")
            return
        walk, *inner = walks
        room = t.let(f"sub i64 {walk.count}, {walk.tile}")
        up = t.let(f"add i64 {walk.count}, {walk.tile - 1}")
        tiles = t.let(f"sdiv i64 {up}, {walk.tile}")

        def one(k: str) -> None:
            own = t.let(f"mul i64 {k}, {walk.tile}")
            start = greatest(t, least(t, own, room), "0")
            x, w, y, at, _ = self._moved(t, pointers, start, (*walk.steps, 0))
            *_, after = self._moved(t, pointers, k, (0, 0, 0, 0, walk.fetched))
            if walk.packed:
                x = t.moved(pointers[X], self.dtype, (k, walk.packed))
            self._interpret(t, inner, (x, w, y, at, after), function)

        t.rows("0", tiles, one)
