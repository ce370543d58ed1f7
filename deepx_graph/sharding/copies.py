"""The layouts in which each value is at hand on the devices, and the cheapest way to have it in another one.

A value is moved from that of its copies from which devices exchange least, or computed again from operands that lie, or can
cheaply be brought to lie, as that needs. So what one user has had moved serves the others, and a value that is gathered serves
those that are computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deepx_graph.ir import Node
from deepx_graph.ir.factor_rule import FactorRule
from deepx_graph.sharding.reshard import Path, TensorLayout, reshard_path
from deepx_graph.sharding.rules import FactorAxes, expressible, factor_rule, layout_of, makes_constants, possible_axes, project
from deepx_graph.types import TensorType, as_tensor

REMADE = 4
"""So many operations one after the other are computed again rather than exchanged."""


@dataclass(frozen=True)
class MoveWay:
    """A value is moved from the layout `before`."""

    cost: float
    before: TensorLayout
    path: Path


@dataclass(frozen=True)
class RemakeWay:
    """A value is computed again, split along these axes, from operands in these layouts."""

    cost: float
    rule: FactorRule
    axes: FactorAxes
    operands: tuple[TensorLayout, ...]


class Copies:
    """The copies of each value so far. `is_fixed` says what cannot be computed again."""

    def __init__(self, is_fixed: Callable[[Node], bool]) -> None:
        self._is_fixed = is_fixed
        self._made: dict[Node, dict[TensorLayout, Node]] = {}
        self._ways: dict[Node, dict[tuple[TensorLayout, int], MoveWay | RemakeWay]] = {}
        self._readers: dict[Node, set[Node]] = {}
        """For each value those whose ways have been found by what it costs."""

    def add(self, value: Node, layout: TensorLayout, made: Node) -> None:
        """One more copy; the first one of each layout stays."""
        copies = self._made.setdefault(value, {})
        if layout not in copies:
            copies[layout] = made
            self._forget(value)

    def only(self, value: Node, layout: TensorLayout) -> None:
        """Forgets all copies of a value but that one."""
        self._made[value] = {layout: self._made[value][layout]}
        self._forget(value)

    def _forget(self, value: Node) -> None:
        """Forgets the ways that the copies of the value are part of: its own, and those of what is computed again from it."""
        stale = {value}
        for _ in range(REMADE + 1):
            for node in stale:
                self._ways.pop(node, None)
            stale = {reader for node in stale for reader in self._readers.get(node, ())}

    def of(self, value: Node, layout: TensorLayout) -> Node | None:
        """The copy in that layout."""
        return self._made[value].get(layout)

    def layouts(self, value: Node) -> Iterable[TensorLayout]:
        """The layouts of all copies."""
        return self._made[value]

    def cost(self, value: Node, after: TensorLayout, depth: int = REMADE) -> float:
        """What devices exchange to have the value in a layout."""
        return 0.0 if makes_constants(value) or after in self._made[value] else self.way(value, after, depth).cost

    def way(self, value: Node, after: TensorLayout, depth: int = REMADE) -> MoveWay | RemakeWay:
        """The cheapest way to have the value in a layout that it has no copy in."""
        ways, key = self._ways.setdefault(value, {}), (after, depth)
        if key not in ways:
            type = as_tensor(value.type)
            moves = ((before, reshard_path(type.shape, type.dtype.itemsize, before, after)) for before in self._made[value])
            before, path = min(moves, key=lambda found: found[1].cost)
            again = None if path.is_free or depth == 0 else self._again(value, after, depth)
            ways[key] = again if again is not None and again.cost < path.cost else MoveWay(path.cost, before, path)
        return ways[key]

    def _again(self, node: Node, after: TensorLayout, depth: int) -> RemakeWay | None:
        """How a value is computed again in another layout; None where it cannot be."""
        rule = factor_rule(node)
        if rule is None or rule.reduction or not node.op.total or not isinstance(node.type, TensorType) or self._is_fixed(node):
            return None
        axes = project(rule.results[0], after.dims, rule.sizes)
        if expressible(rule, axes) != axes or layout_of(rule.results[0], axes, rule.sizes) != after or not all(
                rule.splits_freely(f) and possible_axes(node, rule, f, a) == a for f, a in axes.items() if a):
            return None
        operands = tuple(layout_of(mapped, axes, rule.sizes) for mapped in rule.operands)
        for i in node.inputs:
            self._readers.setdefault(i, set()).add(node)
        cost = sum(self.cost(i, o, depth - 1) for i, o in set(zip(node.inputs, operands, strict=True)))
        return RemakeWay(cost, rule, axes, operands)
