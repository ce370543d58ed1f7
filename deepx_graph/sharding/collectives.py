"""The moves of a path between shardings as nodes of the program of one device."""

from __future__ import annotations

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.sharding.mesh import Axes, Mesh, count_of
from deepx_graph.sharding.reshard import EXCHANGE, GATHER, PERMUTE, REDUCE, SCATTER, SLICE, Layout, Move, Path
from deepx_graph.types import I32, as_tensor

_CHANNEL = 1
"""Groups are of partitions."""


class Mover:
    """Writes moves with a builder. `combiner` is the op by which partial results are combined."""

    def __init__(self, b: Builder, mesh: Mesh) -> None:
        self.b, self.mesh = b, mesh

    def along(self, x: Node, before: Layout, path: Path, combiner: Op | None = None) -> Node:
        """The value after all moves of a path."""
        for move, after in path.moves:
            x = self._move(x, move, before, after, combiner)
            before = after
        return x

    def _move(self, x: Node, move: Move, before: Layout, after: Layout, combiner: Op | None) -> Node:
        b, size = self.b, count_of(move.axes)
        groups = self.mesh.groups(move.axes)
        grouped = {"replica_groups": groups, "channel_id": _CHANNEL, "use_global_device_ids": True}
        if move.kind == SLICE:
            return self._slice(x, move.axes, move.target)
        if move.kind == GATHER:
            return b(ops.spmd_all_gather, x, **grouped, all_gather_dim=move.source, shard_count=size)
        if move.kind == EXCHANGE:
            return b(ops.spmd_all_to_all, x, replica_groups=groups, channel_id=_CHANNEL, split_dimension=move.target,
                     concat_dimension=move.source, split_count=size)
        if move.kind == PERMUTE:
            pairs = self._pairs(before.dims, after.dims)
            return b(ops.spmd_collective_permute, x, source_target_pairs=pairs, channel_id=_CHANNEL)
        assert combiner is not None
        body = monoid_body(combiner, as_tensor(x.type).dtype)
        if move.kind == REDUCE:
            return b(ops.spmd_all_reduce, x, **grouped, computation=body)
        assert move.kind == SCATTER
        return b(ops.spmd_reduce_scatter, x, **grouped, scatter_dimension=move.target, shard_count=size, computation=body)

    def _slice(self, x: Node, axes: Axes, dim: int) -> Node:
        """The part of a dimension that is this device's."""
        b, shape = self.b, as_tensor(x.type).shape
        local = shape[dim] // count_of(axes)
        starts = np.array([self.mesh.index(d, axes) * local for d in range(self.mesh.count)], np.int32)
        here = b(ops.convert, b(ops.partition_id), dtype=I32)
        start = b(ops.reshape, b(ops.dynamic_slice, b.constant(starts), here, slice_sizes=(1,)), shape=())
        zero = b.constant(0, I32)
        sizes = tuple(local if k == dim else n for k, n in enumerate(shape))
        return b(ops.dynamic_slice, x, *(start if k == dim else zero for k in range(len(shape))), slice_sizes=sizes)

    def _pairs(self, before: tuple[Axes, ...], after: tuple[Axes, ...]) -> tuple[tuple[int, int], ...]:
        """For each device one that has its part; itself where it has it."""
        sources: dict[tuple[int, ...], list[int]] = {}
        for d in range(self.mesh.count):
            sources.setdefault(tuple(self.mesh.index(d, axes) for axes in before), []).append(d)
        found = []
        wanted = {d: tuple(self.mesh.index(d, axes) for axes in after) for d in range(self.mesh.count)}
        rest = [d for d in wanted if d not in sources[wanted[d]]]
        for d in wanted:
            if d not in rest:
                sources[wanted[d]].remove(d)
                found.append((d, d))
        found += [(sources[wanted[d]].pop(0), d) for d in rest]
        return tuple(sorted(found))
