"""The target of legalisation in which what is the same up to rounding is written alike, for comparing programs.

Every elementwise operation is its kernel expression in primitives (`rsqrt` is one over a root), products contract the last axes
with the first ones, broadcasts add axes and repeat none of size 1, sums start from the identity, and of two reshapes one is left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from deepx_graph.ir import Builder, Node, Op
from deepx_graph.ir.peephole import splat_of
from deepx_graph.ops import add, broadcast_in_dim, compare, dot_general, reduce, reshape, transpose
from deepx_graph.ops.contract.reduce import reducer_of
from deepx_graph.ops.decompositions import from_kernel
from deepx_graph.rewrite.legalise import ConversionTarget, Rule
from deepx_graph.types import as_tensor


def _product(b: Builder, node: Node) -> Node | None:
    """A product whose first operand has the axes batching, kept, contracted, and whose second batching, contracted, kept."""
    x, y = node.inputs
    ranks = [as_tensor(i.type).rank for i in (x, y)]
    if None in ranks:
        return None
    batch_x, batch_y, sum_x, sum_y = (node.attr(f"{side}_{kind}_dimensions") for kind in ("batching", "contracting")
                                      for side in ("lhs", "rhs"))  # fmt: skip
    kept_x, kept_y = ([k for k in range(rank or 0) if k not in (*batch, *summed)]
                      for rank, batch, summed in zip(ranks, (batch_x, batch_y), (sum_x, sum_y), strict=True))  # fmt: skip
    by_x, by_y = (*batch_x, *kept_x, *sum_x), (*batch_y, *sum_y, *kept_y)
    if by_x == tuple(range(len(by_x))) and by_y == tuple(range(len(by_y))):
        return None
    n, m, k = len(batch_x), len(kept_x), len(sum_x)
    batch = tuple(range(n))
    return b(dot_general, _transposed(b, x, by_x), _transposed(b, y, by_y), lhs_batching_dimensions=batch,
             rhs_batching_dimensions=batch, lhs_contracting_dimensions=tuple(range(n + m, n + m + k)),
             rhs_contracting_dimensions=tuple(range(n, n + k)))  # fmt: skip


def _transposed(b: Builder, x: Node, permutation: tuple[int, ...]) -> Node:
    return x if permutation == tuple(range(len(permutation))) else b(transpose, x, permutation=permutation)


def _sum_from_zero(b: Builder, node: Node) -> Node | None:
    """A sum of floats starts from -0, which is the identity of addition; from 0 it is the same number."""
    start = node.inputs[-1]
    value = splat_of(start)
    if reducer_of(node) is not add or len(node.inputs) != 2 or not as_tensor(start.type).dtype.is_float:
        return None
    if value is None or float(value) != 0 or math.copysign(1, float(value)) < 0:
        return None
    return b(reduce, node.inputs[0], b.like(-0.0, start), **node.named_attrs)


def _broadcast(b: Builder, node: Node) -> Node | None:
    """A broadcast of axes that are there, none of them of size 1."""
    (x,) = node.inputs
    dims, axes = as_tensor(x.type).dims or (), node.attr("broadcast_dimensions")
    kept = [k for k, d in enumerate(dims) if d != 1]
    if len(kept) == len(dims):
        return None
    return b(broadcast_in_dim, b(reshape, x, shape=tuple(dims[k] for k in kept)), shape=node.attr("shape"),
             broadcast_dimensions=tuple(axes[k] for k in kept))  # fmt: skip


def _reshaped(b: Builder, node: Node) -> Node | None:
    """One reshape for two."""
    (x,) = node.inputs
    return b(reshape, x.inputs[0], shape=node.attr("shape")) if x.op is reshape else x if x.type == node.type else None


def _comparison(b: Builder, node: Node) -> Node | None:
    """A comparison without the type that its operands have anyway."""
    x, y = node.inputs
    kind = node.attr("compare_type")
    return None if kind in ("", "TOTALORDER") else b(compare, x, y, direction=node.attr("direction"))


_RULES: Mapping[Op | None, Rule] = {
    None: from_kernel, broadcast_in_dim: _broadcast, compare: _comparison, dot_general: _product, reduce: _sum_from_zero,
    reshape: _reshaped,
}  # fmt: skip


def _is_primitive(node: Node) -> bool:
    """Whether no rule has anything to say of the node."""
    return all(_RULES[key](Builder(), node) is None for key in (None, node.op) if key in _RULES)


PRIMITIVE = ConversionTarget(_is_primitive, _RULES)
