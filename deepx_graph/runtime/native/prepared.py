"""Kernels whose machine functions take tables of their own.

A function of such a kernel takes shares of its work from a counter, and finds addresses and sizes in a table of its own, which is
part of the memory of a call. What is not known before a call, where its arrays are, instructions put there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.ir.structure import PARAM, value_of
from deepx_graph.runtime.array_type import ArrayType
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.engines.epilogue import WithEpilogue
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.call_image import ImageWriter, rounded
from deepx_graph.runtime.native.dispatch import Opcode
from deepx_graph.runtime.native.llvm.machine_code import FunctionReference
from deepx_graph.runtime.native.machine_kernel import MachineKernel

KEPT_BYTES = 1 << 20
"""A workspace up to this size is kept from call to call."""


class Base(Enum):
    """What an address is that of."""

    OBJECT = "an array object"
    ELEMENTS = "the elements of an array object"
    CONSTANT = "a constant"
    OWN = "memory of the call"


@dataclass(frozen=True)
class Address:
    """An address that a call knows: of the object, constant or memory of that number, and so many bytes behind it."""

    base: Base
    number: int
    offset: int = 0


Word = int | Address | FunctionReference | tuple["Word", ...]
"""What is in a table: a number, an address, that of a function, or the address of another table."""


@dataclass(frozen=True)
class PreparedStep:
    """A machine function `function(table, counter, scratch)` and its table; so many threads share its work."""

    function: FunctionReference
    table: tuple[Word, ...]
    threads: int


class PreparedKernel(MachineKernel):
    """Steps one after the other. Objects are numbered arguments first (`params`), then results; `kept` is what owns the code."""

    def __init__(self, params: Sequence[int], results: Sequence[ArrayType], steps: Sequence[PreparedStep], *, scratch_bytes: int,
                 predicted: ForecastParts, kept: Any, constants: Sequence[Array] = (), own_bytes: Sequence[int] = (),
                 lowering: str = "machine code") -> None:
        self.params, self.results, self._kept = tuple(params), tuple(results), kept
        self.in_place, self.lowering = (frozenset[int](),) * len(results), lowering
        self.threads = max(s.threads for s in steps)
        self.nanoseconds, self._predicted = predicted.nanoseconds, predicted
        self.constants, self.own_bytes, self.scratch_bytes = tuple(constants), tuple(own_bytes), scratch_bytes
        self._steps = steps

    @property
    def team(self) -> int:
        """As many as share a step."""
        return self.threads

    def write(self, writer: ImageWriter, objects: int, own: Sequence[int], scratch: int) -> None:
        """Puts its tables and instructions into an image."""
        for step in self._steps:
            table = self._table(writer, step.table, objects, own)
            writer.run(step.function.address, table, step.threads, (scratch, rounded(self.scratch_bytes)))

    def _table(self, writer: ImageWriter, words: Sequence[Word], objects: int, own: Sequence[int]) -> int:
        """Where a new table of those words is."""
        start = writer.words(len(words))
        for at, word in zip(range(start, start + 8 * len(words), 8), words, strict=True):
            match word:
                case tuple():
                    writer.point(at, self._table(writer, word, objects, own))
                case FunctionReference():
                    writer.function(at, word.address)
                case Address(Base.OBJECT, number):
                    writer.code(Opcode.BEHIND, at, objects + 8 * number, 0)
                case Address(Base.ELEMENTS, number, offset):
                    writer.code(Opcode.OBJECT, at, objects + 8 * number, offset)
                case Address(Base.CONSTANT, number, offset):
                    writer.constant(at, self.constants[number], offset)
                case Address(_, number, offset):
                    writer.value(at, own[number] + offset)
                case _:
                    writer.number(at, word)
        return start

    @cached_property
    def is_kept(self) -> bool:
        """Packed operands are kept while they are of a size to stay in a cache: elsewhere a product takes a tenth longer."""
        return self.workspace_bytes <= KEPT_BYTES

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        return self._predicted


class JoinedOperands:
    """The objects and constants of an operation and its epilogue: parameters of the operation, those of the epilogue, the result.
    The epilogue has no memory of its own."""

    def __init__(self, function: Function, parts: WithEpilogue, then: MachineKernel | None) -> None:
        given = [function.params.index(i) for i in parts.node.inputs if i.op is PARAM]
        fixed = [np.ascontiguousarray(value_of(i).array) for i in parts.node.inputs if i.op is not PARAM]
        objects, arrays = iter(range(len(given))), iter(range(len(fixed)))
        self.sources = [Address(Base.ELEMENTS, next(objects)) if i.op is PARAM else Address(Base.CONSTANT, next(arrays))
                        for i in parts.node.inputs]
        """Where the operands of the operation are."""
        self.params, number = (*given, *parts.params), len(given) + len(parts.params)
        self.result = Address(Base.ELEMENTS, number)
        self.constants = fixed
        self.table: Word = 0
        """That of the epilogue; 0 where there is none."""
        if then is not None:
            read = [(number, *range(len(given), number))[p] for p in then.params]
            self.table = (*(Address(Base.OBJECT, n) for n in (*read, number)),
                          *(Address(Base.CONSTANT, len(fixed) + k) for k in range(len(then.constants))))
            self.constants = [*fixed, *then.constants]
