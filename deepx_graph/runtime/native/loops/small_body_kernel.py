"""A loop over small tensors as one callable: a machine function that calls the kernels of an iteration and iterates by itself.

`iterate(table, scratch)`: `table` holds the arguments and results as array objects and the address of the words. A storage is what
kernels take for an array object: its buffer's address stands where an array keeps that of its elements, and a swap exchanges two of
them. After so many jumps back the function notes where it is and returns, and goes on there when it is called again.

One call has as many iterations as take some milliseconds; then Python has the floor for a moment, so that an endless loop can be
interrupted, and the next call goes on; the trampoline does so, too. A loop of few iterations, by its count, needs one call.
The words are memory of a call: several calls may run at once.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.ir import Function
from deepx_graph.ir.structure import LOOP_END
from deepx_graph.runtime.bytecode import Instruction, Jump, Move, Return, Run, Select, Skip, Test
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.outline import is_program
from deepx_graph.runtime.kernels.memory import aligned
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.memory.pool import Allowance
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.builder import IRBuilder
from deepx_graph.runtime.native.loops.small_body import (
    Action,
    Called,
    Copied,
    LoopPlan,
    MachineOf,
    RowCopy,
    Storage,
    Swapped,
    planned,
)
from deepx_graph.runtime.native.machine_kernel import (
    DATA,
    KernelMemory,
    KernelState,
    Layout,
    MachineCode,
    Workspace,
    address_of,
    workspace_bytes,
)
from deepx_graph.runtime.native.threads import pool
from deepx_graph.runtime.native.transpose import contiguous
from deepx_graph.runtime.straightline import form_of

RESUME, LIMIT, LEFT, SCRATCH, SCRATCHES, COUNTER, SHARE, POOL = range(0, 64, 8)
"""Bytes of the words: where to go on (0 from the start), jumps back in one call, how many are left, memory for kernels, and what
threads that share the work of one need (see `threads.WorkerPool`)."""

HEAD, CELL = 64, 32
"""Bytes before the storages, and of a storage."""


def marks_of(loops: LoopPlan) -> dict[int, int]:
    """A number for each slot that says that a `once` block has run."""
    found = [i.mark for i in loops.code.instructions if isinstance(i, Skip)]
    return {mark: k for k, mark in enumerate(dict.fromkeys(found))}


def kernels_of(loops: LoopPlan) -> list[Called]:
    """The kernels that are called, in order."""
    return [a for actions in loops.actions for a in actions if isinstance(a, Called)]


def cell(storage: int) -> int:
    """Where a storage is among the words, in bytes."""
    return HEAD + CELL * storage


def calls_at(loops: LoopPlan) -> int:
    """Where the functions of kernels and their tables are; the marks follow."""
    return cell(len(loops.storages))


def words_bytes(loops: LoopPlan) -> int:
    """The size of the words."""
    return calls_at(loops) + 16 * sum(len(c.kernel.calls) for c in kernels_of(loops)) + 8 * len(marks_of(loops))


def function_text(loops: LoopPlan, params: Sequence[int]) -> str:
    """The IR of `iterate`; `params` are the numbers of the arguments whose objects come first in the table."""
    return _Writer(loops, params).text()


class _Writer:
    def __init__(self, loops: LoopPlan, params: Sequence[int]) -> None:
        self.loops, self.params = loops, params
        self.t = IRBuilder(1)
        self._calls = 0
        self.marks = marks_of(loops)
        self.direct = loops.direct

    def text(self) -> str:
        stops = sorted({i.to for at, i in enumerate(self.loops.code.instructions) if isinstance(i, Jump) and i.to <= at})
        self._begin(stops)
        for at, i in enumerate(self.loops.code.instructions):
            self.t.start(f"at{at}")
            for action in self.loops.actions[at]:
                self._action(action)
            self._control(i, at)
        head = "define void @iterate(ptr noalias %table, ptr %scratch) nounwind {"
        copy = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        smax, smin, umin = (f"declare i64 @llvm.{name}.i64(i64, i64)" for name in ("smax", "smin", "umin"))
        return "\n".join([head, "entry:", *self.t.lines, "}", copy, smax, smin, umin, ""])

    def word(self, offset: int) -> str:
        """The address of a word."""
        return self.t.let(f"getelementptr i8, ptr %words, i64 {offset}")

    def buffer(self, storage: int) -> str:
        return self.t.let(f"load ptr, ptr {self.word(cell(storage) + DATA)}")

    def _begin(self, stops: Sequence[int]) -> None:
        count = len(self.params) + len(self.loops.results)
        slot = self.t.let(f"getelementptr ptr, ptr %table, i64 {count}")
        self.t.line(f"%words = load ptr, ptr {slot}")
        self.t.line(f"%inner = load ptr, ptr {self.word(SCRATCH)}")
        self.t.line(f"store i64 {self.t.let(f'load i64, ptr {self.word(LIMIT)}')}, ptr {self.word(LEFT)}")
        resume = self.t.let(f"load i64, ptr {self.word(RESUME)}")
        self.t.line(f"switch i64 {resume}, label %start [{' '.join(f'i64 {s}, label %at{s}' for s in stops)}]")
        self.t.start("start")
        for k, param in enumerate(self.params):
            found = next(n for n, s in enumerate(self.loops.storages) if s.param == param)
            self.t.line(f"store ptr {self._object(k)}, ptr {self.word(cell(found) + DATA)}")
        for k, storage in enumerate(self.loops.results):
            if storage in self.direct:
                self.t.line(f"store ptr {self._object(len(self.params) + k)}, ptr {self.word(cell(storage) + DATA)}")
        self.t.line("br label %at0")

    def _object(self, slot: int) -> str:
        """Where the elements of an array object in the table are."""
        at = self.t.let(f"load ptr, ptr {self.t.let(f'getelementptr ptr, ptr %table, i64 {slot}')}")
        return self.t.let(f"load ptr, ptr {self.t.let(f'getelementptr i8, ptr {at}, i64 {DATA}')}")

    # --- actions

    def _action(self, action: Action) -> None:
        match action:
            case Called(kernel):
                for _, threads in kernel.calls:
                    self._call(threads)
            case Copied(source, target, runs):
                a, b = self.buffer(source), self.buffer(target)
                for start, to, nbytes in runs:
                    self._copy(self._at(b, str(to)), self._at(a, str(start)), nbytes)
            case RowCopy():
                self._row(action)
            case Swapped(one, other):
                a, b = self.buffer(one), self.buffer(other)
                self.t.line(f"store ptr {b}, ptr {self.word(cell(one) + DATA)}")
                self.t.line(f"store ptr {a}, ptr {self.word(cell(other) + DATA)}")

    def _call(self, threads: int) -> None:
        """The next of the functions, on one thread or by several that share its work."""
        at = calls_at(self.loops) + 16 * self._calls
        self._calls += 1
        function, table = (self.t.let(f"load ptr, ptr {self.word(at + k)}") for k in (0, 8))
        if not threads:
            self.t.line(f"call void {function}(ptr {table}, ptr %inner)")
            return
        counter = self.word(COUNTER)
        self.t.line(f"store i64 0, ptr {counter}")
        share, pool, scratches = (self.t.let(f"load ptr, ptr {self.word(w)}") for w in (SHARE, POOL, SCRATCHES))
        self.t.line(f"call void {share}(ptr {pool}, i64 {threads}, ptr {function}, ptr {table}, ptr {counter}, ptr {scratches})")

    def _at(self, pointer: str, offset: str) -> str:
        return self.t.let(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def _copy(self, target: str, source: str, nbytes: int) -> None:
        self.t.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {nbytes}, i1 false)")

    def _row(self, row: RowCopy) -> None:
        offset = "0"
        for index in row.at:
            start = self._integer(self.loops.storages[index.storage], index.storage)
            if self.loops.storages[index.storage].dtype.kind == "u":
                start = self.t.let(f"call i64 @llvm.umin.i64(i64 {start}, i64 {index.most})")
            else:
                start = self.t.let(f"call i64 @llvm.smax.i64(i64 {start}, i64 0)")
                start = self.t.let(f"call i64 @llvm.smin.i64(i64 {start}, i64 {index.most})")
            offset = self.t.let(f"add i64 {offset}, {self.t.let(f'mul i64 {start}, {index.stride}')}")
        source, target = self.buffer(row.source), self.buffer(row.target)
        if row.reads:
            self._copy(target, self._at(source, offset), row.nbytes)
        else:
            self._copy(self._at(target, offset), source, row.nbytes)

    def _integer(self, storage: Storage, number: int) -> str:
        """A scalar as 64 bits."""
        kind = f"i{8 * storage.dtype.itemsize}"
        raw = self.t.let(f"load {kind}, ptr {self.buffer(number)}")
        if kind == "i64":
            return raw
        return self.t.let(f"{'sext' if storage.dtype.kind == 'i' else 'zext'} {kind} {raw} to i64")

    # --- control

    def _control(self, i: Instruction, at: int) -> None:
        match i:
            case Jump(to) if to <= at:
                self._again(to, at)
            case Jump(to):
                self.t.line(f"br label %at{to}")
            case Test(_, _, to):
                holds = self.t.let(f"icmp ne i64 {self._integer(*self._tested(at))}, 0")
                self.t.line(f"br i1 {holds}, label %at{at + 1}, label %at{to}")
            case Select(_, _, targets):
                storage, number = self._tested(at)
                value, last = self._integer(storage, number), targets[-1]
                if storage.dtype == np.bool_:
                    value, targets = self.t.let(f"xor i64 {value}, 1"), targets[:2]
                self.t.line(f"switch i64 {value}, label %at{last} "
                          f"[{' '.join(f'i64 {k}, label %at{to}' for k, to in enumerate(targets))}]")
            case Skip(mark, to):
                word = self._mark(mark)
                done = self.t.let(f"icmp ne i64 {self.t.let(f'load i64, ptr {word}')}, 0")
                self.t.line(f"store i64 1, ptr {word}")
                self.t.line(f"br i1 {done}, label %at{to}, label %at{at + 1}")
            case Return():
                self._return()
            case Move(_, _, clears):
                for mark in clears:
                    self.t.line(f"store i64 0, ptr {self._mark(mark)}")
                self.t.line(f"br label %at{at + 1}")
            case Run() | _:
                self.t.line(f"br label %at{at + 1}")

    def _tested(self, at: int) -> tuple[Storage, int]:
        number = self.loops.tested[at]
        return self.loops.storages[number], number

    def _mark(self, mark: int) -> str:
        base = calls_at(self.loops) + 16 * sum(len(c.kernel.calls) for c in kernels_of(self.loops))
        return self.word(base + 8 * self.marks[mark])

    def _again(self, to: int, at: int) -> None:
        """Back to the head of a loop, unless the call has had its share of iterations."""
        word = self.word(LEFT)
        left = self.t.let(f"sub i64 {self.t.let(f'load i64, ptr {word}')}, 1")
        self.t.line(f"store i64 {left}, ptr {word}")
        more = self.t.let(f"icmp sgt i64 {left}, 0")
        self.t.line(f"br i1 {more}, label %at{to}, label %stop{at}")
        self.t.start(f"stop{at}")
        self.t.line(f"store i64 {to}, ptr {self.word(RESUME)}")
        self.t.line("ret void")

    def _return(self) -> None:
        for k, storage in enumerate(self.loops.results):
            if storage not in self.direct:
                self._copy(self._object(len(self.params) + k), self.buffer(storage), self.loops.storages[storage].nbytes)
        self.t.line(f"store i64 0, ptr {self.word(RESUME)}")
        self.t.line("ret void")


CALL_NANOSECONDS = 20_000_000
"""About how long one call takes at most."""

WHOLE_PROGRAM, WHOLE_LOOP = "machine code: the whole program", "machine code: a loop as a whole"
"""How such a kernel runs, in words."""

STEP_NANOSECONDS = 5.0
"""What a step costs beside its kernel."""


def build(body: Function, machine_of: MachineOf, allowance: Allowance) -> SmallBodyKernel:
    """The kernel of a body with loops. Raises Declined. `machine_of` gives the machine code of a node, if it has any; the memory
    that it keeps is taken from the allowance."""
    kernel = SmallBodyKernel(body, planned(body, machine_of))
    if not allowance.take(kernel.workspace_bytes):
        raise Declined("no memory left that kernels may keep")
    return kernel


class SmallBodyKernel(MachineCode):
    """The compiled function, and how to make its words."""

    has_state = True

    def __init__(self, body: Function, loops: LoopPlan) -> None:
        kernels = [c.kernel for c in kernels_of(loops)]
        self.threads = max((k.team for k in kernels), default=0) or 1
        if self.threads > 1 and pool() is None:
            raise Declined("kernels in shares, and no workers that machine code can call")
        self.lowering = WHOLE_PROGRAM if is_program(body) else WHOLE_LOOP
        self.params = tuple(range(len(body.params)))
        self.results = tuple(form_of(r.type) for r in body.results)
        self.in_place = (frozenset[int](),) * len(self.results)
        self._iteration_ns = STEP_NANOSECONDS * len(loops.actions) + sum(k.nanoseconds for k in kernels)
        trips = [trip_count(n) for n in body.nodes if n.op is LOOP_END]
        known = math.prod(n for n in trips if n is not None)
        self.nanoseconds = self._iteration_ns * max(1, known)
        self.is_one_call = None not in trips and self.nanoseconds <= CALL_NANOSECONDS
        self._loops = loops
        self._limit = 1 << 60 if self.is_one_call else max(1, int(CALL_NANOSECONDS / self._iteration_ns))
        self._is_in_use = False
        self.is_kept = True
        self._bytes = words_bytes(loops) + workspace_bytes(kernels) + loops.buffers()[1]
        self.constants: tuple[Array, ...] = ()
        self.own_bytes = ()
        objects = len(self.params) + len(self.results)
        self.layout = Layout({}, {}, {}, 0, 0, objects, objects + 1)
        address = machine_code.functions(function_text(loops, self.params), ["iterate"], self)["iterate"]
        self.calls = ((address, 0),)

    @property
    def team(self) -> int:
        """Its own kernels share their work."""
        return self.threads

    @property
    def workspace_bytes(self) -> int:
        """The words and what they point to."""
        return self._bytes

    def keep(self, allowance: Allowance) -> None:
        """Its memory was taken when it was made."""

    def new_state(self) -> KernelState:
        """The words, with the memory of all values."""
        return _Words(self._loops, self._limit).state

    def lasting_memory(self) -> KernelMemory:
        """What a call from Python has left, if there is one: such memory is large."""
        self._is_in_use = True
        try:
            return self._spare.pop().memory  # type: ignore[no-any-return]
        except IndexError:
            return super().lasting_memory()

    def give_back(self, workspace: Workspace) -> None:
        """One is kept, unless somebody else keeps one."""
        if not self._is_in_use and not self._spare:
            self._spare.append(workspace)

    def predicted(self) -> cost.ForecastParts:
        """How long a call takes by the cost model; of a loop whose iterations are not known, one iteration."""
        return cost.ForecastParts(0.0, self.nanoseconds, 0.0)

    def run(self, workspace: Workspace, args: Sequence[Any], results: Sequence[Array]) -> None:
        """All iterations; Python has the floor between calls."""
        words = workspace.memory.state(self).words
        words[RESUME // 8] = 0
        if self.threads > 1 and (workers := pool()) is not None:
            workers.hire(self.threads - 1)
        arrays = [contiguous(np.asarray(args[k]), self.threads) for k in self.params]
        super().run(workspace, arrays, results)
        while words[RESUME // 8]:
            super().run(workspace, arrays, results)


class _Words:
    """The words of a kernel, and everything that they point to."""

    def __init__(self, loops: LoopPlan, limit: int) -> None:
        kernels = [c.kernel for c in kernels_of(loops)]
        self.array = aligned(words_bytes(loops)).view(np.int64)
        self.array[:] = 0
        base = self.array.ctypes.data
        memory = KernelMemory(kernels)
        kept: list[Any] = [memory, kernels, loops]
        self.state = KernelState(self.array, kept)
        self.array[LIMIT // 8] = limit
        self.array[SCRATCH // 8] = memory.scratch[0]
        self.array[SCRATCHES // 8] = ctypes.addressof(memory.scratches)
        if (workers := pool()) is not None:
            self.array[SHARE // 8], self.array[POOL // 8] = workers.share_address, workers.address
        kept.append(self._storages(loops))
        at = calls_at(loops) // 8
        for called in kernels_of(loops):
            table = memory.table(called.kernel)
            objects = np.frombuffer(table, np.int64)
            objects[: len(called.objects)] = [base + cell(s) for s in called.objects]
            kept.append(table)
            for function, _ in called.kernel.calls:
                self.array[at : at + 2] = function, address_of(table)
                at += 2

    def _storages(self, loops: LoopPlan) -> Array:
        """Points the cells of storages at their memory, which it gives."""
        offsets, size = loops.buffers()
        buffers = aligned(size)
        start = buffers.ctypes.data
        for number, (storage, offset) in enumerate(zip(loops.storages, offsets, strict=True)):
            if storage.param is None:
                where = start + offset if storage.array is None else storage.array.ctypes.data
                self.array[(cell(number) + DATA) // 8] = where
        return buffers
