"""A function in the operations that Relay has words for: fusions are opened."""

from __future__ import annotations

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ops.fusion import fusion, inlined


def legal(function: Function) -> Function:
    """The function without fusions; itself when it has none."""
    while any(n.op is fusion for n in function.nodes):
        b, new = Builder(), dict[Node, Node]()
        for node in function.nodes:
            b.origin = node.origin
            inputs = tuple(new[i] for i in node.inputs)
            if node.op is fusion:
                made = inlined(b, node.attrs[0], inputs)
                new[node] = made[0] if len(made) == 1 else b.pack(*made)
            else:
                new[node] = b.make(node.op, inputs, node.attrs, node.type)
        params, results = tuple(new[p] for p in function.params), tuple(new[r] for r in function.results)
        function = function.with_(params=params, results=results)
    return function
