"""Nests that read along one axis of memory and write along another go tile by tile: loop tiling.

    for i in 0 .. n:                    for I in 0 .. n / T:
      for j in 0 .. m:           ->       for J in 0 .. m / T:
        y[i, j] = x[j, i]                   for i in T * I .. T * I + T:
                                              for j in T * J .. T * J + T:
                                                y[i, j] = x[j, i]

What is left of either axis is done by nests of its own. Of each cache line that a tile touches it uses all, while the line is in
the nearest cache (M. Wolf, M. Lam, A Data Locality Optimizing Algorithm, 1991); a tile is narrower where lines would push one
another out of that, as those that lie a power of two apart do. Iterations are those of before, so whatever they may do in place
they still may. Outer axes that are one loop, for the threads to share, are apart while the axes are chosen.

What a sequential loop reads across the rows of an array, column after column, is copied beforehand so that it lies side by side:
array packing.

                                        for t in 0 .. n:
                                          for i in 0 .. m: y[t, i] = x[i, t]
    for t in 0 .. n:                    for t in 0 .. n:
      for i in 0 .. m:           ->       for i in 0 .. m:
        c[i] = f(c[i], x[i, t])             c[i] = f(c[i], y[t, i])

The loop uses one element of each cache line at a time, and rows whose distance is a power of two push one another out of the cache
before the next is used (M. Lam, E. Rothberg, M. Wolf, The Cache Performance and Optimizations of Blocked Algorithms, 1991). A
parallel loop would be exchanged; here the copy, which goes tile by tile, is what can be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from deepx_graph.loops.builder import LEAST_SHARE
from deepx_graph.loops.cache import LINE, share_sets
from deepx_graph.loops.passes.rewrite import Copier, Fresh
from deepx_graph.loops.primitives import cast
from deepx_graph.loops.program import Buffer, For, Let, Load, LoopProgram, Statement, Store, assigns, blocks_of, position_in, walk
from deepx_graph.loops.scalar import Affine, Scalar, ScalarConst, ScalarVar, affine
from deepx_graph.types import I64

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
        nest = _nest(_apart(s, fresh))
        outer = _axis_of_lines(nest) if nest else None
        if outer is not None:
            found += _tiled(nest, _tile(nest, outer), fresh)
            continue
        for block in blocks_of(s):
            block[:] = _tiled_within(block, fresh)
        found.append(s)
    return found


def _apart(s: Statement, fresh: Fresh) -> Statement:
    """A loop over several axes, whose subscripts are quotients, as a loop over each of them; another statement as it is."""
    if not isinstance(s, For) or not s.parallel or s.low != Affine() or s.high.terms:
        return s
    *lets, inner = s.body
    rest, targets, sizes = affine(s.axis), [s.axis], list[int]()
    for let in lets:
        if not isinstance(let, Let) or let.primitive != "quotient" or let.args[0] != rest:
            return s
        if not isinstance(size := let.args[1], ScalarConst):
            return s
        rest = affine(let.target)
        targets.append(let.target)
        sizes.append(int(size.value))
    outermost, left = divmod(s.high.constant, math.prod(sizes))
    if not sizes or left or not isinstance(inner, For):
        return s
    loops = [(fresh.var(I64, 0, n - 1), n) for n in (outermost, *reversed(sizes))]
    at, position = dict[ScalarVar, Scalar](), Affine()
    for target, (axis, n) in zip(reversed(targets), loops, strict=True):
        at[target] = position = position * n + affine(axis)
    return _parallel(loops, Copier(fresh, at).block([inner]))


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
    """The axis along which neighbours lie nearest in memory where those of the innermost axis are whole lines apart."""
    *around, inner = nest
    size = inner.high.constant
    for loop in around:
        size *= loop.high.constant
    if inner.high.constant < LEAST_LENGTH or size < LEAST_SIZE:
        return None
    for s in _accesses(nest):
        at, itemsize = position_in(s.buffer, s.index), s.buffer.dtype.itemsize
        if abs(at.stride(inner.axis)) * itemsize >= LINE:
            strides = {loop.axis: abs(at.stride(loop.axis)) * itemsize for loop in around if loop.high.constant > 1}
            nearest = min((axis for axis, stride in strides.items() if stride), key=strides.__getitem__, default=None)
            if nearest is not None and strides[nearest] < LINE:
                return nearest
    return None


def _tile(nest: Sequence[For], outer: ScalarVar) -> dict[ScalarVar, int]:
    """How many elements of either axis a tile has: all of a shorter one, and of the innermost one no more than a set of the cache
    holds of the lines that these touch."""
    lengths, inner = {loop.axis: loop.high.constant for loop in nest}, nest[-1].axis
    accesses = [(position_in(s.buffer, s.index), s.buffer.dtype.itemsize) for s in _accesses(nest)]
    most = max(TILE, LINE // min(itemsize for _, itemsize in accesses))
    apart = [abs(at.stride(inner)) * itemsize for at, itemsize in accesses]
    lines = min(most, lengths[inner])
    while any(share_sets(lines, distance) for distance in apart if distance >= LINE):
        lines //= 2
    return {outer: min(most, lengths[outer]), inner: lines}


def _tiled(nest: Sequence[For], tiles: Mapping[ScalarVar, int], fresh: Fresh) -> list[Statement]:
    """The nest in whole tiles, and what is left of both axes."""
    lengths = {loop.axis: loop.high.constant for loop in nest}
    outer, inner = tiles
    wholes = {axis: lengths[axis] // n * n for axis, n in tiles.items()}
    found: list[Statement] = [_piece(nest, {axis: (0, n) for axis, n in wholes.items()}, tiles, fresh)]
    if wholes[inner] < lengths[inner]:
        found.append(_piece(nest, {outer: (0, wholes[outer]), inner: (wholes[inner], lengths[inner])}, {}, fresh))
    if wholes[outer] < lengths[outer]:
        found.append(_piece(nest, {outer: (wholes[outer], lengths[outer])}, {}, fresh))
    return found


def _piece(nest: Sequence[For], ranges: Mapping[ScalarVar, tuple[int, int]], tiles: Mapping[ScalarVar, int], fresh: Fresh) -> For:
    """The nest where some axes go from a number up to below another, some in tiles."""
    ends = [ranges.get(loop.axis, (0, loop.high.constant)) for loop in nest]
    counts = [(last - first) // tiles.get(loop.axis, 1) for loop, (first, last) in zip(nest, ends, strict=True)]
    (outermost, *loops), lets, at = _together(counts, fresh)
    starts = dict[ScalarVar, Scalar]()
    for loop, (first, _), subscript in zip(nest, ends, at, strict=True):
        starts[loop.axis] = subscript * tiles.get(loop.axis, 1) + first
        if loop.axis in tiles:
            part = fresh.var(I64, 0, tiles[loop.axis] - 1)
            loops.append((part, tiles[loop.axis]))
            starts[loop.axis] = subscript * tiles[loop.axis] + affine(part) + first
    return _parallel([outermost], [*lets, _parallel(loops, Copier(fresh, starts).block(nest[-1].body))])


def _together(counts: Sequence[int], fresh: Fresh) -> tuple[list[tuple[ScalarVar, int]], list[Statement], list[Affine]]:
    """Loops of so many iterations, of which outer ones are one until it has enough for the threads, what is to be computed in that
    one, and the subscript along each axis."""
    outer = 1
    while outer < len(counts) - 1 and math.prod(counts[:outer]) < LEAST_SHARE:
        outer += 1
    sizes = [math.prod(counts[:outer]), *counts[outer:]]
    loops = [(fresh.var(I64, 0, n - 1), n) for n in sizes]
    rest, lets, at = affine(loops[0][0]), list[Statement](), [affine(axis) for axis, _ in loops[1:]]
    for k in reversed(range(1, outer)):
        above = fresh.var(I64, 0, math.prod(counts[:k]) - 1)
        lets.append(Let(above, "quotient", (rest, ScalarConst(cast(counts[k], I64), I64))))
        at.insert(0, rest - affine(above) * counts[k])
        rest = affine(above)
    return loops, lets, [rest, *at]


def _parallel(loops: Sequence[tuple[ScalarVar, int]], body: list[Statement]) -> For:
    """A nest of parallel loops, by axis and length, around a body."""
    for axis, count in reversed(loops):
        body = [For(axis, Affine(), Affine((), count), body, parallel=True)]
    (found,) = body
    assert isinstance(found, For)
    return found


# --- columns that a loop of dependent steps reads

Nest = tuple[For, ...]


def pack_columns(program: LoopProgram) -> LoopProgram:
    """The program with copies before loops, in place."""
    packing = _Packing(program)
    program.body = packing.block(program.body)
    program.scratch = (*program.scratch, *packing.scratch)
    return program


class _Packing:
    def __init__(self, program: LoopProgram) -> None:
        self.fresh = Fresh(program)
        self.scratch: list[Buffer] = []

    def block(self, body: Sequence[Statement]) -> list[Statement]:
        """A block, with copies before its loops; within parallel loops each iteration would need memory of its own."""
        found: list[Statement] = []
        for s in body:
            if isinstance(s, For) and (not s.parallel or s.high - s.low == Affine((), 1)):
                s.body = self.block(s.body)
                if not s.parallel and not (s.high - s.low).terms:
                    found += self._packed(s)
            found.append(s)
        return found

    def _packed(self, loop: For) -> Iterator[Statement]:
        """The copies for what a loop reads, which reads these instead."""
        stored = {s.buffer for s in walk(loop.body) if isinstance(s, Store)}
        inside = {x for s in walk(loop.body) for x in assigns(s)}
        copies: dict[Any, Buffer] = {}  # by what is read
        for nest in _nests(loop.body):
            axes = {loop.axis, *(each.axis for each in nest)}
            for load in (s for s in nest[-1].body if isinstance(s, Load) and s.buffer not in stored):
                if _is_across(load, loop, nest) and not inside & ({v for v, _ in _position(load).terms} - axes):
                    key = _what_is_read(load, (loop, *nest))
                    if key not in copies:
                        yield self._copy(load, (loop, *nest))
                        copies[key] = load.buffer
                    else:
                        load.buffer, load.index = copies[key], _place_in_copy((loop, *nest))

    def _copy(self, load: Load, nest: Nest) -> For:
        """The copy of what a load reads in all iterations of a nest; it reads the copy from now on."""
        lengths = _lengths(nest)
        copy = self.fresh.buffer(load.buffer.dtype, lengths, "scratch")
        self.scratch.append(copy)
        axes = [self.fresh.var(I64, 0, n - 1) for n in lengths]
        here = {each.axis: affine(axis) + each.low for each, axis in zip(nest, axes, strict=True)}
        (read,) = Copier(self.fresh, dict(here)).statement(load)
        assert isinstance(read, Load)
        load.buffer, load.index = copy, _place_in_copy(nest)
        return _parallel(list(zip(axes, lengths, strict=True)), [read, Store(copy, tuple(map(affine, axes)), read.target)])


def _nests(body: Sequence[Statement], around: Nest = ()) -> Iterator[Nest]:
    """The nests of parallel loops of known lengths that are done in each iteration, however deep, one without another within."""
    for s in body:
        if isinstance(s, For) and s.parallel and not (s.high.terms or s.low.terms):
            nest = (*around, s)
            yield nest
            yield from _nests(s.body, nest)


def _position(load: Load) -> Affine:
    return position_in(load.buffer, load.index)


def _lengths(nest: Nest) -> list[int]:
    return [(each.high - each.low).constant for each in nest]


def _place_in_copy(nest: Nest) -> tuple[Affine, ...]:
    """Where an iteration of a nest finds its element in the copy of what all of them read."""
    return tuple(affine(each.axis) - each.low for each in nest)


def _what_is_read(load: Load, nest: Nest) -> Any:
    """The same for two loads that read the same elements in the same order."""
    at = _position(load)
    strides = [at.stride(each.axis) for each in nest]
    for each, stride in zip(nest, strides, strict=True):
        at = at + (each.low - affine(each.axis)) * stride
    return load.buffer, at, tuple(strides), tuple(_lengths(nest))


def _is_across(load: Load, loop: For, nest: Nest) -> bool:
    """Whether a nest reads lines of cache side by side along the loop, lines apart along its own last axis, and none twice."""
    lengths = _lengths((loop, *nest))
    at, itemsize = _position(load), load.buffer.dtype.itemsize
    return (
        load.buffer.role != "local" and 0 < abs(at.stride(loop.axis)) * itemsize < LINE <= abs(at.stride(nest[-1].axis)) * itemsize
        and min(lengths[0], lengths[-1]) >= LEAST_LENGTH and LEAST_SIZE <= math.prod(lengths) <= load.buffer.size
        and all(at.stride(each.axis) for each in nest)
    )  # fmt: skip
