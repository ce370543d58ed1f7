"""Folds of much become many of little, which threads share, and one of their totals: strip-mining of reductions.

    cell = 0                            for s in 0 .. n / STRIP:
    for k in 0 .. n:             ->       part = 0
      cell = cell + x[k]                  for k in 0 .. STRIP: part = part + x[STRIP * s + k]
                                          t[s] = part
                                        cell = 0
                                        for s in 0 .. n / STRIP: cell = cell + t[s]

The strips depend on sizes alone, so a sum does not depend on the number of threads. Loops over the same elements are cut
likewise, so that they can be fused with the strips.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from deepx_graph.loops.passes.flatten_loops import LONG_ROW, flattened
from deepx_graph.loops.passes.rewrite import Copier, Fresh
from deepx_graph.loops.program import (
    Buffer,
    Cell,
    Combine,
    For,
    Get,
    Let,
    Load,
    LoopProgram,
    Set,
    Statement,
    Store,
    free,
    position_in,
    reads,
    walk,
)
from deepx_graph.loops.scalar import Affine, Scalar, ScalarVar, affine, identity
from deepx_graph.types import F32, F64, I64

STRIP = 4096
"""The elements of a strip: so many floats are added up in their own precision."""


def split_folds(program: LoopProgram) -> LoopProgram:
    """The program with folds in strips, in place."""
    split = _Splitting(program)
    body = [each for s in program.body for each in split.statement(s)]
    split.strips = [found for s in body for found in _strips_of(s)]
    program.body = [split.in_strips(s) for s in reversed(body)][::-1]  # those that read what others store come first
    program.scratch = (*program.scratch, *split.scratch)
    return program


class _Splitting:
    def __init__(self, program: LoopProgram) -> None:
        self.fresh = Fresh(program)
        self.scratch: list[Buffer] = []
        self.cut: dict[int, set[Buffer]] = {}
        """What strips of folds of so many elements read, and what loops touch that are cut likewise."""
        self.strips: list[tuple[For, For, set[Buffer]]] = []
        """Loops over strips of rows and over the rows, with the buffers of which these are rows."""

    def statement(self, s: Statement) -> Iterator[Statement]:
        """A statement of the top level, after the strips of the folds in it."""
        if isinstance(s, For) and s.parallel and s.high - s.low == Affine((), 1):
            for k, each in enumerate(s.body):
                if isinstance(each, For) and {x for x in free(each) if isinstance(x, ScalarVar)} <= {s.axis}:
                    (loop,) = Copier(self.fresh, {s.axis: s.low}).statement(each)
                    if isinstance(loop, For) and (fold := self._fold(loop)) is not None:
                        strips, s.body[k] = self._split(*fold)
                        yield strips
        yield s

    def _fold(self, loop: For) -> tuple[For, int, int] | None:
        """A loop that only combines elements into cells, the iterations of a strip, and the elements of each; None for one that is
        not split."""
        loop = flattened(loop, self.fresh) or loop
        if loop.parallel or loop.low != Affine() or loop.high.terms or not _only_combines(loop):
            return None
        inner = loop.body[0] if len(loop.body) == 1 else None
        row = 1
        while isinstance(inner, For):
            if (inner.high - inner.low).terms:
                return None
            row *= (inner.high - inner.low).constant
            inner = inner.body[0] if len(inner.body) == 1 else None
        strip = 1 if row >= LONG_ROW else max(1, STRIP // max(1, row))
        if loop.high.constant * row < 2 * STRIP or row > 4 * STRIP or loop.high.constant < 2 * strip:
            return None
        return loop, strip, row

    def _split(self, loop: For, strip: int, row: int) -> tuple[For, For]:
        """The loop over strips, and that over their totals."""
        n, fresh = loop.high.constant, self.fresh
        count = -(-n // strip)
        if strip > 1:
            self.cut.setdefault(n, set()).update(s.buffer for s in walk(loop.body) if isinstance(s, Load))
        s, t = fresh.var(I64, 0, count - 1), fresh.var(I64, 0, count - 1)
        combines = {c.cell: c for c in walk(loop.body) if isinstance(c, Combine)}
        body: list[Statement] = []
        cells: dict[Cell, Cell] = {}
        shorter = _in_own_precision(loop) if strip * row <= STRIP else frozenset()
        for cell, combine in combines.items():
            cells[cell] = part = fresh.cell(F32 if cell in shorter else cell.dtype)
            start = identity(combine.primitive, part.dtype)
            assert start is not None
            body.append(Set(part, start))
        body += self._strip(loop, affine(s), strip, cells)
        totals: list[Statement] = []
        for cell, part in cells.items():
            buffer = fresh.buffer(part.dtype, (count,), "scratch")
            self.scratch.append(buffer)
            value, found = fresh.var(part.dtype), fresh.var(part.dtype)
            body += [Get(value, part), Store(buffer, (affine(s),), value)]
            totals.append(Load(found, buffer, (affine(t),)))
            if part.dtype is not cell.dtype:
                wide = fresh.var(cell.dtype)
                totals.append(Let(wide, "cast", (found,)))
                found = wide
            totals.append(Combine(cell, combines[cell].primitive, found))
        return (For(s, Affine(), Affine((), count), body, parallel=True), For(t, Affine(), Affine((), count), totals))

    def _strip(self, loop: For, s: Affine, strip: int, cells: dict[Cell, Cell]) -> list[Statement]:
        """What is done for a strip."""
        n, fresh = loop.high.constant, self.fresh
        if strip == 1:
            return _Parts(fresh, {loop.axis: s}, cells).block(loop.body)
        k = fresh.var(I64, 0, strip - 1)
        before: list[Statement] = []
        high = Affine((), strip)
        if n % strip:
            rest = fresh.var(I64, n % strip, strip)
            before.append(Let(rest, "min", (Affine((), n) - s * strip, high)))
            high = affine(rest)
        body = _Parts(fresh, {loop.axis: s * strip + affine(k)}, cells).block(loop.body)
        return [*before, For(k, Affine(), high, body, loop.parallel)]

    def in_strips(self, s: Statement) -> Statement:
        """A loop over elements that strips of folds read, or in whose strips they could be at hand, in strips as well."""
        if not isinstance(s, For) or not s.parallel or s.low != Affine() or s.high.terms:
            return s
        if any(isinstance(e, For) for e in walk(s.body)):
            return self._rows_in_strips(s)
        n = s.high.constant
        touched = {e.buffer for e in walk(s.body) if isinstance(e, (Load, Store))}
        if n not in self.cut or touched.isdisjoint(self.cut[n]):
            return s
        self.cut[n] |= touched
        count = -(-n // STRIP)
        axis = self.fresh.var(I64, 0, count - 1)
        return For(axis, Affine(), Affine((), count), self._strip(s, affine(axis), STRIP, {}), parallel=True)

    def _rows_in_strips(self, s: For) -> For:
        """A loop over rows that is cut as a fold of the same rows is, so that both can be one."""
        n, touched = s.high.constant, {e.buffer for e in walk(s.body) if isinstance(e, (Load, Store))}
        for strips, rows, buffers in self.strips:
            size = rows.axis.high + 1  # type: ignore[operator]
            if strips.high.constant == -(-n // size) and n > size and not touched.isdisjoint(buffers):
                axis = self.fresh.var(I64, 0, strips.high.constant - 1)
                return For(axis, Affine(), strips.high, self._strip(s, affine(axis), size, {}), parallel=True)
        return s


def _strips_of(s: Statement) -> Iterator[tuple[For, For, set[Buffer]]]:
    """A loop over strips of rows, the one over the rows of each, and the buffers of which they are rows."""
    if not isinstance(s, For) or not s.parallel or s.high.terms:
        return
    for rows in s.body:
        if isinstance(rows, For) and rows.low == Affine() and rows.axis.high is not None and not rows.parallel:
            strip = rows.axis.high + 1
            loads = [(e.buffer, position_in(e.buffer, e.index)) for e in walk(rows.body) if isinstance(e, Load)]
            found = {b for b, at in loads if 0 < at.stride(rows.axis) * strip == at.stride(s.axis)}
            if found:
                yield s, rows, found


@dataclass(eq=False)
class _Parts(Copier):
    """Copies statements of a fold; the cells may be of less precision."""

    narrow: dict[ScalarVar, Scalar] = field(default_factory=dict)
    """What has been cast to double precision."""

    def statement(self, s: Statement) -> Iterator[Statement]:
        if isinstance(s, Combine) and s.cell in self.cells and self.cells[s.cell].dtype is not s.cell.dtype:
            assert isinstance(s.value, ScalarVar)
            yield Combine(self.cells[s.cell], s.primitive, self.narrow[s.value])
            return
        if isinstance(s, Let) and s.primitive == "cast" and s.target.dtype is F64 and s.args[0].dtype is F32:
            self.narrow[s.target] = self.scalar(s.args[0])
        yield from super().statement(s)


def _only_combines(loop: For) -> bool:
    """Whether a loop does nothing but combine elements, in any order."""
    statements = list(walk(loop.body))
    if not all(isinstance(s, (Let, Load, Combine, For)) for s in statements):
        return False
    cells = {s.cell: s.primitive for s in statements if isinstance(s, Combine)}
    return bool(cells) and all(
        not isinstance(s, Combine) or (cells[s.cell] == s.primitive and identity(s.primitive, s.cell.dtype) is not None)
        for s in statements) and not any(isinstance(x, Cell) for s in statements if not isinstance(s, Combine) for x in reads(s))


def _in_own_precision(loop: For) -> frozenset[Cell]:
    """The cells of double precision that take elements of single precision only."""
    casts = {s.target for s in walk(loop.body) if isinstance(s, Let) and s.primitive == "cast" and s.args[0].dtype is F32}
    wide = [c for c in walk(loop.body) if isinstance(c, Combine) and c.cell.dtype is F64]
    others = {c.cell for c in wide if c.value not in casts}
    return frozenset(c.cell for c in wide) - others
