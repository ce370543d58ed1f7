"""Forward mode for one node, by transposing its `vjp`: what a rule does to a cotangent is linear, and so has a transpose.

An op declares one rule, `vjp`, and both modes follow from it. The rule is applied to a placeholder cotangent; the result, a linear
graph in the placeholder, is pulled back with the operands' tangents as its cotangents. The placeholder itself drops out.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepx_graph.ir import Builder, Node
from deepx_graph.ops.vjp.accumulate import Cotangent, carries, check_gradient, pullback
from deepx_graph.types import TupleType

Tangent = Cotangent
"""None (zero), a Node of the value's type, or for a tuple-typed value a tuple of these."""


def pushforward(b: Builder, node: Node, tangents: Sequence[Node | None]) -> Tangent:
    """The tangent of a node's value when those of its operands are given.

    The tangent of a rank-0 operand that stands for all elements is rank-0 too. Raises InferError for an op without a gradient.
    """
    if not carries(node.type) or all(t is None for t in tangents):
        return None
    check_gradient(node, {i for i, t in zip(node.inputs, tangents, strict=True) if t is not None})
    assert node.op.vjp is not None
    items = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    slots = [b.param(k, t) if carries(t) else None for k, t in enumerate(items)]
    cotangents = node.op.vjp(b, node, tuple(slots) if isinstance(node.type, TupleType) else slots[0])
    pairs = [(c, t) for c, t in zip(cotangents, tangents, strict=True) if c is not None and t is not None]
    wanted = [s for s in slots if s is not None]
    found = dict(zip(wanted, pullback(b, [c for c, _ in pairs], [t for _, t in pairs], wanted), strict=True))
    result = tuple(None if s is None else found[s] for s in slots)
    return result if isinstance(node.type, TupleType) else result[0]
