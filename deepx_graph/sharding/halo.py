"""Halos: what a device needs of its neighbours where the elements of a result read past the end of its part.

A device computes a block of the result, which reads a range of the operand; it has a block of that. `Halo` says which blocks the
range of each device touches, and which positions of them any device needs; `exchanged` fetches those by permutations, one after the
other, and cuts out the range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.ir.factor_rule import Reading
from deepx_graph.sharding.mesh import Axes, count_of
from deepx_graph.sharding.moves import Mover
from deepx_graph.sharding.reshard import MESSAGE
from deepx_graph.types import I32, as_tensor

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class HaloRound:
    """Pairs of parts, the first of which gives the second positions `low` to `stop` of its block; none where it is its own."""

    pairs: Pairs
    low: int
    stop: int

    @property
    def rows(self) -> int:
        """How many positions are sent."""
        return self.stop - self.low

    def joined(self, other: HaloRound) -> HaloRound:
        """Both in one."""
        sending = [r for r in (self, other) if r.rows]
        low, stop = (min(r.low for r in sending), max(r.stop for r in sending)) if sending else (0, 0)
        return HaloRound(tuple(sorted((*self.pairs, *other.pairs))), low, stop)

    def grown(self, other: HaloRound) -> int:
        """How many more positions are sent with both in one."""
        return self.joined(other).rows - self.rows


@dataclass(frozen=True)
class Halo:
    """One dimension of `size` elements of an operand, of a result of `result` elements, both split into `count` parts.

    What a part reads comes in hops, one block in each: `by_distance`, hop t brings the blocks that are equally far away, as fits
    windows; else the t-th block that the part reads, as fits mirrored axes.
    """

    size: int
    result: int
    count: int
    reading: Reading
    by_distance: bool = True
    by_range: bool = False
    """Whether rounds are for those who read the same positions of a block, rather than as few as possible."""

    @cached_property
    def block(self) -> int:
        """The size of a part of the operand."""
        return -(-self.size // self.count)

    @cached_property
    def length(self) -> int:
        """How many positions a device reads."""
        return (-(-self.result // self.count) - 1) * self.reading.stride + self.reading.extent

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where the range of each part begins in the whole operand."""
        r, part = self.reading, -(-self.result // self.count)
        return tuple(self.size - (i + 1) * part if r.mirrored else i * part * r.stride - r.low for i in range(self.count))

    @cached_property
    def bases(self) -> tuple[int, ...]:
        """The block that each part gets in hop 0."""
        first = [start // self.block for start in self.starts]
        nearest = min(block - part for part, block in enumerate(first))
        return tuple(part + nearest for part in range(self.count)) if self.by_distance else tuple(first)

    @cached_property
    def hops(self) -> dict[int, tuple[int, int]]:
        """By hop, the positions of a block that any part reads; they follow each other in what a part has fetched."""
        found: dict[int, tuple[int, int]] = {}
        for start, base in zip(self.starts, self.bases, strict=True):
            for block in range(start // self.block, (start + self.length - 1) // self.block + 1):
                low, stop = max(start - block * self.block, 0), min(start + self.length - block * self.block, self.block)
                old = found.get(block - base, (low, stop))
                found[block - base] = min(old[0], low), max(old[1], stop)
        return dict(sorted(found.items()))

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Where the range of each part begins in what it has fetched."""
        found = []
        for start, base in zip(self.starts, self.bases, strict=True):
            first = start // self.block - base
            before = sum(stop - low for hop, (low, stop) in self.hops.items() if hop < first)
            found.append(before + start - (start // self.block) * self.block - self.hops[first][0])
        return tuple(found)

    def rounds(self, hop: int) -> list[HaloRound]:
        """Who sends its block to whom, so that nobody sends twice in one round."""
        found: list[HaloRound] = []
        for part, (start, base) in enumerate(zip(self.starts, self.bases, strict=True)):
            source = base + hop
            at = source * self.block
            reads = start < at + self.block and start + self.length > at
            if not reads or not 0 <= source < self.count or at >= self.size:
                continue
            low, stop = max(start - at, 0), min(start + self.length - at, self.block, self.size - at)
            one = HaloRound(((source, part),), *((low, stop) if source != part else (0, 0)))
            free = [r for r in found if all(source != s for s, _ in r.pairs)
                    and (not self.by_range or not one.rows or r.grown(one) < one.rows)]
            if free:
                chosen = min(free, key=lambda r: r.grown(one)) if self.by_range else free[0]
                found[found.index(chosen)] = chosen.joined(one)
            else:
                found.append(one)
        return found

    def cost(self, nbytes: float) -> float:
        """Bytes received, where a whole part of the operand has `nbytes`; a fixed price for each message."""
        rows = [r.rows for hop in self.hops for r in self.rounds(hop) if r.rows]
        return len(rows) * MESSAGE + nbytes * sum(rows) / max(1, self.block)


@cache
def best_halo(size: int, result: int, count: int, reading: Reading) -> Halo:
    """The one that moves fewer bytes."""
    ways = [Halo(size, result, count, reading, by, ranges) for by in (True, False) for ranges in (False, True)]
    return min(ways, key=lambda h: h.cost(float(h.block)))


def exchanged(mover: Mover, x: Node, dim: int, axes: Axes, halo: Halo, fill: Node | None) -> Node:
    """What this device reads along a dimension that is split along the axes; `fill` outside of the whole operand."""
    groups = mover.mesh.groups(axes)
    part = mover.mesh.parts(axes)
    found = [_fetched(mover, x, dim, halo, hop, groups, part) for hop in halo.hops]
    joined = found[0] if len(found) == 1 else mover.b(ops.concatenate, *found, dimension=dim)
    if set(halo.offsets) == {0} and as_tensor(joined.type).shape[dim] == halo.length:
        here = joined
    else:
        here = mover.sliced(joined, dim, mover.here([halo.offsets[p] for p in part]), halo.length)
    return here if fill is None else mover.filled(here, dim, [halo.starts[p] for p in part], halo.size, fill)


def _fetched(mover: Mover, x: Node, dim: int, halo: Halo, hop: int, groups: Sequence[Sequence[int]], part: Sequence[int]) -> Node:
    """What each part gets of one block in a hop; zeros where nothing comes. Of what a part has itself nothing is sent."""
    b = mover.b
    low, stop = halo.hops[hop]
    whole: Node | None = None
    for r in halo.rounds(hop):
        pairs, here = r.pairs, mover.cut(x, dim, low, stop)
        if r.rows:
            sent = mover.permuted(mover.cut(x, dim, r.low, r.stop), [(g[a], g[c]) for g in groups for a, c in pairs])
            own = {target for source, target in pairs if source == target}
            here = _chosen(mover, mover.padded(sent, dim, r.low - low, stop - r.stop), here, [p in own for p in part])
        if whole is None:
            whole = here
            continue
        targets = {target for _, target in pairs}
        whole = _chosen(mover, whole, here, [p in targets for p in part])
    return whole if whole is not None else b.splat(0, as_tensor(mover.cut(x, dim, low, stop).type))


def _chosen(mover: Mover, x: Node, other: Node, takes_other: Sequence[bool]) -> Node:
    """The other one on the devices that take it."""
    if not any(takes_other):
        return x
    b = mover.b
    return b(ops.select, b(ops.compare, mover.here([int(t) for t in takes_other]), b.constant(1, I32), direction="EQ"), other, x)


def halo_cost(shape: Sequence[int], itemsize: int, dim: int, result: int, axes: Axes, reading: Reading) -> float:
    """What the exchange costs for an operand of that shape on one device but for the dimension, which is given as a whole."""
    halo = best_halo(shape[dim], result, count_of(axes), reading)
    return halo.cost(math.prod(n for k, n in enumerate(shape) if k != dim) * halo.block * itemsize)
