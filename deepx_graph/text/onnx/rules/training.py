"""Losses of classification; optimisers of the preview of training (Adam, Adagrad, Momentum), and gradients within a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.ops.vjp.accumulate import pullback
from deepx_graph.text.common.elements import along_axis
from deepx_graph.text.common.nn import log_softmax
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.onnx.context import NodeContext, Rule, Rules
from deepx_graph.types import F32, I64

Update = Callable[[NodeContext, Node, Node, Sequence[Node]], Sequence[Node]]


def _optimizer(update: Update, kinds: int) -> Rule:
    """An update for each tensor: operands are the rate, the step, then tensors kind by kind (values, gradients, states)."""

    def build(c: NodeContext) -> list[Node]:
        nodes = c.nodes()
        count, rest = divmod(len(nodes) - 2, kinds)
        if rest or count < 1:
            raise InferError(f"{len(nodes)} operands", expected=f"two, and {kinds} for each tensor")
        rate, step = c.shaped(nodes[0], ()), c.shaped(nodes[1], ())
        rows = [update(c, rate, step, nodes[2 + k :: count][:kinds]) for k in range(count)]
        return [row[j] for j in range(kinds - 1) for row in rows]

    return build


def _times(c: NodeContext, x: Node, factor: float) -> Node:
    return c(ops.multiply, x, c.like(factor, x))


def _adam(c: NodeContext, rate: Node, step: Node, given: Sequence[Node]) -> Sequence[Node]:
    x, g, v, h = given
    alpha, beta, epsilon = c.real("alpha", 0.9), c.real("beta", 0.999), c.real("epsilon", 1e-6)
    g = c(ops.add, _times(c, x, c.real("norm_coefficient", 0.0)), g)
    v = c(ops.add, _times(c, v, alpha), _times(c, g, 1 - alpha))
    h = c(ops.add, _times(c, h, beta), _times(c, c(ops.multiply, g, g), 1 - beta))
    root = c(ops.add, c(ops.sqrt, h), c.like(epsilon, h))
    exponent = c.cast(step, F32)
    powers = [c(ops.power, c.like(base, exponent), exponent) for base in (beta, alpha)]
    one = c.like(1, exponent)
    bias = c(ops.divide, c(ops.sqrt, c(ops.subtract, one, powers[0])), c(ops.subtract, one, powers[1]))
    started = c(ops.compare, step, c.like(0, step), direction="GT")
    rate = c(ops.select, started, c(ops.multiply, rate, c.cast(bias, c.dtype_of(rate))), rate)
    x = c(ops.subtract, x, c(ops.multiply, c.cast(rate, c.dtype_of(x)), c(ops.divide, v, root)))
    return [_times(c, x, 1 - c.real("norm_coefficient_post", 0.0)), v, h]


def _adagrad(c: NodeContext, rate: Node, step: Node, given: Sequence[Node]) -> Sequence[Node]:
    x, g, h = given
    decay = c(ops.add, _times(c, c.cast(step, c.dtype_of(rate)), c.real("decay_factor", 0.0)), c.like(1, rate))
    g = c(ops.add, _times(c, x, c.real("norm_coefficient", 0.0)), g)
    h = c(ops.add, h, c(ops.multiply, g, g))
    root = c(ops.add, c(ops.sqrt, h), c.like(c.real("epsilon", 1e-6), h))
    rate = c.cast(c(ops.divide, rate, decay), c.dtype_of(x))
    return [c(ops.subtract, x, c(ops.divide, c(ops.multiply, rate, g), root)), h]


def _momentum(c: NodeContext, rate: Node, step: Node, given: Sequence[Node]) -> Sequence[Node]:
    x, g, v = given
    alpha, beta = c.real("alpha"), c.real("beta")
    g = c(ops.add, _times(c, x, c.real("norm_coefficient")), g)
    first = c(ops.compare, step, c.like(0, step), direction="GT")
    factor = c(ops.select, first, c.like(beta, x), c.like(1, x))
    v = c(ops.add, _times(c, v, alpha), c(ops.multiply, factor, g))
    rate = c.cast(rate, c.dtype_of(x))
    if c.one_of("mode", "standard", "standard", "nesterov") == "nesterov":
        return [c(ops.subtract, x, c(ops.multiply, rate, c(ops.add, g, _times(c, v, alpha)))), v]
    return [c(ops.subtract, x, c(ops.multiply, rate, v)), v]


def _gradient(c: NodeContext) -> list[Node]:
    """The gradients of `y` by `xs`, at the values that these have in the model."""
    names, scope = c.texts("xs"), c.lowering.scope
    wanted = c.nodes()[: len(names)]
    if c.text("y") not in scope or any(n not in scope or scope[n] is not x for n, x in zip(names, wanted, strict=True)):
        raise Unsupported("a gradient at other values than those of the model")
    y = scope[c.text("y")]
    found = pullback(c.b, [y], [c.full(1, c.type_of(y))], wanted)
    return [g if g is not None else c.full(0, c.type_of(x)) for g, x in zip(found, wanted, strict=True)]


TRAINING: Rules = {
    "Gradient": _gradient,
    "Adam": _optimizer(_adam, 4), "Adagrad": _optimizer(_adagrad, 3), "Momentum": _optimizer(_momentum, 3),
}  # fmt: skip


# --- losses ----------------------------------------------------------------------------------------------------------


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
