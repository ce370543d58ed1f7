"""Nests that go over memory from end to end become one loop, which has no short rows: loop flattening.

    for i in 0 .. n:                    for k in 0 .. n * m:
      for j in 0 .. m:           ->       y[k] = f(x[k])
        y[i, j] = f(x[i, j])
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.loops.passes.rewrite import Copier, Fresh
from deepx_graph.loops.program import Combine, For, Let, Load, LoopProgram, Statement, Store, blocks_of, position_in, reads
from deepx_graph.loops.scalar import Affine, ScalarVar, affine
from deepx_graph.types import I64

LONG_ROW = 256
"""Rows of so many elements are long enough as they are."""


def flatten_loops(program: LoopProgram) -> LoopProgram:
    """The program with nests that are flattened, in place."""
    program.body = _flattened(program.body, Fresh(program))
    return program


def _flattened(body: Sequence[Statement], fresh: Fresh) -> list[Statement]:
    found: list[Statement] = []
    for s in body:
        for block in blocks_of(s):
            block[:] = _flattened(block, fresh)
        found.append((flattened(s, fresh) or s) if isinstance(s, For) else s)
    return found


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
            if stride := at.stride(inner.axis):
                rest = at - affine(inner.axis) * stride - affine(loop.axis) * (stride * m)
                copy.index = (affine(copier.scalar(rest)) + affine(axis) * stride,)
        body.append(copy)
    return For(axis, Affine(), Affine((), n * m), body, loop.parallel)


def _goes_on(s: Statement, outer: ScalarVar, inner: ScalarVar, size: int) -> bool:
    """Whether an operation on elements takes those of the next row after those of a row."""
    if isinstance(s, Store) and isinstance(s.value, Affine) and (s.value.stride(outer) or s.value.stride(inner)):
        return False
    if isinstance(s, (Load, Store)):
        at = position_in(s.buffer, s.index)
        return at.stride(outer) == at.stride(inner) * size
    return isinstance(s, (Let, Combine)) and {outer, inner}.isdisjoint(reads(s))
