"""Nests that read along one axis of memory and write along another go tile by tile: loop tiling.

    for i in 0 .. n:                    for I in 0 .. n / T:
      for j in 0 .. m:           ->       for J in 0 .. m / T:
        y[i, j] = x[j, i]                   for i in T * I .. T * I + T:
                                              for j in T * J .. T * J + T:
                                                y[i, j] = x[j, i]

What is left of either axis is done by nests of its own. Of each cache line that a tile touches it uses all, while the line is in
the nearest cache (M. Wolf, M. Lam, A Data Locality Optimizing Algorithm, 1991). Iterations are those of before, so whatever they
may do in place they still may.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.loops.passes.rewrite import Copier, Fresh
from deepx_graph.loops.program import For, Let, Load, LoopProgram, Statement, Store, blocks_of, position_in
from deepx_graph.loops.scalar import Affine, ScalarVar, affine
from deepx_graph.types import I64

LINE = 64
"""The bytes of a cache line."""

TILE = 16
"""The least elements of an axis in a tile; of narrow elements as many as a line has."""

LEAST_LENGTH, LEAST_SIZE = 32, 1 << 12
"""An axis along which so many lines are touched, by a nest of so many iterations."""


def tile_transposes(program: LoopProgram) -> LoopProgram:
    """The program with nests that are tiled, in place."""
    program.body = _tiled_within(program.body, Fresh(program))
    return program


def _tiled_within(body: Sequence[Statement], fresh: Fresh) -> list[Statement]:
    found: list[Statement] = []
    for s in body:
        nest = _nest(s)
        outer = _axis_of_lines(nest) if nest else None
        if outer is not None:
            found += _tiled(nest, outer, _tile(nest), fresh)
            continue
        for block in blocks_of(s):
            block[:] = _tiled_within(block, fresh)
        found.append(s)
    return found


def _nest(s: Statement) -> list[For]:
    """Parallel loops of known lengths, each all that is in the one around it, over loads, stores and scalars; none where it is not
    so."""
    found: list[For] = []
    while isinstance(s, For) and s.parallel and s.low == Affine() and not s.high.terms:
        found.append(s)
        if all(isinstance(each, (Let, Load, Store)) for each in s.body):
            return found if len(found) > 1 else []
        (s, *others) = s.body
        if others:
            break
    return []


def _accesses(nest: Sequence[For]) -> list[Load | Store]:
    return [s for s in nest[-1].body if isinstance(s, (Load, Store))]


def _axis_of_lines(nest: Sequence[For]) -> ScalarVar | None:
    """The axis along which neighbours lie in memory where those of the innermost axis are whole lines apart."""
    *around, inner = nest
    size = inner.high.constant
    for loop in around:
        size *= loop.high.constant
    if inner.high.constant < LEAST_LENGTH or size < LEAST_SIZE:
        return None
    for s in _accesses(nest):
        at, itemsize = position_in(s.buffer, s.index), s.buffer.dtype.itemsize
        if abs(at.stride(inner.axis)) * itemsize >= LINE:
            for loop in around:
                if 0 < abs(at.stride(loop.axis)) * itemsize < LINE and loop.high.constant > 1:
                    return loop.axis
    return None


def _tile(nest: Sequence[For]) -> int:
    return max(TILE, LINE // min(s.buffer.dtype.itemsize for s in _accesses(nest)))


def _tiled(nest: Sequence[For], outer: ScalarVar, tile: int, fresh: Fresh) -> list[Statement]:
    """The nest in whole tiles, and what is left of both axes."""
    lengths = {loop.axis: loop.high.constant for loop in nest}
    inner = nest[-1].axis
    wholes = {axis: lengths[axis] // tile * tile for axis in (outer, inner)}
    found = [_piece(nest, {axis: (0, n) for axis, n in wholes.items()}, tile, fresh)] if all(wholes.values()) else []
    if wholes[inner] < lengths[inner]:
        found.append(_piece(nest, {outer: (0, wholes[outer]), inner: (wholes[inner], lengths[inner])}, 0, fresh))
    if wholes[outer] < lengths[outer]:
        found.append(_piece(nest, {outer: (wholes[outer], lengths[outer])}, 0, fresh))
    return [piece for piece in found if piece.high.constant]


def _piece(nest: Sequence[For], ranges: dict[ScalarVar, tuple[int, int]], tile: int, fresh: Fresh) -> For:
    """The nest where some axes go from a number up to below another, in tiles of them unless these are nothing."""
    starts, loops, within = dict[ScalarVar, Affine](), list[tuple[ScalarVar, int]](), list[tuple[ScalarVar, int]]()
    for loop in nest:
        first, last = ranges.get(loop.axis, (0, loop.high.constant))
        count = (last - first) // tile if tile and loop.axis in ranges else last - first
        axis = fresh.var(I64, 0, count - 1)
        loops.append((axis, count))
        starts[loop.axis] = affine(axis) + first
        if tile and loop.axis in ranges:
            part = fresh.var(I64, 0, tile - 1)
            within.append((part, tile))
            starts[loop.axis] = affine(axis) * tile + affine(part) + first
    body = Copier(fresh, dict(starts)).block(nest[-1].body)
    for axis, count in reversed([*loops, *within]):
        body = [For(axis, Affine(), Affine((), count), body, parallel=True)]
    (found,) = body
    assert isinstance(found, For)
    return found
