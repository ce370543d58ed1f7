"""Partitioning: from a program on whole tensors and a plan to the program that every device runs on its parts (SPMD).

Each node decides along which axes its factors are split (`choice`), brings its operands into that form, computes its part as the
operation does on smaller tensors, combines partial results, and brings the result into the form that the plan has for it. A node
without a rule is computed whole on every device.

Where a size is not divided evenly, parts are rounded up; what lies beyond the end of a dimension is anything, and no element of a
result depends on it. The module made has one function; its parameters and results are the parts of one device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ir.builder import fresh_loop
from deepx_graph.ir.factor_rule import FactorRule, result_shapes
from deepx_graph.ir.structure import CALL, CALL_VALUE, LOOP_BEGIN, PARAM, PARTIAL, PROJ, index_of
from deepx_graph.sharding.by_hand.borders import across_border
from deepx_graph.sharding.choice import Splits
from deepx_graph.sharding.local import LocalValues, unsplit
from deepx_graph.sharding.mesh import TensorSharding, local_shape, merged, split
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.reasons import CollectiveCause, MeetingReason, of_operand
from deepx_graph.sharding.reshard import TensorLayout
from deepx_graph.sharding.rules import factor_rule, is_border, layout_of, makes_constants, partial_axes
from deepx_graph.sharding.several_meshes import over_one_mesh
from deepx_graph.sharding.values import CARRIERS, numbered, owners
from deepx_graph.types import TensorType, TupleType, Type, as_tensor, is_state


def partition(module: Module, plan: Plan) -> Partitioned:
    """The program of one device under a plan that says how all values lie, as propagation makes it.

    Raises UsageError for what has no parts: effects, calls, unknown sizes; and as `over_one_mesh` does.
    """
    return _Partitioner(module, over_one_mesh(plan)).result()


class _Partitioner:
    def __init__(self, module: Module, plan: Plan) -> None:
        self.module, self.plan, self.mesh = module, plan, plan.mesh
        self.function = plan.function
        self.b = Builder(intern=True)
        self.items: dict[Node, list[TensorLayout]] = {}
        self.layouts = {n: self._planned(n, plan.values.get(n)) for n in self.function.nodes}
        self.local = LocalValues(self.b, plan, self.layouts, self._is_fixed)
        self.numbered = numbered(self.function) if plan.devices else set()
        self.owners = owners(self.function)
        self.asked: dict[Node, list[TensorLayout]] = {}
        for k, node in enumerate(self.function.results):
            self.asked.setdefault(node, []).append(self._asked_layout(k, node))
        self.splits = Splits(self.function, self.layouts, plan.mesh, self.local.copies, self.asked)
        self.has_borders = any(is_border(n) for n in self.function.nodes)

    def _planned(self, node: Node, sharding: TensorSharding | None) -> TensorLayout:
        """The layout that the plan has for a value."""
        if not isinstance(node.type, TensorType):
            return TensorLayout(())
        if node.type.dims is None or not node.type.is_static:
            raise _refused(node, "its size is not known")
        dims = sharding.axes if sharding else ((),) * len(node.type.shape)
        return TensorLayout(tuple(self.mesh.atoms(axes) if size else () for size, axes in zip(node.type.shape, dims, strict=True)))

    def result(self) -> Partitioned:
        for node in self.function.nodes:
            if node.op is PARAM and is_state(node.type):
                continue
            self.b.origin = replace(node.origin, notes=())
            self._make(node)
            for layout in self.asked.get(node, ()):
                self._as_asked(node, layout)
        results, shardings, shapes = [], [], []
        for k, node in enumerate(self.function.results):
            if is_state(node.type):
                continue
            layout = self._asked_layout(k, node)
            results.append(self._as_asked(node, layout))
            shardings.append(_sharding(layout))
            shapes.append(as_tensor(node.type).shape)
        given = [p for p in self.function.params if not is_state(p.type)]
        params = tuple(self.local.as_planned(p) for p in given)
        names = tuple(self.function.result_name(k) for k in range(len(results)))
        function = self.function.with_(params=params, results=tuple(results), result_names=names, result_notes=(), attributes=())
        return Partitioned(self.module.with_functions([function]), self.mesh, tuple(_sharding(self.layouts[p]) for p in given),
                           tuple(shardings), tuple(shapes),
                           tuple(self.local.meetings[n] for n in function.nodes if n in self.local.meetings))

    # --- one node

    def _make(self, node: Node) -> None:
        """The first copy of a value, as the node that computes it is split."""
        if makes_constants(node):
            return
        self._check(node)
        if is_border(node):
            self._over_border(node)
        elif node.op is PARAM:
            layout = self.layouts[node]
            self.local.copies.add(node, layout, self.b.param(index_of(node), _part_type(node.type, layout), node.name))
        elif node.op is PROJ and node.inputs[0] in self.items:
            source, k = node.inputs[0], index_of(node)
            self._add(node, self.items[source][k], self.b.proj(self.local.as_planned(source), k))
        elif node.op in CARRIERS:
            self.local.copies.add(node, self.layouts[node], self._carried(node))
        else:
            rule = None if node in self.plan.devices else factor_rule(node)
            made, layouts = self._whole(node) if rule is None else self._split(node, rule)
            if node.op.exchange is not None and node.inputs:
                self.local.meetings[made] = CollectiveCause(made, MeetingReason.WRITTEN, node, None, layouts[0], layouts[0])
            if isinstance(node.type, TupleType):
                self.items[node] = layouts
                self.local.copies.add(node, self.layouts[node], made)
            else:
                self._add(node, layouts[0], made)

    def _add(self, node: Node, layout: TensorLayout, made: Node) -> None:
        """A copy of a value as it is made; as the program states that it lies, where it does."""
        self.local.copies.add(node, layout, made)
        if node in self.plan.given and layout != self.layouts[node]:
            self.local.as_planned(node)
            self.local.copies.only(node, self.layouts[node])

    def _over_border(self, node: Node) -> None:
        """What goes into, or comes out of, a computation by hand whose operations stand here."""
        before, after = across_border(node, self.layouts.__getitem__)
        made = self.local.moved(node.inputs[0], before, node, lambda _: MeetingReason.CONSTRAINT)
        self.local.copies.add(node, after, made)

    def _carried(self, node: Node) -> Node:
        """What only passes values on: they lie as what they come to be in a loop or branch has it in the plan."""
        owners = self.owners.get(node, node.inputs)
        inputs = [self.local.moved(i, self.layouts[o], node, lambda _: MeetingReason.CONTROL)
                  for i, o in zip(node.inputs, owners, strict=True)]
        attrs = {"loop": fresh_loop()} if node.op is LOOP_BEGIN else node.named_attrs
        return self.b(node.op, *inputs, **attrs)

    def _whole(self, node: Node) -> tuple[Node, list[TensorLayout]]:
        """The node as it stands, on whole tensors, in every device; how its results lie."""
        inputs = [self.local.moved(i, unsplit(i), node, lambda _: MeetingReason.WHOLE) for i in node.inputs]
        made = self.b(node.op, *inputs, **node.named_attrs)
        if node in self.plan.devices and node in self.numbered:
            met = len(self.local.mover.met)
            made = self.local.mover.of_device(made, self.plan.devices[node])
            self.local.remember(met, CollectiveCause(made, MeetingReason.CONSTRAINT, node, node, unsplit(node), unsplit(node)))
        return made, list(map(_whole, result_shapes(node)))

    def _split(self, node: Node, rule: FactorRule) -> tuple[Node, list[TensorLayout]]:
        """The node on parts of its operands; how its results lie."""
        axes = self.splits.chosen(node, rule)
        inputs = [self.local.moved(i, layout_of(mapped, axes, rule.sizes), node, partial(of_operand, node, rule, k, axes))
                  for k, (i, mapped) in enumerate(zip(node.inputs, rule.operands, strict=True))]
        sums = partial_axes(rule, axes)
        after = [TensorLayout(layout_of(mapped, axes, rule.sizes).dims, sums) for mapped in rule.results]
        return self.local.part(node, rule, axes, inputs), after

    def _check(self, node: Node) -> None:
        """Raises UsageError for what has no parts."""
        if node.op in (CALL, CALL_VALUE, PARTIAL):
            raise _refused(node, "it calls a function", "inline calls first: -p inline,shard")
        if node.op.exchange is not None and node.inputs and not self.has_borders:
            raise _refused(node, "devices meet in it already", "a program of one device is not split again; "
                           "why DUMPS --collective tells of XLA's from the folder that has the program before, too")
        if is_state(node.type) or any(is_state(i.type) for i in node.inputs):
            raise _refused(node, "it has an effect")

    # --- results

    def _asked_layout(self, k: int, node: Node) -> TensorLayout:
        """How result k of the function, which is that node, is to lie."""
        return self._planned(node, self.plan.results[k]) if k in self.plan.results else self.layouts[node]

    def _as_asked(self, node: Node, layout: TensorLayout) -> Node:
        return self.local.moved(node, layout, None, lambda _: MeetingReason.RESULT)

    def _is_fixed(self, node: Node) -> bool:
        """Whether a value is not computed again."""
        return is_border(node) or node.op.exchange is not None or node.op in CARRIERS


def _part_type(type: Type, layout: TensorLayout) -> Type:
    return type.with_dims(local_shape(type.shape, layout.dims)) if isinstance(type, TensorType) else type


def _whole(shape: Sequence[int]) -> TensorLayout:
    return TensorLayout.whole(len(shape))


def _sharding(layout: TensorLayout) -> TensorSharding:
    return split(*map(merged, layout.dims))


def _refused(node: Node, why: str, hint: str | None = None) -> UsageError:
    return UsageError(Diagnostic(f"{node.op.name} cannot be split over devices: {why}", node.span, hint=hint))


