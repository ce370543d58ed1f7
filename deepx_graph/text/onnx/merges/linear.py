"""Into convolutions and products: normalisation, sums, numbers for each channel and padding beside them."""

from __future__ import annotations

import numpy as np

from deepx_graph.ir import Node
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.literal import Array
from deepx_graph.text.onnx.merges.operator import KeptOperator, Uses, literal
from deepx_graph.text.onnx.schema import AttributeProto
from deepx_graph.types import as_tensor, is_static

FEW = 8
"""Numbers that take no more room than an operation."""


def _scaled(u: Uses, conv: KeptOperator, scale: Array, offset: Array, outer: KeptOperator, named: Node | None) -> Node | None:
    """`conv * scale + offset` for each channel, as a convolution."""
    weights = conv.constant(1)
    biased = len(conv.operands) > 2 and conv.operands[2] is not None
    bias = conv.constant(2) if biased else np.zeros((), scale.dtype)
    if weights is None or bias is None or weights.dtype != scale.dtype or u.counts.get(conv.operands[1], 2) > 1:  # type: ignore[arg-type]
        return None
    if scale.shape != (weights.shape[0],):
        return None
    made = (weights * scale.reshape(-1, *(1,) * (weights.ndim - 1))).astype(weights.dtype)
    given = (bias * scale + offset).astype(weights.dtype)
    added = [literal(given, named)] if biased or offset.any() else []
    merged = conv.again([conv.operands[0], literal(made, conv.operands[1]), *added])
    return Node(merged.op, merged.inputs, merged.attrs, outer.node.type, outer.node.origin)


def batch_norm(u: Uses, norm: KeptOperator) -> Node | None:
    """BatchNormalization(Conv(x, w)) = Conv(x, w')"""
    conv = u.single(norm.operands[0], "Conv")
    given = [norm.constant(k) for k in range(1, 5)]
    if conv is None or any(g is None for g in given) or norm.number("training_mode") or len(norm.lowering.node.outputs) > 1:
        return None
    if norm.lowering.opsets.get("", 1) < 9:
        return None
    scale, offset, mean, variance = (g.astype(np.float64) for g in given if g is not None)
    epsilon = norm.attributes["epsilon"].f if "epsilon" in norm.attributes else 1e-5
    factor = scale / np.sqrt(variance + epsilon)
    dtype = given[0].dtype  # type: ignore[union-attr]
    return _scaled(u, conv, factor.astype(dtype), (offset - mean * factor).astype(dtype), norm, norm.operands[2])


def _per_channel(array: Array | None, rank: int, channels: int) -> Array | None:
    """A constant that has one number for each channel, of batch, channels, space."""
    if array is None or array.size not in (1, channels) or array.ndim > rank:
        return None
    shape = (1,) * (rank - array.ndim) + array.shape
    if any(d != 1 for k, d in enumerate(shape) if k != 1):
        return None
    return np.broadcast_to(array.reshape(-1), (channels,))


def into_conv(u: Uses, outer: KeptOperator) -> Node | None:
    """Conv(x, w) + c = Conv(x, w, c), and so for the other operations with a number for each channel."""
    for k in (0, 1):
        conv = u.single(outer.operands[k], "Conv")
        if conv is None or (k == 1 and outer.name in ("Sub", "Div")) or conv.node.type != outer.node.type:
            continue
        weights = conv.constant(1)
        if weights is None:
            continue
        number = _per_channel(outer.constant(1 - k), weights.ndim, weights.shape[0])
        if number is None or number.dtype != weights.dtype:
            continue
        if outer.name in ("Add", "Sub") and not any(number.strides) and len(conv.operands) < 3 and number.size > FEW:
            continue  # a number for each channel would take more room than the operation
        one, zero = np.ones_like(number), np.zeros_like(number)
        if outer.name in ("Add", "Sub"):
            scale, offset = one, number if outer.name == "Add" else -number
        else:
            with np.errstate(divide="ignore"):
                scale, offset = number if outer.name == "Mul" else one / number, zero
        if np.isfinite(scale).all():
            return _scaled(u, conv, scale, offset, outer, outer.operands[1 - k])
    return None


def _gemm(u: Uses, outer: KeptOperator) -> Node | None:
    """MatMul(x, w) + c = Gemm(x, w, c) for matrices; the product may be of transposed ones."""
    for k in (0, 1):
        product, bias = u.single(outer.operands[k], "MatMul"), outer.operands[1 - k]
        if product is None or bias is None or outer.lowering.opsets.get("", 1) < 13:
            continue
        ranks = [as_tensor(x.type).rank for x in product.operands if x is not None]
        type, added = as_tensor(outer.node.type), as_tensor(bias.type).dims
        if ranks != [2, 2] or type != product.node.type or not type.dtype.is_float or type.dims is None or added is None:
            continue
        wide = (1,) * (2 - len(added)) + added
        if all(d in (1, n) for d, n in zip(wide, type.dims, strict=True)):
            merged = product.again([*product.operands, bias], {}, "Gemm")
            return Node(merged.op, merged.inputs, merged.attrs, outer.node.type, outer.node.origin)
    return None


def transposed_factor(u: Uses, product: KeptOperator) -> Node | None:
    """Gemm(x, Transpose(w), c) = Gemm(x, w, c, transB=1)."""
    for k, name in ((0, "transA"), (1, "transB")):
        turned = u.single(product.operands[k], "Transpose")
        if turned is not None and turned.operands[0] is not None and turned.ints("perm", [1, 0]) == [1, 0]:
            operands = [*product.operands]
            operands[k] = turned.operands[0]
            flag = AttributeProto(name, 2, i=1 - product.number(name))
            return product.again(operands, {**{n: a for n, a in product.attributes.items() if n != name}, name: flag})
    return None


def of_zeros(_u: Uses, product: KeptOperator) -> Node | None:
    """Gemm(0, w, c) = Expand(c), as is the first step of a recurrence from a state of zeros."""
    x, w, shape = product.constant(0), product.constant(1), as_tensor(product.node.type).dims
    c = product.operands[2] if len(product.operands) > 2 else None
    beta = product.attributes.get("beta")
    if x is None or w is None or c is None or shape is None or x.any() or not np.isfinite(w).all() or (
            beta is not None and beta.f != 1) or not is_static(product.node.type):
        return None
    return product.again([c, literal(np.asarray(shape, np.int64))], {}, "Expand")


def added(u: Uses, outer: KeptOperator) -> Node | None:
    return into_conv(u, outer) or (_gemm(u, outer) if outer.name == "Add" else None)


def padded(u: Uses, conv: KeptOperator) -> Node | None:
    """Conv(Pad(x)) = Conv(x), padding by zeros in space."""
    pad = u.single(conv.operands[0], "Pad")
    if pad is None or pad.lowering.opsets.get("", 1) < 11 or len(pad.operands) > 3 or (
            "mode" in pad.attributes and bytes(pad.attributes["mode"].s) != b"constant"):
        return None
    amounts, auto = pad.operands[1], conv.attributes.get("auto_pad")
    if amounts is None or amounts.op is not CONSTANT or (auto is not None and bytes(auto.s) not in (b"NOTSET", b"VALID")):
        return None
    if len(pad.operands) > 2 and pad.operands[2] is not None and (pad.constant(2) is None or np.any(pad.constant(2))):
        return None
    added = value_of(amounts).array.tolist()
    n = len(added) // 2 - 2
    if n < 1 or min(added) < 0 or any(added[:2]) or any(added[n + 2 : n + 4]):
        return None
    old = conv.ints("pads", [0] * 2 * n) if auto is None or bytes(auto.s) == b"NOTSET" else [0] * 2 * n
    pads = [a + b for a, b in zip(old, [*added[2 : n + 2], *added[n + 4 :]], strict=True)]
    attributes = {k: a for k, a in conv.attributes.items() if k not in ("pads", "auto_pad")}
    return conv.again([pad.operands[0], *conv.operands[1:]], {**attributes, "pads": AttributeProto("pads", 7, ints=pads)})
