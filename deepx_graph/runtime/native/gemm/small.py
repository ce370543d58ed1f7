"""Small matrix products by the loops of `small_plan.py`: their IR, and the kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from deepx_graph.ir import Node
from deepx_graph.runtime.array_type import ArrayType
from deepx_graph.runtime.cost.file import constants
from deepx_graph.runtime.cost.model import ForecastParts
from deepx_graph.runtime.kernels.program import Array
from deepx_graph.runtime.native.gemm.microkernel import block_lanes, registers, transposed_strip
from deepx_graph.runtime.native.gemm.small_plan import (
    LEFT,
    MOST_ALONG,
    RESULT,
    RIGHT,
    GemmAxis,
    ShareAxis,
    SmallGemmPlan,
    part_of,
    planned,
    shared,
    shared_rows,
    tile,
)
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.builder import F4, F8, IRBuilder, branch, each_share, scalar_type
from deepx_graph.runtime.native.llvm.target import Target, this_machine
from deepx_graph.runtime.native.machine_kernel import DATA, Layout, MachineKernel
from deepx_graph.types import TensorType


def function_text(plan: SmallGemmPlan, register_bytes: int) -> tuple[str, int]:
    """The IR of a product, whose table holds the array objects of operands and result, and the number of its shares:
    `product(table, scratch)` for none, else `product(table, counter, scratch)`."""
    found, w = shared(plan, register_bytes // plan.dtype.itemsize), _Text(plan, register_bytes)
    if found is None:
        writer = w.writer(plan)
        writer.product(w.operands(writer, DATA))
        return w.function("ptr %table, ptr %scratch"), 0
    w.shares(found, DATA)
    return w.function("ptr %table, ptr %counter, ptr %scratch"), found.count


def text_with_epilogue(plan: SmallGemmPlan, found: ShareAxis, columns: int, register_bytes: int) -> str:
    """The IR of `product(table, counter, scratch)` with an epilogue on the rows of each share: the table holds the addresses of
    both operands and the result, of the epilogue and of its table."""
    w = _Text(plan, register_bytes)
    w.shares(found, None, columns)
    return w.function("ptr %table, ptr %counter, ptr %scratch")


class _Text:
    """Writes the function of a product around its loops."""

    def __init__(self, plan: SmallGemmPlan, register_bytes: int) -> None:
        self.plan, self.register_bytes = plan, register_bytes
        self.t = IRBuilder(register_bytes // plan.dtype.itemsize)
        self.panels: dict[int, list[str]] = {}

    def writer(self, plan: SmallGemmPlan, sums: tuple[int, int] | None = None) -> _Writer:
        """What writes the loops of the product or of a part of it, with tiles of so many rows and vectors."""
        return _Writer(plan, self.register_bytes, self.t, self.panels, sums)

    def operands(self, writer: _Writer, within: int | None) -> Pointers:
        """Where operands and result begin: what the table holds, or so many bytes within the objects whose addresses it holds."""
        writer.make_room()
        left, right, result = (self.t.word("%table", k, "ptr") for k in range(3))
        if within is None:
            return left, right, result
        left, right, result = (self.t.word(self.t.behind(o, within), 0, "ptr") for o in (left, right, result))
        return left, right, result

    def shares(self, found: ShareAxis, within: int | None, columns: int = 0) -> None:
        """Takes share after share; of rows of so many `columns` if there is an epilogue."""
        t, axis, each, count = self.t, found.axis, found.each, found.count
        writer = self.writer(part_of(self.plan, axis, each))
        start = self.operands(writer, within)
        epilogue = [t.word("%table", k, "ptr") for k in (3, 4)] if columns else []
        rest = axis.size - (count - 1) * each
        last = self.writer(part_of(self.plan, axis, rest), (writer.height, writer.most))

        def take(number: str) -> None:
            pointers = writer.moved(start, axis, t.let(f"mul i64 {number}, {each}"))

            def part(writer: _Writer, size: int) -> None:
                writer.product(pointers)
                if columns:
                    low = t.let(f"mul i64 {number}, {each * axis.steps[RESULT] // columns}")
                    high = t.let(f"add i64 {low}, {size * axis.steps[RESULT] // columns}")
                    t.line(f"call void {epilogue[0]}(ptr {epilogue[1]}, i64 {low}, i64 {high}, i64 0, i64 {columns})")

            if rest == each:
                part(writer, each)
            else:
                branch(t, t.let(f"icmp slt i64 {number}, {count - 1}"), lambda: part(writer, each), lambda: part(last, rest))

        each_share(t, count, take)

    def function(self, params: str) -> str:
        """The whole text."""
        copies = [line for text in self.panels.values() for line in text]
        whole = self.t.function(f"void @product({params}) nounwind \"stackrealign\"")
        return "\n".join([*copies, whole, *self.t.declarations, ""])


Pointers = tuple[str, str, str]


class _Writer:
    """Writes the loops of a plan."""

    def __init__(self, plan: SmallGemmPlan, register_bytes: int, t: IRBuilder, panels: dict[int, list[str]],
                 sums: tuple[int, int] | None) -> None:
        self.plan, self.panels = plan, panels
        self.type = scalar_type(plan.dtype)
        self.lanes = register_bytes // plan.dtype.itemsize
        vectors = 1 if plan.along else -(-plan.lane.size // self.lanes)
        self.height, self.most = sums or tile(plan.rows.size, vectors, registers(register_bytes, this_machine().triple))
        self.t = t

    def product(self, pointers: Pointers) -> None:
        """The whole product."""
        self._nested(self.plan.outer, pointers, self._by_panels if self.plan.by_panels else self._in_place)

    def make_room(self) -> None:
        """Takes the memory of panels, on the stack."""
        if self.plan.by_panels:
            width, terms = self.most * self.lanes, self.plan.at_once or math.prod(a.size for a in self.plan.terms)
            self.t.line(f"%panel = alloca [{width * terms} x {self.type}], align 64")

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

    def _blocks_of_rows(self, pointers: Pointers, body: Callable[[Pointers, int], None]) -> None:
        """Blocks of rows, then the rows that are left."""
        rows, blocks = self.plan.rows, self.plan.rows.size // self.height
        block = GemmAxis(blocks, tuple(self.height * s for s in rows.steps))  # type: ignore[arg-type]
        left = rows.size - blocks * self.height
        if blocks:
            self._nested([block], pointers, lambda p: body(p, self.height))
        if left:
            body(self.moved(pointers, block, str(blocks)), left)

    # --- panels

    def _by_panels(self, pointers: Pointers) -> None:
        """Blocks of lanes, of each some terms at a time, of each a panel and all rows."""
        def block(p: Pointers, widths: Sequence[int]) -> None:
            self._blocks_of_terms(p, lambda q, terms, is_first: self._panel(q, widths, terms, is_first=is_first))

        self._blocks_of_lanes(pointers, block)

    def _panel(self, pointers: Pointers, widths: Sequence[int], terms: Sequence[GemmAxis], *, is_first: bool) -> None:
        """Copies a panel: a row of whole registers for each term; then the rows of the result that read it."""
        vector, columns, step = self.plan.vector, sum(widths), len(widths) * self.lanes
        if columns not in self.panels:
            self.panels[columns] = _PanelWriter(self.plan, columns, step, self.lanes).text()
        counts = "".join(f", i64 {a.size}" for a in terms)
        self.t.line(f"call void @panel{columns}(ptr %panel, ptr {pointers[vector]}{counts})")
        packed: list[GemmAxis] = []
        for axis in reversed(terms):
            steps = (axis.steps[LEFT], step, 0) if vector == RIGHT else (step, axis.steps[RIGHT], 0)
            packed.insert(0, GemmAxis(axis.size, steps))
            step *= axis.size

        def rows(p: Pointers, height: int) -> None:
            inside = (p[LEFT], "%panel", p[RESULT]) if vector == RIGHT else ("%panel", p[RIGHT], p[RESULT])
            self._columns(inside, height, widths, packed, is_first=is_first)

        self._blocks_of_rows(pointers, rows)

    # --- operands as they lie

    def _in_place(self, pointers: Pointers) -> None:
        """Both operands read where they lie; terms that are far apart innermost, for few rows at a time."""
        if self.plan.along:
            self._blocks_of_rows(pointers, self._along)
        elif self.plan.is_far:
            self._blocks_of_rows(pointers, lambda p, height: self._blocks_of_terms(
                p, lambda q, terms, is_first: self._row_of(q, height, terms, is_first=is_first)))
        else:
            self._blocks_of_terms(pointers, lambda p, terms, is_first: self._blocks_of_rows(
                p, lambda q, height: self._row_of(q, height, terms, is_first=is_first)))

    def _row_of(self, pointers: Pointers, height: int, terms: Sequence[GemmAxis], *, is_first: bool) -> None:
        """All lanes of some rows."""
        self._blocks_of_lanes(pointers, lambda p, widths: self._columns(p, height, widths, terms, is_first=is_first))

    def _blocks_of_terms(self, pointers: Pointers, body: Callable[[Pointers, Sequence[GemmAxis], bool], None]) -> None:
        """The terms that are summed at a time; whether they are the first."""
        if not (few := self.plan.at_once):
            body(pointers, self.plan.terms, True)
            return
        (terms,) = self.plan.terms
        blocks, rest = divmod(terms.size, few)
        some, more = replace(terms, size=few), GemmAxis(blocks - 1, tuple(few * s for s in terms.steps))  # type: ignore[arg-type]
        body(pointers, [some], True)
        later = self.moved(pointers, more, "1")
        if more.size:
            self._nested([more], later, lambda p: body(p, [some], False))
        if rest:
            body(self.moved(later, more, str(more.size)), [replace(terms, size=rest)], False)

    def _blocks_of_lanes(self, pointers: Pointers, body: Callable[[Pointers, Sequence[int]], None]) -> None:
        """Some registers of lanes at a time."""
        lane, wide = self.plan.lane, self.most * self.lanes
        blocks, rest = divmod(lane.size, wide)
        block = GemmAxis(blocks, tuple(wide * s for s in lane.steps))  # type: ignore[arg-type]
        if blocks:
            self._nested([block], pointers, lambda p: body(p, self._widths(wide)))
        if rest:
            body(self.moved(pointers, block, str(blocks)), self._widths(rest))

    def _widths(self, size: int) -> list[int]:
        """So many lanes as whole registers and one that is not full."""
        whole, rest = divmod(size, self.lanes)
        return [self.lanes] * whole + [rest] * (rest > 0)

    def _columns(self, pointers: Pointers, height: int, widths: Sequence[int], terms: Sequence[GemmAxis], *,
                 is_first: bool) -> None:
        """Some registers of some rows of the result."""
        plan = self.plan
        scalar = LEFT + RIGHT - plan.vector
        given, widths = widths, [self.lanes] * len(widths) if plan.by_panels else widths

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
        targets = [(self._at(row, str(k * self.lanes), 1), w) for row in rows for k, w in enumerate(given)]
        sums = self._summed(terms, pointers, ["zeroinitializer"] * len(targets), list(widths) * height, term)
        for (at, w), total in zip(targets, sums, strict=True):
            if plan.by_panels and w < self.lanes:
                total = self._first(total, w)
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

    def _first(self, vector: str, width: int) -> str:
        """The first lanes of a whole register."""
        return self.t.shuffle(self._vector(self.lanes), vector, range(width))

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


class _PanelWriter:
    """Writes `panel(target, source, terms of each axis)`, which copies columns of the operand that lies along the lanes: a row of
    `line` elements for each term. What is behind the columns of a row is of no meaning."""

    def __init__(self, plan: SmallGemmPlan, columns: int, line: int, lanes: int) -> None:
        self.columns, self.line, self.dtype = columns, line, plan.dtype
        self.lane, self.steps = plan.lane.steps[plan.vector], [a.steps[plan.vector] for a in plan.terms]
        terms, few = plan.terms[-1].size if plan.terms else 1, plan.at_once
        self.counts = {few, terms % few} if few else {terms}
        """How many terms of the last axis it copies at a time, or none."""
        self.t = IRBuilder(lanes)

    def text(self) -> list[str]:
        """The lines of the function."""
        counts = [f"%count{k}" for k in range(len(self.steps))]
        self._rows(list(zip(self.steps, counts, strict=True)) or [(0, "1")], "%source", "0")
        params = "".join(f", i64 {count}" for count in counts)
        head = f"internal void @panel{self.columns}(ptr %target, ptr %source{params}) noinline nounwind"
        return [self.t.function(head), *self.t.declarations]

    def _rows(self, axes: Sequence[tuple[int, str]], source: str, first: str) -> None:
        """The rows of the terms of some axes, before which there are so many times as many."""
        (step, count), *inner = axes
        t = self.t
        before = t.let(f"mul i64 {first}, {count}")
        if inner:
            t.rows("0", count, lambda k: self._rows(inner, self._at(source, k, step), t.let(f"add i64 {before}, {k}")))
            return
        target, whole = self._at("%target", before, self.line), "0"
        if self.lane != 1 == step:
            block = block_lanes(t.lanes, self.dtype)
            whole = t.let(f"and i64 {count}, {-block}")
            t.rows("0", whole, lambda k: self._strips(self._at(source, k, 1), self._at(target, k, self.line)), block)
            if not any(n % block for n in self.counts):
                return
        t.rows(whole, count, lambda k: self._row(self._at(source, k, step), self._at(target, k, self.line)))

    def _row(self, source: str, target: str) -> None:
        """One row: registers where its elements lie side by side, else element by element."""
        each = self.t.lanes if self.lane == 1 else 1
        for at in range(0, self.columns, each):
            type = f"<{min(each, self.columns - at)} x {scalar_type(self.dtype)}>"
            read = self.t.let(f"load {type}, ptr {self._at(source, str(at), self.lane)}, align {self.dtype.itemsize}")
            self.t.line(f"store {type} {read}, ptr {self._at(target, str(at), 1)}, align {self.dtype.itemsize}")

    def _strips(self, source: str, target: str) -> None:
        """A block of rows from columns that lie along the terms."""
        t, whole = self.t, self.columns // self.t.lanes * self.t.lanes
        if whole:
            t.rows("0", str(whole), lambda c: self._strip(self._at(source, c, self.lane), self._at(target, c, 1), t.lanes), t.lanes)
        if rest := self.columns - whole:
            self._strip(self._at(source, str(whole), self.lane), self._at(target, str(whole), 1), rest)

    def _strip(self, source: str, target: str, columns: int) -> None:
        """So many columns of a block of rows, at most as many as a register has lanes."""
        read = [self._at(source, str(min(k, columns - 1)), self.lane) for k in range(self.t.lanes)]
        for row, x in enumerate(transposed_strip(self.t, read, self.dtype)):
            self.t.store(x, self._at(target, str(row), self.line), None)

    def _at(self, pointer: str, index: str, step: int) -> str:
        offset = str(int(index) * step) if index.isdigit() else self.t.let(f"mul i64 {index}, {step}")
        return self.t.address(pointer, offset, self.dtype)


MOST_WORK = 1 << 19
"""Multiplications of a product that is done here, whatever its sides are."""


def plan_of(node: Node) -> SmallGemmPlan | None:
    """The loops of a `dot_general` of floats; None for other types, and for long sums along the lanes."""
    types = [t for t in (*(i.type for i in node.inputs), node.type) if isinstance(t, TensorType) and t.is_static]
    if len(types) != 3 or len({t.dtype.np for t in types}) != 1 or types[2].dtype.np not in (F4, F8):
        return None
    plan = planned(types[2].dtype.np, types[0].shape, types[1].shape, *node.attrs)
    return None if plan.work == 0 or (plan.along and plan.lane.size > MOST_ALONG) else plan


def build(node: Node, threads: int, *, is_thin: bool = False) -> SmallGemm | None:
    """The kernel of a `dot_general` of floats; None where it is too large, or of another type."""
    plan = plan_of(node)
    if plan is None or not (is_thin or plan.is_small or plan.work <= MOST_WORK):
        return None
    assert isinstance(node.type, TensorType)
    return _kernel(plan, node.type.shape, this_machine(), threads)


@lru_cache(maxsize=64)
def _kernel(plan: SmallGemmPlan, shape: tuple[int, ...], machine: Target, threads: int) -> SmallGemm:
    return SmallGemm(plan, shape, machine.register_bytes, threads)


class SmallGemm(MachineKernel):
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
        product = machine_code.functions(text, ["product"], self)["product"]
        self.threads = max(1, min(threads, shares))
        self.called = ((product, self.threads if shares else 0),)

    def predicted(self) -> ForecastParts:
        """How long a call takes by the cost model."""
        return ForecastParts(constants().native_call_ns, self.nanoseconds / self.threads)


class WithRows:
    """A compiled product that does an epilogue on each share of its rows, `columns` long."""

    def __init__(self, plan: SmallGemmPlan, found: ShareAxis, columns: int, threads: int) -> None:
        text = text_with_epilogue(plan, found, columns, this_machine().register_bytes)
        self.function = machine_code.functions(text, ["product"], self)["product"]
        self.threads = max(1, min(threads, found.count))


def with_rows(node: Node, columns: int, threads: int) -> WithRows | None:
    """A small product for an epilogue on rows so long; None where the product is not small, or has no shares of rows."""
    plan = plan_of(node)
    if plan is None or not plan.is_small:
        return None
    found = shared_rows(plan, this_machine().register_bytes // plan.dtype.itemsize)
    if found is None or found.axis.steps[RESULT] % columns:
        return None
    return WithRows(plan, found, columns, threads)
