"""Loop variables that never change, as values from outside: the reader takes them for such, and so must what is printed.

A function without any is returned as it is. Nothing here recurses.
"""

from __future__ import annotations

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.structure import LOOP_END, PHI, PROJ, index_of
from deepx_graph.types import TupleType


def without_fixed_variables(function: Function) -> Function:
    """The same function whose loops have only variables that change; a loop of none that change keeps all."""
    while any(n.op is LOOP_END for n in function.nodes) and (fixed := _fixed(function)):
        function = _Rebuilt(function, fixed).function
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


class _Rebuilt:
    """One round over all nodes of a function."""

    def __init__(self, function: Function, fixed: dict[Node, set[int]]) -> None:
        self.fixed = fixed
        self.new: dict[Node, Node] = {p: p for p in function.params}
        b = Builder()
        for node in function.nodes:
            if node not in self.new:
                b.origin = node.origin
                self.new[node] = self._node(b, node)
        self.function = function.with_(results=tuple(self.new[r] for r in function.results))

    def _node(self, b: Builder, node: Node) -> Node:
        begin = node.inputs[0] if node.inputs else node
        begin = begin.inputs[0] if begin.op is LOOP_END else begin
        if node in self.fixed:
            kept = [self.new[i] for k, i in enumerate(node.inputs) if k not in self.fixed[node]]
            return b.make(node.op, tuple(kept), node.attrs, TupleType(tuple(n.type for n in kept)))
        if begin in self.fixed:
            return self._around(b, node, begin, self.fixed[begin])
        if all(self.new[i] is i for i in node.inputs):
            return node
        return b.make(node.op, tuple(self.new[i] for i in node.inputs), node.attrs, node.type)

    def _around(self, b: Builder, node: Node, begin: Node, fixed: set[int]) -> Node:
        """The end of a loop with such variables, a variable, or its value at the end."""
        if node.op is LOOP_END:
            nexts = [self.new[n] for k, n in enumerate(node.inputs[2:]) if k not in fixed]
            whole = self.new[begin]
            return b.make(LOOP_END, (whole, self.new[node.inputs[1]], *nexts), (), whole.type)
        assert node.op is PHI or node.op is PROJ
        k = index_of(node)
        if k in fixed:
            return self.new[begin.inputs[k]]
        return b.make(node.op, (self.new[node.inputs[0]],), (k - sum(f < k for f in fixed),), node.type)
