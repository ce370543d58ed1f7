"""Loop nests of a program: which step runs in which nest and stage, what is stored or computed again, and where values are.

A nest is a loop over some outer axes; a stage is one inner loop along the last axis. A reduction of the last axis ends its stage,
a reduction of an outer axis its nest. A program of one axis is cut into strips. A value wanted in a later position is stored, or
computed again where that is cheaper. Plans are plain data; nothing is emitted here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deepx_graph.ir import Op, scalar_expr
from deepx_graph.ir.peephole import primitive_of
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels.program import KernelProgram, Register, Shape, Step
from deepx_graph.runtime.native.llvm.builder import F4, F8, DType
from deepx_graph.runtime.native.machine_kernel import Layout
from deepx_graph.types import dtype_of

STRIP = 4096
"""Elements of a strip: what a float sum adds up in one precision before it goes on in double."""

ALIGNED_STRIPS = 8
"""Programs of fewer strips begin where their results do."""

ROWS_BYTES = 24 << 10
"""What is kept of rows done together may take so much of the first-level cache."""

CHEAP, CHEAP_LEAVES = 6, 2
"""A value of at most this price, made of at most so many arrays, is computed again instead of being stored and loaded."""

SLOW = frozenset(name for name, price in scalar_expr.PRICES.items() if price >= scalar_expr.FUNCTION_PRICE)

NestPosition = tuple[int, int]
"""Nest and stage."""


def price(step: Step) -> int:
    """What a step costs an element, in additions."""
    return scalar_expr.price(step.primitive)


@dataclass
class NestStage:
    """One inner loop and what is done once a row before it; all lists are in the order of the program.

    `row_*` are of values that are the same along the whole row. `reductions` end with the loop.
    """

    row_loads: list[int] = field(default_factory=list)
    row_steps: list[Step] = field(default_factory=list)
    row_stores: list[int] = field(default_factory=list)
    row_reductions: list[Step] = field(default_factory=list)
    loads: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    stores: list[int] = field(default_factory=list)
    reductions: list[Step] = field(default_factory=list)

    @property
    def loops(self) -> bool:
        """Whether there is anything to do along the row."""
        return bool(self.steps or self.stores or self.reductions)


@dataclass
class Nest:
    """A loop over the axes of `key` (those that are not the inner axis), in row-major order."""

    key: tuple[int, ...]
    stages: list[NestStage] = field(default_factory=list)


@dataclass(frozen=True)
class Nests:
    """All of a program. `stored` are registers in memory of their whole shape; `rows` those kept for one row at a time."""

    space: Shape
    nests: tuple[Nest, ...]
    stored: frozenset[int]
    rows: frozenset[int]
    crossing: frozenset[int]
    """Targets of reductions that end with their nest."""

    @property
    def in_strips(self) -> bool:
        return len(self.space) == 1

    @property
    def inner(self) -> int:
        return len(self.space) - 1

    def count(self, nest: Nest) -> int:
        """How many rows a nest has."""
        if self.in_strips:
            return -(-self.space[0] // STRIP) + self.begins_on_line(nest) if nest.key else 1
        return math.prod(self.space[k] for k in nest.key)

    def begins_on_line(self, nest: Nest) -> bool:
        """Whether the first strip is cut short so that the others begin where a cache line of the result does.

        A sum must not depend on where its operands lie, and in few strips nothing is gained.
        """
        sums = any(stage.reductions or stage.row_reductions for stage in nest.stages)
        return self.in_strips and bool(nest.key) and self.space[0] >= ALIGNED_STRIPS * STRIP and not sums

    def width(self, nest: Nest) -> int:
        """The length of a row; of the longest strip."""
        return min(self.space[0], STRIP) if self.in_strips and nest.key else 1 if self.in_strips else self.space[-1]


def arrange(program: KernelProgram) -> Nests:
    """The nests of a program. Takes time linear in its steps, apart from what is computed again."""
    return _Arranging(program).run()


class _Arranging:
    def __init__(self, program: KernelProgram) -> None:
        self.program = program
        self.space = program.space or (1,)
        self.shapes = [r.shape or (1,) for r in program.registers]
        self.strips = len(self.space) == 1
        scratch = {s.target for s in program.steps if s.primitive == "scratch"}
        steps = (replace(s, sources=tuple(r for r in s.sources if r not in scratch)) for s in program.steps)
        self.maker = {s.target: s for s in steps if s.target not in scratch}
        self.home: dict[int, NestPosition] = {}
        self.ready: dict[int, NestPosition] = {}
        """The first position where a value can be read."""
        self.keys: list[tuple[int, ...]] = []
        self.prices: dict[int, int] = {}
        self.leaves: dict[int, frozenset[int]] = {}
        self.stored = set(program.results)
        self.rows: set[int] = set()
        self.crossing: set[int] = set()
        self.stages: dict[NestPosition, NestStage] = {}

    def run(self) -> Nests:
        for step in self.maker.values():
            self._settle(step)
        self._demand()
        nests = tuple(Nest(key, self._stages_of(k)) for k, key in enumerate(self.keys))
        return Nests(self.space, nests, frozenset(self.stored), frozenset(self.rows - self.stored), frozenset(self.crossing))

    # --- positions

    def _varies(self, register: int) -> bool:
        """Along the row."""
        return self.shapes[register][-1] > 1

    def _settle(self, step: Step) -> None:
        shape = tuple(map(max, zip(*(self.shapes[s] for s in (*step.sources, step.target)), strict=True)))
        outer = range(1) if self.strips else range(len(self.space) - 1)
        key = tuple(k for k in outer if shape[k] > 1)
        least = max((self.ready[s][0] + (self.keys[self.ready[s][0]] != key if self.ready[s][0] < len(self.keys) else 0)
                     for s in step.sources if s in self.ready), default=0)
        nest = next((k for k in range(least, len(self.keys)) if self.keys[k] == key), len(self.keys))
        if nest == len(self.keys):
            self.keys.append(key)
        stage = max((self.ready[s][1] for s in step.sources if s in self.ready and self.ready[s][0] == nest), default=0)
        self.home[step.target] = self.ready[step.target] = (nest, stage)
        if step.reduction is not None:
            crosses = self.strips or any(k in key for k in step.reduction.axes)
            self.ready[step.target] = (nest + 1, 0) if crosses else (nest, stage + 1)
            if crosses:
                self.crossing.add(step.target)
                self.stored.add(step.target)
        self._price(step)

    def _price(self, step: Step) -> None:
        if not self._varies(step.target) and not self.strips:  # at hand for the whole row
            self.prices[step.target], self.leaves[step.target] = 0, frozenset()
            return
        leaves = frozenset().union(*(self.leaves.get(s, frozenset((s,))) for s in step.sources))
        total = price(step) + sum(self.prices.get(s, 0) for s in step.sources)
        never = step.reduction is not None or len(leaves) > CHEAP_LEAVES or total > CHEAP
        self.prices[step.target] = CHEAP + 1 if never else total
        self.leaves[step.target] = frozenset((step.target,)) if never else leaves

    # --- what is needed where, from the last position to the first

    def _demand(self) -> None:
        roots: dict[NestPosition, set[int]] = {}
        for r in self.program.results:
            roots.setdefault(self.home[r], set()).add(r)
        while roots:
            position = max(roots)
            stage, wanted = self._stage_at(position, roots.pop(position), roots)
            self._fill(position, stage, wanted)

    def _stage_at(self, position: NestPosition, roots: set[int],
                  all_roots: dict[NestPosition, set[int]]) -> tuple[set[int], set[int]]:
        """The registers computed and those loaded at a position; adds what earlier positions must make to the roots."""
        computed, loaded = set(roots), set()
        stack = [s for r in roots for s in self.maker[r].sources]
        while stack:
            r = stack.pop()
            if r in computed or r in loaded:
                continue
            if r not in self.maker or r in self.crossing:
                loaded.add(r)
                if r in self.maker:
                    all_roots.setdefault(self.home[r], set()).add(r)
            elif self.home[r] == position == self.ready[r] or self._is_cheap(r):
                computed.add(r)
                stack += self.maker[r].sources
            else:
                loaded.add(r)
                all_roots.setdefault(self.home[r], set()).add(r)
                if self.home[r][0] != position[0]:
                    self.stored.add(r)
                elif self._varies(r):
                    self.rows.add(r)
        return computed, loaded

    def _is_cheap(self, register: int) -> bool:
        """Whether a value is computed again wherever it is wanted."""
        return self._varies(register) and self.prices[register] <= CHEAP and register not in self.stored

    def _fill(self, position: NestPosition, computed: set[int], loaded: set[int]) -> None:
        stage = self.stages.setdefault(position, NestStage())
        for r in sorted(loaded):
            if self._varies(r):
                stage.loads.append(r)
            elif r not in self.home or self.home[r][0] != position[0] or r in self.crossing:
                stage.row_loads.append(r)
        for step in self.maker.values():
            if step.target not in computed:
                continue
            along = self._varies(step.target)
            if step.reduction is not None:
                (stage.reductions if self._varies(step.sources[0]) else stage.row_reductions).append(step)
            else:
                (stage.steps if along else stage.row_steps).append(step)
            kept = step.target in self.stored or step.target in self.rows
            if kept and self.home[step.target] == position and step.target not in self.crossing:
                (stage.stores if along else stage.row_stores).append(step.target)

    def _stages_of(self, nest: int) -> list[NestStage]:
        positions: Iterable[NestPosition] = sorted(p for p in self.stages if p[0] == nest)
        return [self.stages[p] for p in positions]


def sums_columns(nests: Nests, nest: Nest) -> bool:
    """Whether a reduction of the nest goes over rows, with a result for each position in a row."""
    steps = [s for stage in nest.stages for s in (*stage.reductions, *stage.row_reductions)]
    return any(s.reduction is not None and nests.inner not in s.reduction.axes for s in steps)


def together(nests: Nests, nest: Nest) -> int:
    """How many rows are done side by side: the ends of their sums then overlap, and sums over rows take fewer steps."""
    if nests.in_strips or not nest.key:
        return 1
    any_sums = any(stage.reductions or stage.row_reductions for stage in nest.stages)
    most = 4 if sums_columns(nests, nest) else 2 if any_sums else 1
    kept = sum(len(stage.stores) for stage in nest.stages[:-1]) * 8 * nests.space[-1]
    while most > 1 and (most > nests.count(nest) or most * kept > ROWS_BYTES):
        most //= 2
    return most


def prefetches(nest: Nest, out_of_cache: bool) -> NestStage | None:
    """The stage during which the next rows can come from memory: of those after the first the one with the most work.

    A single stage reads as it goes, which a processor foresees by itself in a cache, but not from memory across so many rows.
    """
    found = [stage for stage in nest.stages[1:] if stage.loops] or [stage for stage in nest.stages if stage.loops and out_of_cache]
    return max(found, key=lambda stage: sum(map(price, stage.steps)), default=None)


def unrolled(nests: Nests, nest: Nest, stage: NestStage, lanes: int) -> int:
    """How many vectors of each row are computed side by side: enough to fill the time that each takes, few enough for registers."""
    work, width = sum(map(price, stage.steps)), nests.width(nest)
    slow = any(s.primitive in SLOW for s in stage.steps)
    most = max(1, (4 if work <= (30 if slow else 16) else 2) // together(nests, nest))
    while most > 1 and most * lanes > width:
        most //= 2
    return most


def registers_used(nest: Nest) -> Sequence[int]:
    """Every register that the nest reads from or writes to memory."""
    found: dict[int, None] = {}
    for stage in nest.stages:
        found |= dict.fromkeys((*stage.row_loads, *stage.loads, *stage.row_stores, *stage.stores))
    return tuple(found)


LONG_SUM = 16384
"""A float sum along a row longer than this is carried in double."""

_REDUCERS = ("add", "mul", "max", "min", "and", "or", "xor")


@dataclass(frozen=True)
class Chunks:
    """How a nest is shared out: so many chunks of as nearly as many rows as there can be, each a multiple of `step` rows."""

    count: int
    step: int = 1


def layout(program: KernelProgram, nests: Nests) -> Layout:
    """The slots and scratch offsets of a program's registers."""
    order = [leaf.register for leaf in program.leaves] + list(program.results)
    objects = len(order)
    arrays = [r for r, array in program.constants if array.size > 1]
    order += [r for r in (*arrays, *sorted(nests.stored)) if r not in order]
    slot: dict[int, int] = {}
    for k, r in enumerate(order):
        slot.setdefault(r, k)
    partial = {r: len(order) + k for k, r in enumerate(sorted(nests.crossing))}
    rows, offset = {}, 0
    for r in sorted(nests.rows):
        rows[r] = offset
        offset += -(-nests.space[-1] * program.registers[r].dtype.itemsize // 64) * 64
    most = max((together(nests, nest) for nest in nests.nests), default=1)
    return Layout(slot, partial, rows, offset, offset * most, objects, len(order) + len(partial))


def partial_dtype(dtype: DType, op: Op) -> DType:
    """What partial results are kept in: double for float sums."""
    return F8 if dtype == F4 and reducing_primitive(op) == "add" else dtype


def reducing_primitive(op: Op) -> str:
    """The kernel primitive by which a reduction joins two values. Raises Declined where that is none of the known ones."""
    name = primitive_of(op)
    if name not in _REDUCERS or op.monoid is None:
        raise Declined(f"no machine code for a reduction by {op.name}")
    return name


def identity(step: Step, dtype: DType) -> Any:
    """What a reduction starts from."""
    assert step.reduction is not None
    return step.reduction.op.identity_for(dtype_of(dtype))


LINE = 64

CACHE_BYTES = 64 << 20
"""A nest that reads and writes more than this leaves nothing of its results in the caches."""


def reference(program: KernelProgram, nests: Nests, nest: Nest) -> int | None:
    """The register on whose lines the strips of a nest begin; None where they begin with the arrays."""
    if not nests.begins_on_line(nest):
        return None
    stored = [r for stage in nest.stages for r in stage.stores if program.registers[r].dtype.itemsize >= 4]
    return stored[0] if stored else None


def is_out_of_cache(program: KernelProgram, nest: Nest) -> bool:
    """Whether a nest goes over more than the caches hold."""
    return sum(_bytes(program.registers[r]) for r in registers_used(nest)) >= CACHE_BYTES


def streamed(program: KernelProgram, nests: Nests, nest: Nest, lanes: int) -> tuple[int, ...]:
    """The results of a nest that go past the caches, if they and the vectors lie on the same lines."""
    if not is_out_of_cache(program, nest):
        return ()
    read = {r for n in nests.nests for stage in n.stages for r in stage.loads}
    return tuple(r for stage in nest.stages for r in stage.stores
                 if r in program.results and r not in read and _has_whole_lines(program.registers[r], nests, nest, lanes))


def _bytes(register: Register) -> int:
    return register.size * register.dtype.itemsize


def _has_whole_lines(register: Register, nests: Nests, nest: Nest, lanes: int) -> bool:
    """Whether the rows of an array that begins on a line all do, and its vectors are lines."""
    shape, size = register.shape, register.dtype.itemsize
    starts = [math.prod(shape[k + 1:]) * size for k in nest.key if shape[k] > 1] if not nests.in_strips else []
    return lanes * size % LINE == 0 and all(start % LINE == 0 for start in starts)
