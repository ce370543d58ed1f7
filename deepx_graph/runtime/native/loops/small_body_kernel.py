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
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.errors import Diagnostic, LimitError
from deepx_graph.ir import Function
from deepx_graph.ir.structure import LOOP_END, callee_of
from deepx_graph.runtime.bytecode import Instruction, Jump, Move, Return, Run, Select, Skip, Test
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.outline import is_program
from deepx_graph.runtime.kernels.memory import aligned
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.memory.pool import Allowance
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.builder import IRBuilder
from deepx_graph.runtime.native.loops.calls import TAG, CalledFunctions, CallLimits, planned_with_calls
from deepx_graph.runtime.native.loops.small_body import (
    Action,
    Called,
    Copied,
    Invoked,
    LoopPlan,
    MachineOf,
    RowCopy,
    Storage,
    Swapped,
)
from deepx_graph.runtime.native.machine_kernel import (
    DATA,
    KernelMemory,
    KernelState,
    Layout,
    MachineCode,
    Workspace,
    address_of,
    rounded,
    workspace_bytes,
)
from deepx_graph.runtime.native.threads import pool
from deepx_graph.runtime.native.transpose import contiguous
from deepx_graph.runtime.straightline import form_of

RESUME, FAILED, LIMIT, LEFT, SCRATCH, SCRATCHES, COUNTER, SHARE, POOL, STACK, STACK_START, STACK_END, DEPTH, MOST_DEPTH = range(
    0, 112, 8)
"""Bytes of the words: where to go on, by number (0 from the start), the position behind a call that had no room (0 for none), jumps
back in one call, how many are left, memory for kernels, and what threads that share the work of one need (see
`threads.WorkerPool`). Of recursive calls the end of the records, the memory for them, and how many there are and may be."""

HEAD, CELL = 128, 32
"""Bytes before the storages, and of a storage."""


def marks_of(loops: LoopPlan) -> dict[int, int]:
    """A number for each slot that says that a `once` block has run."""
    found = [i.mark for i in loops.code.instructions if isinstance(i, Skip)]
    return {mark: k for k, mark in enumerate(dict.fromkeys(found))}


LONG = 2_000
"""Lines of IR from which a function without loops is not optimised: LLVM takes 2 s for the 14 000 of a training step, 0.06 s so.
The few instructions around each call of a kernel are not what such a program spends its time on."""


def kernels_of(loops: LoopPlan) -> list[Called]:
    """The kernels that are called, in order."""
    return [a for actions in loops.actions for a in actions if isinstance(a, Called)]


def cell(storage: int) -> int:
    """Where a storage is among the words, in bytes."""
    return HEAD + CELL * storage


def calls_at(loops: LoopPlan) -> int:
    """Where the functions of kernels and their tables are; the marks follow."""
    return cell(len(loops.storages))


def links_at(loops: LoopPlan, function: int) -> int:
    """Where a function that is called has the position of its call, and the addresses of its results."""
    marks = calls_at(loops) + 16 * sum(len(c.kernel.calls) for c in kernels_of(loops))
    return marks + 8 * (len(marks_of(loops)) + sum(1 + len(f.results) for f in loops.functions[:function]))


def words_bytes(loops: LoopPlan) -> int:
    """The size of the words."""
    return links_at(loops, len(loops.functions))


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
        stops = {i.to + 1: f"at{i.to}" for at, i in enumerate(self.loops.code.instructions) if isinstance(i, Jump) and i.to <= at}
        stops |= {-1 - at: f"call{at}" for k, f in enumerate(self.loops.functions) if f.is_recursive for at in self.callers(k)}
        self._begin(stops)
        for at, i in enumerate(self.loops.code.instructions):
            self.t.start(f"at{at}")
            for action in self.loops.actions[at]:
                self._action(action, at)
            self._control(i, at)
        as_it_stands = " noinline optnone" if len(self.t.lines) > LONG and not stops else ""
        head = f"define void @iterate(ptr noalias %table, ptr %scratch) nounwind{as_it_stands} {{"
        copy = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        smax, smin, umin = (f"declare i64 @llvm.{name}.i64(i64, i64)" for name in ("smax", "smin", "umin"))
        return "\n".join([head, "entry:", *self.t.lines, "}", copy, smax, smin, umin, ""])

    def word(self, offset: int) -> str:
        """The address of a word."""
        return self.t.let(f"getelementptr i8, ptr %words, i64 {offset}")

    def buffer(self, storage: int) -> str:
        return self.t.let(f"load ptr, ptr {self.word(cell(storage) + DATA)}")

    def _begin(self, stops: Mapping[int, str]) -> None:
        count = len(self.params) + len(self.loops.results)
        slot = self.t.let(f"getelementptr ptr, ptr %table, i64 {count}")
        self.t.line(f"%words = load ptr, ptr {slot}")
        self.t.line(f"%inner = load ptr, ptr {self.word(SCRATCH)}")
        self.t.line(f"store i64 {self.t.let(f'load i64, ptr {self.word(LIMIT)}')}, ptr {self.word(LEFT)}")
        resume = self.t.let(f"load i64, ptr {self.word(RESUME)}")
        self.t.line(f"switch i64 {resume}, label %start [{' '.join(f'i64 {s}, label %{label}' for s, label in stops.items())}]")
        self.t.start("start")
        if self.loops.functions:
            for value, word in ((0, FAILED), (0, DEPTH)):
                self.t.line(f"store i64 {value}, ptr {self.word(word)}")
            self.t.line(f"store ptr {self.t.let(f'load ptr, ptr {self.word(STACK_START)}')}, ptr {self.word(STACK)}")
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

    def _action(self, action: Action, at: int) -> None:
        match action:
            case Invoked():
                self._invoke(action, at)
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

    # --- calls of functions

    def callers(self, function: int) -> list[int]:
        """The positions that call a function."""
        return [at for at, actions in enumerate(self.loops.actions) for a in actions
                if isinstance(a, Invoked) and a.function == function]

    def _saved(self, function: int) -> list[int]:
        """The words that an activation of a function has changed, and that are those of the one before when it ends."""
        f, links = self.loops.functions[function], links_at(self.loops, function)
        cells = [cell(s) + DATA for s in range(f.low, f.high) if self.loops.storages[s].array is None]
        marks = {i.mark for i in self.loops.code.instructions[f.start : f.stop] if isinstance(i, Skip)}
        return [*(links + 8 * k for k in range(1 + len(f.results))), *cells, *map(self._mark_at, sorted(marks))]

    def _record(self, function: int) -> tuple[int, int]:
        """The bytes of a record before the values, and with them."""
        f = self.loops.functions[function]
        sizes = [rounded(s.nbytes) + offset for s, offset in zip(
            self.loops.storages[f.low : f.high], self.loops.buffers()[0][f.low : f.high], strict=True) if s.is_owned]
        head = rounded(8 * len(self._saved(function)))
        return head, head + rounded(max(sizes, default=0))

    def _invoke(self, action: Invoked, at: int) -> None:
        """Lets a function read the arguments where they are, and go on there."""
        f, links = self.loops.functions[action.function], links_at(self.loops, action.function)
        if f.is_recursive:
            self._count(f"call{at}", -1 - at, at)
            self.t.start(f"call{at}")
        arguments, results = ([self.buffer(s) for s in storages] for storages in (action.arguments, action.results))
        if f.is_recursive:
            self._push(action.function, at)
        for storage, pointer in zip(f.params, arguments, strict=True):
            self.t.line(f"store ptr {pointer}, ptr {self.word(cell(storage) + DATA)}")
        self.t.line(f"store i64 {at}, ptr {self.word(links)}")
        for k, pointer in enumerate(results, 1):
            self.t.line(f"store ptr {pointer}, ptr {self.word(links + 8 * k)}")
        self.t.line(f"br label %at{f.start}")
        self.t.start(f"back{at}")

    def _push(self, function: int, at: int) -> None:
        """A record for an activation: what the words say now, and its values. Gives up where there is no room."""
        t, f, (head, size) = self.t, self.loops.functions[function], self._record(function)
        stack = t.let(f"load ptr, ptr {self.word(STACK)}")
        end = self._at(stack, str(size))
        full = t.let(f"icmp ugt ptr {end}, {t.let(f'load ptr, ptr {self.word(STACK_END)}')}")
        depth = t.let(f"add i64 {t.let(f'load i64, ptr {self.word(DEPTH)}')}, 1")
        deep = t.let(f"icmp sgt i64 {depth}, {t.let(f'load i64, ptr {self.word(MOST_DEPTH)}')}")
        t.line(f"br i1 {t.let(f'or i1 {full}, {deep}')}, label %full{at}, label %push{at}")
        t.start(f"full{at}")
        t.line(f"store i64 {at + 1}, ptr {self.word(FAILED)}")
        t.line(f"store i64 0, ptr {self.word(RESUME)}")
        t.line("ret void")
        t.start(f"push{at}")
        t.line(f"store ptr {end}, ptr {self.word(STACK)}")
        t.line(f"store i64 {depth}, ptr {self.word(DEPTH)}")
        for k, word in enumerate(self._saved(function)):
            t.line(f"store i64 {t.let(f'load i64, ptr {self.word(word)}')}, ptr {self._at(stack, str(8 * k))}")
        offsets, _ = self.loops.buffers()
        for storage in range(f.low, f.high):
            if self.loops.storages[storage].is_owned:
                t.line(f"store ptr {self._at(stack, str(head + offsets[storage]))}, ptr {self.word(cell(storage) + DATA)}")

    def _back(self, function: int) -> None:
        """Gives the results of a function to its caller, which goes on."""
        t, f, links = self.t, self.loops.functions[function], links_at(self.loops, function)
        for k, storage in enumerate(f.results, 1):
            target = t.let(f"load ptr, ptr {self.word(links + 8 * k)}")
            self._copy(target, self.buffer(storage), self.loops.storages[storage].nbytes)
        caller = t.let(f"load i64, ptr {self.word(links)}")
        if f.is_recursive:
            _, size = self._record(function)
            stack = self._at(t.let(f"load ptr, ptr {self.word(STACK)}"), str(-size))
            for k, word in enumerate(self._saved(function)):
                t.line(f"store i64 {t.let(f'load i64, ptr {self._at(stack, str(8 * k))}')}, ptr {self.word(word)}")
            t.line(f"store ptr {stack}, ptr {self.word(STACK)}")
            depth = t.let(f"sub i64 {t.let(f'load i64, ptr {self.word(DEPTH)}')}, 1")
            t.line(f"store i64 {depth}, ptr {self.word(DEPTH)}")
        first, *others = self.callers(function)
        t.line(f"switch i64 {caller}, label %back{first} [{' '.join(f'i64 {p}, label %back{p}' for p in others)}]")

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
                self._count(f"at{to}", to + 1, at)
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
                called = next((k for k, f in enumerate(self.loops.functions) if f.start <= at < f.stop), None)
                if called is None:
                    self._return()
                else:
                    self._back(called)
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
        return self.word(self._mark_at(mark))

    def _mark_at(self, mark: int) -> int:
        return calls_at(self.loops) + 16 * sum(len(c.kernel.calls) for c in kernels_of(self.loops)) + 8 * self.marks[mark]

    def _count(self, label: str, number: int, at: int) -> None:
        """On to a label, unless this was the last of the iterations and calls in one go: then it ends, and goes on there later."""
        word = self.word(LEFT)
        left = self.t.let(f"sub i64 {self.t.let(f'load i64, ptr {word}')}, 1")
        self.t.line(f"store i64 {left}, ptr {word}")
        more = self.t.let(f"icmp sgt i64 {left}, 0")
        self.t.line(f"br i1 {more}, label %{label}, label %stop{at}")
        self.t.start(f"stop{at}")
        self.t.line(f"store i64 {number}, ptr {self.word(RESUME)}")
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


STACK_BYTES, STACK_GROWTH, KEPT_STACK = 1 << 20, 16, 32 << 20
"""Memory for the records of recursive calls at first, how many times as much there is when that is not enough, and the most that is
kept."""


def build(body: Function, machine_of: MachineOf, allowance: Allowance, called: CalledFunctions) -> SmallBodyKernel:
    """The kernel of a body with loops, or with calls of functions that are there. Raises Declined. `machine_of` gives the machine
    code of a node, if it has any; the memory that it keeps is taken from the allowance."""
    kernel = SmallBodyKernel(body, planned_with_calls(body, called.functions, machine_of), called.limits)
    if not allowance.take(kernel.workspace_bytes):
        raise Declined("no memory left that kernels may keep")
    return kernel


class SmallBodyKernel(MachineCode):
    """The compiled function, and how to make its words."""

    has_state = True

    def __init__(self, body: Function, loops: LoopPlan, limits: CallLimits) -> None:
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
        self.is_one_call = not loops.functions and None not in trips and self.nanoseconds <= CALL_NANOSECONDS
        self._loops, self._limits, self._stack_bytes = loops, limits, min(STACK_BYTES, limits.max_bytes)
        self._limit = 1 << 60 if self.is_one_call else max(1, int(CALL_NANOSECONDS / self._iteration_ns))
        self._is_in_use = False
        self.is_kept = True
        self._bytes = words_bytes(loops) + workspace_bytes(kernels) + loops.buffers()[1]
        self.constants: tuple[Array, ...] = ()
        self.own_bytes = ()
        objects = len(self.params) + len(self.results)
        self.layout = Layout(0, objects, objects + 1)
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
        words = _Words(self._loops, self._limit)
        if any(f.is_recursive for f in self._loops.functions):
            words.give_stack(self._stack_bytes, self._limits.max_depth)
        return words.state

    def lasting_memory(self) -> KernelMemory:
        """What a call from Python has left, if there is one: such memory is large."""
        self._is_in_use = True
        try:
            return self._spare.pop().memory  # type: ignore[no-any-return]
        except IndexError:
            return super().lasting_memory()

    def give_back(self, workspace: Workspace) -> None:
        """One is kept, unless somebody else keeps one."""
        if not self._is_in_use and not self._spare and self._stack_bytes <= KEPT_STACK:
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
        if words[FAILED // 8]:
            self._run_with_more(words, args, results)

    def _run_with_more(self, words: Array, args: Sequence[Any], results: Sequence[Array]) -> None:
        """All of it again, with more memory for calls. Raises LimitError, at the call, where there may be no more."""
        at = int(words[FAILED // 8]) - 1
        (call,) = (a for a in self._loops.actions[at] if isinstance(a, Invoked))
        name = callee_of(call.node).partition(TAG)[0]
        if words[DEPTH // 8] >= self._limits.max_depth:
            raise LimitError(Diagnostic(f"calls nest more than {self._limits.max_depth} deep, in '{name}'", call.node.span))
        stack_bytes = int(words[STACK_END // 8] - words[STACK_START // 8])
        if stack_bytes >= self._limits.max_bytes:
            message = f"the levels of the recursion of '{name}' need more than {self._limits.max_bytes} bytes"
            raise LimitError(Diagnostic(message, call.node.span))
        self._stack_bytes = max(self._stack_bytes, min(STACK_GROWTH * stack_bytes, self._limits.max_bytes))
        self._spare.clear()
        workspace = self.new_workspace()
        self.run(workspace, args, results)
        self.give_back(workspace)


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
        self._kept = kept
        at = calls_at(loops) // 8
        for called in kernels_of(loops):
            table = memory.table(called.kernel)
            objects = np.frombuffer(table, np.int64)
            objects[: len(called.objects)] = [base + cell(s) for s in called.objects]
            kept.append(table)
            for function, _ in called.kernel.calls:
                self.array[at : at + 2] = function, address_of(table)
                at += 2

    def give_stack(self, nbytes: int, most_depth: int) -> None:
        """Memory for the records of recursive calls; that of which nothing is used costs nothing."""
        stack = aligned(nbytes)
        self._kept.append(stack)
        self.array[STACK_START // 8] = stack.ctypes.data
        self.array[STACK_END // 8] = stack.ctypes.data + nbytes
        self.array[MOST_DEPTH // 8] = most_depth

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
