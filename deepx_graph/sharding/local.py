"""The values of a program on one device, in every layout that they are needed in, and why devices meet for that.

A value is made once, in the layout in which it is computed; who needs another one has it moved, or computed again
(`copies`). What is the same on all devices is made where it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.factor_rule import ZERO, FactorRule, Reading, result_shapes
from deepx_graph.ir.structure import CONSTANT, PROJ, value_of
from deepx_graph.sharding.copies import Copies, MoveWay, RemakeWay
from deepx_graph.sharding.halo import best_halo, exchanged
from deepx_graph.sharding.mesh import count_of, local_shape
from deepx_graph.sharding.moves import Mover
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.reasons import CollectiveCause, MeetingReason
from deepx_graph.sharding.reshard import TensorLayout, reshard_path
from deepx_graph.sharding.rules import (
    FactorAxes,
    combiner_of,
    factor_rule,
    halos,
    layout_of,
    makes_constants,
    neutral_of,
    partitioning_of,
    project,
    reading_of,
    result_size,
)
from deepx_graph.sharding.values import CARRIERS
from deepx_graph.types import TensorType, as_tensor


class LocalValues:
    """What one device has of each value; `layouts` says how the plan has them, `is_fixed` what is not computed again."""

    def __init__(self, b: Builder, plan: Plan, layouts: Mapping[Node, TensorLayout], is_fixed: Callable[[Node], bool]) -> None:
        self.b, self.plan, self.layouts = b, plan, layouts
        self.mover = Mover(b, plan.mesh)
        self.copies = Copies(is_fixed)
        self.constants: dict[tuple[Node, TensorLayout], Node] = {}
        self.meetings: dict[Node, CollectiveCause] = {}

    def as_planned(self, node: Node) -> Node:
        """A value in the layout that the plan has for it."""
        return self.moved(node, self.layouts[node], node, lambda _: self._asked(node))

    def _asked(self, node: Node) -> MeetingReason:
        """Why a value lies in another way than it is made."""
        if node in self.plan.given:
            return MeetingReason.CONSTRAINT
        users = self.plan.function.users[node]
        return MeetingReason.CONTROL if any(u.op in CARRIERS and u.op is not PROJ for u in users) else MeetingReason.RESULT

    def remember(self, met: int, meeting: CollectiveCause) -> None:
        """Why the collectives are there that were written since there were `met`."""
        for collective in self.mover.met[met:]:
            self.meetings.setdefault(collective, replace(meeting, collective=collective))

    def moved(self, node: Node, after: TensorLayout, at: Node | None, reason: Callable[[TensorLayout], MeetingReason]) -> Node:
        """A value of the program in a layout; `reason` says why a node needs it so that is at hand in another one."""
        if makes_constants(node):
            return self._constant(node, after)
        if (made := self.copies.of(node, after)) is not None:
            return made
        way = self.copies.way(node, after)
        if isinstance(way, RemakeWay):
            why = reason(self.layouts[node])
            inputs = [self.moved(i, o, node, lambda _: why) for i, o in zip(node.inputs, way.operands, strict=True)]
            made = self.part(node, way.rule, way.axes, inputs)
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
        self.remember(met, CollectiveCause(moved, why, node, at, before, after))
        return moved

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
            return self.part(node, rule, project(rule.results[0], after.dims, rule.sizes), [])
        whole = self.b(node.op, **node.named_attrs)
        path = reshard_path(type.shape, type.dtype.itemsize, unsplit(node), after)
        return [whole, *(made for _, made in self.mover.along(whole, type.shape, unsplit(node), path))][-1]

    # --- a node on its parts

    def part(self, node: Node, rule: FactorRule, axes: FactorAxes, inputs: list[Node]) -> Node:
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
            self.remember(met, CollectiveCause(inputs[k], MeetingReason.NEIGHBOURS, node.inputs[k], node, layout, layout))
            changes |= {(name, reading.at): value for name, value in reading.attrs(halo.length).items()}
        return changes

    def _fill(self, node: Node, reading: Reading, x: Node) -> Node | None:
        if reading.fill is None:
            return None
        return self.b.like(0, x) if reading.fill == ZERO else self.as_planned(node.inputs[reading.fill])


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


def unsplit(node: Node) -> TensorLayout:
    """The layout of a value that every device has whole."""
    return TensorLayout.whole(len(as_tensor(node.type).shape)) if isinstance(node.type, TensorType) else TensorLayout(())
