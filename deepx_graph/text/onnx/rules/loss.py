"""Losses of classification."""

from __future__ import annotations

from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import along_axis
from deepx_graph.text.common.nn import log_softmax
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.types import I64


def _picked(c: NodeContext, logs: Node) -> Node:
    """The loss by logarithms of probabilities: that of the target's class, weighted, ignored ones left out."""
    target = c.cast(c.node(1), I64)
    shape, rank = c.shape_of(logs), c.rank(1)
    if len(shape) != rank + 1 or rank < 1:
        raise InferError(f"operands {c.type()} and {c.type(1)}", expected="scores [N, C, ...] and targets [N, ...]")
    every = tuple(range(rank))
    ignored = None
    if c.given("ignore_index"):
        ignored = c(ops.compare, target, c.like(c.number("ignore_index"), target), direction="EQ")
        target = c(ops.select, ignored, c.full(0, c.type_of(target)), target)
    loss = c(ops.negate, c.shaped(along_axis(c, logs, c.add_axes(target, (1,)), 1), c.shape_of(target)))
    weight = c.full(1, c.type_of(loss))
    if c.has(2):
        weight = c(ops.torch_index_select, c.cast(c.node(2), c.dtype_of(loss)), target, dim=0)
    if ignored is not None:
        weight = c(ops.select, ignored, c.full(0, c.type_of(weight)), weight)
    loss = c(ops.select, c(ops.compare, weight, c.like(0, weight), direction="EQ"), c.full(0, c.type_of(loss)),
             c(ops.multiply, loss, weight))
    reduction = c.one_of("reduction", "mean", "none", "sum", "mean")
    if reduction == "none":
        return loss
    total = ops.reduction(c.b, ops.add, loss, every)
    return total if reduction == "sum" else c(ops.divide, total, ops.reduction(c.b, ops.add, weight, every))


def _negative_log_likelihood(c: NodeContext) -> Node:
    return _picked(c, c.node())


def _softmax_cross_entropy(c: NodeContext) -> list[Any]:
    logs = log_softmax(c, c.node(), (1,))
    return [_picked(c, logs), logs]


LOSS: Rules = {"NegativeLogLikelihoodLoss": _negative_log_likelihood, "SoftmaxCrossEntropyLoss": _softmax_cross_entropy}
