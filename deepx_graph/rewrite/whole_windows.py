"""Convolutions that are matrix products: along each axis the one window has all of the input, or windows are single elements.

So are layers of networks whose windows are single elements, the gradients of their weights, and fully connected layers that are
written as convolutions. A product is cut into blocks for the caches, and reads operands where they lie; a convolution copies its
input.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.ir.structure import CONSTANT
from deepx_graph.ops import convolution, dot_general, reshape, slice_, transpose
from deepx_graph.types import TensorType, as_tensor, is_static

LEAST_RESULTS = 256
"""Results of a feature of an image: with fewer a convolution whose weights are constant is faster, as it packs them once."""


@dataclass(frozen=True)
class _Product:
    """The axes over which input and weights are contracted, the shape of the weights without axes of single elements, the step from
    one element of the input that is read to the next along each axis, whether the weights are the left operand, and which axis of
    the product each of the result's is that is not left out, as of windows that have all."""

    input_axes: tuple[int, ...]
    weight_axes: tuple[int, ...]
    weights: tuple[int, ...]
    strides: tuple[int, ...]
    is_turned: bool
    order: tuple[int, ...]


def as_products(function: Function) -> Function:
    """The function with such convolutions as products; itself where there is none."""
    found = {n: product for n in function.nodes if n.op is convolution and (product := _product_of(n)) is not None}
    if not found:
        return function
    b = Builder()

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        product = found.get(node)
        if product is None:
            return with_inputs(node, inputs)
        x, w = inputs
        shape = as_tensor(x.type).shape
        if set(product.strides) != {1}:
            x = b(slice_, x, start_indices=(0,) * len(shape), limit_indices=shape, strides=product.strides)
        if as_tensor(w.type).shape != product.weights:
            w = b(reshape, w, shape=product.weights)
        sides = [(x, product.input_axes), (w, product.weight_axes)]
        (left, left_axes), (right, right_axes) = reversed(sides) if product.is_turned else sides
        made = b(dot_general, left, right, lhs_contracting_dimensions=left_axes, rhs_contracting_dimensions=right_axes)
        if list(product.order) != sorted(product.order):
            made = b(transpose, made, permutation=product.order)
        return made if made.type == node.type else b(reshape, made, shape=as_tensor(node.type).shape)

    return rebuilt(function, step)


def _product_of(node: Node) -> _Product | None:
    """The product that a convolution is; None where it is none."""
    x, w = (i.type for i in node.inputs)
    if not isinstance(x, TensorType) or not isinstance(w, TensorType) or not all(map(is_static, (x, w, node.type))):
        return None
    a = node.attr
    if a("feature_group_count") != 1 or a("batch_group_count") != 1:
        return None
    spatial = list(zip(a("input_spatial_dimensions"), a("kernel_spatial_dimensions"), a("output_spatial_dimensions"),
                       a("window_strides"), a("padding_low"), a("padding_high"), a("lhs_dilation"), a("rhs_dilation"),
                       a("window_reversal"), strict=True))
    whole = [(i, k) for i, k, _, _, low, high, base, dilation, turned in spatial
             if w.shape[k] == x.shape[i] > 1 and (low, high, base, dilation, turned) == (0, 0, 1, 1, 0)]
    single = [(i, k, j, stride) for i, k, j, stride, low, high, base, *_ in spatial
              if w.shape[k] == 1 and (low, high, base) == (0, 0, 1)]
    if len(whole) + len(single) < len(spatial):
        return None
    results = math.prod(as_tensor(node.type).shape[j] for j in a("output_spatial_dimensions"))
    if not whole and node.inputs[1].op is CONSTANT and results < LEAST_RESULTS:
        return None
    left = [k for k in range(len(w.shape)) if k not in {k for _, k, *_ in single}]
    lies = dict([(a("input_batch_dimension"), a("output_batch_dimension")), *((i, j) for i, _, j, _ in single)])
    free, feature = [lies[axis] for axis in sorted(lies)], a("output_feature_dimension")
    is_turned = feature < max(free)
    made = [feature, *free] if is_turned else [*free, feature]
    axes = [(a("input_feature_dimension"), a("kernel_input_feature_dimension")), *whole]
    steps = {i: stride for i, _, _, stride in single}
    return _Product(tuple(i for i, _ in axes), tuple(left.index(k) for _, k in axes), tuple(w.shape[k] for k in left),
                    tuple(steps.get(i, 1) for i in range(len(x.shape))), is_turned, tuple(made.index(j) for j in sorted(made)))
