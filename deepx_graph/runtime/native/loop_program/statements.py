"""The statements of a loop program as LLVM IR but for loops, element by element: scalars, and the memory that they are in.

Cells are stack slots, which LLVM keeps in registers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deepx_graph.loops.program import (
    Buffer,
    Cell,
    Combine,
    Conditional,
    Copy,
    For,
    Get,
    Let,
    Load,
    LoopProgram,
    Set,
    Statement,
    Store,
    While,
    position_in,
    walk,
)
from deepx_graph.loops.scalar import Affine, Scalar, ScalarConst, ScalarVar
from deepx_graph.runtime.native.llvm.builder import IRBuilder, VectorValue, branch, memory_type, number, scalar_type
from deepx_graph.runtime.native.llvm.target import Target
from deepx_graph.runtime.native.loop_program.extremes import chained
from deepx_graph.runtime.native.loop_program.primitives import held, lower_primitive, np_dtype
from deepx_graph.types import BOOL, DType

CACHE_BYTES = 64 << 20
"""Loops that read and write more than this leave nothing of their results in the caches."""


@dataclass(frozen=True)
class Traffic:
    """How a function uses memory."""

    far: frozenset[Buffer] = frozenset()
    """Buffers of which nothing stays in a cache from one use of the function to the next."""
    streams: frozenset[Buffer] = frozenset()
    """Those that are stored past the caches."""
    near: frozenset[Buffer] = frozenset()
    """Those that may be the same memory as another."""


def traffic_of(program: LoopProgram, body: Sequence[Statement], near: frozenset[Buffer]) -> Traffic:
    """How statements of a program use memory: results that nothing reads are stored past the caches, where so much is touched that
    nothing of it stays there."""
    touched = {s.buffer for s in walk(list(body)) if isinstance(s, (Load, Store)) and s.buffer.role != "local"}
    if sum(b.nbytes for b in touched) < CACHE_BYTES:
        return Traffic(near=near)
    read = {s.buffer if isinstance(s, Load) else s.source for s in walk(program.body) if isinstance(s, (Load, Copy))}
    return Traffic(frozenset(touched), frozenset(touched & set(program.results)) - read, near)


class StatementEmitter(ABC):
    """Writes the statements of one function."""

    def __init__(self, machine: Target, metadata: Iterator[int], traffic: Traffic | None = None) -> None:
        self.t, self.machine, self.metadata = IRBuilder(1, machine.register_bytes == 64), machine, metadata
        self.traffic, self.swept = traffic or Traffic(), set[tuple[Buffer, Affine]]()
        """The last: rows of buffers that loops before have read, each by where it begins."""
        self.slots: dict[Cell, str] = {}
        self.locals: dict[Buffer, str] = {}
        self.used: dict[Buffer, None] = {}
        self.env: dict[ScalarVar, str] = {}
        self.group = ""
        """The accesses of an innermost loop, and of the one around it if it is short, where pointers may be the same: no iteration
        of a parallel loop depends on another one."""

    @abstractmethod
    def _loop(self, s: For, low: str, high: str) -> None:
        """Writes a loop from `low` up to below `high`."""

    def block(self, body: Sequence[Statement]) -> None:
        """Statements in order."""
        for s in chained(body):
            self.statement(s)

    def statement(self, s: Statement) -> None:
        """One statement."""
        match s:
            case Let(target, primitive, args):
                self.env[target] = self._let(primitive, args, target.dtype)
            case Load(target, buffer, index):
                self.env[target] = self._load(buffer, index)
            case Store(buffer, index, value):
                self._store(buffer, index, value)
            case Get(target, cell):
                self.env[target] = self.t.let(f"load {scalar_type(np_dtype(cell.dtype))}, ptr {self._slot(cell)}")
            case Set(cell, value):
                self.t.line(f"store {self._typed(value)}, ptr {self._slot(cell)}")
            case Combine(cell, primitive, value):
                self.combine(cell, primitive, self.scalar(value))
            case For(low=low, high=high):
                self._loop(s, self.scalar(low), self.scalar(high))
            case While():
                self._while(s)
            case Conditional(then=then, otherwise=otherwise):
                branch(self.t, self.scalar(s.condition), lambda: self.block(then), lambda: self.block(otherwise))

    # --- scalars

    def scalar(self, x: Scalar) -> str:
        """The operand of an instruction."""
        if isinstance(x, ScalarVar):
            return self.env[x]
        if isinstance(x, ScalarConst):
            return number(*held(x))
        total = ""
        for var, factor in x.terms:
            term = self.env[var] if factor == 1 else self.t.let(f"mul nsw i64 {self.env[var]}, {factor}")
            total = term if not total else self.t.let(f"add nsw i64 {total}, {term}")
        if not total:
            return str(x.constant)
        return self.t.let(f"add nsw i64 {total}, {x.constant}") if x.constant else total

    def _typed(self, x: Scalar) -> str:
        return f"{scalar_type(np_dtype(x.dtype))} {self.scalar(x)}"

    def _let(self, primitive: str, args: Sequence[Scalar], dtype: DType) -> str:
        write = lower_primitive(primitive, [a.dtype for a in args], dtype, self.machine)
        return write(self.t, [VectorValue(self.scalar(a), np_dtype(a.dtype)) for a in args]).text

    def combine(self, cell: Cell, primitive: str, x: str) -> None:
        """A float sum or product may be reordered; the greatest or least propagates NaN in any order."""
        t, slot, type = self.t, self._slot(cell), scalar_type(np_dtype(cell.dtype))
        old = t.let(f"load {type}, ptr {slot}")
        if cell.dtype.is_float and primitive in ("add", "mul"):
            new = t.let(f"f{primitive} reassoc {type} {old}, {x}")
        elif cell.dtype.is_float and primitive in ("max", "min"):
            new = t.intrinsic(f"{primitive}imum", *(VectorValue(v, np_dtype(cell.dtype)) for v in (old, x))).text
        else:
            write = lower_primitive(primitive, [cell.dtype, cell.dtype], cell.dtype, self.machine)
            new = write(t, [VectorValue(v, np_dtype(cell.dtype)) for v in (old, x)]).text
        t.line(f"store {type} {new}, ptr {slot}")

    # --- memory

    def _slot(self, cell: Cell) -> str:
        return self.slots.setdefault(cell, f"%cell{cell.number}")

    def pointer(self, buffer: Buffer) -> str:
        """Where a buffer begins."""
        if buffer.role == "local":
            return self.locals.setdefault(buffer, named(buffer))
        self.used[buffer] = None
        return named(buffer)

    def _address(self, buffer: Buffer, index: Sequence[Affine]) -> str:
        return self.t.address(self.pointer(buffer), self.scalar(position_in(buffer, index)), np_dtype(buffer.dtype))

    def _load(self, buffer: Buffer, index: Sequence[Affine]) -> str:
        dtype = np_dtype(buffer.dtype)
        address, group = self._address(buffer, index), self._group(buffer)
        raw = self.t.let(f"load {memory_type(dtype)}, ptr {address}, align {dtype.itemsize}{group}")
        return self.t.let(f"icmp ne i8 {raw}, 0") if buffer.dtype is BOOL else raw

    def _store(self, buffer: Buffer, index: Sequence[Affine], value: Scalar) -> None:
        dtype, x = np_dtype(buffer.dtype), self.scalar(value)
        if buffer.dtype is BOOL:
            x = self.t.let(f"zext i1 {x} to i8")
        address, group = self._address(buffer, index), self._group(buffer)
        self.t.line(f"store {memory_type(dtype)} {x}, ptr {address}, align {dtype.itemsize}{group}")

    def _group(self, buffer: Buffer) -> str:
        """The group of accesses that an access belongs to."""
        return f", !llvm.access.group {self.group}" if self.group and buffer.role != "local" else ""

    def _while(self, s: While) -> None:
        t = self.t
        head, body, after = t.name("test"), t.name("body"), t.name("after")
        t.line(f"br label %{head}")
        t.start(head)
        for each in s.test:  # the body sees what it assigns
            self.statement(each)
        t.line(f"br i1 {self.scalar(s.condition)}, label %{body}, label %{after}")
        t.start(body)
        self.block(s.body)
        t.line(f"br label %{head}")
        t.start(after)


def named(buffer: Buffer) -> str:
    """The name of a buffer in the text, which no value of `IRBuilder` has: they are letters and a number."""
    return f"%m.{buffer.name}"
