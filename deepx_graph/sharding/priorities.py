"""The order in which propagation goes through operations: those that only pass elements on before those that combine them.

`SCHEDULE` is a list of levels. Each says of a factor of a node in which direction its axes may go; a level comes with all before
it.
The order is that of Shardy's `op-priority-propagate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Flag
from functools import cached_property

from deepx_graph.ir import Node
from deepx_graph.ir.factor_rule import FactorRule
from deepx_graph.ir.structure import PROJ
from deepx_graph.sharding.rules import is_border, makes_constants, partitioning_of

BARRIER = "propagation_barrier"
"""The note of a value over which shardings go in one direction alone, or in none: `FORWARD`, `BACKWARD`, `NONE`."""


class Direction(Flag):
    """From operands to results, from results to operands."""

    NONE = 0
    FORWARD = 1
    BACKWARD = 2
    BOTH = 3


@dataclass(frozen=True)
class RuledNode:
    """A node with its rule. `is_shared`: whether operands, and results, have several uses; `open`: where shardings may go;
    `elementwise`: whether it is such an operation."""

    node: Node
    rule: FactorRule
    is_shared: tuple[bool, bool] = (False, False)
    open: Direction = Direction.BOTH
    elementwise: bool = False

    @staticmethod
    def of(node: Node, rule: FactorRule, users: Mapping[Node, tuple[Node, ...]], returned: Mapping[Node, int]) -> RuledNode:
        """A node of a function with these users, and numbers of times that each of its results is returned."""
        def has_many(n: Node) -> bool:
            return len(users[n]) + returned.get(n, 0) > 1

        items = [u for u in users[node] if u.op is PROJ] or [node]
        operands = [i for i, mapped in zip(node.inputs, rule.operands, strict=True) if mapped and not makes_constants(i)]
        is_shared = (False, False) if is_border(node) else (any(map(has_many, operands)), any(map(has_many, items)))
        return RuledNode(node, rule, is_shared, Direction[dict(node.origin.notes).get(BARRIER, "BOTH")], node.op.elementwise)

    def direction(self, factor: int, level: int) -> Direction:
        """Where axes of the factor may go at the first levels of the schedule."""
        found = Direction.NONE
        for allowed in SCHEDULE[:level]:
            found |= allowed(self, factor)
        return found & self.open

    @cached_property
    def passes_through(self) -> bool:
        """Whether every factor is in all tensors that have dimensions, and split for nothing, as of reshapes."""
        tensors = [{f for dim in t for f in dim} for t in self.rule.tensors if t]
        return all(t == tensors[0] and all(map(self.rule.splits_freely, t)) for t in tensors)

    @cached_property
    def passed(self) -> Direction:
        """Where the node passes elements on before others combine them: a part at computed positions lies as the whole."""
        if self.passes_through or is_border(self.node):
            return Direction.BOTH
        how = partitioning_of(self.node)
        return Direction.FORWARD if how is not None and how.selects else Direction.NONE

    @cached_property
    def repeats(self) -> bool:
        """Whether the result repeats the operand, and is larger."""
        how = partitioning_of(self.node)
        return how is not None and how.repeats and not self.passes_through


def _passed_on_once(n: RuledNode, factor: int) -> Direction:
    before, after = n.is_shared
    return n.passed & (Direction.NONE if before else Direction.BACKWARD if after else Direction.BOTH)


def _passed_on(n: RuledNode, factor: int) -> Direction:
    return n.passed


def _kept_factor(n: RuledNode, factor: int) -> Direction:
    if factor in n.rule.reduction | n.rule.replicated | n.rule.permuted:
        return Direction.NONE
    return _all_but_repeating(n, factor)


def _all_but_repeating(n: RuledNode, factor: int) -> Direction:
    return Direction.BACKWARD if n.repeats else Direction.BOTH


def _all(n: RuledNode, factor: int) -> Direction:
    return Direction.BOTH


SCHEDULE: tuple[Callable[[RuledNode, int], Direction], ...] = (_passed_on_once, _passed_on, _kept_factor, _all_but_repeating, _all)
"""Where a value is used several times, its users wait, so that one resharding serves them."""
