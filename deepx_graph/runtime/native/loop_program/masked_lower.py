"""Masked loops as loop programs: groups of neighbouring elements take all their iterations before the next group begins.

    for each group of WIDTH elements:             # shared out among threads
      rows = the elements of the variables        # local memory, which LLVM keeps in vector registers
      while the scalars' test holds and any element of the group is live:
        for lane in 0 .. WIDTH: rows[lane] = what an iteration makes of them
      the variables = rows

The last group begins early enough to be whole: it computes some elements again. The scalars of a group are those after its last
iteration; what they are in the end is what they are in the group with the most iterations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, index_of
from deepx_graph.loops.builder import LoopBuilder, memory, part_of
from deepx_graph.loops.complex import joined, parts
from deepx_graph.loops.elements import Value, fill, tensor_type
from deepx_graph.loops.lower import CHEAP, element_cost
from deepx_graph.loops.passes.pipeline import optimised
from deepx_graph.loops.program import Buffer, Cell, LoopProgram
from deepx_graph.loops.scalar import FALSE, TRUE, Affine, NotExpressible, Scalar
from deepx_graph.loops.storage import wide
from deepx_graph.loops.tensor import LazyTensor, in_memory
from deepx_graph.loops.weight import UNKNOWN_TRIPS
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native.loop_program.kernel import LoopKernel, nanoseconds
from deepx_graph.runtime.native.loop_program.masked_loop import MaskedLoop, recognise
from deepx_graph.types import BOOL, I64, DType, TensorType

GROUP_BYTES = 128
"""Bytes of a row of the elements of a group, of the widest variable."""

CALL_NANOSECONDS = 50_000_000
"""About how long a call takes at most: nothing interrupts it."""


@dataclass(eq=False)
class MaskedProgram:
    """The loop program of a masked loop, and how many nanoseconds an iteration of all elements takes, about."""

    loop: MaskedLoop
    program: LoopProgram
    iteration_ns: float


def lower_masked(function: Function) -> MaskedProgram:
    """The program of a function that is one loop whose elements are independent, and what is computed before. Raises Declined."""
    loop = recognise(function)
    try:
        program = optimised(_Lowering(loop).program())
    except NotExpressible as e:
        raise Declined(str(e)) from None
    return MaskedProgram(loop, program, nanoseconds(program.body) / UNKNOWN_TRIPS)


@dataclass(frozen=True)
class _Row:
    """The elements of a group: local memory for each part, in the dtype in which they are computed."""

    dtype: DType
    buffers: tuple[Buffer, ...]

    @staticmethod
    def of(b: LoopBuilder, dtype: DType, width: int) -> _Row:
        return _Row(dtype, tuple(b.buffer(d, (width,), "local") for d in parts_of(dtype)))

    def tensor(self, shape: tuple[int, ...]) -> LazyTensor:
        """A tensor whose elements are those of the row, at the subscript of a lane."""
        return LazyTensor(self.dtype, shape, lambda b, at: joined([b.load(buffer, at[:1]) for buffer in self.buffers]))

    def put(self, b: LoopBuilder, lane: Affine, x: Any) -> None:
        for buffer, part in zip(self.buffers, parts(x), strict=True):
            b.store(buffer, (lane,), part)


def parts_of(dtype: DType) -> tuple[DType, ...]:
    """The dtypes of the scalars that an element is while it is computed with."""
    return (part_of(dtype),) * 2 if dtype.kind == "complex" else (wide(dtype),)


def scalar_tensor(dtype: DType, x: Any) -> LazyTensor:
    """A tensor of rank 0 of a scalar that there is."""
    return LazyTensor(dtype, (), lambda b, at: x)


def known_before(iteration: Function, variables: int) -> dict[Node, Node]:
    """What an iteration computes of its variables, the first parameters and results, and the iteration before has computed of what
    they became; with the nodes that are computed then (predictive commoning). Only what costs something."""
    made = {(n.op, n.attrs, n.inputs): n for n in iteration.nodes}
    then = {p: p for p in iteration.params} | dict(zip(iteration.params[:variables], iteration.results, strict=False))
    for node in iteration.nodes:
        if node not in then and all(i in then for i in node.inputs):
            found = made.get((node.op, node.attrs, tuple(then[i] for i in node.inputs)))
            if found is not None:
                then[node] = found
    wanted = {i for n in iteration.nodes if n not in then for i in n.inputs}

    def cost(node: Node) -> float:
        return sum(element_cost(n).work for n in Function("known", iteration.params, (node,)).nodes if n.inputs)

    return {n: then[n] for n in iteration.nodes if n in wanted and n in then and tensor_type(n.type).shape and cost(n) > CHEAP}


@dataclass(eq=False)
class _Lowering:
    loop: MaskedLoop
    b: LoopBuilder = field(default_factory=LoopBuilder)
    values: dict[Node, Value] = field(default_factory=dict)
    """The parameters, and what is computed of them before the loop."""

    def __post_init__(self) -> None:
        loop = self.loop
        self.size = math.prod(loop.shape)
        self.types = [tensor_type(n.type) for n in loop.inits]
        widest = max(part.itemsize for k in loop.arrays for part in parts_of(self.types[k].dtype))
        self.width = min(self.size, GROUP_BYTES // max(4, widest))
        if self.size < 2:
            raise NotExpressible("a loop of one element")
        self.count = -(-self.size // self.width)
        self.known = known_before(loop.iteration, len(loop.arrays) + len(loop.scalars))
        if len(set(loop.body.results)) < len(loop.body.results) or any(r.op is not PROJ for r in loop.body.results):
            raise NotExpressible("results that are not variables of the loop")

    def program(self) -> LoopProgram:
        """The whole program."""
        body, b = self.loop.body, self.b
        arguments = []
        for k, param in enumerate(body.params):
            type = tensor_type(param.type)
            arguments.append(memory(f"a{k}", type.dtype, type.shape, "argument"))
            self.values[param] = in_memory(arguments[-1], type.dtype)
        before = Function("before", body.params, (*self.loop.inits, *self.loop.given))
        if not all(n.op.elementwise or n.op.view or n.op in (PARAM, CONSTANT) for n in before.nodes):
            raise NotExpressible("something before the loop")
        fill(b, before, self.values)
        found = {k: in_memory(self._result(self.types[k]), self.types[k].dtype) for k in map(index_of, body.results)}
        self._nest(found)
        results = tuple(t.buffer for t in found.values() if t.buffer is not None)
        return LoopProgram(tuple(arguments), results, tuple(b.constants), tuple(b.scratch), b.body)

    def _result(self, type: TensorType) -> Buffer:
        """Memory for what a variable is in the end."""
        self.b.results += 1
        return memory(f"r{self.b.results}", type.dtype, type.shape, "result")

    # --- the nest

    def _nest(self, found: dict[int, LazyTensor]) -> None:
        """All groups, and the scalars of the one with the most iterations."""
        b, loop = self.b, self.loop
        scalars = [k for k in loop.scalars if k in found]
        noted = [b.buffer(d, (self.count,)) for k in scalars for d in parts_of(self.types[k].dtype)]
        counts = b.buffer(I64, (self.count,)) if scalars else None
        flags = b.buffer(BOOL, (self.count,)) if loop.flag in found else None
        with b.loop(self.count, parallel=True) as number:
            group = _Group(self, number)
            group.write()
            for k, row in zip(loop.arrays, group.rows, strict=True):
                if k in found:
                    group.lanes(lambda at, row=row, k=k: b.put(found[k], at, row.tensor(loop.shape).at(b, (group.lane,))))
            if counts is not None:
                b.store(counts, (number,), b.get(group.counts))
                last = [b.get(c) for k in scalars for c in group.cells[loop.scalars.index(k)]]
                for buffer, x in zip(noted, last, strict=True):
                    b.store(buffer, (number,), x)
            if flags is not None and group.flag is not None:
                b.store(flags, (number,), b.get(group.flag))
        if counts is not None or flags is not None:
            with b.loop(1):
                self._last(found, scalars, counts, noted, flags)

    def _last(self, found: dict[int, LazyTensor], scalars: Sequence[int], counts: Buffer | None, noted: Sequence[Buffer],
              flags: Buffer | None) -> None:
        """The scalars in the end, and whether the flag says then that an element is live."""
        b, loop = self.b, self.loop
        most = b.cell(I64, b.const(-1, I64))
        cells = [b.cell(buffer.dtype, b.const(0, buffer.dtype)) for buffer in noted]
        live = b.cell(BOOL, FALSE)
        with b.loop(self.count) as number:
            if counts is not None:
                mine = b.load(counts, (number,))

                def take() -> None:
                    b.set(most, mine)
                    for cell, buffer in zip(cells, noted, strict=True):
                        b.set(cell, b.load(buffer, (number,)))

                b.when(b.apply("lt", b.get(most), mine), take)
            if flags is not None:
                b.set(live, b.apply("or", b.get(live), b.load(flags, (number,))))
        rest = iter(cells)
        for k in scalars:
            x = joined([b.get(next(rest)) for _ in parts_of(self.types[k].dtype)])
            b.put(found[k], (), x)
        if flags is not None and loop.flag is not None:
            alive = b.get(live)
            b.put(found[loop.flag], (), b.apply("not", alive) if loop.asks_all else alive)


class _Group:
    """The iterations of the elements of one group."""

    def __init__(self, whole: _Lowering, number: Affine) -> None:
        self.whole, self.loop, self.b = whole, whole.loop, whole.b
        loop, b = self.loop, self.b
        start = number * whole.width
        self.start = b.least(start, whole.size - whole.width) if whole.size % whole.width else start
        self.rows = [_Row.of(b, whole.types[k].dtype, whole.width) for k in loop.arrays]
        self.lane = Affine()

    def lanes(self, write: Any) -> None:
        """A loop over the elements of the group; `write` is given the subscript of the element."""
        b = self.b
        with b.loop(self.whole.width, parallel=True) as self.lane:
            write(b.unflattened(self.start + self.lane, self.loop.shape))

    def write(self) -> None:
        """All iterations, which are in the rows and cells then."""
        b, loop, values = self.b, self.loop, self.whole.values
        self.given = [self._given(values[n]) for n in loop.given]
        self.known = {n: _Row.of(b, tensor_type(n.type).dtype, self.whole.width) for n in self.whole.known}
        for k, row in zip(loop.arrays, self.rows, strict=True):
            self._load(row, values[loop.inits[k]])
        self.cells = [self._cells(values[loop.inits[k]]) for k in loop.scalars]
        self.counts = b.cell(I64, b.const(0, I64))
        self.flag: Cell | None = None
        if loop.flag is not None:
            first = values[loop.inits[loop.flag]].at(b, ())
            self.flag = b.cell(BOOL, b.apply("not", first) if loop.asks_all else first)
        first_values = self._values({})
        for node, row in self.known.items():
            self.lanes(lambda _, row=row, node=node: row.put(b, self.lane, first_values[node].at(b, (self.lane,))))
        b.repeat(self._test, self._iteration)

    def _given(self, tensor: LazyTensor) -> LazyTensor:
        """A value of outside, where iterations read it: a row, or a scalar that is computed once."""
        if not tensor.shape:
            return scalar_tensor(tensor.dtype, tensor.at(self.b, ()))
        row = _Row.of(self.b, tensor.dtype, self.whole.width)
        self._load(row, tensor)
        return row.tensor(tensor.shape)

    def _load(self, row: _Row, tensor: LazyTensor) -> None:
        self.lanes(lambda at: row.put(self.b, self.lane, tensor.at(self.b, at)))

    def _cells(self, tensor: LazyTensor) -> list[Cell]:
        found = [self.b.cell(d) for d in parts_of(tensor.dtype)]
        self._assign(found, tensor.at(self.b, ()))
        return found

    def _assign(self, cells: Sequence[Cell], x: Any) -> None:
        for cell, part in zip(cells, parts(x), strict=True):
            self.b.set(cell, part)

    def _values(self, known: dict[Node, _Row]) -> dict[Node, Value]:
        """The values of an iteration, computed where they are read, of what the variables are now; some of them are `known`."""
        b, iteration, shape = self.b, self.loop.iteration, self.loop.shape
        types = [tensor_type(p.type) for p in iteration.params]
        rows = [row.tensor(shape) for row in self.rows]
        scalars = [scalar_tensor(t.dtype, joined([b.get(c) for c in cells]))
                   for t, cells in zip(types[len(rows) :], self.cells, strict=False)]
        values: dict[Node, Value] = dict(zip(iteration.params, (*rows, *scalars, *self.given), strict=True))
        values |= {node: row.tensor(shape) for node, row in known.items()}
        fill(b, iteration, values)
        return values

    def _live(self, tensor: LazyTensor) -> Scalar:
        found = tensor.at(self.b, (self.lane,))
        return self.b.apply("not", found) if self.loop.asks_all else found  # type: ignore[no-any-return]

    def _test(self) -> Scalar:
        b, loop, values = self.b, self.loop, self._values(self.known)
        now = [values[r] for r in loop.iteration.results]
        alive: Scalar = TRUE
        if self.flag is not None:
            alive = b.get(self.flag)
        elif loop.has_live:
            some = b.cell(BOOL, FALSE)
            self.lanes(lambda _: b.combine(some, "or", self._live(now[-1])))
            alive = b.get(some)
        return b.both(alive, now[len(loop.arrays) + len(loop.scalars)].at(b, ()))

    def _iteration(self) -> None:
        b, values = self.b, self._values(self.known)
        now = [values[r] for r in self.loop.iteration.results]
        arrays = [*now[: len(self.rows)], *(values[self.whole.known[n]] for n in self.known)]
        scalars = now[len(self.rows) : len(self.rows) + len(self.cells)]
        after = [s.at(b, ()) for s in scalars]
        if self.flag is not None:
            b.set(self.flag, FALSE)

        def each(_: Any) -> None:
            found = [x.at(b, (self.lane,)) for x in arrays]
            live = self._live(now[-1]) if self.flag is not None else None
            for row, x in zip((*self.rows, *self.known.values()), found, strict=True):
                row.put(b, self.lane, x)
            if self.flag is not None and live is not None:
                b.combine(self.flag, "or", live)

        self.lanes(each)
        for cells, x in zip(self.cells, after, strict=True):
            self._assign(cells, x)
        b.set(self.counts, b.apply("add", b.get(self.counts), b.const(1, I64)))


def strip_length(body: Function, threads: int) -> int:
    """How many iterations of such a loop a kernel does that is not to run too long. Raises Declined."""
    return max(16, int(CALL_NANOSECONDS * threads / lower_masked(body).iteration_ns))


def build(function: Function, threads: int, bound: int | None = None) -> LoopKernel:
    """The kernel of such a function, whose iterations are `bound` at most, or known to be few. Raises Declined."""
    found = lower_masked(function)
    times = found.loop.bound if bound is None else bound
    if times is None or (bound is None and times * found.iteration_ns / threads > CALL_NANOSECONDS):
        raise Declined("a loop that may run long")
    try:
        kernel = LoopKernel(found.loop.body, found.program, threads)
    except NotExpressible as e:
        raise Declined(str(e)) from None
    kernel.lowering = "machine code: a loop, element by element"
    kernel.nanoseconds *= max(1.0, times / UNKNOWN_TRIPS)
    return kernel
