"""Scalars that are the same computation, each a step further in memory than the one before: one computation at a subscript that
says which. So windows of a tensor that are stacked are read where they lie, without a choice among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from deepx_graph.loops.builder import LoopBuilder
from deepx_graph.loops.complex import parts
from deepx_graph.loops.program import Let, Load, Statement
from deepx_graph.loops.scalar import Affine, NotExpressible, Scalar, ScalarConst, ScalarVar

LEAST = 3
"""So many scalars are a progression; two are any."""


@dataclass(frozen=True)
class _Trial:
    """What computes one of the scalars."""

    body: list[Statement]
    result: Any

    def shape(self) -> tuple[Any, ...]:
        """What all must have in common. Raises NotExpressible where more is done than loading and computing."""
        names: dict[ScalarVar, int] = {}

        def named(x: Scalar, whole: bool) -> Any:
            if isinstance(x, ScalarVar):
                return names.get(x, x)
            if isinstance(x, ScalarConst):
                return x.dtype, x.value.tobytes()
            return tuple((names.get(v, v), factor) for v, factor in x.terms), x.constant if whole else None

        found: list[Any] = []
        for s in self.body:
            if isinstance(s, Let):
                found.append((s.primitive, s.target.dtype, s.target.low, s.target.high, *(named(a, True) for a in s.args)))
            elif isinstance(s, Load):
                found.append((s.buffer, *(named(i, False) for i in s.index)))
            else:
                raise NotExpressible("more than loads and computing")
            names[s.target] = len(names)
        return (*found, *(named(x, True) for x in parts(self.result)))

    def constants(self) -> Iterator[int]:
        """Those of the subscripts of loads, in order."""
        for s in self.body:
            if isinstance(s, Load):
                yield from (i.constant for i in s.index)


def nth_of(b: LoopBuilder, n: Affine, makes: Sequence[Callable[[], Any]]) -> Any | None:
    """What the n-th of some functions would write: as one computation, where they all write the same one with subscripts in
    arithmetic progression; else None, and nothing is written."""
    if len(makes) < LEAST:
        return None
    asked = len(b.undecided)
    try:
        first, second, *others = (_tried(b, make, asked) for make in makes)
        shape, start = first.shape(), list(first.constants())
        if second.shape() != shape:
            return None
        steps = [y - x for x, y in zip(start, second.constants(), strict=True)]
        for k, trial in enumerate(others, 2):
            if trial.shape() != shape or list(trial.constants()) != [x + k * step for x, step in zip(start, steps, strict=True)]:
                return None
    except NotExpressible:
        return None
    moves = iter(steps)
    for s in first.body:
        if isinstance(s, Load):
            s.index = tuple(i + n * next(moves) for i in s.index)
        b.emit(s)
    return first.result


def _tried(b: LoopBuilder, make: Callable[[], Any], asked: int) -> _Trial:
    """What a function writes, apart. Raises NotExpressible where it asks more of subscripts than their ranges say."""
    body: list[Statement] = []
    with b.block(body):
        result = make()
    if len(b.undecided) > asked:
        del b.undecided[asked:]
        raise NotExpressible("a question about subscripts")
    return _Trial(body, result)
