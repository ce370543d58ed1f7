"""Guards that hold for all but the ends of an axis are tested at the ends only: index-set splitting of an output axis.

    for j in 0 .. n:                    for j in 1 .. n - 1:
      for k in 0 .. 3:                    for k in 0 .. 3:
        if 0 <= j + k - 1 < n:     ->       cell = max(cell, x[j + k - 1])
          cell = max(cell, x[j + k - 1])
                                        for j in 0 .. 1 and n - 1 .. n:   as before

Guards beside it that depend on axes around the loop alone are then tested once, before the loop. Only the innermost parallel loop
of a nest is cut, so the number of copies stays small. Where `index_sets` has cut the rows of a nest, and asks in each row which of
them it is, this takes the question out of the rows between the ends: they are loops without gaps, which can be flattened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from deepx_graph.loops.passes.rewrite import Fresh, copied, replaced
from deepx_graph.loops.program import Conditional, For, Let, LoopProgram, Statement, assigns, blocks_of, walk
from deepx_graph.loops.scalar import FALSE, TRUE, Affine, Scalar, ScalarVar, affine
from deepx_graph.types import BOOL, I64

MOST_COPIES = 4
"""A body is copied at most so often; what is left is done by the body as it was."""

LEAST_LENGTH = 4
"""A shorter piece of an axis is not worth a copy."""

LARGEST_BODY = 200
"""A body of more statements is not copied."""

TILE = 4096
"""The iterations of an outermost loop that is cut are done in shares of that many."""

Interval = tuple[int, int]


def split_guards(program: LoopProgram) -> LoopProgram:
    """The program with loops that are cut, in place."""
    fresh = Fresh(program)
    outermost = {id(s) for s in program.body}
    new: dict[int, Sequence[Statement]] = {}
    for loop in _innermost(program.body):
        pieces = _in_tiles(loop, fresh) if id(loop) in outermost else list(_pieces(loop, fresh))
        if pieces:
            new[id(loop)] = pieces
    program.body = replaced(program.body, new)
    return program


def _innermost(body: Sequence[Statement]) -> Iterator[For]:
    """Parallel loops without parallel loops within."""
    for s in body:
        inside = [each for block in blocks_of(s) for each in _innermost(block)]
        yield from inside
        if isinstance(s, For) and s.parallel and not inside:
            yield s


def _in_tiles(loop: For, fresh: Fresh) -> list[Statement]:
    """The pieces of an outermost loop, which stays one loop that threads share."""
    n = loop.high.constant
    count = -(-n // TILE)
    t = fresh.var(I64, 0, max(0, count - 1))
    end = fresh.var(I64, 1, n)
    ends: list[Statement] = [Let(end, "min", (affine(t) * TILE + TILE, Affine((), n)))]
    inner = For(loop.axis, affine(t) * TILE, affine(end), loop.body, parallel=True)
    pieces = list(_pieces(inner, fresh))
    return [For(t, Affine(), Affine((), count), ends + pieces, parallel=True)] if pieces else []


@dataclass(eq=False)
class _Guards:
    """What is known of the guards in a body where the axis is in an interval."""

    inside: list[tuple[ScalarVar, bool, Interval]] = field(default_factory=list)
    """A guard is that in this interval, whatever other axes are."""
    outer: list[tuple[ScalarVar, Affine]] = field(default_factory=list)
    """A guard holds where this is not negative; it depends on axes around the loop alone."""


def _guards(loop: For) -> _Guards:
    """The guards of conditionals within a loop that the axis, or those around it, may decide."""
    statements = [s for block in blocks_of(loop) for s in walk(block)]
    within = {x for s in statements for x in assigns(s)}
    found = _Guards()
    if not any(isinstance(s, Conditional) for s in statements):
        return found
    low, high = loop.axis.low, loop.axis.high
    assert low is not None and high is not None
    for s in statements:
        if not isinstance(s, Let) or s.primitive != "lt" or any(x.dtype is not I64 for x in s.args):
            continue
        surplus = affine(s.args[1]) - affine(s.args[0]) - 1
        factor = surplus.stride(loop.axis)
        rest = surplus - affine(loop.axis) * factor
        inner = Affine(tuple((v, f) for v, f in rest.terms if v in within))
        outer = rest - inner
        if (ends := inner.bounds) is None:
            continue
        if not factor and not outer.terms:
            continue
        if not factor:
            found.outer.append((s.target, outer + ends[0]))
        elif not outer.terms:
            at = outer.constant
            for value, bound in ((True, (factor, at + ends[0])), (False, (-factor, -at - ends[1] - 1))):
                begin, end = _not_negative(*bound)
                begin, end = max(low, begin), min(high + 1, end)
                if begin < end:
                    found.inside.append((s.target, value, (begin, end)))
    return found


def _not_negative(factor: int, constant: int) -> Interval:
    """Where `factor * j + constant >= 0`, from a number up to below another."""
    far = 1 << 62
    return (-(constant // factor), far) if factor > 0 else (-far, constant // -factor + 1)


def _pieces(loop: For, fresh: Fresh) -> Iterator[Statement]:
    """The loops instead of one loop; none where nothing is gained."""
    if loop.axis.low is None or loop.axis.high is None or loop.axis.low > loop.axis.high:
        return
    if sum(1 for _ in walk(loop.body)) > LARGEST_BODY:
        return
    guards = _guards(loop)
    low, high = loop.axis.low, loop.axis.high + 1
    cuts = sorted({low, high, *(end for _, _, interval in guards.inside for end in interval)})
    known: dict[Interval, dict[ScalarVar, Scalar]] = {}
    for begin, end in pairwise(cuts):
        values: dict[ScalarVar, Scalar] = {
            x: TRUE if value else FALSE for x, value, (first, last) in guards.inside if first <= begin and end <= last}
        if values and end - begin >= LEAST_LENGTH:
            known[begin, end] = values
    chosen = sorted(sorted(known, key=lambda i: i[0] - i[1])[:MOST_COPIES])
    if not chosen:
        return
    yield from _cut(loop, chosen, known, guards.outer, fresh)


def _cut(loop: For, chosen: Sequence[Interval], known: dict[Interval, dict[ScalarVar, Scalar]],
         outer: Sequence[tuple[ScalarVar, Affine]], fresh: Fresh) -> Iterator[Statement]:
    """Copies of the loop for the chosen intervals, with what is known of guards there, and the loop itself for all others."""
    assert loop.axis.low is not None and loop.axis.high is not None
    low, high = loop.axis.low, loop.axis.high + 1
    flag, tests = _all_hold([condition for _, condition in outer], fresh)
    yield from tests
    copies: list[Statement] = []
    for begin, end in chosen:
        copies += _copy(loop, begin, end, known[begin, end] | {x: TRUE for x, _ in outer}, fresh)
    if flag is None:
        yield from copies
    else:
        yield Conditional(flag, copies, [])
    ends = [low, *(end for interval in chosen for end in interval), high]
    gaps = [(begin, end) for begin, end in zip(ends[::2], ends[1::2], strict=True) if begin < end]
    if gaps or flag is not None:
        yield from _guarded(loop, gaps, flag, fresh)


def _all_hold(conditions: Sequence[Affine], fresh: Fresh) -> tuple[ScalarVar | None, list[Statement]]:
    """Whether none of some subscripts is negative; None where there are none."""
    flag, tests = None, list[Statement]()
    for condition in dict.fromkeys(conditions):
        holds = fresh.var(BOOL)
        tests.append(Let(holds, "lt", (Affine((), -1), condition)))
        if flag is not None:
            both = fresh.var(BOOL)
            tests.append(Let(both, "and", (flag, holds)))
            holds = both
        flag = holds
    return flag, tests


def _copy(loop: For, begin: int, end: int, known: dict[ScalarVar, Scalar], fresh: Fresh) -> Iterator[Statement]:
    """The loop from `begin` up to below `end`, as far as it goes there."""
    bounds: list[Affine] = []
    for bound, limit, primitive in ((loop.low, begin, "max"), (loop.high, end, "min")):
        if bound.terms:
            limited = fresh.var(I64)
            yield Let(limited, primitive, (bound, Affine((), limit)))
            bounds.append(affine(limited))
        else:
            bounds.append(Affine((), limit))
    axis = fresh.var(I64, begin, end - 1)
    body = copied(loop.body, fresh, known | {loop.axis: affine(axis)})
    yield For(axis, bounds[0], bounds[1], body, loop.parallel)


def _guarded(loop: For, gaps: Sequence[Interval], flag: ScalarVar | None, fresh: Fresh) -> list[Statement]:
    """The loop as it was: between the copies, or everywhere where the flag is not set."""
    b = _Writer(fresh)
    gaps = gaps or [(0, 0)]
    part = fresh.var(I64, 0, len(gaps) - 1)
    first, last = (Affine((), end) for end in gaps[0])
    later = [b.let("eq", affine(part), Affine((), k)) for k in range(1, len(gaps))]
    for here, (begin, end) in zip(later, gaps[1:], strict=True):
        first = b.let("where", here, Affine((), begin), first)
        last = b.let("where", here, Affine((), end), last)
    if flag is not None:
        whole = loop.low
        for here in later:
            whole = b.let("where", here, loop.high, whole)
        first, last = b.let("where", flag, first, whole), b.let("where", flag, last, loop.high)
    if loop.low.terms or loop.high.terms:
        first, last = b.let("max", first, loop.low), b.let("min", last, loop.high)
    b.body.append(For(loop.axis, affine(first), affine(last), loop.body, parallel=True))
    return [For(part, Affine(), Affine((), len(gaps)), b.body)] if len(gaps) > 1 else b.body


class _Writer:
    """Statements on subscripts."""

    def __init__(self, fresh: Fresh) -> None:
        self.fresh, self.body = fresh, list[Statement]()

    def let(self, primitive: str, *args: Scalar) -> Any:
        """The value of a primitive, as a subscript where it is an integer."""
        target = self.fresh.var(BOOL if primitive == "eq" else I64)
        self.body.append(Let(target, primitive, args))
        return target if primitive == "eq" else affine(target)
