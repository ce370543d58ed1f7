"""The memory of a call of a kernel, as it is when the call begins.

It is one piece: a head and instructions (`dispatch.py`), the tables that kernels run on, and behind these words all values. The
words are plain data: they are copied here, are data of an object file (`aot/entry.py`), and are written down and read again
(`aot/stored_kernel.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.memory.pages import ALIGNMENT
from deepx_graph.runtime.memory.pool import room
from deepx_graph.runtime.native.dispatch import (
    HEAD,
    LIMIT,
    MOST_DEPTH,
    POOL,
    SHARE,
    STACK_END,
    STACK_START,
    START,
    Opcode,
)
from deepx_graph.runtime.native.threads import pool


@dataclass(frozen=True)
class ConstantWord:
    """A word that is the address of an array's elements."""

    at: int
    array: Array


@dataclass(frozen=True, eq=False)
class CallImage:
    """The words of a call, and the size of its memory; words are numbered."""

    words: Array
    inner: Array
    """The words that are addresses in this memory: they have the offsets."""
    constants: tuple[ConstantWord, ...]
    functions: tuple[tuple[int, int], ...]
    """The words that are addresses of machine functions, and these."""
    nbytes: int
    team: int
    """How many threads share its work at most."""

    @property
    def value_bytes(self) -> int:
        """The memory of all values."""
        return self.nbytes - self.words.nbytes

    @property
    def addresses(self) -> tuple[int, ...]:
        """The machine functions of which it has addresses."""
        return tuple(address for _, address in self.functions)

    def in_memory(self, stack_bytes: int = 0, most_depth: int = 0) -> Array:
        """The words of one call at a time in this process, with all that they point to but constants; behind it so many bytes for
        the records of recursive calls: that of which nothing is used costs nothing."""
        memory = room(rounded(self.nbytes) + stack_bytes)
        words: Array = memory[: self.words.nbytes].view(np.int64)
        words[:] = self.words
        words[self.inner] += words.ctypes.data
        for c in self.constants:
            words[c.at] = c.array.ctypes.data
        for at, function in self.functions:
            words[at] = function
        if self.team > 1:
            words[SHARE // 8], words[POOL // 8] = pool().share_address, pool().address
        start = words.ctypes.data + rounded(self.nbytes)
        words[STACK_START // 8], words[STACK_END // 8], words[MOST_DEPTH // 8] = start, start + stack_bytes, most_depth
        return words


class Label:
    """A place among the instructions, once it is known."""

    at = 0


@dataclass(frozen=True)
class ValueOffset:
    """An offset in the memory of values."""

    offset: int


@dataclass(frozen=True)
class CellOffset:
    """So many bytes behind what a cell has when the instructions get here."""

    cell: int
    offset: int


MemoryOffset = int | CellOffset
"""Where memory begins: so far in that of values, or behind what a cell has."""


@dataclass(frozen=True)
class FunctionAddress:
    """The address of a machine function."""

    address: int


Operand = int | Label | ValueOffset | FunctionAddress


@dataclass
class ImageWriter:
    """An image that is being written, which begins with slots for so many array objects, behind the head."""

    objects: int
    team: int = 1
    _words: list[int] = field(default_factory=lambda: [0] * (HEAD // 8))
    _code: list[Operand] = field(default_factory=list)
    _inner: list[int] = field(default_factory=list)
    _values: list[int] = field(default_factory=list)
    _constants: list[ConstantWord] = field(default_factory=list)
    _functions: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.words(self.objects)

    def words(self, count: int) -> int:
        """Where so many new words are."""
        self._words += [0] * count
        return 8 * (len(self._words) - count)

    def number(self, at: int, number: int) -> None:
        """Lets a word be a number."""
        self._words[at // 8] = number

    def point(self, at: int, offset: int) -> None:
        """Lets a word be the address of another one."""
        self.number(at, offset)
        self._inner.append(at // 8)

    def value(self, at: int, offset: int) -> None:
        """Lets a word be an address in the memory of values."""
        self.point(at, offset)
        self._values.append(at // 8)

    def memory(self, at: int, offset: MemoryOffset) -> None:
        """Lets a word be the address of a place, where that is behind a cell from now on."""
        if isinstance(offset, CellOffset):
            self.code(Opcode.BEHIND, at, offset.cell, offset.offset)
        else:
            self.value(at, offset)

    def constant(self, at: int, array: Array) -> None:
        """Lets a word be the address of an array's elements."""
        self._constants.append(ConstantWord(at // 8, array))

    def function(self, at: int, address: int) -> None:
        """Lets a word be the address of a machine function."""
        self._functions.append((at // 8, address))

    def code(self, code: Opcode, *operands: Operand) -> None:
        """An instruction."""
        behind = Label()
        self._code += (int(code), behind, *operands)
        self.bind(behind)

    def bind(self, label: Label) -> None:
        """Lets a label be here."""
        label.at = len(self._code)

    def run(self, function: int, table: int, threads: int, memory: tuple[int, int]) -> None:
        """Calls a machine function with a table; in so many threads, where they share its work. `memory` says where what threads
        have begins among values, and the bytes of each."""
        scratch, each = memory
        if not threads:
            self.code(Opcode.ALONE, FunctionAddress(function), table, ValueOffset(scratch))
            return
        scratches, self.team = self.words(threads), max(self.team, threads)
        for k in range(threads if each else 0):
            self.value(scratches + 8 * k, scratch + k * each)
        self.code(Opcode.SHARED, FunctionAddress(function), table, scratches, threads)

    def image(self, value_bytes: int, limit: int) -> CallImage:
        """All of it, with so many bytes of values; it does so many jumps back in one call."""
        self.code(Opcode.RETURN)
        start = self._words[START // 8] = 8 * len(self._words)
        self._words[LIMIT // 8] = limit
        values = rounded(start + 8 * len(self._code))
        called = [(at, x.address) for at, x in enumerate(self._code, start // 8) if isinstance(x, FunctionAddress)]
        words = np.zeros(values // 8, np.int64)
        words[: len(self._words) + len(self._code)] = [*self._words, *_resolved(self._code, start, values)]
        words[self._values] += values
        return CallImage(words, np.array(self._inner, np.int64), tuple(self._constants),
                         (*self._functions, *called), values + value_bytes, self.team)


def _resolved(code: Sequence[Operand], start: int, values: int) -> Iterator[int]:
    for x in code:
        match x:
            case Label():
                yield start + 8 * x.at
            case ValueOffset(offset):
                yield values + offset
            case FunctionAddress():
                yield 0
            case _:
                yield x


def rounded(size: int) -> int:
    """A size in whole units of the alignment."""
    return -(-size // ALIGNMENT) * ALIGNMENT
