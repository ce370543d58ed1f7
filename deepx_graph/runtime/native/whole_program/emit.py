"""The machine function of a plan, as LLVM IR, and the words that it works on.

`iterate(table, scratch)`: `table` holds the arguments and results as array objects and the address of the words. A storage is what
kernels take for an array object: its buffer's address stands where an array keeps that of its elements, and a swap exchanges two of
them. After so many jumps back the function notes where it is and returns, and goes on there when it is called again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from deepx_graph.runtime.bytecode import Instruction, Jump, Move, Return, Run, Select, Skip, Test
from deepx_graph.runtime.native.llvm.builder import IRBuilder
from deepx_graph.runtime.native.machine_kernel import (
    DATA,
    rounded,
)
from deepx_graph.runtime.native.whole_program.plan import (
    Action,
    Called,
    Copied,
    Home,
    Invoked,
    ProgramPlan,
    Storage,
    Swapped,
    called,
)

RESUME, FAILED, LIMIT, LEFT, MEMORY, SCRATCHES, COUNTER, SHARE, POOL, STACK, STACK_START, STACK_END, DEPTH, MOST_DEPTH = range(
    0, 112, 8)
"""Bytes of the words: where to go on, by number (0 from the start), the position behind a call that had no room (0 for none), jumps
back in one call, how many are left, the memory of the plan, and what threads that share the work of one need (see
`threads.WorkerPool`). Of recursive calls the end of the records, the memory for them, and how many there are and may be."""

HEAD, CELL, HOME = 128, 32, 24
"""Bytes before the storages, of a storage, and before the address that its buffer has at first."""


def marks_of(plan: ProgramPlan) -> dict[int, int]:
    """A number for each slot that says that a `once` block has run."""
    found = [i.mark for i in plan.code.instructions if isinstance(i, Skip)]
    return {mark: k for k, mark in enumerate(dict.fromkeys(found))}


def kernels_of(plan: ProgramPlan) -> list[Called]:
    """The kernels that are called, in order."""
    return [call for _, call in called(plan.actions)]


def cell(storage: int) -> int:
    """Where a storage is among the words, in bytes."""
    return HEAD + CELL * storage


def calls_at(plan: ProgramPlan) -> int:
    """Where the functions of kernels and their tables are."""
    return cell(len(plan.storages))


def marks_at(plan: ProgramPlan) -> int:
    """Where the marks are, behind the functions of kernels."""
    return calls_at(plan) + 16 * sum(len(c.kernel.called) for c in kernels_of(plan))


def links_at(plan: ProgramPlan, function: int) -> int:
    """Where a function that is called has the position of its call, and the addresses of its results."""
    return marks_at(plan) + 8 * (len(marks_of(plan)) + sum(1 + len(f.results) for f in plan.functions[:function]))


def words_bytes(plan: ProgramPlan) -> int:
    """The size of the words."""
    return links_at(plan, len(plan.functions))


def function_text(plan: ProgramPlan, params: Sequence[int]) -> str:
    """The IR of `iterate`; `params` are the numbers of the arguments whose objects come first in the table."""
    return _Writer(plan, params).text()


class _Writer:
    """The function is not optimised: the few instructions around each call of a kernel are not what a program spends its time on,
    and LLVM would take a fifth of a second for those of a training step, more than for most kernels."""

    def __init__(self, plan: ProgramPlan, params: Sequence[int]) -> None:
        self.plan, self.params = plan, params
        self.t = IRBuilder(1)
        self._calls = 0
        self._workspaces = iter(plan.workspaces)
        self.marks = marks_of(plan)

    def text(self) -> str:
        stops = {i.to + 1: f"at{i.to}" for at, i in enumerate(self.plan.code.instructions) if isinstance(i, Jump) and i.to <= at}
        stops |= {-1 - at: f"call{at}" for k, f in enumerate(self.plan.functions) if f.is_recursive for at in self.callers(k)}
        self._begin(stops)
        for at, i in enumerate(self.plan.code.instructions):
            self.t.start(f"at{at}")
            for action in self.plan.actions[at]:
                self._action(action, at)
            self._control(i, at)
        head = "define void @iterate(ptr noalias %table, ptr %scratch) nounwind noinline optnone {"
        copy = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        return "\n".join([head, "entry:", *self.t.lines, "}", copy, ""])

    def word(self, offset: int) -> str:
        """The address of a word."""
        return self.t.let(f"getelementptr i8, ptr %words, i64 {offset}")

    def buffer(self, storage: int) -> str:
        return self.t.let(f"load ptr, ptr {self.word(cell(storage) + DATA)}")

    def _begin(self, stops: Mapping[int, str]) -> None:
        count = len(self.params) + len(self.plan.results)
        slot = self.t.let(f"getelementptr ptr, ptr %table, i64 {count}")
        self.t.line(f"%words = load ptr, ptr {slot}")
        self.t.line(f"%memory = load ptr, ptr {self.word(MEMORY)}")
        self.t.line(f"store i64 {self.t.let(f'load i64, ptr {self.word(LIMIT)}')}, ptr {self.word(LEFT)}")
        resume = self.t.let(f"load i64, ptr {self.word(RESUME)}")
        self.t.line(f"switch i64 {resume}, label %start [{' '.join(f'i64 {s}, label %{label}' for s, label in stops.items())}]")
        self.t.start("start")
        if self.plan.functions:
            for value, word in ((0, FAILED), (0, DEPTH)):
                self.t.line(f"store i64 {value}, ptr {self.word(word)}")
            self.t.line(f"store ptr {self.t.let(f'load ptr, ptr {self.word(STACK_START)}')}, ptr {self.word(STACK)}")
        storage_of = {s.param: n for n, s in reversed([*enumerate(self.plan.storages)])}
        for k, param in enumerate(self.params):
            self.t.line(f"store ptr {self._object(k)}, ptr {self.word(cell(storage_of[param]) + DATA)}")
        for number, piece in enumerate(self.plan.storages):
            if piece.inside is not None:
                start = self._at(self.buffer(piece.inside), str(piece.start))
                self.t.line(f"store ptr {start}, ptr {self.word(cell(number) + DATA)}")
        for storage, home in self.plan.homes.items():
            if home.result is not None:
                start = self._at(self._object(len(self.params) + home.result), str(home.offset))
                self.t.line(f"store ptr {start}, ptr {self.word(cell(storage) + DATA)}")
            elif storage in self.plan.exchanged:  # it may hold what was a result's in the call before
                start = self.t.let(f"load ptr, ptr {self.word(cell(storage) + HOME)}")
                self.t.line(f"store ptr {start}, ptr {self.word(cell(storage) + DATA)}")
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
                start = next(self._workspaces)[-1]
                for _, threads in kernel.called:
                    self._call(threads, start, rounded(kernel.layout.scratch_bytes))
            case Copied(source, target):
                self._copy(self.buffer(target), self.buffer(source), self.plan.storages[target].nbytes)
            case Swapped(one, other):
                a, b = self.buffer(one), self.buffer(other)
                self.t.line(f"store ptr {b}, ptr {self.word(cell(one) + DATA)}")
                self.t.line(f"store ptr {a}, ptr {self.word(cell(other) + DATA)}")

    def _call(self, threads: int, start: int, scratch_bytes: int) -> None:
        """The next of the functions, on one thread or by several that share its work, each with scratch memory, from a start on."""
        at = calls_at(self.plan) + 16 * self._calls
        self._calls += 1
        function, table = (self.t.let(f"load ptr, ptr {self.word(at + k)}") for k in (0, 8))
        if not threads:
            self.t.line(f"call void {function}(ptr {table}, ptr {self._at('%memory', str(start))})")
            return
        counter = self.word(COUNTER)
        self.t.line(f"store i64 0, ptr {counter}")
        share, pool, scratches = (self.t.let(f"load ptr, ptr {self.word(w)}") for w in (SHARE, POOL, SCRATCHES))
        for k in range(threads if scratch_bytes else 0):
            own = self._at("%memory", str(start + k * scratch_bytes))
            self.t.line(f"store ptr {own}, ptr {self._at(scratches, str(8 * k))}")
        self.t.line(f"call void {share}(ptr {pool}, i64 {threads}, ptr {function}, ptr {table}, ptr {counter}, ptr {scratches})")

    # --- calls of functions

    def callers(self, function: int) -> list[int]:
        """The positions that call a function."""
        return [at for at, actions in enumerate(self.plan.actions) for a in actions
                if isinstance(a, Invoked) and a.function == function]

    def _saved(self, function: int) -> list[int]:
        """The words that an activation of a function has changed, and that are those of the one before when it ends."""
        f, links = self.plan.functions[function], links_at(self.plan, function)
        cells = [cell(s) + DATA for s in range(f.low, f.high) if self.plan.storages[s].array is None]
        marks = {i.mark for i in self.plan.code.instructions[f.start : f.stop] if isinstance(i, Skip)}
        return [*(links + 8 * k for k in range(1 + len(f.results))), *cells, *map(self._mark_at, sorted(marks))]

    def _record(self, function: int) -> tuple[int, int]:
        """The bytes of a record before the values, and with them."""
        head = rounded(8 * len(self._saved(function)))
        return head, head + rounded(self.plan.functions[function].nbytes)

    def _invoke(self, action: Invoked, at: int) -> None:
        """Lets a function read the arguments where they are, and go on there."""
        f, links = self.plan.functions[action.function], links_at(self.plan, action.function)
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
        t, f, (head, size) = self.t, self.plan.functions[function], self._record(function)
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
        for storage in range(f.low, f.high):
            if (home := self.plan.homes.get(storage)) is not None:
                t.line(f"store ptr {self._at(stack, str(head + home.offset))}, ptr {self.word(cell(storage) + DATA)}")

    def _back(self, function: int) -> None:
        """Gives the results of a function to its caller, which goes on."""
        t, f, links = self.t, self.plan.functions[function], links_at(self.plan, function)
        for k, storage in enumerate(f.results, 1):
            target = t.let(f"load ptr, ptr {self.word(links + 8 * k)}")
            self._copy(target, self.buffer(storage), self.plan.storages[storage].nbytes)
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
                called = next((k for k, f in enumerate(self.plan.functions) if f.start <= at < f.stop), None)
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
        number = self.plan.tested[at]
        return self.plan.storages[number], number

    def _mark(self, mark: int) -> str:
        return self.word(self._mark_at(mark))

    def _mark_at(self, mark: int) -> int:
        return marks_at(self.plan) + 8 * self.marks[mark]

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
        """Copies what is elsewhere into the results: last those in which other values may be, as buffers were exchanged."""
        late = {k for k, s in enumerate(self.plan.results) if s in self.plan.exchanged and self.plan.homes[s] == Home(0, k)}
        for k in sorted(set(range(len(self.plan.results))) - self.plan.direct, key=lambda k: k in late):
            storage = self.plan.results[k]
            target, source = self._object(len(self.params) + k), self.buffer(storage)
            if k in late:
                self.t.line(f"br i1 {self.t.let(f'icmp eq ptr {target}, {source}')}, label %there{k}, label %elsewhere{k}")
                self.t.start(f"elsewhere{k}")
            self._copy(target, source, self.plan.storages[storage].nbytes)
            if k in late:
                self.t.line(f"br label %there{k}")
                self.t.start(f"there{k}")
        self.t.line(f"store i64 0, ptr {self.word(RESUME)}")
        self.t.line("ret void")
