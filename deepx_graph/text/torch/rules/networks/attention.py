"""Attention: softmax(Q K + mask) V, in the forms that torch has of it."""

from __future__ import annotations

import math
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.nn import back, softmax
from deepx_graph.text.common.products import product
from deepx_graph.text.torch.context import CallContext, Rules
from deepx_graph.text.torch.rules.linear import linear
from deepx_graph.text.torch.rules.networks.activation import dropped
from deepx_graph.text.torch.rules.networks.norm import affine, normal
from deepx_graph.types import BOOL, F32, I64, as_tensor


def attended(c: CallContext, q: Node, k: Node, v: Node, bias: Node | None, scale: float, p: float = 0.0) -> tuple[Node, Node]:
    """The values weighted, and the weights before dropout. Rows of which nothing may be attended to are zero."""
    rank = len(c.dims_of(k))
    turned = c.transposed(k, [*range(rank - 2), rank - 1, rank - 2])
    scores = product(c, c(ops.multiply, q, c.like(scale, q)), turned)
    if bias is not None:
        scores = c.each(ops.add, scores, bias)
    wide = c.to(scores, F32) if c.dtype_of(scores).bits < 32 else scores
    axes = (len(c.dims_of(scores)) - 1,)
    weights = softmax(c, wide, axes)
    if bias is not None:
        most = ops.reduction(c.b, ops.maximum, wide, axes)
        closed = c(ops.compare, most, c.like(-math.inf, most), direction="EQ")
        weights = c(ops.select, back(c, closed, weights, axes), c.full(0, as_tensor(weights.type)), weights)
    weights = c.to(weights, c.dtype_of(q))
    return product(c, dropped(c, weights, p)[0] if p > 0 else weights, v), weights


def mask_bias(c: CallContext, mask: Node, like: Node) -> Node:
    """A mask as what is added to scores: of bools, -inf where they are false."""
    if c.dtype_of(mask) is not BOOL:
        return c.to(mask, c.dtype_of(like))
    type = as_tensor(mask.type).with_dtype(c.dtype_of(like))
    return c(ops.select, mask, c.full(0, type), c.full(-math.inf, type))


def causal_bias(c: CallContext, q: Node, k: Node) -> Node:
    """-inf where a key is later than the query."""
    dims = (c.dims_of(q)[-2], c.dims_of(k)[-2])
    off = c(ops.subtract, c.indices(I64, dims, 1), c.indices(I64, dims, 0))
    return mask_bias(c, c(ops.compare, off, c.like(0, off), direction="LE"), q)


def _scaled_dot_product(c: CallContext) -> Node:
    q, k, v = (c.node(j) for j in range(3))
    if c.flag("enable_gqa"):
        times = c.shape_of(q)[-3] // max(1, c.shape_of(k)[-3])
        k, v = (repeated_heads(c, x, times) for x in (k, v))
    size = c.static((c.dims_of(q)[-1],))[0]
    bias = mask_bias(c, c.node("attn_mask"), q) if c.has("attn_mask") else None
    if c.flag("is_causal"):
        bias = causal_bias(c, q, k)
    return attended(c, q, k, v, bias, c.real("scale", 1 / math.sqrt(max(size, 1))), c.real("dropout_p", 0.0))[0]


def repeated_heads(c: CallContext, x: Node, times: int) -> Node:
    """Each head several times, one after the other."""
    *batch, heads, time, size = c.shape_of(x)
    wide = (*batch, heads, times, time, size)
    axes = [k for k in range(len(wide)) if k != len(batch) + 1]
    return x if times == 1 else c.shaped(c.along(x, wide, axes), (*batch, heads * times, time, size))


def _flash(c: CallContext) -> list[Node]:
    """_scaled_dot_product_flash_attention_for_cpu: the result, and the logarithm of the sum of exponentials."""
    q, k, v = (c.node(j) for j in range(3))
    bias = mask_bias(c, c.node("attn_mask"), q) if c.has("attn_mask") else causal_bias(c, q, k) if c.flag("is_causal") else None
    scale = c.real("scale", 1 / math.sqrt(max(c.shape_of(q)[-1], 1)))
    made, _ = attended(c, q, k, v, bias, scale)
    rank = len(c.dims_of(k))
    scores = product(c, c(ops.multiply, q, c.like(scale, q)), c.transposed(k, [*range(rank - 2), rank - 1, rank - 2]))
    scores = scores if bias is None else c.each(ops.add, scores, bias)
    axes = (rank - 1,)
    most = ops.reduction(c.b, ops.maximum, scores, axes)
    total = ops.reduction(c.b, ops.add, c(ops.exponential, c(ops.subtract, scores, back(c, most, scores, axes))), axes)
    return [made, c(ops.add, c(ops.log, total), most)]


# --- layers that torch runs as one -----------------------------------------------------------------------------------


def _heads(c: CallContext, x: Node, count: int) -> Node:
    batch, time, hidden = c.shape_of(x)
    if count < 1 or hidden % count:
        raise InferError(f"{hidden} features do not make {count} heads")
    return c.transposed(c.shaped(x, (batch, time, count, hidden // count)), (0, 2, 1, 3))


def _self_attention(c: CallContext, x: Node, count: int, weights: list[Node], mask: Node | None) -> Node:
    """Queries, keys and values of the same sequence by one product, attention, and a product with the output weights."""
    batch, time, hidden = c.shape_of(x)
    whole = linear(c, x, weights[0], weights[1])
    parts = [c.sliced(whole, (0, 0, k * hidden), (batch, time, (k + 1) * hidden)) for k in range(3)]
    q, k, v = (_heads(c, p, count) for p in parts)
    made, _ = attended(c, q, k, v, None if mask is None else mask, 1 / math.sqrt(hidden // count))
    merged = c.shaped(c.transposed(made, (0, 2, 1, 3)), (batch, time, hidden))
    return linear(c, merged, weights[2], weights[3])


def _encoder_layer(c: CallContext) -> Node:
    """_transformer_encoder_layer_fwd: attention and two products, with normalisation before or after them."""
    x, count = c.node("src"), c.number("num_heads")
    epsilon, first = c.real("eps", 1e-5), c.flag("norm_first")

    def normed(v: Node, k: int) -> Node:
        axis = (len(c.dims_of(v)) - 1,)
        return affine(c, normal(c, v, axis, epsilon)[0], c.node(f"norm_weight_{k}"), c.node(f"norm_bias_{k}"), axis)

    def attention(v: Node) -> Node:
        weights = [c.node(n) for n in ("qkv_weight", "qkv_bias", "proj_weight", "proj_bias")]
        mask = None
        if c.has("mask"):
            given = c.node("mask")
            if c.dtype_of(given) is BOOL:  # true where nothing may be attended to
                given = c(ops.not_, given)
            mask = mask_bias(c, given, v)
            if c.get("mask_type") == 1:
                mask = c.shaped(mask, (c.shape_of(given)[0], 1, 1, c.shape_of(given)[1]))
        return _self_attention(c, v, count, weights, mask)

    def feed(v: Node) -> Node:
        from deepx_graph.text.common.activations import gelu_of

        hidden = linear(c, v, c.node("ffn_weight_1"), c.node("ffn_bias_1"))
        hidden = gelu_of(c, hidden, False) if c.flag("use_gelu") else c(ops.maximum, hidden, c.like(0, hidden))
        return linear(c, hidden, c.node("ffn_weight_2"), c.node("ffn_bias_2"))

    if first:
        x = c(ops.add, x, attention(normed(x, 1)))
        return c(ops.add, x, feed(normed(x, 2)))
    x = normed(c(ops.add, x, attention(x)), 1)
    return normed(c(ops.add, x, feed(x)), 2)


def _native_attention(c: CallContext) -> list[Any]:
    """_native_multi_head_attention of one sequence with itself."""
    if len({id(c.node(k)) for k in ("query", "key", "value")}) > 1 or c.flag("need_weights"):
        raise InferError("attention between several sequences, or with its weights", expected="one sequence",
                         hint="export with torch.backends.mha.set_fastpath_enabled(False)")
    weights = [c.node(n) for n in ("qkv_weight", "qkv_bias", "proj_weight", "proj_bias")]
    if c.has("mask"):
        raise InferError("a mask", hint="export with torch.backends.mha.set_fastpath_enabled(False)")
    return [_self_attention(c, c.node("query"), c.number("num_head"), weights, None), None]


ATTENTION: Rules = {
    "scaled_dot_product_attention": _scaled_dot_product, "_scaled_dot_product_flash_attention_for_cpu": _flash,
    "_transformer_encoder_layer_fwd": _encoder_layer, "_native_multi_head_attention": _native_attention,
}  # fmt: skip
