"""Running a function by `op.eval` in order: for bodies of reductions and fusions, and as the plainest reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import VerifyError
from deepx_graph.ir import Function, Node
from deepx_graph.literal import Array
from deepx_graph.ops.control import CONTROL, compute
from deepx_graph.ops.fallback import general
from deepx_graph.types import as_tensor


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
    shape = left[0].shape
    if all(n.op.elementwise or not n.inputs for n in body.nodes) or not shape:
        return [np.broadcast_to(r, shape) for r in evaluate(body, [*left, *right])]
    general("element by element")
    rows = [evaluate(body, [a[at] for a in (*left, *right)]) for at in np.ndindex(shape)]
    dtypes = [as_tensor(r.type).dtype.np for r in body.results]
    return [np.asarray([row[k] for row in rows], dtype=d).reshape(shape) for k, d in enumerate(dtypes)]
