"""Attention in its forms, rotary embeddings, recurrences of linear attention, and causal convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.common.nn import back, softmax
from deepx_graph.text.common.products import product
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.text.onnx.rules.window import convolved
from deepx_graph.text.onnx.values import dtype_numbered
from deepx_graph.types import BOOL, F32, I64, DType


def heads(c: NodeContext, x: Node, count: int) -> Node:
    """[batch, time, count * size] as [batch, count, time, size]."""
    batch, time, hidden = c.shape_of(x)
    if count < 1 or hidden % count:
        raise InferError(f"{hidden} features do not make {count} heads")
    return c.transposed(c.shaped(x, (batch, time, count, hidden // count)), (0, 2, 1, 3))


def merged(c: NodeContext, x: Node) -> Node:
    """The inverse of `heads`."""
    batch, count, time, size = c.shape_of(x)
    return c.shaped(c.transposed(x, (0, 2, 1, 3)), (batch, time, count * size))


def repeated(c: NodeContext, x: Node, times: int) -> Node:
    """Each head several times, one after the other."""
    batch, count, time, size = c.shape_of(x)
    wide = (batch, count, times, time, size)
    return x if times == 1 else c.shaped(c.along(x, wide, (0, 1, 3, 4)), (batch, count * times, time, size))


def _attention(c: NodeContext) -> list[Any]:
    """softmax(Q K + bias) V; Q and K are each scaled by the root of the scale."""
    q, k, v = (c.node(j) for j in range(3))
    flat = c.rank() == 3
    if flat:
        q = heads(c, q, c.number("q_num_heads"))
        k, v = (heads(c, x, c.number("kv_num_heads")) for x in (k, v))
    past = c.shape(4)[2] if c.has(4) else None
    if c.has(4):
        k, v = (c(ops.concatenate, c.node(j), x, dimension=2) for j, x in ((4, k), (5, v)))
    present = [k, v]
    dtype, (batch, count, time, size) = c.dtype(), c.shape_of(q)
    length, kv_count = c.shape_of(k)[2], c.shape_of(k)[1]
    if not kv_count or count % kv_count:
        raise InferError(f"{count} heads of queries for {kv_count} of keys")
    k, v = (repeated(c, x, count // kv_count) for x in (k, v))
    root = math.sqrt(c.real("scale", 1 / math.sqrt(size)))
    scores = product(c, c(ops.multiply, q, c.like(root, q)), c.transposed(c(ops.multiply, k, c.like(root, k)), (0, 1, 3, 2)))
    raw = scores
    cap = c.real("softcap", 0.0)
    if cap > 0:
        scores = c(ops.multiply, c(ops.tanh, c(ops.divide, scores, c.like(cap, scores))), c.like(cap, scores))
    capped = scores
    shape = (batch, count, time, length)
    bias = _bias(c, shape, past, dtype)
    if bias is not None:
        scores = c(ops.add, scores, bias)
    precision = dtype_numbered(c.number("softmax_precision")) if c.given("softmax_precision") else dtype
    weights = _guarded_softmax(c, c.cast(scores, precision), bias)
    mode = c.number("qk_matmul_output_mode", 0)
    shown = (raw, capped, scores, weights)[mode] if 0 <= mode < 4 else raw
    made = product(c, c.cast(weights, dtype), v)
    return [merged(c, made) if flat else made, *present, c.cast(shown, dtype)]


def _guarded_softmax(c: NodeContext, scores: Node, bias: Node | None) -> Node:
    """The softmax along the last axis; rows of which nothing may be attended to are zero."""
    axes = (len(c.dims_of(scores)) - 1,)
    found = softmax(c, scores, axes)
    if bias is None:
        return found
    most = ops.reduction(c.b, ops.maximum, bias, axes)
    closed = c(ops.compare, most, c.like(-math.inf, most), direction="EQ")
    return c(ops.select, back(c, closed, found, axes), c.full(0, c.type_of(found)), found)


def _bias(c: NodeContext, shape: Sequence[int], past: int | None, dtype: DType) -> Node | None:
    """What is added to the scores: the mask, and -inf where causality, windows and padding leave nothing to attend to."""
    _, _, time, length = shape
    bias = None
    if c.has(3):
        mask = c.node(3)
        if c.dtype(3) is BOOL:
            mask = c(ops.select, mask, c.full(0, c.type(3).with_dtype(dtype)), c.full(-math.inf, c.type(3).with_dtype(dtype)))
        mask = c.cast(mask, dtype)
        missing = length - c.shape(3)[-1]
        if missing > 0:
            rank = c.rank(3)
            mask = c(ops.pad, mask, c.like(-math.inf, mask), edge_padding_low=(0,) * rank, interior_padding=(0,) * rank,
                     edge_padding_high=tuple(missing if j == rank - 1 else 0 for j in range(rank)))
        bias = c.broadcast_to(mask, tuple(shape))
    lengths = c.cast(c.node(6), I64) if c.has(6) else None
    rows, columns = c.indices(I64, tuple(shape), 2), c.indices(I64, tuple(shape), 3)
    if lengths is not None and past is None:
        offset = c.along(c(ops.subtract, lengths, c.like(time, lengths)), tuple(shape), (0,))
    else:
        offset = c.full(past or 0, c.type_of(rows))
    off = c(ops.subtract, columns, c(ops.add, rows, offset))
    open_: list[Node] = []
    if c.flag("is_causal"):
        open_.append(c(ops.compare, off, c.like(0, off), direction="LE"))
    left, right = c.number("left_window_size", -1), c.number("right_window_size", -1)
    if left >= 0:
        open_.append(c(ops.compare, off, c.like(-left, off), direction="GE"))
    if right >= 0:
        open_.append(c(ops.compare, off, c.like(right, off), direction="LE"))
    if lengths is not None:
        open_.append(c(ops.compare, columns, c.along(lengths, tuple(shape), (0,)), direction="LT"))
    for allowed in open_:
        kept = bias if bias is not None else c.full(0, c.type_of(allowed).with_dtype(dtype))
        bias = c(ops.select, allowed, kept, c.full(-math.inf, c.type_of(kept)))
    return bias


def _flex_attention(c: NodeContext) -> Node:
    """Attention whose scores and probabilities graphs of the node change."""
    q, k, v = (c.node(j) for j in range(3))
    count, kv_count = c.shape()[1], c.shape(1)[1]
    if not kv_count or count % kv_count:
        raise InferError(f"{count} heads of queries for {kv_count} of keys")
    k, v = (repeated(c, x, count // kv_count) for x in (k, v))
    root = float(np.sqrt(np.float32(c.real("scale", 1 / math.sqrt(c.shape()[3])))))
    scores = product(c, c(ops.multiply, q, c.like(root, q)), c.transposed(c(ops.multiply, k, c.like(root, k)), (0, 1, 3, 2)))
    usual = F32 if c.dtype().bits < 32 else c.dtype()
    wide = dtype_numbered(c.number("softmax_precision")) if c.given("softmax_precision") else usual
    scores = c.cast(scores, wide)
    if c.given("score_mod"):
        scores = c.body(c.graph("score_mod"), [scores])[0]
    weights = softmax(c, scores, (3,))
    if c.given("prob_mod"):
        weights = c.body(c.graph("prob_mod"), [weights])[0]
    return c.cast(product(c, weights, c.cast(v, wide)), c.dtype(2))


# --- rotary embeddings ----------------------------------------------------------------------------------------------


def rotary(c: NodeContext) -> Node:
    """Pairs of features turned by the angle of their position: halves of a head, or neighbours."""
    x = c.node()
    if c.rank() == 3:
        batch, time, hidden = c.shape()
        count = c.number("num_heads", 0)
        if count < 1 or hidden % count:
            raise InferError(f"{hidden} features do not make {count} heads")
        x = c.shaped(x, (batch, time, count, hidden // count))
    else:
        x = c.transposed(x, (0, 2, 1, 3))
    batch, time, count, size = c.shape_of(x)
    turned = c.number("rotary_embedding_dim", 0) or size
    half = turned // 2
    caches = [c.node(1), c.node(2)]
    if c.has(3):
        caches = [c(ops.torch_index_select, t, c.node(3), dim=0) for t in caches]
    rest = part_of(c, x, 3, turned, size)
    x = part_of(c, x, 3, 0, turned)
    if c.flag("interleaved"):
        pairs = c.shaped(x, (batch, time, count, half, 2))
        parts = [c.shaped(part_of(c, pairs, 4, k, k + 1), (batch, time, count, half)) for k in (0, 1)]
    else:
        parts = [part_of(c, x, 3, k * half, (k + 1) * half) for k in (0, 1)]
    shape = (batch, time, count, half)
    cos, sin = (c.broadcast_to(c.add_axes(t, (2,)), shape) for t in caches)
    real = c(ops.subtract, c(ops.multiply, cos, parts[0]), c(ops.multiply, sin, parts[1]))
    imaginary = c(ops.add, c(ops.multiply, sin, parts[0]), c(ops.multiply, cos, parts[1]))
    if c.flag("interleaved"):
        pairs = c(ops.concatenate, c.add_axes(real, (4,)), c.add_axes(imaginary, (4,)), dimension=4)
        made = c.shaped(pairs, (batch, time, count, turned))
    else:
        made = c(ops.concatenate, real, imaginary, dimension=3)
    if turned < size:
        made = c(ops.concatenate, made, rest, dimension=3)
    return c.shaped(made, c.shape()) if c.rank() == 3 else c.transposed(made, (0, 2, 1, 3))


# --- recurrences ----------------------------------------------------------------------------------------------------


def _linear_attention(c: NodeContext) -> list[Node]:
    """A state of keys times values that each step decays, corrects and adds to, and that queries read."""
    rule = c.one_of("update_rule", "gated_delta", "linear", "gated", "delta", "gated_delta")
    count, kv_count = c.number("q_num_heads"), c.number("kv_num_heads")
    if kv_count < 1 or count % kv_count:
        raise InferError(f"{count} heads of queries for {kv_count} of keys")
    q, k, v = (c.cast(heads(c, c.node(j), n), F32) for j, n in ((0, count), (1, kv_count), (2, kv_count)))
    batch, _, time, width = c.shape_of(q)
    depth = c.shape_of(v)[3]
    scale = c.real("scale", 0.0) or 1 / math.sqrt(width)
    gate = correction = None
    if "gated" in rule:
        decay = c.cast(c.node(4), F32)
        last = c.shape_of(decay)[2]
        gate = c.broadcast_to(heads(c, decay, kv_count), (batch, kv_count, time, width)) if last != kv_count * width else heads(
            c, decay, kv_count)
        gate = c(ops.exponential, gate)
    if "delta" in rule:
        beta = c.cast(c.node(5), F32)
        correction = c.broadcast_to(heads(c, beta, c.shape_of(beta)[2]), (batch, kv_count, time, 1))
    state_type = c.dtype(3) if c.has(3) else c.dtype()
    shape = (batch, kv_count, width, depth)
    state = c.cast(c.node(3), F32) if c.has(3) else c.full(0, c.type_of(q).with_dims(shape))
    pile = c.full(0, c.type_of(q).with_dims((batch, count, time, depth)))

    def at(x: Node, place: Node) -> Node:
        sizes = tuple(1 if j == 2 else d for j, d in enumerate(c.shape_of(x)))
        starts = [place if j == 2 else c.scalar(0, I64) for j in range(4)]
        row = c(ops.dynamic_slice, x, *starts, slice_sizes=sizes)
        return c.shaped(row, (sizes[0], sizes[1], sizes[3]))

    def step(now: tuple[Node, ...]) -> tuple[Node, Sequence[Node]]:
        place, held, piled = now
        key, value = at(k, place), at(v, place)
        if gate is not None:
            held = c(ops.multiply, held, c.along(at(gate, place), shape, (0, 1, 2)))
        many = {"lhs_batching_dimensions": (0, 1), "rhs_batching_dimensions": (0, 1)}
        if correction is not None:
            known = c(ops.dot_general, key, held, lhs_contracting_dimensions=(2,), rhs_contracting_dimensions=(2,), **many)
            factor = c.along(c.shaped(at(correction, place), (batch, kv_count)), (batch, kv_count, depth), (0, 1))
            value = c(ops.multiply, factor, c(ops.subtract, value, known))
        written = c(ops.multiply, c.along(key, shape, (0, 1, 2)), c.along(value, shape, (0, 1, 3)))
        held = c(ops.add, held, written)
        read = repeated(c, held, count // kv_count)
        out = c(ops.dot_general, at(q, place), read, lhs_contracting_dimensions=(2,), rhs_contracting_dimensions=(2,), **many)
        out = c(ops.multiply, out, c.like(scale, out))
        starts = [place if j == 2 else c.scalar(0, I64) for j in range(4)]
        piled = c(ops.dynamic_update_slice, piled, c.add_axes(out, (2,)), *starts)
        going = c(ops.compare, place, c.scalar(time, I64), direction="LT")
        return going, [c(ops.add, place, c.scalar(1, I64)), held, piled]

    _, held, piled = c.b.loop([c.scalar(0, I64), state, pile], step)
    return [c.cast(merged(c, piled), c.dtype()), c.cast(held, state_type)]


def _causal_convolution(c: NodeContext) -> list[Node]:
    """A convolution of each channel with what is before it; the last elements are what the next call has before it."""
    x, w = c.node(), c.node(1)
    batch, channels, _ = c.shape()
    reach = c.shape(1)[2] - 1
    before = c.node(3) if c.has(3) else c.full(0, c.type().with_dims((batch, channels, reach)))
    whole = c(ops.concatenate, before, x, dimension=2)
    made = convolved(c, whole, w, 1, padding_low=(0,), padding_high=(0,), feature_group_count=channels)
    if c.has(2):
        made = c(ops.add, made, c.along(c.node(2), c.dims_of(made), (1,)))
    if c.one_of("activation", "none", "none", "silu", "swish") != "none":
        wide = c.cast(made, F32) if c.dtype().bits < 32 else made
        made = c.cast(c(ops.multiply, wide, c(ops.logistic, wide)), c.dtype())
    length = c.shape_of(whole)[2]
    return [made, part_of(c, whole, 2, length - reach, length)]


ATTENTION: Rules = {
    "Attention": _attention, "RotaryEmbedding": rotary, "LinearAttention": _linear_attention,
    "CausalConvWithState": _causal_convolution,
}  # fmt: skip

PREVIEW: Rules = {"FlexAttention": _flex_attention}
