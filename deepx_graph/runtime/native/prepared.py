"""Kernels whose machine functions take tables of their own, as machine code on a table of array objects.

A function of such a kernel takes shares of its work from a counter, and finds addresses and sizes in a table of its own. That table
is laid out in memory of the call by machine code, too: `prepare` copies the words that are known and adds addresses to those that
are not. Then `alone` and `shared` run the current step, and the next one is the current one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.ir.structure import PARAM, value_of
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.engines.epilogue import WithEpilogue
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.machine_kernel import DATA, Layout, MachineKernel
from deepx_graph.runtime.straightline import ArrayType

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


@dataclass(frozen=True)
class FunctionAddress:
    """The address of a machine function."""

    value: int


Word = int | Address | FunctionAddress | tuple["Word", ...]
"""What is in a table: a number, an address, or the address of another table."""


@dataclass(frozen=True)
class PreparedStep:
    """A machine function `function(table, counter, scratch)` and its table; so many threads share its work."""

    function: int
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
        objects = len(params) + len(results)
        plan = _Plan(objects, 1 + len(constants), steps)
        self.constants = (plan.array, *constants)
        self.relocations = tuple(plan.relocations)
        self.own_bytes = (8 * len(plan.words), *own_bytes)
        self.layout = Layout(scratch_bytes, objects, objects + len(self.constants) + len(self.own_bytes))
        at = machine_code.functions(_text(objects), ["prepare", "alone", "shared", "advance"], self)
        self.calls = ((at["prepare"], 0), *(call for s in steps for call in (
            ((at["shared"], s.threads), (at["advance"], 0)) if s.threads > 1 else ((at["alone"], 0),))))

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


class _Plan:
    """The words of a call as they are copied, and what is added to them.

    The first word is the address of the current step: its function, the next step, its table.
    """

    def __init__(self, objects: int, constants: int, steps: Sequence[PreparedStep]) -> None:
        self._slots = {Base.OBJECT: 0, Base.ELEMENTS: 0, Base.CONSTANT: objects + 1, Base.OWN: objects + constants + 1}
        self._words_slot = objects + constants
        self.words: list[int] = [0]
        self._added: list[tuple[int, int, int]] = []
        self._functions: list[int] = []
        next_step = 0
        for step in reversed(steps):
            start = self._append((FunctionAddress(step.function), 0, *step.table))
            self._point(start + 1, next_step)
            next_step = start
        self._point(0, next_step)
        rows = [n for row in self._added for n in row]
        head = [self._words_slot, len(self.words), len(self._added)]
        self.array = np.array([*head, *self.words, *rows], np.int64)
        self.relocations = [len(head) + at for at in self._functions]

    def _point(self, at: int, word: int) -> None:
        """Lets a word be the address of another one."""
        self.words[at] = 8 * word
        self._added.append((at, self._words_slot, 0))

    def _append(self, table: tuple[Word, ...]) -> int:
        """Where the table is now among the words."""
        start = len(self.words)
        self.words += [0] * len(table)
        for at, word in enumerate(table, start):
            if isinstance(word, tuple):
                self._point(at, self._append(word))
            elif isinstance(word, Address):
                self.words[at] = word.offset
                self._added.append((at, self._slots[word.base] + word.number, int(word.base is Base.ELEMENTS)))
            elif isinstance(word, FunctionAddress):
                self.words[at] = word.value
                self._functions.append(at)
            else:
                self.words[at] = word
        return start


@cache
def _text(objects: int) -> str:
    """The IR of the functions for tables that begin with so many objects; they are the same for all kernels.

    The plan stands behind the objects: the slot of the words, how many there are, how many additions, and these."""
    words = f"""
  %at = getelementptr ptr, ptr %table, i64 {objects}
  %plan = load ptr, ptr %at
  %slot = load i64, ptr %plan
  %cell = getelementptr ptr, ptr %table, i64 %slot
  %words = load ptr, ptr %cell"""
    step = f"""{words}
  %step = load ptr, ptr %words
  %function = load ptr, ptr %step
  %own = getelementptr i8, ptr %step, i64 16"""
    advance = """
  %link = getelementptr i8, ptr %step, i64 8
  %next = load ptr, ptr %link
  store ptr %next, ptr %words
  ret void"""
    return f"""
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define void @prepare(ptr %table, ptr %scratch) nounwind {{
entry:{words}
  %at1 = getelementptr i64, ptr %plan, i64 1
  %count = load i64, ptr %at1
  %at2 = getelementptr i64, ptr %plan, i64 2
  %additions = load i64, ptr %at2
  %known = getelementptr i64, ptr %plan, i64 3
  %bytes = mul i64 %count, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr %known, i64 %bytes, i1 false)
  %rows = getelementptr i64, ptr %known, i64 %count
  br label %look
look:
  %k = phi i64 [ 0, %entry ], [ %k1, %add ]
  %some = icmp slt i64 %k, %additions
  br i1 %some, label %one, label %out
one:
  %first = mul i64 %k, 3
  %row = getelementptr i64, ptr %rows, i64 %first
  %number = load i64, ptr %row
  %row1 = getelementptr i64, ptr %row, i64 1
  %from = load i64, ptr %row1
  %row2 = getelementptr i64, ptr %row, i64 2
  %follows = load i64, ptr %row2
  %entryat = getelementptr ptr, ptr %table, i64 %from
  %object = load ptr, ptr %entryat
  %is = icmp ne i64 %follows, 0
  br i1 %is, label %data, label %add
data:
  %dataat = getelementptr i8, ptr %object, i64 {DATA}
  %elements = load ptr, ptr %dataat
  br label %add
add:
  %address = phi ptr [ %object, %one ], [ %elements, %data ]
  %value = ptrtoint ptr %address to i64
  %word = getelementptr i64, ptr %words, i64 %number
  %old = load i64, ptr %word
  %new = add i64 %old, %value
  store i64 %new, ptr %word
  %k1 = add i64 %k, 1
  br label %look
out:
  ret void
}}

define void @alone(ptr %table, ptr %scratch) nounwind {{
entry:
  %counter = alloca i64
  store i64 0, ptr %counter{step}
  call void %function(ptr %own, ptr %counter, ptr %scratch){advance}
}}

define void @shared(ptr %table, ptr %counter, ptr %scratch) nounwind {{
entry:{step}
  call void %function(ptr %own, ptr %counter, ptr %scratch)
  ret void
}}

define void @advance(ptr %table, ptr %scratch) nounwind {{
entry:{words}
  %step = load ptr, ptr %words{advance}
}}
"""
