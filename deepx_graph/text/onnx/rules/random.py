"""Operators that draw random numbers: by the seed of the run, or by their own. They are others than a runtime of ONNX draws."""

from __future__ import annotations

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import running
from deepx_graph.text.onnx.context import NodeContext, Rule, Rules
from deepx_graph.types import F32, F64, I32, I64, Dims, DType


def _seed(c: NodeContext) -> Node:
    """The seed of the node; where it has none, that of the run."""
    if c.given("seed"):
        return c.scalar(int(np.float32(c.real("seed")).view(np.uint32)), I64)
    return c(ops.module_seed, index=c.lowering.whole.next_draw())


def _drawn(c: NodeContext, normal: bool, low: float, high: float, dims: Dims, dtype: DType) -> Node:
    """Evenly from `low` to `high`, or normally of that mean and deviation."""
    kind = dtype if dtype in (F32, F64) else F32
    op = ops.rng_normal if normal else ops.rng_uniform
    return c.cast(c(op, c.scalar(low, kind), c.scalar(high, kind), _seed(c), shape=tuple(dims), dtype=kind), dtype)


def _bounds(c: NodeContext, normal: bool) -> tuple[float, float]:
    return (c.real("mean", 0.0), c.real("scale", 1.0)) if normal else (c.real("low", 0.0), c.real("high", 1.0))


def _shaped(normal: bool) -> Rule:
    return lambda c: _drawn(c, normal, *_bounds(c, normal), c.ints("shape"), c.element_type("dtype", F32))


def _like(normal: bool) -> Rule:
    return lambda c: _drawn(c, normal, *_bounds(c, normal), c.dims(), c.element_type("dtype", c.dtype()))


def _bernoulli(c: NodeContext) -> Node:
    """One where a number is below the probability."""
    x = c.node()
    wide = c.cast(x, F64)
    hit = c(ops.compare, _drawn(c, False, 0.0, 1.0, c.dims(), F64), wide, direction="LT")
    return c.cast(hit, c.element_type("dtype", c.dtype()))


def _multinomial(c: NodeContext) -> Node:
    """How many classes lie below a number, by the running total of their probabilities, which are given as logarithms."""
    count, (rows, classes) = c.number("sample_size", 1), c.shape()
    if count < 1 or rows * classes * count > c.limit:
        raise InferError(f"{count} samples of {rows} rows", expected="one or more")
    x = c.cast(c.node(), F64)
    most = c.broadcast_to(c.add_axes(ops.reduction(c.b, ops.maximum, x, (1,)), (1,)), c.dims_of(x))
    total = running(c, ops.add, c(ops.exponential, c(ops.subtract, x, most)), 1)
    dims = (rows, count, classes)
    drawn = _drawn(c, False, 0.0, 1.0, (rows, count), F64)
    last = c.shaped(c.sliced(total, (0, classes - 1), (rows, classes)), (rows,))
    limit = c.along(c(ops.multiply, drawn, c.along(last, (rows, count), (0,))), dims, (0, 1))
    passed = c.cast(c(ops.compare, c.along(total, dims, (0, 2)), limit, direction="LE"), I32)
    found = c(ops.minimum, ops.reduction(c.b, ops.add, passed, (2,)), c.scalar(classes - 1, I32))
    return c.cast(found, c.element_type("dtype", I32))


RANDOM: Rules = {
    "RandomUniform": _shaped(False), "RandomNormal": _shaped(True), "RandomUniformLike": _like(False),
    "RandomNormalLike": _like(True), "Bernoulli": _bernoulli, "Multinomial": _multinomial,
}  # fmt: skip
