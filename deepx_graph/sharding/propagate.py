"""Propagation: from the shardings that are given to those of all values, as Shardy does it.

Four strategies are nested. By priority: the shardings of each user priority are propagated before those of the next. By operation:
through those that only pass elements on before all others. Then basic steps, which leave every conflict alone, before aggressive
ones, which let the larger tensor decide. A step projects the shardings of the tensors of one node to its factors, takes for each
factor the longest axes that all its tensors agree on, and writes them back to the dimensions that are open. Shardings only grow.

Source: Shardy, docs/propagation.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from deepx_graph.ir import Function, Node
from deepx_graph.ir.factor_rule import FactorRule, Mapped, letter, result_shapes
from deepx_graph.ir.structure import PARAM, index_of
from deepx_graph.sharding.mesh import AxisRef, DimSharding, TensorSharding, merged
from deepx_graph.sharding.plan import AxisOrigin, Plan
from deepx_graph.sharding.rules import factor_rule
from deepx_graph.sharding.values import CARRIERS, DataFlow, Value
from deepx_graph.types import TensorType

Atoms = tuple[AxisRef, ...]
"""Axes as their prime factors."""


def propagate(plan: Plan) -> Plan:
    """The plan with a sharding for every tensor of the function, and with reasons."""
    return _Propagation(plan).result()


@dataclass
class _Tensor:
    """The sharding of one class of values, as it grows."""

    dims: list[Atoms]
    is_open: list[bool]
    pending: dict[int, tuple[int, Atoms]] = field(default_factory=dict)
    """Dimensions whose user sharding waits for its priority."""
    taboo: frozenset[AxisRef] = frozenset()
    """Axes that may split none of its dimensions."""
    size: int = 1


@dataclass
class Projection:
    """The axes of the factors of one tensor, the major ones first."""

    factors: dict[int, Atoms]
    used: frozenset[AxisRef]

    def others(self, factor: int) -> frozenset[AxisRef]:
        """The axes that split anything but the factor."""
        return self.used - frozenset(self.factors.get(factor, ()))


def project(mapped: Mapped, dims: Sequence[Atoms], sizes: Sequence[int]) -> dict[int, Atoms]:
    """The axes of each factor of a tensor. A major factor must be split to the end before a minor one is."""
    found: dict[int, Atoms] = {}
    for factors, atoms in zip(mapped, dims, strict=True):
        rest = list(atoms)
        for k, f in enumerate(factors):
            taken: list[AxisRef] = []
            left = sizes[f]
            while rest and (k == len(factors) - 1 or (left > 1 and left % rest[0].size == 0)):
                left //= rest[0].size
                taken.append(rest.pop(0))
            found[f] = tuple(taken)
            if left > 1 and k < len(factors) - 1:
                found |= dict.fromkeys(factors[k + 1:], ())
                break
    return found


def assemble(factors: Sequence[int], axes: Mapping[int, Atoms], sizes: Sequence[int]) -> Atoms:
    """The axes of a dimension whose factors are split so, up to the first that is not split to the end, the last one as it is."""
    found: list[AxisRef] = []
    for k, f in enumerate(factors):
        left = sizes[f]
        for a in axes.get(f, ()):
            if k < len(factors) - 1 and (left == 0 or left % a.size):
                return tuple(found)
            found.append(a)
            left //= a.size
        if left != 1:
            break
    return tuple(found)


class _Propagation:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.mesh, self.function = plan, plan.mesh, plan.function
        self.flow = DataFlow(plan.function)
        self.tensors: dict[Value, _Tensor] = {}
        self.reasons: dict[Value, str] = {}
        self.origins: dict[Value, dict[AxisRef, AxisOrigin]] = {}
        for node in self.flow.tensors():
            self._tensor(self.flow.of(node), node)
        for node, sharding in plan.values.items():
            self._state(node, sharding, "given", _source(node))
        for k, sharding in plan.results.items():
            self._state(plan.function.results[k], sharding, f"given of result {k}", f"output: {k}")
        self.steps = [_Step(n, r, [self.flow.of(i) for i in n.inputs], self.flow.results(n)) for n, r in _ruled(self.function)]
        for step in self.steps:
            for value, shape in zip(step.results, result_shapes(step.node), strict=True):
                self.tensors.setdefault(value, _fresh(shape))

    def _tensor(self, value: Value, node: Node) -> None:
        type = node.type
        if isinstance(type, TensorType) and type.is_static:
            self.tensors.setdefault(value, _fresh(type.shape))

    def _state(self, node: Node, sharding: TensorSharding, reason: str, source: str) -> None:
        """A sharding that is given; the first one of a class counts."""
        value = self.flow.of(node)
        t = self.tensors.get(value)
        if t is None or value in self.reasons:
            return
        self.reasons[value] = reason
        t.taboo = frozenset(self.mesh.atoms((*sharding.replicated, *sharding.unreduced)))
        for k, d in enumerate(sharding.dims):
            atoms = self.mesh.atoms(d.axes)
            self.origins.setdefault(value, {}).update((a, AxisOrigin(source)) for a in atoms)
            t.is_open[k] = d.open
            if d.priority:
                t.pending[k] = d.priority, atoms
            else:
                t.dims[k] = atoms

    def result(self) -> Plan:
        """Propagates to the fixed point."""
        priorities = sorted({p for t in self.tensors.values() for p, _ in t.pending.values()} | {0})
        first = [s for s in self.steps if s.passes_through]
        for priority in priorities:
            for t in self.tensors.values():
                for k in [k for k, (p, _) in t.pending.items() if p <= priority]:
                    t.dims[k] = t.pending.pop(k)[1]
            for steps in (first, self.steps):
                for is_aggressive in (False, True):
                    self._until_fixed(steps, is_aggressive)
        values = {n: self._sharding(self.flow.of(n)) for n in self.flow.tensors() if self.flow.of(n) in self.tensors}
        reasons = {n: self.reasons[v] for n in values if (v := self.flow.of(n)) in self.reasons and values[n].is_split}
        origins = {n: {a: o for a in self.mesh.atoms(a for axes in values[n].axes for a in axes) if (o := found.get(a))}
                   for n in values if (found := self.origins.get(self.flow.of(n)))}
        given = frozenset(self.plan.values)
        return Plan(self.mesh, self.function, values, self.plan.results, reasons, given, origins)

    def _sharding(self, value: Value) -> TensorSharding:
        t = self.tensors[value]
        return TensorSharding(tuple(DimSharding(merged(a), is_open) for a, is_open in zip(t.dims, t.is_open, strict=True)))

    def _until_fixed(self, steps: Sequence[_Step], is_aggressive: bool) -> None:
        while any([self._step(s, is_aggressive) for s in steps] + [self._step(s, is_aggressive) for s in reversed(steps)]):
            pass

    def _step(self, step: _Step, is_aggressive: bool) -> bool:
        """Whether one node changed the sharding of any of its tensors."""
        found = [self.tensors.get(v) for v in step.values]
        seen = [None if t is None else self._projected(m, t, step.rule) for m, t in zip(step.rule.tensors, found, strict=True)]
        changed = False
        for f in self._factor_order(step, found, seen):
            axes = _agreed(f, [p for p in seen if p])
            if not is_aggressive:
                axes = _before(axes, frozenset().union(*(p.others(f) for p in seen if p)))
            if not axes:
                continue
            for k, (t, p) in enumerate(zip(found, seen, strict=True)):
                if t is None or p is None or f not in p.factors or len(axes) <= len(p.factors[f]):
                    continue
                mine = _before(axes, p.others(f) | t.taboo)
                if len(mine) > len(p.factors[f]) and self._extend(step, k, t, f, mine, p):
                    seen[k] = self._projected(step.rule.tensors[k], t, step.rule)
                    changed = True
        return changed

    @staticmethod
    def _projected(mapped: Mapped, t: _Tensor, rule: FactorRule) -> Projection:
        return Projection(project(mapped, t.dims, rule.sizes), frozenset(a for dim in t.dims for a in dim))

    @staticmethod
    def _factor_order(step: _Step, found: Sequence[_Tensor | None], seen: Sequence[Projection | None]) -> list[int]:
        """Factors of the largest tensors that are split along them first."""
        weight = dict.fromkeys(range(len(step.rule.sizes)), 0)
        for t, p in zip(found, seen, strict=True):
            if t and p:
                for f, axes in p.factors.items():
                    if axes:
                        weight[f] = max(weight[f], t.size)
        return sorted((f for f, w in weight.items() if w and f not in step.rule.blocked), key=lambda f: (-weight[f], f))

    def _extend(self, step: _Step, k: int, t: _Tensor, factor: int, axes: Atoms, p: Projection) -> bool:
        """Writes the axes of a factor to the dimension of a tensor; whether that is open and can say it."""
        mapped = step.rule.tensors[k]
        dim = next(d for d, factors in enumerate(mapped) if factor in factors)
        if not t.is_open[dim] or dim in t.pending:
            return False
        after = assemble(mapped[dim], {**p.factors, factor: axes}, step.rule.sizes)
        before = t.dims[dim]
        if len(after) <= len(before) or after[: len(before)] != before:
            return False
        t.dims[dim] = after
        self._remember(step, k, factor, after[len(before) :])
        self.reasons.setdefault(step.values[k], f"from {step.node.op.name} {step.node.name}".rstrip())
        return True


    def _remember(self, step: _Step, k: int, factor: int, added: Atoms) -> None:
        """Where axes came from: another tensor of the node that has them."""
        mine = self.origins.setdefault(step.values[k], {})
        for a in added:
            for j, value in enumerate(step.values):
                known = self.origins.get(value, {}).get(a)
                if j != k and known is not None and any(a in dim for dim in self.tensors[value].dims):
                    mine[a] = AxisOrigin(known.source, step.node, letter(factor), value[0])
                    break


def _source(node: Node) -> str:
    """What Shardy calls a value whose sharding is given."""
    return f"input: {index_of(node)}" if node.op is PARAM else f"constraint: {node.name or node.op.name}"


def _agreed(factor: int, seen: Sequence[Projection]) -> Atoms:
    """The longest axes of the factor that all its tensors agree on."""
    axes: Atoms = ()
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


def _shared(a: Atoms, b: Atoms) -> int:
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _before(axes: Atoms, forbidden: frozenset[AxisRef]) -> Atoms:
    """The axes up to the first forbidden one."""
    return axes[: next((k for k, a in enumerate(axes) if a in forbidden), len(axes))]


@dataclass(frozen=True)
class _Step:
    """One node with its rule and the classes of its tensors."""

    node: Node
    rule: FactorRule
    operands: Sequence[Value]
    results: Sequence[Value]

    @property
    def values(self) -> tuple[Value, ...]:
        return (*self.operands, *self.results)

    @property
    def passes_through(self) -> bool:
        """Whether every factor is in all tensors that have dimensions, as of elementwise operations and reshapes."""
        tensors = [{f for dim in t for f in dim} for t in self.rule.tensors if t]
        return all(t == tensors[0] for t in tensors)


def _ruled(function: Function) -> Iterable[tuple[Node, FactorRule]]:
    for node in function.nodes:
        if node.op not in CARRIERS and (rule := factor_rule(node)) is not None:
            yield node, rule


def _fresh(shape: tuple[int, ...]) -> _Tensor:
    return _Tensor([()] * len(shape), [True] * len(shape), size=math.prod(shape))


