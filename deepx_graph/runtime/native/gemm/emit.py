"""A matrix product as LLVM IR: loops around a tile in registers, and around shares of the result.

`product(table, scratch)`, or `product(table, counter, scratch)` where there are shares: these are taken from the counter, by
several threads at once perhaps. What the product is added to comes before the result, which may lie over it. Panels of the operand
that lies along the lanes are on the stack, those of the other one in scratch memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from deepx_graph.runtime.native.gemm.microkernel import PointerLoop, Tile, TileOperand, Tiles, accumulate, block_lanes
from deepx_graph.runtime.native.gemm.panels import Panels
from deepx_graph.runtime.native.gemm.plan import LEFT, RESULT, RIGHT, GemmAxis, GemmPlan
from deepx_graph.runtime.native.gemm.shares import STRIP, ShareAxis
from deepx_graph.runtime.native.joined import JoinedOperands
from deepx_graph.runtime.native.llvm.builder import IRBuilder, branch, digit, each_share, least, scalar_type


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


_Body = Callable[[_Block], None]


class _Writer:
    """Writes the function of a product."""

    def __init__(self, plan: GemmPlan, cuts: Sequence[ShareAxis], joined: JoinedOperands) -> None:
        self.plan, self.cuts, self.joined, self.dtype, self.lanes = plan, cuts, joined, plan.dtype, plan.lanes
        self.height, self.width = plan.tile.rows, plan.tile.vectors * plan.lanes
        self.t, self.packers = IRBuilder(plan.lanes), list[str]()
        self.packed = {plan.vector: self.width} if plan.by_panels else {}
        if plan.spread_panels:
            self.packed[plan.spread] = self.height
        # a row of terms more in each panel: they do not fall on the same lines of the cache
        self.rows, self.lane = plan.rows, plan.lane
        if plan.spread in self.packed:
            self.rows = _along(plan.rows, plan.spread, plan.depth + 1)
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
        block = _Block(pointers, size(plan.rows), size(plan.lane), str(plan.terms[-1].size if plan.terms else 1))
        self._outer([(a, size(a)) for a in plan.outer], block, self._nest())
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
            loops = [self._blocks_of_terms, *packs, self._strips, self._blocks_of_lanes, self._blocks_of_rows]
        elif plan.is_far:
            loops = [self._blocks_of_rows, self._blocks_of_terms, self._blocks_of_lanes]
        else:
            loops = [self._blocks_of_terms, self._blocks_of_rows, self._blocks_of_lanes]
        body: _Body = self._sums_along if plan.along else self._tile
        for loop in reversed(loops):
            body = partial(loop, then=body)
        return body

    def _outer(self, axes: Sequence[tuple[GemmAxis, str]], block: _Block, then: _Body) -> None:
        if not axes:
            then(block)
            return
        (axis, size), *inner = axes
        self._loop(size, 1, lambda k: self._outer(inner, replace(block, pointers=self._moved(block.pointers, axis, k)), then))

    def _blocks_of_terms(self, block: _Block, then: _Body) -> None:
        few = self.plan.at_once
        if not self.plan.terms or few == self.plan.terms[-1].size:
            then(block)
            return
        t, (axis,) = self.t, self.plan.terms

        def some(k: str) -> None:
            count = str(few) if axis.size % few == 0 else least(t, t.let(f"sub i64 {axis.size}, {k}"), str(few))
            then(replace(block, pointers=self._moved(block.pointers, axis, k), terms=count, added=t.let(f"icmp ne i64 {k}, 0")))

        self._loop(block.terms, few, some)

    def _blocks_of_rows(self, block: _Block, then: _Body) -> None:
        self._blocks(block.rows, self.height, self.rows, lambda k, size: then(
            replace(block, pointers=self._moved(block.pointers, self.rows, k), rows=str(size))))

    def _blocks_of_lanes(self, block: _Block, then: _Body) -> None:
        self._blocks(block.lanes, self.width, self.lane, lambda k, size: then(
            replace(block, pointers=self._moved(block.pointers, self.lane, k), lanes=str(size))))

    def _strips(self, block: _Block, then: _Body) -> None:
        """Some panels of the operand along the lanes: packed."""
        t, axis, each = self.t, self.plan.lane, STRIP * self.width

        def strip(k: str) -> None:
            is_static = block.lanes.isdigit() and int(block.lanes) % each == 0
            few = str(each) if is_static else least(t, t.let(f"sub i64 {block.lanes}, {k}"), str(each))
            at = replace(block, pointers=self._moved(block.pointers, axis, k), lanes=few)
            self._pack(self.plan.vector, "%strip", at, few, then)

        if block.lanes.isdigit() and int(block.lanes) <= each:
            self._pack(self.plan.vector, "%strip", block, block.lanes, then)
        else:
            self._loop(block.lanes, each, strip)

    def _packed_rows(self, block: _Block, then: _Body) -> None:
        """All rows of the other operand, packed."""
        self._pack(self.plan.spread, "%scratch", block, block.rows, then)

    def _pack(self, side: int, into: str, block: _Block, length: str, then: _Body) -> None:
        """So many elements along the axis of an operand in panels, which are read instead."""
        plan, width = self.plan, self.packed[side]
        axis, last = plan.lane if side == plan.vector else plan.rows, plan.terms[-1].size
        rests = {last % plan.at_once, plan.at_once if last > plan.at_once else last}
        panels = Panels(self.dtype, width, axis.steps[side], tuple(a.steps[side] for a in plan.terms),
                        any(n % block_lanes(self.lanes, self.dtype) for n in rests))
        name = f"panels{side}"
        if not any(f"@{name}(" in text for text in self.packers):
            self.packers.append(panels.function(name, self.lanes, self.t.declarations))
        counts = "".join(f", i64 {n}" for n in self._counts(block))
        given = f"ptr {into}, ptr {block.pointers[side]}, i64 {length}, i64 {width * (plan.depth + 1)}{counts}"
        self.t.line(f"call void @{name}({given})")
        then(replace(block, pointers=tuple(into if k == side else p for k, p in enumerate(block.pointers))))

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
        step = 1 if plan.spread in self.packed else plan.rows.steps[plan.spread]
        spread = TileOperand(tuple(r * step for r in range(height)), 0, spread=True)
        vector = TileOperand((0,) * height, self.lanes, spread=False)
        sums = self._summed(block, tile, (spread, vector), (plan.spread, plan.vector), self._counts(block), [])
        counts = [*[self.lanes] * (lanes // self.lanes), *[rest] * (rest > 0)]
        row = plan.rows.steps[RESULT]
        found = [(x, t.address(block.pointers[RESULT], str(r * row + v * self.lanes), self.dtype), n, tile.lanes(v, self.lanes))
                 for r, values in enumerate(sums) for v, (x, n) in enumerate(zip(values, counts, strict=True))]

        def put(distance: str) -> None:
            for x, at, n, width in found:
                with t.narrowed(width):
                    if distance:
                        t.store_first(t.binary("fadd", t.load_first(t.behind(at, distance), self.dtype, n), x), at, n)
                    else:
                        t.store_first(x, at, n)

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
            kind, align = scalar_type(self.dtype), self.dtype.itemsize
            if self.addend:
                before = t.let(f"load {kind}, ptr {t.behind(at, self.addend)}, align {align}")
                total = t.let(f"fadd {kind} {before}, {total}")
            t.line(f"store {kind} {total}, ptr {at}, align {align}")

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

    def _moved(self, pointers: tuple[str, ...], axis: GemmAxis, index: str) -> tuple[str, ...]:
        """The addresses so many elements of an axis on."""
        return tuple(self.t.moved(p, self.dtype, (index, step)) for p, step in zip(pointers, axis.steps, strict=True))


def _along(axis: GemmAxis, side: int, step: int) -> GemmAxis:
    """The axis of an operand in panels."""
    return replace(axis, steps=tuple(step if k == side else s for k, s in enumerate(axis.steps)))  # type: ignore[arg-type]
