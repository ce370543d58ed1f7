"""Running a straight-line function by `op.eval` in order: for bodies of reductions and fusions, and as the plainest reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.errors import VerifyError
from deepx_graph.ir import Function, Node


def evaluate(function: Function, args: Sequence[Any]) -> list[Any]:
    """The results for the given values. Raises VerifyError for an op that only a schedule can run (branches, loops, calls)."""
    values: dict[Node, Any] = dict(zip(function.params, args, strict=True))
    for node in function.nodes:
        if node not in values:
            if node.op.eval is None:
                raise VerifyError(f"{node.op.name} cannot stand in the body of another operation")
            values[node] = node.op.eval([values[i] for i in node.inputs], *node.attrs)
    return [values[r] for r in function.results]
