"""What depends on the kind of a node alone, which is its operation, its attributes and the types around it.

Programs have few kinds of nodes beside their nodes: what is asked of each kind once costs a long program next to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from deepx_graph.ir.node import Node

Found = TypeVar("Found")


def kind_of(node: Node) -> Hashable:
    """A value equal for nodes of one operation, with the same attributes, over operands of the same types."""
    return node.op, node.attrs, tuple([i.type for i in node.inputs]), node.type


class ByKind(Generic[Found]):
    """A function of a node that depends on its kind alone, which is asked for each kind once."""

    __slots__ = ("_known", "_of")

    def __init__(self, of: Callable[[Node], Found]) -> None:
        self._of = of
        self._known: dict[Hashable, Found] = {}

    def __call__(self, node: Node) -> Found:
        kind = kind_of(node)
        try:
            return self._known[kind]
        except KeyError:
            found = self._known[kind] = self._of(node)
            return found
