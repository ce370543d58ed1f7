"""Matrix products in the order in which kernels do them best.

A transposed product is the product of its operands in the other order: BLAS reads either order at one speed, while a kernel that
reads a transposed result, or a copy of it, costs several times a pass over it. Passes may not change that, as they keep every bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph.analysis.batched_gemm import BatchedGemm, batched_gemm_of
from deepx_graph.analysis.kinds import ByKind
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.ops import dot_general, transpose
from deepx_graph.ops.contract.linear import transposed


def canonicalized(function: Function, accepts: Callable[[Node], bool] = lambda _: True) -> Function:
    """The function with a transpose of a product as the product of the transposed operands, where nobody else reads the product and
    the other product is accepted; itself where there is none. Takes time linear in its nodes."""
    found = {n for n in function.nodes if n.op is transpose and _is_transposable(function, n)}
    if not found:
        return function
    b = Builder()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        other = transposed(b, inputs[0], node.attr("permutation")) if node in found else None
        if other is None or not accepts(other):
            return with_inputs(node, inputs)
        return Node(other.op, other.inputs, other.attrs, node.type, node.inputs[0].origin)

    return rebuilt(function, step)


def in_order(function: Function, chosen: Callable[[Node], Sequence[bool]]) -> Function:
    """The function with operands that are `chosen` as they are no matrices transposed before their product: a transpose is a kernel
    like others, and one for all products that want the same. Itself where there is none."""

    def to_transpose(node: Node) -> tuple[BatchedGemm, Sequence[bool]] | None:
        return (gemm, which) if any(which := chosen(node)) and (gemm := batched_gemm_of(node)) is not None else None

    of_kind = ByKind(to_transpose)  # layers of a network have the same products
    found = {n: how for n in function.nodes if n.op is dot_general and (how := of_kind(n)) is not None}
    if not found:
        return function
    b = Builder(intern=True)

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node not in found:
            return with_inputs(node, inputs)
        gemm, which = found[node]
        operands, batches, terms = list(inputs), list(node.attrs[:2]), list(node.attrs[2:])
        for k, (order, _) in enumerate((gemm.left, gemm.right)):
            if which[k]:
                first = len(batches[k])
                if min(gemm.rows, gemm.columns) == 1:  # either way: rather as it lies, which other products may read, too
                    order = _nearest(order, first, terms[k])
                operands[k] = b(transpose, inputs[k], permutation=order)
                batches[k], terms[k] = tuple(range(first)), tuple(map(order.index, terms[k]))
        return Node(node.op, tuple(operands), (*batches, *terms), node.type, node.origin)

    return rebuilt(function, step)


def _nearest(order: Sequence[int], first: int, terms: Sequence[int]) -> tuple[int, ...]:
    """The order of matrices' axes, behind the first ones, or that of their transposes, whichever has the last axis at its end."""
    last = max(order[first:])
    return (*order[:first], *sorted(order[first:], key=lambda axis: (axis in terms) == (last in terms)))


def _is_transposable(function: Function, node: Node) -> bool:
    product = node.inputs[0]
    return product.op is dot_general and len(function.users[product]) == 1 and product not in function.results
