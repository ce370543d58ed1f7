"""Partitioning: from a program on whole tensors and a plan to the program that every device runs on its parts (SPMD).

Each node decides along which axes its factors are split (`choice`), brings its operands into that form, computes its part as the
operation does on smaller tensors, combines partial results, and brings the result into the form that the plan has for it. A node
without a rule is computed whole on every device.

Where a size is not divided evenly, parts are rounded up; what lies beyond the end of a dimension is anything, and no element of a
result depends on it. The module made has one function; its parameters and results are the parts of one device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from deepx_graph.errors import Diagnostic, UsageError
from deepx_graph.ir import Builder, Module, Node
from deepx_graph.ir.builder import fresh_loop
from deepx_graph.ir.factor_rule import ZERO, FactorRule, Reading, result_shapes
from deepx_graph.ir.structure import CALL, CALL_VALUE, CONSTANT, LOOP_BEGIN, PARAM, PARTIAL, PROJ, index_of, value_of
from deepx_graph.sharding import manual
from deepx_graph.sharding.choice import Splits
from deepx_graph.sharding.copies import Copies, MoveWay, RemakeWay
from deepx_graph.sharding.halo import best_halo, exchanged
from deepx_graph.sharding.mesh import TensorSharding, count_of, local_shape, merged, split
from deepx_graph.sharding.moves import Mover
from deepx_graph.sharding.pieces import Partitioned
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.reasons import CollectiveCause, MeetingReason, of_operand
from deepx_graph.sharding.reshard import TensorLayout, reshard_path
from deepx_graph.sharding.rules import (
    FactorAxes,
    combiner_of,
    factor_rule,
    halos,
    layout_of,
    makes_constants,
    neutral_of,
    partial_axes,
    partitioning_of,
    project,
    reading_of,
    result_size,
)
from deepx_graph.sharding.values import CARRIERS, numbered, owners
from deepx_graph.types import TensorType, TupleType, Type, as_tensor, is_state


def partition(module: Module, plan: Plan) -> Partitioned:
    """The program of one device under a plan that says how all values lie, as propagation makes it.

    Raises UsageError for what has no parts: effects, calls, unknown sizes.
    """
    return _Partitioner(module, plan).result()


class _Partitioner:
    def __init__(self, module: Module, plan: Plan) -> None:
        self.module, self.plan, self.mesh = module, plan, plan.mesh
        self.function = plan.function
        self.b = Builder(intern=True)
        self.mover = Mover(self.b, plan.mesh)
        self.copies = Copies(self._is_fixed)
        self.items: dict[Node, list[TensorLayout]] = {}
        self.constants: dict[tuple[Node, TensorLayout], Node] = {}
        self.meetings: dict[Node, CollectiveCause] = {}
        self.layouts = {n: self._planned(n, plan.values.get(n)) for n in self.function.nodes}
        self.numbered = numbered(self.function) if plan.devices else set()
        self.owners = owners(self.function)
        self.asked: dict[Node, list[TensorLayout]] = {}
        for k, node in enumerate(self.function.results):
            self.asked.setdefault(node, []).append(self._asked_layout(k, node))
        self.splits = Splits(self.function, self.layouts, plan.mesh, self.copies, self.asked)
        self.by_hand = {n: said for n in self.function.nodes if (said := manual.shardings_of(n, self.mesh)) is not None}
        self.by_device: dict[Node, list[Node]] = {}
        self.apart = manual.only_whole(self.function, self.by_hand)

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
            if node in self.apart:
                continue
            self.b.origin = replace(node.origin, notes=())
            if node in self.by_hand:
                self.by_device[node] = self._by_hand(node)
                continue
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
        params = tuple(self._as_planned(p) for p in given)
        names = tuple(self.function.result_name(k) for k in range(len(results)))
        function = self.function.with_(params=params, results=tuple(results), result_names=names, result_notes=(), attributes=())
        return Partitioned(self.module.with_functions([function]), self.mesh, tuple(_sharding(self.layouts[p]) for p in given),
                           tuple(shardings), tuple(shapes),
                           tuple(self.meetings[n] for n in function.nodes if n in self.meetings))

    # --- one node

    def _make(self, node: Node) -> None:
        """The first copy of a value, as the node that computes it is split."""
        if makes_constants(node):
            return
        if (by_hand := manual.result_of(node)) is not None and by_hand[0] in self.by_hand:
            (source, k), (_, after) = by_hand, self.by_hand[by_hand[0]]
            self._add(node, self._planned(node, after[k]), self.by_device[source][k])
            return
        _check(node)
        if node.op is PARAM:
            layout = self.layouts[node]
            self.copies.add(node, layout, self.b.param(index_of(node), _part_type(node.type, layout), node.name))
        elif node.op is PROJ and node.inputs[0] in self.items:
            source, k = node.inputs[0], index_of(node)
            self._add(node, self.items[source][k], self.b.proj(self._as_planned(source), k))
        elif node.op in CARRIERS:
            self.copies.add(node, self.layouts[node], self._carried(node))
        else:
            rule = None if node in self.plan.devices else factor_rule(node)
            made, layouts = self._whole(node) if rule is None else self._split(node, rule)
            if isinstance(node.type, TupleType):
                self.items[node] = layouts
                self.copies.add(node, self.layouts[node], made)
            else:
                self._add(node, layouts[0], made)

    def _add(self, node: Node, layout: TensorLayout, made: Node) -> None:
        """A copy of a value as it is made; as the program states that it lies, where it does."""
        self.copies.add(node, layout, made)
        if node in self.plan.given and layout != self.layouts[node]:
            self._as_planned(node)
            self.copies.only(node, self.layouts[node])

    def _constant(self, node: Node, after: TensorLayout) -> Node:
        """A part of what is the same on all devices, made where it is needed."""
        if (node, after) not in self.constants:
            self.constants[node, after] = self._made_constant(node, after)
        return self.constants[node, after]

    def _made_constant(self, node: Node, after: TensorLayout) -> Node:
        type, how, rule = as_tensor(node.type), partitioning_of(node), factor_rule(node)
        if node.op is CONSTANT and (value := value_of(node).splat_value) is not None:
            return self.b.splat(value, type.with_dims(local_shape(type.shape, after.dims)))
        if rule is not None and how is not None and how.placed is not None and any(after.dims):
            return self._part(node, rule, project(rule.results[0], after.dims, rule.sizes), [])
        whole = self.b(node.op, **node.named_attrs)
        path = reshard_path(type.shape, type.dtype.itemsize, _unsplit(node), after)
        return [whole, *(made for _, made in self.mover.along(whole, type.shape, _unsplit(node), path))][-1]

    def _by_hand(self, node: Node) -> list[Node]:
        """The results on this device of what a program does by hand."""
        before, _ = self.by_hand[node]
        operands = manual.operands_of(node, before)
        parts = [self._moved(x, self._planned(x, s), node, lambda _: MeetingReason.CONSTRAINT)
                 for x, s in zip(operands, before, strict=True)]
        met = len(self.mover.met)
        made = manual.on_this_device(self.b, self.module, node, parts, self.mover.met)
        self._remember(met, CollectiveCause(node, MeetingReason.WRITTEN, node, None, TensorLayout(()), TensorLayout(())))
        return made

    def _carried(self, node: Node) -> Node:
        """What only passes values on: they lie as what they come to be in a loop or branch has it in the plan."""
        owners = self.owners.get(node, node.inputs)
        inputs = [self._moved(i, self.layouts[o], node, lambda _: MeetingReason.CONTROL)
                  for i, o in zip(node.inputs, owners, strict=True)]
        attrs = {"loop": fresh_loop()} if node.op is LOOP_BEGIN else node.named_attrs
        return self.b(node.op, *inputs, **attrs)

    def _whole(self, node: Node) -> tuple[Node, list[TensorLayout]]:
        """The node as it stands, on whole tensors, in every device; how its results lie."""
        inputs = [self._moved(i, _unsplit(i), node, lambda _: MeetingReason.WHOLE) for i in node.inputs]
        made = self.b(node.op, *inputs, **node.named_attrs)
        if node in self.plan.devices and node in self.numbered:
            met = len(self.mover.met)
            made = self.mover.of_device(made, self.plan.devices[node])
            self._remember(met, CollectiveCause(made, MeetingReason.CONSTRAINT, node, node, _unsplit(node), _unsplit(node)))
        return made, list(map(_whole, result_shapes(node)))

    def _split(self, node: Node, rule: FactorRule) -> tuple[Node, list[TensorLayout]]:
        """The node on parts of its operands; how its results lie."""
        axes = self.splits.chosen(node, rule)
        inputs = [self._moved(i, layout_of(mapped, axes, rule.sizes), node, partial(of_operand, node, rule, k, axes))
                  for k, (i, mapped) in enumerate(zip(node.inputs, rule.operands, strict=True))]
        sums = partial_axes(rule, axes)
        after = [TensorLayout(layout_of(mapped, axes, rule.sizes).dims, sums) for mapped in rule.results]
        return self._part(node, rule, axes, inputs), after

    def _part(self, node: Node, rule: FactorRule, axes: FactorAxes, inputs: list[Node]) -> Node:
        """What the node gives on one device for its parts of the operands."""
        how = partitioning_of(node)
        assert how is not None
        _mask(self.mover, node, rule, axes, inputs)
        changes = self._read_over(node, rule, axes, inputs)
        shapes = [as_tensor(i.type).shape for i in inputs]
        after = [layout_of(mapped, axes, rule.sizes) for mapped in rule.results]
        local = [local_shape(shape, a.dims) for shape, a in zip(result_shapes(node), after, strict=True)]
        attrs = list(how.attrs(node, shapes, local) if how.attrs else node.attrs)
        for (name, at), value in changes.items():
            index = node.op.attr_index[name]
            attrs[index] = tuple(value if k == at else old for k, old in enumerate(attrs[index]))
        positions = {f: self.mover.position(rule.sizes[f], axes[f]) for f in rule.positional if axes.get(f)}
        if positions:
            assert how.placed is not None
            return how.placed(self.b, node, inputs, tuple(attrs), positions)
        return self.b(node.op, *inputs, **dict(zip(node.op.attr_index, attrs, strict=True)))

    def _read_over(self, node: Node, rule: FactorRule, axes: FactorAxes, inputs: list[Node]) -> dict[tuple[str, int], int]:
        """Operands with what is read across the borders of parts; the entries of attributes that this changes."""
        changes: dict[tuple[str, int], int] = {}
        for k, dim, f in list(halos(rule, axes)):
            reading = reading_of(node, rule, f)
            assert reading is not None
            halo = best_halo(as_tensor(node.inputs[k].type).shape[dim], result_size(node, rule, f), count_of(axes[f]), reading)
            x = inputs[k]
            met, layout = len(self.mover.met), layout_of(rule.operands[k], axes, rule.sizes)
            inputs[k] = exchanged(self.mover, x, dim, axes[f], halo, self._fill(node, reading, x))
            self._remember(met, CollectiveCause(inputs[k], MeetingReason.NEIGHBOURS, node.inputs[k], node, layout, layout))
            changes |= {(name, reading.at): value for name, value in reading.attrs(halo.length).items()}
        return changes

    def _fill(self, node: Node, reading: Reading, x: Node) -> Node | None:
        if reading.fill is None:
            return None
        return self.b.like(0, x) if reading.fill == ZERO else self._as_planned(node.inputs[reading.fill])

    # --- copies

    def _asked_layout(self, k: int, node: Node) -> TensorLayout:
        """How result k of the function, which is that node, is to lie."""
        return self._planned(node, self.plan.results[k]) if k in self.plan.results else self.layouts[node]

    def _as_asked(self, node: Node, layout: TensorLayout) -> Node:
        return self._moved(node, layout, None, lambda _: MeetingReason.RESULT)

    def _as_planned(self, node: Node) -> Node:
        """A value in the layout that the plan has for it."""
        return self._moved(node, self.layouts[node], node, lambda _: self._asked(node))

    def _asked(self, node: Node) -> MeetingReason:
        """Why a value lies in another way than it is made."""
        if node in self.plan.given:
            return MeetingReason.CONSTRAINT
        users = self.function.users[node]
        return MeetingReason.CONTROL if any(u.op in CARRIERS and u.op is not PROJ for u in users) else MeetingReason.RESULT

    def _remember(self, met: int, meeting: CollectiveCause) -> None:
        """Why the collectives are there that were written since there were `met`."""
        for collective in self.mover.met[met:]:
            self.meetings.setdefault(collective, replace(meeting, collective=collective))

    def _moved(self, node: Node, after: TensorLayout, at: Node | None, reason: Callable[[TensorLayout], MeetingReason]) -> Node:
        """A value of the program in a layout; `reason` says why a node needs it so that is at hand in another one."""
        if makes_constants(node):
            return self._constant(node, after)
        if (made := self.copies.of(node, after)) is not None:
            return made
        way = self.copies.way(node, after)
        if isinstance(way, RemakeWay):
            why = reason(self.layouts[node])
            inputs = [self._moved(i, o, node, lambda _: why) for i, o in zip(node.inputs, way.operands, strict=True)]
            made = self._part(node, way.rule, way.axes, inputs)
            self.copies.add(node, after, made)
            return made
        return self._along(node, way, after, at, reason)

    def _along(self, node: Node, way: MoveWay, after: TensorLayout, at: Node | None,
               reason: Callable[[TensorLayout], MeetingReason]) -> Node:
        """A value moved; where it lies on the way it is at hand for others, too."""
        before, met = way.before, len(self.mover.met)
        x = moved = self.copies.of(node, before)
        assert x is not None and moved is not None
        maker = node.inputs[0] if node.op is PROJ else node
        combiner = combiner_of(maker) if before.partial else None
        for layout, moved in self.mover.along(x, as_tensor(node.type).shape, before, way.path, combiner):
            self.copies.add(node, layout, moved)
        if before.partial:
            why, at = MeetingReason.REDUCTION, node
        elif after == self.layouts[node]:
            why, at = self._asked(node), node
        else:
            why = reason(before)
        self._remember(met, CollectiveCause(moved, why, node, at, before, after))
        return moved

    def _is_fixed(self, node: Node) -> bool:
        """Whether a value is not computed again."""
        return node.op in CARRIERS or node in self.by_device or manual.result_of(node) is not None


def _check(node: Node) -> None:
    """Raises UsageError for what has no parts."""
    if node.op in (CALL, CALL_VALUE, PARTIAL):
        raise _refused(node, "it calls a function", "inline calls first: -p inline,shard")
    if node.op.exchange is not None and node.inputs:
        raise _refused(node, "devices meet in it already", "a program of one device is not split again; "
                       "why DUMPS --collective tells of XLA's from the folder that has the program before, too")
    if is_state(node.type) or any(is_state(i.type) for i in node.inputs):
        raise _refused(node, "it has an effect")


def _mask(mover: Mover, node: Node, rule: FactorRule, axes: FactorAxes, inputs: list[Node]) -> None:
    """Operands with what changes nothing beyond their ends, where a reduction would combine that."""
    for k, mapped in enumerate(rule.operands):
        for dim, factors in enumerate(mapped):
            split_by = next((axes[f] for f in factors if f in rule.reduction and axes.get(f)), ())
            size = as_tensor(node.inputs[k].type).shape[dim]
            if size % count_of(split_by):
                local = as_tensor(inputs[k].type).shape[dim]
                starts = [part * local for part in mover.mesh.parts(split_by)]
                inputs[k] = mover.filled(inputs[k], dim, starts, size, mover.b.like(neutral_of(node, k), inputs[k]))


def _part_type(type: Type, layout: TensorLayout) -> Type:
    return type.with_dims(local_shape(type.shape, layout.dims)) if isinstance(type, TensorType) else type


def _unsplit(node: Node) -> TensorLayout:
    return _whole(node.type.shape) if isinstance(node.type, TensorType) else TensorLayout(())


def _whole(shape: Sequence[int]) -> TensorLayout:
    return TensorLayout(((),) * len(shape))


def _sharding(layout: TensorLayout) -> TensorSharding:
    return split(*map(merged, layout.dims))


def _refused(node: Node, why: str, hint: str | None = None) -> UsageError:
    return UsageError(Diagnostic(f"{node.op.name} cannot be split over devices: {why}", node.span, hint=hint))


