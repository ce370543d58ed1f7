"""Folds: many scalars combined into one by a loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph.ir import Function
from deepx_graph.ir.scalar_expr import Apply, Variable
from deepx_graph.loops.builder import LoopBuilder
from deepx_graph.loops.complex import joined, parts
from deepx_graph.loops.elements import call, settled
from deepx_graph.loops.scalar import Affine
from deepx_graph.types import F32, F64, DType

LONG_SUM = 4096
"""A float sum of more terms than this is carried in double precision."""

Elements = Callable[[tuple[Affine, ...]], Sequence[Any]]


def fold(b: LoopBuilder, body: Function, starts: Sequence[Any], dtypes: Sequence[DType], extents: Sequence[int],
         elements: Elements) -> tuple[Any, ...]:
    """The results of a reducer over some extents: `elements` gives at each point one element for each start value."""
    primitive = primitive_of(body, dtypes)
    if primitive is not None:
        total = accumulate(b, primitive, starts[0], extents, lambda at: elements(at)[0])
        return (settled(b, total, dtypes[0]),)
    cells = [[b.cell(p.dtype, p) for p in parts(s)] for s in starts]
    with b.loops(extents) as at:
        found = call(b, body, [*(joined([b.get(c) for c in each]) for each in cells), *elements(at)])
        for each, x in zip(cells, found, strict=True):
            for cell, part in zip(each, parts(x), strict=True):
                b.set(cell, part)
    return tuple(joined([b.get(c) for c in each]) for each in cells)


def accumulate(b: LoopBuilder, primitive: str, start: Any, extents: Sequence[int],
               element: Callable[[tuple[Affine, ...]], Any]) -> Any:
    """Elements combined by a primitive in any order. Long float sums are carried in double precision."""
    dtype = start.dtype
    wide = F64 if dtype is F32 and primitive in ("add", "mul") and math.prod(extents) > LONG_SUM else dtype
    cells = [b.cell(wide, b.cast(part, wide)) for part in parts(start)]
    with b.loops(extents) as at:
        for cell, part in zip(cells, parts(element(at)), strict=True):
            b.combine(cell, primitive, b.cast(part, wide))
    return joined([b.cast(b.get(cell), dtype) for cell in cells])


def primitive_of(body: Function, dtypes: Sequence[DType]) -> str | None:
    """The primitive by which a reducer combines two scalars, of complex ones each part; None where it does more than that."""
    op = body.reducer if len(dtypes) == 1 else None
    if op is None or op.monoid is None or op.kernel is None:
        return None
    tree = op.kernel()
    if dtypes[0].kind == "complex" and tree != Apply("add", (Variable(0), Variable(1))):
        return None
    return tree.primitive if isinstance(tree, Apply) and tree.args == (Variable(0), Variable(1)) else None
