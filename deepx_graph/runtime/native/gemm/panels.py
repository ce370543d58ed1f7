"""Packing: panels of an operand, in the order in which tiles read them.

A panel has `width` neighbours along one axis of an operand: a row of them for each term. Nothing outside the operand is read but by
fetching lines ahead; what a row lacks is arbitrary, and ends in sums that are not stored. Elements that become pairs are terms of
one neighbour, the last of which may have no second one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from deepx_graph.runtime.native.gemm.elements import PanelElements
from deepx_graph.runtime.native.gemm.microkernel import transposed_strip
from deepx_graph.runtime.native.llvm.builder import IRBuilder, VectorValue, below, branch, least, memory_type
from deepx_graph.runtime.native.llvm.transpose import block_lanes

FEW = 4
"""What is left of a row is converted so many elements at a time."""

AHEAD = 4
"""How many rows are fetched before they are copied."""


@dataclass(frozen=True)
class Panels:
    """How panels are packed: `step` is from one neighbour to the next in the operand, `terms` are those from one term to the next
    along each axis, outermost first. `has_rest`: whether there are numbers of terms, along the last, that are not whole strips.
    `apart` is from the first to the second element of a pair; whether a last one may be `alone`."""

    elements: PanelElements
    width: int
    step: int
    terms: tuple[int, ...]
    has_rest: bool = True
    apart: int = 0
    alone: bool = False

    def function(self, name: str, lanes: int, declarations: dict[str, None]) -> str:
        """The text of `name(target, source, length, distance, alone, numbers of terms...)`: packs so many neighbours, in panels
        that begin `distance` elements apart; `alone` is 1 where the last pair is one element, else 0. It adds what it calls to the
        declarations."""
        packer = _Packer(self, lanes)
        packer.t.declarations = declarations
        return packer.text(name)


class _Packer:
    """Writes the function."""

    def __init__(self, panels: Panels, lanes: int) -> None:
        self.panels, self.width, self.t = panels, panels.width, IRBuilder(lanes)
        self.elements, self.dtype, self.source = panels.elements, panels.elements.dtype, panels.elements.source
        self.is_changed = self.elements.type is not None
        self.lies_along = panels.step == 1
        self.lies_across = panels.terms[-1] == (self.elements.each if panels.apart == 1 else 1)
        self.is_alone = False
        """Whether what is written is the last pair, which has one element."""

    def text(self, name: str) -> str:
        """The whole function."""
        p, t = self.panels, self.t
        if self.lies_across and not self.lies_along:
            self._vectors("%source", "%target", self._transposed)
        else:
            each = self._copied if self.lies_along else self._picked
            self._terms(len(p.terms), "%source", lambda source, row: self._vectors(
                source, self._at_element("%target", row, self.width), each))
        counts = "".join(f", i64 %count{k}" for k in range(len(p.terms)))
        head = f"void @{name}(ptr %target, ptr %source, i64 %length, i64 %distance, i64 %alone{counts})"
        return t.function(f"internal {head} noinline nounwind")

    def _terms(self, axes: int, source: str, body: Callable[[str, str], object], depth: int = 0, row: str = "0") -> None:
        """The body for each term of the first so many axes: where it begins in the operand, and its number."""
        if depth == axes:
            body(source, row)
            return
        t, step = self.t, self.panels.terms[depth]
        before = t.let(f"mul i64 {row}, %count{depth}")
        self._each(f"%count{depth}", depth == len(self.panels.terms) - 1, lambda k: self._terms(
            axes, self._at(source, k, step), body, depth + 1, t.let(f"add i64 {before}, {k}")))

    def _each(self, count: str, has_alone: bool, body: Callable[[str], object], low: str = "0") -> None:
        """The body for each index below a count; the last is apart, where pairs lie along it, as that may be one element."""
        t = self.t
        if not (has_alone and self.panels.alone):
            t.rows(low, count, body)
            return
        whole = t.let(f"sub i64 {count}, %alone")
        t.rows(low, whole, body)
        self.is_alone = True
        branch(t, t.let("icmp ne i64 %alone, 0"), lambda: body(whole))
        self.is_alone = False

    def _vectors(self, source: str, target: str, body: Callable[[str, str, int, str], object]) -> None:
        """The body for each vector of all panels: where it begins in the operand and in its panel, for how many lanes there is room
        in the panel, and how many elements there are from there on."""
        t = self.t
        each = self.width if self.width % t.lanes else t.lanes
        pieces = [(v, min(t.lanes, each - v)) for v in range(0, each, t.lanes)]

        def vectors(first: str) -> None:
            begin = self._at_element(target, t.let(f"udiv i64 {first}, {self.width}"), "%distance")
            begin = self._at_element(begin, t.let(f"urem i64 {first}, {self.width}"), 1)
            for v, lanes in pieces:
                at = t.let(f"add i64 {first}, {v}") if v else first
                some = t.let(f"sub i64 %length, {at}")
                source_, into = self._at(source, at, self.panels.step), t.address(begin, str(v), self.dtype)
                if v:
                    branch(t, t.let(f"icmp sgt i64 {some}, 0"), partial(body, source_, into, lanes, some))
                else:
                    body(source_, into, lanes, some)

        t.rows("0", "%length", vectors, each)

    def _copied(self, source: str, target: str, lanes: int, some: str) -> None:
        """A vector of neighbours that lie side by side."""
        t = self.t
        t.fetch([source], AHEAD * self.panels.terms[-1] * self.source.itemsize)
        branch(t, t.let(f"icmp sge i64 {some}, {lanes}"), lambda: t.store_first(self._read(source, lanes), target, lanes),
               lambda: self._picked(source, target, lanes, some) if self.is_changed else
               t.store_first(t.load(source, self.dtype, below(t, some)), target, lanes))

    def _read(self, source: str, lanes: int) -> VectorValue:
        """So many elements of panels of what lies side by side."""
        t, elements = self.t, self.elements
        low = t.load_first(source, self.source, lanes)
        if elements.each == 1:
            return elements.made(t, low)
        return elements.paired(t, low, None if self.is_alone else t.load_first(self._second(source), self.source, lanes))

    def _second(self, source: str) -> str:
        """The address of the second element of a pair."""
        return self.t.address(source, str(self.panels.apart), self.source)

    def _picked(self, source: str, target: str, lanes: int, some: str) -> None:
        """A vector element by element."""
        t = self.t

        def lane(k: str) -> None:
            at = self._at(source, k, self.panels.step)
            other = self._second(at) if self.elements.each == 2 and not self.is_alone else None
            type, to = memory_type(self.dtype), t.address(target, k, self.dtype)
            t.line(f"store {type} {self.elements.one(t, at, other)}, ptr {to}, align {self.dtype.itemsize}")

        count, done = least(t, some, str(lanes)), "0"
        if self.lies_along and lanes > FEW:
            done = t.let(f"and i64 {count}, {-FEW}")
            with t.narrowed(FEW):
                t.rows("0", done, lambda k: t.store_first(
                    self._read(self._at(source, k, self.panels.step), FEW), t.address(target, k, self.dtype), FEW), FEW)
        t.rows(done, count, lane)

    def _transposed(self, source: str, target: str, lanes: int, some: str) -> None:
        """A vector for each of many terms, whose elements are neighbours: strips of a block of terms are transposed."""
        t, block = self.t, block_lanes(self.t.lanes, self.dtype)
        last = t.let(f"sub i64 {least(t, some, str(lanes))}, 1")
        columns = [t.let(f"mul i64 {least(t, str(min(k, lanes - 1)), last)}, {self.panels.step}") for k in range(t.lanes)]
        count = f"%count{len(self.panels.terms) - 1}"
        pairs, each = t.let(f"sub i64 {count}, %alone") if self.panels.alone else count, self.elements.each
        whole = t.let(f"and i64 {pairs}, {-block}")

        def terms(source: str, row: str) -> None:
            into = self._at_element(target, t.let(f"mul i64 {row}, {count}"), self.width)

            def strip(k: str) -> None:
                read = [self._at(t.address(source, c, self.source), k, each) for c in columns]
                for j, x in enumerate(transposed_strip(t, read, self.elements)):
                    t.store_first(x, self._at_element(into, t.let(f"add i64 {k}, {j}"), self.width), lanes)

            t.rows("0", whole, strip, block)
            if self.panels.has_rest:
                self._each(count, True, lambda k: self._picked(
                    self._at(source, k, each), self._at_element(into, k, self.width), lanes, some), whole)

        self._terms(len(self.panels.terms) - 1, source, terms)

    def _at(self, pointer: str, index: str, step: int | str) -> str:
        return self.t.moved(pointer, self.source, (index, step))

    def _at_element(self, pointer: str, index: str, step: int | str) -> str:
        return self.t.moved(pointer, self.dtype, (index, step))
