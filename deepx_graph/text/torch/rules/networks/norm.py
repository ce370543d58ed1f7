"""Normalisation: by batch, layer, group, instance."""

from __future__ import annotations

import math
from typing import Any

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import mean, total
from deepx_graph.text.common.nn import back
from deepx_graph.text.torch.context import CallContext, Rule, Rules
from deepx_graph.types import F32

Axes = tuple[int, ...]


def normal(c: CallContext, x: Node, axes: Axes, epsilon: float) -> tuple[Node, Node, Node]:
    """(x - mean) / sqrt(variance + epsilon), the mean and the inverse of the root."""
    middle = mean(c, x, axes)
    off = c(ops.subtract, x, back(c, middle, x, axes))
    spread = mean(c, c(ops.multiply, off, off), axes)
    scale = c(ops.rsqrt, c(ops.add, spread, c.like(epsilon, spread)))
    return c(ops.multiply, off, back(c, scale, x, axes)), middle, scale


def affine(c: CallContext, x: Node, weight: Node | None, bias: Node | None, axes: Axes) -> Node:
    """Times a weight and plus a bias, which have these axes."""
    for op, value in ((ops.multiply, weight), (ops.add, bias)):
        if value is not None:
            x = c(op, x, c.along(c.to(value, c.dtype_of(x)), c.dims_of(x), axes))
    return x


def wide(c: CallContext, x: Node) -> Node:
    """Narrow floats in single precision, as means and roots are computed."""
    return c.to(x, F32) if c.dtype_of(x).bits < 32 else x


# --- layer, group, instance -----------------------------------------------------------------------------------------


def _layer(c: CallContext) -> Any:
    """layer_norm and native_layer_norm, which also gives the mean and the inverse of the root, with their axes as ones."""
    x, dims = c.node(), c.dims_of(c.node())
    axes = tuple(range(len(dims) - len(c.ints(1)), len(dims)))
    made, middle, scale = normal(c, wide(c, x), axes, c.real(4, 1e-5) if not c.has("eps") else c.real("eps"))
    out = c.to(affine(c, made, c.optional("weight"), c.optional("bias"), axes), c.dtype_of(x))
    ones = [1 if k in axes else d for k, d in enumerate(dims)]
    return [out, c.shaped(middle, ones), c.shaped(scale, ones)]


def _first(rule: Rule) -> Rule:
    return lambda c: rule(c)[0]


def grouped(c: CallContext, x: Node, groups: int, weight: Node | None, bias: Node | None, epsilon: float) -> list[Node]:
    """Each group of channels of each example."""
    shape = c.shape_of(x)
    split = c.shaped(wide(c, x), (shape[0], groups, math.prod(shape[1:]) // max(groups, 1)))
    made, middle, scale = normal(c, split, (2,), epsilon)
    out = affine(c, c.shaped(made, shape), weight, bias, (1,))
    return [c.to(out, c.dtype_of(x)), middle, scale]


def _group(c: CallContext) -> Node:
    return grouped(c, c.node(), c.number("num_groups"), c.optional("weight"), c.optional("bias"), c.real("eps", 1e-5))[0]


def _native_group(c: CallContext) -> list[Node]:
    return grouped(c, c.node(), c.number("group"), c.optional("weight"), c.optional("bias"), c.real("eps"))


def _instance(c: CallContext) -> Node:
    x, epsilon = c.node(), c.real("eps", 1e-5)
    if not c.flag("use_input_stats", True):
        return fixed(c, x, c.node("running_mean"), c.node("running_var"), c.optional("weight"), c.optional("bias"), epsilon)
    axes = tuple(range(2, len(c.dims_of(x))))
    made = normal(c, wide(c, x), axes, epsilon)[0]
    return c.to(affine(c, made, c.optional("weight"), c.optional("bias"), (1,)), c.dtype_of(x))


def _rms(c: CallContext) -> Any:
    x, dims = c.node(), c.dims_of(c.node())
    axes = tuple(range(len(dims) - len(c.ints(1)), len(dims)))
    inner = wide(c, x)
    epsilon = c.real("eps", 1.1920928955078125e-07 if c.dtype_of(inner) is F32 else 2.220446049250313e-16)
    square = mean(c, c(ops.multiply, inner, inner), axes)
    scale = c(ops.rsqrt, c(ops.add, square, c.like(epsilon, square)))
    made = c(ops.multiply, inner, back(c, scale, inner, axes))
    out = c.to(affine(c, made, c.optional("weight"), None, axes), c.dtype_of(x))
    return [out, c.shaped(scale, [1 if k in axes else d for k, d in enumerate(dims)])]


# --- batch ----------------------------------------------------------------------------------------------------------


def fixed(c: CallContext, x: Node, middle: Node, spread: Node, weight: Node | None, bias: Node | None, epsilon: float) -> Node:
    """By a mean and a variance that are given."""
    inner, dims = wide(c, x), c.dims_of(x)
    scale = c(ops.rsqrt, c(ops.add, spread, c.like(epsilon, spread)))
    off = c(ops.subtract, inner, c.along(c.to(middle, c.dtype_of(inner)), dims, (1,)))
    made = c(ops.multiply, off, c.along(c.to(scale, c.dtype_of(inner)), dims, (1,)))
    return c.to(affine(c, made, weight, bias, (1,)), c.dtype_of(x))


def trained(c: CallContext, x: Node, weight: Node | None, bias: Node | None, epsilon: float) -> tuple[Node, Node, Node, Node]:
    """By the batch's own: the result, the mean, the inverse of the root, and the variance with one degree of freedom less."""
    axes = tuple(k for k in range(len(c.dims_of(x))) if k != 1)
    inner = wide(c, x)
    made, middle, scale = normal(c, inner, axes, epsilon)
    off = c(ops.subtract, inner, back(c, middle, inner, axes))
    count = math.prod(d for k, d in enumerate(c.shape_of(x)) if k != 1)
    squares = total(c, ops.add, c(ops.multiply, off, off), axes)
    return (c.to(affine(c, made, weight, bias, (1,)), c.dtype_of(x)), middle, scale,
            c(ops.divide, squares, c.like(max(count - 1, 1), squares)))


def moved(c: CallContext, old: Node, new: Node, momentum: float) -> Node:
    """A running value nearer to a new one."""
    parts = [c(ops.multiply, v, c.like(f, v)) for v, f in ((c.to(new, c.dtype_of(old)), momentum), (old, 1 - momentum))]
    return c(ops.add, *parts)


def _batch(c: CallContext) -> Node:
    """batch_norm: when it trains it writes the running values."""
    x, weight, bias = c.node(0), c.optional("weight"), c.optional("bias")
    epsilon = c.real("eps", 1e-5)
    if not c.flag("training"):
        return fixed(c, x, c.node("running_mean"), c.node("running_var"), weight, bias, epsilon)
    made, middle, _, spread = trained(c, x, weight, bias, epsilon)
    for name, new in (("running_mean", middle), ("running_var", spread)):
        if c.has(name):
            c.write(name, moved(c, c.node(name), new, c.real("momentum", 0.1)))
    return made


def _native_batch(c: CallContext) -> list[Node]:
    """_native_batch_norm_legit and its kin: the result, and what a gradient would read."""
    word = c.call.operator
    x, weight, bias = c.node(0), c.optional("weight"), c.optional("bias")
    epsilon, momentum = c.real("eps"), c.real("momentum", 0.1)
    stats = c.has("running_mean") and c.has("running_var")
    training = "no_training" not in word and (not stats or c.flag("training", "no_stats" in word))
    if not training:
        empty = c.full(0, c.type_of(wide(c, x)).with_dims((0,)))
        return [fixed(c, x, c.node("running_mean"), c.node("running_var"), weight, bias, epsilon), empty, empty]
    made, middle, scale, spread = trained(c, x, weight, bias, epsilon)
    if not stats:
        return [made, middle, scale]
    running = [moved(c, c.node(name), new, momentum) for name, new in (("running_mean", middle), ("running_var", spread))]
    if "functional" in word:
        return [made, middle, scale, *running]
    for name, new in zip(("running_mean", "running_var"), running, strict=True):
        c.write(name, new)
    return [made, middle, scale]


# --- others ---------------------------------------------------------------------------------------------------------


def _cosine(c: CallContext) -> Node:
    x, y = c.pair()
    axis, least = (c.axis(2, 1, x),), c.real(3, 1e-8)

    def unit(v: Node) -> Node:
        size = c(ops.sqrt, total(c, ops.add, c(ops.multiply, v, v), axis))
        return c(ops.divide, v, back(c, c(ops.maximum, size, c.like(least, size)), v, axis))

    return total(c, ops.add, c(ops.multiply, unit(x), unit(y)), axis)


def _weight_norm(c: CallContext) -> Any:
    """The direction of a weight times its length, which is a parameter of its own."""
    v, g, axis = c.node(0), c.node(1), c.number(2, 0) % max(1, len(c.dims_of(c.node(0))))
    axes = tuple(k for k in range(len(c.dims_of(v))) if k != axis)
    size = c(ops.sqrt, total(c, ops.add, c(ops.multiply, v, v), axes))
    made = c(ops.multiply, v, back(c, c(ops.divide, c.shaped(g, c.dims_of(size)), size), v, axes))
    return [made, c.shaped(size, c.dims_of(g))]


NORM: Rules = {
    "layer_norm": _first(_layer), "native_layer_norm": _layer, "group_norm": _group, "native_group_norm": _native_group,
    "instance_norm": _instance, "rms_norm": _first(_rms), "_fused_rms_norm": _rms, "batch_norm": _batch,
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
                     "_native_batch_norm_legit_functional"), _native_batch),
    "cosine_similarity": _cosine, "_weight_norm_interface": _weight_norm, "_weight_norm": _first(_weight_norm),
}  # fmt: skip
