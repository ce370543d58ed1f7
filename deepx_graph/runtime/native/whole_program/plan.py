"""What one machine function does from end to end: instructions, storages, and what each instruction does to them.

Plans are plain data; nothing is emitted here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.literal import Array
from deepx_graph.runtime.bytecode import Code, Pack, Return, Run
from deepx_graph.runtime.kernels.memory import ALIGNMENT
from deepx_graph.runtime.native.machine_kernel import MachineKernel

MachineOf = Callable[[Node], MachineKernel | None]
Tree = int | tuple["Tree", ...]
"""The storage of a tensor; of a tuple those of its items."""


@dataclass(frozen=True)
class Storage:
    """Memory for the elements of one tensor. `array` are those of a constant, `param` the number of an argument."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    param: int | None = None
    array: Array | None = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_owned(self) -> bool:
        return self.param is None and self.array is None


@dataclass(frozen=True)
class Called:
    """Run a kernel on storages: arguments in the order of its table, then results."""

    kernel: MachineKernel
    objects: tuple[int, ...]

    def may_write(self, result: int, argument: int) -> bool:
        """Whether the kernel may write a result over an argument, if it reads that at all."""
        count = len(self.kernel.params)
        read = {number for number, k in zip(self.kernel.params, self.objects, strict=False) if k == argument}
        return read <= self.kernel.in_place[self.objects.index(result, count) - count]


@dataclass(frozen=True)
class Copied:
    """Copy pieces of memory: `(from byte, to byte, bytes)`."""

    source: int
    target: int
    runs: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Index:
    """A scalar that says where: clamped to 0..most, in steps of `stride` bytes."""

    storage: int
    most: int
    stride: int


@dataclass(frozen=True)
class RowCopy:
    """Copy `nbytes` from a computed offset of a storage (`reads`), or to one."""

    source: int
    target: int
    at: tuple[Index, ...]
    nbytes: int
    reads: bool


@dataclass(frozen=True)
class Swapped:
    """Two storages exchange buffers."""

    one: int
    other: int


@dataclass(frozen=True)
class Invoked:
    """Go on in a function of the plan, which reads the arguments and writes the results, and come back."""

    function: int
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    node: Node


Action = Called | Copied | RowCopy | Swapped | Invoked


@dataclass(frozen=True)
class CalledFunction:
    """A function that is called: its positions from `start` to below `stop`, its storages from `low` to below `high`."""

    name: str
    start: int
    stop: int
    low: int
    high: int
    params: tuple[int, ...]
    results: tuple[int, ...]
    is_recursive: bool


@dataclass
class ProgramPlan:
    """`actions[at]` is what the instruction of the code at that position does before control goes on."""

    code: Code
    storages: list[Storage] = field(default_factory=list)
    actions: list[list[Action]] = field(default_factory=list)
    tested: dict[int, int] = field(default_factory=dict)
    """The storage that the test or selector at a position looks at."""
    results: tuple[int, ...] = ()
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Of each storage the first and the last position where it is alive, or written."""
    same: dict[int, int] = field(default_factory=dict)
    """Of storages in code where no buffers change hands those that end where they begin, and give them their buffers."""
    inside: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Of storages that lie within another from the start, in code where no buffers change hands, which one and at which byte."""
    functions: list[CalledFunction] = field(default_factory=list)

    @property
    def direct(self) -> dict[int, int]:
        """The storages that lie in results from the start, with the numbers of these, in code where no buffers change hands."""
        if self.functions or self.swaps or not all(isinstance(i, (Run, Pack, Return)) for i in self.code.instructions):
            return {}
        found = {s: k for k, s in enumerate(self.results) if self.storages[s].is_owned and self.results.count(s) == 1}
        composed = {whole for whole, _ in self.inside.values()}
        for s, before in reversed(self.same.items()):  # the last ones first
            if s in found and before not in composed:
                found[before] = found[s]
        return found

    @property
    def swaps(self) -> bool:
        """Whether some storages exchange buffers."""
        return any(isinstance(a, Swapped) for actions in self.actions for a in actions)

    @property
    def in_place(self) -> tuple[frozenset[int], ...]:
        """For each result, the arguments of its type that nobody reads once it is written to, but who may write over them."""
        params, first = [(s.param, k) for k, s in enumerate(self.storages) if s.param is not None], dict[int, int]()
        for storage, number in self.direct.items():
            first[number] = min(storage, first.get(number, storage), key=lambda s: self.spans[s][0])
        return tuple(frozenset(p for p, k in params if r in first and self._may_lie_over(first[r], k))
                     for r in range(len(self.results)))

    def _may_lie_over(self, result: int, param: int) -> bool:
        made, given = self.storages[result], self.storages[param]
        first, last = self.spans[result][0], self.spans[param][1]
        if (made.dtype, made.shape) != (given.dtype, given.shape) or last > first:
            return False
        return last < first or all(isinstance(a, Called) and a.may_write(result, param) for a in self.actions[first])

    def buffers(self) -> tuple[list[int], int]:
        """Where the buffer of each storage begins in the memory of the body (of a recursive function: of an activation), and the
        size of the body's. Storages that exchange buffers have theirs to the end."""
        swapped = {s for actions in self.actions for a in actions if isinstance(a, Swapped) for s in (a.one, a.other)}
        whole, direct = (0, len(self.code.instructions)), self.direct
        spans = [whole if k in swapped else span for k, span in enumerate(self.spans)]
        placed = {*direct, *self.same, *self.inside}
        sizes = [s.nbytes if s.is_owned and k not in placed else 0 for k, s in enumerate(self.storages)]
        for k, before in reversed(self.same.items()):
            spans[before] = spans[before][0], spans[k][1]
        for k, (around, _) in self.inside.items():  # the inner ones first
            spans[around] = min(spans[k][0], spans[around][0]), spans[around][1]
        own = self.functions[0].low if self.functions else len(sizes)
        offsets, end = packed(spans[:own], sizes[:own])
        for f in self.functions:
            inner, size = packed(spans[f.low : f.high], sizes[f.low : f.high])
            offsets += inner if f.is_recursive else [end + offset for offset in inner]
            end += 0 if f.is_recursive else size
        for k, before in self.same.items():
            offsets[k] = offsets[before]
        for k, (around, start) in reversed(self.inside.items()):
            offsets[k] = offsets[around] + start
        return offsets, end


def packed(spans: Sequence[tuple[int, int]], sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where buffers of those sizes begin in one piece of memory, and its size: two lie apart where their spans share a position.

    Each takes the smallest gap that is wide enough when its span begins. Takes time linear in the buffers and the gaps.
    """
    offsets, end = [0] * len(sizes), 0
    gaps = list[tuple[int, int]]()
    busy = list[tuple[int, int, int]]()
    for k in sorted((k for k, n in enumerate(sizes) if n), key=lambda k: spans[k][0]):
        size = -(-sizes[k] // ALIGNMENT) * ALIGNMENT
        while busy and busy[0][0] < spans[k][0]:
            _, low, high = heappop(busy)
            gaps = _with_gap(gaps, low, high)
        if gaps and gaps[-1][1] == end and all(high - low < size for low, high in gaps):
            end = gaps.pop()[0]  # the last gap grows
        low, high = min((g for g in gaps if g[1] - g[0] >= size), key=lambda g: g[1] - g[0], default=(end, end))
        offsets[k] = low
        if low == high:
            end = low + size
        else:
            gaps = [g for g in gaps if g != (low, high)]
            gaps = _with_gap(gaps, low + size, high)
        heappush(busy, (spans[k][1], low, low + size))
    return offsets, end


def _with_gap(gaps: Sequence[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
    """Gaps in order with one more, which is one with its neighbours."""
    found = [g for g in gaps if g[1] != low and g[0] != high]
    low, high = min([low, *(g[0] for g in gaps if g[1] == low)]), max([high, *(g[1] for g in gaps if g[0] == high)])
    return sorted([*found, (low, high)]) if low < high else list(gaps)
