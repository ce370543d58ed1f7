"""Products in batches that lie along memory as multiplications and a sum.

    einsum("nb,nb->b"), einsum("nb,njb->jb"), einsum("ikb,kjb->ijb")

Neither results nor terms are neighbours in an operand of such a product: as matrices, both operands would be transposed, and the
result. Multiplied, neighbours of the batch are in the lanes, and the sum is part of that sweep. That pays where one operand has few
rows, so that elements of the other are not read often.
"""

from __future__ import annotations

import math
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

MOST_ROWS = 32
"""Of operands with more rows each, transposed, products of matrices are faster."""


def as_sums(function: Function, pays: Callable[[Node], bool]) -> Function:
    """The function with those of such products for which it pays as sums; itself where there are none."""
    found = {n for n in function.nodes if n.op is dot_general and _is_along_batch(function, n) and pays(n)}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        b = Builder(origin=node.origin)
        if node.op is transpose and node.inputs[0] in found and inputs[0].op is transpose:
            order = [inputs[0].attr("permutation")[k] for k in node.attr("permutation")]
            return _ordered(b, inputs[0].inputs[0], order, as_tensor(node.type).shape)
        if node not in found:
            return with_inputs(node, inputs)
        params = tuple(Node(PARAM, (), (k, i.type), i.type, i.origin) for k, i in enumerate(inputs))
        total, order = _sum(b, with_inputs(node, params))
        body = Function("fusion", params, (total,), public=False)
        return _ordered(b, Node(fusion, inputs, (body,), total.type, node.origin), order, as_tensor(node.type).shape)

    return rebuilt(function, step) if found else function


def _is_along_batch(function: Function, node: Node) -> bool:
    """Whether neighbours in both operands are of the same batch axis, and in the result, too, unless one operand has no rows."""
    gemm = batched_gemm_of(node)
    if gemm is None or min(gemm.rows, gemm.columns) > MOST_ROWS:
        return False
    last = tuple(max((k for k, n in enumerate(as_tensor(i.type).shape) if n != 1), default=-1) for i in node.inputs)
    batch = list(zip(*node.attrs[:2], strict=True))
    if last not in batch or min(gemm.rows, gemm.columns) == 1:
        return last in batch
    users = function.users[node]
    return node not in function.results and all(u.op is transpose and u.attr("permutation")[-1] == batch.index(last) for u in users)


def _sum(b: Builder, node: Node) -> tuple[Node, list[int]]:
    """The sum over terms of what the larger operand has, in its order, times the other operand's elements, for each row of these;
    and the order of its axes that gives the product's."""
    batches, terms, shapes = node.attrs[:2], node.attrs[2:], [as_tensor(i.type).shape for i in node.inputs]
    free = [free_axes(len(shape), *taken) for shape, *taken in zip(shapes, batches, terms, strict=True)]
    large = max((LEFT, RIGHT), key=lambda side: math.prod(shapes[side][k] for k in free[side]))
    small = LEFT + RIGHT - large
    rows = [shapes[small][k] for k in free[small]]
    at = dict(zip((*batches[small], *terms[small]), (*batches[large], *terms[large]), strict=True))
    order, shape = sorted(at, key=at.__getitem__), (*rows, *shapes[large])
    factor = _ordered(b, node.inputs[small], (*free[small], *order), (*rows, *(shapes[small][k] for k in order)))
    factor = b(broadcast_in_dim, factor, shape=shape,
               broadcast_dimensions=(*range(len(rows)), *(len(rows) + at[k] for k in order)))
    other = b(broadcast_in_dim, node.inputs[large], shape=shape, broadcast_dimensions=tuple(range(len(rows), len(shape))))
    type = as_tensor(node.type)
    total = b(reduce, b(multiply, other, factor), b.splat(0, TensorType(type.dtype, ())),
              dimensions=tuple(len(rows) + k for k in sorted(terms[large])), body=monoid_body(add, type.dtype))
    left = free_axes(len(shapes[large]), terms[large])
    sides = {small: range(len(rows)), large: [len(rows) + left.index(k) for k in free[large]]}
    return total, [*(len(rows) + left.index(k) for k in batches[large]), *sides[LEFT], *sides[RIGHT]]


def _ordered(b: Builder, x: Node, order: Sequence[int], shape: Sequence[int]) -> Node:
    """An operand with its axes in that order, and that shape then."""
    turned = b(transpose, x, permutation=tuple(order)) if list(order) != sorted(order) else x
    return b(reshape, turned, shape=tuple(shape)) if as_tensor(turned.type).shape != tuple(shape) else turned
