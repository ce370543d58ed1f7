"""Operators of classical machine learning (`ai.onnx.ml`): features, linear models."""

from __future__ import annotations

import math

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.literal import Literal
from deepx_graph.text.common.elements import extreme_index
from deepx_graph.text.common.nn import back, softmax
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.types import F32


def _features(c: NodeContext) -> Node:
    """Columns picked by number."""
    x = c.add_axes(c.node(), (0,)) if c.rank() == 1 else c.node()
    index = c.shaped(c.node(1), (math.prod(c.shape(1)),))
    return c(ops.torch_index_select, x, index, dim=len(c.dims_of(x)) - 1)


def _binarizer(c: NodeContext) -> Node:
    x = c.node()
    return c.cast(c(ops.compare, x, c.like(c.real("threshold", 0.0), x), direction="GT"), c.dtype())


def _scaler(c: NodeContext) -> Node:
    x = c.cast(c.node(), F32)
    offset, scale = (c.constant(np.asarray(c.reals(name, (d,))), F32) for name, d in (("offset", 0.0), ("scale", 1.0)))
    return c.each(ops.multiply, c.each(ops.subtract, x, offset), scale)


def _linear(c: NodeContext) -> Node:
    targets = c.number("targets", 1)
    weights = np.asarray(c.reals("coefficients"))
    if c.text("post_transform", "NONE") != "NONE" or targets < 1 or weights.size % targets:
        raise Unsupported("a transform of the result")
    x = c.cast(c.node(), F32)
    made = c(ops.dot_general, x, c.constant(weights.reshape(targets, -1), F32), lhs_contracting_dimensions=(1,),
             rhs_contracting_dimensions=(1,))
    return c.each(ops.add, made, c.constant(np.asarray(c.reals("intercepts", (0.0,))), F32))


def _normalizer(c: NodeContext) -> Node:
    """Rows divided by their norm; rows of zeros stay."""
    x = c.cast(c.node(), F32)
    axis = c.rank() - 1
    kind = c.one_of("norm", "MAX", "MAX", "L1", "L2")
    held = x if kind == "MAX" else c(ops.abs_, x) if kind == "L1" else c(ops.multiply, x, x)
    norm = back(c, ops.reduction(c.b, ops.maximum if kind == "MAX" else ops.add, held, (axis,)), x, (axis,))
    norm = c(ops.sqrt, norm) if kind == "L2" else norm
    zero = c(ops.compare, norm, c.like(0, norm), direction="EQ")
    return c(ops.divide, x, c(ops.select, zero, c.full(1, c.type_of(norm)), norm))


def _classifier(c: NodeContext) -> list[Node]:
    """Scores of classes, each a product and a sum, and the label of the greatest."""
    intercepts = np.asarray(c.reals("intercepts", (0.0,)))
    weights = np.asarray(c.reals("coefficients"))
    if intercepts.size < 2 or weights.size % intercepts.size:
        raise Unsupported("one score for two classes")
    made = c(ops.dot_general, c.cast(c.node(), F32), c.constant(weights.reshape(intercepts.size, -1), F32),
             lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
    return labelled(c, c.each(ops.add, made, c.constant(intercepts, F32)), "classlabels_ints")


def labelled(c: NodeContext, scores: Node, ints: str) -> list[Node]:
    """The label of the greatest score of each row, and the scores transformed."""
    names = c.texts("classlabels_strings", ())
    labels = np.asarray(names, object) if names else np.asarray(c.ints(ints), np.int64)
    if len(labels) != (c.dims_of(scores)[1:] or (0,))[0]:
        raise Unsupported("as many labels as scores are needed")
    best = extreme_index(c, scores, 1, "GT", False)
    return [c(ops.torch_index_select, c.b.literal(Literal(labels)), best, dim=0), _transformed(c, scores)]


def _transformed(c: NodeContext, scores: Node) -> Node:
    kind = c.one_of("post_transform", "NONE", "NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
    if kind in ("SOFTMAX_ZERO", "PROBIT"):
        raise Unsupported("that transform of scores")
    if kind == "LOGISTIC":
        return c(ops.logistic, scores)
    return scores if kind == "NONE" else softmax(c, scores, (1,))


LEARNED: Rules = {
    "ArrayFeatureExtractor": _features, "Binarizer": _binarizer, "Scaler": _scaler, "LinearRegressor": _linear,
    "Normalizer": _normalizer, "LinearClassifier": _classifier,
}  # fmt: skip
