"""Steps on storages as one LLVM function that calls kernels where they are and iterates by itself.

`iterate(table, scratch)`: `table` holds the arguments and results as array objects and the address of the words. A storage is what
kernels take for an array object: its buffer's address stands where an array keeps that of its elements, and a swap exchanges two of
them. After so many jumps back the function notes where it is and returns, and goes on there when it is called again.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deepx_graph.runtime.bytecode.code import Instruction, Jump, Move, Return, Run, Select, Skip, Test
from deepx_graph.runtime.native.loopnest.table import DATA
from deepx_graph.runtime.native.loops.small_body import Action, Called, Copied, LoopPlan, RowCopy, Storage, Swapped

RESUME, LIMIT, LEFT, SCRATCH = 0, 8, 16, 24
"""Bytes of the words: where to go on (0 from the start), jumps back in one call, how many are left, and memory for kernels."""

HEAD, CELL = 32, 32
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
        self.lines: list[str] = []
        self._names = 0
        self._calls = 0
        self.marks = marks_of(loops)

    def text(self) -> str:
        stops = sorted({i.to for at, i in enumerate(self.loops.code.instructions) if isinstance(i, Jump) and i.to <= at})
        self._begin(stops)
        for at, i in enumerate(self.loops.code.instructions):
            self.lines.append(f"at{at}:")
            for action in self.loops.actions[at]:
                self._action(action)
            self._control(i, at)
        head = "define void @iterate(ptr noalias %table, ptr %scratch) nounwind {"
        copy = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
        smax, smin, umin = (f"declare i64 @llvm.{name}.i64(i64, i64)" for name in ("smax", "smin", "umin"))
        return "\n".join([head, "entry:", *self.lines, "}", copy, smax, smin, umin, ""])

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str) -> str:
        self._names += 1
        self.line(f"%v{self._names} = {text}")
        return f"%v{self._names}"

    def word(self, offset: int) -> str:
        """The address of a word."""
        return self.let(f"getelementptr i8, ptr %words, i64 {offset}")

    def buffer(self, storage: int) -> str:
        return self.let(f"load ptr, ptr {self.word(cell(storage) + DATA)}")

    def _begin(self, stops: Sequence[int]) -> None:
        count = len(self.params) + len(self.loops.results)
        slot = self.let(f"getelementptr ptr, ptr %table, i64 {count}")
        self.line(f"%words = load ptr, ptr {slot}")
        self.line(f"%inner = load ptr, ptr {self.word(SCRATCH)}")
        self.line(f"store i64 {self.let(f'load i64, ptr {self.word(LIMIT)}')}, ptr {self.word(LEFT)}")
        resume = self.let(f"load i64, ptr {self.word(RESUME)}")
        self.line(f"switch i64 {resume}, label %start [{' '.join(f'i64 {s}, label %at{s}' for s in stops)}]")
        self.lines.append("start:")
        for k, param in enumerate(self.params):
            found = next(n for n, s in enumerate(self.loops.storages) if s.param == param)
            self.line(f"store ptr {self._object(k)}, ptr {self.word(cell(found) + DATA)}")
        self.line("br label %at0")

    def _object(self, slot: int) -> str:
        """Where the elements of an array object in the table are."""
        at = self.let(f"load ptr, ptr {self.let(f'getelementptr ptr, ptr %table, i64 {slot}')}")
        return self.let(f"load ptr, ptr {self.let(f'getelementptr i8, ptr {at}, i64 {DATA}')}")

    # --- actions

    def _action(self, action: Action) -> None:
        match action:
            case Called(kernel):
                for _ in kernel.calls:
                    at = calls_at(self.loops) + 16 * self._calls
                    self._calls += 1
                    function, table = (self.let(f"load ptr, ptr {self.word(at + k)}") for k in (0, 8))
                    self.line(f"call void {function}(ptr {table}, ptr %inner)")
            case Copied(source, target, runs):
                a, b = self.buffer(source), self.buffer(target)
                for start, to, nbytes in runs:
                    self._copy(self._at(b, str(to)), self._at(a, str(start)), nbytes)
            case RowCopy():
                self._row(action)
            case Swapped(one, other):
                a, b = self.buffer(one), self.buffer(other)
                self.line(f"store ptr {b}, ptr {self.word(cell(one) + DATA)}")
                self.line(f"store ptr {a}, ptr {self.word(cell(other) + DATA)}")

    def _at(self, pointer: str, offset: str) -> str:
        return self.let(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def _copy(self, target: str, source: str, nbytes: int) -> None:
        self.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {nbytes}, i1 false)")

    def _row(self, row: RowCopy) -> None:
        offset = "0"
        for index in row.at:
            start = self._integer(self.loops.storages[index.storage], index.storage)
            if self.loops.storages[index.storage].dtype.kind == "u":
                start = self.let(f"call i64 @llvm.umin.i64(i64 {start}, i64 {index.most})")
            else:
                start = self.let(f"call i64 @llvm.smax.i64(i64 {start}, i64 0)")
                start = self.let(f"call i64 @llvm.smin.i64(i64 {start}, i64 {index.most})")
            offset = self.let(f"add i64 {offset}, {self.let(f'mul i64 {start}, {index.stride}')}")
        source, target = self.buffer(row.source), self.buffer(row.target)
        if row.reads:
            self._copy(target, self._at(source, offset), row.nbytes)
        else:
            self._copy(self._at(target, offset), source, row.nbytes)

    def _integer(self, storage: Storage, number: int) -> str:
        """A scalar as 64 bits."""
        kind = f"i{8 * storage.dtype.itemsize}"
        raw = self.let(f"load {kind}, ptr {self.buffer(number)}")
        if kind == "i64":
            return raw
        return self.let(f"{'sext' if storage.dtype.kind == 'i' else 'zext'} {kind} {raw} to i64")

    # --- control

    def _control(self, i: Instruction, at: int) -> None:
        match i:
            case Jump(to) if to <= at:
                self._again(to, at)
            case Jump(to):
                self.line(f"br label %at{to}")
            case Test(_, _, to):
                holds = self.let(f"icmp ne i64 {self._integer(*self._tested(at))}, 0")
                self.line(f"br i1 {holds}, label %at{at + 1}, label %at{to}")
            case Select(_, _, targets):
                storage, number = self._tested(at)
                value, last = self._integer(storage, number), targets[-1]
                if storage.dtype == np.bool_:
                    value, targets = self.let(f"xor i64 {value}, 1"), targets[:2]
                self.line(f"switch i64 {value}, label %at{last} "
                          f"[{' '.join(f'i64 {k}, label %at{to}' for k, to in enumerate(targets))}]")
            case Skip(mark, to):
                word = self._mark(mark)
                done = self.let(f"icmp ne i64 {self.let(f'load i64, ptr {word}')}, 0")
                self.line(f"store i64 1, ptr {word}")
                self.line(f"br i1 {done}, label %at{to}, label %at{at + 1}")
            case Return():
                self._return()
            case Move(_, _, clears):
                for mark in clears:
                    self.line(f"store i64 0, ptr {self._mark(mark)}")
                self.line(f"br label %at{at + 1}")
            case Run() | _:
                self.line(f"br label %at{at + 1}")

    def _tested(self, at: int) -> tuple[Storage, int]:
        number = self.loops.tested[at]
        return self.loops.storages[number], number

    def _mark(self, mark: int) -> str:
        base = calls_at(self.loops) + 16 * sum(len(c.kernel.calls) for c in kernels_of(self.loops))
        return self.word(base + 8 * self.marks[mark])

    def _again(self, to: int, at: int) -> None:
        """Back to the head of a loop, unless the call has had its share of iterations."""
        word = self.word(LEFT)
        left = self.let(f"sub i64 {self.let(f'load i64, ptr {word}')}, 1")
        self.line(f"store i64 {left}, ptr {word}")
        more = self.let(f"icmp sgt i64 {left}, 0")
        self.line(f"br i1 {more}, label %at{to}, label %stop{at}")
        self.lines.append(f"stop{at}:")
        self.line(f"store i64 {to}, ptr {self.word(RESUME)}")
        self.line("ret void")

    def _return(self) -> None:
        for k, storage in enumerate(self.loops.results):
            self._copy(self._object(len(self.params) + k), self.buffer(storage), self.loops.storages[storage].nbytes)
        self.line(f"store i64 0, ptr {self.word(RESUME)}")
        self.line("ret void")
