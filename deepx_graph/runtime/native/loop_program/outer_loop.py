"""Loops over short rows written as vectors across rows (outer-loop vectorisation): each lane has a row of its own.

    for i in 0 .. n:                                 for lanes of i:
      cell = -inf                                      cells = -inf
      for k in 0 .. 8: cell = max(cell, x[i, k])   ->  cells = max(cells, x[lanes, 0]), ..., max(cells, x[lanes, 7])
      for k in 0 .. 8: y[i, k] = x[i, k] / cell        y[lanes, 0] = x[lanes, 0] / cells, ..., y[lanes, 7] = x[lanes, 7] / cells

A row of some eight elements fills few lanes, and to fold it takes as many steps as there are halves of it, for one result. Across
rows nothing is folded within a register. Elements that lie side by side in memory come into lanes as blocks that are transposed.
(D. Nuzman and A. Zaks, Outer-loop vectorization: revisited for short SIMD architectures, PACT 2008.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from deepx_graph.loops.program import (
    Buffer,
    Cell,
    Combine,
    For,
    Get,
    Let,
    Load,
    Set,
    Statement,
    Store,
    assigns,
    operands,
    position_in,
    reads,
    walk,
)
from deepx_graph.loops.scalar import Affine, Scalar, ScalarConst, ScalarVar, affine
from deepx_graph.runtime.native.llvm.builder import BOOL, DType, VectorValue, branch, joined, of_parts
from deepx_graph.runtime.native.llvm.math import FORMATS, Maths, Reciprocal
from deepx_graph.runtime.native.llvm.target import Target
from deepx_graph.runtime.native.llvm.transpose import load_columns, store_columns
from deepx_graph.runtime.native.loop_program.extremes import is_extreme
from deepx_graph.runtime.native.loop_program.primitives import has_vectors, held, lower_primitive, np_dtype
from deepx_graph.runtime.native.loop_program.statements import StatementEmitter

SHORTEST, LONGEST = 8, 64
"""The elements of a row: LLVM makes vectors across shorter ones itself, longer ones are folded in vectors of their own."""

FEWEST_ROWS = 8
"""Fewer are left to be done one by one."""

PART = 8
"""So many elements of a row are computed one beside the other, about: with more, registers do not hold them."""

MOST_PARTS = 2
"""Of so many parts of a row each is written by itself; of more there is a loop."""

FEW = 24
"""Of so many rows one may be done by itself without passes: that takes a loop 4 % longer at most."""

INDEX = np.dtype("i8")


@dataclass
class OuterPlan:
    """How a loop over rows is written."""

    lanes: int
    before: list[Statement] = field(default_factory=list)
    """What is the same for all rows."""
    inside: list[Statement] = field(default_factory=list)
    """What is done for each vector of rows."""
    kept: dict[Buffer, Buffer] = field(default_factory=dict)
    """Local memory for the elements of a row, and the same for a vector of rows."""

    @property
    def outer(self) -> list[ScalarVar]:
        """Values from outside that are used inside."""
        statements = [*walk(self.inside)]
        made = {x for s in statements for x in assigns(s)}
        return [x for x in dict.fromkeys(x for s in statements for x in operands(s)) if isinstance(x, ScalarVar) and x not in made]


def outer_plan(loop: For, machine: Target) -> OuterPlan | None:
    """How a loop over rows becomes vectors; None where its rows are none that gain by it, or it cannot."""
    count = loop.high - loop.low
    rows = [s for s in loop.body if isinstance(s, For)]
    if not loop.parallel or not rows or (not count.terms and count.constant < FEWEST_ROWS):
        return None
    if any(s.low.terms or s.high.terms or not 0 < _length(s) <= LONGEST for s in rows) or max(map(_length, rows)) < SHORTEST:
        return None
    if not any(isinstance(each, Combine) for s in rows for each in s.body):
        return None
    sizes = [np_dtype(x.dtype).itemsize for s in walk(rows) for x in assigns(s) if x.dtype.is_float]
    lanes = machine.register_bytes // max(4, *sizes, 4)
    while not count.terms and lanes > count.constant:
        lanes //= 2
    planner = _Planner(loop, machine, OuterPlan(lanes))
    return planner.plan if planner.fits() else None


def rows_at_once(loop: For, machine: Target) -> int:
    """How many iterations of a loop are done together; shares of it are best multiples of that."""
    plan = outer_plan(loop, machine)
    return 1 if plan is None else plan.lanes


def leaves_few_rows(s: Statement, machine: Target) -> bool:
    """Whether a statement is a loop over rows that becomes vectors but for few of them. LLVM's passes make these few faster, and
    take more than half of the time in which the loop is compiled."""
    plan = outer_plan(s, machine) if isinstance(s, For) else None
    if plan is None or not isinstance(s, For):
        return False
    count = s.high - s.low
    return not count.terms and count.constant % plan.lanes * FEW <= count.constant


class _Planner:
    """Sorts the statements of a loop over rows, and says whether all of them can be done for several rows at once."""

    def __init__(self, loop: For, machine: Target, plan: OuterPlan) -> None:
        self.loop, self.machine, self.plan = loop, machine, plan
        self.varying: set[ScalarVar | Cell] = {loop.axis}

    def fits(self) -> bool:
        """Whether all statements can be done for several rows at once; the plan then has them."""
        for s in self.loop.body:
            is_same = isinstance(s, (Let, Load)) and self.varying.isdisjoint(reads(s))
            if not is_same and not self._fits(s, None):
                return False
            (self.plan.before if is_same else self.plan.inside).append(s)
        return True

    def _fits(self, s: Statement, row: For | None) -> bool:
        if not all(not isinstance(x, Affine) or not x.terms for x in operands(s)):
            return False
        if isinstance(s, (Get, Combine)) and s.cell not in self.varying:
            return False
        self.varying.update(assigns(s))
        match s:
            case For(body=body):
                return row is None and all(self._fits(each, s) for each in body)
            case Load() | Store():
                return self._moves(s, row)
            case Let(target, primitive, args):
                return has_vectors(primitive, [a.dtype for a in args], target.dtype, self.machine)
            case Set() | Get():
                return row is None
        return isinstance(s, Combine) and row is not None

    def _moves(self, s: Load | Store, row: For | None) -> bool:
        """Whether an access is to neighbours in memory, of all rows or within each."""
        at = position_in(s.buffer, s.index)
        step, along = at.stride(self.loop.axis), 0 if row is None else at.stride(row.axis)
        if any(v in self.varying for v, _ in at.terms if v is not self.loop.axis and (row is None or v is not row.axis)):
            return False
        if s.buffer.role == "local" and step == 0:
            return row is not None and self._keeps(s, row, at)
        if step == 1 or (step == 0 and isinstance(s, Load)):
            return True
        return along == 1 and step > 1 and np_dtype(s.buffer.dtype) != BOOL

    def _keeps(self, s: Load | Store, row: For, at: Affine) -> bool:
        """Whether an access is to a row of local memory that this loop alone fills."""
        buffer, kept = s.buffer, self.plan.kept
        if isinstance(s, Store):
            kept.setdefault(buffer, Buffer(f"{buffer.name}.rows", buffer.dtype, (buffer.size, self.plan.lanes), "local"))
        return buffer in kept and at == affine(row.axis) and not row.low.constant and _length(row) == buffer.size


@dataclass(frozen=True)
class _Part:
    """Elements of the rows that an inner loop goes along, which are in registers together: so many from one on."""

    loop: For
    begin: str
    size: int


class OuterLoop:
    """Writes a loop over rows by its plan. A value has a vector for each element of a part of a row, or one where it is of the
    whole row."""

    def __init__(self, outside: StatementEmitter, loop: For, plan: OuterPlan) -> None:
        self.outside, self.loop, self.plan = outside, loop, plan
        self.t, self.lanes = outside.t, plan.lanes
        self.statements = [*walk(plan.inside)]
        self.values: dict[Scalar, VectorValue] = {}
        self.cells: dict[Cell, VectorValue] = {}
        self.read: dict[_Access, VectorValue] = {}
        self.reciprocals: dict[Scalar, Reciprocal] = {}
        self.bases: dict[Statement, str] = {}
        self.first, self.part = "", None  # type: str, _Part | None

    def write(self, low: str, high: str) -> str:
        """The rows from `low` up to below `high`, of which there are some, as far as they fill vectors; the first that does not."""
        t = self.t
        count = high if low == "0" else t.let(f"sub i64 {high}, {low}")
        whole = str(int(count) // self.lanes * self.lanes) if count.isdigit() else t.let(f"and i64 {count}, {-self.lanes}")
        end = whole if low == "0" else t.let(f"add i64 {low}, {whole}")
        if whole.isdigit() and whole != "0":
            self._all(low, whole)
        elif whole != "0":
            branch(t, t.let(f"icmp sgt i64 {whole}, 0"), lambda: self._all(low, whole))
        return end

    def _all(self, low: str, count: str) -> None:
        self._prepare(low)
        self.t.rows("0", count, self._rows, self.lanes)

    def _prepare(self, low: str) -> None:
        """What is the same for all rows: where accesses begin, and operands in every lane."""
        t, env, axis = self.t, self.outside.env, self.loop.axis
        for s in self.plan.before:
            self.outside.statement(s)
        env[axis] = low
        for s in self.statements:
            if isinstance(s, For):
                env[s.axis] = str(s.low.constant)
            elif isinstance(s, (Load, Store)) and s.buffer not in self.plan.kept:
                at = self.outside.scalar(position_in(s.buffer, s.index))
                self.bases[s] = t.address(self.outside.pointer(s.buffer), at, np_dtype(s.buffer.dtype))
        t.lanes = self.lanes
        for x in self.plan.outer:
            self.values[x] = t.spread(self.outside.scalar(x), np_dtype(x.dtype))
        t.lanes = 1

    # --- a vector of rows

    def _rows(self, first: str) -> None:
        self.first, self.t.lanes = first, self.lanes
        for s in self.plan.inside:
            if isinstance(s, For):
                self._row(s)
            else:
                self._statement(s)
        self.t.lanes = 1

    def _row(self, s: For) -> None:
        """All elements of rows, part by part."""
        for x in _divisors(s):
            self.reciprocals[x] = self.reciprocals.get(x) or Maths(self.t, np_dtype(x.dtype)).reciprocal(self._value(x))
        length = _length(s)
        looped, rest = _looped(length), _looped(length)
        if looped:
            self._loop(s, looped)
        while rest < length:
            size = PART if length - rest >= 2 * PART else length - rest
            self._part(_Part(s, str(rest), size))
            rest += size

    def _loop(self, s: For, count: int) -> None:
        """Whole parts of rows. Nothing that is read in one of them is known behind the loop."""
        t = self.t
        for each in s.body:
            if isinstance(each, Store):
                self._forget(self._access(each))
        cells = list(dict.fromkeys(each.cell for each in s.body if isinstance(each, Combine)))

        def part(begin: str, carried: Sequence[VectorValue]) -> Sequence[VectorValue]:
            self.cells.update(zip(cells, carried, strict=True))
            self._part(_Part(s, begin, PART))
            return [self.cells[c] for c in cells]

        read = dict(self.read)
        ends = t.loop("0", str(count), [self.cells[c] for c in cells], part, PART, is_sure=True)
        self.cells.update(zip(cells, ends, strict=True))
        self.read = read

    def _part(self, part: _Part) -> None:
        self.part = part
        for s in part.loop.body:
            self._statement(s)
        self.part = None

    def _statement(self, s: Statement) -> None:
        match s:
            case Load(target):
                self.values[target] = self._loaded(s)
            case Let(target):
                self.values[target] = self._computed(s)
            case Store():
                self._store(s)
            case Set(cell, value):
                self.cells[cell] = self._value(value)
            case Get(target, cell):
                self.values[target] = self.cells[cell]
            case Combine(cell, primitive, value):
                write = lower_primitive(primitive, [cell.dtype, cell.dtype], cell.dtype, self.outside.machine)
                each = [VectorValue(text, np_dtype(cell.dtype)) for text in self._elements(value)]
                if is_extreme(primitive, cell.dtype):
                    self.cells[cell] = write(self.t, (self.cells[cell], *each))
                else:
                    self.cells[cell] = joined([self.cells[cell], *each], lambda a, b: write(self.t, (a, b)))

    def _value(self, x: Scalar) -> VectorValue:
        if isinstance(x, ScalarConst):
            return self.t.splat(*held(x))
        if isinstance(x, Affine):
            return self.t.splat(x.constant, INDEX)
        return self._axis(x) if x not in self.values else self.values[x]

    def _axis(self, x: ScalarVar) -> VectorValue:
        """The axis of the rows, in every lane, or that within a row."""
        t, start = self.t, self.outside.env[x]
        if self.part is None or x is not self.part.loop.axis:
            first = t.spread(t.let(f"add i64 {start}, {self.first}"), INDEX)
            lanes = ", ".join(f"i64 {k}" for k in range(self.lanes))
            return t.value(f"add {t.vector(INDEX)} {first.text}, <{lanes}>", INDEX)
        first_element = t.let(f"add i64 {start}, {self.part.begin}")
        return of_parts([t.spread(t.let(f"add i64 {first_element}, {k}"), INDEX).text for k in range(self.part.size)], INDEX)

    def _elements(self, x: Scalar) -> Sequence[str]:
        """A vector for each element of a part."""
        value = self._value(x)
        return value.parts if value.more or self.part is None else value.parts * self.part.size

    def _computed(self, s: Let) -> VectorValue:
        x = [self._value(a) for a in s.args]
        if s.primitive == "div" and x[0].more and s.args[1] in self.reciprocals:
            return Maths(self.t, x[1].dtype).quotient(x[0], x[1], self.reciprocals[s.args[1]])
        return lower_primitive(s.primitive, [a.dtype for a in s.args], s.target.dtype, self.outside.machine)(self.t, x)

    # --- memory

    def _loaded(self, s: Load) -> VectorValue:
        """What is at some place: loaded where it is not known yet."""
        if (key := self._access(s)) not in self.read:
            self.read[key] = self._load(s)
        return self.read[key]

    def _access(self, s: Load | Store) -> _Access:
        at, part = position_in(s.buffer, s.index), self.part
        if part is None:
            return s.buffer, at, 0, ""
        along, low = at.stride(part.loop.axis), part.loop.low.constant
        return s.buffer, at + (affine(part.loop.axis) - low) * -along, along, f"{part.begin} {part.size}"

    def _load(self, s: Load) -> VectorValue:
        t, dtype = self.t, np_dtype(s.buffer.dtype)
        step, along, base, size = self._reach(s)
        if step < 2:
            ats = [t.address(base, str(k * along), dtype) for k in range(size)]
            return t.loads(ats, dtype, None) if step else of_parts([t.load_one(at, dtype).text for at in ats], dtype)
        return load_columns(t, self._rows_at(base, step, dtype), size, dtype)

    def _store(self, s: Store) -> None:
        t, dtype, columns = self.t, np_dtype(s.buffer.dtype), self._elements(s.value)
        self._forget(access := self._access(s))
        self.read[access] = of_parts(columns, dtype)
        step, along, base, size = self._reach(s)
        if step == 1:
            t.stores(of_parts(columns, dtype), [t.address(base, str(k * along), dtype) for k in range(size)], None)
            return
        store_columns(t, of_parts(columns, dtype), self._rows_at(base, step, dtype))

    def _forget(self, stored: _Access) -> None:
        """What was read of a buffer that is stored into, or of one that it may lie over, but for other parts of the same rows."""
        near = self.outside.traffic.near
        self.read = {access: value for access, value in self.read.items() if access[1:3] == stored[1:3]
                     or (access[0] is not stored[0] and not {access[0], stored[0]} <= near)}

    def _reach(self, s: Load | Store) -> tuple[int, int, str, int]:
        """How far the elements of neighbouring rows lie apart, and those of a row; where the first lies, and how many there are."""
        t, part, dtype = self.t, self.part, np_dtype(s.buffer.dtype)
        size, begin = (1, "0") if part is None else (part.size, part.begin)
        if (wide := self.plan.kept.get(s.buffer)) is not None:
            return 1, self.lanes, t.moved(self.outside.pointer(wide), dtype, (begin, self.lanes)), size
        at = position_in(s.buffer, s.index)
        step, along = at.stride(self.loop.axis), 0 if part is None else at.stride(part.loop.axis)
        return step, along, t.moved(self.bases[s], dtype, (self.first, step), (begin, along)), size

    def _rows_at(self, base: str, step: int, dtype: DType) -> list[str]:
        """Where the rows begin."""
        return [self.t.address(base, str(lane * step), dtype) for lane in range(self.lanes)]


_Access = tuple[Buffer, Affine, int, str]
"""A buffer, where elements begin in it without what depends on the place in a row, how far they lie apart, and which part it is."""


def _divisors(loop: For) -> list[Scalar]:
    """What all elements of a row are divided by."""
    made = {x for s in loop.body for x in assigns(s)} | {loop.axis}
    divisions = [s for s in loop.body if isinstance(s, Let) and s.primitive == "div" and np_dtype(s.target.dtype) in FORMATS]
    return [s.args[1] for s in divisions if s.args[0] in made and s.args[1] not in made]


def _length(loop: For) -> int:
    return (loop.high - loop.low).constant


def _looped(length: int) -> int:
    """How many elements of a row are done in a loop over parts."""
    whole = (length // PART - (length % PART > 0)) * PART
    return whole if whole > MOST_PARTS * PART else 0
