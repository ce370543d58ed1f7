"""Convolutions that are matrix products: along an axis the one window has all of the input, or windows are single elements.

So are the gradients of the weights of layers whose windows are single elements, and fully connected layers that are written as
convolutions. A product of so many terms is cut into blocks for the caches; a convolution lays all of its input out for each result.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.ops.contract.convolution import convolution
from deepx_graph.ops.contract.linear import dot_general
from deepx_graph.ops.tensor.layout import reshape
from deepx_graph.types import TensorType, as_tensor, is_static


@dataclass(frozen=True)
class _Product:
    """The axes over which input and weights are contracted, the shape of the weights without axes of single elements, and whether
    the weights are the left operand, as the results lie then."""

    input_axes: tuple[int, ...]
    weight_axes: tuple[int, ...]
    weights: tuple[int, ...]
    is_turned: bool


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
        x, w = inputs[0], b(reshape, inputs[1], shape=product.weights)
        sides = [(x, product.input_axes), (w, product.weight_axes)]
        (left, left_axes), (right, right_axes) = reversed(sides) if product.is_turned else sides
        made = b(dot_general, left, right, lhs_contracting_dimensions=left_axes, rhs_contracting_dimensions=right_axes)
        return b(reshape, made, shape=as_tensor(node.type).shape)

    return rebuilt(function, step)


def _product_of(node: Node) -> _Product | None:
    """The product that a convolution is; None where it is none, or its results would have to be transposed."""
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
    single = [(i, k, j) for i, k, j, stride, low, high, base, *_ in spatial
              if w.shape[k] == 1 and (stride, low, high, base) == (1, 0, 0, 1)]
    if len(whole) + len(single) < len(spatial) or not whole:
        return None
    removed = {k for _, k, _ in single}
    left = [k for k in range(len(w.shape)) if k not in removed]
    lies = dict([(a("input_batch_dimension"), a("output_batch_dimension")), *((i, j) for i, _, j in single)])
    free, feature = [lies[axis] for axis in sorted(lies)], a("output_feature_dimension")
    if sorted(free) != free or free[0] < feature < free[-1]:
        return None
    axes = [(a("input_feature_dimension"), a("kernel_input_feature_dimension")), *whole]
    return _Product(tuple(i for i, _ in axes), tuple(left.index(k) for _, k in axes), tuple(w.shape[k] for k in left),
                    feature < free[0])
