"""What names stand for in a graph of a model: values in scopes, and values as plain data beside the nodes that they hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.text.onnx.context import Value
from deepx_graph.text.onnx.schema import NodeProto, OperatorSetId
from deepx_graph.types import ANY, tensor

UNKNOWN = tensor(ANY, None)
"""The type of a value of which nothing is known."""


def domain_of(name: str) -> str:
    """`ai.onnx` is the same as no domain."""
    return "" if name == "ai.onnx" else name


def versions(opsets: Sequence[OperatorSetId]) -> dict[str, int]:
    return {domain_of(o.domain): o.version for o in opsets}


class GraphNames:
    """The names that a graph sees: its own, then those around it. Initialisers become nodes when they are first read."""

    def __init__(self, outer: GraphNames | None = None) -> None:
        self.outer = outer
        self.values: dict[str, Value] = {}
        self.waiting: dict[str, Callable[[], Node]] = {}

    def define(self, name: str, value: Value) -> None:
        self.values[name] = value

    def __contains__(self, name: str) -> bool:
        return name in self.values or name in self.waiting or (self.outer is not None and name in self.outer)

    def __getitem__(self, name: str) -> Value:
        scope: GraphNames | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            if name in scope.waiting:
                found = scope.values[name] = scope.waiting.pop(name)()
                return found
            scope = scope.outer
        raise KeyError(name)


# --- values as templates over nodes


def template_of(value: Value, place: Mapping[Node, int]) -> Any:
    return place[value] if isinstance(value, Node) else None if value is None else tuple(template_of(v, place) for v in value)


def filled(template: Any, operands: Sequence[Node]) -> Value:
    if template is None or isinstance(template, int):
        return None if template is None else operands[template]
    return tuple(filled(t, operands) for t in template)


def leaves_of(values: Any) -> Iterator[Node]:
    """The nodes in values."""
    for v in values:
        if isinstance(v, Node):
            yield v
        elif v is not None:
            yield from leaves_of(v)


def captured(node: NodeProto) -> Iterator[str]:
    """The names that graphs within a node may take from around it."""
    stack = [g for a in node.attributes for g in (*a.graphs, a.graph) if g is not None]
    while stack:
        graph = stack.pop()
        for n in graph.nodes:
            yield from n.inputs
            stack += [g for a in n.attributes for g in (*a.graphs, a.graph) if g is not None]
        yield from (o.name for o in graph.outputs)
