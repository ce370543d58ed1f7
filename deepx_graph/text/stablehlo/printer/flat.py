"""Loops and branches without tuples: StableHLO's `while`, `if` and `case` carry tensors and tokens only.

Each tuple that a loop or branch carries becomes its leaves, and is made again behind it. A function without such tuples is returned
as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, PROJ, REGION, TUPLE, index_of
from deepx_graph.types import TupleType, Type, leaves

_CONTROL = (REGION, LOOP_BEGIN, LOOP_END)


def flattened(function: Function) -> Function:
    """The function with the leaves of tuples in its loops and branches."""
    if not any(_carries_tuples(n) for n in function.nodes):
        return function
    b = Builder()
    new: dict[Node, Node] = {}
    for node in function.nodes:
        b.origin = node.origin
        inputs = tuple(new[i] for i in node.inputs)
        if _carries_tuples(node):
            new[node] = _control(b, node, inputs)
        elif (node.op is PHI or node.op is PROJ) and _carries_tuples(node.inputs[0]):
            whole = node.inputs[0].type
            assert isinstance(whole, TupleType)
            first = len(leaves(TupleType(whole.items[: index_of(node)])))
            parts = [b(node.op, inputs[0], index=first + k) for k in range(len(leaves(node.type)))]
            new[node] = _rebuilt(b, node.type, parts)
        elif node.op is PROJ and inputs[0].op is TUPLE:
            new[node] = inputs[0].inputs[index_of(node)]
        else:
            new[node] = b.make(node.op, inputs, node.attrs, node.type)
    return function.with_(params=tuple(new[p] for p in function.params), results=tuple(new[r] for r in function.results))


def _carries_tuples(node: Node) -> bool:
    return node.op in _CONTROL and isinstance(node.type, TupleType) and any(isinstance(t, TupleType) for t in node.type.items)


def _control(b: Builder, node: Node, inputs: Sequence[Node]) -> Node:
    """The branch, the loop's beginning or its end, on leaves."""
    fixed = {REGION: 1, LOOP_BEGIN: 0, LOOP_END: 2}[node.op]
    flat = [leaf for value in inputs[fixed:] for leaf in _leaves(b, value)]
    return b.make(node.op, (*inputs[:fixed], *flat), node.attrs, TupleType(leaves(node.type)))


def _leaves(b: Builder, node: Node) -> list[Node]:
    """The values inside, left to right, taken from where the tuple was made if that is at hand."""
    if not isinstance(node.type, TupleType):
        return [node]
    items = node.inputs if node.op is TUPLE else b.items(node)
    return [leaf for item in items for leaf in _leaves(b, item)]


def _rebuilt(b: Builder, type: Type, parts: list[Node]) -> Node:
    """The value of that type with these leaves, which are taken from the list."""
    if not isinstance(type, TupleType):
        return parts.pop(0)
    return b.pack(*(_rebuilt(b, t, parts) for t in type.items))
