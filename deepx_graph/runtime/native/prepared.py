"""Kernels whose machine functions take tables of their own, as machine code on a table of array objects.

A function of such a kernel takes shares of its work from a counter, and finds addresses and sizes in a table of its own. That table
is laid out in memory of the call by machine code, too: `prepare` copies the words that are known and adds addresses to those that
are not. Then `alone` and `shared` run the current step, and the next one is the current one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
from typing import Any

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.ir.structure import PARAM, value_of
from deepx_graph.runtime.array_type import ArrayType
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.engines.epilogue import WithEpilogue
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.builder import IRBuilder, branch
from deepx_graph.runtime.native.llvm.machine_code import FunctionReference
from deepx_graph.runtime.native.machine_kernel import DATA, Layout, MachineKernel

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
        objects = len(params) + len(results)
        plan = self._plan = _Plan(objects, 1 + len(constants), steps)
        self._others = tuple(constants)
        self.relocations = tuple(plan.relocations)
        self.own_bytes = (8 * len(plan.words), *own_bytes)
        self.layout = Layout(scratch_bytes, objects, objects + 1 + len(constants) + len(self.own_bytes))
        at = machine_code.functions(_text(objects), ["prepare", "alone", "shared", "advance"], self)
        self.called = ((at["prepare"], 0), *(call for s in steps for call in (
            ((at["shared"], s.threads), (at["advance"], 0)) if s.threads > 1 else ((at["alone"], 0),))))

    @cached_property
    def constants(self) -> tuple[Array, ...]:
        """The plan, once the functions of which it has the addresses are there, and the others."""
        return (self._plan.linked(), *self._others)

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
        self._functions: list[tuple[int, FunctionReference]] = []
        next_step = 0
        for step in reversed(steps):
            start = self._append((step.function, 0, *step.table))
            self._point(start + 1, next_step)
            next_step = start
        self._point(0, next_step)
        rows = [n for row in self._added for n in row]
        head = [self._words_slot, len(self.words), len(self._added)]
        self._array = np.array([*head, *self.words, *rows], np.int64)
        self.relocations = [len(head) + at for at, _ in self._functions]
        """Which of them are addresses of functions."""

    def linked(self) -> Array:
        """What is copied and added; waits for the code of its functions."""
        for at, (_, function) in zip(self.relocations, self._functions, strict=True):
            self._array[at] = function.address
        return self._array

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
            elif isinstance(word, FunctionReference):
                self._functions.append((at, word))
            else:
                self.words[at] = word
        return start


@cache
def _text(objects: int) -> str:
    """The IR of the functions for tables that begin with so many objects; they are the same for all kernels.

    The plan stands behind the objects: the slot of the words, how many there are, how many additions, and these."""
    parts = [_function("prepare", "", objects, _prepare), _function("alone", "", objects, _alone),
             _function("shared", "ptr %counter, ", objects, lambda t, plan, words: _call(t, words)),
             _function("advance", "", objects, lambda t, plan, words: _next(t, words))]
    return "\n".join(["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", *parts, ""])


def _function(name: str, more: str, objects: int, body: Callable[[IRBuilder, str, str], object]) -> str:
    """The function `name(table, ..., scratch)`; the body is told where the plan and the words are."""
    t = IRBuilder(1)
    plan = t.word("%table", objects, "ptr")
    body(t, plan, t.word("%table", t.word(plan), "ptr"))
    return t.function(f"void @{name}(ptr %table, {more}ptr %scratch) nounwind")


def _prepare(t: IRBuilder, plan: str, words: str) -> None:
    """Copies the words, and adds addresses to those that are not known before."""
    count, additions, known = t.word(plan, 1), t.word(plan, 2), t.behind(plan, 24)
    nbytes = t.let(f"mul i64 {count}, 8")
    t.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {words}, ptr {known}, i64 {nbytes}, i1 false)")
    rows = t.behind(known, nbytes)

    def one(k: str) -> None:
        row = t.behind(rows, t.let(f"mul i64 {k}, 24"))
        at, object = t.behind(words, t.let(f"mul i64 {t.word(row)}, 8")), t.word("%table", t.word(row, 1), "ptr")

        def add(address: str) -> None:
            value = t.let(f"ptrtoint ptr {address} to i64")
            t.line(f"store i64 {t.let(f'add i64 {t.word(at)}, {value}')}, ptr {at}")

        branch(t, t.let(f"icmp ne i64 {t.word(row, 2)}, 0"), lambda: add(t.word(t.behind(object, DATA), 0, "ptr")),
               lambda: add(object))

    t.rows("0", additions, one)


def _alone(t: IRBuilder, plan: str, words: str) -> None:
    t.line("%counter = alloca i64")
    t.line("store i64 0, ptr %counter")
    _call(t, words)
    _next(t, words)


def _call(t: IRBuilder, words: str) -> None:
    """The function of the current step."""
    step = t.word(words, 0, "ptr")
    t.line(f"call void {t.word(step, 0, 'ptr')}(ptr {t.behind(step, 16)}, ptr %counter, ptr %scratch)")


def _next(t: IRBuilder, words: str) -> None:
    """Makes the next step the current one."""
    t.line(f"store ptr {t.word(t.word(words, 0, 'ptr'), 1, 'ptr')}, ptr {words}")
