"""A matrix product as LLVM IR: loops around a tile in registers, and around shares of the result.

`product(table, scratch)`, or `product(table, counter, scratch)` where there are shares: these are taken from the counter, by
several threads at once perhaps. What the product is added to comes before the result, which may lie over it. Panels of the operand
that lies along the lanes are on the stack, those of the other one in scratch memory; rows of that which are converted are on the
stack, too, as many as a few tiles have.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from functools import partial

from deepx_graph.runtime.native.gemm.elements import PanelElements
from deepx_graph.runtime.native.gemm.microkernel import PointerLoop, Tile, TileOperand, Tiles, accumulate
from deepx_graph.runtime.native.gemm.panels import Panels
from deepx_graph.runtime.native.gemm.plan import LEFT, RESULT, RIGHT, GemmAxis, GemmPlan
from deepx_graph.runtime.native.gemm.shares import STRIP, ShareAxis
from deepx_graph.runtime.native.joined import JoinedOperands
from deepx_graph.runtime.native.llvm.builder import IRBuilder, VectorValue, branch, digit, each_share, least, scalar_type
from deepx_graph.runtime.native.llvm.transpose import block_lanes

LEAST_GROUP = 16
"""Rows that are converted at a time, at least, where neighbours are of different rows."""


def module_text(plan: GemmPlan, cuts: Sequence[ShareAxis], joined: JoinedOperands) -> str:
    """The IR of a product in such shares, of two operands, and a third one perhaps that it is added to."""
    return _Writer(plan, cuts, joined).text()


def scratch_bytes(plan: GemmPlan, cuts: Sequence[ShareAxis]) -> int:
    """The memory of each thread: panels of the operand that is not along the lanes, and room for a vector behind."""
    if not plan.spread_panels:
        return 0
    rows = next((cut.each for cut in cuts if cut.axis is plan.rows), plan.rows.size)
    return (-(-rows // plan.tile.rows) * plan.tile.rows * (plan.depth + 1) + plan.lanes) * plan.dtype.itemsize


@dataclass(frozen=True)
class _Block:
    """Where loops are: the addresses of operands and result, how many rows, lanes and terms of the last axis there are from there
    on, and whether sums are added to what the result has."""

    pointers: tuple[str, ...]
    rows: str
    lanes: str
    terms: str
    added: str = ""
    alone: str = "0"
    """1 where the last of these terms is no pair."""
    packed: frozenset[int] = frozenset()
    """The operands whose addresses are those of panels."""


_Body = Callable[[_Block], None]
_Step = Callable[[_Block, GemmAxis, str], _Block]


class _Writer:
    """Writes the function of a product."""

    def __init__(self, plan: GemmPlan, cuts: Sequence[ShareAxis], joined: JoinedOperands) -> None:
        self.plan, self.cuts, self.joined, self.dtype, self.lanes = plan, cuts, joined, plan.dtype, plan.lanes
        self.height, self.width = plan.tile.rows, plan.tile.vectors * plan.lanes
        self.t, self.packers = IRBuilder(plan.lanes), list[str]()
        self.elements = tuple(PanelElements(plan.dtype, source) for source in (*plan.sources, None))
        self.packed = {plan.vector: self.width} if plan.by_panels else {}
        if plan.spread_panels:
            self.packed[plan.spread] = self.height
        # a row of terms more in each panel: they do not fall on the same lines of the cache
        self.rows, self.lane = plan.rows, plan.lane
        if plan.spread_panels:
            self.rows = _along(plan.rows, plan.spread, plan.depth + 1)
        self.group = -(-LEAST_GROUP // self.height) * self.height
        """How many rows are converted at a time."""
        if plan.converts_rows:
            self.packed[plan.spread] = self.group
            self.rows = _along(plan.rows, plan.spread, 1)
        if plan.vector in self.packed:
            self.lane = _along(plan.lane, plan.vector, plan.depth + 1)

    def text(self) -> str:
        """The whole text."""
        t = self.t
        pointers = tuple(slot.address(t) for slot in (*self.joined.sources, self.joined.result))
        self.addend = ""
        """How many bytes behind an element of the result that is which the product is added to."""
        if len(pointers) > RESULT + 1:
            left, right, addend, result = pointers
            pointers = left, right, result
            ends = (t.let(f"ptrtoint ptr {p} to i64") for p in (addend, result))
            self.addend = t.let(f"sub i64 {', '.join(ends)}")
        if self.plan.by_panels:
            strip = min(STRIP, -(-self.plan.lane.size // self.width)) * self.width * (self.plan.depth + 1)
            t.line(f"%strip = alloca [{strip} x {scalar_type(self.dtype)}], align 64")
        if self.plan.converts_rows:
            t.line(f"%rows = alloca [{self.group * self.plan.depth} x {scalar_type(self.dtype)}], align 64")
        self.epilogue = None if self.joined.then is None else self.joined.epilogue(t)
        params = "ptr %table, ptr %scratch"
        if self.cuts or self.epilogue:
            params = "ptr %table, ptr %counter, ptr %scratch"
            each_share(t, math.prod(cut.count for cut in self.cuts), lambda number: self._share(pointers, number))
        else:
            self._share(pointers, "0")
        whole = t.function(f"void @product({params}) nounwind \"stackrealign\"")
        return "\n".join([*self.packers, whole, *t.declarations, ""])

    # --- shares

    def _share(self, pointers: tuple[str, ...], number: str) -> None:
        """One part of each axis that is cut."""
        t, parts = self.t, dict[int, tuple[str, str]]()
        for cut in reversed(self.cuts):
            index, number = digit(t, number, cut.count)
            first = t.let(f"mul i64 {index}, {cut.each}")
            left = t.let(f"sub i64 {cut.axis.size}, {first}")
            parts[id(cut.axis)] = first, str(cut.each) if cut.axis.size % cut.each == 0 else least(t, left, str(cut.each))
            pointers = self._moved(pointers, cut.axis, first)

        def size(axis: GemmAxis) -> str:
            return parts[id(axis)][1] if id(axis) in parts else str(axis.size)

        plan = self.plan
        block = _Block(pointers, size(plan.rows), size(plan.lane), str(plan.terms[-1].size if plan.terms else 1),
                       alone=str(int(plan.alone)))
        self._each([(a, size(a)) for a in plan.outer], self._beside, block, self._nest())
        if self.epilogue:
            axes = sorted((a for a in plan.result_axes if a.size > 1), key=lambda a: -a.steps[RESULT])
            self.joined.finish(t, self.epilogue, [(a.size, *parts.get(id(a), ("0", str(a.size)))) for a in axes])

    # --- loops

    def _nest(self) -> _Body:
        """The loops around a tile, outermost first: those whose operand is read again and again from a cache are inside."""
        plan = self.plan
        if plan.along:
            loops: list[Callable[..., None]] = [self._blocks_of_rows]
        elif plan.by_panels:
            packs = [self._packed_rows] if plan.spread_panels else []
            groups = [self._converted_rows] if plan.converts_rows else []
            loops = [self._blocks_of_terms, *packs, self._strips, *groups, self._blocks_of_lanes, self._blocks_of_rows]
        elif plan.is_far:
            loops = [self._blocks_of_rows, self._blocks_of_terms, self._blocks_of_lanes]
        else:
            loops = [self._blocks_of_terms, self._blocks_of_rows, self._blocks_of_lanes]
        body: _Body = self._sums_along if plan.along else self._tile
        for loop in reversed(loops):
            body = partial(loop, then=body)
        return body

    def _each(self, axes: Sequence[tuple[GemmAxis, str]], step: _Step, block: _Block, then: _Body) -> None:
        """A loop over each axis, up to a size; `step` gives the block at an element."""
        if not axes:
            then(block)
            return
        (axis, size), *inner = axes
        self._loop(size, 1, lambda k: self._each(inner, step, step(block, axis, k), then))

    def _beside(self, block: _Block, axis: GemmAxis, k: str) -> _Block:
        """The block of other results, so many elements on."""
        return replace(block, pointers=self._moved(block.pointers, axis, k))

    def _later(self, block: _Block, axis: GemmAxis, k: str) -> _Block:
        """The block so many terms on: its sums are added to those of the terms before."""
        is_later = self.t.let(f"icmp ne i64 {k}, 0")
        added = self.t.let(f"or i1 {block.added}, {is_later}") if block.added else is_later
        return replace(self._beside(block, axis, k), added=added)

    def _blocks_of_terms(self, block: _Block, then: _Body) -> None:
        passes = [(axis, str(axis.size)) for axis in self.plan.passes]
        self._each(passes, self._later, block, partial(self._parts_of_terms, then=then))

    def _parts_of_terms(self, block: _Block, then: _Body) -> None:
        few = self.plan.at_once
        if not self.plan.terms or few == self.plan.terms[-1].size:
            then(block)
            return
        t, (axis,) = self.t, self.plan.terms

        def some(k: str) -> None:
            count = str(few) if axis.size % few == 0 else least(t, t.let(f"sub i64 {axis.size}, {k}"), str(few))
            at = replace(self._later(block, axis, k), terms=count)
            if self.plan.alone:
                is_last = t.let(f"icmp eq i64 {t.let(f'add i64 {k}, {count}')}, {axis.size}")
                at = replace(at, alone=t.let(f"zext i1 {is_last} to i64"))
            then(at)

        self._loop(block.terms, few, some)

    def _blocks_of_rows(self, block: _Block, then: _Body) -> None:
        self._blocks(block.rows, self.height, self.rows, lambda k, size: then(
            replace(block, pointers=self._moved(block.pointers, self.rows, k, block.packed), rows=str(size))))

    def _blocks_of_lanes(self, block: _Block, then: _Body) -> None:
        self._blocks(block.lanes, self.width, self.lane, lambda k, size: then(
            replace(block, pointers=self._moved(block.pointers, self.lane, k, block.packed), lanes=str(size))))

    def _strips(self, block: _Block, then: _Body) -> None:
        """Some panels of the operand along the lanes: packed."""
        self._some(block, block.lanes, STRIP * self.width, self.plan.lane, lambda at, few: self._pack(
            self.plan.vector, self.width, "%strip", replace(at, lanes=few), few, then))

    def _some(self, block: _Block, size: str, each: int, axis: GemmAxis, body: Callable[[_Block, str], None]) -> None:
        """The body for up to so many elements of an axis at a time, of which there are `size`."""
        t = self.t

        def some(k: str) -> None:
            is_static = size.isdigit() and int(size) % each == 0
            few = str(each) if is_static else least(t, t.let(f"sub i64 {size}, {k}"), str(each))
            body(replace(block, pointers=self._moved(block.pointers, axis, k, block.packed)), few)

        if size.isdigit() and int(size) <= each:
            body(block, size)
        else:
            self._loop(size, each, some)

    def _packed_rows(self, block: _Block, then: _Body) -> None:
        """All rows of the other operand, packed."""
        self._pack(self.plan.spread, self.height, "%scratch", block, block.rows, then)

    def _converted_rows(self, block: _Block, then: _Body) -> None:
        """Some rows of it, converted: one panel."""
        self._some(block, block.rows, self.group, self.plan.rows, lambda at, few: self._pack(
            self.plan.spread, self.group, "%rows", replace(at, rows=few), few, then))

    def _pack(self, side: int, width: int, into: str, block: _Block, length: str, then: _Body) -> None:
        """So many elements along the axis of an operand in panels of a width, which are read instead."""
        plan = self.plan
        axis, last = plan.lane if side == plan.vector else plan.rows, plan.terms[-1].size
        rests = {last % plan.at_once, plan.at_once if last > plan.at_once else last}
        panels = Panels(self.elements[side], width, axis.steps[side], tuple(a.steps[side] for a in plan.terms),
                        plan.alone or any(n % block_lanes(self.lanes, self.dtype) for n in rests), plan.apart[side], plan.alone)
        name = f"panels{side}"
        if not any(f"@{name}(" in text for text in self.packers):
            self.packers.append(panels.function(name, self.lanes, self.t.declarations))
        given = length, width * (plan.depth + 1), block.alone, *self._counts(block)
        numbers = "".join(f", i64 {n}" for n in given)
        self.t.line(f"call void @{name}(ptr {into}, ptr {block.pointers[side]}{numbers})")
        pointers = tuple(into if k == side else p for k, p in enumerate(block.pointers))
        then(replace(block, pointers=pointers, packed=block.packed | {side}))

    def _counts(self, block: _Block) -> list[str]:
        """How many terms there are along each axis."""
        return [*(str(a.size) for a in self.plan.terms[:-1]), block.terms][: len(self.plan.terms)]

    def _blocks(self, size: str, each: int, axis: GemmAxis, body: Callable[[str, int], None]) -> None:
        """Blocks of `each` elements of an axis, of which there are `size`, and what is left: as much as of the whole axis."""
        t, rest = self.t, axis.size % each
        if size.isdigit():
            whole, rest = str(int(size) - int(size) % each), int(size) % each
        else:
            whole = t.let(f"sub i64 {size}, {t.let(f'urem i64 {size}, {each}')}")
        if whole != "0":
            self._loop(whole, each, lambda k: body(k, each))
        if rest and size.isdigit():
            body(whole, rest)
        elif rest:
            branch(t, t.let(f"icmp sgt i64 {size}, {whole}"), lambda: body(whole, rest))

    def _loop(self, size: str, each: int, body: Callable[[str], None]) -> None:
        if size.isdigit() and int(size) <= each:
            body("0")
        else:
            self.t.rows("0", size, body, each)

    # --- tiles

    def _tile(self, block: _Block) -> None:
        """Some vectors of some rows of the result."""
        t, plan, height, lanes = self.t, self.plan, int(block.rows), int(block.lanes)
        rest = lanes % self.lanes
        tile = Tile(height, -(-lanes // self.lanes), 0 if plan.by_panels else rest)
        step = 1 if plan.spread_panels else self.rows.steps[plan.spread]
        spread = TileOperand(tuple(r * step for r in range(height)), 0, spread=True)
        vector = TileOperand((0,) * height, self.lanes, spread=False)
        sums = self._summed(block, tile, (spread, vector), (plan.spread, plan.vector), self._counts(block), [])
        counts = [*[self.lanes] * (lanes // self.lanes), *[rest] * (rest > 0)]
        row = plan.rows.steps[RESULT]
        found = [(x, t.address(block.pointers[RESULT], str(r * row + v * self.lanes), self.dtype), n, tile.lanes(v, self.lanes))
                 for r, values in enumerate(sums) for v, (x, n) in enumerate(zip(values, counts, strict=True))]

        def put(distance: str) -> None:
            for x, at, n, width in found:
                self._put(x, at, n, width, distance)

        if block.added:
            branch(t, block.added, lambda: put("0"), lambda: put(self.addend))
        else:
            put(self.addend)

    def _sums_along(self, block: _Block) -> None:
        """One element of each row, the registers along the terms."""
        t, plan, height = self.t, self.plan, int(block.rows)
        whole, rest = divmod(plan.lane.size, self.lanes)
        counts, pointers, totals = self._counts(block), block.pointers, ["0.0"] * height
        left, right = (TileOperand(tuple(r * step for r in range(height)), 0, spread=False) for step in plan.rows.steps[:RESULT])
        blocks = PointerLoop(str(whole), (str(self.lanes),) * 2)
        for tile, loops in [(Tile(height, 1), [blocks])] * (whole > 0) + [(Tile(height, 1, rest), [])] * (rest > 0):
            sums = self._summed(replace(block, pointers=pointers), tile, (left, right), (LEFT, RIGHT), counts, loops)
            with t.narrowed(tile.lanes(0, self.lanes)):
                totals = [t.total(start, total) for start, (total,) in zip(totals, sums, strict=True)]
            pointers = tuple(t.address(p, str(whole * self.lanes), self.dtype) for p in pointers[:RESULT])
        for r, total in enumerate(totals):
            at = t.address(block.pointers[RESULT], str(r * plan.rows.steps[RESULT]), self.dtype)
            self._put(VectorValue(total, self.dtype), at, 1, 1, self.addend)

    def _put(self, x: VectorValue, at: str, lanes: int, width: int, distance: str) -> None:
        """Stores the first lanes of a sum of that width, times the factor, added to what lies so many bytes behind it, if any."""
        t, plan = self.t, self.plan
        with t.narrowed(width):
            if plan.scale != 1.0:
                x = t.binary("fmul", x, t.splat(plan.scale, self.dtype))
            if distance:
                x = t.binary("add" if plan.pairs else "fadd", t.load_first(t.behind(at, distance), self.dtype, lanes), x)
            t.store_first(x, at, lanes)

    def _summed(self, block: _Block, tile: Tile, operands: tuple[TileOperand, TileOperand], sides: tuple[int, int],
                counts: Sequence[str], loops: Sequence[PointerLoop]) -> Tiles:
        """The sums of a tile over all terms, and over the loops within."""
        steps = [self._term_steps(side) for side in sides]
        terms = [PointerLoop(n, (str(x), str(y))) for n, x, y in zip(counts, *steps, strict=True)]
        x, y = (block.pointers[side] for side in sides)
        return accumulate(self.t, self.dtype, tile, operands, (x, y), [*terms, *loops], [(0, 0)])

    def _term_steps(self, side: int) -> list[int]:
        """From one term to the next along each axis."""
        if side not in self.packed:
            return [a.steps[side] for a in self.plan.terms]
        found, step = list[int](), self.packed[side]
        for axis in reversed(self.plan.terms):
            found.insert(0, step)
            step *= axis.size
        return found

    # --- addresses

    def _moved(self, pointers: tuple[str, ...], axis: GemmAxis, index: str, packed: Container[int] = ()) -> tuple[str, ...]:
        """The addresses so many elements of an axis on, of panels for the operands that are packed."""
        return tuple(self.t.moved(p, self.dtype if side in packed else self.elements[side].source, (index, step))
                     for side, (p, step) in enumerate(zip(pointers, axis.steps, strict=True)))


def _along(axis: GemmAxis, side: int, step: int) -> GemmAxis:
    """The axis of an operand in panels."""
    return replace(axis, steps=tuple(step if k == side else s for k, s in enumerate(axis.steps)))  # type: ignore[arg-type]
