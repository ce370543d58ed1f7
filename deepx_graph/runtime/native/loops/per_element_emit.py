"""A loop whose elements are independent, as LLVM IR: a few vectors at a time take all their iterations in registers.

`nest0(table, low, high, scratch, chunk)` does pieces low..high of the elements and notes in its row of memory how many iterations
it took and what the scalars were then. No vector takes more iterations than the limit, so that Python is asked for interrupts now
and then: `left` says which vectors are not done, and a further round takes those alone up where they were.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepx_graph.ir.scalar_expr import FUNCTION_PRICE, price
from deepx_graph.ir.structure import PARAM
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels.program import KernelProgram, Step
from deepx_graph.runtime.native.llvm import primitives
from deepx_graph.runtime.native.llvm.builder import BOOL, IRBuilder, VectorValue, branch, least
from deepx_graph.runtime.native.llvm.target import Target
from deepx_graph.runtime.native.loops.per_element import MaskedLoop
from deepx_graph.runtime.native.machine_kernel import DATA

REGISTERS = 32
"""Vector registers that the vectors of one group share."""

ITERATIONS, STATE, SCALARS = 0, 8, 16
"""Offsets in the row of a piece: the most iterations taken (-1 at first), the bits below, and each scalar."""

OPEN, FLAG = 1, 2
"""That some vector is not done, and that at the end the last iteration had left some element live."""


@dataclass(frozen=True)
class TableSlots:
    """Slots of the table: array objects first, then plain addresses."""

    leaves: tuple[int, ...]
    """Of what comes in: one for each parameter of the iteration."""
    stores: tuple[int, ...]
    """Of the arrays that variables go to."""
    left: int
    """Of a byte for each vector: whether it is not done."""
    rows: int
    """Of a row for each piece."""
    control: int
    """The limit of iterations, whether all vectors are taken up (or those with `left` set), and whether elements are live at
    first."""
    objects: int
    size: int


def table_slots(loop: MaskedLoop) -> TableSlots:
    """A table in which all values are array objects."""
    leaves = len(loop.iteration.params)
    end = leaves + len(loop.arrays)
    return TableSlots(tuple(range(leaves)), tuple(range(leaves, end)), end, end + 1, end + 2, end, end + 3)


def plain_table_slots(loop: MaskedLoop) -> TableSlots:
    """A table in which arguments and results are array objects, in this order, and all else are addresses: constants, the control
    words, variables that are no results, `left` and rows."""
    given = [n.op is PARAM for n in (*(loop.inits[k] for k in (*loop.arrays, *loop.scalars)), *loop.given)]
    wanted = [k in loop.columns for k in loop.arrays]
    order = [("leaf", k) for k, is_given in enumerate(given) if is_given]
    order += [("store", loop.arrays.index(k)) for k in loop.columns]
    objects = len(order)
    order += [("leaf", k) for k, is_given in enumerate(given) if not is_given]
    order.append(("control", 0))
    order += [("store", k) for k, is_wanted in enumerate(wanted) if not is_wanted]
    order += [("left", 0), ("rows", 0)]
    at = {name: slot for slot, name in enumerate(order)}
    return TableSlots(tuple(at["leaf", k] for k in range(len(given))), tuple(at["store", k] for k in range(len(wanted))),
                  at["left", 0], at["rows", 0], at["control", 0], objects, len(order))


def lanes_of(program: KernelProgram, machine: Target) -> int:
    """Elements of a vector: as many as registers hold of the widest array in the loop."""
    widest = max((r.dtype.itemsize for r in program.registers if r.size > 1), default=4)
    return machine.register_bytes // max(4, min(8, widest))


def row_bytes(loop: MaskedLoop) -> int:
    """Bytes of the row of a piece, on cache lines of its own."""
    return -(-(SCALARS + 8 * len(loop.scalars)) // 64) * 64


def module_text(loop: MaskedLoop, program: KernelProgram, piece: int, table_slots: TableSlots, machine: Target) -> str:
    """The IR of the loop over pieces of `piece` elements, a multiple of 64. Raises Declined."""
    emitter = _LoopEmitter(loop, program, piece, table_slots, machine)
    pieces = -(-emitter.size // piece)
    text = [emitter.function("nest0"), _worker(pieces), _whole(pieces)]
    return "\n".join([*text, *emitter.t.declarations, ""])


def _worker(pieces: int) -> str:
    """What each thread runs: it takes the next piece from a counter until there are none."""
    return f"""define void @work0(ptr %table, ptr %counter, ptr %scratch) nounwind {{
entry:
  br label %next
next:
  %piece = atomicrmw add ptr %counter, i64 1 monotonic
  %some = icmp slt i64 %piece, {pieces}
  br i1 %some, label %take, label %done
take:
  %end = add i64 %piece, 1
  call void @nest0(ptr %table, i64 %piece, i64 %end, ptr %scratch, i64 %piece)
  br label %next
done:
  ret void
}}"""


def _whole(pieces: int) -> str:
    call = f"call void @nest0(ptr %table, i64 0, i64 {pieces}, ptr %scratch, i64 0)"
    return f"define void @whole(ptr %table, ptr %scratch) nounwind {{\n  {call}\n  ret void\n}}"


class _LoopEmitter:
    def __init__(self, loop: MaskedLoop, program: KernelProgram, piece: int, table_slots: TableSlots, machine: Target) -> None:
        self.loop, self.program, self.piece, self.slots, self.machine = loop, program, piece, table_slots, machine
        self.size = max(r.size for r in program.registers)
        self.dtypes = [r.dtype for r in program.registers]
        self.lanes = lanes_of(program, machine)
        self.t = IRBuilder(self.lanes, machine.register_bytes == 64)
        arrays, scalars = len(loop.arrays), len(loop.scalars)
        self.leaf_of = {leaf.param: leaf.register for leaf in program.leaves}
        self.array_leaves = [self.leaf_of.get(k) for k in range(arrays)]
        self.scalar_leaves = [self.leaf_of.get(arrays + k) for k in range(scalars)]
        self.given = {leaf.register: leaf.param for leaf in program.leaves if leaf.param >= arrays + scalars}
        self.next_arrays, self.next_scalars = program.results[:arrays], program.results[arrays : arrays + scalars]
        self.test, self.live = program.results[arrays + scalars], program.results[-1] if loop.has_live else None
        self.before, self.head, self.body = self._parts()
        self.array_dtypes = [self.dtypes[r] for r in self.next_arrays]
        self.scalar_dtypes = [self.dtypes[r] for r in self.next_scalars]

    def _parts(self) -> tuple[list[Step], list[Step], list[Step]]:
        """The steps that no iteration changes, those that the test needs, and the others."""
        changing = {r for r in (*self.array_leaves, *self.scalar_leaves) if r is not None}
        before: list[Step] = []
        rest: list[Step] = []
        for step in self.program.steps:
            if step.primitive == "scratch":
                continue
            if changing.isdisjoint(step.sources):
                before.append(step)
            else:
                changing.add(step.target)
                rest.append(step)
        asked = {self.test} | ({self.live} if self.live is not None and self.loop.flag is None else set())
        for step in reversed(rest):
            if step.target in asked:
                asked |= set(step.sources)
        return before, [s for s in rest if s.target in asked], [s for s in rest if s.target not in asked]

    # --- the function

    def function(self, name: str) -> str:
        t, p = self.t, self.slots
        self.at = [self._array(k) for k in p.leaves]
        self.stores = [self._array(k) for k in p.stores]
        self.left, rows, control = (self._address(k) for k in (p.left, p.rows, p.control))
        self.limit = t.let(f"load i64, ptr {control}")
        self.fresh = self._is_set(control, 8)
        self.flag = self._is_set(control, 16)
        self.outer = {r: t.load_one(self.at[k], self.dtypes[r]) for r, k in self.given.items() if not self._varies(r)}
        self.outer |= {r: t.splat(a.flat[0], self.dtypes[r]) for r, a in self.program.constants if a.size == 1}
        self.starts = [t.load_one(self.at[len(self.loop.arrays) + k], d) for k, d in enumerate(self.scalar_dtypes)]
        t.rows("%low", "%high", lambda piece: self._piece(piece, rows))
        params = "ptr noalias %table, i64 %low, i64 %high, ptr noalias %scratch, i64 %chunk"
        return "\n".join([f"define void @{name}({params}) nounwind \"stackrealign\" {{", "entry:", *t.lines, "  ret void", "}"])

    def _address(self, slot: int) -> str:
        at = self.t.let(f"getelementptr ptr, ptr %table, i64 {slot}")
        return self.t.let(f"load ptr, ptr {at}")

    def _array(self, slot: int) -> str:
        """The address of the elements of what is in a slot."""
        if slot >= self.slots.objects:
            return self._address(slot)
        inside = self.t.let(f"getelementptr i8, ptr {self._address(slot)}, i64 {DATA}")
        return self.t.let(f"load ptr, ptr {inside}")

    def _is_set(self, control: str, offset: int) -> str:
        at = self.t.let(f"getelementptr i8, ptr {control}, i64 {offset}")
        return self.t.let(f"icmp ne i64 {self.t.let(f'load i64, ptr {at}')}, 0")

    def _varies(self, register: int) -> bool:
        return self.program.registers[register].size > 1

    def _piece(self, piece: str, rows: str) -> None:
        t = self.t
        start = t.let(f"mul i64 {piece}, {self.piece}")
        rest = t.let(f"sub i64 {self.size}, {start}")
        count = least(t, rest, str(self.piece))
        self.row = t.let(f"getelementptr i8, ptr {rows}, i64 {t.let(f'mul i64 {piece}, {row_bytes(self.loop)}')}")

        t.line(f"store i64 -1, ptr {self.row}")
        t.line(f"store i64 0, ptr {self._in_row(STATE)}")

        def group(indices: Sequence[str], mask: str | None, _: Sequence[VectorValue]) -> Sequence[VectorValue]:
            self._group([t.let(f"add i64 {start}, {i}") for i in indices], mask)
            return ()

        unroll = self._unroll()
        while unroll > 1 and unroll * self.lanes > self.size:
            unroll -= 1
        step = unroll * self.lanes
        t.vector_loop(count, unroll, self.size % step != 0 or self.piece % step != 0, (), group, ())

    def _unroll(self) -> int:
        """Vectors of a group: iterations depend on each other, so several go side by side as far as there are registers."""
        width = max([d.itemsize for d in self.array_dtypes]) * self.lanes / self.machine.register_bytes
        wide = sum(self._varies(r) for r in self.given) + len(self.loop.arrays) + 3
        prices = [price(s.primitive) for s in (*self.head, *self.body)]
        most = 2 if any(p >= FUNCTION_PRICE for p in prices) or sum(prices) > 60 else 4
        return max(1, min(most, int(REGISTERS / (wide * max(1.0, width)))))

    # --- a group of vectors

    def _group(self, indices: Sequence[str], mask: str | None) -> None:
        """All iterations of the vectors that begin at these elements; skipped where an earlier round has finished them."""
        t = self.t
        self.marks = [t.let(f"getelementptr i8, ptr {self.left}, i64 {t.let(f'udiv i64 {i}, {self.lanes}')}") for i in indices]
        wanted = self.fresh
        for mark in self.marks:
            open_ = t.let(f"icmp ne i8 {t.let(f'load i8, ptr {mark}')}, 0")
            wanted = t.let(f"or i1 {wanted}, {open_}")
        branch(t, wanted, lambda: self._iterations(indices, mask))

    def _iterations(self, indices: Sequence[str], mask: str | None) -> None:
        t, n = self.t, range(len(indices))
        begins = [[t.load(t.address(self.at[k], i, d), d, mask) for k, d in enumerate(self.array_dtypes)] for i in indices]
        fixed = [dict(self.outer) for _ in n]
        for u in n:
            for r, k in self.given.items():
                if self._varies(r):
                    fixed[u][r] = t.load(t.address(self.at[k], indices[u], self.dtypes[r]), self.dtypes[r], mask)
        self._steps(self.before, fixed)
        carries = self.loop.flag is not None
        first = self._inside(self._spread(self.flag), mask)
        entry, head, body, out = t.block, t.name("head"), t.name("iteration"), t.name("out")
        t.line(f"br label %{head}")
        t.start(head)
        position = len(t.lines)
        count, further = "%" + t.name("count"), "%" + t.name("more")
        arrays = [[VectorValue("%" + t.name("x"), d) for d in self.array_dtypes] for _ in n]
        scalars = [VectorValue("%" + t.name("s"), d) for d in self.scalar_dtypes]
        flags = [VectorValue("%" + t.name("f"), BOOL) for _ in n] if carries else []
        values = [self._named(fixed[u], arrays[u], scalars) for u in n]
        self._steps(self.head, values)
        masks = flags if carries else [self._inside(self._live(values[u]), mask) for u in n] if self.live is not None else []
        alive = self._alive(values[0][self.test], masks)
        below = t.let(f"icmp slt i64 {count}, {self.limit}")
        t.line(f"br i1 {t.let(f'and i1 {alive}, {below}')}, label %{body}, label %{out}")
        t.start(body)
        self._steps(self.body, values)
        t.line(f"{further} = add i64 {count}, 1")
        after = [self._inside(self._live(values[u]), mask) for u in n] if carries else []
        t.line(f"br label %{head}")
        phis = [f"  {count} = phi i64 [ 0, %{entry} ], [ {further}, %{t.block} ]"]

        def phi(x: VectorValue, start: VectorValue, next_value: VectorValue) -> None:
            phis.append(f"  {x.text} = phi {t.vector(x.dtype)} [ {start.text}, %{entry} ], [ {next_value.text}, %{t.block} ]")

        for u in n:
            for x, start, r in zip(arrays[u], begins[u], self.next_arrays, strict=True):
                phi(x, start, values[u][r])
            if carries:
                phi(flags[u], first, after[u])
        for s, start, r in zip(scalars, self.starts, self.next_scalars, strict=True):
            phi(s, start, values[0][r])
        t.lines[position:position] = phis
        t.start(out)
        self._store(indices, mask, arrays, alive)
        self._note(count, scalars, alive, self._any(flags) if carries else alive)

    def _named(self, fixed: dict[int, VectorValue], arrays: Sequence[VectorValue], scalars: Sequence[VectorValue]) -> dict[int,
                                                                                                                           VectorValue]:
        found = dict(fixed)
        for r, value in zip((*self.array_leaves, *self.scalar_leaves), (*arrays, *scalars), strict=True):
            if r is not None:
                found[r] = value
        return found

    def _steps(self, steps: Sequence[Step], values: Sequence[dict[int, VectorValue]]) -> None:
        """Each step for every vector of the group; one that is the same for all elements once."""
        for step in steps:
            found = primitives.lower_primitive(step.primitive, [self.dtypes[s] for s in step.sources], self.dtypes[step.target],
                                             self.machine)
            if found is None:
                raise Declined(f"no machine code for {step.primitive} of {self.dtypes[step.sources[0]]}")
            alone = not self._varies(step.target)
            for k, each in enumerate(values):
                each[step.target] = values[0][step.target] if alone and k else found(self.t, [each[s] for s in self._sources(step)])

    def _sources(self, step: Step) -> Sequence[int]:
        return step.sources[:3] if step.primitive == "where" else step.sources

    # --- who goes on

    def _spread(self, bit: str) -> VectorValue:
        return self.t.spread(bit, BOOL)

    def _inside(self, x: VectorValue, mask: str | None) -> VectorValue:
        """False in the lanes beyond the end."""
        return x if mask is None else self.t.binary("and", x, VectorValue(mask, BOOL))

    def _live(self, values: dict[int, VectorValue]) -> VectorValue:
        assert self.live is not None
        x = values[self.live]
        return self.t.binary("xor", x, self.t.splat(True, BOOL)) if self.loop.asks_all else x

    def _any(self, masks: Sequence[VectorValue]) -> str:
        t, total = self.t, masks[0]
        for m in masks[1:]:
            total = t.binary("or", total, m)
        bits = t.let(f"bitcast {t.vector(BOOL)} {total.text} to i{self.lanes}")
        return t.let(f"icmp ne i{self.lanes} {bits}, 0")

    def _alive(self, test: VectorValue, masks: Sequence[VectorValue]) -> str:
        """Whether the scalars' test holds and, where elements may end, some element is live."""
        holds = self.t.first(test)
        return self.t.let(f"and i1 {holds}, {self._any(masks)}") if masks else holds

    # --- what is kept

    def _store(self, indices: Sequence[str], mask: str | None, arrays: Sequence[Sequence[VectorValue]], alive: str) -> None:
        """The variables that are results; all of them where the vectors are not done."""
        t, wanted = self.t, {self.loop.arrays.index(k) for k in self.loop.columns if k in self.loop.arrays}

        def store(which: set[int]) -> None:
            for i, each in zip(indices, arrays, strict=True):
                for k in sorted(which):
                    t.store(each[k], t.address(self.stores[k], i, self.array_dtypes[k]), mask)

        store(wanted)
        byte = t.let(f"zext i1 {alive} to i8")
        for mark in self.marks:
            t.line(f"store i8 {byte}, ptr {mark}")
        rest = set(range(len(self.array_dtypes))) - wanted
        if rest:
            branch(t, alive, lambda: store(rest))

    def _note(self, count: str, scalars: Sequence[VectorValue], alive: str, live: str) -> None:
        """In the row of the piece: the most iterations of a group, the scalars after so many, and how the group stands."""
        t = self.t
        most = t.let(f"load i64, ptr {self.row}")

        def note() -> None:
            t.line(f"store i64 {count}, ptr {self.row}")
            for k, s in enumerate(scalars):
                t.store_one(s, self._in_row(SCALARS + 8 * k))

        branch(t, t.let(f"icmp sgt i64 {count}, {most}"), note)
        at = self._in_row(STATE)
        state = t.let(f"load i64, ptr {at}")
        for bit, value in ((OPEN, alive), (FLAG, live)):
            state = t.let(f"or i64 {state}, " + t.let(f"select i1 {value}, i64 {bit}, i64 0"))
        t.line(f"store i64 {state}, ptr {at}")

    def _in_row(self, offset: int) -> str:
        return self.t.let(f"getelementptr i8, ptr {self.row}, i64 {offset}")
