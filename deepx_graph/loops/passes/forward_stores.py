"""What is known is neither computed nor loaded again: equal operations and loads of a block are one, and what has just been stored
is not loaded. Stores that nothing reads go, and their buffers, and before those that are written over before anybody loads them, as
of the zeros of an array in which a loop then stacks values.

This is common subexpression elimination with store-to-load forwarding. Before, a subscript under another name, which says in what
range it is where it stands, is that subscript again (copy propagation): what needed the range has been decided when it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph.loops.passes.rewrite import Copier, Fresh, substituted
from deepx_graph.loops.program import (
    Buffer,
    Cell,
    Combine,
    Conditional,
    Copy,
    For,
    Get,
    Let,
    Load,
    LoopProgram,
    Set,
    Statement,
    Store,
    While,
    blocks_of,
    reads,
    walk,
)
from deepx_graph.loops.scalar import Affine, Scalar, ScalarConst, ScalarVar, affine


def forward_stores(program: LoopProgram) -> LoopProgram:
    """The program without what is known already, in place."""
    fresh = Fresh(program)
    for s in program.body:
        if isinstance(s, For):
            s.body = forwarded(s.body, fresh)
    read = {s.buffer if isinstance(s, Load) else s.source for s in walk(program.body) if isinstance(s, (Load, Copy))}
    program.body = _needed(program.body, read, set())
    program.scratch = tuple(b for b in program.scratch if b in read)
    return program


def forwarded(body: Sequence[Statement], fresh: Fresh) -> list[Statement]:
    """The statements without what is known already."""
    return _Forwarding(fresh).block(body)


def _needed(body: Sequence[Statement], read: set[Buffer], live: set[ScalarVar | Cell]) -> list[Statement]:
    """Statements without those that compute what is not `live` behind them, and without stores to the program's own memory that
    nothing reads."""
    found: list[Statement] = []
    for s in reversed(body):
        if isinstance(s, (Let, Load, Get)) and s.target not in live:
            continue
        if isinstance(s, Store) and s.buffer.role in ("scratch", "local") and s.buffer not in read:
            continue
        if isinstance(s, Copy) and s.target.role == "scratch" and s.target not in read:
            continue
        live.update(reads(s))
        blocks = blocks_of(s)
        for block in reversed(blocks):
            block[:] = _needed(block, read, live)
        if isinstance(s, For) and not s.body:
            continue
        found.append(s)
    return found[::-1]


@dataclass
class _Known:
    """What is known where a statement stands: results of primitives, and elements of buffers by their subscripts."""

    results: dict[Any, Scalar] = field(default_factory=dict)
    elements: dict[Buffer, dict[tuple[Affine, ...], Scalar]] = field(default_factory=dict)

    def without(self, changed: set[Buffer]) -> _Known:
        """What stays known within statements that change some buffers, with room for more."""
        return _Known(dict(self.results), {b: dict(known) for b, known in self.elements.items() if b not in changed})


class _Forwarding(Copier):
    def __init__(self, fresh: Fresh) -> None:
        super().__init__(fresh, {})

    def block(self, body: Sequence[Statement], known: _Known | None = None) -> list[Statement]:
        """The statements of a block, given what is known before."""
        return list(self._statements(body, known or _Known()))

    def _statements(self, body: Sequence[Statement], known: _Known) -> Iterator[Statement]:
        for s in body:
            match s:
                case Let(target, primitive):
                    args = tuple(map(self.scalar, s.args))
                    key = (primitive, *map(_key, args), target.dtype, target.low, target.high)
                    if key in known.results:
                        self.scalars[target] = known.results[key]
                    else:
                        yield from self.let(s, args)
                        known.results[key] = self.scalars[target]
                case Load(target, buffer, index):
                    at, elements = self.index(index), known.elements.setdefault(buffer, {})
                    if at in elements:
                        self.scalars[target] = elements[at]
                    else:
                        elements[at] = found = self._target(target)
                        yield Load(found, buffer, at)
                case Store(buffer, index, value):
                    place, stored = self.index(index), self.scalar(value)
                    known.elements[buffer] = {place: stored}
                    yield Store(buffer, place, stored)
                case For() | While() | Conditional():
                    changed = {each.buffer for each in walk([s]) if isinstance(each, Store)}
                    yield from self._nested(s, known, changed)
                    for buffer in changed:
                        known.elements.pop(buffer, None)
                case _:
                    yield from super().statement(s)

    def _nested(self, s: For | While | Conditional, known: _Known, changed: set[Buffer]) -> Iterator[Statement]:
        def block(body: Sequence[Statement]) -> list[Statement]:
            return self.block(body, known.without(changed))

        match s:
            case For(axis, low, high, body, parallel):
                first, last = self.index((low, high))
                yield For(self._target(axis), first, last, block(body), parallel)
            case While(test, condition, body):
                tested = block(test)
                yield While(tested, self.scalar(condition), block(body))
            case Conditional(condition, then, otherwise, usual):
                yield Conditional(self.scalar(condition), block(then), block(otherwise), usual)


def _key(x: Scalar) -> Any:
    """What equal operands have in common: of numbers the bits, as zeros differ."""
    return (x.dtype, np.asarray(x.value).tobytes()) if isinstance(x, ScalarConst) else x


# --- copies


def propagate_copies(program: LoopProgram) -> LoopProgram:
    """The program without copies of subscripts, in place. Takes time linear in the statements."""
    names: dict[ScalarVar, Scalar] = {}
    for s in walk(program.body):
        if isinstance(s, Let) and s.primitive == "copy":
            (x,) = s.args
            if isinstance(x, Affine):
                names[s.target] = substituted(x, names)
        elif isinstance(s, Let) and s.primitive == "cast" and s.args[0] in names and s.target.dtype is s.args[0].dtype:
            names[s.target] = names[s.args[0]]
    if names:
        _rename(program.body, names)
    return program


def _rename(body: list[Statement], names: dict[ScalarVar, Scalar]) -> None:
    def new(*scalars: Scalar) -> tuple[Scalar, ...]:
        return tuple(substituted(x, names) for x in scalars)

    def index(subscripts: Sequence[Affine]) -> tuple[Affine, ...]:
        return tuple(map(affine, new(*subscripts)))

    body[:] = [s for s in body if not (isinstance(s, Let) and s.target in names)]
    for s in body:
        match s:
            case Let(args=args):
                s.args = new(*args)
            case Load(index=at):
                s.index = index(at)
            case Store(index=at, value=value):
                s.index, (s.value,) = index(at), new(value)
            case Set(value=value) | Combine(value=value):
                (s.value,) = new(value)
            case For(low=low, high=high):
                s.low, s.high = index((low, high))
            case While(condition=condition) | Conditional(condition=condition):
                (s.condition,) = new(condition)
        for block in blocks_of(s):
            _rename(block, names)


# --- dead stores


def without_dead_stores(program: LoopProgram) -> LoopProgram:
    """The program without stores of elements that are all stored again before they are loaded (dead store elimination), in place.

    Takes time linear in the statements and their depth."""
    _clean(program.body, set())
    return program


def _clean(body: list[Statement], overwritten: set[Buffer]) -> None:
    """Removes stores to buffers all of whose elements are `overwritten` behind a block before they are loaded."""
    for k in range(len(body) - 1, -1, -1):
        s = body[k]
        if isinstance(s, Store) and s.buffer in overwritten:
            del body[k]
            continue
        read = {each.buffer if isinstance(each, Load) else each.source for each in walk([s]) if isinstance(each, (Load, Copy))}
        for block in blocks_of(s):
            _clean(block, overwritten - read)  # another iteration may come before what is behind
        if isinstance(s, For) and not s.body:
            del body[k]
        overwritten = overwritten.union(_whole(s, ())) - read


def _whole(s: Statement, loops: Sequence[For]) -> Iterator[Buffer]:
    """The buffers of which a statement, in loops that all run, stores each element."""
    if isinstance(s, Copy):
        yield s.target
    elif isinstance(s, Store) and _is_whole(s, {loop.axis: loop for loop in loops}):
        yield s.buffer
    elif isinstance(s, For) and not (s.low.terms or s.high.terms) and s.low.constant < s.high.constant:
        for inner in s.body:
            yield from _whole(inner, (*loops, s))


def _is_whole(s: Store, loops: dict[ScalarVar, For]) -> bool:
    """Whether the iterations of loops store each element: every subscript goes through its dimension with an axis of its own."""
    if len(s.index) != len(s.buffer.shape):
        return False
    axes: list[ScalarVar] = []
    for at, size in zip(s.index, s.buffer.shape, strict=True):
        ends = _ends(at, loops)
        if ends != (0, size - 1):
            return False
        axes += [axis for axis, _ in at.terms]
    return len(set(axes)) == len(axes)


def _ends(at: Affine, loops: dict[ScalarVar, For]) -> tuple[int, int] | None:
    """The least and the greatest number that a subscript takes, where it takes all between them."""
    if not at.terms:
        return at.constant, at.constant
    (axis, factor), *more = at.terms
    if more or axis not in loops or abs(factor) != 1:
        return None
    ends = sorted(factor * x + at.constant for x in (loops[axis].low.constant, loops[axis].high.constant - 1))
    return ends[0], ends[1]
