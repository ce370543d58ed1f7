"""The order of instructions between two jumps: what ends more memory than it makes runs as soon as it can.

A weight's gradient, say, is made when the last value it needs is there, which ends then, and not behind all the others. It is list
scheduling for the least memory (Goodman and Hsu, Code scheduling and register allocation in large basic blocks, 1988), starting
from the order that is given, which stays where another one does not lower the most that is there at once. What may be written over
an argument that is given away does not come before others that read the argument.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deepx_graph.lowering.bytecode import Instruction, Run, successors

MOST_TRIES = 4
"""Orders that are tried, each to keep below the most of the one before."""


@dataclass(frozen=True)
class StorageAccess:
    """The values that an instruction reads and makes, as numbers of storages, the bytes its kernel has for itself, and the
    arguments over which results may be written."""

    read: frozenset[int]
    made: frozenset[int]
    scratch: int = 0
    over: frozenset[int] = frozenset()


@dataclass(frozen=True)
class StorageBytes:
    """The bytes of each storage, 0 for what is no memory of ours; as bits those that are kept behind a block, and the results,
    whose memory is there from the start."""

    sizes: Sequence[int]
    kept: int
    results: int = 0

    def of(self, storages: Iterable[int]) -> list[int]:
        """The bytes of those that are no results."""
        return [self.sizes[s] for s in storages if not self.results >> s & 1]


def blocks(code: Sequence[Instruction]) -> list[range]:
    """The positions of runs that follow one another, and into whose middle nothing jumps."""
    entered = {to for at, i in enumerate(code) for to in successors(i, at) if to != at + 1}
    found: list[range] = []
    for at, i in enumerate(code):
        if not isinstance(i, Run):
            continue
        if found and found[-1].stop == at and at not in entered:
            found[-1] = range(found[-1].start, at + 1)
        else:
            found.append(range(at, at + 1))
    return found


def ordered(block: Sequence[StorageAccess], memory: StorageBytes) -> Sequence[int]:
    """The order of a block's instructions. Takes time linear in what is read and made."""
    order, most = _Block(block, memory).scheduled(-math.inf)
    for _ in range(MOST_TRIES):
        found, less = _Block(block, memory).scheduled(most)
        if less >= most:
            break
        order, most = found, less
    return order


class _Block:
    def __init__(self, block: Sequence[StorageAccess], memory: StorageBytes) -> None:
        self.block, self.memory = block, memory
        self.readers: dict[int, set[int]] = {}
        """Of each storage, the instructions that are still to read it."""
        for k, access in enumerate(block):
            for s in access.read:
                self.readers.setdefault(s, set()).add(k)
        self.unmade = {s for access in block for s in access.made}
        self.alive = 0
        """Bytes that are there now beyond those before the block."""

    def scheduled(self, limit: float) -> tuple[list[int], int]:
        """The given order, but that what ends more than it makes comes as soon as all that it reads is there, where less than the
        limit is there then; and the most bytes that are there at once, beyond those before the block."""
        order, most = dict[int, None](), 0
        for first in range(len(self.block)):
            stack = [first]
            while stack:
                k = stack.pop()
                access = self.block[k]
                if k in order or not self.unmade.isdisjoint(access.read) or (k != first and not self._may_be_early(k, limit)):
                    continue
                order[k], most = None, max(most, self._there(k))
                lasting = (s for s in access.made if s in self.readers or self.memory.kept >> s & 1)
                self.alive += sum(self.memory.of(lasting)) - sum(self.memory.of(self._ended(k)))
                stack += self._after(access, k)
        return list(order), most

    def _may_be_early(self, k: int, limit: float) -> bool:
        """Whether an instruction may run now, and not only where it is given: within the limit, and without an argument that others
        are still to read lost to be written over."""
        return self._there(k) < limit and all(self.readers[s] == {k} for s in self.block[k].over)

    def _after(self, access: StorageAccess, k: int) -> list[int]:
        """What an instruction that is done now lets run with a gain, the first of them last."""
        self.unmade -= access.made
        for s in access.read:
            self.readers[s].discard(k)
        asked = {r for s in access.made for r in self.readers.get(s, ())}
        asked |= {r for s in access.read if len(self.readers[s]) == 1 for r in self.readers[s]}
        return sorted((r for r in asked if self._gain(r) > 0), reverse=True)

    def _ended(self, k: int) -> list[int]:
        """What nobody reads behind an instruction."""
        return [s for s in self.block[k].read if self.readers[s] == {k} and not self.memory.kept >> s & 1]

    def _gain(self, k: int) -> int:
        """The bytes that end with an instruction, less those that it makes, be they results."""
        return sum(self.memory.sizes[s] for s in self._ended(k)) - sum(self.memory.sizes[s] for s in self.block[k].made)

    def _there(self, k: int) -> int:
        """The bytes that are there while an instruction runs next: what it makes is taken to be written over what ends there and
        has its size."""
        made = self.memory.of(self.block[k].made)
        over = (Counter(made) & Counter(self.memory.of(self._ended(k)))).elements()
        return self.alive + sum(made) - sum(over) + self.block[k].scratch
