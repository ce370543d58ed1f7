"""Why each collective of a partitioned program is there: a closed list of reasons, with the value, the place and the axes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from deepx_graph.ir import Node
from deepx_graph.ir.factor_rule import FactorRule
from deepx_graph.sharding.mesh import Axes, AxisRef
from deepx_graph.sharding.reshard import TensorLayout
from deepx_graph.sharding.rules import FactorAxes, possible_axes


class MeetingReason(Enum):
    """Why devices have to meet."""

    REDUCTION = "reduction over a sharded factor"
    NEIGHBOURS = "elements of neighbours are read"
    TWICE = "axis used twice"
    WHOLE = "factor must be whole"
    INDIVISIBLE = "indivisible"
    SUB_AXIS = "sub-axis not expressible"
    CONSTRAINT = "constraint by the user"
    RESULT = "result asked so"
    WRITTEN = "written in the program"
    CONTROL = "control flow joins two shardings"


@dataclass(frozen=True)
class CollectiveCause:
    """One collective: its node in the program of one device; `value`, of the whole program, that it moves, and `at`, what needs it.

    `at` is None where a result of the function does. `before` and `after` are the layouts between which it is one of the moves.
    """

    collective: Node
    reason: MeetingReason
    value: Node
    at: Node | None
    before: TensorLayout
    after: TensorLayout

    @property
    def axes(self) -> Axes:
        """The axes that split the value in only one of the layouts, or along another dimension."""
        def places(layout: TensorLayout) -> set[tuple[AxisRef, int]]:
            return {(a, d) for d, axes in enumerate(layout.dims) for a in axes} | {(a, -1) for a in layout.partial}

        changed = {a for a, _ in places(self.before) ^ places(self.after)}
        every = [a for layout in (self.before, self.after) for axes in (*layout.dims, layout.partial) for a in axes]
        return tuple(dict.fromkeys(a for a in every if a in changed))


def of_operand(node: Node, rule: FactorRule, operand: int, axes: FactorAxes, before: TensorLayout) -> MeetingReason:
    """Why an operand is not used as it lies by a node whose factors are split along `axes`."""
    used = {a for split in axes.values() for a in split}
    found = [_lost(node, rule, f, split, axes, used) for f, split in _split(rule, operand, before)]
    known = [r for r in found if r is not None]
    return known[0] if known else MeetingReason.TWICE if used else MeetingReason.RESULT


def _split(rule: FactorRule, operand: int, before: TensorLayout) -> Iterator[tuple[tuple[int, ...], Axes]]:
    yield from ((dim, split) for dim, split in zip(rule.operands[operand], before.dims, strict=True) if split)


def _lost(node: Node, rule: FactorRule, factors: tuple[int, ...], split: Axes, axes: FactorAxes,
          used: set[AxisRef]) -> MeetingReason | None:
    """Why the axes of one dimension cannot stay there; None where they do."""
    kept = [a for f in factors for a in axes.get(f, ())]
    if list(split) == kept:
        return None
    lost = [a for a in split if a not in kept]
    if used.intersection(lost):
        return MeetingReason.TWICE
    possible = [possible_axes(node, rule, f, split) for f in factors]
    if not any(possible):
        sizes = [rule.sizes[f] for f in factors]
        is_whole = all(f in rule.replicated | rule.whole | rule.positional | rule.permuted | rule.reduction for f in factors)
        return MeetingReason.WHOLE if is_whole or len(sizes) == 1 else MeetingReason.INDIVISIBLE
    if len(factors) > 1:
        return MeetingReason.SUB_AXIS
    return MeetingReason.RESULT
