"""Loop variables that never change, as values from outside: the reader takes them for such, and so must what is printed.

A function without any is returned as it is. Nothing here recurses.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.ir import Function, Node
from deepx_graph.ir.rebuild import rebuild, replaced, with_inputs
from deepx_graph.ir.structure import LOOP_END, PHI, index_of
from deepx_graph.types import TupleType


def without_fixed_variables(function: Function) -> Function:
    """The same function whose loops have only variables that change; a loop of none that change keeps all."""
    while any(n.op is LOOP_END for n in function.nodes) and (fixed := _fixed(function)):
        function = _without(function, fixed)
    return function


def _fixed(function: Function) -> dict[Node, set[int]]:
    """For each loop_begin the variables whose next value is their own."""
    found: dict[Node, set[int]] = {}
    for end in function.nodes:
        if end.op is LOOP_END:
            begin, _, *nexts = end.inputs
            same = {k for k, n in enumerate(nexts) if n.op is PHI and n.inputs[0] is begin and index_of(n) == k}
            if same and len(same) < len(nexts):
                found[begin] = same
    return found


def _without(function: Function, fixed: dict[Node, set[int]]) -> Function:
    """One round over all nodes of a function."""
    new: dict[Node, Node] = {p: p for p in function.params}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node in fixed:
            kept = _kept(inputs, fixed[node])
            return Node(node.op, kept, node.attrs, TupleType(tuple(n.type for n in kept)), node.origin)
        begin = node.inputs[0] if node.inputs else node
        begin = begin.inputs[0] if begin.op is LOOP_END else begin
        if begin not in fixed:
            return with_inputs(node, inputs)
        if node.op is LOOP_END:
            return Node(LOOP_END, (*inputs[:2], *_kept(inputs[2:], fixed[begin])), (), inputs[0].type, node.origin)
        k = index_of(node)  # of a variable, or of its value at the end
        if k in fixed[begin]:
            return new[begin.inputs[k]]
        return Node(node.op, inputs, (k - sum(f < k for f in fixed[begin]),), node.type, node.origin)

    return replaced(function, rebuild(function.nodes, new, step))


def _kept(values: Sequence[Node], fixed: set[int]) -> tuple[Node, ...]:
    return tuple(v for k, v in enumerate(values) if k not in fixed)
