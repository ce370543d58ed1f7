"""The tensors of a function that must lie alike: what flows through loops, branches and tuples is one value, and so are
those that a program puts into one group.

Shardy calls these data-flow edges. In each class are {start, variable, next, end} of a loop variable, {value of each branch, phi}
of a branch, and an item of a tuple with what was put there.
"""

from __future__ import annotations

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, PROJ, REGION, TUPLE, branch_width, index_of, phi_choices
from deepx_graph.types import TensorType, TupleType

Value = tuple[Node, int]
"""Result k of a node."""

GROUP = "sharding_group"
"""The note with the number of the group of values, which lie alike, that a value belongs to."""


class DataFlow:
    """The classes of the tensors of a function."""

    def __init__(self, function: Function) -> None:
        self._parent: dict[Value, Value] = {}
        self.function = function
        groups: dict[str, Value] = {}
        for node in function.nodes:
            if node.op is PROJ:
                self._join((node, 0), self._item(node.inputs[0], index_of(node)))
            elif node.op is PHI:
                self._join_phi(node)
            elif node.op is REGION:
                for k in range(branch_width(node)):
                    first, *others = phi_choices(node, k)
                    for other in others:
                        self._join((first, 0), (other, 0))
            elif node.op is LOOP_END:
                begin = node.inputs[0]
                for k, (first, after) in enumerate(zip(begin.inputs, node.inputs[2:], strict=True)):
                    self._join((first, 0), (begin, k))
                    self._join((after, 0), (begin, k))
            elif (group := dict(node.origin.notes).get(GROUP)) is not None:
                self._join((node.inputs[0], 0), groups.setdefault(group, (node, 0)))
                self._join((node, 0), groups[group])

    def _join_phi(self, node: Node) -> None:
        source, k = node.inputs[0], index_of(node)
        if source.op is REGION:
            for choice in phi_choices(source, k):
                self._join((node, 0), (choice, 0))
        else:
            self._join((node, 0), (source, k))

    def _item(self, node: Node, k: int) -> Value:
        if node.op is TUPLE:
            return node.inputs[k], 0
        return (node.inputs[0], k) if node.op is LOOP_END else (node, k)

    def _join(self, a: Value, b: Value) -> None:
        root, other = self._root(a), self._root(b)
        if root != other:
            older, newer = sorted((root, other), key=lambda v: (v[0].serial, v[1]))
            self._parent[newer] = older

    def _root(self, value: Value) -> Value:
        while value in self._parent:
            value = self._parent[value]
        return value

    def of(self, node: Node, k: int = 0) -> Value:
        """What stands for the class of result k of a node."""
        return self._root((node, k))

    def results(self, node: Node) -> list[Value]:
        """What stands for the class of each result of a node that computes."""
        count = len(node.type.items) if isinstance(node.type, TupleType) else 1
        return [self.of(node, k) for k in range(count)]

    def tensors(self) -> list[Node]:
        """The nodes of the function that are tensors, in order."""
        return [n for n in self.function.nodes if isinstance(n.type, TensorType)]


CARRIERS = (TUPLE, PROJ, PHI, REGION, LOOP_BEGIN, LOOP_END)
"""The operations that only pass values on."""
