"""Masked loops as loop programs: groups of neighbouring elements take all their iterations before the next group begins.

    for each group of WIDTH elements:             # shared out among threads
      rows = the elements of the variables        # local memory, which LLVM keeps in vector registers
      while the scalars' test holds and any element of the group is live:
        for lane in 0 .. WIDTH: rows[lane] = what an iteration makes of them
      the variables = rows

The loop of a group is a loop like any other, of shorter arrays (`control.py`). The last group begins early enough to be whole: it
computes some elements again. The scalars of a group are those after its last iteration; what they are in the end is what they are
in the group with the most iterations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import inlined
from deepx_graph.ir.structure import CONSTANT, PARAM, PROJ, index_of
from deepx_graph.loops.builder import LoopBuilder, computed_dtype, new_argument, new_result, whole_program
from deepx_graph.loops.elements import Value, fill, tensor_type
from deepx_graph.loops.program import LoopProgram
from deepx_graph.loops.scalar import Affine, Index, NotExpressible
from deepx_graph.loops.tensor import LazyTensor, in_memory
from deepx_graph.lowering.control import write_control
from deepx_graph.lowering.masked_loop import MaskedLoop, narrowed
from deepx_graph.ops.contract.reduce import reduction
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.ops.math.elementwise import add, and_, not_, or_
from deepx_graph.types import BOOL, I64, DType, scalar

GROUP_BYTES = 128
"""Bytes of a row of the elements of a group, of the widest variable."""

COUNT = -1
"""Where variables are named by their numbers: how many iterations there were."""


def lower_masked(loop: MaskedLoop) -> LoopProgram:
    """The program of a loop whose elements are independent, and of what is computed before it. Raises NotExpressible."""
    return _Lowering(loop).program()


# --- the loop of a group, as a function


def group_function(loop: MaskedLoop, width: int) -> Function:
    """All iterations of `width` elements: from what the variables are first (arrays, scalars, the flag), and from the given values,
    to what the arrays and scalars are in the end, how many iterations that took, and the flag."""
    iteration = narrowed(loop.iteration, width)
    arrays, variables = len(loop.arrays), len(loop.arrays) + len(loop.scalars)
    elements, scalars, live = (_part(iteration, slice(*ends)) for ends in (
        (0, arrays), (arrays, variables + 1), (variables + 1, None)))
    b = Builder()

    def step(v: Sequence[Node], given: Sequence[Node]) -> tuple[Node, Sequence[Node]]:
        operands = (*v[:variables], *given)
        count, *flag = v[variables:]
        *after, test = inlined(scalars, operands)
        found = _fused(b, elements, operands)
        goes_on = [reduction(b, and_ if loop.asks_all else or_, x, (0,)) for x in _fused(b, live, operands)]
        for x in flag or goes_on:
            test = b(and_, test, b(not_, x) if loop.asks_all else x)
        return test, (*found, *after, b(add, count, b.like(1, count)), *(goes_on if flag else ()))

    def whole(*params: Node) -> Sequence[Node]:
        outside = len(params) - len(loop.given)
        first, flag, given = params[:variables], params[variables:outside], params[outside:]
        return b.loop((*first, b.constant(np.int64(0)), *flag), lambda v: step(v, given))

    types = [p.type for p in iteration.params]
    types[variables:variables] = [scalar(BOOL)] if loop.flag is not None else []
    return b.function("group", [(f"x{k}", t) for k, t in enumerate(types)], whole)


def _part(iteration: Function, results: slice) -> Function:
    """Some of what an iteration computes."""
    return Function("iteration", iteration.params, iteration.results[results])


def _fused(b: Builder, body: Function, operands: Sequence[Node]) -> Sequence[Node]:
    """The results of a body as one nest."""
    if not body.results:
        return ()
    found = b(fusion, *operands, body=body)
    return (found,) if len(body.results) == 1 else b.items(found)


# --- all groups


@dataclass(eq=False)
class _Lowering:
    loop: MaskedLoop
    b: LoopBuilder = field(default_factory=LoopBuilder)

    def __post_init__(self) -> None:
        loop = self.loop
        self.size = math.prod(loop.shape)
        self.types = [tensor_type(n.type) for n in loop.inits]
        widest = max(computed_dtype(self.types[k].dtype).itemsize for k in loop.arrays)
        self.width = min(self.size, GROUP_BYTES // max(4, widest))
        if self.size < 2:
            raise NotExpressible("a loop of one element")
        self.count = -(-self.size // self.width)
        self.notes = 1 if loop.ends_alike else self.count
        if len(set(loop.body.results)) < len(loop.body.results) or any(r.op is not PROJ for r in loop.body.results):
            raise NotExpressible("results that are not variables of the loop")

    def program(self) -> LoopProgram:
        """The whole program."""
        body, b = self.loop.body, self.b
        values: dict[Node, Value] = {p: new_argument(b, tensor_type(p.type)) for p in body.params}
        before = Function("before", body.params, (*self.loop.inits, *self.loop.given))
        if not all(n.op.elementwise or n.op.view or n.op in (PARAM, CONSTANT) for n in before.nodes):
            raise NotExpressible("something before the loop")
        fill(b, before, values)
        results = {k: new_result(b, self.types[k].dtype, self.types[k].shape) for k in map(index_of, body.results)}
        self._groups(values, {k: in_memory(r, self.types[k].dtype) for k, r in results.items()})
        return whole_program(b, list(results.values()))

    def _noted(self, dtype: DType) -> LazyTensor:
        """Memory for what a scalar is at the end of each group; of the first one, where all end alike."""
        return in_memory(self.b.buffer(dtype, (self.notes,)), dtype)

    def _groups(self, values: Mapping[Node, Value], found: Mapping[int, LazyTensor]) -> None:
        """All groups, and what scalars are in the end."""
        b, loop = self.b, self.loop
        flag = () if loop.flag is None else (loop.flag,)
        noted = {k: self._noted(self.types[k].dtype) for k in (*loop.scalars, *flag) if k in found}
        if not loop.ends_alike and not noted.keys() <= set(flag):
            noted[COUNT] = self._noted(I64)
        function, order = group_function(loop, self.width), (*loop.arrays, *loop.scalars, COUNT, *flag)
        wanted = [k for k in order if k in found or k in noted]
        function = replace(function, results=tuple(function.results[order.index(k)] for k in wanted))
        with b.loop(self.count, parallel=True) as number:
            start = number * self.width
            start = b.least(start, self.size - self.width) if self.size % self.width else start
            b.role = "local"
            operands = [self._own(values[n], start) for n in (*(loop.inits[k] for k in order if k != COUNT), *loop.given)]
            for k, x in zip(wanted, write_control(b, function, operands), strict=True):
                if k in noted and loop.ends_alike:
                    b.when(b.less(number, 1), lambda k=k, x=x: b.put(noted[k], (Affine(),), x.at(b, ())))  # type: ignore[misc]
                elif k in noted:
                    b.put(noted[k], (number,), x.at(b, ()))
                else:
                    self._copy(lambda lane, at, k=k, x=x: b.put(found[k], at, x.at(b, (lane,))), start)  # type: ignore[misc]
            b.role = "scratch"
        if noted:
            with b.loop(1):
                self._last(found, noted)

    def _copy(self, write: Callable[[Affine, Index], None], start: Affine) -> None:
        """A loop over the lanes of a group; `write` is given the lane and the subscript of the element."""
        with self.b.loop(self.width, parallel=True) as lane:
            write(lane, self.b.unflattened(start + lane, self.loop.shape))

    def _own(self, tensor: LazyTensor, start: Affine) -> LazyTensor:
        """The elements of a group in a row of their own, or a scalar that is computed once."""
        b = self.b
        if not tensor.shape:
            x = tensor.at(b, ())
            return LazyTensor(tensor.dtype, (), lambda b, at: x)
        row = in_memory(b.buffer(tensor.dtype, (self.width,)), tensor.dtype)
        self._copy(lambda lane, at: b.put(row, (lane,), tensor.at(b, at)), start)
        return row

    def _last(self, found: Mapping[int, LazyTensor], noted: Mapping[int, LazyTensor]) -> None:
        """The scalars of the group with the most iterations, and whether the flag says of any that an element is live."""
        b, loop = self.b, self.loop
        most, which = b.cell(I64, b.const(-1, I64)), b.cell(I64, b.const(0, I64))
        live = b.cell(BOOL, b.const(loop.asks_all, BOOL))
        with b.loop(self.notes) as number:
            if COUNT in noted:
                mine = noted[COUNT].at(b, (number,))
                more = b.apply("lt", b.get(most), mine)
                b.set(which, b.apply("where", more, number, b.get(which)))
                b.set(most, b.apply("where", more, mine, b.get(most)))
            if loop.flag is not None and loop.flag in noted:
                b.combine(live, "and" if loop.asks_all else "or", noted[loop.flag].at(b, (number,)))
        at = b.index(b.get(which), 0, self.notes - 1)
        for k in noted.keys() & found.keys():
            b.put(found[k], (), b.get(live) if k == loop.flag else noted[k].at(b, (at,)))
