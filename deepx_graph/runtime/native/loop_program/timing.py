"""How long one thread takes for statements, about, before there is code of them.

In a loop of vectors a core loads and stores while it computes: the larger of both counts (the ports of superscalar cores, Fog,
Instruction tables). Over short rows it is started often, which takes as long as dozens of elements. What is the same for all its
iterations is done once, before it: so are conditions, for which LLVM makes a loop of each case (loop unswitching).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from deepx_graph.loops.program import (
    Cell,
    Combine,
    Conditional,
    For,
    Get,
    Let,
    Load,
    Set,
    Statement,
    Store,
    While,
    assigns,
    position_in,
    reads,
    walk,
)
from deepx_graph.loops.scalar import Affine, ScalarVar
from deepx_graph.loops.weight import price_of, weighted
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.native.llvm.target import Target, this_machine
from deepx_graph.runtime.native.loop_program.primitives import has_vectors, np_dtype
from deepx_graph.runtime.native.loop_program.vector_plan import FEWEST, plan

SCALAR = 6.0
"""What a statement costs here, beside the same as part of a kernel of whole vectors: not all loops become vectors."""


def nanoseconds(body: Sequence[Statement], *, vectors: bool = True) -> float:
    """About how long one thread works on statements; all of them are taken for scalar code where there are no `vectors` yet."""
    statements = [*_without_single(body)] if vectors else list(body)
    found = [(s, inside) for s in walk(statements) if vectors and isinstance(s, For) and (inside := _varying(s)) is not None]
    loops = {id(loop): k for k, (loop, _) in enumerate(found)}
    loop_of = {id(s): k for k, (loop, _) in enumerate(found) for s in walk(loop.body)}
    varying = {s: factor for _, inside in found for s, factor in inside.items()}
    scalar, starts, computed, moved = 0.0, [0.0] * len(found), [0.0] * len(found), [0.0] * len(found)
    for s, times in weighted(statements):
        if (started := loops.get(id(s))) is not None:
            starts[started] = times
        elif (k := loop_of.get(id(s))) is None:
            scalar += times * SCALAR * price_of(s)
        elif s not in varying:
            scalar += min(times, starts[k]) * SCALAR * price_of(s)
        elif isinstance(s, (Load, Store)):
            moved[k] += times * varying[s] * price_of(s)
        else:
            computed[k] += times * _vector_price(s)
    return cost.nest_ns(constants(), 1, scalar + sum(map(max, computed, moved)), starts=sum(starts))


def _vector_price(s: Statement) -> float:
    """What a statement costs an element in a loop of vectors."""
    if isinstance(s, (Let, Combine)):
        return cost.lane_price(s.primitive, np_dtype((s.target if isinstance(s, Let) else s.cell).dtype).itemsize)
    return price_of(s)


def _without_single(body: Sequence[Statement]) -> Iterator[Statement]:
    """The statements, loops of one iteration as their bodies."""
    for s in body:
        if isinstance(s, For):
            inner = [*_without_single(s.body)]
            count = s.high - s.low
            yield from inner if not count.terms and count.constant == 1 else [replace(s, body=inner)]
        elif isinstance(s, While):
            yield replace(s, test=[*_without_single(s.test)], body=[*_without_single(s.body)])
        elif isinstance(s, Conditional):
            yield replace(s, then=[*_without_single(s.then)], otherwise=[*_without_single(s.otherwise)])
        else:
            yield s


def _varying(loop: For) -> dict[Statement, float] | None:
    """What is done for each iteration of a loop that becomes vectors, by us or by LLVM, and how many times as long it takes as it
    does for a vector of neighbours; None for other loops."""
    machine = this_machine()
    if (planned := plan(loop, machine)) is not None:
        return {**dict.fromkeys(planned.inside, 1.0), **dict.fromkeys(planned.gathers, SCALAR)}
    count = loop.high - loop.low
    if (not count.terms and count.constant < FEWEST) or any(isinstance(s, (For, While, Combine)) for s in walk(loop.body)):
        return None
    found = _Varying(loop.axis, machine)
    return found.inside if found.fits(loop.body) and _are_apart(loop) else None


class _Varying:
    """The statements of a loop that are done for each iteration, where LLVM can do several of these at once."""

    def __init__(self, axis: ScalarVar, machine: Target) -> None:
        self.axis, self.machine = axis, machine
        self.inside: dict[Statement, float] = {}
        self.values: set[ScalarVar | Cell] = {axis}
        self.kept: set[Cell] = set()

    def fits(self, body: Sequence[Statement]) -> bool:
        """Whether statements can be done for several iterations at once."""
        return all(map(self._fits, body))

    def _fits(self, s: Statement) -> bool:
        varies = isinstance(s, Store) or not self.values.isdisjoint(reads(s))
        if isinstance(s, Conditional):
            return not varies and self.fits(s.then) and self.fits(s.otherwise)
        if varies:
            self.inside[s] = 1.0
            self.values.update(assigns(s))
        if isinstance(s, (Load, Store)):
            return self._moves(s)
        if isinstance(s, Set):
            self.kept.add(s.cell)
        if isinstance(s, Get):
            return s.cell in self.kept
        if varies and isinstance(s, Let):
            return has_vectors(s.primitive, [a.dtype for a in s.args], s.target.dtype, self.machine)
        return True

    def _moves(self, s: Load | Store) -> bool:
        """Whether an access is to neighbours, or a load of every so many elements, one by one."""
        at = position_in(s.buffer, s.index)
        step = at.stride(self.axis)
        if isinstance(s, Load) and step not in (0, 1):
            self.inside[s] = SCALAR
        return (isinstance(s, Load) or step == 1) and not any(v in self.values for v, _ in at.terms if v is not self.axis)


def _are_apart(loop: For) -> bool:
    """Whether no iteration reads or writes what another one writes: positions in a buffer are the same, or a loop apart."""
    count = loop.high - loop.low
    touched = [(s, position_in(s.buffer, s.index)) for s in walk(loop.body) if isinstance(s, (Load, Store))]
    return all(_keep_apart(at - other, count) for s, at in touched if isinstance(s, Store)
               for t, other in touched if t is not s and t.buffer is s.buffer)


def _keep_apart(distance: Affine, count: Affine) -> bool:
    if distance.terms:
        return False
    return distance.constant == 0 or (not count.terms and abs(distance.constant) >= count.constant)
