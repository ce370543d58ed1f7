"""Small steps that passes share when they build a function anew: nodes over other inputs, functions with other results."""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.ir import Function, Node, Op
from deepx_graph.types import TensorType, Type


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The node over other inputs of the same types; itself when they are its own."""
    return node if inputs == node.inputs else Node(node.op, inputs, node.attrs, node.type, node.origin)


def over(body: Function, inputs: Sequence[Node]) -> list[Node]:
    """The results of a straight-line body over these inputs; its nodes keep their origins."""
    new = dict(zip(body.params, inputs, strict=True))
    for node in body.nodes:
        if node not in new:
            new[node] = with_inputs(node, tuple(new[i] for i in node.inputs))
    return [new[r] for r in body.results]


def with_results(function: Function, results: tuple[Node, ...]) -> Function:
    """The function with other results under the same names; itself when they are the same nodes."""
    if all(a is b for a, b in zip(results, function.results, strict=True)):
        return function
    names = tuple(function.result_name(k) for k in range(len(results)))
    return function.with_(results=results, result_names=names)


def commutes(op: Op, type: Type) -> bool:
    """Whether operands may be swapped to the bit: max and min of floats tell 0.0 from -0.0 by their order."""
    return op.commutative and not (op.idempotent and isinstance(type, TensorType) and type.dtype.is_float)
