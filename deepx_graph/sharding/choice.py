"""How each node is split: the axes of its factors that make its operands and results cheapest to bring where the plan has them.

A factor may be split along axes that do not divide it where what lies beyond the end does no harm: it is dropped, or in a reduction
masked by what changes nothing. A permuted one may where its neighbours' elements can be fetched (`halo`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.factor_rule import FactorRule, Reading, result_shapes
from deepx_graph.ir.structure import PROJ, index_of
from deepx_graph.sharding.halo import halo_cost
from deepx_graph.sharding.mesh import Mesh, count_of, fills, local_shape
from deepx_graph.sharding.propagate import Atoms, assemble, project
from deepx_graph.sharding.reshard import MESSAGE, TensorLayout, reshard_path
from deepx_graph.sharding.rules import makes_constants, partitioning_of
from deepx_graph.types import TensorType, TupleType, as_tensor

if TYPE_CHECKING:
    from deepx_graph.sharding.copies import Copies

MOST_CHOICES = 512
"""So many ways to split one node are compared."""

FactorAxes = Mapping[int, Atoms]
"""The axes along which each factor is split."""


class Splits:
    """The ways to split the nodes of a function whose values lie on the mesh as `layouts` says."""

    def __init__(self, function: Function, layouts: Mapping[Node, TensorLayout], mesh: Mesh, copies: Copies,
                 asked: Mapping[Node, Sequence[TensorLayout]]) -> None:
        self.function, self.layouts, self.mesh = function, layouts, mesh
        self.copies, self.asked = copies, asked

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

    def _cheapest(self, node: Node, rule: FactorRule, wishes: Mapping[int, list[Atoms]]) -> tuple[FactorAxes, float]:
        best: FactorAxes = {}
        cost = math.inf
        for axes in _assignments(rule, wishes):
            found = self.cost(node, rule, axes)
            if found < cost:
                best, cost = axes, found
        return best, cost

    def _add_reductions(self, node: Node, rule: FactorRule, wishes: dict[int, list[Atoms]]) -> bool:
        """Adds to the wishes of each reduction factor every axis of the mesh, and all together that no tensor has; whether any."""
        named = {a for found in wishes.values() for axes in found for a in axes}
        each = [self.mesh.atoms([self.mesh.axis(name)]) for name, _ in self.mesh.axes]
        tried = [*each, tuple(a for axes in each for a in axes if a not in named)]
        before = sum(map(len, wishes.values()))
        for f in sorted(rule.reduction):
            for axes in tried:
                if axes and possible_axes(node, rule, f, axes) == axes and fills(rule.sizes[f], axes):
                    _add(wishes.setdefault(f, []), axes)
        return sum(map(len, wishes.values())) > before

    def _wishes(self, node: Node, rule: FactorRule) -> dict[int, list[Atoms]]:
        """For each factor that can be split the axes that its tensors have there, or have on a factor that has to be whole."""
        layouts = [*((mapped, layout.dims) for i, mapped in zip(node.inputs, rule.operands, strict=True) if not makes_constants(i)
                     for layout in dict.fromkeys((self.layouts[i], *self.copies.layouts(i)))),
                   *((mapped, layout.dims) for k, mapped in enumerate(rule.results) for layout in self.needed(node, k))]
        found: dict[int, list[Atoms]] = {}
        displaced: list[Atoms] = []
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
                    for axes in displaced:
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
            for dim, f in _permuted(rule, mapped, axes):
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


def _add(found: list[Atoms], axes: Atoms) -> None:
    if axes not in found:
        found.append(axes)


def _permuted(rule: FactorRule, mapped: Sequence[Sequence[int]], axes: FactorAxes) -> Iterator[tuple[int, int]]:
    """The dimensions of an operand that are split along a permuted factor, with that."""
    for dim, factors in enumerate(mapped):
        for f in factors:
            if f in rule.permuted and axes.get(f):
                yield dim, f


def halos(rule: FactorRule, axes: FactorAxes) -> Iterator[tuple[int, int, int]]:
    """Operand, dimension and factor of what is read across the borders of parts."""
    for k, mapped in enumerate(rule.operands):
        for dim, f in _permuted(rule, mapped, axes):
            yield k, dim, f


def partial_axes(rule: FactorRule, axes: FactorAxes) -> Atoms:
    """The axes over which the results of a node that is split so are still to be combined."""
    return tuple(a for f in sorted(rule.reduction) for a in axes.get(f, ()))


# --- what can be split --------------------------------------------------------------------------------------------


def combiner_of(node: Node) -> Op | None:
    """The op that combines partial results of the node; None where they cannot be."""
    how = partitioning_of(node)
    return how.combiner(node) if how and how.combiner else None


def reading_of(node: Node, rule: FactorRule, factor: int) -> Reading | None:
    """What is read along a permuted factor; None where it has to be whole."""
    how, dim = partitioning_of(node), _dimension(rule.results[0], factor)
    return None if how is None or how.reading is None or dim is None else how.reading(node, dim)


def result_size(node: Node, rule: FactorRule, factor: int) -> int:
    """The size of the dimension of the result that a permuted factor is."""
    dim = _dimension(rule.results[0], factor)
    assert dim is not None
    return result_shapes(node)[0][dim]


def _dimension(mapped: Sequence[Sequence[int]], factor: int) -> int | None:
    return next((d for d, factors in enumerate(mapped) if factor in factors), None)


def possible_axes(node: Node, rule: FactorRule, factor: int, axes: Atoms) -> Atoms:
    """The leading axes along which a factor of the node can be split; none where it has to be whole."""
    how = partitioning_of(node)
    is_empty = 0 in (rule.sizes[factor], *map(math.prod, result_shapes(node)))
    is_left_out = factor not in rule.reduction and any(_dimension(mapped, factor) is None for mapped in rule.results)
    if (how is None or is_empty or is_left_out or factor in rule.replicated | rule.whole
            or (factor in rule.reduction and combiner_of(node) is None)
            or (factor in rule.positional and how.placed is None)
            or (factor in rule.permuted and reading_of(node, rule, factor) is None)):
        return ()
    return axes if _may_be_padded(node, rule, factor) else _even(rule.sizes[factor], axes)


def _may_be_padded(node: Node, rule: FactorRule, factor: int) -> bool:
    """Whether parts may be rounded up: the factor is a whole dimension wherever it is, and in a reduction can be masked."""
    shapes = [*(as_tensor(i.type).shape for i in node.inputs), *result_shapes(node)]
    for k, (mapped, shape) in enumerate(zip(rule.tensors, shapes, strict=True)):
        dim = _dimension(mapped, factor)
        if dim is None:
            continue
        if len(mapped[dim]) > 1 or shape[dim] == 0 or (shape[dim] != rule.sizes[factor] and factor not in rule.permuted):
            return False
        if factor in rule.reduction and k < len(rule.operands) and neutral_of(node, k) is None:
            return False
    return True


def neutral_of(node: Node, operand: int) -> object:
    """What an operand has beyond its end on a reduction factor; None where nothing changes nothing."""
    how = partitioning_of(node)
    return how.neutral(node, operand) if how and how.neutral else None


def _even(size: int, atoms: Atoms) -> Atoms:
    """The leading axes that split a size evenly."""
    count = 1
    for k, a in enumerate(atoms):
        count *= a.size
        if size % count or size == 0:
            return atoms[:k]
    return atoms


# --- assignments --------------------------------------------------------------------------------------------------


def _assignments(rule: FactorRule, wishes: Mapping[int, list[Atoms]]) -> Iterator[dict[int, Atoms]]:
    """Each factor along one of its wishes or not split, no axis twice; all that a dimension can say, once each."""
    seen: set[tuple[tuple[int, Atoms], ...]] = set()
    options: list[list[Atoms]] = [[*wishes[f], ()] for f in wishes]
    for chosen in itertools.islice(itertools.product(*options), MOST_CHOICES):
        atoms = [a for axes in chosen for a in axes]
        if len(set(atoms)) < len(atoms):
            continue
        axes = expressible(rule, {f: c for f, c in zip(wishes, chosen, strict=True) if c})
        key = tuple((f, a) for f, a in sorted(axes.items(), key=lambda x: x[0]) if a)
        if key not in seen:
            seen.add(key)
            yield axes


def expressible(rule: FactorRule, axes: dict[int, Atoms]) -> dict[int, Atoms]:
    """Without the axes of minor factors of dimensions whose major ones are not split to the end."""
    found = dict(axes)
    for mapped in rule.tensors:
        for factors in mapped:
            is_full = True
            for f in factors:
                if not is_full:
                    found[f] = ()
                is_full = is_full and count_of(found.get(f, ())) == rule.sizes[f]
    return found if found == axes else expressible(rule, found)


def layout_of(mapped: Sequence[Sequence[int]], axes: FactorAxes, sizes: Sequence[int]) -> TensorLayout:
    """How a tensor lies whose factors are split so."""
    return TensorLayout(tuple(assemble(factors, axes, sizes) for factors in mapped))
