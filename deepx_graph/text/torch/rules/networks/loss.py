"""Losses: a number for each element or each example, and their mean or sum."""

from __future__ import annotations

import math
from typing import Any

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.text.common.activations import softplus_of
from deepx_graph.text.common.elements import along_axis, total
from deepx_graph.text.common.nn import log_softmax
from deepx_graph.text.torch.context import CallContext, Rule, Rules
from deepx_graph.text.torch.rules.elementwise import chosen, times
from deepx_graph.text.torch.rules.reduce import norm_over
from deepx_graph.types import I64, as_tensor

NONE, MEAN, SUM = 0, 1, 2
"""Reductions by number."""


def summed(c: CallContext, x: Node, reduction: int) -> Node:
    """The mean or sum of a loss, or itself."""
    if reduction == NONE:
        return x
    axes = tuple(range(len(c.dims_of(x))))
    made = total(c, ops.add, x, axes)
    return made if reduction == SUM else c(ops.divide, made, c.like(max(1, math.prod(c.shape_of(x))), made))


def _each(build: Any, reduction: str = "reduction") -> Rule:
    """By a formula of an element and its target."""
    return lambda c: summed(c, build(c, *c.pair()), c.number(reduction, MEAN))


def _square(c: CallContext, x: Node, y: Node) -> Node:
    off = c(ops.subtract, x, y)
    return c(ops.multiply, off, off)


def _distance(c: CallContext, x: Node, y: Node) -> Node:
    return c(ops.abs_, c(ops.subtract, x, y))


def _smooth(c: CallContext, x: Node, y: Node) -> Node:
    size, beta = _distance(c, x, y), c.real("beta", 1.0)
    if beta == 0:
        return size
    near = c(ops.divide, times(c, c(ops.multiply, size, size), 0.5), c.like(beta, size))
    return chosen(c, c(ops.compare, size, c.like(beta, size), direction="LT"), near, c(ops.subtract, size, c.like(beta / 2, size)))


def _huber(c: CallContext, x: Node, y: Node) -> Node:
    size, delta = _distance(c, x, y), c.real("delta", 1.0)
    near = times(c, c(ops.multiply, size, size), 0.5)
    far = times(c, c(ops.subtract, size, c.like(delta / 2, size)), delta)
    return chosen(c, c(ops.compare, size, c.like(delta, size), direction="LE"), near, far)


def _binary(c: CallContext) -> Node:
    x, y = c.pair()
    one = c.like(1, x)
    logs = [c(ops.maximum, c(ops.log, v), c.like(-100, v)) for v in (x, c(ops.subtract, one, x))]
    made = c(ops.negate, c(ops.add, c(ops.multiply, y, logs[0]), c(ops.multiply, c(ops.subtract, one, y), logs[1])))
    return summed(c, c.each(ops.multiply, made, c.node("weight")) if c.has("weight") else made, c.number("reduction", MEAN))


def _binary_of_logits(c: CallContext) -> Node:
    x, y = c.pair()
    tail = softplus_of(c, c(ops.negate, x))
    if c.has("pos_weight"):
        factor = c.each(ops.add, c.each(ops.multiply, c(ops.subtract, c.node("pos_weight"), c.like(1, x)), y), c.like(1, x))
        tail = c.each(ops.multiply, tail, factor)
    made = c(ops.add, c(ops.multiply, c(ops.subtract, c.like(1, y), y), x), tail)
    return summed(c, c.each(ops.multiply, made, c.node("weight")) if c.has("weight") else made, c.number("reduction", MEAN))


def _divergence(c: CallContext) -> Node:
    x, y = c.pair()
    if c.flag("log_target"):
        made = c(ops.multiply, c(ops.exponential, y), c(ops.subtract, y, x))
    else:
        found = c(ops.multiply, y, c(ops.subtract, c(ops.log, y), x))
        made = chosen(c, c(ops.compare, y, c.like(0, y), direction="EQ"), c.like(0, y), found)
    return summed(c, made, c.number("reduction", MEAN))


# --- of classes -----------------------------------------------------------------------------------------------------


def likelihood(c: CallContext, x: Node, target: Node, weight: Node | None, ignored: int, reduction: int) -> tuple[Node, Node]:
    """The negative log likelihood of the target classes along axis 1 (0 of one example), and the sum of weights."""
    axis = 0 if len(c.dims_of(x)) == 1 else 1
    target = c.cast(target, I64)
    kept_one = c(ops.compare, target, c.like(ignored, target), direction="NE")
    index = chosen(c, kept_one, target, c.like(0, target))
    dims = tuple(1 if k == axis else d for k, d in enumerate(c.dims_of(x)))
    found = c.shaped(along_axis(c, x, c.shaped(index, dims), axis), c.dims_of(target))
    factor = c.to(kept_one, c.dtype_of(x))
    if weight is not None:
        factor = c(ops.multiply, factor, c(ops.torch_index_select, weight, index, dim=0))
    made = c(ops.negate, c(ops.multiply, found, factor))
    axes = tuple(range(len(c.dims_of(target))))
    weights = total(c, ops.add, factor, axes)
    if reduction == NONE:
        return made, weights
    whole = total(c, ops.add, made, axes)
    return (whole if reduction == SUM else c(ops.divide, whole, weights)), weights


def _likelihood(c: CallContext) -> Any:
    made, weights = likelihood(
        c, c.node(0), c.node(1), c.optional("weight"), c.number("ignore_index", -100), c.number("reduction", MEAN)
    )
    return [made, weights]


def _first_likelihood(c: CallContext) -> Node:
    return _likelihood(c)[0]  # type: ignore[no-any-return]


def _cross_entropy(c: CallContext) -> Node:
    """Of classes by number, or of their probabilities; the target smoothed where that is asked for."""
    x, target = c.node(0), c.node(1)
    axis = 0 if len(c.dims_of(x)) == 1 else 1
    logs, weight, reduction = log_softmax(c, x, (axis,)), c.optional("weight"), c.number("reduction", MEAN)
    smoothing, classes = c.real("label_smoothing", 0.0), c.static((c.dims_of(x)[axis],))[0]
    shape = c.dims_of(x)
    if c.dtype_of(target).is_float:
        if smoothing:
            target = c(ops.add, times(c, target, 1 - smoothing), c.like(smoothing / classes, target))
        weighted = logs if weight is None else c(ops.multiply, logs, c.along(weight, shape, (axis,)))
        made = c(ops.negate, total(c, ops.add, c(ops.multiply, weighted, target), (axis,)))
        if reduction == MEAN:
            examples = math.prod(d for k, d in enumerate(c.shape_of(x)) if k != axis)
            return c(ops.divide, summed(c, made, SUM), c.like(max(1, examples), made))
        return summed(c, made, reduction)
    ignored = c.number("ignore_index", -100)
    made, weights = likelihood(c, logs, target, weight, ignored, reduction)
    if not smoothing:
        return made
    weighted = logs if weight is None else c(ops.multiply, logs, c.along(weight, shape, (axis,)))
    smooth = c(ops.negate, total(c, ops.add, weighted, (axis,)))
    hit = c(ops.compare, c.cast(target, I64), c.like(ignored, c.cast(target, I64)), direction="NE")
    smooth = chosen(c, hit, smooth, c.full(0, as_tensor(smooth.type)))
    if reduction != NONE:
        smooth = summed(c, smooth, SUM)
    smooth = c(ops.divide, smooth, weights) if reduction == MEAN else smooth
    return c(ops.add, times(c, made, 1 - smoothing), times(c, smooth, smoothing / classes))


def _margin(c: CallContext) -> Node:
    off = c(ops.subtract, c.node(0), c.node(1))
    made = c(
        ops.add, c(ops.negate, c(ops.multiply, c.to(c.node("target"), c.dtype_of(off)), off)), c.like(c.real("margin", 0.0), off)
    )
    return summed(c, c(ops.maximum, made, c.like(0, made)), c.number("reduction", MEAN))


def _embedding(c: CallContext) -> Node:
    x, y = c.pair()
    margin = c.real("margin", 1.0)
    far = c(ops.maximum, c(ops.subtract, c.like(margin, x), x), c.like(0, x))
    zero = c.like(0, x)
    made = c(
        ops.add,
        chosen(c, c(ops.compare, y, c.like(1, y), direction="NE"), far, zero),
        chosen(c, c(ops.compare, y, c.like(-1, y), direction="NE"), x, zero),
    )
    return summed(c, made, c.number("reduction", MEAN))


def _cosine_embedding(c: CallContext) -> Node:
    """One less the cosine for pairs that belong together, what of it is above the margin for others."""
    x, y, target = c.node(0), c.node(1), c.node(2)
    axes = (len(c.dims_of(x)) - 1,)

    def dot(a: Node, b: Node) -> Node:
        return total(c, ops.add, c(ops.multiply, a, b), axes)

    sizes = c(ops.multiply, *(c(ops.add, dot(v, v), c.like(1e-12, x)) for v in (x, y)))
    cosine = c(ops.divide, dot(x, y), c(ops.sqrt, sizes))
    apart = c(ops.maximum, c(ops.subtract, cosine, c.like(c.real("margin", 0.0), cosine)), c.like(0, cosine))
    same = c(ops.compare, target, c.like(1, target), direction="EQ")
    return summed(c, chosen(c, same, c(ops.subtract, c.like(1, cosine), cosine), apart), c.number("reduction", MEAN))


def _triplet(c: CallContext) -> Node:
    """How much nearer the positive should be than the negative, by a margin."""
    anchor, p, epsilon = c.node(0), c.real("p", 2.0), c.real("eps", 1e-6)

    def distance(x: Node, y: Node) -> Node:
        off = c(ops.add, c(ops.subtract, x, y), c.like(epsilon, x))
        return norm_over(c, off, (len(c.dims_of(off)) - 1,), p)

    far = distance(anchor, c.node(2))
    if c.flag("swap"):
        far = c(ops.minimum, far, distance(c.node(1), c.node(2)))
    made = c(ops.add, c(ops.subtract, distance(anchor, c.node(1)), far), c.like(c.real("margin", 1.0), far))
    return summed(c, c(ops.maximum, made, c.like(0, made)), c.number("reduction", MEAN))


def _soft_margin(c: CallContext) -> Node:
    x, y = c.pair()
    product = c(ops.negate, c(ops.multiply, x, y))
    return summed(c, c(ops.log_plus_one, c(ops.exponential, product)), c.number("reduction", MEAN))


def _poisson(c: CallContext) -> Node:
    """Of counts, by their rate or its logarithm; with Stirling's formula for the rest where that is asked for."""
    x, target = c.pair()
    epsilon = c.real("eps", 1e-8)
    by_log = c.flag("log_input", True)
    logs = x if by_log else c(ops.log, c(ops.add, x, c.like(epsilon, x)))
    made = c(ops.subtract, c(ops.exponential, x) if by_log else x, c(ops.multiply, target, logs))
    if c.flag("full"):
        log = c(ops.log, target)
        stirling = c(ops.add, c(ops.subtract, c(ops.multiply, target, log), target),
                     times(c, c(ops.add, log, c.like(math.log(2 * math.pi), log)), 0.5))
        above = c(ops.compare, target, c.like(1, target), direction="GT")
        made = c(ops.add, made, chosen(c, above, stirling, c.like(0, target)))
    return summed(c, made, c.number("reduction", MEAN))


LOSS: Rules = {
    "mse_loss": _each(_square), "l1_loss": _each(_distance), "smooth_l1_loss": _each(_smooth), "huber_loss": _each(_huber),
    "binary_cross_entropy": _binary, "binary_cross_entropy_with_logits": _binary_of_logits, "kl_div": _divergence,
    "nll_loss_forward": _likelihood, "nll_loss2d_forward": _likelihood,
    **dict.fromkeys(("nll_loss", "nll_loss_nd", "nll_loss2d"), _first_likelihood), "cross_entropy_loss": _cross_entropy,
    "margin_ranking_loss": _margin, "hinge_embedding_loss": _embedding,
    "cosine_embedding_loss": _cosine_embedding, "triplet_margin_loss": _triplet, "soft_margin_loss": _soft_margin,
    "poisson_nll_loss": _poisson,
}  # fmt: skip
