"""The cheapest way from one sharding to another: a path of slices, gathers, exchanges, permutations and reductions.

A state says along which axes each dimension is split, and over which axes the value is still to be summed. Moves lead from state to
state; the path with the least cost is found by Dijkstra's algorithm. Costs are bytes that a device receives in a ring, and a fixed
price for each message. XLA's partitioner falls back to gathering everything where it knows no direct move; a search does not.
`Mover` writes a path as nodes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import UsageError
from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.sharding.mesh import Axes, Mesh, count_of
from deepx_graph.types import I32, as_tensor

MESSAGE = 4096.0
"""What starting a collective costs, in bytes."""

MOST_STATES = 20_000
"""More states are not looked at."""


@dataclass(frozen=True)
class TensorLayout:
    """The axes of each dimension, as prime factors, and those over which partial results are still to be combined."""

    dims: tuple[Axes, ...]
    partial: Axes = ()


@dataclass(frozen=True)
class ReshardMove:
    """One step: its kind, the axes that it is along, and the dimensions, of the operand and of the result, that change."""

    kind: str
    axes: Axes = ()
    source: int = -1
    target: int = -1


SLICE, GATHER, EXCHANGE, PERMUTE, REDUCE, SCATTER = (
    "slice", "all_gather", "all_to_all", "collective_permute", "all_reduce", "reduce_scatter")  # fmt: skip


@dataclass(frozen=True)
class Path:
    """Moves in order with the layout after each, and what they cost together."""

    moves: tuple[tuple[ReshardMove, TensorLayout], ...]
    cost: float


@cache
def reshard_path(shape: tuple[int, ...], itemsize: int, before: TensorLayout, after: TensorLayout) -> Path:
    """The cheapest path for a tensor of that shape. Raises UsageError where there is none, as of sizes not divided evenly."""
    number = itertools.count()
    queue: list[tuple[float, int, TensorLayout]] = [(0.0, next(number), before)]
    best: dict[TensorLayout, float] = {before: 0.0}
    reached: dict[TensorLayout, tuple[TensorLayout, ReshardMove]] = {}
    done: set[TensorLayout] = set()
    while queue and len(done) < MOST_STATES:
        cost, _, at = heapq.heappop(queue)
        if at in done:
            continue
        done.add(at)
        if at == after:
            return Path(_steps(reached, before, after), cost)
        size = _bytes(shape, itemsize, at)
        for move, there in _moves(shape, at, after):
            price = cost + _cost(move, size, _bytes(shape, itemsize, there))
            if price < best.get(there, math.inf):
                best[there] = price
                reached[there] = at, move
                heapq.heappush(queue, (price, next(number), there))
    raise UsageError(f"no path from one sharding of {list(shape)} to the other: a dimension is not split evenly")


def _steps(reached: dict[TensorLayout, tuple[TensorLayout, ReshardMove]], before: TensorLayout,
           at: TensorLayout) -> tuple[tuple[ReshardMove, TensorLayout], ...]:
    found = []
    while at != before:
        earlier, move = reached[at]
        found.append((move, at))
        at = earlier
    return tuple(reversed(found))


def _bytes(shape: Sequence[int], itemsize: int, at: TensorLayout) -> float:
    return math.prod(shape) * itemsize / math.prod(map(count_of, at.dims))


def _cost(move: ReshardMove, before: float, after: float) -> float:
    """Bytes received by one device; slices are free but for being a step, so that the shorter of equal paths is taken."""
    n = count_of(move.axes)
    received = {SLICE: 0.0, GATHER: after * (n - 1) / n, EXCHANGE: before * (n - 1) / n, PERMUTE: before,
                REDUCE: 2 * before * (n - 1) / n, SCATTER: before * (n - 1) / n}[move.kind]  # fmt: skip
    return received + (1.0 if move.kind == SLICE else MESSAGE)


def _moves(shape: Sequence[int], at: TensorLayout, after: TensorLayout) -> Iterator[tuple[ReshardMove, TensorLayout]]:
    used = {a for axes in at.dims for a in axes} | set(at.partial)
    for d, axes in enumerate(at.dims):
        for k in range(len(axes)):
            taken = axes[k:]
            whole = _with(at.dims, {d: axes[:k]})
            yield ReshardMove(GATHER, taken, d), TensorLayout(whole, at.partial)
            for e in range(len(at.dims)):
                if e != d and _next(at.dims[e], after.dims[e], len(taken)) == taken and _divides(shape, at, e, taken):
                    yield ReshardMove(EXCHANGE, taken, d, e), TensorLayout(_with(whole, {e: at.dims[e] + taken}), at.partial)
        missing = _next(axes, after.dims[d], len(after.dims[d]))
        for k in range(1, len(missing) + 1):
            added = missing[:k]
            if not _divides(shape, at, d, added):
                break
            grown = _with(at.dims, {d: axes + added})
            if not used.intersection(added):
                yield ReshardMove(SLICE, added, target=d), TensorLayout(grown, at.partial)
            if set(added) <= set(at.partial):
                yield ReshardMove(SCATTER, added, target=d), TensorLayout(grown, _less(at.partial, added))
    unfinished = _less(at.partial, after.partial)
    if unfinished:
        yield ReshardMove(REDUCE, unfinished), TensorLayout(at.dims, _less(at.partial, unfinished))
        for a in unfinished:
            yield ReshardMove(REDUCE, (a,)), TensorLayout(at.dims, _less(at.partial, (a,)))
    if at.partial == after.partial and at.dims != after.dims and not at.partial:
        counts = [(count_of(x), count_of(y)) for x, y in zip(at.dims, after.dims, strict=True)]
        if all(x == y for x, y in counts):
            yield ReshardMove(PERMUTE), after


def _with(dims: tuple[Axes, ...], changed: dict[int, Axes]) -> tuple[Axes, ...]:
    return tuple(changed.get(k, axes) for k, axes in enumerate(dims))


def _less(axes: Axes, gone: Axes) -> Axes:
    return tuple(a for a in axes if a not in gone)


def _next(axes: Axes, wanted: Axes, count: int) -> Axes:
    """The next axes that a dimension is to be split along; none where it is split in another way already."""
    return wanted[len(axes) : len(axes) + count] if wanted[: len(axes)] == axes else ()


def _divides(shape: Sequence[int], at: TensorLayout, dim: int, added: Axes) -> bool:
    return shape[dim] % (count_of(at.dims[dim]) * count_of(added)) == 0


# --- as nodes of the program of one device ------------------------------------------------------------------------

_CHANNEL = 1
"""Groups are of partitions."""


class Mover:
    """Writes moves with a builder. `combiner` is the op by which partial results are combined."""

    def __init__(self, b: Builder, mesh: Mesh) -> None:
        self.b, self.mesh = b, mesh

    def along(self, x: Node, before: TensorLayout, path: Path, combiner: Op | None = None) -> Node:
        """The value after all moves of a path."""
        for move, after in path.moves:
            x = self._move(x, move, before, after, combiner)
            before = after
        return x

    def _move(self, x: Node, move: ReshardMove, before: TensorLayout, after: TensorLayout, combiner: Op | None) -> Node:
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
