"""Batch normalisation: training, inference and its gradient, over every axis but the feature's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Op, Operand
from deepx_graph.literal import Array
from deepx_graph.ops.declare import check_kind, like
from deepx_graph.ops.layout import check_axes
from deepx_graph.types import TensorType, TupleType, Type, as_tensor, merge_types, tensor

_ATTRS = (Attr("epsilon", "float"), Attr("feature_index", "int"))


def _features(types: Sequence[Type], feature_index: int, vectors: Sequence[int]) -> tuple[TensorType, TensorType]:
    operand = as_tensor(types[0], 0)
    check_kind(operand, ("float",), 0)
    if operand.dims is None:
        return operand, tensor(operand.dtype, None)
    check_axes((feature_index,), len(operand.dims), "feature_index")
    expected = tensor(operand.dtype, (operand.dims[feature_index],))
    for k in vectors:
        try:
            merge_types(expected, types[k])
        except InferError:
            raise InferError(f"operand {k} is a {types[k]}", operand=k, expected=str(expected)) from None
    return operand, expected


def _along(vector: Array, x: Array, feature: int) -> Array:
    return vector.reshape([-1 if k == feature else 1 for k in range(x.ndim)])


def _others(x: Array, feature: int) -> tuple[int, ...]:
    return tuple(k for k in range(x.ndim) if k != feature)


def _wide(xs: Sequence[Array]) -> list[Array]:
    return [x.astype(np.float32) if x.dtype.itemsize < 4 else x for x in xs]


def _training(xs: Sequence[Array], epsilon: float, feature: int) -> tuple[Array, Array, Array]:
    x, scale, offset = _wide(xs)
    mean = x.mean(axis=_others(x, feature))
    centered = x - _along(mean, x, feature)
    variance = (centered * centered).mean(axis=_others(x, feature))
    scaled = centered / np.sqrt(_along(variance, x, feature) + x.dtype.type(epsilon))
    result = scaled * _along(scale, x, feature) + _along(offset, x, feature)
    return like(result, xs[0].dtype), like(mean, xs[0].dtype), like(variance, xs[0].dtype)


def _training_type(types: Sequence[Type], epsilon: float, feature_index: int) -> Type:
    operand, vector = _features(types, feature_index, (1, 2))
    return TupleType((operand, vector, vector))


def _inference(xs: Sequence[Array], epsilon: float, feature: int) -> Array:
    x, scale, offset, mean, variance = _wide(xs)
    scaled = (x - _along(mean, x, feature)) / np.sqrt(_along(variance, x, feature) + x.dtype.type(epsilon))
    return like(scaled * _along(scale, x, feature) + _along(offset, x, feature), xs[0].dtype)


def _grad(xs: Sequence[Array], epsilon: float, feature: int) -> tuple[Array, Array, Array]:
    x, scale, mean, variance, g = _wide(xs)
    axes = _others(x, feature)
    count = x.dtype.type(x.size // max(1, x.shape[feature]))
    rstd = 1 / np.sqrt(_along(variance, x, feature) + x.dtype.type(epsilon))
    centered = x - _along(mean, x, feature)
    by_offset = g.sum(axis=axes)
    by_scale = (g * centered * rstd).sum(axis=axes)
    whole = g * count - _along(by_offset, x, feature) - centered * rstd * _along(by_scale, x, feature)
    by_x = _along(scale, x, feature) * rstd / count * whole
    return like(by_x, xs[0].dtype), like(by_scale, xs[0].dtype), like(by_offset, xs[0].dtype)


def _grad_type(types: Sequence[Type], epsilon: float, feature_index: int) -> Type:
    operand, vector = _features(types, feature_index, (1, 2, 3))
    merge_types(operand, types[4])
    return TupleType((operand, vector, vector))


def _samples(count: int, with_gradient: bool = False) -> Any:
    def samples(rng: Any) -> Any:
        vectors = [rng.uniform(0.5, 1.5, 4) for _ in range(count)]
        last = [rng.random((3, 4, 2))] if with_gradient else []
        return [((rng.random((3, 4, 2)), *vectors, *last), {"epsilon": 1e-3, "feature_index": 1})]

    return samples


batch_norm_training: Op = Op(
    "batch_norm_training", "The operand normalised over its own batch, with the mean and variance used.",
    operands=(Operand("operand"), Operand("scale"), Operand("offset")), attrs=_ATTRS, infer=_training_type, eval=_training,
    source="StableHLO batch_norm_training", samples=_samples(2),
)  # fmt: skip
batch_norm_inference: Op = Op(
    "batch_norm_inference", "The operand normalised by a given mean and variance.",
    operands=(Operand("operand"), Operand("scale"), Operand("offset"), Operand("mean"), Operand("variance")), attrs=_ATTRS,
    infer=lambda types, epsilon, feature_index: _features(types, feature_index, (1, 2, 3, 4))[0], eval=_inference,
    source="StableHLO batch_norm_inference", samples=_samples(4),
)  # fmt: skip
batch_norm_grad: Op = Op(
    "batch_norm_grad", "The gradients of batch_norm_training by operand, scale and offset.",
    operands=(Operand("operand"), Operand("scale"), Operand("mean"), Operand("variance"), Operand("grad_output")), attrs=_ATTRS,
    infer=_grad_type, eval=_grad, source="StableHLO batch_norm_grad", samples=_samples(3, with_gradient=True),
)  # fmt: skip

NORM: tuple[Op, ...] = (batch_norm_training, batch_norm_inference, batch_norm_grad)
