"""Gradients of batch normalisation, by saying it in elementary operations; training's own uses batch_norm_grad."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.op import Cotangents
from deepx_graph.ops.contract.norm import batch_norm_grad
from deepx_graph.ops.contract.reduce import broadcast_in_dim, reduction
from deepx_graph.ops.math.elementwise import add, divide, multiply, rsqrt, subtract
from deepx_graph.ops.vjp.accumulate import through
from deepx_graph.types import as_tensor


class _Terms:
    """The operand of a batch normalisation, and what all three operations are made of."""

    def __init__(self, b: Builder, node: Node) -> None:
        self.b, self.x = b, node.inputs[0]
        self.epsilon, self.feature = node.attr("epsilon"), node.attr("feature_index")
        self.shape = as_tensor(self.x.type).shape
        self.others = tuple(k for k in range(len(self.shape)) if k != self.feature)
        self.count = math.prod(self.shape[k] for k in self.others)

    def along(self, vector: Node) -> Node:
        """One number for each feature, for every element of the operand."""
        return self.b(broadcast_in_dim, vector, shape=self.shape, broadcast_dimensions=(self.feature,))

    def total(self, x: Node) -> Node:
        return reduction(self.b, add, x, self.others)

    def mean(self, x: Node) -> Node:
        total = self.total(x)
        return self.b(divide, total, self.b.like(self.count, total))

    def centered(self, mean: Node) -> Node:
        return self.b(subtract, self.x, self.along(mean))

    def variance(self) -> Node:
        centered = self.centered(self.mean(self.x))
        return self.mean(self.b(multiply, centered, centered))

    def scale(self, variance: Node) -> Node:
        """One over the standard deviation."""
        return self.along(self.b(rsqrt, self.b(add, variance, self.b.like(self.epsilon, variance))))


def batch_norm_training_vjp(b: Builder, node: Node, g: Sequence[Node | None]) -> Cotangents:
    """By operand, scale and offset; the mean and the variance depend on the operand alone."""
    x, scale, _ = node.inputs
    found: list[Node | None] = [None, None, None]
    if g[0] is not None:
        found = list(b.items(b(batch_norm_grad, x, scale, b.proj(node, 1), b.proj(node, 2), g[0], **_attrs(node))))
    terms = _Terms(b, node)
    if g[1] is not None or g[2] is not None:
        more = through(b, node, [terms.mean(x), terms.variance()], tuple(g[1:]))[0]
        found[0] = more if found[0] is None or more is None else b(add, found[0], more)
    return found


def _attrs(node: Node) -> dict[str, Any]:
    return {"epsilon": node.attr("epsilon"), "feature_index": node.attr("feature_index")}


def batch_norm_inference_vjp(b: Builder, node: Node, g: Node) -> Cotangents:
    """By all five operands."""
    _, scale, offset, mean, variance = node.inputs
    terms = _Terms(b, node)
    scaled = b(multiply, b(multiply, terms.centered(mean), terms.scale(variance)), terms.along(scale))
    return through(b, node, [b(add, scaled, terms.along(offset))], g)


def batch_norm_grad_vjp(b: Builder, node: Node, g: Sequence[Node | None]) -> Cotangents:
    """By all five operands: what second derivatives need."""
    _, scale, mean, variance, cotangent = node.inputs
    terms = _Terms(b, node)
    normal = b(multiply, terms.centered(mean), terms.scale(variance))
    by_offset, by_scale = terms.total(cotangent), terms.total(b(multiply, cotangent, normal))
    count = b.like(terms.count, cotangent)
    rest = b(add, terms.along(by_offset), b(multiply, normal, terms.along(by_scale)))
    whole = b(subtract, cotangent, b(divide, rest, count))
    by_x = b(multiply, b(multiply, terms.along(scale), terms.scale(variance)), whole)
    return through(b, node, [by_x, by_scale, by_offset], tuple(g))
