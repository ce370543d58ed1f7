"""How each node is split: the axes of its factors that make its operands and results cheapest to bring where the plan has them.

A factor may be split along axes that do not divide it where what lies beyond the end does no harm: it is dropped, or in a reduction
masked by what changes nothing. A permuted one may where its neighbours' elements can be fetched (`halo`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from deepx_graph.ir import Function, Node
from deepx_graph.ir.factor_rule import FactorRule
from deepx_graph.ir.structure import PROJ, index_of
from deepx_graph.sharding.by_hand.borders import axes_by_hand
from deepx_graph.sharding.copies import Copies
from deepx_graph.sharding.halo import halo_cost
from deepx_graph.sharding.mesh import Axes, Mesh, fills, local_shape
from deepx_graph.sharding.reshard import MESSAGE, TensorLayout, reshard_path
from deepx_graph.sharding.rules import (
    FactorAxes,
    expressible,
    layout_of,
    makes_constants,
    partial_axes,
    permuted_dims,
    possible_axes,
    project,
    reading_of,
    result_size,
)
from deepx_graph.types import TensorType, TupleType, as_tensor

MOST_CHOICES = 512
"""So many ways to split one node are compared."""


class Splits:
    """The ways to split the nodes of a function whose values lie on the mesh as `layouts` says."""

    def __init__(self, function: Function, layouts: Mapping[Node, TensorLayout], mesh: Mesh, copies: Copies,
                 asked: Mapping[Node, Sequence[TensorLayout]]) -> None:
        self.function, self.layouts, self.mesh = function, layouts, mesh
        self.copies, self.asked = copies, asked
        self.by_hand = axes_by_hand(function, mesh)

    def chosen(self, node: Node, rule: FactorRule) -> FactorAxes:
        """The axes of each factor that make operands and results cheapest to bring where they belong.

        Where devices have to exchange something for that, reductions are also tried along axes that their tensors do not name.
        """
        wishes = self._wishes(node, rule)
        best, cost = self._cheapest(node, rule, wishes)
        if cost >= MESSAGE and self._add_reductions(node, rule, wishes):
            other, found = self._cheapest(node, rule, wishes)
            best = other if found < cost else best
        return best

    def _cheapest(self, node: Node, rule: FactorRule, wishes: Mapping[int, list[Axes]]) -> tuple[FactorAxes, float]:
        best: FactorAxes = {}
        cost = math.inf
        for axes in _assignments(rule, wishes):
            found = self.cost(node, rule, axes)
            if found < cost:
                best, cost = axes, found
        return best, cost

    def _add_reductions(self, node: Node, rule: FactorRule, wishes: dict[int, list[Axes]]) -> bool:
        """Adds to the wishes of each reduction factor every axis of the mesh, and all together that no tensor has; whether any."""
        named = {a for found in wishes.values() for axes in found for a in axes}
        by_hand = self.by_hand.get(node, frozenset())
        whole = [self.mesh.axis(name) for name, _ in self.mesh.axes]
        each = [self.mesh.atoms([axis]) for axis in whole if not any(axis.overlaps(a) for a in by_hand)]
        tried = [*each, tuple(a for axes in each for a in axes if a not in named)]
        before = sum(map(len, wishes.values()))
        for f in sorted(rule.reduction):
            for axes in tried:
                if axes and possible_axes(node, rule, f, axes) == axes and fills(rule.sizes[f], axes):
                    _add(wishes.setdefault(f, []), axes)
        return sum(map(len, wishes.values())) > before

    def _wishes(self, node: Node, rule: FactorRule) -> dict[int, list[Axes]]:
        """For each factor that can be split the axes that its tensors have there, or have on a factor that has to be whole, alone
        or behind these.
        """
        layouts = [*((mapped, layout.dims) for i, mapped in zip(node.inputs, rule.operands, strict=True) if not makes_constants(i)
                     for layout in dict.fromkeys((self.layouts[i], *self.copies.layouts(i)))),
                   *((mapped, layout.dims) for k, mapped in enumerate(rule.results) for layout in self.needed(node, k))]
        found: dict[int, list[Axes]] = {}
        displaced: list[Axes] = []
        for mapped, dims in layouts:
            for f, wanted in project(mapped, dims, rule.sizes).items():
                axes = possible_axes(node, rule, f, wanted)
                if axes:
                    _add(found.setdefault(f, []), axes)
                elif wanted and wanted not in displaced:
                    displaced.append(wanted)
        if displaced:
            for f in range(len(rule.sizes)):
                if all(f in {g for dim in t for g in dim} for t in rule.tensors if t) and rule.sizes[f] > 1:
                    behind = [(*before, *axes) for before in ((), *found.get(f, ())) for axes in displaced
                              if not any(a.overlaps(b) for a in before for b in axes)]
                    for axes in behind:
                        if possible_axes(node, rule, f, axes) == axes and fills(rule.sizes[f], axes):
                            _add(found.setdefault(f, []), axes)
        return found

    def needed(self, node: Node, k: int) -> list[TensorLayout]:
        """How result k of a node is to lie: in the plan, where it has users, and as the function gives it."""
        value = node
        if isinstance(node.type, TupleType):
            value = next((u for u in self.function.users[node] if u.op is PROJ and index_of(u) == k), node)
            if value is node:
                return []
        asked = self.asked.get(value, ())
        return [*([self.layouts[value]] if self.function.users[value] or not asked else []), *asked]

    def cost(self, node: Node, rule: FactorRule, axes: FactorAxes) -> float:
        """What resharding costs around a node that is split so; then how little of it one device computes."""
        total = 0.0
        moved: set[tuple[Node, TensorLayout]] = set()
        for i, mapped in zip(node.inputs, rule.operands, strict=True):
            type = as_tensor(i.type)
            wanted = layout_of(mapped, axes, rule.sizes)
            if (i, wanted) not in moved:
                moved.add((i, wanted))
                total += self.copies.cost(i, wanted)
            for dim, f in permuted_dims(rule, mapped, axes):
                shape = tuple(type.shape[k] if k == dim else n for k, n in enumerate(local_shape(type.shape, wanted.dims)))
                reading = reading_of(node, rule, f)
                assert reading is not None
                total += halo_cost(shape, type.dtype.itemsize, dim, result_size(node, rule, f), axes[f], reading)
        partial = partial_axes(rule, axes)
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        for k, (item, mapped) in enumerate(zip(types, rule.results, strict=True)):
            made = TensorLayout(layout_of(mapped, axes, rule.sizes).dims, partial)
            total += _spread(as_tensor(item), made, self.needed(node, k))
        return total + 1.0 / math.prod(a.size for found in axes.values() for a in found)


def _spread(type: TensorType, made: TensorLayout, needed: Sequence[TensorLayout]) -> float:
    """What it costs to have a value that is made in a layout in others, too, each from what is nearest of those before."""
    total, there = 0.0, [made]
    for layout in needed:
        total += min(reshard_path(type.shape, type.dtype.itemsize, at, layout).cost for at in there)
        there.append(layout)
    return total


def _add(found: list[Axes], axes: Axes) -> None:
    if axes not in found:
        found.append(axes)


# --- assignments --------------------------------------------------------------------------------------------------


def _assignments(rule: FactorRule, wishes: Mapping[int, list[Axes]]) -> Iterator[dict[int, Axes]]:
    """Each factor along one of its wishes or not split, no axis twice; all that a dimension can say, once each."""
    seen: set[tuple[tuple[int, Axes], ...]] = set()
    options: list[list[Axes]] = [[*wishes[f], ()] for f in wishes]
    for chosen in itertools.islice(itertools.product(*options), MOST_CHOICES):
        atoms = [a for axes in chosen for a in axes]
        if len(set(atoms)) < len(atoms) or len({a.mesh for a in atoms}) > 1:
            continue
        axes = expressible(rule, {f: c for f, c in zip(wishes, chosen, strict=True) if c})
        key = tuple((f, a) for f, a in sorted(axes.items(), key=lambda x: x[0]) if a)
        if key not in seen:
            seen.add(key)
            yield axes
