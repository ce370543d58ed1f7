"""Products in batches that lie along memory, and are no products of matrices, as multiplications and a sum.

    einsum("nb,nb->b"), einsum("nb,njb->jb")

Neither results nor terms are neighbours in an operand of such a product, and each element of the larger one is read once: registers
would hold single elements of it. Multiplied, neighbours of the batch are in the lanes, and the sum is part of that sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph.analysis.batched_gemm import batched_gemm_of
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.ir.structure import PARAM
from deepx_graph.ops import add, broadcast_in_dim, multiply, reduce, reshape, transpose
from deepx_graph.ops.contract.linear import dot_general, free_axes
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.data.fusion import fusion
from deepx_graph.types import TensorType, as_tensor

LEFT, RIGHT = range(2)


def as_sums(function: Function, pays: Callable[[Node], bool]) -> Function:
    """The function with those of such products for which it pays as sums; itself where there are none."""
    found = {n for n in function.nodes if n.op is dot_general and _is_along_batch(n) and pays(n)}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node not in found:
            return with_inputs(node, inputs)
        params = tuple(Node(PARAM, (), (k, i.type), i.type, i.origin) for k, i in enumerate(inputs))
        body = Function("fusion", params, (_sum(Builder(origin=node.origin), with_inputs(node, params)),), public=False)
        return Node(fusion, inputs, (body,), node.type, node.origin)

    return rebuilt(function, step) if found else function


def _is_along_batch(node: Node) -> bool:
    """Whether neighbours in both operands are of the same batch axis, and one of them has no rows of its own."""
    gemm = batched_gemm_of(node)
    if gemm is None or min(gemm.rows, gemm.columns) > 1:
        return False
    last = [max((k for k, n in enumerate(as_tensor(i.type).shape) if n != 1), default=-1) for i in node.inputs]
    return tuple(last) in zip(*node.attrs[:2], strict=True)


def _sum(b: Builder, node: Node) -> Node:
    """The sum over terms of what the larger operand has, in its order, times the other operand's elements."""
    batches, terms, shapes = node.attrs[:2], node.attrs[2:], [as_tensor(i.type).shape for i in node.inputs]
    free = [free_axes(len(shape), *taken) for shape, *taken in zip(shapes, batches, terms, strict=True)]
    large = RIGHT if all(shapes[LEFT][k] == 1 for k in free[LEFT]) else LEFT
    small = LEFT + RIGHT - large
    at = dict(zip((*batches[small], *terms[small]), (*batches[large], *terms[large]), strict=True))
    order = sorted(at, key=at.__getitem__)
    factor = _ordered(b, node.inputs[small], (*free[small], *order), [shapes[small][k] for k in order])
    factor = b(broadcast_in_dim, factor, shape=shapes[large], broadcast_dimensions=tuple(at[k] for k in order))
    type = as_tensor(node.type)
    total = b(reduce, b(multiply, node.inputs[large], factor), b.splat(0, TensorType(type.dtype, ())),
              dimensions=tuple(sorted(terms[large])), body=monoid_body(add, type.dtype))
    left = free_axes(len(shapes[large]), terms[large])
    return _ordered(b, total, [left.index(k) for k in (*batches[large], *free[large])], type.shape)


def _ordered(b: Builder, x: Node, order: Sequence[int], shape: Sequence[int]) -> Node:
    """An operand with its axes in that order, and that shape then."""
    turned = b(transpose, x, permutation=tuple(order)) if list(order) != sorted(order) else x
    return b(reshape, turned, shape=tuple(shape)) if as_tensor(turned.type).shape != tuple(shape) else turned
