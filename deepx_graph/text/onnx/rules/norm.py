"""Normalisation and dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import mean
from deepx_graph.text.common.nn import back, local_response
from deepx_graph.text.common.steps import Unsupported, axis_of
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.types import BOOL, F32, DType

Axes = tuple[int, ...]


def normal(c: NodeContext, x: Node, axes: Axes, epsilon: float, centred: bool = True) -> tuple[Node, Node, Node]:
    """(x - mean) / sqrt(variance + epsilon), the mean and the inverse of the root; about zero where it is not centred."""
    middle = mean(c, x, axes)
    off = c(ops.subtract, x, back(c, middle, x, axes)) if centred else x
    spread = mean(c, c(ops.multiply, off, off), axes)
    scale = c(ops.divide, c.like(1, spread), c(ops.sqrt, c(ops.add, spread, c.like(epsilon, spread))))
    return c(ops.multiply, off, back(c, scale, off, axes)), middle, scale


def affine(c: NodeContext, x: Node, scale: Node | None, offset: Node | None, axis: int) -> Node:
    """Times a scale and plus an offset, one for each place along an axis."""
    dims = c.dims_of(x)
    if scale is not None:
        x = c(ops.multiply, x, c.along(c.cast(scale, c.dtype_of(x)), dims, (axis,)))
    return x if offset is None else c(ops.add, x, c.along(c.cast(offset, c.dtype_of(x)), dims, (axis,)))


def working(c: NodeContext, stash: int = 1) -> DType:
    """The type in which a norm is computed: no narrower than single precision."""
    return F32 if c.dtype().bits < 32 and stash else c.dtype()


def _batch_norm(c: NodeContext) -> Any:
    x, dtype = c.node(), c.dtype()
    scale, offset, average, variance = (c.node(k) for k in range(1, 5))
    epsilon, momentum = c.real("epsilon", 1e-5), c.real("momentum", 0.9)
    if c.version < 9 and not c.flag("spatial", True):
        raise Unsupported("a batch norm for each element")
    if c.rank() < 2:
        x = c.add_axes(x, (1,))
    training = c.flag("training_mode") if c.version >= 14 else c.wanted > 1 if c.version >= 7 else not c.flag("is_test")
    dims, axis = c.dims_of(x), 1
    wide = F32 if dtype.bits < 32 else dtype
    x = c.cast(x, wide)
    old_average, old_variance = average, variance
    if training:
        axes = tuple(k for k in range(len(dims)) if k != axis)
        now = mean(c, x, axes)
        off = c(ops.subtract, x, back(c, now, x, axes))
        spread = mean(c, c(ops.multiply, off, off), axes)
        kept = [_moved(c, old, new, momentum) for old, new in ((old_average, now), (old_variance, spread))]
        average, variance = now, spread
    root = c(ops.sqrt, c(ops.add, c.cast(variance, wide), c.like(epsilon, x)))
    found = c(ops.divide, c(ops.subtract, x, c.along(c.cast(average, wide), dims, (axis,))), c.along(root, dims, (axis,)))
    made = c.shaped(c.cast(affine(c, found, scale, offset, axis), dtype), c.dims())
    if not training:
        return [made, old_average, old_variance]
    return [made, *kept, *(() if c.version >= 14 else (average, variance))]


def _moved(c: NodeContext, old: Node, new: Node, momentum: float) -> Node:
    new = c.cast(new, c.dtype_of(old))
    return c(ops.add, c(ops.multiply, old, c.like(momentum, old)), c(ops.multiply, new, c.like(1 - momentum, new)))


def _instance_norm(c: NodeContext) -> Node:
    rank, dtype = c.rank(), c.dtype()
    x, _, _ = normal(c, c.cast(c.node(), working(c)), tuple(range(2, rank)), c.real("epsilon", 1e-5))
    return c.cast(affine(c, x, c.node(1), c.node(2), 1), dtype)


def _group_norm(c: NodeContext) -> Node:
    shape, groups = c.shape(), c.number("num_groups")
    if groups < 1 or shape[1] % groups:
        raise InferError(f"{shape[1]} channels do not make {groups} groups")
    wide = working(c, c.number("stash_type", 1))
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    x, _, _ = normal(c, c.shaped(c.cast(c.node(), wide), split), tuple(range(2, len(split))), c.real("epsilon", 1e-5))
    if c.version < 21:
        return c.cast(c.shaped(affine(c, x, c.node(1), c.node(2), 1), shape), c.dtype())
    # the second stage is in the type of the operand
    return affine(c, c.cast(c.shaped(x, shape), c.dtype()), c.node(1), c.node(2), 1)


def layer_norm(c: NodeContext, centred: bool = True) -> Any:
    """LayerNormalization with the mean and the inverse deviation; RMSNormalization where it is not centred."""
    dims = c.dims()
    axis = c.axis(default=-1)
    axes = tuple(range(axis, len(dims)))
    wide = working(c, c.number("stash_type", 1))
    x, middle, scale = normal(c, c.cast(c.node(), wide), axes, c.real("epsilon", 1e-5), centred)
    made = c.cast(x, c.dtype())
    made = c(ops.multiply, made, c.broadcast_to(c.cast(c.node(1), c.dtype()), dims)) if c.has(1) else made
    if not centred:
        return made
    made = c(ops.add, made, c.broadcast_to(c.cast(c.node(2), c.dtype()), dims)) if c.has(2) else made
    kept = [1 if k in axes else d for k, d in enumerate(dims)]
    return [made, c.shaped(middle, kept), c.shaped(scale, kept)]


def _rms_norm(c: NodeContext) -> Any:
    return layer_norm(c, centred=False)


def _lrn(c: NodeContext) -> Node:
    return local_response(c, c.node(), 1, c.number("size"), c.real("alpha", 1e-4), c.real("beta", 0.75), c.real("bias", 1.0))


def _lp_norm(c: NodeContext) -> Node:
    x, axes = c.node(), (c.axis(default=-1),)
    if c.number("p", 2) == 1:
        size = ops.reduction(c.b, ops.add, c(ops.abs_, x), axes)
    else:
        size = c(ops.sqrt, ops.reduction(c.b, ops.add, c(ops.multiply, x, x), axes))
    zero = c(ops.compare, size, c.like(0, size), direction="EQ")
    safe = c(ops.select, zero, c.full(1, c.type_of(size)), size)
    return c(ops.divide, x, back(c, safe, x, axes))


def _mean_variance(c: NodeContext) -> Node:
    rank = c.rank()
    axes = tuple(sorted(axis_of(a, rank) for a in c.ints("axes", (0, 2, 3))))
    x = c.node()
    middle = mean(c, x, axes)
    off = c(ops.subtract, x, back(c, middle, x, axes))
    square = mean(c, c(ops.multiply, x, x), axes)
    spread = c(ops.sqrt, c(ops.subtract, square, c(ops.multiply, middle, middle)))
    return c(ops.divide, off, back(c, c(ops.add, spread, c.like(1e-9, spread)), x, axes))


def _dropout(c: NodeContext) -> Any:
    """In inference nothing is dropped; in training what numpy's generator says for the seed, as the standard's own data has it."""
    training = c.version >= 12 and c.has(2) and bool(c.number_at(2))
    ratio = float(c.number_at(1)) if c.version >= 12 and c.has(1) else c.real("ratio", 0.5)
    x = c.node()
    if training and ratio:
        if not c.given("seed"):
            raise Unsupported("dropout in training without a seed")
        if ratio >= 1 or math.prod(c.shape()) > c.limit:
            raise InferError(f"a ratio of {ratio} for {c.type()}", expected="less than 1")
        kept = np.random.RandomState(c.number("seed") & 0xFFFF_FFFF).uniform(0, 1, c.shape()) >= ratio
        mask = c.constant(kept, BOOL)
        return [c(ops.multiply, c(ops.multiply, x, c.cast(mask, c.dtype())), c.like(1 / (1 - ratio), x)), mask]
    return [x, c.full(True, c.type().with_dtype(BOOL)) if c.version >= 10 else c.full(1, c.type())]


NORM: Rules = {
    "BatchNormalization": _batch_norm, "InstanceNormalization": _instance_norm, "GroupNormalization": _group_norm,
    "LayerNormalization": layer_norm, "RMSNormalization": _rms_norm, "LRN": _lrn, "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance, "Dropout": _dropout,
}  # fmt: skip
