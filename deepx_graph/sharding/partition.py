"""Partitioning: from a program on whole tensors and a plan to the program that every device runs on its parts (SPMD).

Each node decides along which axes its factors are split, brings its operands into that form, computes its part as the operation
does on smaller tensors, combines partial results, and brings the result into the form that the plan has for it. What a form costs
to reach decides where the tensors of a node disagree. A node without a rule is computed whole on every device.

The module made has one function; its parameters and results are the parts of one device (`local_inputs`, `global_results`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ir.builder import fresh_loop
from deepx_graph.ir.factor_rule import FactorRule, result_shapes
from deepx_graph.ir.structure import CALL, CALL_VALUE, LOOP_BEGIN, PARAM, PARTIAL, PROJ, index_of
from deepx_graph.sharding.mesh import Axes, Mesh, TensorSharding, local_shape, merged, split
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.propagate import Atoms, assemble, project
from deepx_graph.sharding.reshard import Mover, TensorLayout, reshard_path
from deepx_graph.sharding.rules import factor_rule, partitioning_of
from deepx_graph.sharding.values import CARRIERS
from deepx_graph.types import TensorType, TupleType, Type, as_tensor, is_state

MOST_CHOICES = 64
"""So many ways to split one node are compared."""


@dataclass(frozen=True)
class Partitioned:
    """The program of one device, with how its parameters and results lie on the mesh."""

    module: Module
    mesh: Mesh
    params: tuple[TensorSharding, ...]
    results: tuple[TensorSharding, ...]


def partition(module: Module, plan: Plan) -> Partitioned:
    """The program of one device under a plan that says how all values lie, as propagation makes it.

    Axes that do not split a dimension evenly are left out. Raises UsageError for what has no parts: effects, calls, unknown sizes.
    """
    return _Partitioner(module, plan).result()


class _Partitioner:
    def __init__(self, module: Module, plan: Plan) -> None:
        self.module, self.plan, self.mesh = module, plan, plan.mesh
        self.function = plan.function
        self.b = Builder(intern=True)
        self.mover = Mover(self.b, plan.mesh)
        self.made: dict[Node, Node] = {}
        self.layouts = {n: self._planned(n, plan.values.get(n)) for n in self.function.nodes}

    def _planned(self, node: Node, sharding: TensorSharding | None) -> TensorLayout:
        """The layout that the plan has for a value, without axes that do not divide a dimension."""
        if not isinstance(node.type, TensorType):
            return TensorLayout(())
        if node.type.dims is None or not node.type.is_static:
            raise _refused(node, "its size is not known")
        dims = sharding.axes if sharding else ((),) * len(node.type.shape)
        return TensorLayout(tuple(_even(size, self.mesh.atoms(axes)) for size, axes in zip(node.type.shape, dims, strict=True)))

    def result(self) -> Partitioned:
        for node in self.function.nodes:
            self._check(node)
            self.b.origin = replace(node.origin, notes=())
            self.made[node] = self._local(node)
        results, shardings = [], []
        for k, node in enumerate(self.function.results):
            layout = self._planned(node, self.plan.results[k]) if k in self.plan.results else self.layouts[node]
            results.append(self._moved(node, layout))
            shardings.append(_sharding(layout))
        params = tuple(self.made[p] for p in self.function.params)
        names = tuple(self.function.result_name(k) for k in range(len(results)))
        function = self.function.with_(params=params, results=tuple(results), result_names=names, result_notes=(), attributes=())
        return Partitioned(self.module.with_functions([function]), self.mesh,
                           tuple(_sharding(self.layouts[p]) for p in self.function.params), tuple(shardings))

    @staticmethod
    def _check(node: Node) -> None:
        if node.op in (CALL, CALL_VALUE, PARTIAL):
            raise _refused(node, "it calls a function", "inline calls first: -p inline,shard")
        if node.op.exchange is not None:
            raise _refused(node, "devices meet in it already")
        if is_state(node.type) or any(is_state(i.type) for i in node.inputs):
            raise _refused(node, "it has an effect")

    # --- one node

    def _local(self, node: Node) -> Node:
        if node.op is PARAM:
            return self.b.param(index_of(node), self._type(node.type, self.layouts[node]), node.name)
        if node.op in CARRIERS:
            return self._carried(node)
        rule = factor_rule(node)
        if rule is None:
            return self._whole(node)
        return self._split(node, rule)

    def _type(self, type: Type, layout: TensorLayout) -> Type:
        return type.with_dims(local_shape(type.shape, layout.dims)) if isinstance(type, TensorType) else type

    def _carried(self, node: Node) -> Node:
        """What only passes values on: in the plan they lie as what they come from."""
        inputs = [self.made[i] for i in node.inputs]
        if node.op is PROJ and self.made[node.inputs[0]].op is not node.inputs[0].op:
            return self.b.proj(inputs[0], index_of(node))
        attrs = {"loop": fresh_loop()} if node.op is LOOP_BEGIN else node.named_attrs
        return self.b(node.op, *inputs, **attrs)

    def _whole(self, node: Node) -> Node:
        """The node as it stands, on whole tensors, in every device."""
        inputs = [self._moved(i, _unsplit(i)) for i in node.inputs]
        return self._as_planned(node, self.b(node.op, *inputs, **node.named_attrs), None)

    def _split(self, node: Node, rule: FactorRule) -> Node:
        axes = self._chosen(node, rule)
        wanted = [_layout(mapped, axes, rule.sizes) for mapped in rule.operands]
        inputs = [self._moved(i, layout) for i, layout in zip(node.inputs, wanted, strict=True)]
        how = partitioning_of(node)
        assert how is not None
        shapes = [as_tensor(i.type).shape for i in inputs]
        after = [_layout(mapped, axes, rule.sizes).dims for mapped in rule.results]
        local = [local_shape(shape, dims) for shape, dims in zip(result_shapes(node), after, strict=True)]
        attrs = how.attrs(node, shapes, local) if how.attrs else node.attrs
        made = self.b(node.op, *inputs, **dict(zip(node.op.attr_index, attrs, strict=True)))
        return self._as_planned(node, made, (rule, axes))

    def _as_planned(self, node: Node, made: Node, how: tuple[FactorRule, Mapping[int, Atoms]] | None) -> Node:
        """The results of a node in the layout that the plan has for them."""
        users = [u for u in self.function.users[node] if u.op is PROJ]
        if not isinstance(node.type, TupleType):
            return self._moved_result(node, made, self._made_layout(node, how, 0), self.layouts[node])
        items = list(self.b.items(made))
        for u in users:
            k = index_of(u)
            items[k] = self._moved_result(node, items[k], self._made_layout(node, how, k), self.layouts[u])
        return self.b.pack(*items)

    def _made_layout(self, node: Node, how: tuple[FactorRule, Mapping[int, Atoms]] | None, k: int) -> TensorLayout:
        if how is None:
            return TensorLayout(((),) * len(result_shapes(node)[k]))
        rule, axes = how
        partial = tuple(a for f in sorted(rule.reduction) for a in axes.get(f, ()))
        return TensorLayout(_layout(rule.results[k], axes, rule.sizes).dims, partial)

    def _moved_result(self, node: Node, made: Node, before: TensorLayout, after: TensorLayout) -> Node:
        how = partitioning_of(node)
        combiner = how.combiner(node) if how and how.combiner and before.partial else None
        type = as_tensor(made.type)
        shape = _global(type.shape, before)
        return self.mover.along(made, before, reshard_path(shape, type.dtype.itemsize, before, after), combiner)

    def _moved(self, node: Node, after: TensorLayout) -> Node:
        """A value of the program in another layout than the plan has for it."""
        x, before = self.made[node], self.layouts[node]
        if before == after or not isinstance(node.type, TensorType):
            return x
        return self.mover.along(x, before, reshard_path(node.type.shape, node.type.dtype.itemsize, before, after))

    # --- the choice

    def _chosen(self, node: Node, rule: FactorRule) -> Mapping[int, Atoms]:
        """The axes of each factor that make operands and results cheapest to bring where they belong."""
        wishes = self._wishes(node, rule)
        best: Mapping[int, Atoms] = {}
        cost = math.inf
        for order in itertools.islice(itertools.permutations(sorted(wishes)), MOST_CHOICES):
            for axes in _assignments(rule, wishes, order):
                found = self._cost(node, rule, axes)
                if found < cost:
                    best, cost = axes, found
        return best

    def _wishes(self, node: Node, rule: FactorRule) -> dict[int, list[Atoms]]:
        """For each factor that can be split the axes that its tensors have there."""
        how = partitioning_of(node)
        combines = bool(how and how.combiner and how.combiner(node))
        layouts = [*(self.layouts[i].dims for i in node.inputs), *self._result_layouts(node)]
        found: dict[int, list[Atoms]] = {}
        for mapped, dims in zip(rule.tensors, layouts, strict=True):
            for f, axes in project(mapped, dims, rule.sizes).items():
                axes = _even(rule.sizes[f], axes)
                if axes and rule.splits_freely(f) and (f not in rule.reduction or combines):
                    found.setdefault(f, [])
                    if axes not in found[f]:
                        found[f].append(axes)
        return found

    def _result_layouts(self, node: Node) -> list[tuple[Axes, ...]]:
        if not isinstance(node.type, TupleType):
            return [self.layouts[node].dims]
        found: list[tuple[Axes, ...]] = [((),) * len(shape) for shape in result_shapes(node)]
        for u in self.function.users[node]:
            if u.op is PROJ:
                found[index_of(u)] = self.layouts[u].dims
        return found

    def _cost(self, node: Node, rule: FactorRule, axes: Mapping[int, Atoms]) -> float:
        """What resharding costs around a node that is split so; then how little of it one device computes."""
        total = 0.0
        for i, mapped in zip(node.inputs, rule.operands, strict=True):
            type = as_tensor(i.type)
            wanted = _layout(mapped, axes, rule.sizes)
            total += reshard_path(type.shape, type.dtype.itemsize, self.layouts[i], wanted).cost
        partial = tuple(a for f in sorted(rule.reduction) for a in axes.get(f, ()))
        types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
        for item, mapped, dims in zip(types, rule.results, self._result_layouts(node), strict=True):
            type = as_tensor(item)
            made = TensorLayout(_layout(mapped, axes, rule.sizes).dims, partial)
            total += reshard_path(type.shape, type.dtype.itemsize, made, TensorLayout(dims)).cost
        return total + 1.0 / math.prod(a.size for found in axes.values() for a in found)


def _assignments(rule: FactorRule, wishes: Mapping[int, list[Atoms]], order: Sequence[int]) -> Iterator[dict[int, Atoms]]:
    """Factors that get their wishes in an order, without axes that an earlier one has; all that a dimension can say."""
    for count in range(len(order) + 1):
        used: set[object] = set()
        axes: dict[int, Atoms] = {}
        for f in order[:count]:
            mine = next((w for w in wishes[f] if not used.intersection(w)), ())
            axes[f] = mine
            used.update(mine)
        yield _expressible(rule, axes)


def _expressible(rule: FactorRule, axes: dict[int, Atoms]) -> dict[int, Atoms]:
    """Without the axes of minor factors of dimensions whose major ones are not split to the end."""
    found = dict(axes)
    for mapped in rule.tensors:
        for factors in mapped:
            is_full = True
            for f in factors:
                if not is_full:
                    found[f] = ()
                is_full = is_full and math.prod(a.size for a in found.get(f, ())) == rule.sizes[f]
    return found if found == axes else _expressible(rule, found)


def _layout(mapped: Sequence[Sequence[int]], axes: Mapping[int, Atoms], sizes: Sequence[int]) -> TensorLayout:
    return TensorLayout(tuple(assemble(factors, axes, sizes) for factors in mapped))


def _even(size: int, atoms: Atoms) -> Atoms:
    """The leading axes that split a size evenly."""
    count = 1
    for k, a in enumerate(atoms):
        count *= a.size
        if size % count or size == 0:
            return atoms[:k]
    return atoms


def _global(shape: Sequence[int], layout: TensorLayout) -> tuple[int, ...]:
    return tuple(n * math.prod(a.size for a in axes) for n, axes in zip(shape, layout.dims, strict=True))


def _unsplit(node: Node) -> TensorLayout:
    return TensorLayout(((),) * len(node.type.shape)) if isinstance(node.type, TensorType) else TensorLayout(())


def _sharding(layout: TensorLayout) -> TensorSharding:
    return split(*map(merged, layout.dims))


def _refused(node: Node, why: str, hint: str | None = None) -> UsageError:
    return UsageError(Diagnostic(f"{node.op.name} cannot be split over devices: {why}", node.span, hint=hint))


