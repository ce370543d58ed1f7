"""Reducers that keep one of two elements by comparisons alone, such as the least one and its position."""

from __future__ import annotations

import numpy as np

from deepx_graph.ir import Function, Node, peephole
from deepx_graph.ir.structure import PARAM
from deepx_graph.ops.interpret import evaluate
from deepx_graph.types import as_tensor

MOST_PARTS = 4
"""An element of more parts is not looked at: examples are four to the power of their number."""

_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_EXTREMES = frozenset(("max", "min"))
_LOGIC = frozenset(("and", "or", "xor", "not"))


def is_any_order(body: Function) -> bool:
    """Whether a reducer of elements of some parts, `(*left, *right) -> parts`, gives the same whichever of two elements is the left
    one: as a `reduce` may group elements as it likes, it may then take them in any order.

    It keeps each part of one of the two by how their parts compare, so an example of each order says all. Only integers and bools
    are looked at: of two floats that are NaN, or zeros, comparisons do not say which one is kept.
    """
    half, dtypes = len(body.params) // 2, [as_tensor(p.type).dtype for p in body.params]
    if half > MOST_PARTS or any(d.kind not in ("int", "uint", "bool") for d in dtypes) or not _chooses(body, half):
        return False
    examples = [x.ravel().astype(d.np) for x, d in zip(np.indices((2,) * 2 * half), dtypes, strict=True)]
    kept = zip(evaluate(body, examples), evaluate(body, examples[half:] + examples[:half]), strict=True)
    return all(np.array_equal(x, y) for x, y in kept)


def _chooses(body: Function, half: int) -> bool:
    """Whether each result is that part of one of the two elements, by logic of comparisons of a part with the same one."""
    part: dict[Node, int | None] = {p: k % half for k, p in enumerate(body.params)}
    for node in body.nodes:
        if node in part:
            continue
        primitive, of = peephole.primitive_of(node.op, node.attrs), [part[i] for i in node.inputs]
        is_of_both = len(set(of)) == 1 and all(i.op is PARAM for i in node.inputs)
        if (primitive in _COMPARISONS and is_of_both) or (primitive in _LOGIC and of == [None] * len(of)):
            part[node] = None
        elif (primitive in _EXTREMES and is_of_both) or (primitive == "where" and of[0] is None and of[1] == of[2]):
            part[node] = of[-1]
        else:
            return False
    return [part[r] for r in body.results] == list(range(half))
