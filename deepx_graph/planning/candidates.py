"""The ways to split one node over a mesh, with what each costs: the axes of its factors, and how operands and results then lie.

Each axis of the mesh goes to one factor or to none. A sum over a split factor is combined on every device, or scattered: that is
two ways, as the result lies differently. Seconds are those of the local part of the work by the roofline, and of combining.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from deepx_graph.analysis.work import bytes_moved, flops
from deepx_graph.ir import Node
from deepx_graph.ir.factor_rule import FactorRule, result_shapes
from deepx_graph.planning.cluster import DeviceCluster
from deepx_graph.sharding.halo import best_halo
from deepx_graph.sharding.mesh import Axes, AxisRef, Mesh, count_of, fills, local_shape
from deepx_graph.sharding.reshard import PERMUTE, SLICE, TensorLayout, reshard_path
from deepx_graph.sharding.rules import (
    FactorAxes,
    expressible,
    factor_rule,
    halos,
    layout_of,
    partial_axes,
    possible_axes,
    reading_of,
    result_size,
)
from deepx_graph.types import TensorType, TupleType, as_tensor

MOST_CANDIDATES = 24
"""Ways to split one node that are compared, those of the least seconds."""

MOST_TRIED = 4096


@dataclass(frozen=True)
class SplitCandidate:
    """One way: how operands have to lie, how results lie in the end, and seconds."""

    operands: tuple[TensorLayout, ...]
    results: tuple[TensorLayout, ...]
    seconds: float


class MeshCosts:
    """Seconds of moves and kernels on the devices of a mesh."""

    def __init__(self, mesh: Mesh, cluster: DeviceCluster) -> None:
        self.mesh, self.cluster = mesh, cluster
        self.axes: tuple[Axes, ...] = tuple(mesh.atoms((mesh.axis(name),)) for name, size in mesh.axes if size > 1)
        self._groups: dict[Axes, tuple[tuple[int, ...], ...]] = {}
        self._paths: dict[tuple[tuple[int, ...], int, TensorLayout, TensorLayout], float] = {}

    def path(self, shape: tuple[int, ...], itemsize: int, before: TensorLayout, after: TensorLayout) -> float:
        """Seconds to bring a tensor from one layout to another."""
        if before == after:
            return 0.0
        key = shape, itemsize, before, after
        if key not in self._paths:
            seconds, at = 0.0, before
            for move, layout in reshard_path(shape, itemsize, before, after).moves:
                sizes = [math.prod(local_shape(shape, x.dims)) * itemsize for x in (at, layout)]
                copied = 2 * sizes[1] / self.cluster.device.bandwidth
                seconds += copied if move.kind == SLICE else self._collective(move.kind, move.axes, max(sizes))
                at = layout
            self._paths[key] = seconds
        return self._paths[key]

    def _collective(self, kind: str, along: Axes, nbytes: float) -> float:
        axes = along if kind != PERMUTE else tuple(a for axes in self.axes for a in axes)
        if axes not in self._groups:
            self._groups[axes] = self.mesh.groups(axes)
        groups = self._groups[axes]
        pairs = tuple((g[0], g[-1]) for g in groups) if kind == PERMUTE else groups
        return self.cluster.collective(kind, pairs, nbytes)[0]

    def axes_beside(self, apart: Collection[AxisRef]) -> list[Axes]:
        """The axes of the mesh without those along which devices have different values."""
        return [axes for axes in self.axes if not any(a.overlaps(b) for a in axes for b in apart)]

    def layouts(self, shape: Sequence[int], apart: Collection[AxisRef] = ()) -> list[TensorLayout]:
        """The ways in which a tensor may lie: each axis along one dimension of which all devices have some, or along none."""
        found, every = [], self.axes_beside(apart)
        for dims in itertools.product(range(-1, len(shape)), repeat=len(every)):
            axes = tuple(tuple(a for at, atoms in zip(dims, every, strict=True) if at == d for a in atoms)
                         for d in range(len(shape)))
            if all(fills(size, a) for size, a in zip(shape, axes, strict=True)):
                found.append(TensorLayout(axes))
        return found

    def candidates(self, node: Node, rule: FactorRule, known: Sequence[FactorAxes] = (),
                   goes_on: Callable[[], object] = lambda: True, apart: Collection[AxisRef] = ()) -> list[SplitCandidate]:
        """The ways to split a node, the fastest first: those along `known` axes, the whole, and others as long as it goes on.

        Along axes `apart` devices have different values of it, which are not parts of one.
        """
        found: dict[tuple[tuple[TensorLayout, ...], tuple[TensorLayout, ...]], SplitCandidate] = {}

        def add(axes: FactorAxes) -> None:
            for c in self._split(node, rule, axes):
                key = c.operands, c.results
                if key not in found or c.seconds < found[key].seconds:
                    found[key] = c

        for axes in ({}, *known):
            add(axes)
        kept = tuple(found)
        for axes in itertools.takewhile(lambda _: goes_on(), self._assignments(node, rule, self.axes_beside(apart))):
            add(axes)
        best = sorted(found.values(), key=lambda c: c.seconds)
        return list(dict.fromkeys([*best[:MOST_CANDIDATES], *(found[key] for key in kept)]))

    def _split(self, node: Node, rule: FactorRule, axes: FactorAxes) -> Iterator[SplitCandidate]:
        """The ways to split a node along axes: with parts of sums combined on every device, or scattered along a dimension."""
        shapes = result_shapes(node)
        share = math.prod(-(-rule.sizes[f] // count_of(a)) / rule.sizes[f] for f, a in axes.items())
        operands = tuple(layout_of(mapped, axes, rule.sizes) for mapped in rule.operands)
        local = self.cluster.device.seconds(flops(node) * share, bytes_moved(node) * share)
        local += self._prepared(node, rule, axes, operands)
        made = [layout_of(mapped, axes, rule.sizes) for mapped in rule.results]
        partial = partial_axes(rule, axes)
        for dim in (-1, *(range(len(shapes[0])) if partial and len(shapes) == 1 else ())):
            after = [_scattered(x, partial, dim) for x in made]
            if dim >= 0 and not fills(shapes[0][dim], after[0].dims[dim]):
                continue
            seconds = sum(self.path(shape, size, TensorLayout(x.dims, partial), y)
                          for shape, size, x, y in zip(shapes, _itemsizes(node), made, after, strict=True))
            yield SplitCandidate(operands, tuple(after), local + seconds)

    def _prepared(self, node: Node, rule: FactorRule, axes: FactorAxes, operands: Sequence[TensorLayout]) -> float:
        """Seconds to fetch what is read of neighbours' parts, and to mask what reductions would read beyond the end."""
        seconds, sizes = 0.0, [as_tensor(i.type) for i in node.inputs]
        local = [local_shape(type.shape, x.dims) for type, x in zip(sizes, operands, strict=True)]
        nbytes = [math.prod(shape) * type.dtype.itemsize for shape, type in zip(local, sizes, strict=True)]
        for k, dim, f in halos(rule, axes):
            reading = reading_of(node, rule, f)
            assert reading is not None
            halo = best_halo(sizes[k].shape[dim], result_size(node, rule, f), count_of(axes[f]), reading)
            rows = [r.rows for hop in halo.hops for r in halo.rounds(hop) if r.rows]
            seconds += sum(self._collective(PERMUTE, (), nbytes[k] * n / halo.block) for n in rows) + self._copied(nbytes[k])
        for k, mapped in enumerate(rule.operands):
            masked = [f for factors in mapped for f in factors if f in rule.reduction and rule.sizes[f] % count_of(axes.get(f, ()))]
            seconds += len(masked) * self._copied(nbytes[k])
        return seconds

    def _copied(self, nbytes: float) -> float:
        return self.cluster.device.seconds(0, 2 * nbytes)

    def _assignments(self, node: Node, rule: FactorRule, every: Sequence[Axes]) -> Iterator[dict[int, Axes]]:
        """Each of the axes to a factor that can be split along it, evenly or padded, or to none."""
        seen: set[tuple[tuple[int, Axes], ...]] = set()
        factors = [f for f, size in enumerate(rule.sizes) if size > 1]
        for chosen in itertools.islice(itertools.product((None, *factors), repeat=len(every)), MOST_TRIED):
            axes: dict[int, Axes] = {}
            for f, atoms in zip(chosen, every, strict=True):
                if f is not None:
                    axes[f] = axes.get(f, ()) + atoms
            if any(not fills(rule.sizes[f], a) or possible_axes(node, rule, f, a) != a for f, a in axes.items()):
                continue
            axes = {f: a for f, a in expressible(rule, axes).items() if a}
            key = tuple(sorted(axes.items()))
            if key not in seen:
                seen.add(key)
                yield axes


def _scattered(made: TensorLayout, partial: Axes, dim: int) -> TensorLayout:
    """The layout after partial sums are combined: on every device, or each part along a dimension on its own."""
    return TensorLayout(tuple(axes + partial if k == dim else axes for k, axes in enumerate(made.dims)))


def _itemsizes(node: Node) -> list[int]:
    items = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    return [as_tensor(item).dtype.itemsize for item in items]


def splittable(node: Node) -> FactorRule | None:
    """The rule of a node that computes tensors of known sizes."""
    rule = factor_rule(node)
    items = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    return rule if rule is not None and all(isinstance(t, TensorType) for t in items) else None
