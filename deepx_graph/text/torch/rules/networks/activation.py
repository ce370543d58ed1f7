"""Activation functions and dropout."""

from __future__ import annotations

from typing import Any

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.text.common.activations import gelu_of, hard_sigmoid_of, softplus_of
from deepx_graph.text.common.elements import part_of
from deepx_graph.text.torch.context import CallContext, Rules
from deepx_graph.text.torch.rules.create import drawn
from deepx_graph.text.torch.rules.elementwise import above, chosen, formula, times
from deepx_graph.types import BOOL, F32, as_tensor


def _relu(c: CallContext) -> Node:
    return c(ops.maximum, c.node(), c.like(0, c.node()))


def _hardtanh(c: CallContext) -> Node:
    x = c.node()
    return c(ops.clamp, c.like(c.real(1, -1), x), x, c.like(c.real(2, 1), x))


def _leaky_relu(c: CallContext, x: Node) -> Node:
    return above(c, x, 0, x, times(c, x, c.real(1, 0.01)))


def _elu(c: CallContext, x: Node) -> Node:
    alpha, scale, inner = c.real(1, 1.0), c.real(2, 1.0), c.real(3, 1.0)
    low = times(c, c(ops.exponential_minus_one, times(c, x, inner)), alpha * scale)
    return above(c, x, 0, times(c, x, scale), low)


def _celu(c: CallContext, x: Node) -> Node:
    alpha = c.real(1, 1.0)
    low = times(c, c(ops.exponential_minus_one, c(ops.divide, x, c.like(alpha, x))), alpha)
    return above(c, x, 0, x, low)


def _selu(c: CallContext, x: Node) -> Node:
    alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    low = times(c, c(ops.exponential_minus_one, x), alpha * scale)
    return above(c, x, 0, times(c, x, scale), low)


def _gelu(c: CallContext, x: Node) -> Node:
    return gelu_of(c, x, c.one_of("approximate", "none", "none", "tanh") == "tanh")


def _softplus(c: CallContext, x: Node) -> Node:
    beta, threshold = c.real(1, 1.0), c.real(2, 20.0)
    wide = times(c, x, beta)
    soft = c(ops.divide, softplus_of(c, wide), c.like(beta, x))
    return above(c, wide, threshold, x, soft)


def _silu(c: CallContext, x: Node) -> Node:
    return c(ops.multiply, x, c(ops.logistic, x))


def _mish(c: CallContext, x: Node) -> Node:
    return c(ops.multiply, x, c(ops.tanh, softplus_of(c, x)))


def log_sigmoid(c: CallContext, x: Node) -> Node:
    return c(ops.negate, softplus_of(c, c(ops.negate, x)))


def _log_sigmoid(c: CallContext) -> Any:
    made = log_sigmoid(c, c.node())
    return made if len(c.declared) < 2 else [made, c(ops.exponential, c(ops.negate, c(ops.abs_, c.node())))]


def _hard_swish(c: CallContext, x: Node) -> Node:
    return c(ops.multiply, x, hard_sigmoid_of(c, x, 1 / 6, 0.5))


def _prelu(c: CallContext) -> Node:
    x, weight = c.node(), c.node(1)
    dims, sizes = c.dims_of(x), c.dims_of(weight)
    line = (
        c.shaped(weight, ())
        if sizes in ((), (1,))
        else c.along(weight, dims, (1,))
        if len(sizes) == 1 and len(dims) > 1
        else (c.broadcast_to(weight, dims))
    )
    return above(c, x, 0, x, c(ops.multiply, x, line))


def _threshold(c: CallContext) -> Node:
    x = c.node()
    return above(c, x, c.real(1), x, c.like(c.real(2), x))


def _hard_shrink(c: CallContext, x: Node) -> Node:
    return above(c, c(ops.abs_, x), c.real(1, 0.5), x, c.like(0, x))


def _soft_shrink(c: CallContext, x: Node) -> Node:
    most = c.real(1, 0.5)
    low = chosen(c, c(ops.compare, x, c.like(-most, x), direction="LT"), c(ops.add, x, c.like(most, x)), c.like(0, x))
    return above(c, x, most, c(ops.subtract, x, c.like(most, x)), low)


def _glu(c: CallContext) -> Node:
    x = c.node()
    axis = c.axis("dim", -1)
    half = c.shape_of(x)[axis] // 2
    return c(ops.multiply, part_of(c, x, axis, 0, half), c(ops.logistic, part_of(c, x, axis, half, 2 * half)))


def dropped(c: CallContext, x: Node, p: float) -> list[Node]:
    """Elements that a draw keeps, scaled up, and which these are; other ones than torch draws."""
    uniform = drawn(c, False, c.dims_of(x), F32)
    kept = c(ops.compare, uniform, c.like(p, uniform), direction="GE")
    scaled = times(c, x, 1 / (1 - p)) if p < 1 else x
    return [chosen(c, kept, scaled, c.like(0, x)), kept]


def _dropout(c: CallContext) -> Node:
    p = c.real(1)
    return dropped(c, c.node(), p)[0] if c.flag(2) and p > 0 else c.node()


def _native_dropout(c: CallContext) -> list[Node]:
    p, x = c.real(1), c.node()
    if c.get(2) is not False and p > 0:
        return dropped(c, x, p)
    return [x, c.full(True, as_tensor(x.type).with_dtype(BOOL))]


ACTIVATION: Rules = {
    "relu": _relu, "relu6": lambda c: c(ops.clamp, c.like(0, c.node()), c.node(), c.like(6, c.node())), "hardtanh": _hardtanh,
    **{name: formula(build) for name, build in {
        "leaky_relu": _leaky_relu, "elu": _elu, "celu": _celu, "selu": _selu, "gelu": _gelu, "softplus": _softplus, "silu": _silu,
        "mish": _mish, "hardswish": _hard_swish, "hardshrink": _hard_shrink, "softshrink": _soft_shrink,
        "hardsigmoid": lambda c, x: hard_sigmoid_of(c, x, 1 / 6, 0.5),
    }.items()},
    "log_sigmoid": _log_sigmoid, "log_sigmoid_forward": _log_sigmoid, "prelu": _prelu, "_prelu_kernel": _prelu,
    "threshold": _threshold, "glu": _glu, **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout"), _dropout),
    "native_dropout": _native_dropout,
}  # fmt: skip
