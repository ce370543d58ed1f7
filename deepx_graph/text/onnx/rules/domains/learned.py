"""Operators of classical machine learning (`ai.onnx.ml`): features, linear models, support vector machines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.literal import Literal
from deepx_graph.text.common.elements import extreme_index
from deepx_graph.text.common.nn import back, softmax
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.types import F32, I32


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


def _imputer(c: NodeContext) -> Node:
    """Numbers of each column in the place of those that say that there is none."""
    x = c.node()
    kind = "floats" if c.dtype().is_float else "int64s"
    given = c.reals("imputed_value_floats") if kind == "floats" else c.ints("imputed_value_int64s")
    gone = c.real("replaced_value_float", 0.0) if kind == "floats" else c.number("replaced_value_int64", 0)
    missing = c(ops.compare, x, x, direction="NE") if gone != gone else c(ops.compare, x, c.like(gone, x), direction="EQ")
    return c(ops.select, missing, c.broadcast_to(c.constant(np.asarray(given), c.dtype()), c.dims_of(x)), x)


def _vectorizer(c: NodeContext) -> Node:
    """Columns of all operands beside each other."""
    return c(ops.concatenate, *(c.cast(x, F32) for x in c.nodes()), dimension=1)


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


def _kernel(c: NodeContext, x: Node, vectors: np.ndarray[Any, Any]) -> Node:
    """How near each row is to each of the vectors, [rows, vectors], by the kernel of a support vector machine."""
    gamma, offset, degree = (*c.reals("kernel_params", (0.0, 0.0, 3.0)), 0.0, 0.0, 0.0)[:3]
    kind = c.one_of("kernel_type", "LINEAR", "LINEAR", "POLY", "RBF", "SIGMOID")
    if kind == "RBF":
        rows, count = c.dims_of(x)[0], len(vectors)
        shape = (rows, count, vectors.shape[1])
        apart = c(ops.subtract, c.along(x, shape, (0, 2)), c.along(c.constant(vectors, F32), shape, (1, 2)))
        far = ops.reduction(c.b, ops.add, c(ops.multiply, apart, apart), (2,))
        return c(ops.exponential, c(ops.multiply, far, c.like(-gamma, far)))
    made = c(ops.dot_general, x, c.constant(vectors, F32), lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
    if kind == "LINEAR":
        return made
    inner = c(ops.add, c(ops.multiply, made, c.like(gamma, made)), c.like(offset, made))
    return c(ops.tanh, inner) if kind == "SIGMOID" else c(ops.power, inner, c.like(degree, inner))


def _machine(c: NodeContext) -> Node:
    """What a support vector machine gives of a row: a weighted sum of how near it is to the vectors; of one class, its side."""
    if c.text("post_transform", "NONE") != "NONE":
        raise Unsupported("a transform of the result")
    weights, count = np.asarray(c.reals("coefficients")), c.number("n_supports", 0)
    x = c.cast(c.node(), F32)
    vectors = np.asarray(c.reals("support_vectors", ())).reshape(count, -1) if count else weights[None]
    near = _kernel(c, x, vectors.astype(np.float32))
    sums = c.constant((weights[None] if count else np.ones((1, 1))), F32)
    made = c(ops.dot_general, near, sums, lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
    made = c.each(ops.add, made, c.constant(np.asarray(c.reals("rho")[:1]), F32))
    if not c.flag("one_class"):
        return made
    inside = c(ops.compare, made, c.like(0, made), direction="GT")
    return c(ops.select, inside, c.full(1, c.type_of(made)), c.full(-1, c.type_of(made)))


def _machines(c: NodeContext) -> list[Node]:
    """The class that most of the machines between two classes choose, and what each of them gives.

    A machine of classes i < j weighs the vectors of i by row j - 1 of the coefficients, and those of j by row i.
    """
    groups = c.ints("vectors_per_class", ())
    if len(groups) < 2 or c.text("post_transform", "NONE") != "NONE":
        raise Unsupported("a linear classifier, or a transform of the result")
    count, ends = sum(groups), np.cumsum((0, *groups))
    vectors = np.asarray(c.reals("support_vectors"), np.float32).reshape(count, -1)
    weights = np.asarray(c.reals("coefficients"), np.float32).reshape(len(groups) - 1, count)
    pairs = [(i, j) for i in range(len(groups)) for j in range(i + 1, len(groups))]
    sums = np.zeros((len(pairs), count), np.float32)
    votes = np.zeros((len(pairs), len(groups)), np.float32)
    for k, (i, j) in enumerate(pairs):
        sums[k, ends[i] : ends[i + 1]] = weights[j - 1, ends[i] : ends[i + 1]]
        sums[k, ends[j] : ends[j + 1]] = weights[i, ends[j] : ends[j + 1]]
        votes[k, i], votes[k, j] = 1, -1
    near = _kernel(c, c.cast(c.node(), F32), vectors)
    made = c(ops.dot_general, near, c.constant(sums, F32), lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
    scores = c.each(ops.add, made, c.constant(np.asarray(c.reals("rho")), F32))
    won = c.cast(c(ops.compare, scores, c.like(0, scores), direction="GT"), F32)
    lost = np.asarray([sum(1 for _, j in pairs if j == k) for k in range(len(groups))])
    total = c.each(ops.add, c(ops.dot_general, won, c.constant(votes, F32), lhs_contracting_dimensions=(1,),
                              rhs_contracting_dimensions=(0,)), c.constant(lost, F32))
    if c.reals("prob_a", ()):
        given = _coupled(c, scores, pairs, len(groups))
    else:
        given = c(ops.concatenate, c(ops.negate, scores), scores, dimension=1) if len(groups) == 2 else scores
    return [labelled(c, total, "classlabels_ints")[0], given]


def _columns(c: NodeContext) -> Node:
    """A map for each row, from labels to its elements: the matrix of these, in the order of the labels."""
    return c(ops.identity, c.node(), role="copy")


MOST_CLASSES, ROUNDS = 32, 100
"""Classes whose probabilities are coupled, and how often they are improved."""


def _coupled(c: NodeContext, scores: Node, pairs: Sequence[tuple[int, int]], k: int) -> Node:
    """The probabilities of classes, from what each machine says of its two: the second method of Wu, Lin and Weng (2004), stopped
    as libsvm does (`multiclass_probability`).
    """
    if k > MOST_CLASSES:
        raise Unsupported(f"the probabilities of {k} classes")
    rows = c.dims_of(scores)[0]
    slope, shift = (c.constant(np.asarray(c.reals(name)), F32) for name in ("prob_a", "prob_b"))
    won = c(ops.logistic, c(ops.negate, c.each(ops.add, c.each(ops.multiply, scores, slope), shift)))
    won = c(ops.clamp, c.like(1e-7, won), won, c.like(1 - 1e-7, won))

    def column(x: Node, j: int) -> Node:
        return c(ops.slice_, x, start_indices=(0, j), limit_indices=(rows, j + 1), strides=(1, 1))

    first = {pair: column(won, n) for n, pair in enumerate(pairs)}
    r = first | {(j, i): c(ops.subtract, c.like(1, v), v) for (i, j), v in first.items()}
    zero = c.full(0, c.type_of(first[pairs[0]]))
    q = [[zero if j == t else c(ops.negate, c(ops.multiply, r[j, t], r[t, j])) for j in range(k)] for t in range(k)]
    for t in range(k):
        squares = [c(ops.multiply, r[j, t], r[j, t]) for j in range(k) if j != t]
        q[t][t] = reduce(lambda a, b: c(ops.add, a, b), squares)
    whole = [c(ops.concatenate, *row, dimension=1) for row in q]

    def dot(a: Node, b: Node) -> Node:
        return c.add_axes(ops.reduction(c.b, ops.add, c(ops.multiply, a, b), (1,)), (1,))

    def wide(x: Node) -> Node:
        return c.along(c.shaped(x, (rows,)), (rows, k), (0,))

    def step(now: tuple[Node, ...]) -> tuple[Node, list[Node]]:
        count, p = now
        qp = c(ops.concatenate, *(dot(row, p) for row in whole), dimension=1)
        pqp = dot(p, qp)
        error = ops.reduction(c.b, ops.maximum, c(ops.abs_, c(ops.subtract, qp, wide(pqp))), (1,))
        open_ = c(ops.compare, error, c.like(0.005 / k, error), direction="GE")
        new = p
        for t in range(k):
            off = c(ops.divide, c(ops.subtract, pqp, column(qp, t)), q[t][t])
            more = c(ops.add, off, c.like(1, off))
            inner = c(ops.add, c(ops.multiply, off, q[t][t]), c(ops.add, column(qp, t), column(qp, t)))
            pqp = c(ops.divide, c(ops.divide, c(ops.add, pqp, c(ops.multiply, off, inner)), more), more)
            qp = c(ops.divide, c(ops.add, qp, c(ops.multiply, wide(off), whole[t])), wide(more))
            mine = c.constant(np.eye(k)[t], F32)
            new = c(ops.divide, c(ops.add, new, c(ops.multiply, wide(off), c.along(mine, (rows, k), (1,)))), wide(more))
        going = c(ops.and_, ops.reduction(c.b, ops.or_, open_, (0,)), c(ops.compare, count, c.scalar(ROUNDS, I32), direction="LT"))
        return going, [c(ops.add, count, c.scalar(1, I32)), c(ops.select, c.along(open_, (rows, k), (0,)), new, p)]

    start = c.full(1 / k, c.type_of(scores).with_dims((rows, k)))
    return c.b.loop([c.scalar(0, I32), start], step)[1]


LEARNED: Rules = {
    "ArrayFeatureExtractor": _features, "Binarizer": _binarizer, "Scaler": _scaler, "LinearRegressor": _linear,
    "Normalizer": _normalizer, "LinearClassifier": _classifier, "SVMRegressor": _machine, "SVMClassifier": _machines,
    "ZipMap": _columns, "Imputer": _imputer, "FeatureVectorizer": _vectorizer,
}  # fmt: skip
