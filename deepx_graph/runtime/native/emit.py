"""From loop nests to LLVM IR: one function for each nest, one that adds up its partial results, one that runs everything.

`nest(table, low, high, scratch, chunk)` does rows low..high; `table` holds the addresses of arrays in the order of `Layout`. Chunks
of one nest may run at once: they write different rows, and partial results of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.ir import Op
from deepx_graph.runtime.kernels.program import Program, Shape, Step
from deepx_graph.runtime.native import spelling
from deepx_graph.runtime.native.nests import SLOW, STRIP, Nest, Nests, Stage, price, registers_used
from deepx_graph.runtime.native.spelling import Write
from deepx_graph.runtime.native.target import Target
from deepx_graph.runtime.native.text import F4, F8, DType, Text, Value
from deepx_graph.types import dtype_of

LONG_SUM = 16384
"""A float sum along a row longer than this is carried in double."""

DATA = 16
"""Where an array object of CPython keeps the address of its elements; `kernel` checks it."""

_REDUCERS = ("add", "mul", "max", "min", "and", "or", "xor")


@dataclass(frozen=True)
class Layout:
    """The slots of a table: `objects` array objects (leaves, then results), then plain addresses of everything else."""

    slot: dict[int, int]
    """Of each register in memory."""
    partial: dict[int, int]
    """Of the partial results of each crossing reduction."""
    rows: dict[int, int]
    """Byte offsets in the scratch memory of a thread of the registers kept for one row."""
    scratch_bytes: int
    objects: int
    size: int


@dataclass(frozen=True)
class Chunks:
    """How a nest is shared out: so many chunks of so many rows."""

    count: int
    rows: int


class Unwritten(Exception):
    """The program has a step that is not written in machine code: says which."""


def layout(program: Program, nests: Nests) -> Layout:
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
    return Layout(slot, partial, rows, offset, objects, len(order) + len(partial))


def partial_dtype(dtype: DType, op: Op) -> DType:
    """What partial results are kept in: double for float sums."""
    return F8 if dtype == F4 and primitive_of(op) == "add" else dtype


def primitive_of(op: Op) -> str:
    """The kernel primitive by which a reduction joins two values. Raises Unwritten where it is none of the known ones."""
    tree = op.kernel() if op.kernel else None
    name = getattr(tree, "primitive", "")
    if name not in _REDUCERS or op.monoid is None:
        raise Unwritten(f"a reduction by {op.name}")
    return str(name)


def module_text(program: Program, nests: Nests, layout: Layout, chunks: Sequence[Chunks], machine: Target) -> str:
    """The IR of a whole kernel. Raises Unwritten."""
    functions, declarations = [], dict[str, None]()
    for k, nest in enumerate(nests.nests):
        emitter = _NestEmitter(program, nests, nest, layout, chunks[k], machine)
        functions.append(emitter.function(f"nest{k}"))
        functions.append(emitter.totals(f"total{k}"))
        functions.append(_worker(k, nests.count(nest), chunks[k]))
        declarations |= emitter.t.declarations
    functions.append(_whole(nests))
    return "\n".join([*functions, *declarations, ""])


def _worker(nest: int, rows: int, chunks: Chunks) -> str:
    """What each thread runs: it takes the next chunk from a counter until there are none."""
    return f"""define void @work{nest}(ptr %table, ptr %counter, ptr %scratch) nounwind {{
entry:
  br label %next
next:
  %chunk = atomicrmw add ptr %counter, i64 1 monotonic
  %some = icmp slt i64 %chunk, {chunks.count}
  br i1 %some, label %take, label %done
take:
  %low = mul i64 %chunk, {chunks.rows}
  %end = add i64 %low, {chunks.rows}
  %last = icmp sgt i64 %end, {rows}
  %high = select i1 %last, i64 {rows}, i64 %end
  call void @nest{nest}(ptr %table, i64 %low, i64 %high, ptr %scratch, i64 %chunk)
  br label %next
done:
  ret void
}}"""


def _whole(nests: Nests) -> str:
    lines = ["define void @whole(ptr %table, ptr %scratch) nounwind {"]
    for k, nest in enumerate(nests.nests):
        lines.append(f"  call void @nest{k}(ptr %table, i64 0, i64 {nests.count(nest)}, ptr %scratch, i64 0)")
        lines.append(f"  call void @total{k}(ptr %table, ptr %scratch)")
    return "\n".join([*lines, "  ret void", "}"])


class _NestEmitter:
    """Writes the functions of one nest."""

    def __init__(self, program: Program, nests: Nests, nest: Nest, layout: Layout, chunks: Chunks, machine: Target) -> None:
        self.program, self.nests, self.nest, self.layout, self.chunks = program, nests, nest, layout, chunks
        self.machine = machine
        self.dtypes = [r.dtype for r in program.registers]
        self.shapes: list[Shape] = [r.shape or (1,) for r in program.registers]
        self.constants = dict(program.constants)
        self.lanes = machine.register_bytes // max(4, min(8, self._widest()))
        self.t = Text(self.lanes, machine.register_bytes == 64)
        self.pointers: dict[int, str] = {}
        self.row_values: dict[int, Value] = {}
        self.bases: dict[int, str] = {}

    def _widest(self) -> int:
        steps = [s for stage in self.nest.stages for s in (*stage.steps, *stage.reductions)]
        used = {r for s in steps for r in (s.target, *s.sources)}
        return max((self.dtypes[r].itemsize for r in used), default=4)

    # --- functions

    def function(self, name: str) -> str:
        t = self.t
        self._load_pointers()
        crossing = [s for stage in self.nest.stages for s in (*stage.reductions, *stage.row_reductions)
                    if s.target in self.nests.crossing]
        for step in crossing:
            self._clear(step)
        t.rows("%low", "%high", self._row)
        params = "ptr noalias %table, i64 %low, i64 %high, ptr noalias %scratch, i64 %chunk"
        head = f"define void @{name}({params}) nounwind \"stackrealign\" {{"
        return "\n".join([head, "entry:", *t.lines, "  ret void", "}"])

    def _load_pointers(self) -> None:
        t, layout = self.t, self.layout
        for r in registers_used(self.nest):
            if r in layout.slot:
                self.pointers[r] = self._entry(t, layout.slot[r])
        for stage in self.nest.stages:
            for step in (*stage.reductions, *stage.row_reductions):
                if step.target in self.nests.crossing:
                    self.pointers[~step.target] = self._chunk_of(step)

    def _entry(self, t: Text, slot: int) -> str:
        at = t.let(f"getelementptr ptr, ptr %table, i64 {slot}")
        pointer = t.let(f"load ptr, ptr {at}")
        if slot < self.layout.objects:
            inside = t.let(f"getelementptr i8, ptr {pointer}, i64 {DATA}")
            pointer = t.let(f"load ptr, ptr {inside}")
        return pointer

    def _chunk_of(self, step: Step) -> str:
        """The address of this chunk's partial results."""
        start = self.t.let(f"mul i64 %chunk, {self._size(step.target)}")
        return self.t.address(self._entry(self.t, self.layout.partial[step.target]), start, self._partial(step))

    def _size(self, register: int) -> int:
        return math.prod(self.shapes[register])

    def _partial(self, step: Step) -> DType:
        assert step.reduction is not None
        return partial_dtype(self.dtypes[step.target], step.reduction.op)

    def _clear(self, step: Step) -> None:
        """Sets partial results to the identity."""
        t, dtype, size = self.t, self._partial(step), self._size(step.target)
        start = t.splat(identity(step, dtype), dtype)
        pointer = self.pointers[~step.target]
        if size == 1:
            t.store_one(start, pointer)
            return

        def body(indices: Sequence[str], mask: str | None, _: Sequence[Sequence[Value]]) -> Sequence[Sequence[Value]]:
            for i in indices:
                t.store(start, t.address(pointer, i, dtype), mask)
            return ()

        t.sweep(str(size), 1, size % self.lanes != 0, (), body, ())

    def totals(self, name: str) -> str:
        """The function that joins the partial results of all chunks, in order."""
        own, self.t = self.t, Text(self.lanes)
        for stage in self.nest.stages:
            for step in (*stage.reductions, *stage.row_reductions):
                if step.target in self.nests.crossing:
                    self._total(step)
        lines, own.declarations = self.t.lines, own.declarations | self.t.declarations
        self.t = own
        head = f"define void @{name}(ptr noalias %table, ptr noalias %scratch) nounwind {{"
        return "\n".join([head, "entry:", *lines, "  ret void", "}"])

    def _total(self, step: Step) -> None:
        t, dtype, partial, size = self.t, self.dtypes[step.target], self._partial(step), self._size(step.target)
        source, target = self._entry(t, self.layout.partial[step.target]), self._entry(t, self.layout.slot[step.target])
        join = self._join(step, partial)

        def body(indices: Sequence[str], mask: str | None, _: Sequence[Sequence[Value]]) -> Sequence[Sequence[Value]]:
            for i in indices:
                total = t.load(t.address(source, i, partial), partial, mask)
                for k in range(1, self.chunks.count):
                    at = t.let(f"add i64 {i}, {k * size}")
                    total = join(total, t.load(t.address(source, at, partial), partial, mask))
                t.store(spelling.cast(t, total, dtype), t.address(target, i, dtype), mask)
            return ()

        t.sweep(str(size), 1, size % self.lanes != 0, (), body, ())

    # --- rows

    def _row(self, row: str) -> None:
        self.row_values, self.bases = {}, {}
        indices = self._indices(row)
        for r in registers_used(self.nest):
            if r in self.pointers:
                self.bases[r] = self._base(r, indices, row)
        for r, offset in self.layout.rows.items():
            self.bases[r] = self.t.let(f"getelementptr i8, ptr %scratch, i64 {offset}")
        for stage in self.nest.stages:
            self._stage(stage, indices, row)

    def _indices(self, row: str) -> dict[int, str]:
        """The index along each axis of the nest, from the number of the row."""
        key, space = self.nest.key, self.nests.space
        if self.nests.in_strips or not key:
            return dict.fromkeys(key, row)
        found, rest = {}, row
        for k in reversed(key[1:]):
            found[k] = self.t.let(f"urem i64 {rest}, {space[k]}")
            rest = self.t.let(f"udiv i64 {rest}, {space[k]}")
        found[key[0]] = rest
        return found

    def _base(self, register: int, indices: dict[int, str], row: str, pointer: str | None = None,
              dtype: DType | None = None) -> str:
        """The address of the register's first element in this row."""
        pointer = self.pointers[register] if pointer is None else pointer
        dtype = self.dtypes[register] if dtype is None else dtype
        shape, t = self.shapes[register], self.t
        if self.nests.in_strips:
            if shape[0] == 1 or not self.nest.key:
                return pointer
            return t.address(pointer, t.let(f"mul i64 {row}, {STRIP}"), dtype)
        offset = None
        for k, index in indices.items():
            if shape[k] > 1:
                part = t.let(f"mul i64 {index}, {math.prod(shape[k + 1:])}")
                offset = part if offset is None else t.let(f"add i64 {offset}, {part}")
        return pointer if offset is None else t.address(pointer, offset, dtype)

    def _length(self, row: str) -> str:
        """How many elements this row has."""
        size, width = self.nests.space[-1], self.nests.width(self.nest)
        if not self.nests.in_strips or size % width == 0:
            return str(width)
        rest = self.t.let(f"sub i64 {size}, {self.bases_start(row)}")
        less = self.t.let(f"icmp slt i64 {rest}, {width}")
        return self.t.let(f"select i1 {less}, i64 {rest}, i64 {width}")

    def bases_start(self, row: str) -> str:
        """The index of the first element of a strip."""
        return self.t.let(f"mul i64 {row}, {STRIP}")

    def _stage(self, stage: Stage, indices: dict[int, str], row: str) -> None:
        t, values = self.t, self.row_values
        for r in stage.row_loads:
            array = self.constants.get(r)
            values[r] = t.splat(array.flat[0], self.dtypes[r]) if array is not None and array.size == 1 else t.load_one(
                self.bases[r], self.dtypes[r])
        for step in stage.row_steps:
            values[step.target] = self._written(step)(t, self._operands(step, values))
        for r in stage.row_stores:
            t.store_one(values[r], self.bases[r])
        for step in stage.row_reductions:
            self._add_to(step, values[step.sources[0]], indices, row)
        if stage.loops:
            self._inner(stage, indices, row)

    def _operands(self, step: Step, values: dict[int, Value]) -> list[Value]:
        return [values[s] for s in step.sources]

    def _written(self, step: Step) -> Write:
        found = spelling.spell(step.primitive, [self.dtypes[s] for s in step.sources], self.dtypes[step.target], self.machine)
        if found is None:
            raise Unwritten(f"{step.primitive} of {self.dtypes[step.sources[0]]}")
        return found

    def _join(self, step: Step, dtype: DType) -> Callable[[Value, Value], Value]:
        assert step.reduction is not None
        write = spelling.spell(primitive_of(step.reduction.op), [dtype, dtype], dtype, self.machine)
        if write is None:
            raise Unwritten(f"a reduction of {dtype}")
        return lambda x, y: write(self.t, (x, y))

    # --- the inner loop

    def _inner(self, stage: Stage, indices: dict[int, str], row: str) -> None:
        t = self.t
        carried = [s for s in stage.reductions if self._along(s)]
        across = [s for s in stage.reductions if not self._along(s)]
        bases = {s.target: self._base(s.target, indices, row, self.pointers[~s.target], self._partial(s)) for s in across}
        types = [self._carried_dtype(s) for s in carried]
        starts = [t.splat(identity(s, d), d) for s, d in zip(carried, types, strict=True)]
        joins = [self._join(s, d) for s, d in zip(carried, types, strict=True)]

        def body(at: Sequence[str], mask: str | None, sums: Sequence[Sequence[Value]]) -> Sequence[Sequence[Value]]:
            lanes = [self._elements(stage, i, mask) for i in at]
            for s in across:
                for i, values in zip(at, lanes, strict=True):
                    self._add_along(s, values[s.sources[0]], t.address(bases[s.target], i, self._partial(s)), mask)
            return [[join(self._masked(spelling.cast(t, values[s.sources[0]], d), start, mask), old)
                     for values, old in zip(lanes, olds, strict=True)]
                    for s, d, start, join, olds in zip(carried, types, starts, joins, sums, strict=True)]

        width = self.nests.width(self.nest)
        has_tail = (self.nests.space[-1] if self.nests.in_strips else width) % self.lanes != 0
        totals = t.sweep(self._length(row), self._unroll(stage, width), has_tail, starts, body, joins)
        for s, total, join in zip(carried, totals, joins, strict=True):
            one = self._folded(total, join)
            if s.target in self.nests.crossing:
                self._add_to(s, one, indices, row)
            else:
                self.row_values[s.target] = spelling.cast(t, one, self.dtypes[s.target])

    def _along(self, step: Step) -> bool:
        assert step.reduction is not None
        return self.nests.inner in step.reduction.axes

    def _carried_dtype(self, step: Step) -> DType:
        assert step.reduction is not None
        dtype = self.dtypes[step.target]
        long = not self.nests.in_strips and self.nests.space[-1] > LONG_SUM
        return partial_dtype(dtype, step.reduction.op) if long else dtype

    def _unroll(self, stage: Stage, width: int) -> int:
        work = sum(map(price, stage.steps))
        if any(s.primitive in SLOW for s in stage.steps):
            most = 2 if work <= 100 else 1
        else:
            most = 4 if work <= 16 else 2 if work <= 48 else 1
        while most > 1 and most * self.lanes > width:
            most //= 2
        return most

    def _elements(self, stage: Stage, index: str, mask: str | None) -> dict[int, Value]:
        t, values = self.t, dict(self.row_values)
        for r in stage.loads:
            values[r] = t.load(t.address(self.bases[r], index, self.dtypes[r]), self.dtypes[r], mask)
        for step in stage.steps:
            values[step.target] = self._written(step)(t, self._operands(step, values))
        for r in stage.stores:
            t.store(values[r], t.address(self.bases[r], index, self.dtypes[r]), mask)
        return values

    def _masked(self, x: Value, start: Value, mask: str | None) -> Value:
        """x, with the identity in the lanes beyond the end."""
        return x if mask is None else self.t.select(Value(mask, np.dtype("?")), x, start)

    def _folded(self, x: Value, join: Callable[[Value, Value], Value]) -> Value:
        """All lanes joined, in every lane."""
        t, shift = self.t, self.lanes // 2
        while shift:
            order = ", ".join(f"i32 {(k + shift) % self.lanes}" for k in range(self.lanes))
            type = t.vector(x.dtype)
            x = join(x, t.value(f"shufflevector {type} {x.text}, {type} poison, <{self.lanes} x i32> <{order}>", x.dtype))
            shift //= 2
        return x

    # --- partial results in memory

    def _add_to(self, step: Step, x: Value, indices: dict[int, str], row: str) -> None:
        """Joins one value with the partial result of this row."""
        t, dtype = self.t, self._partial(step)
        at = self.pointers[~step.target]
        if not self.nests.in_strips:
            at = self._base(step.target, indices, row, at, dtype)
        old = t.load_one(at, dtype)
        t.store_one(self._join(step, dtype)(spelling.cast(t, x, dtype), old), at)

    def _add_along(self, step: Step, x: Value, at: str, mask: str | None) -> None:
        """Joins a vector with the partial results of its columns."""
        t, dtype = self.t, self._partial(step)
        t.store(self._join(step, dtype)(spelling.cast(t, x, dtype), t.load(at, dtype, mask)), at, mask)


def identity(step: Step, dtype: DType) -> Any:
    """What a reduction starts from."""
    assert step.reduction is not None
    return step.reduction.op.identity_for(dtype_of(dtype))
