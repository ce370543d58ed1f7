"""Partial results of reductions that end with their nest: each chunk has its own, which one function joins at the end, in order.

`nest` sets a chunk's own to the identity before it begins; `total(table, scratch)` joins those of all chunks. Sums of floats are
kept in double.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from deepx_graph.runtime.kernels.program import Program, Shape, Step
from deepx_graph.runtime.native import spelling
from deepx_graph.runtime.native.sweeps.layout import DATA, Chunks, Layout, Unwritten, identity, partial_dtype, primitive_of
from deepx_graph.runtime.native.sweeps.nests import Nest, Nests
from deepx_graph.runtime.native.target import Target
from deepx_graph.runtime.native.text import DType, Text, Value


class Partials:
    """What the code of one nest knows, and the writing of its partial results."""

    def __init__(self, program: Program, nests: Nests, nest: Nest, layout: Layout, chunks: Chunks, machine: Target) -> None:
        self.program, self.nests, self.nest, self.layout, self.chunks = program, nests, nest, layout, chunks
        self.machine = machine
        self.dtypes = [r.dtype for r in program.registers]
        self.shapes: list[Shape] = [r.shape or (1,) for r in program.registers]
        self.constants = dict(program.constants)
        self.lanes = machine.register_bytes // max(4, min(8, self._widest()))
        self.t = Text(self.lanes, machine.register_bytes == 64)
        self.pointers: dict[int, str] = {}

    def _widest(self) -> int:
        steps = [s for stage in self.nest.stages for s in (*stage.steps, *stage.reductions)]
        used = {r for s in steps for r in (s.target, *s.sources)}
        return max((self.dtypes[r].itemsize for r in used), default=4)

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

    def _join(self, step: Step, dtype: DType) -> Callable[[Value, Value], Value]:
        assert step.reduction is not None
        write = spelling.spell(primitive_of(step.reduction.op), [dtype, dtype], dtype, self.machine)
        if write is None:
            raise Unwritten(f"a reduction of {dtype}")
        return lambda x, y: write(self.t, (x, y))

    def _clear(self, step: Step) -> None:
        """Sets partial results to the identity."""
        t, dtype, size = self.t, self._partial(step), self._size(step.target)
        start = t.splat(identity(step, dtype), dtype)
        pointer = self.pointers[~step.target]
        if size == 1:
            t.store_one(start, pointer)
            return

        def body(indices: Sequence[str], mask: str | None, _: Sequence[Value]) -> Sequence[Value]:
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

        def body(indices: Sequence[str], mask: str | None, _: Sequence[Value]) -> Sequence[Value]:
            for i in indices:
                total = t.load(t.address(source, i, partial), partial, mask)
                for k in range(1, self.chunks.count):
                    at = t.let(f"add i64 {i}, {k * size}")
                    total = join(total, t.load(t.address(source, at, partial), partial, mask))
                t.store(spelling.cast(t, total, dtype), t.address(target, i, dtype), mask)
            return ()

        t.sweep(str(size), 1, size % self.lanes != 0, (), body, ())
