"""Loops over the same range become one where that brings what one stores to another that reads it: loop fusion.

    for i in 0 .. n:                    for i in 0 .. n:
      t[i] = f(x[i])             ->       t[i] = f(x[i])
    for i in 0 .. n:                      y[i] = g(t[i])
      y[i] = g(t[i])

It is legal where each iteration touches a part of its own of every buffer that either loop stores to. Statements between the loops
go before both or behind both. Loops within the new one are fused likewise, so rows become the tiles of several sweeps. Memory that
only one loop touches, each iteration a part of its own, then becomes local memory of that size (array contraction), which stays in
a cache from one sweep to the next. A nest in which nothing can be fused stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

from deepx_graph.loops.builder import LEAST_SHARE
from deepx_graph.loops.passes.flatten_loops import collapsed
from deepx_graph.loops.passes.forward_stores import forwarded
from deepx_graph.loops.passes.rewrite import Copier, Fresh
from deepx_graph.loops.program import (
    Buffer,
    Cell,
    Combine,
    Copy,
    For,
    Let,
    Load,
    LoopProgram,
    Statement,
    Store,
    assigns,
    blocks_of,
    position_in,
    reads,
    walk,
)
from deepx_graph.loops.scalar import Affine, ScalarVar, affine

MOST_APART = 64
"""Loops with more statements between them are not brought together."""

MOST_LOCAL = 1 << 18
"""The bytes of local memory that the buffers of one loop may become."""


def fuse_loops(program: LoopProgram, *, keeps_rows: bool = False) -> LoopProgram:
    """The program with loops that are fused, in place; `keeps_rows`: a caller numbers the iterations of outermost loops, which stay
    so many."""
    fresh = Fresh(program)
    program.body = _fused(program.body if keeps_rows else [_shared_out(s, fresh) for s in program.body], fresh, outermost=True)
    _contract(program)
    return program


def _shared_out(s: Statement, fresh: Fresh) -> Statement:
    """A loop whose rows are loops, with as many iterations as a nest of elements has in its outermost loop."""
    while isinstance(s, For) and not s.high.terms and s.high.constant < LEAST_SHARE and any(
            isinstance(row, For) for each in s.body if isinstance(each, For) for row in each.body):
        found = collapsed(s, fresh)
        if found is None:
            break
        s = found
    return s


def _fused(body: Sequence[Statement], fresh: Fresh, *, outermost: bool = False, is_forwarded: bool = False) -> list[Statement]:
    found, p = list(body), 0
    effects = cache(_effects)  # statements change when all before them are done
    while p < len(found):
        first = found[p]
        is_new, q = not is_forwarded, p + 1
        while isinstance(first, For) and q < min(len(found), p + MOST_APART):
            second = found[q]
            if isinstance(second, For) and _is_worth_it(first, second, outermost, effects) and _is_legal(first, second, effects):
                parted = _parted([first, *found[p + 1 : q], second], effects)
                if parted is not None:
                    before, behind = parted
                    first, is_new = _joined(first, second, fresh), True
                    found[p : q + 1] = [*before, first, *behind]
                    p += len(before)
                    q = p
            q += 1
        if isinstance(first, For):
            if _has_neighbours(first.body):
                first.body = _fused(forwarded(first.body, fresh) if is_new else first.body, fresh, is_forwarded=True)
        else:
            for block in blocks_of(first):
                block[:] = _fused(block, fresh, is_forwarded=is_forwarded)
        p += 1
    return found


def _has_neighbours(body: Sequence[Statement]) -> bool:
    """Whether some block has two loops, which may become one."""
    blocks: list[Sequence[Statement]] = [body]
    while blocks:
        block = blocks.pop()
        if sum(isinstance(s, For) for s in block) > 1:
            return True
        blocks += (inner for s in block for inner in blocks_of(s))
    return False


@dataclass(eq=False)
class _Effects:
    """What a statement and those within it assign, and read; the buffers that they load from or store to, and store to."""

    made: set[ScalarVar | Cell | Buffer] = field(default_factory=set)
    used: set[ScalarVar | Cell | Buffer] = field(default_factory=set)
    touched: set[Buffer] = field(default_factory=set)
    stored: set[Buffer] = field(default_factory=set)
    copies: bool = False

    @cached_property
    def cells(self) -> set[Cell]:
        """The cells among all of these."""
        return {x for x in self.made | self.used if isinstance(x, Cell)}


EffectsOf = Callable[[Statement], _Effects]


def _effects(s: Statement) -> _Effects:
    found = _Effects()
    for each in walk([s]):
        found.made.update(assigns(each))
        found.used.update(reads(each))
        if isinstance(each, Load):
            found.touched.add(each.buffer)
        elif isinstance(each, Store):
            found.stored.add(each.buffer)
        elif isinstance(each, Combine):
            found.made.add(each.cell)
        elif isinstance(each, Copy):
            found.copies = True
            found.made.add(each.target)
            found.used.add(each.source)
    found.used |= found.touched
    found.made |= found.stored
    found.touched |= found.stored
    return found


def _is_worth_it(first: For, second: For, outermost: bool, effects: EffectsOf) -> bool:
    """Whether the loops have the same range and read something in common, or one what the other stores; and stay what they are:
    shared out among threads, or vectors, also where these only take from a cache what loops with loops of their own left there."""
    if first.low != second.low or first.high != second.high:
        return False
    if outermost and not (first.parallel and second.parallel and not first.high.terms and first.high.constant > 1):
        return False
    if not (first.parallel and second.parallel):
        alike = (_is_plain(first) and _is_plain(second)) or (not outermost and _has_rows(first) and _has_rows(second))
        if not alike:
            return False
    common = effects(first).touched & effects(second).touched
    return bool(common) and not (all(b.role == "local" for b in common) and _has_rows(first) and _is_plain(second))


def _is_plain(loop: For) -> bool:
    """Whether the iterations are a few operations on neighbours, of which vectors are made."""
    for s in loop.body:
        if not isinstance(s, (Let, Load, Store, Combine)):
            return False
        if isinstance(s, (Load, Store)) and position_in(s.buffer, s.index).stride(loop.axis) not in (0, 1):
            return False
    return True


def _has_rows(loop: For) -> bool:
    """Whether each iteration goes along memory, in loops of its own."""
    return any(isinstance(s, For) for s in loop.body)


def _is_legal(first: For, second: For, effects: EffectsOf) -> bool:
    """Whether no iteration of the first touches what another iteration of the second does, where either changes it."""
    one, other = effects(first), effects(second)
    if one.copies or other.copies or one.cells & other.cells:
        return False
    shared = (one.stored | other.stored) & one.touched & other.touched
    return all(part_of(b, (first, second)) is not None for b in shared)


def part_of(buffer: Buffer, loops: Sequence[For]) -> tuple[int, Affine] | None:
    """The part of a buffer that each iteration of some loops touches, where iterations have parts of their own: how many elements
    it has, and where that of an axis of 0 begins."""
    size, outer, low, high = 0, Affine(), 0, 0
    first = True
    for loop in loops:
        inside = {x for s in loop.body for each in walk([s]) for x in assigns(each)}
        for s in walk(loop.body):
            if not isinstance(s, (Load, Store)) or s.buffer is not buffer:
                continue
            at = position_in(buffer, s.index)
            stride = at.stride(loop.axis)
            rest = Affine(tuple(t for t in at.terms if t[0] in inside), at.constant)
            around = at - rest - affine(loop.axis) * stride
            ends = rest.bounds
            if ends is None:
                return None
            if first:
                size, outer, (low, high), first = stride, around, ends, False
            low, high = min(low, ends[0]), max(high, ends[1])
            if stride != size or around - outer != Affine():
                return None
    return (size, outer + low) if high - low < size else None


def _parted(run: Sequence[Statement], effects: EffectsOf) -> tuple[list[Statement], list[Statement]] | None:
    """Which of the statements between two loops, which are the ends of a run, go before the first, and which behind the second;
    None where one can do neither."""
    first, *between, second = run
    before: list[Statement] = []
    behind: list[Statement] = []
    for s in between:
        if any(_depend(effects(each), effects(s)) for each in (first, *behind)):
            behind.append(s)
        else:
            before.append(s)
    return None if any(_depend(effects(s), effects(second)) for s in behind) else (before, behind)


def _depend(one: _Effects, later: _Effects) -> bool:
    """Whether statements of these effects must stay in order."""
    return not (one.made.isdisjoint(later.used) and one.made.isdisjoint(later.made) and one.used.isdisjoint(later.made))


def _joined(first: For, second: For, fresh: Fresh) -> For:
    """One loop that does the iterations of both."""
    body = Copier(fresh, {second.axis: affine(first.axis)}).block(second.body)
    return For(first.axis, first.low, first.high, [*first.body, *body], first.parallel and second.parallel)


# --- array contraction


def _contract(program: LoopProgram) -> None:
    """Memory of which each iteration of one loop has a part of its own becomes as large as that part."""
    fresh, room = Fresh(program), dict.fromkeys(map(id, program.body), MOST_LOCAL)
    kept: list[Buffer] = []
    users = _users(program.body) if program.scratch else {}
    for buffer in program.scratch:
        outermost, loop = _only_loop(users.get(buffer, ()), buffer)
        part = part_of(buffer, (loop,)) if loop is not None else None
        if loop is None or part is None or part[0] * buffer.dtype.itemsize > room[id(outermost)]:
            kept.append(buffer)
            continue
        size, start = part
        room[id(outermost)] -= size * buffer.dtype.itemsize
        local = fresh.local(buffer.dtype, size)
        for s in walk(loop.body):
            if isinstance(s, (Load, Store)) and s.buffer is buffer:
                s.index = (position_in(buffer, s.index) - affine(loop.axis) * size - start,)
                s.buffer = local
    program.scratch = tuple(kept)


def _users(body: Sequence[Statement]) -> dict[Buffer, list[Statement]]:
    """The statements of a block that touch each buffer, they or those within them."""
    found: dict[Buffer, dict[int, Statement]] = {}
    for s in body:
        for each in walk([s]):
            if isinstance(each, (Load, Store)):
                found.setdefault(each.buffer, {})[id(s)] = s
            elif isinstance(each, Copy):
                for buffer in (each.source, each.target):
                    found.setdefault(buffer, {})[id(s)] = s
    return {buffer: list(users.values()) for buffer, users in found.items()}


def _only_loop(users: Sequence[Statement], buffer: Buffer) -> tuple[Statement | None, For | None]:
    """The statement that alone touches a buffer, and the parallel loop that does: that, or one in a loop of one iteration."""
    loop = users[0] if len(users) == 1 else None
    if not isinstance(loop, For):
        return None, None
    if not loop.parallel and (loop.low, loop.high) == (Affine(), Affine((), 1)):
        return loop, _only_loop(_users(loop.body)[buffer], buffer)[1]
    return loop, loop if loop.parallel else None
