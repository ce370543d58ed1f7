"""Nests that go over memory from end to end become one loop, which has no short rows: loop flattening.

    for i in 0 .. n:                    for k in 0 .. n * m:
      for j in 0 .. m:           ->       y[k] = f(x[k])
        y[i, j] = f(x[i, j])

Short rows that read the same elements in each of them, as where a vector is added to all rows, read copies of these, which lie one
after the other, some rows at a time:

    for k in 0 .. r * m: t[k] = b[k % m]
    for s in 0 .. n / r:
      for k in 0 .. r * m: y[s * r * m + k] = f(x[s * r * m + k], t[k])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from deepx_graph.loops.passes.rewrite import Copier, Fresh
from deepx_graph.loops.program import (
    Buffer,
    Combine,
    For,
    Let,
    Load,
    LoopProgram,
    Statement,
    Store,
    blocks_of,
    position_in,
    reads,
    walk,
)
from deepx_graph.loops.scalar import Affine, Scalar, ScalarVar, affine
from deepx_graph.types import I64

LONG_ROW = 256
"""Rows of so many elements are long enough as they are."""


SHORT_ROW, MOST_REPEATED = 32, 1024
"""Rows of fewer elements may read copies of what each of them reads: so many elements together."""


def flatten_loops(program: LoopProgram) -> LoopProgram:
    """The program with nests that are flattened, in place."""
    flattening = _Flattening(Fresh(program), {s.buffer for s in walk(program.body) if isinstance(s, Store)})
    body = flattening.block(program.body)
    program.body = [*flattening.copying, *body]
    program.scratch = (*program.scratch, *flattening.repeated.values())
    return program


@dataclass(eq=False)
class _Flattening:
    fresh: Fresh
    stored: set[Buffer]
    repeated: dict[tuple[Buffer, int, int, int, int], Buffer] = field(default_factory=dict)
    """Copies of some elements of a buffer: from a position on, with a stride, of the elements of a row, for so many rows."""
    copying: list[Statement] = field(default_factory=list)

    def block(self, body: Sequence[Statement]) -> list[Statement]:
        found: list[Statement] = []
        for s in body:
            for block in blocks_of(s):
                block[:] = self.block(block)
            found.append((flattened(s, self.fresh) or self._with_repeated_rows(s) or s) if isinstance(s, For) else s)
        return found

    def _with_repeated_rows(self, loop: For) -> For | None:
        """A nest of short rows that is flat once what all of them read is repeated; None for another."""
        inner = loop.body[0] if len(loop.body) == 1 else None
        if not loop.parallel or not isinstance(inner, For) or loop.high.terms or inner.high.terms:
            return None
        n, m = loop.high.constant, inner.high.constant
        rows = min(n, MOST_REPEATED // m) if 1 < m < SHORT_ROW else 0
        loads = [s for s in inner.body if isinstance(s, Load) and self._repeats(s, loop.axis, inner.axis)]
        read = {s.buffer for s in inner.body if isinstance(s, Load)}
        if rows * m < LONG_ROW or not loads or any(isinstance(s, Store) and s.buffer in read for s in inner.body):
            return None
        row, column = self.fresh.var(I64, 0, rows - 1), self.fresh.var(I64, 0, m - 1)
        before, start, strips = list[Statement](), Affine(), -(-n // rows)
        strip = self.fresh.var(I64, 0, strips - 1)
        if strips > 1:  # the last strip begins early enough to be whole
            first = self.fresh.var(I64, 0, n - rows)
            before, start = [Let(first, "min", (affine(strip) * rows, Affine((), n - rows)))], affine(first)
        copier = Copier(self.fresh, {loop.axis: start + affine(row), inner.axis: affine(column)})
        body: list[Statement] = []
        for s in inner.body:
            (copy,) = copier.statement(s)
            if s in loads and isinstance(copy, Load):
                copy.buffer, copy.index = self._copies(s, inner.axis, m, rows), (affine(row), affine(column))
            body.append(copy)
        nest = For(row, Affine(), Affine((), rows), [For(column, Affine(), Affine((), m), body, inner.parallel)], loop.parallel)
        flat = flattened(nest, self.fresh)
        if flat is None or strips == 1:
            return flat
        return For(strip, Affine(), Affine((), strips), [*before, flat], parallel=True)

    def _repeats(self, s: Load, outer: ScalarVar, inner: ScalarVar) -> bool:
        """Whether a load takes the same elements in each row, those of memory that does not change."""
        at = position_in(s.buffer, s.index)
        ends = at.bounds
        return (s.buffer not in self.stored and [v for v, _ in at.terms] == [inner] and ends is not None
                and 0 <= ends[0] <= ends[1] < s.buffer.size)  # fmt: skip

    def _copies(self, s: Load, inner: ScalarVar, size: int, rows: int) -> Buffer:
        """Memory with the elements that a load takes from a row, for so many rows."""
        at = position_in(s.buffer, s.index)
        key = (s.buffer, at.constant, at.stride(inner), size, rows)
        if key not in self.repeated:
            copies = self.repeated[key] = self.fresh.buffer(s.buffer.dtype, (rows, size), "scratch")
            row, column = self.fresh.var(I64, 0, rows - 1), self.fresh.var(I64, 0, size - 1)
            value, there = self.fresh.like(s.target), (affine(column) - affine(inner)) * at.stride(inner) + at
            body: list[Statement] = [Load(value, s.buffer, (there,)), Store(copies, (affine(row), affine(column)), value)]
            whole: list[Statement] = [For(column, Affine(), Affine((), size), body)]
            self.copying.append(For(row, Affine(), Affine((), rows), whole, parallel=True))
        return self.repeated[key]


def flattened(loop: For, fresh: Fresh, longest: int = LONG_ROW) -> For | None:
    """One loop instead of two, the inner one of fewer iterations than `longest`; None where its accesses leave gaps."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, For) or inner.parallel != loop.parallel:
        return None
    if loop.low != Affine() or inner.low != Affine() or loop.high.terms or inner.high.terms:
        return None
    n, m = loop.high.constant, inner.high.constant
    if not 0 < m < longest or not all(_goes_on(s, loop.axis, inner.axis, m) for s in inner.body):
        return None
    axis = fresh.var(I64, 0, n * m - 1)
    body: list[Statement] = []
    copier = Copier(fresh, {})
    for s in inner.body:
        (copy,) = copier.statement(s)
        if isinstance(s, (Load, Store)) and isinstance(copy, (Load, Store)):
            at = position_in(s.buffer, s.index)
            stride = at.stride(inner.axis)
            if any(i.stride(inner.axis) or i.stride(loop.axis) for i in s.index):  # also where these cancel
                rest = at - affine(inner.axis) * stride - affine(loop.axis) * (stride * m)
                copy.index = (affine(copier.scalar(rest)) + affine(axis) * stride,)
        body.append(copy)
    return For(axis, Affine(), Affine((), n * m), body, loop.parallel)


def collapsed(loop: For, fresh: Fresh) -> For | None:
    """A nest over rows, which are loops themselves, with its two outer axes as one; None where accesses leave gaps."""
    *lets, inner = loop.body
    if not isinstance(inner, For) or not (loop.parallel and inner.parallel) or not all(isinstance(s, Let) for s in lets):
        return None
    if loop.low != Affine() or inner.low != Affine() or loop.high.terms or inner.high.terms or inner.high.constant < 1:
        return None
    size, gone = inner.high.constant, {loop.axis, inner.axis, *(s.target for s in lets if isinstance(s, Let))}
    accesses: list[tuple[Load | Store, Affine]] = []
    for s in walk(inner.body):
        read: set[ScalarVar] = {x for x in reads(s) if isinstance(x, ScalarVar)}
        if isinstance(s, (Load, Store)):
            at = position_in(s.buffer, s.index)
            rest = at - (affine(loop.axis) * size + affine(inner.axis)) * at.stride(inner.axis)
            read = {v for v, _ in rest.terms} | (_variables(s.value) if isinstance(s, Store) else set())
            accesses.append((s, rest + affine(inner.axis) * at.stride(inner.axis)))
        if not gone.isdisjoint(read):
            return None
    for s, at in accesses:
        s.index = (at,)
    axis = fresh.var(I64, 0, loop.high.constant * size - 1)
    body = Copier(fresh, {inner.axis: affine(axis)}).block(inner.body)
    return For(axis, Affine(), Affine((), loop.high.constant * size), body, parallel=True)


def _variables(x: Scalar) -> set[ScalarVar]:
    return {v for v, _ in x.terms} if isinstance(x, Affine) else {x} if isinstance(x, ScalarVar) else set()


def _goes_on(s: Statement, outer: ScalarVar, inner: ScalarVar, size: int) -> bool:
    """Whether an operation on elements takes those of the next row after those of a row."""
    if isinstance(s, Store) and isinstance(s.value, Affine) and (s.value.stride(outer) or s.value.stride(inner)):
        return False
    if isinstance(s, (Load, Store)):
        at = position_in(s.buffer, s.index)
        return at.stride(outer) == at.stride(inner) * size
    return isinstance(s, (Let, Combine)) and {outer, inner}.isdisjoint(reads(s))
