"""Innermost loops written as vectors: some vectors of elements at a time, what is left by narrower ones or under a mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from deepx_graph.ir.scalar_expr import FUNCTION_PRICE
from deepx_graph.loops.primitives import price
from deepx_graph.loops.program import (
    Buffer,
    Combine,
    For,
    Let,
    Load,
    Statement,
    Store,
    operands,
    position_in,
)
from deepx_graph.loops.scalar import Affine, Scalar, ScalarConst, ScalarVar, affine, identity
from deepx_graph.runtime.native.llvm.builder import BOOL, VectorValue, branch, difference, least, of_parts
from deepx_graph.runtime.native.llvm.math import FORMATS, Maths, Reciprocal
from deepx_graph.runtime.native.loop_program.extremes import is_extreme
from deepx_graph.runtime.native.loop_program.primitives import held, lower_primitive, np_dtype
from deepx_graph.runtime.native.loop_program.statements import StatementEmitter
from deepx_graph.runtime.native.loop_program.vector_plan import VectorPlan

LINE = 64
"""The bytes of a cache line."""

LEAST_STREAMED = 32
"""The bytes of a vector from which on stores past the caches are worth it."""

LONGEST_AHEAD = 64 << 10
"""The bytes of a row up to which the next one is fetched while this one is in a cache."""

FEWEST_LANES = 4
"""What is left of a loop of known length is done by vectors of half, and a quarter of, as many lanes, down to so many."""

MOST_LANES = 16
"""No vector has more elements: local memory has room for so many behind its own."""

Join = Callable[..., VectorValue]


class VectorLoop:
    """Writes a loop by its plan."""

    def __init__(self, outside: StatementEmitter, loop: For, plan: VectorPlan) -> None:
        self.outside, self.loop, self.plan = outside, loop, plan
        self.t, self.lanes = outside.t, plan.lanes
        self.splats: dict[Scalar, VectorValue] = {}
        self.bases: dict[Statement, str] = {}
        self.divisors: dict[Scalar, Reciprocal] = {}
        self.first: VectorValue | None = None
        self.past_caches: frozenset[Buffer] = frozenset()
        self.gathered = {s: position_in(s.buffer, s.index) for s in plan.gathers}
        """From where elements are loaded one by one."""
        neighbours = [s for s in plan.inside if isinstance(s, Load) and s not in self.gathered]
        self.ahead = {s: far for s in neighbours if (far := self._bytes_ahead(s))}
        """What is fetched early: so many bytes behind what is loaded."""

    def _bytes_ahead(self, s: Load) -> int:
        """How far the next row of a large buffer is, where there is time to fetch it: this one is in a cache, as another loop has
        read it, or functions are computed. Processors fetch no further by themselves than the page that is read; 0 for none."""
        row = position_in(s.buffer, s.index)
        row -= affine(self.loop.axis) * row.stride(self.loop.axis)
        again = (s.buffer, row) in self.outside.swept
        self.outside.swept.add((s.buffer, row))
        slow = any(isinstance(x, Let) and price(x.primitive) >= FUNCTION_PRICE for x in self.plan.inside)
        steps = [step * s.buffer.dtype.itemsize for _, step in row.terms]
        is_row = s.buffer in self.outside.traffic.far and len(steps) == 1 and LINE <= steps[0] <= LONGEST_AHEAD
        return steps[0] if is_row and (again or slow) else 0

    def write(self, low: str, high: str) -> None:
        """The loop over `low` up to below `high`, which is not empty."""
        for s in self.plan.before:
            self.outside.statement(s)
        self._from(low, difference(self.t, high, low))

    def _from(self, low: str, count: str) -> None:
        """So many iterations from `low` on."""
        t = self.t
        self._prepare(low)
        streams = [s for s in self.plan.inside if isinstance(s, Store) and self._may_stream(s)]
        if not streams:
            self._in_widths(low, count)
            return
        begin = t.let(f"select i1 {self._are_apart(streams)}, i64 {self._first_line(streams, count)}, i64 {count}")
        branch(t, t.let(f"icmp sgt i64 {begin}, 0"), lambda: self._loop("0", begin))
        branch(t, t.let(f"icmp slt i64 {begin}, {count}"), lambda: self._loop(begin, count, frozenset(s.buffer for s in streams)))

    def _in_widths(self, low: str, count: str) -> None:
        """The iterations; of a known number those that are left by vectors of fewer lanes, where these take them without a mask."""
        rest = int(count) % self.lanes if count.isdigit() else 0
        if not rest or rest % FEWEST_LANES or any(isinstance(s, Combine) for s in self.plan.inside):
            self._loop("0", count)
            return
        if (whole := int(count) - rest) > 0:
            self._loop("0", str(whole))
        narrower = VectorLoop(self.outside, self.loop, replace(self.plan, lanes=self.lanes // 2, vectors=1))
        narrower._from(self.t.let(f"add i64 {low}, {whole}"), str(rest))

    def _may_stream(self, s: Store) -> bool:
        """Whether all vectors of an iteration side by side are whole cache lines: a line is then written at once."""
        vector = self.lanes * s.buffer.dtype.itemsize
        return s.buffer in self.outside.traffic.streams and vector >= LEAST_STREAMED and vector * self.plan.vectors % LINE == 0

    def _first_line(self, stores: Sequence[Store], count: str) -> str:
        """The first iteration in which all stores begin a cache line; all are before it where lines of stores do not begin
        together, or where sums would be added up in an order that depends on where memory lies."""
        t, found = self.t, ""
        summed = any(isinstance(s, Combine) for s in self.plan.inside)
        for s in stores:
            size = s.buffer.dtype.itemsize
            address = t.let(f"ptrtoint ptr {self.bases[s]} to i64")
            before = t.let(f"and i64 {t.let(f'sub i64 0, {address}')}, {LINE - 1}")
            rest = before if summed else t.let(f"and i64 {before}, {size - 1}")
            steps = t.let(f"udiv i64 {before}, {size}")
            found = found or steps
            fits = t.let(f"and i1 {t.let(f'icmp eq i64 {rest}, 0')}, {t.let(f'icmp eq i64 {found}, {steps}')}")
            found = t.let(f"select i1 {fits}, i64 {steps}, i64 {count}")
        return least(t, found, count)

    def _are_apart(self, stores: Sequence[Store]) -> str:
        """Whether what is stored does not lie where what is loaded lies."""
        t, found = self.t, "true"
        for s in stores:
            for load in self.plan.inside if s.buffer in self.outside.traffic.near else ():
                if isinstance(load, Load) and load.buffer in self.outside.traffic.near:
                    found = t.let(f"and i1 {found}, {t.let(f'icmp ne ptr {self.bases[s]}, {self.bases[load]}')}")
        return found

    def _loop(self, begin: str, end: str, past_caches: frozenset[Buffer] = frozenset()) -> None:
        """The iterations from `begin` to below `end`, both counted from the first one."""
        t, self.past_caches = self.t, past_caches
        combines = [s for s in self.plan.inside if isinstance(s, Combine)]
        t.lanes = self.lanes
        starts = [self._identity(s) for s in combines]
        joins = [self._join(s) for s in combines]
        step = self.lanes * self.plan.vectors
        whole = begin == "0" and end.isdigit() and int(end) % step == 0
        counts = [1 if is_extreme(s.primitive, s.cell.dtype) else self.plan.vectors for s in combines]
        first: Sequence[Join] = joins
        if whole and int(end) == step:  # of one iteration
            first = [join if count < self.plan.vectors else lambda x, _: x for join, count in zip(joins, counts, strict=True)]
        carried = [of_parts(s.parts * count, s.dtype) for s, count in zip(starts, counts, strict=True)]
        totals = t.vector_loop(begin, end, self.plan.vectors, not whole, carried,
                               lambda at, mask, olds: self._iterations(at, mask, olds, combines, starts, first), joins)
        ends = [t.first(self._folded(total, join)) for total, join in zip(totals, joins, strict=True)]
        t.lanes = 1
        for s, end_value in zip(combines, ends, strict=True):
            self.outside.combine(s.cell, s.primitive, end_value)

    def _prepare(self, low: str) -> None:
        """What is the same for all iterations: where accesses begin, and operands in every lane."""
        t, outside, axis = self.t, self.outside, self.loop.axis
        outside.env[axis] = low
        for s in self.plan.inside:
            if isinstance(s, (Load, Store)) and s not in self.gathered:
                at = outside.scalar(position_in(s.buffer, s.index))
                self.bases[s] = t.address(outside.pointer(s.buffer), at, np_dtype(s.buffer.dtype))
        wanted = [*(x for s in self.plan.inside for x in operands(s)), *self.gathered.values()]
        scalars = {x: outside.scalar(x) for x in wanted if not isinstance(x, ScalarConst) and self._is_same(x)}
        steps = dict.fromkeys(v for x in wanted if isinstance(x, Affine) for v, _ in x.terms
                              if v is not axis and v not in self.plan.varying)
        t.lanes = self.lanes
        for x, text in scalars.items():
            self.splats[x] = t.spread(text, np_dtype(x.dtype))
        for v in steps:
            self.splats[v] = t.spread(outside.env[v], np.dtype("i8"))
        if any(isinstance(x, Affine) and x.stride(axis) for x in wanted):
            start = t.spread(low, np.dtype("i8"))
            lanes = ", ".join(f"i64 {k}" for k in range(self.lanes))
            self.first = t.value(f"add {t.vector(start.dtype)} {start.text}, <{lanes}>", start.dtype)
        trips = self.loop.high - self.loop.low
        is_short = not trips.terms and trips.constant <= self.lanes
        for s in () if is_short else self.plan.inside:  # a reciprocal takes longer than a quotient or two
            if isinstance(s, Let) and s.primitive == "div" and np_dtype(s.target.dtype) in FORMATS and self._is_same(s.args[1]):
                self._prepare_division(s.args[1])
        t.lanes = 1

    def _prepare_division(self, divisor: Scalar) -> None:
        if divisor not in self.divisors:
            d = self._vector(divisor, ())
            self.divisors[divisor] = Maths(self.t, d.dtype).reciprocal(d)

    def _is_same(self, x: Scalar) -> bool:
        """Whether an operand is the same for all iterations."""
        if isinstance(x, Affine):
            return all(v not in self.plan.varying for v, _ in x.terms)
        return x not in self.plan.varying

    # --- some iterations at once

    def _iterations(self, at: Sequence[str], mask: str | None, olds: Sequence[VectorValue], combines: Sequence[Combine],
                    starts: Sequence[VectorValue], joins: Sequence[Join]) -> list[VectorValue]:
        t = self.t
        self.values: dict[ScalarVar, VectorValue] = {}
        for s in self.plan.inside:
            match s:
                case Load(target, buffer, _) if s in self.gathered:
                    index = self._vector(self.gathered[s], at)
                    if mask is not None:
                        index = t.select(VectorValue(mask, BOOL), index, t.splat(0, index.dtype))
                    self.values[target] = t.gather(self.outside.pointer(buffer), index, np_dtype(buffer.dtype))
                case Load(target, buffer, _):
                    addresses = self._addresses(s, at)
                    self.values[target] = t.loads(addresses, np_dtype(buffer.dtype), mask)
                    if mask is None and s in self.ahead:
                        t.fetch(addresses[:: max(1, LINE // (self.lanes * buffer.dtype.itemsize))], self.ahead[s])
                case Let(target):
                    self.values[target] = self._computed(s, at)
        found = []
        for s, start, join, old in zip(combines, starts, joins, olds, strict=True):
            factors = None if mask else self._factors(s)
            if factors is not None:
                found.append(t.intrinsic("fma", *(self._vector(f, at) for f in factors), old))
                continue
            x = self._vector(s.value, at)
            x = x if x.more or len(at) == 1 else of_parts(x.parts * len(at), x.dtype)
            x = x if mask is None else t.select(VectorValue(mask, BOOL), x, start)
            apart = [x] if len(old.parts) == len(at) else [VectorValue(part, x.dtype) for part in x.parts]
            found.append(join(*apart, old))
        # Last, as LLVM 22 makes one masked load, at the select, of a masked load and a select: behind stores to what is loaded.
        for s in self.plan.inside:
            if isinstance(s, Store):
                t.stores(self._vector(s.value, at), self._addresses(s, at), None if self._has_room(s) else mask,
                         s.buffer in self.past_caches)
        return found

    def _addresses(self, s: Load | Store, at: Sequence[str]) -> list[str]:
        return [self.t.address(self.bases[s], i, np_dtype(s.buffer.dtype)) for i in at]

    def _has_room(self, s: Store) -> bool:
        """Whether a vector may be stored whole where only the first of its lanes count: in a row that ends where local memory does.
        What is stored under a mask is not at hand for the next load."""
        end = position_in(s.buffer, s.index) + (self.loop.high - affine(self.loop.axis))
        return s.buffer.role == "local" and end == Affine((), s.buffer.size)

    def _computed(self, s: Let, at: Sequence[str]) -> VectorValue:
        x = [self._vector(a, at) for a in s.args]
        if s.primitive == "div" and s.args[1] in self.divisors:
            return Maths(self.t, x[1].dtype).quotient(x[0], x[1], self.divisors[s.args[1]])
        write = lower_primitive(s.primitive, [a.dtype for a in s.args], s.target.dtype, self.outside.machine)
        return write(self.t, x)

    def _vector(self, x: Scalar, at: Sequence[str]) -> VectorValue:
        """An operand: one vector where it is the same for all iterations, else one for each index."""
        if isinstance(x, ScalarConst):
            return self.t.splat(*held(x))
        if x in self.splats:
            return self.splats[x]
        if isinstance(x, ScalarVar):
            return self.values[x] if x is not self.loop.axis else self._axis(at)
        t, total = self.t, self.t.splat(x.constant, np.dtype("i8"))
        for v, factor in x.terms:
            term = self._vector(v, at)
            total = t.binary("add", total, term if factor == 1 else t.binary("mul", term, t.splat(factor, term.dtype)))
        return total

    def _axis(self, at: Sequence[str]) -> VectorValue:
        """The axis in every lane."""
        t = self.t
        assert self.first is not None
        return t.binary("add", self.first, of_parts([t.spread(i, np.dtype("i8")).text for i in at], np.dtype("i8")))

    # --- reductions

    def _identity(self, s: Combine) -> VectorValue:
        start = identity(s.primitive, s.cell.dtype)
        assert start is not None
        return self.t.splat(start.value, np_dtype(s.cell.dtype))

    def _join(self, s: Combine) -> Join:
        write = lower_primitive(s.primitive, [s.cell.dtype, s.cell.dtype], s.cell.dtype, self.outside.machine)
        return lambda *x: write(self.t, x)

    def _factors(self, s: Combine) -> tuple[Scalar, ...] | None:
        """The factors of what a float sum adds up, where it is a product: that is not rounded then."""
        if s.primitive != "add" or np_dtype(s.cell.dtype) not in FORMATS:
            return None
        made = next((each for each in self.plan.inside if isinstance(each, Let) and each.target is s.value), None)
        return made.args if made is not None and made.primitive == "mul" else None

    def _folded(self, x: VectorValue, join: Join) -> VectorValue:
        """All lanes joined, in every lane."""
        t, shift = self.t, self.lanes // 2
        type = t.vector(x.dtype)
        while shift:
            order = [(k + shift) % self.lanes for k in range(self.lanes)]
            x = join(x, VectorValue(t.shuffle(type, x.text, order), x.dtype))
            shift //= 2
        return x
