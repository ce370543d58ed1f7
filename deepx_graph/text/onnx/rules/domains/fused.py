"""Operators of `com.microsoft`, which onnxruntime and its tools make of others.

Semantics: onnxruntime/docs/ContribOperators.md of onnxruntime 1.32.
"""

from __future__ import annotations

from typing import Any

from deepx_graph import ops
from deepx_graph.ir import Node, Op
from deepx_graph.text.common.activations import gelu_of
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.common.products import product, scaled
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.onnx.context import NodeContext, Rule, Rules
from deepx_graph.text.onnx.rules.attention import rotary
from deepx_graph.text.onnx.rules.norm import affine, layer_norm, normal, working
from deepx_graph.text.onnx.rules.quantize import rounded
from deepx_graph.types import F32, I64, U8


def _gelu(approximate: bool) -> Rule:
    """The activation of the operand plus a bias, where there is one."""

    def build(c: NodeContext) -> Node:
        x = c.each(ops.add, c.node(), c.node(1)) if c.has(1) else c.node()
        return gelu_of(c, x, approximate)

    return build


def _quick_gelu(c: NodeContext) -> Node:
    x = c.node()
    return c(ops.multiply, x, c(ops.logistic, c(ops.multiply, x, c.like(c.real("alpha", 1.702), x))))


def _matmul(c: NodeContext) -> Node:
    """A product of which the last two axes of an operand may be turned."""
    if c.flag("transBatchA") or c.flag("transBatchB"):
        raise Unsupported("batches that are turned")
    sides = []
    for k, name in enumerate(("transA", "transB")):
        rank = c.rank(k)
        turned = c.flag(name) and rank > 1
        sides.append(c.transposed(c.node(k), (*range(rank - 2), rank - 1, rank - 2)) if turned else c.node(k))
    return scaled(c, product(c, *sides), c.real("alpha", 1.0))


def _skip_norm(centred: bool) -> Rule:
    """The norm of a sum along the last axis; the sum is the fourth result."""

    def build(c: NodeContext) -> list[Any]:
        bias = 4 if centred else 3
        x = c.each(ops.add, c.node(), c.node(1))
        x = c.each(ops.add, x, c.node(bias)) if c.has(bias) else x
        rank = c.rank()
        found, middle, scale = normal(c, c.cast(x, working(c)), (rank - 1,), c.real("epsilon", 1e-12), centred)
        offset = c.node(3) if centred and c.has(3) else None
        made = c.cast(affine(c, found, c.node(2), offset, rank - 1), c.dtype())
        return [made, *(c.add_axes(v, (rank - 1,)) for v in (middle, scale)), x]

    return build


def _simplified_norm(c: NodeContext) -> Node:
    made: Node = layer_norm(c, centred=False)
    return made


def _rotary(c: NodeContext) -> Node:
    """Positions stand before the angles; one position is that of the first element."""
    if c.flag("is_packed_batching") or c.real("scale", 1.0) != 1:
        raise Unsupported("rotary embeddings that are packed or scaled")
    x, places, cosines, sines = (c.node(k) for k in range(4))
    flat = c.rank() == 3
    batch, time = c.shape()[0], c.shape()[1 if flat else 2]
    if c.rank(1) == 1:
        steps = c.indices(I64, (batch, time), 1)
        places = c(ops.add, c.broadcast_to(c.cast(places, I64), (batch, time)), steps)
    if flat and not c.number("num_heads", 0):
        c.attrs["num_heads"] = c.shape()[2] // (2 * c.shape(2)[1])
    c.inputs = [x, cosines, sines, places]
    return rotary(c)


def _matmul_nbits(c: NodeContext) -> Node:
    """A product with weights of 4 bits, two in a byte, or 8, in blocks with a scale and a zero point each."""
    depth, width, bits, block = c.number("K"), c.number("N"), c.number("bits", 4), c.number("block_size")
    if bits not in (4, 8) or block < 1 or c.has(4):
        raise Unsupported(f"weights of {bits} bits, or in an order of their own")
    blocks = -(-depth // block)
    packed, scales = c.shaped(c.node(1), (width, blocks, block * bits // 8)), c.shaped(c.node(2), (width, blocks))
    whole = _halves(c, packed) if bits == 4 else packed
    dtype = c.dtype(2)
    if not c.has(3):
        zero = c.full(1 << (bits - 1), c.type_of(scales))
    elif c.dtype(3) is U8:
        points = c.shaped(c.node(3), (width, -(-blocks * bits // 8)))
        zero = c.cast(part_of(c, _halves(c, points) if bits == 4 else points, 1, 0, blocks), dtype)
    else:
        zero = c.shaped(c.node(3), (width, blocks))
    shape = (width, blocks, block)
    off = c(ops.subtract, c.cast(whole, dtype), c.along(zero, shape, (0, 1)))
    weights = c.shaped(c(ops.multiply, off, c.along(scales, shape, (0, 1))), (width, blocks * block))
    made = product(c, c.node(), c.transposed(c.cast(part_of(c, weights, 1, 0, depth), c.dtype()), (1, 0)))
    return c.each(ops.add, made, c.node(5)) if c.has(5) else made


def _halves(c: NodeContext, x: Node) -> Node:
    """Bytes along the last axis as their low and high four bits."""
    dims = c.shape_of(x)
    low, high = c(ops.and_, x, c.like(15, x)), c(ops.shift_right_logical, x, c.like(4, x))
    both = c(ops.concatenate, *(c.add_axes(h, (len(dims),)) for h in (low, high)), dimension=len(dims))
    return c.shaped(both, (*dims[:-1], 2 * dims[-1]))


def _real(c: NodeContext, k: int) -> Node:
    """Operand k, quantised, with its scale and zero point behind it."""
    x = c.cast(c.node(k), F32)
    if c.has(k + 2):
        x = c(ops.subtract, x, c.shaped(c.cast(c.node(k + 2), F32), ()))
    return c(ops.multiply, x, c.shaped(c.node(k + 1), ()))


def _quantised(c: NodeContext, x: Node, k: int) -> Node:
    """Quantised by the scale that is operand k, and the zero point behind it."""
    zero = c.shaped(c.node(k + 1), ()) if c.has(k + 1) else None
    return rounded(c, c(ops.divide, x, c.shaped(c.node(k), ())), zero, c.dtype())


def _qlinear(op: Op) -> Rule:
    return lambda c: _quantised(c, c.each(op, _real(c, 0), _real(c, 3)), 6)


def _qlinear_sigmoid(c: NodeContext) -> Node:
    return _quantised(c, c(ops.logistic, _real(c, 0)), 3)


FUSED: Rules = {
    "Gelu": _gelu(False), "BiasGelu": _gelu(False), "FastGelu": _gelu(True), "QuickGelu": _quick_gelu, "FusedMatMul": _matmul,
    "TransposeMatMul": _matmul, "SkipLayerNormalization": _skip_norm(True), "SkipSimplifiedLayerNormalization": _skip_norm(False),
    "RotaryEmbedding": _rotary, "MatMulNBits": _matmul_nbits, "QLinearAdd": _qlinear(ops.add), "QLinearMul": _qlinear(ops.multiply),
    "QLinearSigmoid": _qlinear_sigmoid,
}  # fmt: skip

UNLISTED: Rules = {"SimplifiedLayerNormalization": _simplified_norm}
"""What onnxruntime has in the domain of the standard."""
