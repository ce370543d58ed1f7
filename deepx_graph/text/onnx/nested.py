"""Graphs within nodes, as messages: what is in them, attributes of functions put in, and what in them computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deepx_graph.text.common.protobuf_writer import encode
from deepx_graph.text.onnx.rules.random import RANDOM
from deepx_graph.text.onnx.schema import SCHEMA, AttributeProto, GraphProto, NodeProto, TensorProto
from deepx_graph.text.onnx.scope import domain_of


def nodes_within(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, and those of graphs within them."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        stack += [n for graph in graphs_of(node) for n in graph.nodes]


def graphs_of(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that are attributes of a node."""
    for a in node.attributes:
        if a.graph is not None:
            yield a.graph
        yield from a.graphs


def resolved(node: NodeProto, bound: Mapping[str, AttributeProto] | None) -> NodeProto:
    """The node with the attributes of the function around it put in, in graphs within it too."""
    if bound is None:
        return node
    attributes = []
    for a in node.attributes:
        if a.reference:
            if a.reference in bound:
                attributes.append(replace(bound[a.reference], name=a.name))
            continue
        graph = None if a.graph is None else _resolved_graph(a.graph, bound)
        attributes.append(replace(a, graph=graph, graphs=[_resolved_graph(g, bound) for g in a.graphs]))
    return replace(node, attributes=attributes)


def _resolved_graph(graph: GraphProto, bound: Mapping[str, AttributeProto]) -> GraphProto:
    return replace(graph, nodes=[resolved(n, bound) for n in graph.nodes])


@dataclass(frozen=True)
class LeanGraphs:
    """Nodes that are kept, reading by other names; graphs within them without constants, copies, and what is computed twice.

    `lift` gives the name of a value of the whole graph for a constant of a graph within it.
    """

    lift: Callable[[TensorProto], str]

    def node(self, node: NodeProto, names: Mapping[str, str], seen: Mapping[Any, NodeProto] | None = None) -> NodeProto:
        """The node with other names for what it reads. `seen` are nodes whose results it can read."""
        attributes = [a if a.graph is None else replace(a, graph=self._graph(a.graph, names, seen or {})) for a in node.attributes]
        return replace(node, inputs=[names.get(n, n) for n in node.inputs], attributes=attributes)

    def _graph(self, graph: GraphProto, around: Mapping[str, str], seen: Mapping[Any, NodeProto]) -> GraphProto:
        own = {i.name for i in graph.inputs} | {w.name for w in graph.initializers} | {o for n in graph.nodes for o in n.outputs}
        names, seen = {k: v for k, v in around.items() if k not in own}, dict(seen)
        results, nodes = {o.name for o in graph.outputs}, []
        for before in graph.nodes:
            node = self.node(before, names, seen)
            there = results.isdisjoint(node.outputs)
            if there and node.op_type == "Constant" and (tensor := _tensor_of(node)) is not None:
                names[node.outputs[0]] = self.lift(tensor)
                continue
            if there and node.op_type == "Identity" and domain_of(node.domain) == "":
                names[node.outputs[0]] = node.inputs[0]
                continue
            key = _key_of(node)
            if key is None:
                nodes.append(node)
            elif there and key in seen:
                names.update(zip(node.outputs, seen[key].outputs, strict=True))
            else:
                nodes.append(node)
                seen.setdefault(key, node)
        outputs = [replace(o, name=o.name if o.name in own else names.get(o.name, o.name)) for o in graph.outputs]
        return replace(graph, nodes=nodes, outputs=outputs)


def _tensor_of(node: NodeProto) -> TensorProto | None:
    """The value of a constant that is written as a tensor."""
    (value, *others) = node.attributes or [AttributeProto()]
    return None if others or value.name != "value" or value.tensor is None else replace(value.tensor, name=node.outputs[0])


def _key_of(node: NodeProto) -> Any:
    """What two nodes have in common that give the same values; None for one that may give others each time, or holds a graph."""
    if domain_of(node.domain) or node.op_type in (*RANDOM, "Dropout") or any(a.graph or a.graphs for a in node.attributes):
        return None
    attributes = b"".join(encode(NodeProto(attributes=sorted(node.attributes, key=lambda a: a.name)), SCHEMA))
    return node.op_type, attributes, tuple(map(bool, node.outputs)), tuple(node.inputs)
