"""The machine code of one nest: rows, several of them together where their sums are to overlap, and the loop along each.

`nest(table, low, high, scratch, chunk)` does rows low..high, any of them: who runs it need not know which are done together. What
the steps mean is written by `primitives` and `math`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.kernels.program import KernelProgram, Shape, Step
from deepx_graph.runtime.native.llvm import primitives
from deepx_graph.runtime.native.llvm.builder import DType, IRBuilder, VectorValue, branch, of_parts
from deepx_graph.runtime.native.llvm.math import FORMATS, Maths, Reciprocal
from deepx_graph.runtime.native.llvm.primitives import Write
from deepx_graph.runtime.native.llvm.target import Target
from deepx_graph.runtime.native.loopnest.nest import (
    LINE,
    LONG_SUM,
    STRIP,
    Chunks,
    Nest,
    Nests,
    NestStage,
    identity,
    is_out_of_cache,
    partial_dtype,
    prefetches,
    reducing_primitive,
    reference,
    registers_used,
    streamed,
    together,
    unrolled,
)
from deepx_graph.runtime.native.machine_kernel import DATA, Layout


class PartialResults:
    """The partial results of reductions across chunks: cleared, joined with those of rows, and added up over all chunks.

    Each chunk has its own in memory; `pointers` are their addresses, by register.
    """

    def __init__(self, emitter: NestEmitter) -> None:
        self.emitter = emitter
        self.pointers: dict[int, str] = {}
        self.steps = [s for stage in emitter.nest.stages for s in (*stage.reductions, *stage.row_reductions)
                      if s.target in emitter.nests.crossing]

    def clear(self) -> None:
        """Loads the addresses, and sets this chunk's partial results to the identity."""
        for step in self.steps:
            self.pointers[step.target] = self._chunk_of(step)
        for step in self.steps:
            self._clear(step)

    def _chunk_of(self, step: Step) -> str:
        """The address of this chunk's partial results."""
        code = self.emitter
        start = code.t.let(f"mul i64 %chunk, {self._size(step.target)}")
        return code.t.address(code.entry(code.t, code.layout.partial[step.target]), start, self._dtype(step))

    def _size(self, register: int) -> int:
        return math.prod(self.emitter.shapes[register])

    def _dtype(self, step: Step) -> DType:
        assert step.reduction is not None
        return partial_dtype(self.emitter.dtypes[step.target], step.reduction.op)

    def _clear(self, step: Step) -> None:
        t, dtype, size = self.emitter.t, self._dtype(step), self._size(step.target)
        start = t.splat(identity(step, dtype), dtype)
        pointer = self.pointers[step.target]
        if size == 1:
            t.store_one(start, pointer)
            return

        def body(indices: Sequence[str], mask: str | None, _: Sequence[VectorValue]) -> Sequence[VectorValue]:
            for i in indices:
                t.store(start, t.address(pointer, i, dtype), mask)
            return ()

        t.vector_loop(str(size), 1, size % t.lanes != 0, (), body, ())

    def addresses(self, step: Step, rows: Sequence[dict[int, str]]) -> list[str]:
        """The addresses of the partial results of these rows."""
        code, pointer = self.emitter, self.pointers[step.target]
        return [pointer] if code.nests.in_strips else code.starts(pointer, code.shapes[step.target], self._dtype(step), rows)

    def add(self, step: Step, x: VectorValue, rows: Sequence[dict[int, str]]) -> None:
        """Joins one value of each row with the partial results of the rows, which may be one."""
        t, dtype = self.emitter.t, self._dtype(step)
        join, addresses = self.emitter.join(t, step, dtype), self.addresses(step, rows)
        for k, part in enumerate(_padded(x, len(rows)).parts):
            at = addresses[k % len(addresses)]
            t.store_one(join(primitives.cast(t, VectorValue(part, x.dtype), dtype), t.load_one(at, dtype)), at)

    def add_along(self, step: Step, x: VectorValue, bases: Sequence[str], at: Sequence[str], mask: str | None) -> None:
        """Joins vectors with the partial results of their columns; those of several rows with each other first."""
        t, dtype = self.emitter.t, self._dtype(step)
        join, near = self.emitter.join(t, step, dtype), self.emitter.join(t, step, x.dtype)
        rows = [of_parts(x.parts[k : k + len(at)], x.dtype) for k in range(0, len(x.parts), len(at))]
        while len(bases) == 1 and len(rows) > 1:
            rows = [near(rows[k], rows[k + 1]) if k + 1 < len(rows) else rows[k] for k in range(0, len(rows), 2)]
        for row, base in zip(rows, bases, strict=True):
            addresses = [t.address(base, i, dtype) for i in at]
            t.stores(join(primitives.cast(t, row, dtype), t.loads(addresses, dtype, mask)), addresses, mask)

    def totals(self, name: str, chunks: int) -> str:
        """The function that joins the partial results of so many chunks, in order."""
        t = IRBuilder(self.emitter.lanes)
        for step in self.steps:
            self._total(t, step, chunks)
        self.emitter.t.declarations |= t.declarations
        return _function(f"void @{name}(ptr noalias %table, ptr noalias %scratch) nounwind", t)

    def _total(self, t: IRBuilder, step: Step, chunks: int) -> None:
        code, partial, size = self.emitter, self._dtype(step), self._size(step.target)
        dtype, join = code.dtypes[step.target], code.join(t, step, partial)
        source, target = (code.entry(t, slots[step.target]) for slots in (code.layout.partial, code.layout.slot))

        def body(indices: Sequence[str], mask: str | None, _: Sequence[VectorValue]) -> Sequence[VectorValue]:
            for i in indices:
                total = t.load(t.address(source, i, partial), partial, mask)
                for k in range(1, chunks):
                    at = t.let(f"add i64 {i}, {k * size}")
                    total = join(total, t.load(t.address(source, at, partial), partial, mask))
                t.store(primitives.cast(t, total, dtype), t.address(target, i, dtype), mask)
            return ()

        t.vector_loop(str(size), 1, size % t.lanes != 0, (), body, ())


class NestEmitter:
    """Writes the functions of one nest. `columns` are the names of the first and the end of the columns that are done, where that
    is not all of them: then nothing is kept or reduced along a row."""

    def __init__(self, program: KernelProgram, nests: Nests, nest: Nest, layout: Layout, machine: Target,
                 columns: tuple[str, str] | None = None) -> None:
        self.program, self.nests, self.nest, self.layout = program, nests, nest, layout
        self.machine, self.columns = machine, columns
        self.dtypes = [r.dtype for r in program.registers]
        self.shapes: list[Shape] = [r.shape or (1,) for r in program.registers]
        self.constants = dict(program.constants)
        self.lanes = machine.register_bytes // max(4, min(8, self._widest()))
        self.t = IRBuilder(self.lanes, machine.register_bytes == 64)
        self.pointers: dict[int, str] = {}
        self.partials = PartialResults(self)
        self.row_values: dict[int, VectorValue] = {}
        self.bases: dict[int, list[str]] = {}
        """The address of each register's first element in the rows at hand: one for each row, or one for all."""
        self.divisors: dict[int, Reciprocal] = {}
        self.past_caches: tuple[int, ...] = ()
        """The registers whose stores go past the caches, in the version at hand."""
        self.before_line = ""
        """How many elements of the first strip there are not, where strips begin on cache lines."""

    def _widest(self) -> int:
        steps = [s for stage in self.nest.stages for s in (*stage.steps, *stage.reductions)]
        used = {r for s in steps for r in (s.target, *s.sources)}
        return max((self.dtypes[r].itemsize for r in used), default=4)

    def entry(self, t: IRBuilder, slot: int) -> str:
        """The address that stands in a slot of the table: of an array object, that of its elements."""
        at = t.let(f"getelementptr ptr, ptr %table, i64 {slot}")
        pointer = t.let(f"load ptr, ptr {at}")
        if slot < self.layout.objects:
            inside = t.let(f"getelementptr i8, ptr {pointer}, i64 {DATA}")
            pointer = t.let(f"load ptr, ptr {inside}")
        return pointer

    def join(self, t: IRBuilder, step: Step, dtype: DType) -> Callable[[VectorValue, VectorValue], VectorValue]:
        """What joins two values of a reduction. Raises Declined."""
        assert step.reduction is not None
        write = primitives.lower_primitive(reducing_primitive(step.reduction.op), [dtype, dtype], dtype, self.machine)
        if write is None:
            raise Declined(f"no machine code for a reduction of {dtype}")
        return lambda x, y: write(t, (x, y))

    def nest_function(self, name: str) -> str:
        """`name(table, low, high, scratch, chunk)`: those rows."""
        self._load_pointers()
        self.partials.clear()
        self._begin_on_line()
        streams = streamed(self.program, self.nests, self.nest, self.lanes)
        if streams:
            self._in_two_versions(streams)
        else:
            self._all_rows()
        params = "ptr noalias %table, i64 %low, i64 %high, ptr noalias %scratch, i64 %chunk"
        return _function(f'void @{name}({params}) nounwind "stackrealign"', self.t)

    def columns_function(self, name: str) -> str:
        """`name(table, low, high, left, right, scratch)`: those columns of those rows."""
        self._load_pointers()
        self._all_rows()
        params = "ptr noalias %table, i64 %low, i64 %high, i64 %left, i64 %right, ptr noalias %scratch"
        return _function(f'void @{name}({params}) nounwind "stackrealign"', self.t)

    def _in_two_versions(self, streams: tuple[int, ...]) -> None:
        """All rows, with stores past the caches where every such result lies on lines as the vectors do, and is no operand."""
        def past_caches() -> None:
            self.past_caches = streams
            self._all_rows()
            self.t.line("fence seq_cst")
            self.past_caches = ()

        branch(self.t, self._apart(streams), past_caches, self._all_rows)

    def _apart(self, streams: tuple[int, ...]) -> str:
        t, found = self.t, "true"
        first = reference(self.program, self.nests, self.nest)
        start = "0" if first is None else t.let(f"ptrtoint ptr {self.pointers[first]} to i64")
        loaded = {r for stage in self.nest.stages for r in stage.loads if r in self.pointers}
        for r in streams:
            address = t.let(f"ptrtoint ptr {self.pointers[r]} to i64")
            distance = t.let(f"sub i64 {address}, {start}")
            inside = t.let(f"and i64 {distance}, {LINE - 1}")
            conditions = [f"icmp eq i64 {inside}, 0", *(f"icmp ne ptr {self.pointers[r]}, {self.pointers[x]}" for x in loaded)]
            for condition in conditions:
                found = t.let(f"and i1 {found}, {t.let(condition)}")
        return found

    def _begin_on_line(self) -> None:
        t, first = self.t, reference(self.program, self.nests, self.nest)
        if first is not None:
            address, size = t.let(f"ptrtoint ptr {self.pointers[first]} to i64"), self.dtypes[first].itemsize
            to_line = t.let(f"and i64 {t.let(f'sub i64 0, {address}')}, {LINE - 1}")
            self.before_line = t.let(f"sub i64 {STRIP}, {t.let(f'udiv i64 {to_line}, {size}')}")

    def _all_rows(self) -> None:
        t, few, low = self.t, together(self.nests, self.nest), "%low"
        if few > 1:
            count = t.let("sub i64 %high, %low")
            rest = t.let(f"srem i64 {count}, {few}")
            low = t.let(f"sub i64 %high, {rest}")
            t.rows("%low", low, lambda row: self._rows([row, *(t.let(f"add i64 {row}, {k}") for k in range(1, few))]), few)
        t.rows(low, "%high", lambda row: self._rows([row]))

    def _load_pointers(self) -> None:
        t, layout = self.t, self.layout
        for r in registers_used(self.nest):
            if r in layout.slot:
                self.pointers[r] = self.entry(t, layout.slot[r])

    # --- rows

    def _rows(self, rows: Sequence[str]) -> None:
        """Does some rows together: what the numbers say of one, side by side."""
        self.row_values, self.bases, self.divisors = {}, {}, {}
        indices = [self._indices(row) for row in rows]
        for r in registers_used(self.nest):
            if r in self.pointers:
                self.bases[r] = self.starts(self.pointers[r], self.shapes[r], self.dtypes[r], indices)
        for r, offset in self.layout.rows.items():
            self.bases[r] = [self.t.let(f"getelementptr i8, ptr %scratch, i64 {offset + k * self.layout.row_bytes}")
                             for k in range(len(rows))]
        for stage in self.nest.stages:
            self._stage(stage, indices)

    def _indices(self, row: str) -> dict[int, str]:
        """The index along each axis of the nest, from the number of the row."""
        key, space = self.nest.key, self.nests.space
        if self.nests.in_strips or not key:
            return dict.fromkeys(key, row)
        found, rest = {}, row
        for k in reversed(key[1:]):
            found[k] = self.t.let(f"urem i64 {rest}, {space[k]}")
            rest = self.t.let(f"udiv i64 {rest}, {space[k]}")
        found[key[0]] = rest
        return found

    def starts(self, pointer: str, shape: Shape, dtype: DType, rows: Sequence[dict[int, str]]) -> list[str]:
        """The addresses of the first elements, in these rows, of an array of that shape; one where they are the same."""
        same = not any(shape[k] > 1 for k in self.nest.key)
        return [self._base(pointer, shape, dtype, indices) for indices in (rows[:1] if same else rows)]

    def _base(self, pointer: str, shape: Shape, dtype: DType, indices: dict[int, str]) -> str:
        t = self.t
        if self.nests.in_strips:
            return pointer if shape[0] == 1 or not indices else t.address(pointer, self._strip_start(indices[0]), dtype)
        offset = None
        for k, index in indices.items():
            if shape[k] > 1:
                part = t.let(f"mul i64 {index}, {math.prod(shape[k + 1:])}")
                offset = part if offset is None else t.let(f"add i64 {offset}, {part}")
        base = pointer if offset is None else t.address(pointer, offset, dtype)
        return t.address(base, self.columns[0], dtype) if self.columns and shape[-1] > 1 else base

    def _strip_start(self, row: str) -> str:
        """The index of the first element of a strip."""
        start = self.t.let(f"mul i64 {row}, {STRIP}")
        if not self.before_line:
            return start
        self.t.declare("declare i64 @llvm.smax.i64(i64, i64)")
        return self.t.let(f"call i64 @llvm.smax.i64(i64 0, i64 {self.t.let(f'sub i64 {start}, {self.before_line}')})")

    def _length(self, indices: dict[int, str]) -> str:
        """How many elements this row has."""
        if self.columns:
            return self.t.let(f"sub i64 {self.columns[1]}, {self.columns[0]}")
        t, size, width = self.t, self.nests.space[-1], self.nests.width(self.nest)
        if not self.nests.in_strips or (size % width == 0 and not self.nests.begins_on_line(self.nest)):
            return str(width)
        t.declare("declare i64 @llvm.smin.i64(i64, i64)")
        start, next_index = self._strip_start(indices[0]), self._strip_start(t.let(f"add i64 {indices[0]}, 1"))
        end = t.let(f"call i64 @llvm.smin.i64(i64 {size}, i64 {next_index})")
        return t.let(f"sub i64 {end}, {start}")

    def _stage(self, stage: NestStage, rows: Sequence[dict[int, str]]) -> None:
        t, values = self.t, self.row_values
        for r in stage.row_loads:
            array, dtype = self.constants.get(r), self.dtypes[r]
            values[r] = t.splat(array.flat[0], dtype) if array is not None and array.size == 1 else of_parts(
                [t.load_one(base, dtype).text for base in self.bases[r]], dtype)
        for step in stage.row_steps:
            values[step.target] = self._written(step)(t, self._operands(step, values))
        for r in stage.row_stores:
            for part, base in zip(_padded(values[r], len(self.bases[r])).parts, self.bases[r], strict=True):
                t.store_one(VectorValue(part, self.dtypes[r]), base)
        for step in stage.row_reductions:
            self.partials.add(step, values[step.sources[0]], rows)
        if stage.loops:
            self._inner(stage, rows)

    def _operands(self, step: Step, values: dict[int, VectorValue]) -> list[VectorValue]:
        return [values[s] for s in step.sources]

    def _written(self, step: Step) -> Write:
        found = primitives.lower_primitive(step.primitive, [self.dtypes[s] for s in step.sources], self.dtypes[step.target],
                                         self.machine)
        if found is None:
            raise Declined(f"no machine code for {step.primitive} of {self.dtypes[step.sources[0]]}")
        return found

    # --- the inner loop

    def _inner(self, stage: NestStage, rows: Sequence[dict[int, str]]) -> None:
        t = self.t
        carried = [s for s in stage.reductions if self._along(s)]
        across = [s for s in stage.reductions if not self._along(s)]
        partials = {s.target: self.partials.addresses(s, rows) for s in across}
        types = [self._carried_dtype(s) for s in carried]
        starts = [t.splat(identity(s, d), d) for s, d in zip(carried, types, strict=True)]
        joins = [self.join(t, s, d) for s, d in zip(carried, types, strict=True)]
        self._prepare_divisors(stage)
        coming = list(self._coming(len(rows))) if stage is self._prefetching_stage() else []

        def body(at: Sequence[str], mask: str | None, olds: Sequence[VectorValue]) -> Sequence[VectorValue]:
            values = self._elements(stage, at, mask, len(rows))
            for base, ahead, dtype in coming if mask is None else ():
                for i in at:
                    t.prefetch(t.address(base, t.let(f"add i64 {i}, {ahead}"), dtype))
            for s in across:
                self.partials.add_along(s, _padded(values[s.sources[0]], len(rows) * len(at)), partials[s.target], at, mask)
            found = [_padded(values[s.sources[0]], len(rows) * len(at)) for s in carried]
            factors = [None if mask else self._factors(stage, s, d) for s, d in zip(carried, types, strict=True)]
            return [join(self._masked(primitives.cast(t, x, d), start, mask), old) if pair is None
                    else t.intrinsic("fma", values[pair[0]], values[pair[1]], old)
                    for x, pair, d, start, join, old in zip(found, factors, types, starts, joins, olds, strict=True)]

        unroll = unrolled(self.nests, self.nest, stage, self.lanes)
        whole = self.nests.space[-1] if self.nests.in_strips else self.nests.width(self.nest)
        has_tail = whole % (self.lanes * unroll) != 0 or self.nests.begins_on_line(self.nest)
        totals = t.vector_loop(self._length(rows[0]), unroll, has_tail, starts, body, joins, len(rows))
        for s, total, join in zip(carried, totals, joins, strict=True):
            one = self._folded(total, join)
            if s.target in self.nests.crossing:
                self.partials.add(s, one, rows)
            else:
                self.row_values[s.target] = primitives.cast(t, one, self.dtypes[s.target])

    def _prefetching_stage(self) -> NestStage | None:
        together_now = together(self.nests, self.nest) > 1
        return prefetches(self.nest, is_out_of_cache(self.program, self.nest)) if together_now else None

    def _coming(self, rows: int) -> Iterator[tuple[str, int, DType]]:
        """What the first stage of the next rows loads: addresses of these rows, how many elements on it lies, and its dtype."""
        axis = self.nest.key[-1] if self.nest.key else 0
        for r in self.nest.stages[0].loads:
            if r in self.pointers and self.shapes[r][axis] > 1 and len(self.bases[r]) == rows:
                ahead = rows * math.prod(self.shapes[r][axis + 1:])
                yield from ((base, ahead, self.dtypes[r]) for base in self.bases[r])

    def _along(self, step: Step) -> bool:
        assert step.reduction is not None
        return self.nests.inner in step.reduction.axes

    def _carried_dtype(self, step: Step) -> DType:
        assert step.reduction is not None
        dtype = self.dtypes[step.target]
        long = not self.nests.in_strips and self.nests.space[-1] > LONG_SUM
        return partial_dtype(dtype, step.reduction.op) if long else dtype

    def _factors(self, stage: NestStage, step: Step, dtype: DType) -> tuple[int, int] | None:
        """The factors of what a float sum adds up, where it is a product of the sum's dtype: the product is not rounded then."""
        made = next((s for s in stage.steps if s.target == step.sources[0]), None)
        if made is None or made.primitive != "mul" or dtype not in FORMATS or self.dtypes[made.target] != dtype:
            return None
        assert step.reduction is not None
        return (made.sources[0], made.sources[1]) if reducing_primitive(step.reduction.op) == "add" else None

    def _prepare_divisors(self, stage: NestStage) -> None:
        """The reciprocals of what is the same along the row and divides what is not."""
        for step in stage.steps:
            if step.primitive == "div" and step.sources[1] in self.row_values and self.dtypes[step.target] in FORMATS:
                d = step.sources[1]
                if d not in self.divisors:
                    self.divisors[d] = Maths(self.t, self.dtypes[d]).reciprocal(self.row_values[d])

    def _elements(self, stage: NestStage, at: Sequence[str], mask: str | None, rows: int) -> dict[int, VectorValue]:
        """The values of the stage at some indices of each row."""
        t, each = self.t, len(at)
        values = {r: _widened(v, each) for r, v in self.row_values.items()}
        for r in stage.loads:
            found = t.loads(self._addresses(r, at), self.dtypes[r], mask)
            values[r] = found if len(self.bases[r]) == rows else of_parts(found.parts * rows, found.dtype)
        for step in stage.steps:
            values[step.target] = self._computed(step, values, each)
        for r in stage.stores:
            addresses = self._addresses(r, at)
            t.stores(_padded(values[r], len(addresses)), addresses, mask, r in self.past_caches)
        return values

    def _addresses(self, register: int, at: Sequence[str]) -> list[str]:
        return [self.t.address(base, i, self.dtypes[register]) for base in self.bases[register] for i in at]

    def _computed(self, step: Step, values: dict[int, VectorValue], each: int) -> VectorValue:
        divisor = self.divisors.get(step.sources[1]) if step.primitive == "div" else None
        if divisor is None:
            return self._written(step)(self.t, self._operands(step, values))
        x, d = self._operands(step, values)
        return Maths(self.t, d.dtype).quotient(x, d, divisor.map(lambda v: _widened(v, each)))

    def _masked(self, x: VectorValue, start: VectorValue, mask: str | None) -> VectorValue:
        """x, with the identity in the lanes beyond the end."""
        return x if mask is None else self.t.select(VectorValue(mask, np.dtype("?")), x, start)

    def _folded(self, x: VectorValue, join: Callable[[VectorValue, VectorValue], VectorValue]) -> VectorValue:
        """All lanes joined, in every lane."""
        t, shift = self.t, self.lanes // 2
        while shift:
            order = ", ".join(f"i32 {(k + shift) % self.lanes}" for k in range(self.lanes))
            type = t.vector(x.dtype)
            reordered = t.each(lambda a: f"shufflevector {type} {a}, {type} poison, <{self.lanes} x i32> <{order}>", x.dtype, x)  # noqa: B023
            x = join(x, reordered)
            shift //= 2
        return x


def _function(head: str, t: IRBuilder) -> str:
    return "\n".join([f"define {head} {{", "entry:", *t.lines, "  ret void", "}"])


def _widened(x: VectorValue, each: int) -> VectorValue:
    """Each vector so many times; a single one goes with all others as it is."""
    return of_parts([p for p in x.parts for _ in range(each)], x.dtype) if x.more else x


def _padded(x: VectorValue, count: int) -> VectorValue:
    """So many vectors: a single one stands for all of them."""
    return x if len(x.parts) == count else of_parts(x.parts * count, x.dtype)


def module_text(program: KernelProgram, nests: Nests, layout: Layout, chunks: Sequence[Chunks], machine: Target) -> str:
    """The IR of a whole kernel. Raises Declined."""
    functions, declarations = [], dict[str, None]()
    for k, nest in enumerate(nests.nests):
        emitter = NestEmitter(program, nests, nest, layout, machine)
        functions.append(emitter.nest_function(f"nest{k}"))
        functions.append(emitter.partials.totals(f"total{k}", chunks[k].count))
        functions.append(worker(k, nests.count(nest), chunks[k]))
        declarations |= emitter.t.declarations
    functions.append(_whole(nests))
    return "\n".join([*functions, *declarations, ""])


def worker(nest: int, rows: int, chunks: Chunks) -> str:
    """What each thread runs: it takes the next chunk from a counter until there are none."""
    return f"""define void @work{nest}(ptr %table, ptr %counter, ptr %scratch) nounwind {{
entry:
  br label %next
next:
  %chunk = atomicrmw add ptr %counter, i64 1 monotonic
  %some = icmp slt i64 %chunk, {chunks.count}
  br i1 %some, label %take, label %done
take:
  %from = mul i64 %chunk, {rows // chunks.step}
  %to = add i64 %from, {rows // chunks.step}
  %from.unit = udiv i64 %from, {chunks.count}
  %to.unit = udiv i64 %to, {chunks.count}
  %low = mul i64 %from.unit, {chunks.step}
  %end = mul i64 %to.unit, {chunks.step}
  %last = icmp eq i64 %chunk, {chunks.count - 1}
  %high = select i1 %last, i64 {rows}, i64 %end
  call void @nest{nest}(ptr %table, i64 %low, i64 %high, ptr %scratch, i64 %chunk)
  br label %next
done:
  ret void
}}"""


def _whole(nests: Nests) -> str:
    lines = ["define void @whole(ptr %table, ptr %scratch) nounwind {"]
    for k, nest in enumerate(nests.nests):
        lines.append(f"  call void @nest{k}(ptr %table, i64 0, i64 {nests.count(nest)}, ptr %scratch, i64 0)")
        lines.append(f"  call void @total{k}(ptr %table, ptr %scratch)")
    return "\n".join([*lines, "  ret void", "}"])
