"""The machine function that runs every kernel: it goes through the instructions in the memory of a call.

`dispatch(words)`: the memory of a call begins with words (`call_image.py`), of which some are instructions. So neither a kernel nor
a whole program, whose control flow they are, has code of its own beside its loops (J. R. Bell, Threaded code, 1973). After so many
jumps back it notes where it is and returns, and goes on there when it is called again: what runs long can be interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache

from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.builder import IRBuilder, branch, leave_if

DATA = 16
"""Where an array object of CPython keeps the address of its elements; the trampoline checks it."""

RESUME, FAILED, LIMIT, LEFT, START, COUNTER, SHARE, POOL, STACK, STACK_START, STACK_END, DEPTH, MOST_DEPTH, RECORD, HEAD = range(
    0, 120, 8)
"""Bytes of the head: the instruction to go on with (0 from the start), one more than the number of that which had no room (0 for
none), jumps back in one call, how many are left, the first instruction, and what threads that share work need
(`threads.WorkerPool`). Of recursive calls the end of the records, the memory for them, how many there are and may be, and where
the last one begins."""


@dataclass(frozen=True)
class TableSlot:
    """Where an address is told: by the word of that number in the table, or by the array object there; so many bytes behind it."""

    number: int
    is_object: bool = False
    offset: int = 0

    def address(self, t: IRBuilder) -> str:
        """The address, in a function whose table is `%table`."""
        found = t.word("%table", self.number, "ptr")
        if self.is_object:
            found = t.word(t.behind(found, DATA), 0, "ptr")
        return t.behind(found, self.offset) if self.offset else found


class Opcode(IntEnum):
    """Instructions: the methods of `_Writer` say what they do. An instruction is its code, where the next one is, and operands:
    numbers, addresses of machine functions, and where something is, in bytes from the first word on. A *cell* is a word with the
    address of elements: it stands where an array object has that."""

    RETURN, ALONE, SHARED, OBJECT, BEHIND, COPY, SWAP, SET, JUMP, BACK, SELECT, SKIP, PUSH, POP, GO = range(15)


class _Writer:
    """Writes an instruction each; a method gives where to go on, where that is not the next one."""

    def __init__(self) -> None:
        self.t = IRBuilder(1)

    def number(self, k: int, type: str = "i64") -> str:
        """An operand."""
        return self.t.word("%i", k + 2, type)

    def pointer(self, k: int) -> str:
        """The address of what an operand says."""
        return self.t.behind("%words", self.number(k))

    def held(self, k: int) -> str:
        """The address that a cell has."""
        return self.t.word(self.pointer(k), 0, "ptr")

    def head(self, word: int, type: str = "i64") -> str:
        """What a word of the head has."""
        return self.t.word("%words", word // 8, type)

    def put(self, value: str, at: str | int, type: str = "i64") -> None:
        """Stores a word at an address, or in the head."""
        self.t.line(f"store {type} {value}, ptr {self.t.behind('%words', at) if isinstance(at, int) else at}")

    def move(self, target: str, source: str, nbytes: str) -> None:
        """Copies memory."""
        self.t.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {nbytes}, i1 false)")

    def alone(self) -> None:
        """function, table, scratch: `function(table, scratch)`."""
        self.t.line(f"call void {self.number(0, 'ptr')}(ptr {self.pointer(1)}, ptr {self.pointer(2)})")

    def shared(self) -> None:
        """function, table, scratches, threads: `function(table, counter, scratch)` in so many threads."""
        t, function, table, scratches, threads = self.t, self.number(0, "ptr"), self.pointer(1), self.pointer(2), self.number(3)
        self.put("0", COUNTER)
        counter, share, pool = t.behind("%words", COUNTER), self.head(SHARE, "ptr"), self.head(POOL, "ptr")
        branch(t, t.let(f"icmp sgt i64 {threads}, 1"),
               lambda: t.line(f"call void {share}(ptr {pool}, i64 {threads}, ptr {function}, ptr {table}, ptr {counter},"
                              f" ptr {scratches})"),
               lambda: t.line(f"call void {function}(ptr {table}, ptr {counter}, ptr {t.word(scratches, 0, 'ptr')})"))

    def object(self) -> None:
        """cell, slot: the elements of the array object in a slot."""
        self.put(self.t.word(self.t.behind(self.held(1), DATA), 0, "ptr"), self.pointer(0), "ptr")

    def behind(self) -> None:
        """cell, other, offset: so many bytes behind what another one has."""
        self.put(self.t.behind(self.held(1), self.number(2)), self.pointer(0), "ptr")

    def copy(self) -> None:
        """cell, source, bytes: the elements of another one, unless they are the same."""
        target, source = self.held(0), self.held(1)
        branch(self.t, self.t.let(f"icmp ne ptr {target}, {source}"), lambda: self.move(target, source, self.number(2)))

    def swap(self) -> None:
        """cell, other: exchange what they have."""
        one, other = self.held(0), self.held(1)
        self.put(other, self.pointer(0), "ptr")
        self.put(one, self.pointer(1), "ptr")

    def set(self) -> None:
        """word, number."""
        self.put(self.number(1), self.pointer(0))

    def jump(self) -> str:
        """to."""
        return self.number(0)

    def back(self) -> str:
        """to: the same, unless this was the last of the jumps back in one call."""
        left, to = self.t.let(f"sub i64 {self.head(LEFT)}, 1"), self.number(0)
        self.put(left, LEFT)
        leave_if(self.t, self.t.let(f"icmp slt i64 {left}, 1"), lambda: self._leave(to))
        return to

    def select(self) -> str:
        """cell, bytes, other bits of a word, whether it is signed, last, targets: that of its number, the last one for others."""
        t, at, nbytes, other = self.t, self.held(0), self.number(1), self.number(2)
        self.put("0", "%value")
        branch(t, t.let(f"icmp eq i64 {nbytes}, 1"),
               lambda: self.put(t.let(f"zext i8 {t.let(f'load i8, ptr {at}')} to i64"), "%value"),
               lambda: self.move("%value", at, nbytes))
        high = t.let(f"shl i64 {t.word('%value')}, {other}")
        signed, unsigned = (t.let(f"{shift} i64 {high}, {other}") for shift in ("ashr", "lshr"))
        found = t.let(f"select i1 {t.let(f'icmp ne i64 {self.number(3)}, 0')}, i64 {signed}, i64 {unsigned}")
        last, targets = self.number(4), t.behind("%i", 8 * 7)
        return t.word(targets, t.let(f"select i1 {t.let(f'icmp ult i64 {found}, {last}')}, i64 {found}, i64 {last}"))

    def skip(self) -> str:
        """mark, to: go there where the word is not 0; else set it."""
        is_set = self.t.let(f"icmp ne i64 {self.t.word(self.pointer(0))}, 0")
        self.put("1", self.pointer(0))
        return self.t.let(f"select i1 {is_set}, i64 {self.number(1)}, i64 {self.number(-1)}")

    def push(self) -> None:
        """words, bytes, bytes of a record, number: puts words on the stack; fails with the number where there is no room."""
        t, stack, depth = self.t, self.head(STACK, "ptr"), self.t.let(f"add i64 {self.head(DEPTH)}, 1")
        end = t.behind(stack, self.number(2))
        full = t.let(f"icmp ugt ptr {end}, {self.head(STACK_END, 'ptr')}")
        deep = t.let(f"icmp sgt i64 {depth}, {self.head(MOST_DEPTH)}")

        def fail() -> None:
            self.put(t.let(f"add i64 {self.number(3)}, 1"), FAILED)
            self._leave("0")

        leave_if(t, t.let(f"or i1 {full}, {deep}"), fail)
        self.move(stack, self.pointer(0), self.number(1))
        self.put(stack, RECORD, "ptr")
        self.put(end, STACK, "ptr")
        self.put(depth, DEPTH)

    def pop(self) -> str:
        """words, bytes, bytes of a record: has them again, and goes where the first of them said."""
        to, stack = self.t.word(self.pointer(0)), self.t.behind(self.head(STACK, "ptr"), self.t.let(f"sub i64 0, {self.number(2)}"))
        self.move(self.pointer(0), stack, self.number(1))
        self.put(stack, STACK, "ptr")
        self.put(self.t.let(f"sub i64 {self.head(DEPTH)}, 1"), DEPTH)
        return to

    def go(self) -> str:
        """word: goes where it says."""
        return self.t.word(self.pointer(0))

    def _leave(self, resume: str) -> None:
        self.put(resume, RESUME)
        self.t.line("ret void")

    def text(self) -> str:
        """All of it."""
        t, codes = self.t, list(Opcode)[1:]
        t.line("%value = alloca i64")
        t.line("%at = alloca i64")
        resume = self.head(RESUME)
        is_new = t.let(f"icmp eq i64 {resume}, 0")
        self.put(t.let(f"select i1 {is_new}, i64 {self.head(START)}, i64 {resume}"), "%at")
        self.put(self.head(LIMIT), LEFT)

        def begin() -> None:
            self.put("0", FAILED)
            self.put("0", DEPTH)
            self.put(self.head(STACK_START, "ptr"), STACK, "ptr")

        branch(t, is_new, begin)
        t.line("br label %next")
        t.start("next")
        t.line(f"%i = getelementptr i8, ptr %words, i64 {t.word('%at')}")
        t.line(f"switch i64 {t.word('%i')}, label %done [{' '.join(f'i64 {int(c)}, label %{c.name}' for c in codes)}]")
        for code in codes:
            t.start(code.name)
            self.put(getattr(self, code.name.lower())() or self.number(-1), "%at")
            t.line("br label %next")
        t.start("done")
        self.put("0", RESUME)
        return "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n" + t.function("void @dispatch(ptr %words) nounwind")


def text() -> str:
    """The IR of `dispatch`."""
    return _Writer().text()


@cache
def address() -> int:
    """Where `dispatch` is in this process."""
    return machine_code.functions(text(), ["dispatch"])["dispatch"].address
