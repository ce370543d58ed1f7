"""LLVM IR as text: numbered values of a fixed number of lanes, blocks, loops.

Names, types and numbers in the text are all made here or by `spelling`, `maths` and `emit`. A value is always a vector of
`lanes` elements; a scalar is a vector of equal ones.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

DType = np.dtype[Any]
F4, F8, BOOL = np.dtype("f4"), np.dtype("f8"), np.dtype("?")

_FLOATS = {F4: "float", F8: "double"}


def scalar_type(dtype: DType) -> str:
    """LLVM's name of one element in a register."""
    return _FLOATS.get(dtype) or ("i1" if dtype == BOOL else f"i{8 * dtype.itemsize}")


def memory_type(dtype: DType) -> str:
    """LLVM's name of one element in memory."""
    return "i8" if dtype == BOOL else scalar_type(dtype)


def number(value: Any, dtype: DType) -> str:
    """A literal: floats by their bits, so none is rounded."""
    if dtype in _FLOATS:
        with np.errstate(all="ignore"):
            exact = float(dtype.type(value))
        return f"0x{struct.unpack('<Q', struct.pack('<d', exact))[0]:016X}"
    if dtype == BOOL:
        return "true" if value else "false"
    return str(int(value))


@dataclass(frozen=True, slots=True)
class Value:
    """A vector in a register: its name or literal, and the dtype of its elements."""

    text: str
    dtype: DType


class Text:
    """The body of one function under construction, `lanes` wide."""

    def __init__(self, lanes: int, has_scalef: bool = False) -> None:
        self.lanes, self.has_scalef = lanes, has_scalef
        self.lines: list[str] = []
        self.declarations: dict[str, None] = {}
        self.block = "entry"
        self._count = 0

    # --- names, types, plain lines

    def name(self, kind: str = "v") -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, expression: str) -> str:
        """A new name for the result of an instruction."""
        name = "%" + self.name()
        self.line(f"{name} = {expression}")
        return name

    def start(self, label: str) -> None:
        """Begins a block."""
        self.lines.append(label + ":")
        self.block = label

    def vector(self, dtype: DType) -> str:
        return f"<{self.lanes} x {scalar_type(dtype)}>"

    def declare(self, text: str) -> None:
        self.declarations[text] = None

    # --- values

    def splat(self, value: Any, dtype: DType) -> Value:
        """A constant in every lane."""
        return Value(f"splat ({scalar_type(dtype)} {number(value, dtype)})", dtype)

    def value(self, expression: str, dtype: DType) -> Value:
        return Value(self.let(expression), dtype)

    def binary(self, instruction: str, x: Value, y: Value) -> Value:
        return self.value(f"{instruction} {self.vector(x.dtype)} {x.text}, {y.text}", x.dtype)

    def compare(self, instruction: str, x: Value, y: Value) -> Value:
        return self.value(f"{instruction} {self.vector(x.dtype)} {x.text}, {y.text}", BOOL)

    def select(self, mask: Value, x: Value, y: Value) -> Value:
        type = self.vector(x.dtype)
        return self.value(f"select {self.vector(BOOL)} {mask.text}, {type} {x.text}, {type} {y.text}", x.dtype)

    def convert(self, instruction: str, x: Value, dtype: DType) -> Value:
        return self.value(f"{instruction} {self.vector(x.dtype)} {x.text} to {self.vector(dtype)}", dtype)

    def intrinsic(self, name: str, *args: Value) -> Value:
        """`llvm.<name>` of vectors of one dtype, which is also the result's."""
        type, suffix = self.vector(args[0].dtype), _suffix(args[0].dtype)
        symbol = f"@llvm.{name}.v{self.lanes}{suffix}"
        self.declare(f"declare {type} {symbol}({', '.join([type] * len(args))})")
        return self.value(f"call {type} {symbol}({', '.join(f'{type} {a.text}' for a in args)})", args[0].dtype)

    def saturating(self, x: Value, dtype: DType) -> Value:
        """Floats truncated to integers of a dtype: the least or greatest of them beyond it, 0 for NaN."""
        source, target = self.vector(x.dtype), self.vector(dtype)
        kind = "fptosi" if dtype.kind == "i" else "fptoui"
        symbol = f"@llvm.{kind}.sat.v{self.lanes}{_suffix(dtype)}.v{self.lanes}{_suffix(x.dtype)}"
        self.declare(f"declare {target} {symbol}({source})")
        return self.value(f"call {target} {symbol}({source} {x.text})", dtype)

    def call(self, symbol: str, *args: Value) -> Value:
        """A vector function of the C library: no side effects."""
        type = self.vector(args[0].dtype)
        self.declare(f"declare {type} @{symbol}({', '.join([type] * len(args))}) nounwind memory(none)")
        return self.value(f"call {type} @{symbol}({', '.join(f'{type} {a.text}' for a in args)})", args[0].dtype)

    def spread(self, scalar: str, dtype: DType) -> Value:
        """A scalar in every lane."""
        type = self.vector(dtype)
        first = self.let(f"insertelement {type} poison, {scalar_type(dtype)} {scalar}, i64 0")
        return self.value(f"shufflevector {type} {first}, {type} poison, <{self.lanes} x i32> zeroinitializer", dtype)

    def first(self, x: Value) -> str:
        """The scalar in lane 0."""
        return self.let(f"extractelement {self.vector(x.dtype)} {x.text}, i64 0")

    # --- memory: `at` is the address of the first element

    def address(self, pointer: str, index: str, dtype: DType) -> str:
        return self.let(f"getelementptr inbounds {memory_type(dtype)}, ptr {pointer}, i64 {index}")

    def load(self, at: str, dtype: DType, mask: str | None) -> Value:
        kind, align = f"<{self.lanes} x {memory_type(dtype)}>", dtype.itemsize
        if mask is None:
            raw = self.let(f"load {kind}, ptr {at}, align {align}")
        else:
            symbol = f"@llvm.masked.load.v{self.lanes}{_suffix(dtype)}.p0"
            lanes = f"<{self.lanes} x i1>"
            self.declare(f"declare {kind} {symbol}(ptr, i32, {lanes}, {kind})")
            raw = self.let(f"call {kind} {symbol}(ptr {at}, i32 {align}, {lanes} {mask}, {kind} zeroinitializer)")
        return self._from_memory(raw, kind, dtype)

    def _from_memory(self, raw: str, kind: str, dtype: DType) -> Value:
        if dtype == BOOL:
            raw = self.let(f"icmp ne {kind} {raw}, zeroinitializer")
        return Value(raw, dtype)

    def store(self, x: Value, at: str, mask: str | None) -> None:
        kind, align, text = f"<{self.lanes} x {memory_type(x.dtype)}>", x.dtype.itemsize, x.text
        if x.dtype == BOOL:
            text = self.let(f"zext {self.vector(BOOL)} {text} to {kind}")
        if mask is None:
            self.line(f"store {kind} {text}, ptr {at}, align {align}")
            return
        symbol, lanes = f"@llvm.masked.store.v{self.lanes}{_suffix(x.dtype)}.p0", f"<{self.lanes} x i1>"
        self.declare(f"declare void {symbol}({kind}, ptr, i32, {lanes})")
        self.line(f"call void {symbol}({kind} {text}, ptr {at}, i32 {align}, {lanes} {mask})")

    def load_one(self, at: str, dtype: DType) -> Value:
        """One element, in every lane."""
        raw = self.let(f"load {memory_type(dtype)}, ptr {at}, align {dtype.itemsize}")
        if dtype == BOOL:
            raw = self.let(f"icmp ne i8 {raw}, 0")
        return self.spread(raw, dtype)

    def store_one(self, x: Value, at: str) -> None:
        scalar = self.first(x)
        if x.dtype == BOOL:
            scalar = self.let(f"zext i1 {scalar} to i8")
        self.line(f"store {memory_type(x.dtype)} {scalar}, ptr {at}, align {x.dtype.itemsize}")

    # --- loops

    def rows(self, low: str, high: str, body: Callable[[str], None]) -> None:
        """`for i in low..high: body(i)`; the range may be empty."""
        before, head, after = self.block, self.name("row"), self.name("end")
        some = self.let(f"icmp slt i64 {low}, {high}")
        self.line(f"br i1 {some}, label %{head}, label %{after}")
        self.start(head)
        i, following = "%" + self.name("i"), "%" + self.name("n")
        place = len(self.lines)
        body(i)
        self.lines.insert(place, f"  {i} = phi i64 [ {low}, %{before} ], [ {following}, %{self.block} ]")
        self.line(f"{following} = add nuw i64 {i}, 1")
        more = self.let(f"icmp slt i64 {following}, {high}")
        self.line(f"br i1 {more}, label %{head}, label %{after}")
        self.start(after)

    def sweep(self, count: str, unroll: int, has_tail: bool, starts: Sequence[Value],
              body: Callable[[Sequence[str], str | None, Sequence[Sequence[Value]]], Sequence[Sequence[Value]]],
              combine: Sequence[Callable[[Value, Value], Value]]) -> list[Value]:
        """The inner loop over `count` elements: `unroll` vectors at a time, then single ones under a mask.

        `body(indices, mask, carried)` gives the carried values anew; carried is, for each of `starts`, one value per vector. What
        is left at the end is combined into one vector each.
        """
        step = unroll * self.lanes
        main, middle, tail, done = (self.name(k) for k in ("main", "mid", "tail", "done"))
        whole = self.let(f"and i64 {count}, {-step}") if step & (step - 1) == 0 else self._multiple(count, step)
        before = self.block
        some = self.let(f"icmp slt i64 0, {whole}")
        self.line(f"br i1 {some}, label %{main}, label %{middle}")
        self.start(main)
        i, following = "%" + self.name("i"), "%" + self.name("n")
        carried = [[Value("%" + self.name("a"), s.dtype) for _ in range(unroll)] for s in starts]
        place = len(self.lines)
        indices = [i] + [self.let(f"add nuw i64 {i}, {self.lanes * u}") for u in range(1, unroll)]
        out = body(indices, None, carried)
        phis = [f"  {i} = phi i64 [ 0, %{before} ], [ {following}, %{self.block} ]"]
        phis += [f"  {c.text} = phi {self.vector(c.dtype)} [ {s.text}, %{before} ], [ {o.text}, %{self.block} ]"
                 for s, cs, os in zip(starts, carried, out, strict=True) for c, o in zip(cs, os, strict=True)]
        self.lines[place:place] = phis
        self.line(f"{following} = add nuw i64 {i}, {step}")
        more = self.let(f"icmp slt i64 {following}, {whole}")
        last = self.block
        self.line(f"br i1 {more}, label %{main}, label %{middle}")
        self.start(middle)
        ends = [[self.value(f"phi {self.vector(s.dtype)} [ {s.text}, %{before} ], [ {o.text}, %{last} ]", s.dtype) for o in os]
                for s, os in zip(starts, out, strict=True)]
        single = [_joined(e, c) for e, c in zip(ends, combine, strict=True)]
        if not has_tail and unroll == 1:
            return single
        return self._tail(whole, count, tail, done, single, body)

    def _multiple(self, count: str, step: int) -> str:
        quotient = self.let(f"sdiv i64 {count}, {step}")
        return self.let(f"mul i64 {quotient}, {step}")

    def _tail(self, low: str, count: str, tail: str, done: str, starts: Sequence[Value],
              body: Callable[[Sequence[str], str | None, Sequence[Sequence[Value]]], Sequence[Sequence[Value]]]) -> list[Value]:
        before = self.block
        some = self.let(f"icmp slt i64 {low}, {count}")
        self.line(f"br i1 {some}, label %{tail}, label %{done}")
        self.start(tail)
        j, following = "%" + self.name("i"), "%" + self.name("n")
        carried = [[Value("%" + self.name("a"), s.dtype)] for s in starts]
        place = len(self.lines)
        mask = self._mask(j, count)
        out = body([j], mask, carried)
        phis = [f"  {j} = phi i64 [ {low}, %{before} ], [ {following}, %{self.block} ]"]
        phis += [f"  {c[0].text} = phi {self.vector(s.dtype)} [ {s.text}, %{before} ], [ {o[0].text}, %{self.block} ]"
                 for s, c, o in zip(starts, carried, out, strict=True)]
        self.lines[place:place] = phis
        self.line(f"{following} = add nuw i64 {j}, {self.lanes}")
        more = self.let(f"icmp slt i64 {following}, {count}")
        last = self.block
        self.line(f"br i1 {more}, label %{tail}, label %{done}")
        self.start(done)
        return [self.value(f"phi {self.vector(s.dtype)} [ {s.text}, %{before} ], [ {o[0].text}, %{last} ]", s.dtype)
                for s, o in zip(starts, out, strict=True)]

    def _mask(self, index: str, count: str) -> str:
        lanes = f"<{self.lanes} x i32>"
        rest = self.let(f"sub i64 {count}, {index}")
        narrow = self.let(f"trunc i64 {rest} to i32")
        first = self.let(f"insertelement {lanes} poison, i32 {narrow}, i64 0")
        spread = self.let(f"shufflevector {lanes} {first}, {lanes} poison, {lanes} zeroinitializer")
        return self.let(f"icmp slt {lanes} <{', '.join(f'i32 {k}' for k in range(self.lanes))}>, {spread}")


def _joined(values: Sequence[Value], combine: Callable[[Value, Value], Value]) -> Value:
    rest = list(values)
    while len(rest) > 1:
        rest = [combine(rest[k], rest[k + 1]) if k + 1 < len(rest) else rest[k] for k in range(0, len(rest), 2)]
    return rest[0]


def _suffix(dtype: DType) -> str:
    return {F4: "f32", F8: "f64"}.get(dtype) or f"i{8 * dtype.itemsize}"
