"""The entry of a program for C: a machine function that makes in the caller's workspace what the plan's own function reads.

`NAME_run(in, out, workspace)`, or `NAME_run(in, out, workspace, pool)` where several threads share work, writes the words, storages
and tables that `native/whole_program/kernel.py` makes in this process into the workspace, and calls the same function on them.
Nothing is kept between calls: with different workspaces several may run at once. Constants are data of the object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from deepx_graph.literal import Array
from deepx_graph.runtime.kernels.memory import ALIGNMENT
from deepx_graph.runtime.native.llvm.builder import IRBuilder
from deepx_graph.runtime.native.machine_kernel import DATA, memory_sizes, rounded
from deepx_graph.runtime.native.whole_program.emit import (
    CELL,
    HOME,
    LIMIT,
    MEMORY,
    POOL,
    RESUME,
    SCRATCHES,
    SHARE,
    calls_at,
    cell,
    kernels_of,
    marks_of,
    words_bytes,
)
from deepx_graph.runtime.native.whole_program.plan import ProgramPlan

OK, BAD_WORKSPACE, BAD_POINTER = range(3)
"""What the entry returns."""

ITERATE = "iterate"
"""The plan's own function."""

PART = 256
"""Lines of a function of the entry: LLVM's time for a function grows with the square of its stores."""

UNLIMITED = 1 << 62
"""Jumps back in one call: it returns only when it is done."""

SHARE_ALONE = """define internal void @share(ptr %pool, i64 %threads, ptr %function, ptr %table, ptr %counter, ptr %scratches) {
entry:
  %scratch = load ptr, ptr %scratches
  call void %function(ptr %table, ptr %counter, ptr %scratch)
  ret void
}
"""
"""Work that several threads would share, done by one."""

LACKS = """define internal i1 @lacks(ptr %arrays, i64 %count) {
entry:
  br label %head
head:
  %k = phi i64 [0, %entry], [%next, %body]
  %more = icmp ult i64 %k, %count
  br i1 %more, label %body, label %none
body:
  %at = getelementptr ptr, ptr %arrays, i64 %k
  %data = load ptr, ptr %at
  %next = add i64 %k, 1
  %missing = icmp eq ptr %data, null
  br i1 %missing, label %some, label %head
some:
  ret i1 true
none:
  ret i1 false
}
"""
"""Whether one of so many pointers is null."""

POOL_WORDS = {SHARE: 0, POOL: 8}
"""Where the entry finds what words hold, in what it is given to have work shared out."""


@dataclass(frozen=True)
class EntryLayout:
    """Where things are in the workspace, in bytes from its start. The words come first."""

    objects: int
    """What stands for the array objects of arguments, then results."""
    table: int
    tables: tuple[int, ...]
    """Of each call of a kernel."""
    scratches: int
    """Room for the addresses of what each of `threads` has."""
    values: int
    """What the plan's offsets are from."""
    nbytes: int
    threads: int

    @staticmethod
    def of(plan: ProgramPlan, objects: int) -> EntryLayout:
        """The layout for a plan with so many arguments and results."""
        kernels = [c.kernel for c in kernels_of(plan)]
        _, _, threads = memory_sizes(kernels)
        sizes = [words_bytes(plan), CELL * objects, 8 * (objects + 1), *(8 * k.layout.size for k in kernels), 8 * threads,
                 plan.nbytes]
        _, at, table, *rest = accumulate(map(rounded, sizes), initial=0)
        tables, (scratches, values, end) = rest[: len(kernels)], rest[len(kernels) :]
        return EntryLayout(at, table, tuple(tables), scratches, values, end, threads)


def _definition(head: str, lines: Sequence[str]) -> str:
    return "\n".join([f"define {head} nounwind {{", "entry:", *lines, "}"])


def entry_text(plan: ProgramPlan, params: int, name: str, symbol: Callable[[int], str], layout: EntryLayout) -> str:
    """The IR of `name`, which takes so many arguments. `symbol` is the name of a machine function of a kernel, by its address."""
    return _Entry(plan, params, symbol, layout).text(name)


class _Entry:
    def __init__(self, plan: ProgramPlan, params: int, symbol: Callable[[int], str], layout: EntryLayout) -> None:
        self.plan, self.params, self.symbol, self.layout = plan, params, symbol, layout
        self.t = IRBuilder(1)
        self.data: dict[str, str] = {}
        """The names of constants, by how they are written."""
        self.parts: list[list[str]] = []
        """The lines of the functions that make what the plan's function reads."""

    def text(self, name: str) -> str:
        alone = self.layout.threads == 1
        taken = f"ptr %in, ptr %out, ptr %workspace{'' if alone else ', ptr %pool'}"
        self._objects()
        self._words()
        self._storages()
        self._calls()
        self._cut(0)
        self._check()
        for k in range(len(self.parts)):
            self.t.line(f"call void @part{k}({taken})")
        self.t.line(f"call void @{ITERATE}(ptr {self._at(self.layout.table)}, ptr null)")
        self.t.line(f"ret i32 {OK}")
        constants = [f"{symbol} = internal constant {data}, align {ALIGNMENT}" for data, symbol in self.data.items()]
        own = f"declare void @{ITERATE}(ptr, ptr)"
        parts = [_definition(f"internal void @part{k}({taken})", [*lines, "  ret void"]) for k, lines in enumerate(self.parts)]
        return "\n".join([*constants, *self.t.declarations, own, LACKS, SHARE_ALONE if alone else "", *parts,
                          _definition(f"i32 @{name}({taken})", self.t.lines), ""])

    def _cut(self, most: int = PART) -> None:
        """Begins another part, where the present one has more than so many lines. Names of values are of one part."""
        if len(self.t.lines) > most:
            self.parts.append(self.t.lines)
            self.t.lines = []

    # --- what the caller gives

    def _check(self) -> None:
        """Returns at once where the workspace is none, or not aligned."""
        address = self.t.let("ptrtoint ptr %workspace to i64")
        odd = self.t.let(f"icmp ne i64 {self.t.let(f'and i64 {address}, {ALIGNMENT - 1}')}, 0")
        wrong = self.t.let(f"or i1 {odd}, {self.t.let('icmp eq ptr %workspace, null')}")
        self._refuse(wrong, BAD_WORKSPACE)
        lacks = [self.t.let(f"call i1 @lacks(ptr {array}, i64 {count})")
                 for array, count in (("%in", self.params), ("%out", len(self.plan.results)))]
        self._refuse(self.t.let(f"or i1 {lacks[0]}, {lacks[1]}"), BAD_POINTER)

    def _refuse(self, wrong: str, status: int) -> None:
        self.t.line(f"br i1 {wrong}, label %refused{status}, label %passed{status}")
        self.t.start(f"refused{status}")
        self.t.line(f"ret i32 {status}")
        self.t.start(f"passed{status}")

    def _objects(self) -> None:
        """The objects of arguments and results, and the table that has them first and then the words."""
        given = [("%in", k) for k in range(self.params)] + [("%out", k) for k in range(len(self.plan.results))]
        for k, (array, number) in enumerate(given):
            self._cut()
            data = self.t.let(f"load ptr, ptr {self.t.let(f'getelementptr ptr, ptr {array}, i64 {number}')}")
            self._store(data, self.layout.objects + CELL * k + DATA)
            self._store(self._at(self.layout.objects + CELL * k), self.layout.table + 8 * k)
        self._store("%workspace", self.layout.table + 8 * len(given))

    # --- what the plan's function reads

    def _words(self) -> None:
        self._number(0, RESUME)
        self._number(UNLIMITED, LIMIT)
        self._store(self._at(self.layout.values), MEMORY)
        self._store(self._at(self.layout.scratches), SCRATCHES)
        if self.layout.threads == 1:
            self._store("@share", SHARE)
        else:
            for word, at in POOL_WORDS.items():
                self._store(self.t.let(f"load ptr, ptr {self.t.let(f'getelementptr i8, ptr %pool, i64 {at}')}"), word)
        marks = len(marks_of(self.plan))
        for k in range(marks):
            self._number(0, words_bytes(self.plan) - 8 * (k + 1))

    def _storages(self) -> None:
        for number, storage in enumerate(self.plan.storages):
            self._cut()
            if storage.array is not None:
                self._store(self._constant(storage.array), cell(number) + DATA)
            elif (home := self.plan.homes.get(number)) is not None and home.result is None:
                for at in (DATA, HOME):
                    self._store(self._at(self.layout.values + home.offset), cell(number) + at)

    def _calls(self) -> None:
        at = calls_at(self.plan)
        for called, table, start in zip(kernels_of(self.plan), self.layout.tables, self.plan.workspaces, strict=True):
            self._cut()
            kernel = called.kernel
            for k, storage in enumerate(called.objects):
                self._store(self._at(cell(storage)), table + 8 * k)
            own = [self._at(self.layout.values + start + offset) for offset in kernel.own[0]]
            data = [self._constant(a, () if k else kernel.relocations) for k, a in enumerate(kernel.constants)]
            for k, address in enumerate([*data, *own], kernel.layout.objects):
                self._store(address, table + 8 * k)
            for function, _ in kernel.calls:
                self._store(self._function(function), at)
                self._store(self._at(table), at + 8)
                at += 16

    def _function(self, address: int) -> str:
        symbol = f"@{self.symbol(address)}"
        self.t.declare(f"declare void {symbol}()")  # only its address is taken here
        return symbol

    # --- memory

    def _constant(self, array: Array, relocations: Sequence[int] = ()) -> str:
        """The name of a constant, of which some words are addresses of machine functions."""
        if relocations:
            words = [f"i64 {w}" for w in array.tolist()]
            for at in relocations:
                words[at] = f"i64 ptrtoint (ptr {self._function(int(array[at]))} to i64)"
            text = f"[{len(words)} x i64] [{', '.join(words)}]"
        else:
            data = array.tobytes()
            text = f'[{len(data)} x i8] c"{_escaped(data)}"'
        return self.data.setdefault(text, f"@data{len(self.data)}")

    def _at(self, offset: int) -> str:
        return self.t.let(f"getelementptr i8, ptr %workspace, i64 {offset}")

    def _store(self, pointer: str, offset: int) -> None:
        self.t.line(f"store ptr {pointer}, ptr {self._at(offset)}")

    def _number(self, value: int, offset: int) -> None:
        self.t.line(f"store i64 {value}, ptr {self._at(offset)}")


_HEX: Sequence[str] = [f"\\{byte:02X}" for byte in range(256)]


def _escaped(data: bytes) -> str:
    """Bytes as LLVM reads them between quotes."""
    return "".join(map(_HEX.__getitem__, data))
