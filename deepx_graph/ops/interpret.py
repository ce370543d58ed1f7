"""Running a function by `op.eval` in order: for bodies of reductions and fusions, and as the plainest reference."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from deepx_graph.errors import VerifyError
from deepx_graph.ir import Function, Node
from deepx_graph.ir.evaluation import in_blocks
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, REGION, branch_count, branch_width, index_of, taken_branch
from deepx_graph.literal import Array
from deepx_graph.types import as_tensor


class _Fallbacks(threading.local):
    seen: list[str] | None = None


_FALLBACKS = _Fallbacks()


def report_fallback(how: str) -> None:
    """Says by which general algorithm a body is applied, where a faster one does not fit."""
    if _FALLBACKS.seen is not None and how not in _FALLBACKS.seen:
        _FALLBACKS.seen.append(how)


@contextmanager
def fallbacks() -> Iterator[list[str]]:
    """What is reported inside the block, each once; an outer block does not get it."""
    outer, seen = _FALLBACKS.seen, list[str]()
    _FALLBACKS.seen = seen
    try:
        yield seen
    finally:
        _FALLBACKS.seen = outer


Values = dict[Node, Any]
Run = Callable[[Sequence[Node], Values], None]

CONTROL = (REGION, PHI, LOOP_BEGIN, LOOP_END)


def compute(node: Node, nodes: Sequence[Node], values: Values, run: Run) -> None:
    """Gives a control node its value; a loop's beginning runs the whole loop, of which `nodes` has the rest."""
    if node.op is REGION:
        selector, *given = (values[i] for i in node.inputs)
        width = branch_width(node)
        taken = taken_branch(selector, branch_count(node))
        values[node] = tuple(given[taken * width : (taken + 1) * width])
    elif node.op is PHI:
        values[node] = values[node.inputs[0]][index_of(node)]
    else:
        _loop(node, nodes, values, run)


def _loop(begin: Node, nodes: Sequence[Node], values: Values, run: Run) -> None:
    at = next(k for k, n in enumerate(nodes) if n.op is LOOP_END and n.inputs[0] is begin)
    end, inside = nodes[at], {begin}
    body, before = [], []
    for n in nodes[:at]:
        if any(i in inside for i in n.inputs):
            inside.add(n)
            body.append(n)
        elif n not in values and n is not begin:
            before.append(n)
    run(before, values)
    _, condition, *nexts = end.inputs
    variables = tuple(values[i] for i in begin.inputs)
    while True:
        now = {**values, begin: variables}
        run(body, now)
        if not now[condition]:
            break
        variables = tuple(now[n] for n in nexts)
    values[end] = variables
    values.update(dict.fromkeys(inside))


def evaluate(function: Function, args: Sequence[Any]) -> list[Any]:
    """The results for the given values. Raises VerifyError for an op that only a schedule can run (calls, effects)."""
    values: dict[Node, Any] = dict(zip(function.params, args, strict=True))
    _run(function.nodes, values)
    return [values[r] for r in function.results]


def _run(nodes: Sequence[Node], values: dict[Node, Any]) -> None:
    """Computes the nodes that have no value yet."""
    for node in nodes:
        if node not in values:
            if node.op.eval is not None:
                values[node] = node.op.eval([values[i] for i in node.inputs], *node.attrs)
            elif node.op in CONTROL:
                compute(node, nodes, values, _run)
            else:
                raise VerifyError(f"{node.op.name} cannot stand in the body of another operation")


def combine(body: Function, left: Sequence[Array], right: Sequence[Array]) -> list[Array]:
    """A body on scalars applied to arrays of one shape, element by element; to whole arrays at once where its ops allow."""
    shape, dtypes = left[0].shape, [as_tensor(r.type).dtype.np for r in body.results]
    if all(n.op.elementwise or not n.inputs for n in body.nodes) or not shape:
        results = in_blocks(lambda parts: evaluate(body, parts), [*left, *right], dtypes)
        return [np.broadcast_to(r, shape) for r in results]
    report_fallback("element by element")
    rows = [evaluate(body, [a[at] for a in (*left, *right)]) for at in np.ndindex(shape)]
    return [np.asarray([row[k] for row in rows], dtype=d).reshape(shape) for k, d in enumerate(dtypes)]
