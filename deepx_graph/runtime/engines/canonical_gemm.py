"""What fast engines change in a function before it is planned: the values stay, up to the order of floating sums.

A transposed product is the product of its operands the other way round: BLAS reads either order at one speed, while a kernel that
reads a transposed result, or a copy of it, costs several times a pass over it. Passes may not do this: they keep every bit.
"""

from __future__ import annotations

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.ops import dot_general, transpose
from deepx_graph.ops.contract.linear import transposed


def canonicalized(function: Function) -> Function:
    """The function with a transpose of a product as the product of the transposed operands, where nobody else reads the product;
    itself where there is none. Takes time linear in its nodes."""
    found = {n for n in function.nodes if n.op is transpose and _is_transposable(function, n)}
    if not found:
        return function
    b = Builder()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        other = transposed(b, inputs[0], node.attr("permutation")) if node in found else None
        if other is None:
            return with_inputs(node, inputs)
        return Node(other.op, other.inputs, other.attrs, node.type, node.inputs[0].origin)

    return rebuilt(function, step)


def _is_transposable(function: Function, node: Node) -> bool:
    product = node.inputs[0]
    return product.op is dot_general and len(function.users[product]) == 1 and product not in function.results
