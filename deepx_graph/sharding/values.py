"""The tensors of a function that must lie alike: a variable of a loop and its end, what the branches give, an item of a tuple and
what was put there.

What comes into a loop, at its start and from each iteration, or out of a branch may lie in another way than it does there, which
together are what Shardy calls a data-flow edge; and so may the values that a program puts into one group, where it says so of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import (
    CONSTANT,
    LOOP_BEGIN,
    LOOP_END,
    PARAM,
    PHI,
    PROJ,
    REGION,
    TUPLE,
    branch_count,
    branch_width,
    index_of,
    phi_choices,
)
from deepx_graph.types import TensorType, TupleType

Value = tuple[Node, int]
"""Result k of a node."""

GROUP = "sharding_group"
"""The note with the number of the group of values, which lie alike, that a value belongs to."""


class DataFlow:
    """The classes of the tensors of a function.

    What comes into a loop or a branch is of the class of what it is there, or not: `sources` has the values that come into each.
    So are the members of a group: `groups` has for each the identities that stand for it where members are used, which are of one
    class, and the parameters that are members.
    """

    def __init__(self, function: Function, with_sources: bool = True) -> None:
        self._parent: dict[Value, Value] = {}
        self.function = function
        self.groups: dict[str, list[Node]] = {}
        for node in function.nodes:
            if node.op is PROJ:
                self._join((node, 0), self._item(node.inputs[0], index_of(node)))
            elif node.op is PHI:
                self._join((node, 0), (node.inputs[0], index_of(node)))
            for group in [said for name, said in node.origin.notes if name == GROUP]:
                self.groups.setdefault(group, []).append(node)
        for members in self.groups.values():
            used = [m for m in members if m.op is not PARAM]
            for member in used[1:]:
                self._join((member, 0), (used[0], 0))
        self.sources = list(_sources(function))
        if with_sources:
            for value, found in self.sources:
                for source in found:
                    self._join((source, 0), value)
            for members in self.groups.values():
                for member in members:
                    for node in (member, *member.inputs):
                        self._join((node, 0), (members[0], 0))

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


def _sources(function: Function) -> Iterator[tuple[Value, tuple[Node, ...]]]:
    """Each variable of a loop and value of a branch, with what comes into it."""
    for node in function.nodes:
        if node.op is REGION:
            for k in range(branch_width(node)):
                yield (node, k), phi_choices(node, k)
        elif node.op is LOOP_END:
            begin = node.inputs[0]
            for k, (first, after) in enumerate(zip(begin.inputs, node.inputs[2:], strict=True)):
                yield (begin, k), (first, after)


def owners(function: Function) -> dict[Node, list[Node]]:
    """For each branch and end and beginning of a loop, as which node each of its inputs lies.

    That is the variable, as an iteration has it or else the end; what comes in first where nothing reads it.
    """
    def known(node: Node, k: int, other: Node) -> Node:
        return next((u for u in function.users[node] if u.op in (PHI, PROJ) and index_of(u) == k), other)

    found: dict[Node, list[Node]] = {}
    for node in function.nodes:
        if node.op is REGION:
            width = branch_width(node)
            values = [known(node, k, node.inputs[1 + k]) for k in range(width)]
            found[node] = [node.inputs[0], *values * branch_count(node)]
        elif node.op is LOOP_END:
            begin = node.inputs[0]
            found[begin] = [known(begin, k, known(node, k, i)) for k, i in enumerate(begin.inputs)]
            found[node] = [*node.inputs[:2], *found[begin]]
    return found


def numbered(function: Function) -> set[Node]:
    """The nodes that depend on the number of the device that computes them."""
    found: set[Node] = set()
    for node in function.nodes:
        if (node.op.exchange is not None and not node.inputs) or any(i in found for i in node.inputs):
            found.add(node)
    return found


def made_of_constants(function: Function) -> set[Node]:
    """What is made of constants alone, such as iotas and masks: every device can make it for itself."""
    found: set[Node] = set()
    for node in function.nodes:
        if node.op is CONSTANT or (node.op is not PARAM and node.op not in CARRIERS and node.op.eval is not None
                                   and isinstance(node.type, TensorType) and all(i in found for i in node.inputs)):
            found.add(node)
    return found


CARRIERS = (TUPLE, PROJ, PHI, REGION, LOOP_BEGIN, LOOP_END)
"""The operations that only pass values on."""
