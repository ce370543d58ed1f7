"""Which values share memory, and where in it each lies: the one assignment of storage, for whole programs and for steps alike.

A value is there at positions of the code, in ranges with both ends included. Two values may share memory where they are never there
at once, but for *handovers*: positions where one ends and the other, that may be written over it, begins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from deepx_graph.analysis.disjoint_sets import DisjointSets
from deepx_graph.runtime.memory.pages import ALIGNMENT

Ranges = tuple[tuple[int, int], ...]
"""Positions, in order and apart from one another."""

SCALAR = 8
"""Memory smaller than a cache line begins at a multiple of this, other memory on a line."""

PAGE = 1 << 12
"""Addresses that are so far apart are in one set of the caches that a core has near."""

MOST_BY_SIZE = 300
"""Values that are also packed by their sizes."""

MOST_SHARED = 8
"""Positions that two values may have in common, each a handover."""


class Handover(NamedTuple):
    """At a position a value may be written over another one, which is not read behind it."""

    at: int
    value: int
    over: int


class Sharing:
    """Groups of values that share memory, each known by its first value.

    Handovers are taken in the order in which they are asked for. Takes time linear in the ranges of the groups that are joined, and
    for the handovers inside of them n log n in all.
    """

    def __init__(self, ranges: Sequence[Ranges], handovers: Iterable[Handover]) -> None:
        self._ranges = list(ranges)
        self._sets = DisjointSets[int]()
        self._taken: dict[int, set[int]] = {}
        """The positions of handovers inside of each group that has any: there is one of them at each."""
        self._handovers: dict[int, list[Handover]] = {}
        for h in handovers:
            self._handovers.setdefault(h.at, []).append(h)

    def group(self, value: int) -> int:
        """The value that a value's group is known by."""
        return self._sets.find(value)

    def span(self, group: int) -> tuple[int, int]:
        """The first and the last position of a group; 0 for what is nowhere."""
        ranges = self._ranges[group] or ((0, 0),)
        return ranges[0][0], ranges[-1][1]

    def join(self, one: int, other: int) -> bool:
        """Makes the groups of two values one, where they may share memory; whether they are one now."""
        a, b = self.group(one), self.group(other)
        if a == b:
            return True
        a, b = (a, b) if a < b else (b, a)
        common = _common(self._ranges[a], self._ranges[b])
        if common is None or any(not self._is_handover(at, a, b) for at in common):
            return False
        self._sets.union(b, a)
        self._ranges[a] = _united(self._ranges[a], self._ranges[b])
        small, large = sorted((self._taken.pop(a, set()), self._taken.pop(b, set())), key=len)
        large |= small  # the smaller set moves: n log n in all
        large.update(common)
        self._taken[a] = large
        return True

    def _is_handover(self, at: int, a: int, b: int) -> bool:
        if at in self._taken.get(a, ()) or at in self._taken.get(b, ()):
            return False
        groups = {a, b}
        return any({self.group(h.value), self.group(h.over)} == groups for h in self._handovers.get(at, ()))


def _common(one: Ranges, other: Ranges) -> list[int] | None:
    """The positions that two values have in common; None where they are more than handovers may be."""
    found: list[int] = []
    i = k = 0
    while i < len(one) and k < len(other):
        low, high = max(one[i][0], other[k][0]), min(one[i][1], other[k][1])
        if high - low >= MOST_SHARED:
            return None
        found += range(low, high + 1)
        if one[i][1] < other[k][1]:
            i += 1
        else:
            k += 1
    return found if len(found) <= MOST_SHARED else None


def _united(one: Ranges, other: Ranges) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted((*one, *other)):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)


def ranges_of(there: Sequence[int], count: int) -> list[Ranges]:
    """The ranges of so many values, of which those that are there at each position are bits."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    begun, before = [0] * count, 0
    for at, bits in enumerate((*there, 0)):
        for value in bits_of(bits & ~before):
            begun[value] = at
        for value in bits_of(before & ~bits):
            found[value].append((begun[value], at - 1))
        before = bits
    return [tuple(r) for r in found]


def bits_of(bits: int) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def most_alive(intervals: Iterable[tuple[int, int, int]]) -> int:
    """The largest sum of sizes over the positions, of `(first, last, size)` with both ends included."""
    events: dict[int, int] = {}
    for first, last, size in intervals:
        events[first] = events.get(first, 0) + size
        events[last + 1] = events.get(last + 1, 0) - size
    most = alive = 0
    for at in sorted(events):
        alive += events[at]
        most = max(most, alive)
    return most


def packed(spans: Sequence[tuple[int, int]], sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where memory of those sizes begins in one piece, and its size: two lie apart where their spans share a position.

    It is the better of two greedy orders, by birth and, where there are few, by size. Behind what fills pages a line is left out,
    so that arrays of one size do not all begin in the same set of a cache, which holds few lines of each.
    """
    spaced = [n + ALIGNMENT if n and n % PAGE == 0 else n for n in sizes]
    orders = [_packed_by_birth, *([_packed_by_size] if sum(map(bool, sizes)) <= MOST_BY_SIZE else [])]
    offsets = min((order(spans, spaced) for order in orders), key=lambda found: found[1])[0]
    return offsets, max((at + -(-n // SCALAR) * SCALAR for at, n in zip(offsets, sizes, strict=True) if n), default=0)


def _packed_by_size(spans: Sequence[tuple[int, int]], sizes: Sequence[int]) -> tuple[list[int], int]:
    """The largest first, each in the lowest gap. Takes time that grows with the square of the spans."""
    offsets, room, end = [0] * len(sizes), Room(sum(sizes) + ALIGNMENT * len(sizes)), 0
    for k in sorted((k for k, n in enumerate(sizes) if n), key=lambda k: -sizes[k]):
        size = -(-sizes[k] // SCALAR) * SCALAR
        found = room.take(spans[k], size)
        assert found is not None
        offsets[k], end = found, max(end, found + size)
    return offsets, end


def _packed_by_birth(spans: Sequence[tuple[int, int]], sizes: Sequence[int]) -> tuple[list[int], int]:
    """Each takes the smallest gap that is wide enough when its span begins. Takes time linear in the spans and the gaps."""
    offsets, end = [0] * len(sizes), 0
    gaps = list[tuple[int, int]]()
    busy = list[tuple[int, int, int]]()
    for k in sorted((k for k, n in enumerate(sizes) if n), key=lambda k: spans[k][0]):
        size = -(-sizes[k] // ALIGNMENT) * ALIGNMENT
        while busy and busy[0][0] < spans[k][0]:
            _, low, high = heappop(busy)
            _add_gap(gaps, low, high)
        fits = [(high - low, low) for low, high in gaps if high - low >= size]
        if fits:
            room, low = min(fits)
            at = bisect_left(gaps, (low, low + room))
            gaps[at : at + 1] = [(low + size, low + room)] if size < room else []
        else:
            low = gaps.pop()[0] if gaps and gaps[-1][1] == end else end  # the last gap grows
            end = low + size
        offsets[k] = low
        heappush(busy, (spans[k][1], low, low + size))
    return offsets, end


def _add_gap(gaps: list[tuple[int, int]], low: int, high: int) -> None:
    """Puts a gap among others that are in order; it is one with its neighbours."""
    first = last = bisect_left(gaps, (low, high))
    if first and gaps[first - 1][1] == low:
        first -= 1
        low = gaps[first][0]
    if last < len(gaps) and gaps[last][0] == high:
        high = gaps[last][1]
        last += 1
    gaps[first:last] = [(low, high)]


class Room:
    """Memory of a fixed size, such as that of a result, in which values lie while nobody else is there."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._there: list[tuple[int, int, int, int]] = []

    def take(self, span: tuple[int, int], nbytes: int) -> int | None:
        """Where a value begins that is there during a span; None where there is no room for it."""
        at, unit = 0, SCALAR if nbytes < ALIGNMENT else ALIGNMENT
        for low, high, first, last in sorted(self._there):
            if last < span[0] or span[1] < first or high <= at:
                continue
            if low - at >= nbytes:
                break
            at = -(-high // unit) * unit
        if at + nbytes > self._nbytes:
            return None
        self._there.append((at, at + nbytes, *span))
        return at
