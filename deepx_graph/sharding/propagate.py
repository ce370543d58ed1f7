"""Propagation: from the shardings that are given to those of all values, as Shardy does it.

Three strategies are nested. By priority: the shardings of each user priority are propagated before those of the next. By operation:
through those that only pass elements on before all others (`priorities.py`). Then step by step, where of two factors that want an
axis the one of the larger tensor has it. A step projects the shardings of the tensors of one node to its factors,
takes for each factor the longest axes that all its tensors agree on, and writes them back to the dimensions that are open.
Shardings only grow. Between tensors that lie over several meshes nothing is propagated.

Constants carry nothing from one user to another: each use of one is a tensor of its own.

Source: Shardy, docs/propagation.md; the order of operations is that of its `op-priority-propagate`, its rules found by trying.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from deepx_graph.ir import Node
from deepx_graph.ir.factor_rule import FactorRule, Mapped, letter, result_shapes
from deepx_graph.ir.structure import PARAM, index_of
from deepx_graph.sharding.annotations import SOURCE, stated_at_borders
from deepx_graph.sharding.by_hand.manual import AXES, names_in
from deepx_graph.sharding.mesh import Axes, AxisRef, DimSharding, TensorSharding, count_of, merged
from deepx_graph.sharding.plan import AxisOrigin, Plan
from deepx_graph.sharding.priorities import SCHEDULE, Direction, RuledNode
from deepx_graph.sharding.rules import assemble, factor_rule, makes_constants, project
from deepx_graph.sharding.values import CARRIERS, DataFlow, Value
from deepx_graph.types import TensorType


def propagate(plan: Plan) -> Plan:
    """The plan with a sharding for every tensor of the function, and with reasons."""
    return _Propagation(plan).result()


@dataclass
class _Tensor:
    """The sharding, as it grows, of what must lie alike: a class of values, a result of the function, one use of a constant."""

    node: Node
    dims: list[Axes]
    is_open: list[bool]
    pending: dict[int, tuple[int, Axes]] = field(default_factory=dict)
    """Dimensions whose user sharding waits for its priority."""
    taboo: frozenset[AxisRef] = frozenset()
    """Axes that may split none of its dimensions."""
    size: int = 1
    mesh: str | None = None
    """The name of the mesh that it lies over; None where that is not said, or is any."""
    reason: str = ""
    origins: dict[AxisRef, AxisOrigin] = field(default_factory=dict)

    def can_grow(self, dim: int) -> bool:
        """Whether a dimension may be split further: it is open, and does not wait for its priority."""
        return self.is_open[dim] and dim not in self.pending

    @property
    def forbidden(self) -> frozenset[AxisRef]:
        """Axes that no dimension takes: such as wait for their priority among them."""
        return self.taboo.union(*(atoms for _, atoms in self.pending.values()))


@dataclass
class Projection:
    """The axes of the factors of one tensor, the major ones first, and of its dimensions, as these are before a step."""

    factors: Mapping[int, Axes]
    dims: tuple[Axes, ...]

    def others(self, factor: int) -> frozenset[AxisRef]:
        """The axes that split anything but the factor."""
        used = {a for axes in (*self.dims, *self.factors.values()) for a in axes}
        return frozenset(used.difference(self.factors.get(factor, ())))

    def split(self, factor: int, axes: Axes) -> Projection:
        """The same with other axes of a factor."""
        return Projection({**self.factors, factor: axes}, self.dims)


class _Propagation:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.meshes, self.function = plan, plan.meshes, plan.function.with_beside
        self.flow = DataFlow(self.function, with_sources=False)
        self.tensors: dict[Value, _Tensor] = {}
        for node in self.flow.tensors():
            type = node.type
            if isinstance(type, TensorType) and type.is_static:
                self.tensors.setdefault(self.flow.of(node), _fresh(node, type.shape))
        self.results = {k: _fresh(r, r.type.shape) for k in plan.results
                        if isinstance((r := self.function.results[k]).type, TensorType) and r.type.is_static}
        self.values = {**stated_at_borders(self.plan), **plan.values}
        for node, sharding in self.values.items():
            if (t := self.tensors.get(self.flow.of(node))) is not None and not t.reason:
                self._state(t, sharding, "given", _source(node), names_in(dict(node.origin.notes).get(AXES, "")))
        for k, returned in self.results.items():
            self._state(returned, plan.results[k], f"given of result {k}", f"output: {k}")
        self.returns = [*self._returns()]
        self.steps = [*self._steps()]
        self.touching = _touching(self.steps)

    def _returns(self) -> Iterator[_Step]:
        """What the results of the function are, and the values that they are."""
        for k, t in self.results.items():
            if t.node not in self.plan.devices:
                yield _Step(RuledNode(t.node, _alike(self.function.results[k])), [self.tensors.get(self.flow.of(t.node)), t])

    def _steps(self) -> Iterator[_Step]:
        """The nodes of the function in order, behind the members of groups."""
        function = self.function
        returned = Counter(function.results)
        yield from self._groups()
        for node in function.nodes:
            if node.op in CARRIERS or self._is_apart(node) or (rule := factor_rule(node)) is None:
                continue
            results = self.flow.results(node)
            for value, shape in zip(results, result_shapes(node), strict=True):
                self.tensors.setdefault(value, _fresh(node, shape))
            tensors = [self._operand(node, i) for i in node.inputs] + [self.tensors.get(v) for v in results]
            yield _Step(RuledNode.of(node, rule, function.users, returned), tensors)
        yield from self._edges()

    def _edges(self) -> Iterator[_Step]:
        """What comes into loops and branches, and what it is there."""
        for (node, k), sources in self.flow.sources:
            if (t := self.tensors.get(self.flow.of(node, k))) is not None:
                tensors = [*(self._operand(node, s) for s in sources), t]
                yield _Step(RuledNode(node, _alike(t.node, len(sources))), tensors)

    def _groups(self) -> Iterator[_Step]:
        """The members of each group, the last one first, and what all that use one of them have."""
        for members in self.flow.groups.values():
            used = next((m for m in members if m.op is not PARAM), None)
            there = self.tensors[self.flow.of(used)] if used else _fresh(members[0], result_shapes(members[0])[0])
            values = [m if m.op is PARAM else m.inputs[0] for m in members]
            for value in sorted(values, key=lambda v: v.serial, reverse=True):
                yield _Step(RuledNode(value, _alike(value)), [self._operand(value, value), there])

    def _is_apart(self, node: Node) -> bool:
        """Whether a node is computed by one device, or takes what one is: nothing is propagated through it, as in Shardy."""
        return any(n in self.plan.devices for n in (node, *node.inputs))

    def _operand(self, user: Node, operand: Node) -> _Tensor | None:
        found = self.tensors.get(self.flow.of(operand))
        if makes_constants(operand) and operand not in self.values and isinstance(operand.type, TensorType):
            return _fresh(operand, operand.type.shape)
        return found

    def _state(self, t: _Tensor, sharding: TensorSharding, reason: str, source: str, by_hand: Collection[str] = ()) -> None:
        """A sharding that is given. Axes that split the value by hand do so whatever the priority of its dimensions."""
        mesh = self.meshes[sharding.mesh]
        t.reason, t.mesh = reason, sharding.mesh if mesh.axes else None
        t.taboo = frozenset(mesh.atoms((*sharding.replicated, *sharding.unreduced)))
        for k, d in enumerate(sharding.dims):
            atoms = mesh.atoms(d.axes)
            t.origins.update((a, AxisOrigin(source)) for a in atoms)
            t.is_open[k] = d.open
            if d.priority:
                t.pending[k] = d.priority, atoms
                t.dims[k] = tuple(a for a in atoms if a.name in by_hand)
            else:
                t.dims[k] = atoms

    def result(self) -> Plan:
        """Propagates to the fixed point."""
        every = [*self.tensors.values(), *self.results.values()]
        for priority in sorted({p for t in every for p, _ in t.pending.values()} | {0}):
            for t in every:
                for k in [k for k, (p, _) in t.pending.items() if p <= priority]:
                    t.dims[k] = t.pending.pop(k)[1]
            for level in range(1, len(SCHEDULE) + 1):
                ways = dict(self._ways(level))
                self._return()
                self._until_fixed(ways)
                self._return()
        own = set(self.plan.function.nodes)
        found = {n: self.tensors[v] for n in self.flow.tensors() if n in own and (v := self.flow.of(n)) in self.tensors}
        values = {n: self._sharding(t) for n, t in found.items()}
        reasons = {n: t.reason for n, t in found.items() if t.reason and values[n].is_split}
        origins = {n: {a: o for axes in t.dims for a in axes if (o := t.origins.get(a))} for n, t in found.items() if t.origins}
        results = {**self.plan.results, **{k: self._sharding(t) for k, t in self.results.items()}}
        return Plan(self.plan.mesh, self.plan.function, values, results, reasons, frozenset(own.intersection(self.values)), origins,
                    devices=self.plan.devices, others=self.plan.others)

    @staticmethod
    def _sharding(t: _Tensor) -> TensorSharding:
        dims = (DimSharding(merged(a), is_open) for a, is_open in zip(t.dims, t.is_open, strict=True))
        return TensorSharding(tuple(dims), mesh=t.mesh or "")

    def _ways(self, level: int) -> Iterator[tuple[int, Mapping[int, Direction]]]:
        """The operations of the first levels of the schedule by number, with where the axes of their factors may go."""
        for k, s in enumerate(self.steps):
            if allowed := {f: d for f in range(len(s.rule.sizes)) if (d := s.ruled.direction(f, level))}:
                yield k, allowed

    def _return(self) -> None:
        """Between the results of the function and the values that they are: before and after all operations, as in Shardy."""
        for step in self.returns:
            self._step(step, dict.fromkeys(range(len(step.rule.sizes)), Direction.BOTH))

    def _until_fixed(self, ways: Mapping[int, Mapping[int, Direction]]) -> None:
        """Until no step changes anything: those next that touch what the last one changed, as in MLIR's greedy driver."""
        stack: list[int] = [*reversed([*ways])]
        waiting = set(stack)
        while stack:
            waiting.discard(k := stack.pop())
            for t in self._step(self.steps[k], ways[k]):
                added = [j for j in self.touching.get(id(t), ()) if j in ways and j != k and j not in waiting]
                stack += added
                waiting.update(added)

    def _step(self, step: _Step, allowed: Mapping[int, Direction]) -> list[_Tensor]:
        """The tensors of one node, operands first, whose sharding it changed: none, where they lie over several meshes."""
        meshes = {t.mesh for t in step.tensors if t is not None and t.mesh is not None}
        if len(meshes) > 1:
            return []
        given = [None if t is None else _projected(m, t, step.rule) for m, t in zip(step.rule.tensors, step.tensors, strict=True)]
        seen = list(given)
        for f in step.factor_order(given):
            axes = step.agreed(f, seen, allowed[f]) if f in allowed else ()
            for k in step.targets(allowed[f]) if axes else ():
                t, p = step.tensors[k], seen[k]
                if t is None or p is None or len(axes) <= len(p.factors.get(f, axes)) or not t.can_grow(step.dim_of(k, f)):
                    continue
                mine = step.fitting(k, f, _before(step.through_results(k, f, axes, seen), p.others(f) | t.forbidden))
                if len(mine) > len(p.factors[f]):
                    seen[k] = p.split(f, mine)
        return [t for k, t in enumerate(step.tensors) if t is not None and step.write(k, given, seen)]


def _source(node: Node) -> str:
    """What Shardy calls a value whose sharding is given."""
    if node.op is PARAM:
        return f"input: {index_of(node)}"
    return dict(node.origin.notes).get(SOURCE) or f"constraint: {node.name or node.op.name}"


def _agreed(factor: int, seen: Sequence[Projection]) -> Axes:
    """The longest axes of the factor that all its tensors agree on."""
    axes: Axes = ()
    can_expand = True
    for p in seen:
        mine = p.factors.get(factor)
        if mine is None:
            continue
        shared = _shared(axes, mine)
        if shared == len(axes):
            axes = mine if can_expand and len(mine) > len(axes) else axes
        elif shared < len(mine):
            axes, can_expand = axes[:shared], False
    return axes


def _shared(a: Axes, b: Axes) -> int:
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _before(axes: Axes, forbidden: frozenset[AxisRef]) -> Axes:
    """The axes up to the first forbidden one."""
    return axes[: next((k for k, a in enumerate(axes) if a in forbidden), len(axes))]


@dataclass(frozen=True)
class _Step:
    """One node with its rule, and its tensors, operands first."""

    ruled: RuledNode
    tensors: Sequence[_Tensor | None]

    @property
    def rule(self) -> FactorRule:
        """How the node is split."""
        return self.ruled.rule

    def targets(self, direction: Direction) -> Iterator[int]:
        """The tensors that are extended, results first."""
        count = len(self.rule.operands)
        if direction & Direction.FORWARD:
            yield from range(count, len(self.tensors))
        if direction & Direction.BACKWARD:
            yield from range(count)

    def agreed(self, factor: int, seen: Sequence[Projection | None], direction: Direction) -> Axes:
        """The longest axes of the factor that all tensors agree on; in one direction, those that they come from have."""
        axes = _agreed(factor, [p for p in seen if p])
        if direction == Direction.BOTH:
            return axes
        count = len(self.rule.operands)
        source = seen[:count] if direction == Direction.FORWARD else seen[count:]
        return axes[: max((_shared(axes, p.factors[factor]) for p in source if p and factor in p.factors), default=0)]

    def through_results(self, k: int, factor: int, axes: Axes, seen: Sequence[Projection | None]) -> Axes:
        """What of the axes an operand may have: of elementwise operations they go from operand to operand through results."""
        if not self.ruled.passes_through:
            return axes
        count = len(self.rule.operands)
        found = [_shared(axes, p.factors[factor]) for p in seen[count:] if p and factor in p.factors]
        return axes[: max(found)] if k < count and found else axes

    def factor_order(self, seen: Sequence[Projection | None]) -> list[int]:
        """Factors of the largest tensors first, of those that are split into most parts along them; of equal ones of the first.

        Of elementwise operations factors in more parts come before.
        """
        weight: dict[int, tuple[int, int, int]] = {}
        most: dict[int, int] = {}
        for k, (t, p) in enumerate(zip(self.tensors, seen, strict=True)):
            if t is None or p is None:
                continue
            for f, axes in p.factors.items():
                parts = count_of(axes)
                if axes and parts >= most.get(f, 1):
                    found = -t.size, -parts if self.ruled.elementwise else 0, k
                    weight[f] = min(found, weight[f]) if parts == most.get(f) else found
                    most[f] = parts
        return sorted((f for f in weight if f not in self.rule.blocked), key=lambda f: (weight[f], f))

    def fitting(self, k: int, factor: int, axes: Axes) -> Axes:
        """As many of the axes as divide the factor evenly, where a minor one follows it in a dimension of a tensor; else all."""
        if self.rule.tensors[k][self.dim_of(k, factor)][-1] == factor:
            return axes
        parts = [count_of(axes[: n + 1]) for n in range(len(axes))]
        return axes[: next((n for n, count in enumerate(parts) if self.rule.sizes[factor] % count), len(axes))]

    def dim_of(self, k: int, factor: int) -> int:
        """The dimension of a tensor that a factor is part of."""
        return next(d for d, factors in enumerate(self.rule.tensors[k]) if factor in factors)

    def write(self, k: int, before: Sequence[Projection | None], after: Sequence[Projection | None]) -> bool:
        """Writes the axes of the factors of a tensor to its dimensions; whether these can say more of them than before.

        Of a value that is several operands the last one has it: each is extended from how the value lay before the step.
        """
        t, old, new = self.tensors[k], before[k], after[k]
        if t is None or old is None or new is None or old is new:
            return False
        dims = list(old.dims)
        for d, factors in enumerate(self.rule.tensors[k]):
            grown = assemble(factors, new.factors, self.rule.sizes)
            if len(grown) > len(dims[d]) and grown[: len(dims[d])] == dims[d]:
                self._remember(t, grown[len(dims[d]) :], new, before)
                dims[d] = grown
        if dims == list(old.dims):
            return False
        t.dims, t.mesh = dims, next(other.mesh for other in self.tensors if other is not None and other.mesh is not None)
        node = self.ruled.node
        t.reason = t.reason or f"from {node.op.name} {node.name}".rstrip()
        return True

    def _remember(self, t: _Tensor, added: Axes, now: Projection, before: Sequence[Projection | None]) -> None:
        """Where axes came from: the first tensor of the node whose factor had them all before."""
        for a in added:
            factor, axes = next((f, axes) for f, axes in now.factors.items() if a in axes)
            source = next(other for other, p in zip(self.tensors, before, strict=True)
                          if other and p and p.factors.get(factor, ())[: len(axes)] == axes)
            t.origins[a] = AxisOrigin(source.origins[a].source, self.ruled.node, letter(factor), source.node)


def _touching(steps: Sequence[_Step]) -> dict[int, list[int]]:
    """For each tensor the numbers of the steps that make it, then of those that take it, the last one first."""
    made: dict[int, list[int]] = {}
    taken: dict[int, list[int]] = {}
    for k, step in enumerate(steps):
        count = len(step.rule.operands)
        for found, tensors in ((taken, step.tensors[:count]), (made, step.tensors[count:])):
            for t in tensors:
                if t is not None:
                    found.setdefault(id(t), []).append(k)
    return {t: [*made.get(t, ()), *reversed(taken.get(t, ()))] for t in made.keys() | taken.keys()}


def _alike(node: Node, operands: int = 1) -> FactorRule:
    """The rule of what passes a value on as it is, or one of several."""
    shape = result_shapes(node)[0]
    mapped = tuple((k,) for k in range(len(shape)))
    return FactorRule((mapped,) * operands, (mapped,), shape)


def _projected(mapped: Mapped, t: _Tensor, rule: FactorRule) -> Projection:
    return Projection(project(mapped, t.dims, rule.sizes), tuple(t.dims))


def _fresh(node: Node, shape: tuple[int, ...]) -> _Tensor:
    return _Tensor(node, [()] * len(shape), [True] * len(shape), size=math.prod(shape))
