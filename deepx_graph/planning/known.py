"""The plans that people write by hand, found in a program that names none of its parts, to begin a search from and to compare with.

The batch is the dimension of a parameter along which most of the operations run: that is followed forward through the rules of
operations. Each plan then says how parameters lie, and all other values follow from these in one sweep through the program:

    data parallel   the batch is split, parameters are whole
    FSDP            and parameters are split where they lie, and gathered where they are used (Rajbhandari et al., ZeRO, 2020)
    Megatron        columns of a matrix, then rows of the one behind it, over the last axis of the mesh (Shoeybi et al., 2019)
    replicated      every device computes everything
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

from deepx_graph.analysis.work import flops
from deepx_graph.ir import Function, Node
from deepx_graph.ir.factor_rule import FactorRule, result_shapes
from deepx_graph.ir.structure import PARAM
from deepx_graph.sharding.mesh import Axes, AxisRef, fills
from deepx_graph.sharding.reshard import TensorLayout
from deepx_graph.sharding.rules import FactorAxes, expressible, factor_rule, layout_of, partial_axes, possible_axes, project
from deepx_graph.sharding.values import CARRIERS, DataFlow, Value
from deepx_graph.types import TensorType, as_tensor

REPLICATED, DATA_PARALLEL, FSDP, MEGATRON = "replicated", "data parallel", "FSDP", "Megatron"


@dataclass
class KnownPlan:
    """How values lie, and along which axes the factors of operations are split; what it says nothing of is whole."""

    layouts: dict[Value, TensorLayout] = field(default_factory=dict)
    axes: dict[Node, FactorAxes] = field(default_factory=dict)

    def layout(self, value: Value, rank: int) -> TensorLayout:
        """How a value of a rank lies."""
        return self.layouts.get(value) or TensorLayout.whole(rank)


@dataclass(frozen=True)
class Folded:
    """A function whose repeated blocks are looked at once: `first` has for each node that repeats one which, `by_hand` along which
    axes devices have different values of it."""

    function: Function
    flow: DataFlow
    first: Mapping[Node, Node]
    by_hand: Mapping[Node, Collection[AxisRef]]

    def value(self, node: Node) -> Value:
        """What stands for a tensor."""
        root, k = self.flow.of(node)
        return self.first.get(root, root), k

    def computing(self) -> list[tuple[Node, FactorRule]]:
        """The nodes that compute, each with its rule, without those that repeat others."""
        ours = [n for n in self.function.nodes if n not in self.first and n.op is not PARAM and n.op not in CARRIERS]
        return [(n, rule) for n in ours if (rule := factor_rule(n)) is not None]


def known_plans(folded: Folded, axes: Sequence[Axes], given: Mapping[Value, TensorLayout]) -> dict[str, KnownPlan]:
    """The plans by name, over `axes`, each as its prime factors; what is `given` of values stays."""
    rules = folded.computing()
    seeds = _batch(folded, rules)
    plans = {REPLICATED: _Sweep(folded, given)}
    if seeds:
        plans[DATA_PARALLEL] = _Sweep(folded, given, seeds, axes)
        plans[FSDP] = _Sweep(folded, given, seeds, axes, gathers=True)
    plans[MEGATRON] = _Sweep(folded, given, seeds, axes[:-1], columns=axes[-1:])
    return {name: sweep.run(rules) for name, sweep in plans.items()}


Seed = tuple[Node, int]
"""A dimension of a parameter."""


def _batch(folded: Folded, rules: Sequence[tuple[Node, FactorRule]]) -> list[Seed]:
    """The dimension of a parameter along which most operations run, and those of others that run with it; the first of equals."""
    seeds = [(p, d) for p in _tensors(folded) for d in range(len(as_tensor(p.type).shape))]
    along: dict[Value, list[int]] = {}
    for k, (p, _) in enumerate(seeds):
        along.setdefault((p, 0), []).append(1 << k)
    work: Counter[int] = Counter()
    for node, rule in rules:
        masks = [0] * len(rule.sizes)
        for mapped, i in zip(rule.operands, node.inputs, strict=True):
            for factors, mask in zip(mapped, along.get(folded.value(i), ()), strict=False):
                masks[_major(factors, rule)] |= mask
        for mask in {m for f, m in enumerate(masks) if rule.splits_freely(f) and f not in rule.reduction}:
            work[mask] += flops(node)
        for k, mapped in enumerate(rule.results):
            along[node, k] = [masks[_major(factors, rule)] for factors in mapped]
    totals: Counter[int] = Counter()
    for mask, operations in work.items():
        for k in _bits(mask):
            totals[k] += operations
    if not totals:
        return []
    best = max(totals, key=lambda k: (totals[k], -seeds[k][1], -k))
    together = 0
    for mask in work:
        together |= mask if mask >> best & 1 else 0
    return [seeds[k] for k in _bits(together)]


def _tensors(folded: Folded) -> list[Node]:
    """The parameters that are tensors of known size."""
    return [p for p in folded.function.params if isinstance(p.type, TensorType) and p.type.is_static and p not in folded.first]


def _largest(shape: tuple[int, ...]) -> int:
    """The dimension of most elements; -1 where there is none."""
    return shape.index(max(shape)) if shape else -1


def _bits(mask: int) -> list[int]:
    return [k for k in range(mask.bit_length()) if mask >> k & 1]


def _major(factors: tuple[int, ...], rule: FactorRule) -> int:
    """The factor that a dimension is split along first."""
    return next((f for f in factors if rule.sizes[f] > 1), factors[0])


class _Sweep:
    """How all values lie when parameters do as a plan says: each operation is split as the first of its operands asks."""

    def __init__(self, folded: Folded, given: Mapping[Value, TensorLayout], seeds: Sequence[Seed] = (), batch: Sequence[Axes] = (),
                 columns: Sequence[Axes] = (), *, gathers: bool = False) -> None:
        self.folded, self.gathers = folded, gathers
        self.columns = tuple(a for axes in columns for a in axes)
        self.plan = KnownPlan(dict(given))
        dims, inputs = dict(seeds), {p for p, _ in seeds}
        self.weights = [n for n in _tensors(folded) if n not in inputs]
        for p in inputs:
            self._lay(p, dims[p], batch)
        self.scattered: set[tuple[int, ...]] = set()
        for p in self.weights if gathers else ():
            shape = as_tensor(p.type).shape
            self._lay(p, _largest(shape), batch)
            self.scattered |= {shape} if any(self._of(p).dims) else set()

    def _lay(self, param: Node, dim: int, along: Sequence[Axes]) -> None:
        """Splits a parameter along as many of the axes, the first ones, as leave a part to every device."""
        shape = as_tensor(param.type).shape
        taken: Axes = ()
        for axes in along:
            taken = (*taken, *axes) if dim >= 0 and fills(shape[dim], (*taken, *axes)) else taken
        self.plan.layouts.setdefault((param, 0), TensorLayout(tuple(taken if d == dim else () for d in range(len(shape)))))

    def _of(self, node: Node) -> TensorLayout:
        return self.plan.layout(self.folded.value(node), len(as_tensor(node.type).shape))

    def run(self, rules: Sequence[tuple[Node, FactorRule]]) -> KnownPlan:
        """The plan for all values."""
        whole = set(self.weights) if self.gathers else set()
        for node, rule in rules:
            if self.columns:
                self._alternate(node, rule)
            axes: dict[int, Axes] = {}
            for mapped, i in zip(rule.operands, node.inputs, strict=True):
                dims = () if i in whole or not mapped else self._of(i).dims
                for f, found in project(mapped, dims, rule.sizes).items() if dims else ():
                    used = (*self.folded.by_hand.get(node, ()), *(a for taken in axes.values() for a in taken))
                    if not axes.get(f) and not any(a.overlaps(b) for a in found for b in used):
                        axes[f] = found
            self._split(node, rule, axes)
        return self.plan

    def _split(self, node: Node, rule: FactorRule, asked: FactorAxes) -> None:
        """Along the axes of its factors, as far as the node can be; parts of sums are combined everywhere, or, where they are
        as large as parameters that are gathered, scattered."""
        possible = {f: a for f, a in asked.items() if fills(rule.sizes[f], a) and possible_axes(node, rule, f, a) == a}
        axes = {f: a for f, a in expressible(rule, possible).items() if a}
        partial = partial_axes(rule, axes)
        self.plan.axes[node] = axes
        for k, (mapped, shape) in enumerate(zip(rule.results, result_shapes(node), strict=True)):
            layout = layout_of(mapped, axes, rule.sizes)
            if partial and shape in self.scattered:
                largest = _largest(shape)
                ends = (*layout.dims[largest], *partial)
                if fills(shape[largest], ends):
                    layout = TensorLayout(tuple(ends if d == largest else a for d, a in enumerate(layout.dims)))
            self.plan.layouts.setdefault((node, k), layout)

    def _alternate(self, node: Node, rule: FactorRule) -> None:
        """How a weight that a product or convolution is the first to use lies: rows where what it meets is split along them."""
        if len(rule.operands) < 2 or len(rule.results) != 1:
            return
        for (mine, i), (other, j) in permutations(zip(rule.operands, node.inputs, strict=True), 2):
            if i not in self.weights or (i, 0) in self.plan.layouts:
                continue
            met = project(other, self._of(j).dims, rule.sizes) if other else {}
            summed = [(d, f) for d, factors in enumerate(mine) for f in factors if f in rule.reduction]
            kept = [(d, f) for d, factors in enumerate(mine) for f in factors
                    if f not in rule.reduction and any(f in result for result in rule.results[0])]
            if not summed or not kept:
                continue
            rows = [d for d, f in summed if met.get(f) == self.columns]
            self._lay(i, rows[0] if rows else max(kept, key=lambda item: rule.sizes[item[1]])[0], (self.columns,))
