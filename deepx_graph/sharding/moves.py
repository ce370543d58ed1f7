"""Moves between layouts, and what else depends on the device, as nodes of the program of one device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ir.factor_rule import Position
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.sharding.mesh import Axes, Mesh, count_of, local_shape
from deepx_graph.sharding.reshard import EXCHANGE, GATHER, PERMUTE, REDUCE, SCATTER, SLICE, Path, ReshardMove, TensorLayout
from deepx_graph.types import I32, as_tensor

_CHANNEL = 1
"""Groups are of partitions."""


class Mover:
    """Writes moves with a builder. `combiner` is the op by which partial results are combined."""

    def __init__(self, b: Builder, mesh: Mesh) -> None:
        self.b, self.mesh = b, mesh
        self.met: list[Node] = []
        """The collectives written so far."""

    def _meet(self, op: Op, x: Node, **attrs: object) -> Node:
        self.met.append(self.b(op, x, **attrs))
        return self.met[-1]

    def along(self, x: Node, shape: Sequence[int], before: TensorLayout, path: Path,
              combiner: Op | None = None) -> Iterator[tuple[TensorLayout, Node]]:
        """The value, of that shape as a whole, after each move of a path, with how it lies then."""
        for move, after in path.moves:
            x = self._move(x, shape, move, before, after, combiner)
            before = after
            yield after, x

    def _move(self, x: Node, shape: Sequence[int], move: ReshardMove, before: TensorLayout, after: TensorLayout,
              combiner: Op | None) -> Node:
        size = count_of(move.axes)
        groups = self.mesh.groups(move.axes)
        grouped = {"replica_groups": groups, "channel_id": _CHANNEL, "use_global_device_ids": True}
        local = local_shape(shape, after.dims)
        if move.kind == SLICE:
            starts = [part * local[move.target] for part in self.mesh.parts(move.axes)]
            return self._part(x, move.target, starts, local[move.target])
        if move.target >= 0:
            x = self.resized(x, move.target, local[move.target] * size)
        if move.kind == GATHER:
            whole = self._meet(ops.spmd_all_gather, x, **grouped, all_gather_dim=move.source, shard_count=size)
            return self.resized(whole, move.source, local[move.source])
        if move.kind == EXCHANGE:
            moved = self._meet(ops.spmd_all_to_all, x, replica_groups=groups, channel_id=_CHANNEL, split_dimension=move.target,
                               concat_dimension=move.source, split_count=size)
            return self.resized(moved, move.source, local[move.source])
        if move.kind == PERMUTE:
            return self.permuted(x, self._pairs(before.dims, after.dims))
        assert combiner is not None
        body = monoid_body(combiner, as_tensor(x.type).dtype)
        if move.kind == REDUCE:
            return self._meet(ops.spmd_all_reduce, x, **grouped, computation=body)
        assert move.kind == SCATTER
        return self._meet(ops.spmd_reduce_scatter, x, **grouped, scatter_dimension=move.target, shard_count=size,
                          computation=body)

    def _part(self, x: Node, dim: int, starts: Sequence[int], size: int) -> Node:
        """So many positions from where the part of each device begins; those beyond the end are anything.

        The part that crosses the end is taken from before it and pushed back, so that nothing of the size of the whole is copied.
        """
        last = as_tensor(x.type).shape[dim] - size
        taken = [min(start, last) for start in starts]
        shifts = [min(start - first, size) for start, first in zip(starts, taken, strict=True)]
        part = self.sliced(x, dim, self.here(taken), size)
        return self.sliced(self.padded(part, dim, 0, max(shifts)), dim, self.here(shifts), size) if any(shifts) else part

    def permuted(self, x: Node, pairs: Sequence[tuple[int, int]]) -> Node:
        """What the device that is paired with this one has; zeros where none is. Two such moves become one."""
        if x.op is ops.spmd_collective_permute:
            sources = {target: source for source, target in x.attr("source_target_pairs")}
            pairs = [(sources[source], target) for source, target in pairs if source in sources]
            x = x.inputs[0]
        return self._meet(ops.spmd_collective_permute, x, source_target_pairs=tuple(sorted(pairs)), channel_id=_CHANNEL)

    def resized(self, x: Node, dim: int, size: int) -> Node:
        """A dimension cut off, or filled up with zeros at its end."""
        old = as_tensor(x.type).shape[dim]
        if old > size:
            return self.cut(x, dim, 0, size)
        if old == size:
            return x
        return self.padded(x, dim, 0, size - old)

    def padded(self, x: Node, dim: int, low: int, high: int) -> Node:
        """A dimension with zeros before and behind it."""
        rank = len(as_tensor(x.type).shape)
        if low == high == 0:
            return x
        return self.b(ops.pad, x, self.b.like(0, x), edge_padding_low=tuple(low * (k == dim) for k in range(rank)),
                      interior_padding=(0,) * rank, edge_padding_high=tuple(high * (k == dim) for k in range(rank)))

    def cut(self, x: Node, dim: int, start: int, stop: int) -> Node:
        """Positions from `start` to `stop` of a dimension."""
        shape = as_tensor(x.type).shape
        if (start, stop) == (0, shape[dim]):
            return x
        return self.b(ops.slice_, x, start_indices=tuple(start if k == dim else 0 for k in range(len(shape))),
                      limit_indices=tuple(stop if k == dim else n for k, n in enumerate(shape)), strides=(1,) * len(shape))

    def sliced(self, x: Node, dim: int, start: Node, size: int) -> Node:
        """So many positions of a dimension from a computed one on."""
        shape = as_tensor(x.type).shape
        zero = self.b.constant(0, I32)
        return self.b(ops.dynamic_slice, x, *(start if k == dim else zero for k in range(len(shape))),
                      slice_sizes=tuple(size if k == dim else n for k, n in enumerate(shape)))

    def here(self, numbers: Sequence[int]) -> Node:
        """The number of this device among one for each; a scalar, i32."""
        b = self.b
        if len(set(numbers)) == 1:
            return b.constant(numbers[0], I32)
        me = b(ops.convert, b(ops.partition_id), dtype=I32)
        table = b.constant(np.array(numbers, np.int32))
        return b(ops.reshape, b(ops.dynamic_slice, table, me, slice_sizes=(1,)), shape=())

    def position(self, size: int, axes: Axes) -> Position:
        """Where this device is on what axes split."""
        local, parts = -(-size // count_of(axes)), self.mesh.parts(axes)
        return Position(self.here([p * local for p in parts]), local, self.here(parts))

    def filled(self, x: Node, dim: int, starts: Sequence[int], size: int, value: Node) -> Node:
        """`value` at what lies outside 0 to `size`, where the part of each device begins at `starts`."""
        b, shape = self.b, as_tensor(x.type).shape
        if all(start >= 0 and start + shape[dim] <= size for start in starts):
            return x
        at = b(ops.add, b(ops.iota, dtype=I32, shape=shape, iota_dimension=dim), self.here(starts))
        inside = b(ops.compare, at, b.constant(size, I32), direction="LT")
        if any(start < 0 for start in starts):
            inside = b(ops.and_, inside, b(ops.compare, at, b.constant(0, I32), direction="GE"))
        return b(ops.select, inside, x, value)

    def of_device(self, x: Node, device: int) -> Node:
        """What one device has, on all: the sum of it and of what changes nothing on the others."""
        b, dtype = self.b, as_tensor(x.type).dtype
        combiner, neutral = (ops.or_, False) if dtype.kind == "bool" else (ops.add, -0.0 if dtype.is_float else 0)
        is_there = b(ops.compare, self.here([int(d == device) for d in range(self.mesh.count)]), b.constant(1, I32), direction="EQ")
        return self._meet(ops.spmd_all_reduce, b(ops.select, is_there, x, b.like(neutral, x)),
                          replica_groups=(tuple(range(self.mesh.count)),), channel_id=_CHANNEL, use_global_device_ids=True,
                          computation=monoid_body(combiner, dtype))

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
