"""Packing: panels of an operand, in the order in which tiles read them.

A panel has `width` neighbours along one axis of an operand: a row of them for each term. Nothing outside the operand is read but by
fetching lines ahead; what a row lacks is arbitrary, and ends in sums that are not stored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from deepx_graph.runtime.native.gemm.microkernel import block_lanes, transposed_strip
from deepx_graph.runtime.native.llvm.builder import DType, IRBuilder, below, branch, least, memory_type

AHEAD = 4
"""How many rows are fetched before they are copied."""


@dataclass(frozen=True)
class Panels:
    """How panels are packed: `step` is from one neighbour to the next in the operand, `terms` are those from one term to the next
    along each axis, outermost first. `has_rest`: whether there are numbers of terms, along the last, that are not whole strips."""

    dtype: DType
    width: int
    step: int
    terms: tuple[int, ...]
    has_rest: bool = True

    def function(self, name: str, lanes: int, declarations: dict[str, None]) -> str:
        """The text of `name(target, source, length, distance, numbers of terms...)`: packs so many neighbours, in panels that begin
        `distance` elements apart. It adds what it calls to the declarations."""
        packer = _Packer(self, lanes)
        packer.t.declarations = declarations
        return packer.text(name)


class _Packer:
    """Writes the function."""

    def __init__(self, panels: Panels, lanes: int) -> None:
        self.panels, self.dtype, self.width, self.t = panels, panels.dtype, panels.width, IRBuilder(lanes)

    def text(self, name: str) -> str:
        """The whole function."""
        p, t = self.panels, self.t
        if p.step != 1 and p.terms[-1] == 1:
            self._vectors("%source", "%target", self._transposed)
        else:
            each = self._copied if p.step == 1 else self._picked
            self._terms(len(p.terms), "%source", lambda source, row: self._vectors(
                source, self._at("%target", row, self.width), each))
        counts = "".join(f", i64 %count{k}" for k in range(len(p.terms)))
        head = f"internal void @{name}(ptr %target, ptr %source, i64 %length, i64 %distance{counts}) noinline nounwind"
        return t.function(head)

    def _terms(self, axes: int, source: str, body: Callable[[str, str], object], depth: int = 0, row: str = "0") -> None:
        """The body for each term of the first so many axes: where it begins in the operand, and its number."""
        if depth == axes:
            body(source, row)
            return
        t, step = self.t, self.panels.terms[depth]
        before = t.let(f"mul i64 {row}, %count{depth}")
        t.rows("0", f"%count{depth}", lambda k: self._terms(
            axes, self._at(source, k, step), body, depth + 1, t.let(f"add i64 {before}, {k}")))

    def _vectors(self, source: str, target: str, body: Callable[[str, str, int, str], object]) -> None:
        """The body for each vector of all panels: where it begins in the operand and in its panel, for how many lanes there is room
        in the panel, and how many elements there are from there on."""
        t = self.t
        each = self.width if self.width % t.lanes else t.lanes
        pieces = [(v, min(t.lanes, each - v)) for v in range(0, each, t.lanes)]

        def vectors(first: str) -> None:
            panel, within = t.let(f"udiv i64 {first}, {self.width}"), t.let(f"urem i64 {first}, {self.width}")
            begin = self._at(self._at(target, panel, "%distance"), within, 1)
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
        t.fetch([source], AHEAD * self.panels.terms[-1] * self.dtype.itemsize)
        branch(t, t.let(f"icmp sge i64 {some}, {lanes}"),
               lambda: t.store_first(t.load_first(source, self.dtype, lanes), target, lanes),
               lambda: t.store_first(t.load(source, self.dtype, below(t, some)), target, lanes))

    def _picked(self, source: str, target: str, lanes: int, some: str) -> None:
        """A vector element by element."""
        t, type, align = self.t, memory_type(self.dtype), self.dtype.itemsize

        def lane(k: str) -> None:
            one = t.let(f"load {type}, ptr {self._at(source, k, self.panels.step)}, align {align}")
            t.line(f"store {type} {one}, ptr {t.address(target, k, self.dtype)}, align {align}")

        t.rows("0", least(t, some, str(lanes)), lane)

    def _transposed(self, source: str, target: str, lanes: int, some: str) -> None:
        """A vector for each of many terms, whose elements are neighbours: strips of a block of terms are transposed."""
        t, block = self.t, block_lanes(self.t.lanes, self.dtype)
        last = t.let(f"sub i64 {least(t, some, str(lanes))}, 1")
        columns = [t.let(f"mul i64 {least(t, str(min(k, lanes - 1)), last)}, {self.panels.step}") for k in range(t.lanes)]
        count = f"%count{len(self.panels.terms) - 1}"
        whole = t.let(f"and i64 {count}, {-block}")

        def terms(source: str, row: str) -> None:
            into = self._at(target, t.let(f"mul i64 {row}, {count}"), self.width)

            def strip(k: str) -> None:
                read = [t.address(t.address(source, c, self.dtype), k, self.dtype) for c in columns]
                for j, x in enumerate(transposed_strip(t, read, self.dtype)):
                    t.store_first(x, self._at(into, t.let(f"add i64 {k}, {j}"), self.width), lanes)

            t.rows("0", whole, strip, block)
            if self.panels.has_rest:
                t.rows(whole, count, lambda k: self._picked(self._at(source, k, 1), self._at(into, k, self.width), lanes, some))

        self._terms(len(self.panels.terms) - 1, source, terms)

    def _at(self, pointer: str, index: str, step: int | str) -> str:
        return self.t.moved(pointer, self.dtype, (index, step))
