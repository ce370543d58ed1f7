"""Batch normalisation: training, inference and its gradient, over every axis but the feature's.

The gradients say it in elementary operations; that of training is batch_norm_grad.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.ir import Attr, Builder, Node, Op, Operand, Relation, Result
from deepx_graph.ir.constraint import FLOATS, NON_NEGATIVE, axes_of, listed, rank, same_element_type, same_shape
from deepx_graph.ir.evaluation import wide
from deepx_graph.ir.op import Cotangents
from deepx_graph.literal import Array
from deepx_graph.ops.contract.reduce import broadcast_in_dim, reduction
from deepx_graph.ops.factors.contract import BATCH_NORM, BATCH_NORM_INFERENCE
from deepx_graph.ops.helpers import like, loops_in
from deepx_graph.ops.math.elementwise import add, divide, multiply, rsqrt, subtract
from deepx_graph.ops.vjp.accumulate import through
from deepx_graph.types import TensorType, TupleType, Type, as_tensor, same_dim, tensor

_ATTRS = (Attr("epsilon", "float"), Attr("feature_index", "int", check=NON_NEGATIVE))


_X = Operand("operand", type=FLOATS)


def _vectors(*names: str) -> tuple[Operand, ...]:
    return tuple(Operand(n, type=FLOATS & rank(1, 1)) for n in names)


def _constraints(*vectors: str) -> tuple[Relation, ...]:
    """The vectors have one value for each feature, of the operand's element type."""
    def fits(operand: TensorType, feature: int, *given: TensorType) -> bool:
        return operand.dims is None or all(t.dims is None or same_dim(t.dims[0], operand.dims[feature]) for t in given)

    return (axes_of("operand", "feature_index"), same_element_type("operand", *vectors),
            Relation(f"one value of {listed(vectors)} for each feature of operand", ("operand", "feature_index", *vectors), fits))


def _of_features(type: Type, feature_index: int) -> TensorType:
    """The type of a vector with one value for each feature."""
    operand = as_tensor(type, 0)
    return tensor(operand.dtype, None if operand.dims is None else (operand.dims[feature_index],))


def _along(vector: Array, x: Array, feature: int) -> Array:
    return vector.reshape([-1 if k == feature else 1 for k in range(x.ndim)])


def _others(x: Array, feature: int) -> tuple[int, ...]:
    return tuple(k for k in range(x.ndim) if k != feature)


def _wide(xs: Sequence[Array]) -> list[Array]:
    return [x.astype(np.float32) if x.dtype.itemsize < 4 else x for x in xs]


def _sum(x: Array, axes: tuple[int, ...]) -> Array:
    """Not rounded to the type of x."""
    assert add.monoid is not None
    return np.asarray(add.monoid.unrounded(x, axes))


def _training(xs: Sequence[Array], epsilon: float, feature: int) -> tuple[Array, Array, Array]:
    x, scale, offset = _wide(xs)
    axes, count = _others(x, feature), x.size // max(1, x.shape[feature])
    mean = _sum(x, axes) / count
    centered = np.subtract(x, _along(mean, x, feature), out=np.empty_like(x), casting="same_kind")
    variance = _sum(centered * centered, axes) / count
    scaled = centered / np.sqrt(_along(like(variance, x.dtype), x, feature) + x.dtype.type(epsilon))
    result = scaled * _along(scale, x, feature) + _along(offset, x, feature)
    return like(result, xs[0].dtype), like(mean, xs[0].dtype), like(variance, xs[0].dtype)


def _scratch(copies: int) -> Callable[..., int]:
    """So many tensors as large as the operand, in f32 at least."""
    return lambda types, result, *attrs: copies * wide(types[0], 4)


def _training_type(types: Sequence[Type], epsilon: float, feature_index: int) -> Type:
    vector = _of_features(types[0], feature_index)
    return TupleType((types[0], vector, vector))


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
    by_offset, by_scale = (like(_sum(terms, axes), x.dtype) for terms in (g, g * centered * rstd))
    whole = g * count - _along(by_offset, x, feature) - centered * rstd * _along(by_scale, x, feature)
    by_x = _along(scale, x, feature) * rstd / count * whole
    return like(by_x, xs[0].dtype), like(by_scale, xs[0].dtype), like(by_offset, xs[0].dtype)


# --- gradients ----------------------------------------------------------------------------------------------------


class _Terms:
    """The operand of a batch normalisation, and what all three operations are made of."""

    def __init__(self, b: Builder, node: Node) -> None:
        self.b, self.x = b, node.inputs[0]
        self.epsilon, self.feature = node.attr("epsilon"), node.attr("feature_index")
        self.shape = as_tensor(self.x.type).shape
        self.others = tuple(k for k in range(len(self.shape)) if k != self.feature)
        self.count = math.prod(self.shape[k] for k in self.others)

    def along(self, vector: Node) -> Node:
        """One number for each feature, for every element of the operand."""
        return self.b(broadcast_in_dim, vector, shape=self.shape, broadcast_dimensions=(self.feature,))

    def total(self, x: Node) -> Node:
        return reduction(self.b, add, x, self.others)

    def mean(self, x: Node) -> Node:
        total = self.total(x)
        return self.b(divide, total, self.b.like(self.count, total))

    def centered(self, mean: Node) -> Node:
        return self.b(subtract, self.x, self.along(mean))

    def variance(self) -> Node:
        centered = self.centered(self.mean(self.x))
        return self.mean(self.b(multiply, centered, centered))

    def scale(self, variance: Node) -> Node:
        """One over the standard deviation."""
        return self.along(self.b(rsqrt, self.b(add, variance, self.b.like(self.epsilon, variance))))


def _batch_norm_training_vjp(b: Builder, node: Node, g: Sequence[Node | None]) -> Cotangents:
    """By operand, scale and offset; the mean and the variance depend on the operand alone."""
    x, scale, _ = node.inputs
    found: list[Node | None] = [None, None, None]
    if g[0] is not None:
        found = list(b.items(b(batch_norm_grad, x, scale, b.proj(node, 1), b.proj(node, 2), g[0], **node.named_attrs)))
    terms = _Terms(b, node)
    if g[1] is not None or g[2] is not None:
        more = through(b, node, [terms.mean(x), terms.variance()], tuple(g[1:]))[0]
        found[0] = more if found[0] is None or more is None else b(add, found[0], more)
    return found


def _batch_norm_inference_vjp(b: Builder, node: Node, g: Node) -> Cotangents:
    """By all five operands."""
    _, scale, offset, mean, variance = node.inputs
    terms = _Terms(b, node)
    scaled = b(multiply, b(multiply, terms.centered(mean), terms.scale(variance)), terms.along(scale))
    return through(b, node, [b(add, scaled, terms.along(offset))], g)


def _batch_norm_grad_vjp(b: Builder, node: Node, g: Sequence[Node | None]) -> Cotangents:
    """By all five operands: what second derivatives need."""
    _, scale, mean, variance, cotangent = node.inputs
    terms = _Terms(b, node)
    normal = b(multiply, terms.centered(mean), terms.scale(variance))
    by_offset, by_scale = terms.total(cotangent), terms.total(b(multiply, cotangent, normal))
    count = b.like(terms.count, cotangent)
    rest = b(add, terms.along(by_offset), b(multiply, normal, terms.along(by_scale)))
    whole = b(subtract, cotangent, b(divide, rest, count))
    by_x = b(multiply, b(multiply, terms.along(scale), terms.scale(variance)), whole)
    return through(b, node, [by_x, by_scale, by_offset], tuple(g))


def _samples(count: int, with_gradient: bool = False) -> Any:
    def samples(rng: Any) -> Any:
        cases = []
        for shape, epsilon, feature in (((3, 4, 2), 1e-3, 1), ((3, 2, 4), 0.25, 2)):
            vectors = [rng.uniform(0.5, 1.5, 4) for _ in range(count)]
            last = [rng.random(shape)] if with_gradient else []
            cases.append(((rng.random(shape), *vectors, *last), {"epsilon": epsilon, "feature_index": feature}))
        return cases

    return samples


batch_norm_training: Op = Op(
    "batch_norm_training", "The operand normalised over its own batch, with the mean and variance used.",
    operands=(_X, *_vectors("scale", "offset")), attrs=_ATTRS,
    constraints=_constraints("scale", "offset"),
    results=tuple(map(Result, ("output", "batch_mean", "batch_var"))), sharding=BATCH_NORM, infer=_training_type, eval=_training,
    loops=loops_in("contract", "batch_norm_training_loops"), scratch=_scratch(4),
    vjp=_batch_norm_training_vjp,
    source="StableHLO batch_norm_training", samples=_samples(2),
)  # fmt: skip
batch_norm_inference: Op = Op(
    "batch_norm_inference", "The operand normalised by a given mean and variance.",
    operands=(_X, *_vectors("scale", "offset", "mean", "variance")), attrs=_ATTRS,
    constraints=_constraints("scale", "offset", "mean", "variance"),
    sharding=BATCH_NORM_INFERENCE, infer=lambda types, epsilon, feature_index: types[0], eval=_inference,
    element=loops_in("contract", "batch_norm_inference_element"), scratch=_scratch(4),
    vjp=_batch_norm_inference_vjp,
    source="StableHLO batch_norm_inference", samples=_samples(4),
)  # fmt: skip
batch_norm_grad: Op = Op(
    "batch_norm_grad", "The gradients of batch_norm_training by operand, scale and offset.",
    operands=(_X, *_vectors("scale", "mean", "variance"), Operand("grad_output", type=FLOATS)), attrs=_ATTRS,
    constraints=(*_constraints("scale", "mean", "variance"), same_shape("operand", "grad_output"),
                 same_element_type("operand", "grad_output")),
    results=tuple(map(Result, ("grad_operand", "grad_scale", "grad_offset"))),
    sharding=BATCH_NORM, infer=_training_type, eval=_grad, loops=loops_in("contract", "batch_norm_grad_loops"), scratch=_scratch(7),
    vjp=_batch_norm_grad_vjp,
    source="StableHLO batch_norm_grad", samples=_samples(3, with_gradient=True),
)  # fmt: skip
