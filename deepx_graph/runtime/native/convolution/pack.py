"""Packing for a convolution: the input of a share into scratch memory, and the weights into panels as wide as a tile.

The input is padded with zeros, and laid out by remainders of a stride: only elements of the share's own image and group are read;
every element that a stored result depends on is written. A tile of vectors along the output features reads a vector of weights for
each step of its sum, one after the other. Lanes beyond the last feature are filled with what lies at hand: their results are not
stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from deepx_graph.runtime.native.convolution.plan import SIZE, ConvolutionPlan, Lanes, phase_columns, scratch_steps
from deepx_graph.runtime.native.gemm.panels import Panels
from deepx_graph.runtime.native.llvm.builder import (
    IRBuilder,
    VectorValue,
    below,
    branch,
    digit,
    greatest,
    least,
    memory_type,
)

PACKED_SHARE = 1 << 15
"""Weights of a share of packing, at least: some microseconds."""

SOURCE, TARGET = 0, 1
"""The slots of the table of packing: the weights as they are, and packed."""


@dataclass(frozen=True)
class WeightLayout:
    """The order of packed weights: `order` lists the sums' axes outermost first, -1 the input features; `steps` their elements.

    `panel` is the step from one panel to the next, `group` that of a group.
    """

    order: tuple[int, ...]
    steps: dict[int, int]
    panel: int
    group: int


def weights_of(plan: ConvolutionPlan) -> WeightLayout:
    """How the weights must lie: in panels of as many features as a tile has."""
    p = plan.problem
    natural = {k: a.w for k, a in enumerate(p.axes)} | {-1: p.w[2]}
    sizes = {k: a.window for k, a in enumerate(p.axes)} | {-1: p.inputs}
    order = tuple(sorted(natural, key=lambda k: (-natural[k], k)))
    steps, step = {}, plan.panel
    for k in reversed(order):
        steps[k] = step
        step *= sizes[k]
    return WeightLayout(order, steps, step, 0 if plan.method.lanes is Lanes.GROUPS else plan.panels * step)


def packed_size(plan: ConvolutionPlan) -> int:
    """Elements of packed weights."""
    groups = 1 if plan.method.lanes is Lanes.GROUPS else plan.problem.groups
    return groups * plan.panels * plan.panel * plan.problem.depth


def pack_shares(plan: ConvolutionPlan) -> int:
    """How many shares packing has: parts of the sums of panels."""
    return packed_size(plan) // (plan.panel * plan.problem.depth) * _parts(plan)


def _parts(plan: ConvolutionPlan) -> int:
    return max(1, min(_runs(plan)[0][0], plan.panel * plan.problem.depth // PACKED_SHARE))


def _runs(plan: ConvolutionPlan) -> list[tuple[int, int]]:
    """The axes of a sum in the order of packing, as sizes and steps in the weights; neighbours that are one run made one."""
    p = plan.problem
    sizes = {k: (a.window, a.w) for k, a in enumerate(p.axes)} | {-1: (p.inputs, p.w[2])}
    found: list[tuple[int, int]] = []
    for size, step in (sizes[k] for k in weights_of(plan).order):
        if size == 1 and found:
            continue
        if found and (found[-1][0] == 1 or found[-1][1] == size * step):
            found[-1] = found[-1][0] * size, step
        else:
            found.append((size, step))
    return found


def weight_packing(plan: ConvolutionPlan, declarations: dict[str, None]) -> list[str]:
    """The functions that pack weights: `packed(table, number, scratch, block)`, of which the last two are for others, packs one
    share, a part of the outermost run of one panel; and what it calls, which adds to the declarations."""
    p, runs, parts, t = plan.problem, _runs(plan), _parts(plan), IRBuilder(plan.width)
    group_step, step = (0, p.w[0]) if plan.method.lanes is Lanes.GROUPS else p.w[:2]
    part, rest = digit(t, "%number", parts)
    panel, group = digit(t, rest, plan.panels)
    low, count = part_of_range(t, part, parts, runs[0][0])
    first = t.let(f"mul i64 {panel}, {plan.panel}")
    source, target = (t.word("%table", k, "ptr") for k in (SOURCE, TARGET))
    source = t.moved(source, p.dtype, (group, group_step), (first, step), (low, runs[0][1]))
    target = t.moved(target, p.dtype, (rest, plan.panel * p.depth), (low, plan.panel * p.depth // runs[0][0]))
    features = least(t, t.let(f"sub i64 {plan.features}, {first}"), str(plan.panel))
    counts = "".join(f", i64 {n}" for n in (count, *(size for size, _ in runs[1:])))
    t.line(f"call void @panel(ptr {target}, ptr {source}, i64 {features}, i64 0{counts})")
    share = t.function("internal void @packed(ptr noalias %table, i64 %number, ptr %scratch, ptr %block) nounwind")
    panels = Panels(p.dtype, plan.panel, step, tuple(step for _, step in runs))
    return [share, panels.function("panel", plan.width, declarations)]


class Packing:
    """Writes the copying of one share into a function under construction."""

    def __init__(self, plan: ConvolutionPlan, t: IRBuilder) -> None:
        self.plan, self.t, self.dtype = plan, t, plan.problem.dtype
        self.steps = scratch_steps(plan)
        self.order = [k for k in self.steps if k != SIZE]
        self.extents = dict(zip(self.order, self._extents(), strict=True))

    def _extents(self) -> list[int]:
        sizes = [self.steps[SIZE], *(self.steps[k] for k in self.order)]
        return [a // b for a, b in itertools.pairwise(sizes)]

    def write(self, source: str, target: str, starts: Sequence[str], counts: Sequence[str]) -> None:
        """Copies what the windows from `starts` on, so many of them, see of the image at `source`."""
        self.firsts = {k: self._first(k, start) for k, start in enumerate(starts)}
        self.reaches = {k: self._reach(k, count) for k, count in enumerate(counts)}
        self._axis(0, source, target)

    def _first(self, axis: int, start: str) -> str:
        """The index, in the input without padding, of the first element that is seen."""
        a, t = self.plan.problem.axes[axis], self.t
        return t.let(f"sub i64 {t.let(f'mul i64 {start}, {a.stride}')}, {a.low}")

    def _reach(self, axis: int, count: str) -> str:
        """How many elements are seen."""
        a, t = self.plan.problem.axes[axis], self.t
        return t.let(f"add i64 {t.let(f'mul i64 {count}, {a.stride}')}, {a.reach(1) - a.stride}")

    # --- axes from the outermost to the innermost

    def _axis(self, depth: int, source: str, target: str) -> None:
        axis = self.order[depth]
        if self.plan.has_packed_tiles and depth == len(self.order) - 2:
            self._by_tiles(axis, source, target)
        elif depth == len(self.order) - 1:
            self._innermost(axis, source, target)
        elif axis < 0:
            self._features(depth, source, target)
        else:
            self._spatial(depth, source, target)

    def _features(self, depth: int, source: str, target: str) -> None:
        t, p = self.t, self.plan.problem
        t.rows("0", str(p.inputs),
               lambda c: self._axis(depth + 1, self._at(source, c, p.x[2]), self._at(target, c, self.steps[-1])))

    def _spatial(self, depth: int, source: str, target: str) -> None:
        """Rows, planes and so on: those outside the input are zeros."""
        t, axis = self.t, self.order[depth]
        a, step = self.plan.problem.axes[axis], self.steps[axis]

        def one(e: str) -> None:
            index, inside = self._index(axis, e)
            into = self._at(target, e, step)
            branch(t, inside, lambda: self._axis(depth + 1, self._at(source, index, a.x), into),
                   lambda: self._zeros(into, str(step)))

        t.rows("0", self.reaches[axis], one)

    def _index(self, axis: int, e: str) -> tuple[str, str]:
        """The input's index of the e-th element that is seen, and whether there is one."""
        a, t = self.plan.problem.axes[axis], self.t
        offset = t.let(f"add i64 {self.firsts[axis]}, {e}")
        return offset, t.let(f"icmp ult i64 {offset}, {a.size}")  # a negative one is a huge one

    def _by_tiles(self, axis: int, source: str, target: str) -> None:
        """The elements of each tile, feature by feature. The last tile begins earlier where it would not be full."""
        t, p, size = self.t, self.plan.problem, self.plan.tile_windows
        a, count = p.axes[axis], self.reaches[axis]
        length, room = least(t, count, str(size)), greatest(t, t.let(f"sub i64 {count}, {size}"), "0")
        tiles = t.let(f"udiv i64 {t.let(f'add i64 {count}, {size - 1}')}, {size}")
        masks = [below(t, t.let(f"sub i64 {length}, {v}")) for v in range(0, size, t.lanes)]

        def tile(k: str) -> tuple[str, str]:
            """The first element of a tile, and where it is kept."""
            first = t.let(f"add i64 {self.firsts[axis]}, {least(t, t.let(f'mul i64 {k}, {size}'), room)}")
            return first, self._at(target, k, self.steps[axis])

        def row(c: str) -> None:  # of neighbours, from which tile after tile is filled
            def one(k: str) -> None:
                first, into = tile(k)
                vectors(self._at(self._at(source, c, p.x[2]), first, 1), self._at(into, c, size))

            t.rows("0", tiles, one)

        def columns(k: str) -> None:
            first, into = tile(k)
            t.rows("0", length, lambda j: column(t.let(f"add i64 {first}, {j}"), self._at(into, j, 1)))

        def vectors(start: str, into: str) -> None:  # beyond the tile is what another one has
            for v, mask in enumerate(masks):
                at, to = (t.address(pointer, str(v * t.lanes), self.dtype) for pointer in (start, into))
                t.store(t.load(at, self.dtype, mask), to, mask if (v + 1) * t.lanes > size else None)

        def column(index: str, into: str) -> None:
            start = source
            if a.rows:
                index, row = digit(t, index, a.rows[0])
                start = self._at(start, row, a.rows[1])
            start = self._at(start, index, a.x)
            t.rows("0", str(p.inputs), lambda c: self._move(self._at(start, c, p.x[2]), self._at(into, c, size)))

        if a.x == 1 and not a.rows:
            t.rows("0", str(p.inputs), row)
        else:
            t.rows("0", tiles, columns)

    # --- the innermost axis

    def _innermost(self, axis: int, source: str, target: str) -> None:
        p = self.plan.problem
        if axis < 0:
            count, step = (p.groups, p.x[1]) if self.plan.method.lanes is Lanes.GROUPS else (p.inputs, p.x[2])
            self._copy(source, target, str(count), step)
            return
        a = p.axes[axis]
        if self.plan.method.lanes is Lanes.WINDOWS and a.stride > 1:
            self._zeros(target, str(self.extents[axis]))
            self._by_remainders(axis, source, target)
            return
        low, high, first = self._inside(axis)
        self._zeros(target, low)
        length = self.t.let(f"sub i64 {high}, {low}")
        self._copy(self._at(source, first, a.x), self._at(target, low, 1), length, a.x)
        self._zeros(self._at(target, high, 1), self.t.let(f"sub i64 {self.reaches[axis]}, {high}"))

    def _inside(self, axis: int) -> tuple[str, str, str]:
        """From where to where, along what is seen, the input lies; and the input's index where that begins."""
        a, t, first = self.plan.problem.axes[axis], self.t, self.firsts[axis]
        before = t.let(f"sub i64 0, {first}")
        end = t.let(f"add i64 {before}, {a.size}")
        low, high = (least(t, greatest(t, index, "0"), self.reaches[axis]) for index in (before, end))
        return low, high, t.let(f"add i64 {first}, {low}")

    def _by_remainders(self, axis: int, source: str, target: str) -> None:
        """The elements of each remainder by the stride one after the other, in a row of their own."""
        a, t, first = self.plan.problem.axes[axis], self.t, self.firsts[axis]
        for phase in range(a.stride):
            start = t.let(f"add i64 {first}, {phase}")
            seen = t.let(f"sub i64 {self.reaches[axis]}, {phase}")
            low = self._steps(t.let(f"sub i64 0, {start}"), a.stride)
            high = self._steps(least(t, seen, t.let(f"sub i64 {a.size}, {start}")), a.stride)
            index = t.let(f"add i64 {start}, {t.let(f'mul i64 {low}, {a.stride}')}")
            into = t.address(target, t.let(f"add i64 {low}, {phase * phase_columns(self.plan)}"), self.dtype)
            self._copy(self._at(source, index, a.x), into, t.let(f"sub i64 {high}, {low}"), a.stride * a.x)

    def _steps(self, length: str, stride: int) -> str:
        """How many steps of a stride go through a length, of which a negative one is none."""
        t, some = self.t, greatest(self.t, length, "0")
        return t.let(f"udiv i64 {t.let(f'add i64 {some}, {stride - 1}')}, {stride}")

    # --- memory: vectors are stored whole, as what lies beyond is written next, or not read

    def _at(self, pointer: str, index: str, step: int) -> str:
        return self.t.moved(pointer, self.dtype, (index, step))

    def _move(self, source: str, target: str) -> None:
        type, align = memory_type(self.dtype), self.dtype.itemsize
        one = self.t.let(f"load {type}, ptr {source}, align {align}")
        self.t.line(f"store {type} {one}, ptr {target}, align {align}")

    def _copy(self, source: str, target: str, count: str, step: int) -> None:
        """So many elements, `step` apart at the source."""
        t = self.t
        if step != 1:
            t.rows("0", count, lambda i: self._move(self._at(source, i, step), self._at(target, i, 1)))
            return

        def body(indices: Sequence[str], mask: str | None, _: Sequence[VectorValue]) -> Sequence[VectorValue]:
            for i in indices:
                t.store(t.load(t.address(source, i, self.dtype), self.dtype, mask), t.address(target, i, self.dtype), None)
            return ()

        t.vector_loop("0", count, 2, True, (), body, ())

    def _zeros(self, target: str, count: str) -> None:
        t, zero = self.t, self.t.splat(0, self.dtype)

        def body(indices: Sequence[str], mask: str | None, _: Sequence[VectorValue]) -> Sequence[VectorValue]:
            for i in indices:
                t.store(zero, t.address(target, i, self.dtype), None)
            return ()

        t.vector_loop("0", count, 1, True, (), body, ())


# --- arithmetic of shares


def part_of_range(t: IRBuilder, part: str, parts: int, size: int) -> tuple[str, str]:
    """Where part k of nearly equal parts of a range begins, and how long it is."""
    if parts == 1:
        return "0", str(size)
    low = t.let(f"udiv i64 {t.let(f'mul i64 {part}, {size}')}, {parts}")
    above = t.let(f"add i64 {part}, 1")
    high = t.let(f"udiv i64 {t.let(f'mul i64 {above}, {size}')}, {parts}")
    return low, t.let(f"sub i64 {high}, {low}")
