"""The order of instructions between two jumps: what ends more memory than it makes runs as soon as it can.

A weight's gradient, say, is made when the last value it needs is there, which ends then, and not behind all the others. It is list
scheduling for the least memory (Goodman and Hsu, Code scheduling and register allocation in large basic blocks, 1988), starting
from the order that is given, which stays where another one does not lower the most that is there at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deepx_graph.runtime.bytecode import Instruction, Run, successors

MOST_TRIES = 4
"""Orders that are tried, each to keep below the most of the one before."""


@dataclass(frozen=True)
class StorageAccess:
    """The values that an instruction reads and makes, as numbers of storages, and the bytes its kernel has for itself."""

    read: frozenset[int]
    made: frozenset[int]
    scratch: int = 0


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
    best: Sequence[int] = range(len(block))
    limit = _most(block, best, memory)
    for _ in range(MOST_TRIES):
        found = _Block(block, memory, limit).scheduled()
        most = _most(block, found, memory)
        if most >= limit:
            break
        best, limit = found, most
    return best


class _Block:
    def __init__(self, block: Sequence[StorageAccess], memory: StorageBytes, limit: int) -> None:
        self.block, self.memory, self.limit = block, memory, limit
        self.readers: dict[int, set[int]] = {}
        """Of each storage, the instructions that are still to read it."""
        for k, access in enumerate(block):
            for s in access.read:
                self.readers.setdefault(s, set()).add(k)
        self.unmade = {s for access in block for s in access.made}
        self.alive = 0
        """Bytes that are there now beyond those before the block."""

    def scheduled(self) -> list[int]:
        """The given order, but that what ends more than it makes comes as soon as all that it reads is there, where less than the
        limit is there then."""
        order: list[int] = []
        done: set[int] = set()
        for first in range(len(self.block)):
            stack = [first]
            while stack:
                k = stack.pop()
                access = self.block[k]
                if k in done or not self.unmade.isdisjoint(access.read) or (k != first and self._there(k) >= self.limit):
                    continue
                done.add(k)
                order.append(k)
                self.alive += sum(self.memory.of(access.made)) - sum(self.memory.of(self._ended(k)))
                stack += self._after(access, k)
        return order

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
        """The bytes that are there while an instruction runs next."""
        return self.alive + _added(self.block[k], self.memory, self._ended(k))


def _added(access: StorageAccess, memory: StorageBytes, ended: Iterable[int]) -> int:
    """The bytes that an instruction has there beside what it finds: what it makes is taken to be written over what ends there and
    has its size."""
    made = memory.of(access.made)
    over = (Counter(made) & Counter(memory.of(ended))).elements()
    return sum(made) - sum(over) + access.scratch


def _most(block: Sequence[StorageAccess], order: Iterable[int], memory: StorageBytes) -> int:
    """The most bytes that are there at once, beyond those before the block."""
    order = list(order)
    last = {s: k for k in order for s in (*block[k].read, *block[k].made)}
    alive = most = 0
    for k in order:
        ended = [s for s in block[k].read | block[k].made if last[s] == k and not memory.kept >> s & 1]
        most = max(most, alive + _added(block[k], memory, ended))
        alive += sum(memory.of(block[k].made)) - sum(memory.of(ended))
    return most
