"""LLVM IR as text: numbered values of a fixed number of lanes, blocks, loops.

Names, types and numbers in the text are all made here or by `primitives`, `math` and `emit`. A value is one vector of `lanes`
elements, or several that are treated alike: their instructions then stand side by side, so that the processor finds independent
ones to run at once. A scalar is a vector of equal elements.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

DType = np.dtype[Any]
F4, F8, BOOL = np.dtype("f4"), np.dtype("f8"), np.dtype("?")

_FLOATS = {F4: "float", F8: "double", np.dtype("f2"): "half"}


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
class VectorValue:
    """A vector in a register: its name or literal, and the dtype of its elements; `more` are further ones, treated alike."""

    text: str
    dtype: DType
    more: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.text, *self.more)


def of_parts(parts: Sequence[str], dtype: DType) -> VectorValue:
    """A value of these vectors."""
    return VectorValue(parts[0], dtype, tuple(parts[1:]))


Body = Callable[[Sequence[str], str | None, Sequence[VectorValue]], Sequence[VectorValue]]
"""What is done at some indices, under a mask or none, with carried values."""

Carry = Callable[[str, Sequence[VectorValue]], Sequence[VectorValue]]
"""What is done at an index with carried values."""


def library_function(symbol: str, type: str, arity: int, result: str | None = None) -> str:
    """The declaration of a function without side effects: the same text everywhere, as LLVM takes one declaration of a symbol."""
    return f"declare {result or type} @{symbol}({', '.join([type] * arity)}) nounwind willreturn memory(none)"


class IRBuilder:
    """The body of one function under construction, `lanes` wide; one lane is a plain scalar, which LLVM may make vectors of."""

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

    def function(self, head: str, last: str = "ret void") -> str:
        """The text of the function that begins and ends so."""
        return "\n".join([f"define {head} {{", "entry:", *self.lines, f"  {last}", "}"])

    @contextmanager
    def narrowed(self, lanes: int) -> Iterator[None]:
        """Inside, vectors have so many lanes."""
        before, self.lanes = self.lanes, lanes
        yield
        self.lanes = before

    def vector(self, dtype: DType) -> str:
        return scalar_type(dtype) if self.lanes == 1 else f"<{self.lanes} x {scalar_type(dtype)}>"

    def _suffix(self, dtype: DType) -> str:
        """How LLVM's intrinsics call the type of a value."""
        return _suffix(dtype) if self.lanes == 1 else f"v{self.lanes}{_suffix(dtype)}"

    def declare(self, text: str) -> None:
        self.declarations[text] = None

    # --- values

    def splat(self, value: Any, dtype: DType) -> VectorValue:
        """A constant in every lane."""
        literal = number(value, dtype)
        return VectorValue(literal if self.lanes == 1 else f"splat ({scalar_type(dtype)} {literal})", dtype)

    def value(self, expression: str, dtype: DType) -> VectorValue:
        return VectorValue(self.let(expression), dtype)

    def each(self, make: Callable[..., str], dtype: DType, *args: VectorValue) -> VectorValue:
        """The instruction that `make` writes, for each vector of the arguments; a single vector goes with all others."""
        count = max(len(a.more) for a in args) + 1
        columns = [a.parts * count if not a.more else a.parts for a in args]
        return of_parts([self.let(make(*texts)) for texts in zip(*columns, strict=False)], dtype)

    def binary(self, instruction: str, x: VectorValue, y: VectorValue) -> VectorValue:
        return self.each(lambda a, b: f"{instruction} {self.vector(x.dtype)} {a}, {b}", x.dtype, x, y)

    def compare(self, instruction: str, x: VectorValue, y: VectorValue) -> VectorValue:
        return self.each(lambda a, b: f"{instruction} {self.vector(x.dtype)} {a}, {b}", BOOL, x, y)

    def select(self, mask: VectorValue, x: VectorValue, y: VectorValue) -> VectorValue:
        kind, type = self.vector(BOOL), self.vector(x.dtype)
        return self.each(lambda m, a, b: f"select {kind} {m}, {type} {a}, {type} {b}", x.dtype, mask, x, y)

    def unary(self, instruction: str, x: VectorValue) -> VectorValue:
        return self.each(lambda a: f"{instruction} {self.vector(x.dtype)} {a}", x.dtype, x)

    def convert(self, instruction: str, x: VectorValue, dtype: DType) -> VectorValue:
        return self.each(lambda a: f"{instruction} {self.vector(x.dtype)} {a} to {self.vector(dtype)}", dtype, x)

    def intrinsic(self, name: str, *args: VectorValue) -> VectorValue:
        """`llvm.<name>` of vectors of one dtype, which is also the result's."""
        symbol = f"llvm.{name}.{self._suffix(args[0].dtype)}"
        type = self.vector(args[0].dtype)
        self.declare(f"declare {type} @{symbol}({', '.join([type] * len(args))})")
        return self._called(symbol, args)

    def _called(self, symbol: str, args: Sequence[VectorValue]) -> VectorValue:
        type = self.vector(args[0].dtype)
        return self.each(lambda *a: f"call {type} @{symbol}({', '.join(f'{type} {x}' for x in a)})", args[0].dtype, *args)

    def saturating(self, x: VectorValue, dtype: DType) -> VectorValue:
        """Floats truncated to integers of a dtype: the least or greatest of them beyond it, 0 for NaN. LLVM's own `fptosi.sat` of a
        vector becomes a scalar instruction for each lane."""
        ends = np.iinfo(dtype)
        if dtype.itemsize < x.dtype.itemsize:  # both ends are floats
            low, high = self.splat(ends.min, x.dtype), self.splat(ends.max, x.dtype)
            above = self.select(self.compare("fcmp ogt", x, low), x, low)
            inside = self.select(self.compare("fcmp olt", above, high), above, high)
            known = self.select(self.compare("fcmp ord", x, x), inside, self.splat(0, x.dtype))
            return self.convert("fptosi" if dtype.kind == "i" else "fptoui", known, dtype)
        low, beyond = self.splat(ends.min, x.dtype), self.splat(ends.max + 1, x.dtype)
        below, above = self.compare("fcmp olt", x, low), self.compare("fcmp oge", x, beyond)
        holds = self.binary("and", self.compare("fcmp oge", x, low), self.compare("fcmp olt", x, beyond))
        inside = self.select(holds, x, self.splat(0, x.dtype))
        whole = self.convert("fptosi" if dtype.kind == "i" else "fptoui", inside, dtype)
        return self.select(above, self.splat(ends.max, dtype), self.select(below, self.splat(ends.min, dtype), whole))

    def call(self, symbol: str, *args: VectorValue) -> VectorValue:
        """A vector function of the C library: no side effects."""
        type = self.vector(args[0].dtype)
        self.declare(library_function(symbol, type, len(args)))
        return self._called(symbol, args)

    def all(self, x: VectorValue) -> str:
        """Whether a condition holds in every lane of every vector."""
        both = x.parts[0]
        if self.lanes == 1:
            return both
        for part in x.parts[1:]:
            both = self.let(f"and {self.vector(BOOL)} {both}, {part}")
        symbol = f"@llvm.vector.reduce.and.v{self.lanes}i1"
        self.declare(f"declare i1 {symbol}({self.vector(BOOL)})")
        return self.let(f"call i1 {symbol}({self.vector(BOOL)} {both})")

    def either(self, usual: str, x: Callable[[], VectorValue], y: Callable[[], VectorValue]) -> VectorValue:
        """x where the scalar `usual` is true, as it nearly always is, else y: only one of them is computed. Of scalars always y,
        which holds for all: a loop without branches becomes one of vectors."""
        if self.lanes == 1:
            return y()
        near, far, after = (self.name(k) for k in ("near", "far", "met"))
        self.declare('!0 = !{!"branch_weights", i32 1000, i32 1}')
        self.line(f"br i1 {usual}, label %{near}, label %{far}, !prof !0")
        found, ends = [], []
        for label, make in ((near, x), (far, y)):
            self.start(label)
            found.append(make())
            ends.append(self.block)
            self.line(f"br label %{after}")
        self.start(after)
        type = self.vector(found[0].dtype)
        return self.each(lambda a, b: f"phi {type} [ {a}, %{ends[0]} ], [ {b}, %{ends[1]} ]", found[0].dtype, *found)

    def spread(self, scalar: str, dtype: DType) -> VectorValue:
        """A scalar in every lane."""
        type = self.vector(dtype)
        first = self.let(f"insertelement {type} poison, {scalar_type(dtype)} {scalar}, i64 0")
        return self.value(f"shufflevector {type} {first}, {type} poison, <{self.lanes} x i32> zeroinitializer", dtype)

    def total(self, start: str, x: VectorValue) -> str:
        """A scalar and all lanes of floats added, in the order that is fastest."""
        scalar, type = scalar_type(x.dtype), self.vector(x.dtype)
        name = f"@llvm.vector.reduce.fadd.{self._suffix(x.dtype)}"
        self.declare(f"declare {scalar} {name}({scalar}, {type})")
        return self.let(f"call reassoc {scalar} {name}({scalar} {start}, {type} {x.text})")

    def shuffle(self, kind: str, first: str, order: Sequence[int], second: str = "poison") -> str:
        """Lanes of a vector of that kind, or of two, in an order; those of the second are counted behind those of the first."""
        lanes = ", ".join(f"i32 {k}" for k in order)
        return self.let(f"shufflevector {kind} {first}, {kind} {second}, <{len(order)} x i32> <{lanes}>")

    def first(self, x: VectorValue) -> str:
        """The scalar in lane 0."""
        return self.let(f"extractelement {self.vector(x.dtype)} {x.text}, i64 0")

    def lane_by_lane(self, make: Callable[..., str], dtype: DType, *args: VectorValue) -> VectorValue:
        """The instruction of scalars that `make` writes, for each lane of the arguments, which are of one dtype."""
        type = self.vector(dtype)

        def vector(*texts: str) -> str:
            found = ""
            for k in range(self.lanes):
                lane = self.let(make(*(self.let(f"extractelement {self.vector(args[0].dtype)} {x}, i64 {k}") for x in texts)))
                found = f"insertelement {type} {self.let(found) if found else 'poison'}, {scalar_type(dtype)} {lane}, i64 {k}"
            return found

        return self.each(vector, dtype, *args)

    # --- memory: `at` is the address of the first element

    def behind(self, at: str, nbytes: int | str) -> str:
        """The address so many bytes behind another."""
        return self.let(f"getelementptr i8, ptr {at}, i64 {nbytes}")

    def word(self, at: str, number: int | str = 0, type: str = "i64") -> str:
        """A word of a table at an address: an integer, or a `ptr`."""
        return self.let(f"load {type}, ptr {self.let(f'getelementptr i64, ptr {at}, i64 {number}')}")

    def address(self, pointer: str, index: str, dtype: DType) -> str:
        return self.let(f"getelementptr inbounds {memory_type(dtype)}, ptr {pointer}, i64 {index}")

    def moved(self, pointer: str, dtype: DType, *by: tuple[str, int | str]) -> str:
        """The address of the element that lies indices times steps, in elements, behind another."""
        for index, step in by:
            if index != "0" and step != 0:
                pointer = self.address(pointer, index if step == 1 else self.let(f"mul i64 {index}, {step}"), dtype)
        return pointer

    def _in_memory(self, dtype: DType) -> str:
        """LLVM's name of a vector in memory."""
        return memory_type(dtype) if self.lanes == 1 else f"<{self.lanes} x {memory_type(dtype)}>"

    def load(self, at: str, dtype: DType, mask: str | None) -> VectorValue:
        kind, align = self._in_memory(dtype), dtype.itemsize
        if mask is None:
            raw = self.let(f"load {kind}, ptr {at}, align {align}")
        else:
            symbol = f"@llvm.masked.load.v{self.lanes}{_suffix(dtype)}.p0"
            lanes = f"<{self.lanes} x i1>"
            self.declare(f"declare {kind} {symbol}(ptr, i32, {lanes}, {kind})")
            raw = self.let(f"call {kind} {symbol}(ptr {at}, i32 {align}, {lanes} {mask}, {kind} zeroinitializer)")
        return self._from_memory(raw, kind, dtype)

    def _from_memory(self, raw: str, kind: str, dtype: DType) -> VectorValue:
        if dtype == BOOL:
            raw = self.let(f"icmp ne {kind} {raw}, zeroinitializer")
        return VectorValue(raw, dtype)

    def store(self, x: VectorValue, at: str, mask: str | None, past_caches: bool = False) -> None:
        kind, align, text = self._in_memory(x.dtype), x.dtype.itemsize, x.text
        if x.dtype == BOOL:
            text = self.let(f"zext {self.vector(BOOL)} {text} to {kind}")
        if mask is None:
            if past_caches:
                self.declare("!1 = !{i32 1}")
            hint = f"{self.lanes * align}, !nontemporal !1" if past_caches else align
            self.line(f"store {kind} {text}, ptr {at}, align {hint}")
            return
        symbol, lanes = f"@llvm.masked.store.v{self.lanes}{_suffix(x.dtype)}.p0", f"<{self.lanes} x i1>"
        self.declare(f"declare void {symbol}({kind}, ptr, i32, {lanes})")
        self.line(f"call void {symbol}({kind} {text}, ptr {at}, i32 {align}, {lanes} {mask})")

    def store_first(self, x: VectorValue, at: str, lanes: int) -> None:
        """Stores the first so many lanes, piece by piece: a store under a mask takes some processors (Zen) a dozen cycles."""
        if lanes == self.lanes:
            self.store(x, at, None)
            return
        kind, done, size = self.vector(x.dtype), 0, self.lanes
        while done < lanes:
            if size <= lanes - done:
                part = self.shuffle(kind, x.text, range(done, done + size))
                to = self.address(at, str(done), x.dtype)
                self.line(f"store <{size} x {scalar_type(x.dtype)}> {part}, ptr {to}, align {x.dtype.itemsize}")
                done += size
            size //= 2

    def load_first(self, at: str, dtype: DType, lanes: int) -> VectorValue:
        """So many elements in the first lanes; zeros in the others."""
        if lanes == self.lanes:
            return self.load(at, dtype, None)
        kind = f"<{lanes} x {scalar_type(dtype)}>"
        raw = self.let(f"load {kind}, ptr {at}, align {dtype.itemsize}")
        return VectorValue(self.shuffle(kind, raw, [min(k, lanes) for k in range(self.lanes)], "zeroinitializer"), dtype)

    def loads(self, ats: Sequence[str], dtype: DType, mask: str | None) -> VectorValue:
        """A vector from each address."""
        return of_parts([self.load(at, dtype, mask).text for at in ats], dtype)

    def gather(self, pointer: str, index: VectorValue, dtype: DType) -> VectorValue:
        """The elements with these indices, loaded one by one: so they are sooner there than by an instruction for all lanes."""
        kind = self._in_memory(dtype)

        def vector(indices: str) -> str:
            found = "poison"
            for k in range(self.lanes):
                at = self.address(pointer, self.let(f"extractelement {self.vector(index.dtype)} {indices}, i64 {k}"), dtype)
                one = self.let(f"load {memory_type(dtype)}, ptr {at}, align {dtype.itemsize}")
                found = self.let(f"insertelement {kind} {found}, {memory_type(dtype)} {one}, i64 {k}")
            return self._from_memory(found, kind, dtype).text

        return of_parts([vector(part) for part in index.parts], dtype)

    def fetch(self, ats: Sequence[str], offset: int) -> None:
        """Begins to load the cache lines so many bytes behind some addresses, which need not be memory."""
        self.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for at in ats:
            to = self.let(f"getelementptr i8, ptr {at}, i64 {offset}")
            self.line(f"call void @llvm.prefetch.p0(ptr {to}, i32 0, i32 3, i32 1)")

    def stores(self, x: VectorValue, ats: Sequence[str], mask: str | None, past_caches: bool = False) -> None:
        """Each vector to its address; `past_caches` ones are whole cache lines."""
        for part, at in zip(x.parts * len(ats) if not x.more else x.parts, ats, strict=False):
            self.store(VectorValue(part, x.dtype), at, mask, past_caches)

    def load_one(self, at: str, dtype: DType) -> VectorValue:
        """One element, in every lane."""
        with self.narrowed(1):
            one = self.load(at, dtype, None)
        return self.spread(one.text, dtype)

    def copy_one(self, source: str, target: str, dtype: DType) -> None:
        """Stores one element at another address."""
        with self.narrowed(1):
            self.store(self.load(source, dtype, None), target, None)

    # --- loops

    def rows(self, low: str, high: str, body: Callable[[str], object], step: int | str = 1) -> None:
        """`for i in range(low, high, step): body(i)`; the range may be empty."""
        def row(i: str, carried: Sequence[VectorValue]) -> Sequence[VectorValue]:
            body(i)
            return carried

        self.loop(low, high, (), row, step)

    def loop(self, low: str, high: str, starts: Sequence[VectorValue], body: Carry, step: int | str = 1, *, is_sure: bool = False,
             hint: Callable[[], str] = str) -> Sequence[VectorValue]:
        """`for i in range(low, high, step): carried = body(i, carried)`: the carried values after it, at first `starts`. The range
        may be empty unless that `is_sure`; `hint` says what LLVM is told of the loop once its body is written. Where bounds are
        numbers that leave one iteration or none, there is no loop."""
        times = _times(low, high, step)
        if times is not None and times <= 1:
            return body(low, starts) if times else starts
        is_sure = is_sure or times is not None
        before, head, after = self.block, self.name("head"), self.name("end")
        some = "true" if is_sure else self.let(f"icmp slt i64 {low}, {high}")
        self.line(f"br label %{head}" if is_sure else f"br i1 {some}, label %{head}, label %{after}")
        self.start(head)
        i, next_index, position = "%" + self.name("i"), "%" + self.name("n"), len(self.lines)
        carried = [of_parts(["%" + self.name("a") for _ in s.parts], s.dtype) for s in starts]
        out = body(i, carried)
        last = self.block
        phis = [f"  {i} = phi i64 [ {low}, %{before} ], [ {next_index}, %{last} ]"]
        phis += [f"  {c} = phi {self.vector(s.dtype)} [ {a}, %{before} ], [ {b}, %{last} ]"
                 for s, cs, o in zip(starts, carried, out, strict=True) for c, a, b in zip(cs.parts, s.parts, o.parts, strict=True)]
        self.lines[position:position] = phis
        self.line(f"{next_index} = add nuw nsw i64 {i}, {step}")
        more = self.let(f"icmp slt i64 {next_index}, {high}")
        self.line(f"br i1 {more}, label %{head}, label %{after}{hint()}")
        self.start(after)
        return out if is_sure else [self._phi(s, before, o, last) for s, o in zip(starts, out, strict=True)]

    def vector_loop(self, low: str, high: str, unroll: int, has_tail: bool, starts: Sequence[VectorValue], body: Body,
                    combine: Sequence[Callable[[VectorValue, VectorValue], VectorValue]]) -> Sequence[VectorValue]:
        """The inner loop over elements from `low` to below `high`: `unroll` vectors at a time, then single ones under a mask.

        `body(indices, mask, carried)` gives the carried values anew. What is left at the end is combined into one vector, which the
        single ones go on with. Without `has_tail` the count is a multiple of the step.
        """
        step = unroll * self.lanes
        whole = self._whole(low, high, step) if has_tail else high
        ends = self.loop(low, whole, starts,
                         lambda i, carried: body([i, *(self.let(f"add nuw i64 {i}, {self.lanes * u}") for u in range(1, unroll))],
                                                 None, carried), step)
        single = [joined([VectorValue(part, end.dtype) for part in end.parts], join)
                  for end, join in zip(ends, combine, strict=True)]
        return single if not has_tail else self.loop(
            whole, high, single, lambda i, carried: body([i], below(self, difference(self, high, i)), carried), self.lanes)

    def _whole(self, low: str, high: str, step: int) -> str:
        """Where the last of as many whole steps from `low` as there are below `high` ends."""
        if low == "0" and high.isdigit():
            return str(int(high) // step * step)
        count = difference(self, high, low)
        whole = self.let(f"mul i64 {self.let(f'sdiv i64 {count}, {step}')}, {step}")
        return whole if low == "0" else self.let(f"add i64 {low}, {whole}")

    def _phi(self, x: VectorValue, before: str, y: VectorValue, last: str) -> VectorValue:
        type = self.vector(x.dtype)
        return self.each(lambda a, b: f"phi {type} [ {a}, %{before} ], [ {b}, %{last} ]", x.dtype, x, y)


def _times(low: str, high: str, step: int | str) -> int | None:
    """How many iterations a loop has; None where its bounds are not all numbers."""
    bounds = low, high, str(step)
    return len(range(*map(int, bounds))) if all(map(str.isdigit, bounds)) else None


def joined(values: Sequence[VectorValue], combine: Callable[[VectorValue, VectorValue], VectorValue]) -> VectorValue:
    """All values combined, neighbours first."""
    rest = list(values)
    while len(rest) > 1:
        rest = [combine(rest[k], rest[k + 1]) if k + 1 < len(rest) else rest[k] for k in range(0, len(rest), 2)]
    return rest[0]


def _suffix(dtype: DType) -> str:
    return {F4: "f32", F8: "f64", np.dtype("f2"): "f16"}.get(dtype) or ("i1" if dtype == BOOL else f"i{8 * dtype.itemsize}")


# --- control flow, and what it needs


def branch(t: IRBuilder, condition: str, then: Callable[[], object] | None, other: Callable[[], object] | None = None) -> None:
    """`if condition: then() else: other()`."""
    yes, no, after = t.name("yes"), t.name("no"), t.name("end")
    t.line(f"br i1 {condition}, label %{yes}, label %{no}")
    for label, body in ((yes, then), (no, other)):
        t.start(label)
        if body is not None:
            body()
        t.line(f"br label %{after}")
    t.start(after)


def leave_if(t: IRBuilder, condition: str, leave: Callable[[], object]) -> None:
    """`if condition: leave()`, which ends the function."""
    end, on = t.name("leave"), t.name("on")
    t.line(f"br i1 {condition}, label %{end}, label %{on}")
    t.start(end)
    leave()
    t.start(on)


def each_share(t: IRBuilder, count: int | str, body: Callable[[str], object]) -> None:
    """`body(k)` for each share of the work, of which there are `count`, that this thread takes from `%counter`."""
    t.line("br label %next")
    t.start("next")
    share = t.let("atomicrmw add ptr %counter, i64 1 monotonic")
    t.line(f"br i1 {t.let(f'icmp slt i64 {share}, {count}')}, label %take, label %done")
    t.start("take")
    body(share)
    t.line("br label %next")
    t.start("done")


def digit(t: IRBuilder, number: str, base: int) -> tuple[str, str]:
    """The last digit of a number and the rest of it."""
    if base == 1:
        return "0", number
    return t.let(f"urem i64 {number}, {base}"), t.let(f"udiv i64 {number}, {base}")


def part_of_range(t: IRBuilder, part: str, parts: int, size: int) -> tuple[str, str]:
    """Where part k of nearly equal parts of a range begins, and how long it is."""
    if parts == 1:
        return "0", str(size)
    low = t.let(f"udiv i64 {t.let(f'mul i64 {part}, {size}')}, {parts}")
    above = t.let(f"add i64 {part}, 1")
    high = t.let(f"udiv i64 {t.let(f'mul i64 {above}, {size}')}, {parts}")
    return low, t.let(f"sub i64 {high}, {low}")


def least(t: IRBuilder, x: str, y: str) -> str:
    """The smaller of two integers."""
    return t.let(f"select i1 {t.let(f'icmp slt i64 {x}, {y}')}, i64 {x}, i64 {y}")


def greatest(t: IRBuilder, x: str, y: str) -> str:
    """The larger of two integers."""
    return t.let(f"select i1 {t.let(f'icmp sgt i64 {x}, {y}')}, i64 {x}, i64 {y}")


def concatenated(t: IRBuilder, parts: Sequence[str], lanes: int, dtype: DType) -> VectorValue:
    """One vector of several of so many lanes, of which there are a power of two. Those of one lane are vectors, too."""
    while len(parts) > 1:
        kind = f"<{lanes} x {scalar_type(dtype)}>"
        parts = [t.shuffle(kind, a, range(2 * lanes), b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        lanes *= 2
    return VectorValue(parts[0], dtype)


def difference(t: IRBuilder, x: str, y: str) -> str:
    """x - y, a number where both are; x itself where y is 0."""
    if x.isdigit() and y.isdigit():
        return str(int(x) - int(y))
    return x if y == "0" else t.let(f"sub i64 {x}, {y}")


def below(t: IRBuilder, count: str) -> str:
    """The mask of the lanes below a count.

    LLVM is not told of a mask of one lane that it is one: of a masked store of truncated integers it then makes a store of all that
    they were, which writes over what lies behind (LLVM 22, `reduceMaskedStoreToScalarStore` in X86ISelLowering.cpp).
    """
    kind = f"<{t.lanes} x i32>"
    some = t.let(f"trunc i64 {least(t, count, str(t.lanes))} to i32") if count != "1" else t.let('call i32 asm "", "=r,0"(i32 1)')
    first = t.let(f"insertelement {kind} poison, i32 {some}, i64 0")
    spread = t.let(f"shufflevector {kind} {first}, {kind} poison, {kind} zeroinitializer")
    return t.let(f"icmp slt {kind} <{', '.join(f'i32 {k}' for k in range(t.lanes))}>, {spread}")
