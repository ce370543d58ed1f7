"""What a message and a collective cost over one kind of link: lines through points, and the algorithms of collectives as rounds.

A link is piecewise linear in the bytes of a message, as no single latency and bandwidth fits messages in and out of caches. The
algorithms are those of MPI's and NCCL's implementations; of those that a topology has the fastest counts, as libraries choose by
size. Where collectives were measured, these measurements count instead.

Source: Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH, 2005.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from deepx_graph.errors import UsageError

RING, SWITCH = "ring", "switch"
TOPOLOGIES = (RING, SWITCH)
"""A ring has links to both neighbours, used at once; over a switch everyone reaches everyone, one message at a time."""

Points = tuple[tuple[float, float], ...]
"""Seconds by bytes, by ascending bytes."""

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, PERMUTE = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute")  # fmt: skip
COLLECTIVES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, PERMUTE)


def interpolated(points: Points, nbytes: float) -> float:
    """Seconds for so many bytes: linear between points and beyond the last two; below the first as that."""
    if nbytes <= points[0][0]:
        return points[0][1]
    (x0, y0), (x1, y1) = next((p for p in pairwise(points) if nbytes <= p[1][0]), points[-2:])
    return y0 + (y1 - y0) * (nbytes - x0) / (x1 - x0)


def checked_points(points: Points) -> Points:
    """The points. Raises UsageError where they make no line."""
    sizes = [size for size, _ in points]
    if len(sizes) < 2 or sizes != sorted(set(sizes)) or not all(math.isfinite(v) and v >= 0 for p in points for v in p):
        raise UsageError("at least two points of bytes and seconds are needed, by ascending bytes")
    return points


@dataclass(frozen=True)
class NetworkLink:
    """Seconds of one message by its bytes, the topology, and collectives that were measured, by kind and number of devices."""

    points: Points
    topology: str = SWITCH
    measured: Mapping[tuple[str, int], Points] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Raises UsageError for points that make no line, and for an unknown topology."""
        for points in (self.points, *self.measured.values()):
            checked_points(points)
        if self.topology not in TOPOLOGIES:
            raise UsageError(f"no topology '{self.topology}': {' or '.join(TOPOLOGIES)}")

    def message(self, nbytes: float) -> float:
        """Seconds of one message between neighbours."""
        return interpolated(self.points, nbytes)

    def collective(self, kind: str, count: int, nbytes: float) -> tuple[float, str]:
        """Seconds of a collective of `count` devices, and the algorithm.

        `nbytes` is the larger of what one device has before and after it.
        """
        if count < 2:
            return 0.0, "alone"
        if (kind, count) in self.measured:
            return interpolated(self.measured[kind, count], nbytes), "measured"
        return min((seconds, name) for name, seconds in self.algorithms(kind, count, nbytes))

    def algorithms(self, kind: str, count: int, nbytes: float) -> Iterator[tuple[str, float]]:
        """The algorithms that the topology has, each with its seconds."""
        part, rounds = nbytes / count, count - 1 if self.topology == SWITCH else count // 2
        if kind == PERMUTE:
            yield "direct", self.message(nbytes)
        elif kind == ALL_TO_ALL:
            hops = 1.0 if self.topology == SWITCH else max(1.0, count / 4)
            yield "pairwise", rounds * self.message(part * hops)
        elif kind == ALL_REDUCE:
            yield "ring", 2 * rounds * self.message(part)
            if self.topology == SWITCH:
                yield "recursive doubling", math.ceil(math.log2(count)) * self.message(nbytes)
                yield "halving and doubling", 2 * self._doubling(count, part)
        else:
            yield "ring", rounds * self.message(part)
            if self.topology == SWITCH:
                yield "recursive doubling", self._doubling(count, part)

    def _doubling(self, count: int, part: float) -> float:
        """Rounds in which everyone exchanges what it has with a partner; numbers between powers of two need one round more."""
        whole = int(math.log2(count))
        seconds = sum(self.message(part * 2**k) for k in range(whole))
        return seconds if count == 2**whole else seconds + self.message(part * (count - 2**whole))


def uniform_link(alpha: float, beta: float, topology: str = SWITCH) -> NetworkLink:
    """A link of one latency (seconds) and one bandwidth (bytes a second, in one direction)."""
    return NetworkLink(((0.0, alpha), (1e9, alpha + 1e9 / beta)), topology)
