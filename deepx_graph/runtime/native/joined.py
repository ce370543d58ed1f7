"""A product or a convolution, perhaps with its epilogue, as one kernel: where its functions find what they read in a table.

The table of a call has array objects: those of the operation's parameters, of the epilogue's, of the result; then the
epilogue's function, if there is one, and the addresses of constants and of memory of the call. The epilogue's own table is made of
some of these words on the stack.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.ir.structure import PARAM, value_of
from deepx_graph.rewrite.epilogue import WithEpilogue
from deepx_graph.runtime.array_type import ArrayType
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.call_image import ImageWriter, MemoryOffset
from deepx_graph.runtime.native.dispatch import TableSlot
from deepx_graph.runtime.native.llvm.builder import IRBuilder
from deepx_graph.runtime.native.llvm.machine_code import FunctionReference
from deepx_graph.runtime.native.loop_program.epilogue import Epilogue
from deepx_graph.runtime.native.machine_kernel import MachineKernel

KEPT_BYTES = 1 << 20
"""A workspace up to this size is kept from call to call."""


class JoinedOperands:
    """The slots and the constants of an operation on arguments and arrays, and of an epilogue, which reads the arguments `others`,
    too, and has no memory of its own."""

    def __init__(self, operands: Sequence[int | Array], others: Sequence[int] = (), then: Epilogue | None = None) -> None:
        given = [o for o in operands if isinstance(o, int)]
        self.params, number = (*given, *others), len(given) + len(others)
        self.constants = [o for o in operands if not isinstance(o, int)]
        self.first = number + 1 + (then is not None)
        """The slot of the first constant."""
        objects, arrays = iter(range(len(given))), iter(range(self.first, self.first + len(self.constants)))
        self.sources = [TableSlot(next(objects), True) if isinstance(o, int) else TableSlot(next(arrays)) for o in operands]
        """Where the operands of the operation are."""
        self.result = TableSlot(number, True)
        self.then = then
        self._table: list[int] = []
        if then is not None:
            read = [(number, *range(len(given), number))[p] for p in then.params]
            self._table = [*read, number, *(self.first + len(self.constants) + k for k in range(len(then.constants)))]
            self.constants += then.constants

    @staticmethod
    def of(function: Function, parts: WithEpilogue, then: Epilogue | None) -> JoinedOperands:
        """Those of a function taken apart."""
        inputs, params = parts.operands, function.params
        operands = [params.index(i) if i.op is PARAM else np.ascontiguousarray(value_of(i).array) for i in inputs]
        return JoinedOperands(operands, parts.params, then)

    @property
    def own(self) -> TableSlot:
        """Where memory of the call begins."""
        return TableSlot(self.first + len(self.constants))

    def epilogue(self, t: IRBuilder) -> tuple[str, str]:
        """The addresses of the epilogue and of its table, which is made now."""
        table = t.let(f"alloca [{len(self._table)} x i64]")
        for k, slot in enumerate(self._table):
            t.line(f"store i64 {t.word('%table', slot)}, ptr {t.behind(table, 8 * k)}")
        return t.word("%table", self.result.number + 1, "ptr"), table

    def finish(self, t: IRBuilder, epilogue: tuple[str, str], axes: Sequence[tuple[int, str, str]]) -> None:
        """Runs the epilogue on a part of the result while that is in a cache. Of each axis, from the outermost on and without those
        of one element: its size, the first element of the part, and how many there are."""
        assert self.then is not None
        columns = self.then.columns
        apart = next(k for k in range(len(axes) + 1) if math.prod(size for size, *_ in axes[k:]) == columns)
        rows, left, right = [*axes[:apart]] or [(1, "0", "1")], "0", str(columns)
        for size, first, count in axes[apart : apart + 1]:
            if count != str(size):
                step = columns // size
                left, right = (t.let(f"mul i64 {n}, {step}") for n in (first, t.let(f"add i64 {first}, {count}")))
        while len(rows) > 1 and rows[-1][2] == str(rows[-1][0]):  # whole ones number the rows together with those around
            (inner, *_), (size, first, count) = rows.pop(), rows.pop()
            rows.append((size * inner, t.let(f"mul i64 {first}, {inner}"), t.let(f"mul i64 {count}, {inner}")))

        def over(depth: int, before: str) -> None:
            size, first, count = rows[depth]
            low = t.let(f"add i64 {t.let(f'mul i64 {before}, {size}')}, {first}")
            high = t.let(f"add i64 {low}, {count}")
            if depth < len(rows) - 1:
                t.rows(low, high, lambda index: over(depth + 1, index))
                return
            t.line(f"call void {epilogue[0]}(ptr {epilogue[1]}, i64 {low}, i64 {high}, i64 {left}, i64 {right})")

        over(0, "0")


class JoinedKernel(MachineKernel):
    """The kernel of such operands: `called` as they say, one after the other."""

    def __init__(self, joined: JoinedOperands, result: ArrayType, called: Sequence[tuple[FunctionReference, int]], *,
                 scratch_bytes: int, predicted: ForecastParts, lowering: str, own_bytes: Sequence[int] = ()) -> None:
        self.params, self.results, self._joined = joined.params, (result,), joined
        self.in_place, self.lowering = (frozenset[int](),), lowering
        self.called, self.threads = tuple(called), max(1, *(threads for _, threads in called))
        self.nanoseconds, self._predicted = predicted.nanoseconds, predicted
        self.constants, self.own_bytes, self.scratch_bytes = tuple(joined.constants), tuple(own_bytes), scratch_bytes

    def write(self, writer: ImageWriter, objects: int, own: Sequence[MemoryOffset], scratch: int) -> None:
        """Puts the epilogue's function behind its objects, and then what all kernels have there."""
        if self._joined.then is not None:
            writer.function(writer.words(1), self._joined.then.function.address)
        super().write(writer, objects, own, scratch)

    @cached_property
    def is_kept(self) -> bool:
        """Packed operands are kept while they are of a size to stay in a cache: elsewhere a product takes a tenth longer."""
        return self.workspace_bytes <= KEPT_BYTES

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        return self._predicted
