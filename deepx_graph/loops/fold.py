"""Folds: many scalars combined into one by a loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph.ir import Function
from deepx_graph.ir.scalar_expr import Apply, Variable
from deepx_graph.loops.builder import LoopBuilder
from deepx_graph.loops.elements import call, settled
from deepx_graph.loops.scalar import Affine, Scalar
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
    cells = [b.cell(s.dtype, s) for s in starts]
    with b.loops(extents) as at:
        found = call(b, body, [*(b.get(c) for c in cells), *elements(at)])
        for cell, x in zip(cells, found, strict=True):
            b.set(cell, x)
    return tuple(b.get(c) for c in cells)


def accumulate(b: LoopBuilder, primitive: str, start: Scalar, extents: Sequence[int],
               element: Callable[[tuple[Affine, ...]], Scalar]) -> Any:
    """Elements combined by a primitive in any order. Long float sums are carried in double precision."""
    dtype = start.dtype
    wide = F64 if dtype is F32 and primitive in ("add", "mul") and math.prod(extents) > LONG_SUM else dtype
    cell = b.cell(wide, b.cast(start, wide))
    with b.loops(extents) as at:
        b.combine(cell, primitive, b.cast(element(at), wide))
    return b.cast(b.get(cell), dtype)


def primitive_of(body: Function, dtypes: Sequence[DType]) -> str | None:
    """The primitive by which a reducer combines two scalars; None where it does more than that."""
    op = body.reducer if len(dtypes) == 1 else None
    if op is None or op.monoid is None or op.kernel is None or dtypes[0].kind == "complex":
        return None
    tree = op.kernel()
    return tree.primitive if isinstance(tree, Apply) and tree.args == (Variable(0), Variable(1)) else None
