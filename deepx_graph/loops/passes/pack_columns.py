"""What a sequential loop reads across the rows of an array, column after column, is copied beforehand so that it lies side by side:
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
from collections.abc import Iterator, Sequence

from deepx_graph.loops.passes.rewrite import Copier, Fresh
from deepx_graph.loops.passes.tile_transposes import LEAST_LENGTH, LEAST_SIZE, LINE
from deepx_graph.loops.program import Buffer, For, Load, LoopProgram, Statement, Store, assigns, position_in, walk
from deepx_graph.loops.scalar import Affine, affine
from deepx_graph.types import I64

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
        for nest in _nests(loop.body):
            axes = {loop.axis, *(each.axis for each in nest)}
            for load in (s for s in nest[-1].body if isinstance(s, Load) and s.buffer not in stored):
                if _is_across(load, loop, nest) and not inside & ({v for v, _ in _position(load).terms} - axes):
                    yield self._copy(load, (loop, *nest))

    def _copy(self, load: Load, nest: Nest) -> For:
        """The copy of what a load reads in all iterations of a nest; it reads the copy from now on."""
        lengths = [(each.high - each.low).constant for each in nest]
        copy = self.fresh.buffer(load.buffer.dtype, math.prod(lengths), "scratch")
        self.scratch.append(copy)
        axes = [self.fresh.var(I64, 0, n - 1) for n in lengths]
        here = {each.axis: affine(axis) + each.low for each, axis in zip(nest, axes, strict=True)}
        (read,) = Copier(self.fresh, dict(here)).statement(load)
        assert isinstance(read, Load)
        position = _flat([affine(axis) for axis in axes], lengths)
        load.buffer, load.index = copy, (_flat([affine(each.axis) - each.low for each in nest], lengths),)
        body: list[Statement] = [read, Store(copy, (position,), read.target)]
        for axis, n in zip(reversed(axes), reversed(lengths), strict=True):
            body = [For(axis, Affine(), Affine((), n), body, parallel=True)]
        (found,) = body
        assert isinstance(found, For)
        return found


def _nests(body: Sequence[Statement], around: Nest = ()) -> Iterator[Nest]:
    """The nests of parallel loops of known lengths that are done in each iteration, however deep, one without another within."""
    for s in body:
        if isinstance(s, For) and s.parallel and not (s.high.terms or s.low.terms):
            nest = (*around, s)
            yield nest
            yield from _nests(s.body, nest)


def _position(load: Load) -> Affine:
    return position_in(load.buffer, load.index)


def _is_across(load: Load, loop: For, nest: Nest) -> bool:
    """Whether a nest reads lines of cache side by side along the loop, lines apart along its own last axis, and none twice."""
    lengths = [(each.high - each.low).constant for each in (loop, *nest)]
    at, itemsize = _position(load), load.buffer.dtype.itemsize
    return (
        load.buffer.role != "local" and 0 < abs(at.stride(loop.axis)) * itemsize < LINE <= abs(at.stride(nest[-1].axis)) * itemsize
        and min(lengths[0], lengths[-1]) >= LEAST_LENGTH and LEAST_SIZE <= math.prod(lengths) <= load.buffer.size
        and all(at.stride(each.axis) for each in nest)
    )  # fmt: skip


def _flat(index: Sequence[Affine], lengths: Sequence[int]) -> Affine:
    """The position of an element in the order of C."""
    total = Affine()
    for i, n in zip(index, lengths, strict=True):
        total = total * n + i
    return total
