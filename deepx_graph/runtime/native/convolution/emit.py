"""A convolution as LLVM IR: what each thread runs, and what its shares have in common, however their sums are taken.

`work(table, counter, scratch)` takes shares from the counter until there are none; before it, `pack` does so with shares of packing
the weights. Of input, weights and output nothing outside is read or written; of the scratch memory only what the share has filled
counts, the rest is arbitrary and ends in lanes that are not stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from deepx_graph.runtime.native.convolution.block_copy import BlockCopy
from deepx_graph.runtime.native.convolution.plan import FEATURES, IMAGES, ConvolutionPlan, DirectPlan, Lanes, scratch_steps
from deepx_graph.runtime.native.convolution.tile import TileCode, call_tile
from deepx_graph.runtime.native.convolution.weights import packing
from deepx_graph.runtime.native.dispatch import TableSlot
from deepx_graph.runtime.native.joined import JoinedOperands
from deepx_graph.runtime.native.llvm.builder import IRBuilder, branch, digit, greatest, least, leave_if, part_of_range

CHUNKS, COUNT_BITS = 64, 16
"""About so many chunks of shares, as threads wait for one another's access to their counter; fewer than twice as many, so that the
number taken from one side has room in so many bits."""

P = TypeVar("P", bound=ConvolutionPlan)


@dataclass(frozen=True)
class ConvolutionOperands:
    """Where a convolution finds what it reads and writes: weights as they are packed, and into what; as they are read, and as they
    were given. And what is done with finished rows."""

    x: TableSlot
    weights: TableSlot
    into: TableSlot
    packed: TableSlot
    given: TableSlot
    y: TableSlot
    joined: JoinedOperands


def module_text(code: ShareCode[P]) -> str:
    """The IR of a whole convolution."""
    tiles, plan = code.tiles, code.plan.products
    functions = [tiles.function("tile", plan.panel), *code.functions(), work_text(code.plan.shares),
                 *packing(plan, code.operands.weights, code.operands.into, tiles.declarations)]
    if rest := plan.features % plan.panel:
        functions.append(tiles.function("edge", rest))
    return "\n".join([*functions, *tiles.declarations, ""])


def work_text(shares: int) -> str:
    """What each thread runs. It keeps the number of the block of input that is in its scratch memory.

    Threads take chunks of shares from the first on and from the last on in turn, so that two have blocks of their own to copy. The
    counter has the numbers of chunks taken from either side, and of threads that came, whose last bit counts.
    """
    t, side, chunk = IRBuilder(1), COUNT_BITS, max(1, shares // CHUNKS)
    chunks, mask = -(-shares // chunk), (1 << side) - 1
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
           lambda k: t.line(f"call void @share(ptr %table, i64 {k}, ptr %scratch, ptr {block})"))
    return t.function("void @work(ptr %table, ptr %counter, ptr %scratch) nounwind", "br label %next")


class ShareCode(ABC, Generic[P]):
    """Writes the function of a share of one plan."""

    def __init__(self, plan: P, operands: ConvolutionOperands) -> None:
        self.plan, self.problem, self.dtype, self.operands = plan, plan.problem, plan.problem.dtype, operands
        self.tiles = TileCode(plan.products)
        self.t = IRBuilder(plan.width)

    # --- a share

    def functions(self) -> list[str]:
        """The function `share(table, number, scratch, block)`, and those that it calls beside tiles."""
        t, plan, p = self.t, self.plan, self.problem
        t.declarations = self.tiles.declarations
        part, number = digit(t, "%number", plan.parts)
        rest, blocks = number, list[str]()
        for count in reversed(plan.blocks):
            block, rest = digit(t, rest, count)
            blocks.insert(0, block)
        group, image = digit(t, rest, plan.groups)
        starts, counts = zip(*(self._windows(k, block) for k, block in enumerate(blocks)), strict=True)
        x, w, y = (slot.address(t) for slot in (self.operands.x, self.operands.packed, self.operands.y))
        x = t.moved(x, self.dtype, (image, p.x[0]), (group, p.x[1]))
        y = t.moved(y, self.dtype, (image, p.y[0]), (group, p.y[1]), *((s, a.y) for s, a in zip(starts, p.axes, strict=True)))
        self._unless_there(number, lambda: self._fill(x, starts, counts))
        joined, (low, panels) = self.operands.joined, part_of_range(t, part, plan.parts, plan.panels)
        then = None if joined.then is None else joined.epilogue(t)
        self._panels((low, panels), counts, (group, w, y))
        if then is not None:
            share = {IMAGES: (image, "1"), FEATURES: self._features(group, low, panels)}
            share |= enumerate(zip(starts, counts, strict=True))
            joined.finish(t, then, [(extent.size, *share[extent.axis]) for extent in plan.extents])
        params = "ptr noalias %table, i64 %number, ptr noalias %scratch, ptr noalias %block"
        return [t.function(f"internal void @share({params}) nounwind")]

    @abstractmethod
    def _windows(self, axis: int, block: str) -> tuple[str, str]:
        """Where the windows of a block begin along an axis, and how many there are."""

    @abstractmethod
    def _fill(self, x: str, starts: Sequence[str], counts: Sequence[str]) -> None:
        """Writes into scratch memory what these windows of the image at `x` see."""

    @abstractmethod
    def _panels(self, part: tuple[str, str], counts: Sequence[str], at: tuple[str, str, str]) -> None:
        """The results of each panel, from one on so many. `at`: the group, and where the weights and its results begin."""

    def _unless_there(self, number: str, write: Callable[[], None]) -> None:
        """Fills the scratch memory, unless the last share of this thread had the same block."""
        t = self.t
        if self.plan.parts == 1:
            write()
            return

        def fill() -> None:
            t.line(f"store i64 {number}, ptr %block")
            write()

        branch(t, t.let(f"icmp ne i64 {t.let('load i64, ptr %block')}, {number}"), fill)

    def _at(self, pointer: str, *by: tuple[str, int]) -> str:
        return self.t.moved(pointer, self.dtype, *by)

    def _features(self, group: str, low: str, panels: str) -> tuple[str, str]:
        """The first output feature of so many panels from one on, and how many there are."""
        t, p, plan = self.t, self.problem, self.plan
        if not any(extent.is_cut for extent in plan.extents if extent.axis == FEATURES):
            return "0", str(p.groups * p.outputs)
        begin = t.let(f"mul i64 {low}, {plan.panel}")
        most, whole = t.let(f"sub i64 {p.outputs}, {begin}"), t.let(f"mul i64 {panels}, {plan.panel}")
        return t.let(f"add i64 {t.let(f'mul i64 {group}, {p.outputs}')}, {begin}"), least(t, most, whole)


class DirectShareCode(ShareCode[DirectPlan]):
    """That of a direct convolution: its tiles, panel after panel."""

    def _windows(self, axis: int, block: str) -> tuple[str, str]:
        return part_of_range(self.t, block, self.plan.blocks[axis], self.problem.axes[axis].count)

    def _fill(self, x: str, starts: Sequence[str], counts: Sequence[str]) -> None:
        BlockCopy(self.plan, self.t).write(x, "%scratch", starts, counts)
        self._list(0, ("0", "0", "0"), [*counts[:-1], self._along_last(counts)], counts[-1])

    def _along_last(self, counts: Sequence[str]) -> str:
        """How many positions there are along the last axis."""
        t, span, last = self.t, self.plan.span, counts[-1]
        return t.let(f"udiv i64 {t.let(f'add i64 {last}, {span - 1}')}, {span}") if self._in_windows else last

    @property
    def _in_windows(self) -> bool:
        return self.plan.method.lanes is Lanes.WINDOWS

    def _list(self, depth: int, before: tuple[str, str, str], counts: Sequence[str], last: str) -> None:
        """Lists the positions of a block: where they are in scratch memory and in the output. `before`: how many there are before,
        and where those along the first axes begin."""
        t, plan, steps = self.t, self.plan, scratch_steps(self.plan)
        if depth == len(counts):
            number, *offsets = before
            at = t.behind("%scratch", t.let(f"add i64 {t.let(f'mul i64 {number}, 16')}, {plan.list_start}"))
            for k, offset in enumerate(offsets):
                t.line(f"store i64 {offset}, ptr {t.behind(at, 8 * k)}")
            return
        a, (number, x, y) = self.problem.axes[depth], before

        def one(i: str) -> None:
            window, step = i, a.stride * steps[depth]
            if self._in_windows and depth == len(counts) - 1:
                room = greatest(t, t.let(f"sub i64 {last}, {plan.span}"), "0")
                window, step = least(t, t.let(f"mul i64 {i}, {plan.span}"), room), 1
            x_window = (i, steps[depth]) if plan.has_packed_spans else (window, step)
            moves = (t.let(f"mul i64 {number}, {counts[depth]}"), i, 1), (x, *x_window), (y, window, a.y)
            found = [t.let(f"add i64 {start}, {t.let(f'mul i64 {index}, {by}')}") for start, index, by in moves]
            self._list(depth + 1, (found[0], found[1], found[2]), counts, last)

        t.rows("0", counts[depth], one)

    def _panels(self, part: tuple[str, str], counts: Sequence[str], at: tuple[str, str, str]) -> None:
        """The results of each panel, from one on so many. `at`: the group, and where the weights and its results begin."""
        t, plan, p, (group, w, y), (low, panels) = self.t, self.plan, self.problem, at, part
        each, is_grouped = plan.method.positions, plan.method.lanes is Lanes.GROUPS
        count = self._along_last(counts)
        for n in counts[:-1]:
            count = t.let(f"mul i64 {n}, {count}")
        tiles, room = t.let(f"udiv i64 {t.let(f'add i64 {count}, {each - 1}')}, {each}"), t.let(f"sub i64 {count}, {each}")

        def panel(k: str) -> None:
            x = self._at("%scratch", (k, plan.span * is_grouped))
            weights = self._at(w, (group, plan.panels * plan.panel_size), (k, plan.panel_size))
            results = self._at(y, (k, plan.panel * p.y[1 if is_grouped else 2]))

            def tile(i: str) -> None:
                first = least(t, t.let(f"mul i64 {i}, {each}"), room)
                listed = t.behind("%scratch", t.let(f"add i64 {t.let(f'mul i64 {first}, 16')}, {plan.list_start}"))
                call_tile(t, plan, k, x, weights, results, listed)

            t.rows("0", tiles, tile)

        t.rows(low, t.let(f"add i64 {low}, {panels}"), panel)
