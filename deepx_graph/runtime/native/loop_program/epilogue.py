"""The epilogue of a product or a convolution: a loop over rows of the result, in place, for callers that have just computed some.

`epilogue(table, low, high, left, right)` does rows low..high, and of them columns left..right; or all columns, where it needs whole
rows, as something is reduced along them. A row is what lies along the last axes of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count

import numpy as np

from deepx_graph.ir import Function
from deepx_graph.loops.elements import tensor_type
from deepx_graph.loops.in_place import Accesses
from deepx_graph.loops.lower import lower
from deepx_graph.loops.passes.flatten_loops import flattened
from deepx_graph.loops.passes.forward_stores import forward_stores
from deepx_graph.loops.passes.fuse_loops import fuse_loops
from deepx_graph.loops.passes.rewrite import Fresh
from deepx_graph.loops.program import Buffer, For, Load, LoopProgram, Statement, walk
from deepx_graph.loops.scalar import Affine, NotExpressible, ScalarVar, affine
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native.llvm import machine_code
from deepx_graph.runtime.native.llvm.builder import IRBuilder
from deepx_graph.runtime.native.llvm.target import this_machine
from deepx_graph.runtime.native.loop_program.emit import FREE, FunctionEmitter, is_all_vectors, pointers
from deepx_graph.runtime.native.loop_program.timing import nanoseconds
from deepx_graph.types import I64

MOST_STATEMENTS = 2000
"""Epilogues of more stay kernels of their own: the time to compile grows with them."""


def build(function: Function, apart: int) -> Epilogue:
    """The epilogue whose first parameter is the result that it is done on; its first `apart` axes, those of size 1 not counted,
    number the rows. Raises Declined where it is not one loop over rows, in place and without memory of its own."""
    shape = tensor_type(function.results[0].type).shape
    outer = next(k for k in range(len(shape) + 1) if sum(n != 1 for n in shape[:k]) == apart)
    try:
        program = forward_stores(fuse_loops(lower(function, outer), keeps_rows=True))
    except NotExpressible as e:
        raise Declined(str(e)) from None
    loop, ends = program.body[0], (Affine(), Affine((), math.prod(shape[:outer])))
    if len(program.body) > 1 or not isinstance(loop, For) or not loop.parallel or (loop.low, loop.high) != ends:
        raise Declined("the epilogue is not one loop over rows")
    if program.scratch or 0 not in Accesses(program).written_over(program.results[0]):
        raise Declined("the epilogue is not in place")
    if sum(1 for _ in walk(program.body)) > MOST_STATEMENTS:
        raise Declined(f"an epilogue of more than {MOST_STATEMENTS} statements")
    return Epilogue(program, loop, math.prod(shape[outer:]))


class Epilogue:
    """A compiled epilogue, for others to call: its table holds the array objects of arguments and result, then constants."""

    def __init__(self, program: LoopProgram, loop: For, columns: int) -> None:
        self.columns = columns
        self.params = tuple(range(len(program.arguments)))
        self.constants = tuple(np.ascontiguousarray(b.array) for b in program.constants)
        self.nanoseconds = nanoseconds([loop])
        (result,) = program.results
        for s in walk(program.body):
            if isinstance(s, Load) and s.buffer is program.arguments[0]:
                s.buffer = result
        ends = _columns(program, loop, columns)
        self.needs_rows = not ends
        """Whether it cannot keep to some columns."""
        slot = {b: k for k, b in enumerate((*program.arguments, result, *program.constants))}
        text, plain = _text(loop, ends, slot, len(self.params) + 1), is_all_vectors([loop], this_machine())
        self.function = machine_code.functions(text, ["epilogue"], self, optimise=not plain)["epilogue"]


def _columns(program: LoopProgram, loop: For, columns: int) -> Sequence[ScalarVar]:
    """Has the loop along a row do the columns from one variable up to below another; gives none where there is no such loop."""
    fresh, inner = Fresh(program), loop.body[0]
    while len(loop.body) == 1 and isinstance(inner, For) and (flat := flattened(inner, fresh, columns + 1)):
        inner = flat
    if len(loop.body) > 1 or not isinstance(inner, For) or inner.low != Affine() or inner.high != Affine((), columns):
        return ()
    ends = fresh.var(I64, 0, columns), fresh.var(I64, 0, columns)
    loop.body = [For(inner.axis, affine(ends[0]), affine(ends[1]), inner.body, parallel=True)]
    return ends


def _text(loop: For, ends: Sequence[ScalarVar], slot: dict[Buffer, int], objects: int) -> str:
    emitter = FunctionEmitter(this_machine(), count(FREE))
    names = ["%left", "%right"][: len(ends)]
    emitter.env |= dict(zip(ends, names, strict=True))
    body: list[Statement] = [loop]
    rows = emitter.function("rows", body, shared=True, more=names)
    t = IRBuilder(1)
    given = [*pointers(t, emitter.used, slot, objects), *(f"i64 {x}" for x in ("%low", "%high", *names))]
    t.line(f"call void @rows({', '.join(given)})")
    whole = t.function("void @epilogue(ptr %table, i64 %low, i64 %high, i64 %left, i64 %right) nounwind")
    return "\n".join([rows, whole, *emitter.t.declarations, ""])
