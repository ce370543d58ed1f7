"""Which results of a loop program may lie in the memory of an argument, and which temporaries in that of a result or another one.

Where a result is first copied from an argument, nothing is copied. Elsewhere each element must be read for the last time before
it is written: in the same iteration of the loops around both, whose iterations touch parts of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepx_graph.loops.program import Buffer, Copy, For, Let, Load, LoopProgram, Statement, Store, blocks_of, position_in, walk
from deepx_graph.loops.scalar import Affine, Scalar, ScalarConst, ScalarVar


@dataclass(frozen=True)
class _Access:
    """A load or a store, and where it stands: the loops around it and its place in each of their blocks, outermost first. `at` is
    None where all elements are touched, `index` are subscripts of a shape, `moving` the variables of each that are not `fixed`."""

    at: Affine | None
    is_store: bool
    loops: tuple[Statement, ...]
    places: tuple[int, ...]
    index: tuple[Affine, ...] = ()
    shape: tuple[int, ...] = ()
    moving: tuple[tuple[ScalarVar, ...], ...] = ()


class Accesses:
    """Where the buffers of a program are touched, found in one walk for all of them."""

    def __init__(self, program: LoopProgram) -> None:
        self.arguments = program.arguments
        self._of: dict[Buffer, list[_Access]] = {}
        self._read: set[Buffer] = set()
        self._fixed: set[Scalar] = set()
        """What is made of numbers, and of arguments over which no result lies: the same always, such as where a box begins."""
        types = {(r.dtype, r.shape) for r in program.results}
        self._kept = {a for a in program.arguments if (a.dtype, a.shape) not in types}
        self._copies: list[Copy] = []
        self._enter(program.body, (), ())

    def _enter(self, body: Sequence[Statement], loops: tuple[Statement, ...], places: tuple[int, ...]) -> None:
        for k, s in enumerate(body):
            if isinstance(s, (Load, Store)):
                at = position_in(s.buffer, s.index)
                moving = tuple(tuple(v for v, _ in x.terms if v not in self._fixed) for x in s.index)
                access = _Access(at, isinstance(s, Store), loops, (*places, k), tuple(s.index), s.buffer.shape, moving)
                self._of.setdefault(s.buffer, []).append(access)
                if isinstance(s, Load):
                    self._read.add(s.buffer)
                    if s.buffer in self._kept and not any(moving):
                        self._fixed.add(s.target)
            elif isinstance(s, Let):
                if all(isinstance(x, ScalarConst) or x in self._fixed for x in s.args):
                    self._fixed.add(s.target)
            elif isinstance(s, Copy):
                self._copies.append(s)
                for buffer in {s.source, s.target}:
                    self._of.setdefault(buffer, []).append(_Access(None, buffer is s.target, loops, (*places, k)))
            for n, block in enumerate(blocks_of(s)):
                self._enter(block, (*loops, s), (*places, k, n))

    def copied_only(self, result: Buffer) -> list[int]:
        """The arguments that are copied into a result, before anything else, and elsewhere read before they are written, if at all:
        it may lie in their memory, not copied."""
        stores = [x for x in self._of.get(result, ()) if x.at is not None]
        sources = [s.source for s in self._copies if s.target is result]
        return [k for k, a in enumerate(self.arguments) if a in sources and sum(s.source is a for s in self._copies) == 1
                and _is_read_first([x for x in self._of[a] if x.at is not None], stores)]

    def is_read(self, argument: Buffer) -> bool:
        """Whether elements of an argument are loaded, which is more than to be copied."""
        return argument in self._read

    def written_over(self, result: Buffer) -> list[int]:
        """The arguments of a result's type whose elements are all read before those of the result are written."""
        stores = self._of.get(result)
        fitting = [k for k, a in enumerate(self.arguments) if (a.dtype, a.shape) == (result.dtype, result.shape)]
        return [k for k in fitting if stores and _is_read_first(self._of.get(self.arguments[k], ()), stores)]

    def may_be_with(self, temporary: Buffer, home: Buffer, guests: Sequence[Buffer]) -> bool:
        """Whether a temporary may lie where a result or another temporary does, and others before it: in each place one of two is
        touched for the last time before the other is stored. A result stays."""
        return all(self._is_done_before(temporary, other)
                   or (other.role != "result" and self._is_done_before(other, temporary)) for other in (home, *guests))

    def _is_done_before(self, one: Buffer, other: Buffer) -> bool:
        stores = [a for a in self._of.get(other, ()) if a.is_store]
        return bool(stores) and _is_read_first(self._of.get(one, ()), stores)


LEAST_BYTES = 4096
"""Smaller values have memory of their own, here and in plans: what they could share does not count."""


def temporaries_in_results(program: LoopProgram) -> LoopProgram:
    """The program, changed in place, with temporaries in the memory of results that are stored only after them, or of others of
    them."""
    accesses, homes, guests = Accesses(program), dict[Buffer, Buffer](), dict[Buffer, list[Buffer]]()
    for t in sorted((t for t in program.scratch if t.nbytes >= LEAST_BYTES and not t.parts), key=lambda t: -t.nbytes):
        fitting = [h for h in (*program.results, *guests) if (h.dtype, h.size) == (t.dtype, t.size) and not h.parts]
        home = next((h for h in fitting if accesses.may_be_with(t, h, guests.get(h, ()))), None)
        if home is None:
            guests[t] = []
        else:
            homes[t] = home
            guests.setdefault(home, []).append(t)
    for s in walk(program.body) if homes else ():
        if isinstance(s, (Load, Store)) and s.buffer in homes:
            s.index = s.index if s.buffer.shape == homes[s.buffer].shape else (position_in(s.buffer, s.index),)
            s.buffer = homes[s.buffer]
        elif isinstance(s, Copy):
            s.source, s.target = homes.get(s.source, s.source), homes.get(s.target, s.target)
    program.scratch = tuple(t for t in program.scratch if t not in homes)
    return program


def _is_read_first(loads: Sequence[_Access], stores: Sequence[_Access]) -> bool:
    return all(_is_before(load, store) for load in loads for store in stores)


def _is_before(load: _Access, store: _Access) -> bool:
    """Whether a load never sees what a store has written."""
    common: list[Statement] = []
    for x, y in zip(load.loops, store.loops, strict=False):
        depth = 2 * len(common)
        if x is not y or load.places[depth : depth + 2] != store.places[depth : depth + 2]:
            break
        common.append(x)
    depth = 2 * len(common)
    if load.places[depth] >= store.places[depth]:
        return False
    return not common or _have_own_parts(common, load, store)


def _have_own_parts(loops: Sequence[Statement], load: _Access, store: _Access) -> bool:
    """Whether no two iterations of some loops touch the same element by these accesses."""
    if load.at is None or store.at is None:
        return False
    axes: list[ScalarVar] = []
    for loop in loops:
        if not isinstance(loop, For):
            return False
        axes.append(loop.axis)
    alike = load.shape == store.shape and len(load.index) == len(store.index)  # a subscript may be the position of an element
    if alike and _tell_apart(axes, load, store):
        return True
    rests = []
    for at in (load.at, store.at):
        rest = Affine(tuple(t for t in at.terms if t[0] not in axes), at.constant)
        if (ends := rest.bounds) is None:
            return False
        rests.append(ends)
    if any(load.at.stride(axis) != store.at.stride(axis) for axis in axes):
        return False
    span = max(high for _, high in rests) - min(low for low, _ in rests) + 1
    for axis in sorted(axes, key=load.at.stride):
        step = load.at.stride(axis)
        if axis.low is None or axis.high is None or (step < span and axis.high > axis.low):
            return False
        span += step * (axis.high - axis.low)
    return True


def _tell_apart(axes: Sequence[ScalarVar], load: _Access, store: _Access) -> bool:
    """Whether each axis alone moves a subscript that is the same for both of two accesses: iterations touch other elements then,
    whatever the other subscripts are."""
    alone = {v[0] for x, y, v in zip(load.index, store.index, load.moving, strict=True) if x == y and len(v) == 1}
    return all(axis in alone for axis in axes if axis.low != axis.high)
