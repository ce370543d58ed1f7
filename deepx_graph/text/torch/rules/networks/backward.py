"""Derivatives that a program states as operators of their own: the pullback of the forward operator, built anew.

They stand in programs that were exported with their gradients. Each is the pullback of what the rule of the forward operator gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.ops.vjp.accumulate import pullback
from deepx_graph.text.common.elements import total
from deepx_graph.text.common.nn import back
from deepx_graph.text.torch.context import CallContext, Rule, Rules
from deepx_graph.text.torch.rules.elementwise import chosen
from deepx_graph.text.torch.rules.networks.activation import ACTIVATION
from deepx_graph.text.torch.rules.networks.norm import NORM
from deepx_graph.text.torch.rules.networks.window import WINDOW, convolution_of
from deepx_graph.types import as_tensor


def pulled(c: CallContext, result: Node, cotangent: Node, wrt: Sequence[Node | None]) -> list[Node | None]:
    """The cotangents of operands; zeros where nothing depends on them, None for those that are not asked for."""
    wanted = [w for w in wrt if w is not None]
    found = iter(pullback(c.b, [result], [cotangent], wanted))
    made = [None if w is None else (next(found), w) for w in wrt]
    return [None if m is None else m[0] if m[0] is not None else c.full(0, as_tensor(m[1].type)) for m in made]


def _of_one(rule: Rule, order: tuple[str, str], name: str = "self", *more: str) -> Rule:
    """Of an operator of one tensor: arguments are the cotangent, the operand, and then the operator's own."""

    def build(c: CallContext) -> Node | None:
        x = c.node(order[1])
        inner = CallContext(c.lowering, c.call, {**dict(c.arguments), name: x}, [x, *(c.get(m) for m in more)], ())
        made = rule(inner)
        return pulled(c, made if isinstance(made, Node) else made[0], c.node(order[0]), [x])[0]

    return build


def _convolution(c: CallContext) -> list[Node | None]:
    x, w = c.node("input"), c.node("weight")
    mask = c.get("output_mask", (True, True, True))
    made = convolution_of(c, x, w, None)
    found = pulled(c, made, c.node("grad_output"), [x if mask[0] else None, w if mask[1] else None])
    axes = tuple(k for k in range(len(c.dims_of(x))) if k != 1)
    return [*found, total(c, ops.add, c.node("grad_output"), axes) if mask[2] else None]


def _normalised(rule: Rule, key: str) -> Rule:
    """Of layers and groups: the cotangents of the operand, the weight and the bias."""

    def build(c: CallContext) -> list[Node | None]:
        operands = [c.node("input"), c.optional("weight"), c.optional("bias")]
        mask = c.get("output_mask", (True, True, True))
        arguments = {**dict(c.arguments), "eps": c.get("eps", 1e-5)}
        inner = CallContext(c.lowering, c.call, arguments, [operands[0], c.get(key)], ())
        made = rule(inner)[0]
        wanted = [o if m else None for o, m in zip(operands, mask, strict=True)]
        return pulled(c, made, c.node("grad_out"), wanted)

    return build


def _embedding(c: CallContext) -> Node:
    grad, index, count = c.node(0), c.node("indices"), c.number("num_weights")
    size = c.shape_of(grad)[-1]
    flat = c.shaped(index, (math.prod(c.shape_of(index)),))
    rows = c.shaped(grad, (math.prod(c.shape_of(index)), size))
    padding = c.number("padding_idx", -1)
    if padding >= 0:
        hit = c(ops.compare, flat, c.like(padding, flat), direction="NE")
        rows = chosen(c, c.along(hit, c.dims_of(rows), (0,)), rows, c.full(0, as_tensor(rows.type)))
    return c(ops.index_add, c.full(0, as_tensor(grad.type).with_dims((count, size))), flat, rows, dim=0)


def _softmax(log: bool) -> Rule:
    """By the result of the forward operator."""

    def build(c: CallContext) -> Node:
        g, y = c.node(0), c.node("output")
        axes = (c.axis("dim", None, y),)
        if log:
            whole = back(c, total(c, ops.add, g, axes), y, axes)
            return c(ops.subtract, g, c(ops.multiply, c(ops.exponential, y), whole))
        inner = c(ops.multiply, g, y)
        return c(ops.subtract, inner, c(ops.multiply, y, back(c, total(c, ops.add, inner, axes), y, axes)))

    return build


def _threshold(c: CallContext) -> Node:
    g, x = c.node(0), c.node(1)
    return chosen(c, c(ops.compare, x, c.like(c.real(2), x), direction="GT"), g, c.full(0, as_tensor(g.type)))


def _sigmoid(c: CallContext) -> Node:
    g, y = c.node(0), c.node("output")
    return c(ops.multiply, g, c(ops.multiply, y, c(ops.subtract, c.like(1, y), y)))


def _tanh(c: CallContext) -> Node:
    g, y = c.node(0), c.node("output")
    return c(ops.multiply, g, c(ops.subtract, c.like(1, y), c(ops.multiply, y, y)))


_POOLING = ("grad_output", "self")

BACKWARD: Rules = {
    "convolution_backward": _convolution, "native_layer_norm_backward": _normalised(NORM["native_layer_norm"], "normalized_shape"),
    "avg_pool2d_backward": _of_one(WINDOW["avg_pool2d"], _POOLING), "avg_pool3d_backward": _of_one(WINDOW["avg_pool3d"], _POOLING),
    "max_pool2d_with_indices_backward": _of_one(WINDOW["max_pool2d"], _POOLING), "embedding_dense_backward": _embedding,
    "_softmax_backward_data": _softmax(False), "_log_softmax_backward_data": _softmax(True), "threshold_backward": _threshold,
    "sigmoid_backward": _sigmoid, "tanh_backward": _tanh, "gelu_backward": _of_one(ACTIVATION["gelu"], _POOLING),
    "silu_backward": _of_one(ACTIVATION["silu"], _POOLING), "hardswish_backward": _of_one(ACTIVATION["hardswish"], _POOLING),
}  # fmt: skip
