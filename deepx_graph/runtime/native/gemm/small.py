"""A small or thin matrix product, read where its operands lie: the loops, their IR, and the kernel.

Registers lie across the result where an operand lies along it, else along the terms, else each takes one element. Every element of
the result is summed by itself, so what is not finite stays where it belongs. Shares of a large one are parts of one axis of the
result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from deepx_graph.ir import Node
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import ForecastParts, chunk_ns, memory_ns
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.builder import F4, F8, DType, IRBuilder, branch, scalar_type
from deepx_graph.runtime.native.llvm.target import Target, this_machine
from deepx_graph.runtime.native.machine_kernel import DATA, Layout, MachineCode
from deepx_graph.runtime.straightline import ArrayType
from deepx_graph.types import TensorType

MOST_ROWS = 4
"""Rows of the result that share what is read."""

PAGE, FAR_BYTES, FEW_TERMS = 4096, 1 << 20, 8
"""Of terms that lie at least that far apart, in operands larger than this, so many are added to whole rows of the result at a time:
pages are then read from end to end."""

SUMMED_TERMS, MOST_ALONG = 1024, 1 << 18
"""Of others so many, which keeps rounding small; sums along the lanes have at most so many terms."""

MOST_SHARES, LEAST_LANES = 64, 4
"""The most shares of a product; those along the lanes have at least so many registers."""

SUMS = {64: 24, 32: 12, 16: 12}
"""Registers for sums, by the bytes of a register; the others hold operands."""


@dataclass(frozen=True)
class GemmAxis:
    """An axis of the product: its size, and how far its next element is in the left operand, the right one and the result."""

    size: int
    steps: tuple[int, int, int]


LEFT, RIGHT, RESULT = range(3)
_ONE = GemmAxis(1, (0, 0, 0))


@dataclass(frozen=True)
class SmallGemmPlan:
    """The loops of a product: `outer` around blocks of `rows`, with registers along `lane`, which is summed over where `along`."""

    dtype: DType
    outer: tuple[GemmAxis, ...]
    rows: GemmAxis
    lane: GemmAxis
    terms: tuple[GemmAxis, ...]
    along: bool
    vector: int
    """The operand that lies along the lanes, where they are no terms."""

    @property
    def work(self) -> int:
        return math.prod(a.size for a in (*self.outer, self.rows, self.lane, *self.terms))

    @property
    def is_far(self) -> bool:
        """Whether terms lie in memory pages of their own."""
        apart = self.terms[0].steps[self.vector] * self.dtype.itemsize if len(self.terms) == 1 and not self.along else 0
        return apart >= PAGE and self.operand_bytes > FAR_BYTES

    @property
    def at_once(self) -> int:
        """How many of the terms are summed before they are added to the result; 0 for all."""
        many = FEW_TERMS if self.is_far else SUMMED_TERMS
        return many if len(self.terms) == 1 and not self.along and self.terms[0].size > many else 0

    @property
    def operand_bytes(self) -> int:
        """The bytes of the larger operand."""
        axes = (*self.outer, self.rows, self.lane, *self.terms)
        return self.dtype.itemsize * max(math.prod(a.size for a in axes if a.steps[side]) for side in (LEFT, RIGHT))

    def nanoseconds(self, lanes: int) -> float:
        """About how long one thread takes."""
        results = self.work // math.prod(a.size for a in ((self.lane, *self.terms) if self.along else self.terms))
        busy = min(lanes, self.lane.size)
        arithmetic = self.work / (2 * busy) + results * (2.0 if self.along else 0.5 / busy)
        return max(arithmetic, memory_ns(constants(), self.operand_bytes, 1))


# --- which loops


def planned(dtype: DType, left: Sequence[int], right: Sequence[int], left_batch: Sequence[int], right_batch: Sequence[int],
            left_terms: Sequence[int], right_terms: Sequence[int]) -> SmallGemmPlan:
    """The loops of a product of operands of those shapes."""
    x, y = _steps(left), _steps(right)
    rows = [k for k in range(len(left)) if k not in (*left_batch, *left_terms)]
    columns = [k for k in range(len(right)) if k not in (*right_batch, *right_terms)]
    z = _steps([*(left[k] for k in (*left_batch, *rows)), *(right[k] for k in columns)])
    batch = _joined([GemmAxis(left[i], (x[i], y[j], z[k])) for k, (i, j) in enumerate(zip(left_batch, right_batch, strict=True))])
    down = _joined([GemmAxis(left[i], (x[i], 0, z[k])) for k, i in enumerate(rows, len(left_batch))])
    across = _joined([GemmAxis(right[j], (0, y[j], z[k])) for k, j in enumerate(columns, len(left_batch) + len(rows))])
    terms = _joined([GemmAxis(left[i], (x[i], y[j], 0)) for i, j in zip(left_terms, right_terms, strict=True)])
    return _arranged(dtype, batch, [down, across], terms)


def _steps(shape: Sequence[int]) -> list[int]:
    """How far the next element along each axis is."""
    return [math.prod(shape[k + 1 :]) for k in range(len(shape))]


def _joined(axes: Sequence[GemmAxis]) -> list[GemmAxis]:
    """The axes of more than one element; those that lie one in the other as one."""
    found: list[GemmAxis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        if found and found[-1].steps == tuple(axis.size * s for s in axis.steps):
            axis = replace(axis, size=axis.size * found.pop().size)
        found.append(axis)
    return found


def _arranged(dtype: DType, batch: Sequence[GemmAxis], free: Sequence[Sequence[GemmAxis]],
              terms: Sequence[GemmAxis]) -> SmallGemmPlan:
    lanes = this_machine().register_bytes // dtype.itemsize
    found = [(a, side) for side in (LEFT, RIGHT) for a in free[side] if a.steps[side] == 1 == a.steps[RESULT]]
    lane, vector = found[0] if found else (_ONE, RIGHT)
    dense = next((t for t in terms if t.steps[LEFT] == 1 == t.steps[RIGHT]), None)
    along = dense is not None and 2 * lane.size < min(lanes, dense.size)
    if along:
        assert dense is not None
        lane, terms = dense, [t for t in terms if t is not dense]
    other = [a for side in (LEFT, RIGHT) for a in free[side] if a is not lane and (along or side != vector)]
    rows = max(other, key=lambda a: a.size, default=_ONE)
    outer = [a for a in (*batch, *free[LEFT], *free[RIGHT]) if a is not lane and a is not rows]
    return SmallGemmPlan(dtype, tuple(outer), rows, lane, tuple(terms), along, vector)


# --- the code


@dataclass(frozen=True)
class ShareAxis:
    """The axis of the result that shares have parts of: so many parts, of `each` elements."""

    axis: GemmAxis
    each: int
    count: int


def shared(plan: SmallGemmPlan, lanes: int) -> ShareAxis | None:
    """The shares of a product; None where the whole is too little for several."""
    wanted = min(MOST_SHARES, int(2 * plan.nanoseconds(lanes) / chunk_ns(constants())))
    units = [(a, 1) for a in plan.outer] + [(plan.rows, MOST_ROWS)] + (
        [] if plan.along else [(plan.lane, PAGE // plan.dtype.itemsize if plan.is_far else LEAST_LANES * lanes)])
    axis, unit = max(units, key=lambda found: found[0].size // found[1])
    each = -(-axis.size // (wanted * unit)) * unit if wanted > 1 else axis.size
    return ShareAxis(axis, each, -(-axis.size // each)) if each < axis.size else None


def part_of(plan: SmallGemmPlan, axis: GemmAxis, size: int) -> SmallGemmPlan:
    """The plan for the first elements of an axis."""
    part = replace(axis, size=size)
    outer = tuple(part if a is axis else a for a in plan.outer)
    rows, lane = (part if a is axis else a for a in (plan.rows, plan.lane))
    return replace(plan, outer=outer, rows=rows, lane=lane)


def function_text(plan: SmallGemmPlan, register_bytes: int) -> tuple[str, int]:
    """The IR of a product, whose table holds the array objects of operands and result, and the number of its shares:
    `product(table, scratch)` for none, else `product(table, counter, scratch)`."""
    found = shared(plan, register_bytes // plan.dtype.itemsize)
    t = IRBuilder(register_bytes // plan.dtype.itemsize)
    if found is None:
        writer = _Writer(plan, register_bytes, t)
        writer.product(writer.operands())
        return _function(t, "ptr %table, ptr %scratch", ["  ret void"]), 0
    axis, each, count = found.axis, found.each, found.count
    writer = _Writer(part_of(plan, axis, each), register_bytes, t)
    pointers = writer.operands()
    t.line("br label %next")
    t.start("next")
    number = t.let("atomicrmw add ptr %counter, i64 1 monotonic")
    t.line(f"br i1 {t.let(f'icmp slt i64 {number}, {count}')}, label %take, label %done")
    t.start("take")
    pointers = writer.moved(pointers, axis, t.let(f"mul i64 {number}, {each}"))
    last = _Writer(part_of(plan, axis, axis.size - (count - 1) * each), register_bytes, t)
    branch(t, t.let(f"icmp slt i64 {number}, {count - 1}"), lambda: writer.product(pointers), lambda: last.product(pointers))
    return _function(t, "ptr %table, ptr %counter, ptr %scratch", ["  br label %next", "done:", "  ret void"]), count


def _function(t: IRBuilder, params: str, end: Sequence[str]) -> str:
    return "\n".join([f"define void @product({params}) nounwind {{", "entry:", *t.lines, *end, "}", *t.declarations, ""])


Pointers = tuple[str, str, str]


class _Writer:
    """Writes the loops of a plan."""

    def __init__(self, plan: SmallGemmPlan, register_bytes: int, t: IRBuilder) -> None:
        self.plan = plan
        self.type = scalar_type(plan.dtype)
        self.lanes = register_bytes // plan.dtype.itemsize
        self.height = min(MOST_ROWS, plan.rows.size)
        self.most = min(-(-plan.lane.size // self.lanes), SUMS[register_bytes] // self.height)
        self.t = t

    def product(self, pointers: Pointers) -> None:
        """The whole product."""
        self._nested(self.plan.outer, pointers, self._across_rows)

    def operands(self) -> Pointers:
        """Where operands and result begin."""
        objects = [self.t.let(f"load ptr, ptr {self.t.let(f'getelementptr ptr, ptr %table, i64 {k}')}") for k in range(3)]
        left, right, result = (self.t.let(f"load ptr, ptr {self.t.let(f'getelementptr i8, ptr {o}, i64 {DATA}')}") for o in objects)
        return left, right, result

    def _at(self, pointer: str, index: str, step: int) -> str:
        """The address so many elements on."""
        if not step or index == "0":
            return pointer
        offset = str(int(index) * step) if index.isdigit() else self.t.let(f"mul i64 {index}, {step}")
        return self.t.let(f"getelementptr {self.type}, ptr {pointer}, i64 {offset}")

    def moved(self, pointers: Pointers, axis: GemmAxis, index: str) -> Pointers:
        """The addresses so many elements of an axis on."""
        left, right, result = (self._at(p, index, s) for p, s in zip(pointers, axis.steps, strict=True))
        return left, right, result

    def _loop(self, count: int, sums: list[str], types: Sequence[str], body: Callable[[str, list[str]], list[str]]) -> list[str]:
        """Runs the body for 0..count-1; what it gives for the sums is what it gets next."""
        if count == 1:
            return body("0", sums)
        t, label, before = self.t, self.t.name("loop"), self.t.block
        t.line(f"br label %{label}")
        t.start(label)
        hole, index = len(t.lines), f"%index.{label}"
        carried = [f"%sum{k}.{label}" for k in range(len(sums))]
        made = body(index, carried)
        next_index = self.t.let(f"add i64 {index}, 1")
        more = self.t.let(f"icmp ult i64 {next_index}, {count}")
        phis = [("i64", index, "0", next_index), *zip(types, carried, sums, made, strict=True)]
        t.lines[hole:hole] = [f"  {name} = phi {type} [ {first}, %{before} ], [ {again}, %{t.block} ]"
                              for type, name, first, again in phis]
        t.line(f"br i1 {more}, label %{label}, label %done.{label}")
        t.start(f"done.{label}")
        return made

    def _nested(self, axes: Sequence[GemmAxis], pointers: Pointers, body: Callable[[Pointers], None]) -> None:
        def run(index: str, sums: list[str]) -> list[str]:
            self._nested(axes[1:], self.moved(pointers, axes[0], index), body)
            return sums

        if axes:
            self._loop(axes[0].size, [], [], run)
        else:
            body(pointers)

    def _across_rows(self, pointers: Pointers) -> None:
        """Blocks of rows, then the rows that are left."""
        rows, blocks = self.plan.rows, self.plan.rows.size // self.height
        block = GemmAxis(blocks, tuple(self.height * s for s in rows.steps))  # type: ignore[arg-type]
        left = rows.size - blocks * self.height
        self._nested([block], pointers, lambda p: self._block_of(p, self.height))
        if left:
            self._block_of(self.moved(pointers, block, str(blocks)), left)

    def _block_of(self, pointers: Pointers, height: int) -> None:
        if self.plan.along:
            self._along(pointers, height)
        elif not (few := self.plan.at_once):
            self._across(pointers, height, self.plan.terms, is_first=True)
        else:
            (terms,) = self.plan.terms
            blocks, rest = divmod(terms.size, few)
            some, more = replace(terms, size=few), GemmAxis(blocks - 1, tuple(few * s for s in terms.steps))  # type: ignore[arg-type]
            self._across(pointers, height, [some], is_first=True)
            later = self.moved(pointers, more, "1")
            if more.size:
                self._nested([more], later, lambda p: self._across(p, height, [some], is_first=False))
            if rest:
                self._across(self.moved(later, more, str(more.size)), height, [replace(terms, size=rest)], is_first=False)

    def _across(self, pointers: Pointers, height: int, terms: Sequence[GemmAxis], *, is_first: bool) -> None:
        """All of the lanes of some rows: the first terms of their sums, or more of them."""
        lane, wide = self.plan.lane, self.most * self.lanes
        blocks, rest = divmod(lane.size, wide)
        block = GemmAxis(blocks, tuple(wide * s for s in lane.steps))  # type: ignore[arg-type]
        if blocks:
            self._nested([block], pointers, lambda p: self._columns(p, height, self._widths(wide), terms, is_first=is_first))
        if rest:
            self._columns(self.moved(pointers, block, str(blocks)), height, self._widths(rest), terms, is_first=is_first)

    def _widths(self, size: int) -> list[int]:
        """So many lanes as whole registers and one that is not full."""
        whole, rest = divmod(size, self.lanes)
        return [self.lanes] * whole + [rest] * (rest > 0)

    def _columns(self, pointers: Pointers, height: int, widths: Sequence[int], terms: Sequence[GemmAxis], *,
                 is_first: bool) -> None:
        """Some registers of some rows of the result."""
        plan = self.plan
        scalar = LEFT + RIGHT - plan.vector

        def term(p: Pointers, sums: list[str]) -> list[str]:
            lanes = [self._load(self._at(p[plan.vector], str(k * self.lanes), 1), w) for k, w in enumerate(widths)]
            made = []
            for r in range(height):
                one = self.t.let(f"load {self.type}, ptr {self._at(p[scalar], str(r), plan.rows.steps[scalar])}")
                wide = {w: self._splat(one, w) for w in dict.fromkeys(widths)}
                made += [self._fma(wide[w], x, sums[r * len(widths) + k], w)
                         for k, (w, x) in enumerate(zip(widths, lanes, strict=True))]
            return made

        rows = [self._at(pointers[RESULT], str(r), plan.rows.steps[RESULT]) for r in range(height)]
        targets = [(self._at(row, str(k * self.lanes), 1), w) for row in rows for k, w in enumerate(widths)]
        sums = self._summed(terms, pointers, ["zeroinitializer"] * len(targets), [w for _, w in targets], term)
        for (at, w), total in zip(targets, sums, strict=True):
            if not is_first:
                total = self.t.let(f"fadd {self._vector(w)} {total}, {self._load(at, w)}")
            self._store(total, at, self._vector(w))

    def _summed(self, axes: Sequence[GemmAxis], pointers: Pointers, sums: list[str], widths: Sequence[int],
                term: Callable[[Pointers, list[str]], list[str]]) -> list[str]:
        """The sums after all terms of some axes."""
        if not axes:
            return term(pointers, sums)
        return self._loop(axes[0].size, sums, [self._vector(w) for w in widths], lambda index, carried: self._summed(
            axes[1:], self.moved(pointers, axes[0], index), carried, widths, term))

    def _along(self, pointers: Pointers, height: int) -> None:
        """One element of each row, the registers along the terms."""
        blocks, rest = divmod(self.plan.lane.size, self.lanes)
        block = GemmAxis(blocks, (self.lanes, self.lanes, 0))
        totals = ["0.0"] * height
        for axis, width in ((block, self.lanes), (GemmAxis(1, block.steps), rest)):
            if not axis.size or not width:
                continue
            start = pointers if axis is block else self.moved(pointers, block, str(blocks))
            sums = self._summed((*self.plan.terms, axis), start, ["zeroinitializer"] * height, [width] * height,
                                lambda p, sums, w=width: self._products(p, sums, w))  # type: ignore[misc]
            totals = [self._total(t, s, width) for t, s in zip(totals, sums, strict=True)]
        for r, total in enumerate(totals):
            self._store(total, self._at(pointers[RESULT], str(r), self.plan.rows.steps[RESULT]), self.type)

    def _products(self, pointers: Pointers, sums: list[str], width: int) -> list[str]:
        found: list[str] = []
        read: dict[str, str] = {}
        for r, carried in enumerate(sums):
            x, y = (self._at(pointers[side], str(r), self.plan.rows.steps[side]) for side in (LEFT, RIGHT))
            for at in (x, y):
                if at not in read:
                    read[at] = self._load(at, width)
            found.append(self._fma(read[x], read[y], carried, width))
        return found

    # --- instructions

    def _vector(self, width: int) -> str:
        return f"<{width} x {self.type}>"

    def _load(self, pointer: str, width: int) -> str:
        return self.t.let(f"load {self._vector(width)}, ptr {pointer}, align {self.plan.dtype.itemsize}")

    def _store(self, value: str, pointer: str, type: str) -> None:
        self.t.line(f"store {type} {value}, ptr {pointer}, align {self.plan.dtype.itemsize}")

    def _splat(self, scalar: str, width: int) -> str:
        one = self.t.let(f"insertelement {self._vector(width)} poison, {self.type} {scalar}, i64 0")
        type = self._vector(width)
        return self.t.let(f"shufflevector {type} {one}, {type} poison, <{width} x i32> zeroinitializer")

    def _fma(self, x: str, y: str, z: str, width: int) -> str:
        name, type = f"@llvm.fmuladd.v{width}f{8 * self.plan.dtype.itemsize}", self._vector(width)
        self.t.declare(f"declare {type} {name}({type}, {type}, {type})")
        return self.t.let(f"call {type} {name}({type} {x}, {type} {y}, {type} {z})")

    def _total(self, start: str, sums: str, width: int) -> str:
        """The sum of all lanes and what there is already, in the order that is fastest."""
        name, type = f"@llvm.vector.reduce.fadd.v{width}f{8 * self.plan.dtype.itemsize}", self._vector(width)
        self.t.declare(f"declare {self.type} {name}({self.type}, {type})")
        return self.t.let(f"call reassoc {self.type} {name}({self.type} {start}, {type} {sums})")


LEAST_EACH = 1 << 15
"""Multiplications of each product of a batch that are worth packing for."""

MOST_WORK = 1 << 19
"""Multiplications of a product that is done here, unless it is thin or one of a batch of products too small for all else."""


def build(node: Node, threads: int, *, is_thin: bool = False) -> SmallGemm | None:
    """The kernel of a `dot_general` of floats; None where it is too large, or of another type."""
    types = [t for t in (*(i.type for i in node.inputs), node.type) if isinstance(t, TensorType) and t.is_static]
    if len(types) != 3 or len({t.dtype.np for t in types}) != 1 or types[2].dtype.np not in (F4, F8):
        return None
    plan = planned(types[2].dtype.np, types[0].shape, types[1].shape, *node.attrs)
    batch = math.prod(types[2].shape[: len(node.attr("lhs_batching_dimensions"))])
    if plan.work == 0 or (plan.work > MOST_WORK and not is_thin and (batch == 1 or plan.work > batch * LEAST_EACH)):
        return None
    if plan.along and plan.lane.size > MOST_ALONG:
        return None
    return _kernel(plan, types[2].shape, this_machine(), threads)


@lru_cache(maxsize=64)
def _kernel(plan: SmallGemmPlan, shape: tuple[int, ...], machine: Target, threads: int) -> SmallGemm:
    return SmallGemm(plan, shape, machine.register_bytes, threads)


class SmallGemm(MachineCode):
    """The compiled function."""

    lowering = "machine code"

    def __init__(self, plan: SmallGemmPlan, shape: tuple[int, ...], register_bytes: int, threads: int) -> None:
        self.params = (LEFT, RIGHT)
        self.results = (ArrayType(plan.dtype, shape),)
        self.in_place = (frozenset[int](),)
        self.constants: tuple[Array, ...] = ()
        self.own_bytes = ()
        self.layout = Layout(0, 3, 3)
        self.nanoseconds = plan.nanoseconds(register_bytes // plan.dtype.itemsize)
        text, shares = function_text(plan, register_bytes)
        address = machine_code.functions(text, ["product"], self)["product"]
        self.threads = max(1, min(threads, shares))
        self.calls = ((address, self.threads if shares else 0),)

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        return ForecastParts(0.0, self.nanoseconds / self.threads)

    def scratch(self, loose: Mapping[int, int]) -> int:
        """The product before it is copied to where it goes, and operands that may not lie in order."""
        return self.results[0].nbytes + super().scratch(loose)
