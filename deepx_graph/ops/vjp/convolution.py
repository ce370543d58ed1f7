"""The gradient of convolution: by each operand another convolution, in every configuration.

By the input it is the cotangent, spread by the strides, under the reversed kernel; by the kernel it is the input under the
cotangent, with batch and features exchanged. Feature groups become batch groups there and conversely.
"""

from __future__ import annotations

from deepx_graph.ir import Builder, Node
from deepx_graph.ir.op import Cotangents
from deepx_graph.ops.contract.convolution import convolution
from deepx_graph.ops.tensor.layout import reshape, reverse, transpose
from deepx_graph.ops.tensor.shape import dilated
from deepx_graph.types import as_tensor


def transposed_padding(size: int, window: int, stride: int, count: int, low: int, base: int, dilation: int) -> tuple[int, int]:
    """Padding, low and high, of a cotangent spread by `stride` whose windows, `base` apart, meet every operand element.

    `size` operand elements `base` apart gave `count` windows of `window` elements that are `dilation` apart.
    """
    reach = dilated(window, dilation)
    before = reach - low - 1
    return before, dilated(size, base) + reach - 1 - dilated(count, stride) - before


def convolution_vjp(b: Builder, node: Node, g: Node) -> Cotangents:
    """By each operand a convolution: of the cotangent with the reversed kernel, and of the input with the cotangent."""
    x, w = node.inputs
    if 0 in (*as_tensor(x.type).shape, *as_tensor(w.type).shape, *as_tensor(g.type).shape):
        return None, None
    return _by_input(b, node, g), _by_kernel(b, node, g)


_AXIS = ("input_spatial_dimensions", "kernel_spatial_dimensions", "output_spatial_dimensions", "window_strides", "padding_low",
         "lhs_dilation", "rhs_dilation")


def _spatial(node: Node) -> list[dict[str, int]]:
    """Sizes and window parameters of each spatial axis."""
    x, w, y = (as_tensor(n.type).shape for n in (*node.inputs, node))
    return [
        {"size": x[i], "window": w[k], "count": y[o], "stride": s, "low": low, "base": base, "dilation": d}
        for i, k, o, s, low, base, d in zip(*map(node.attr, _AXIS), strict=True)
    ]  # fmt: skip


def _by_input(b: Builder, node: Node, g: Node) -> Node:
    w, a = node.inputs[1], node.attr
    outputs, inputs = a("kernel_output_feature_dimension"), a("kernel_input_feature_dimension")
    groups, batch_groups = a("feature_group_count"), a("batch_group_count")
    w = _regrouped(b, w, outputs, inputs, groups * batch_groups)
    padding = [transposed_padding(**axis) for axis in _spatial(node)]
    found = b(
        convolution, g, w, window_strides=a("lhs_dilation"), lhs_dilation=a("window_strides"), rhs_dilation=a("rhs_dilation"),
        padding_low=tuple(p[0] for p in padding), padding_high=tuple(p[1] for p in padding),
        window_reversal=tuple(1 - int(r) for r in a("window_reversal")),
        input_batch_dimension=a("output_batch_dimension"), input_feature_dimension=a("output_feature_dimension"),
        input_spatial_dimensions=a("output_spatial_dimensions"),
        kernel_input_feature_dimension=outputs, kernel_output_feature_dimension=inputs,
        kernel_spatial_dimensions=a("kernel_spatial_dimensions"),
        output_batch_dimension=a("input_batch_dimension"), output_feature_dimension=a("input_feature_dimension"),
        output_spatial_dimensions=a("input_spatial_dimensions"), feature_group_count=groups * batch_groups,
    )  # fmt: skip
    return _regrouped(b, found, a("input_feature_dimension"), a("input_batch_dimension"), batch_groups)


def _by_kernel(b: Builder, node: Node, g: Node) -> Node:
    a = node.attr
    high = []
    for p in _spatial(node):
        spread = dilated(p["count"], p["stride"]) - dilated(p["size"], p["base"])
        high.append(spread + dilated(p["window"], p["dilation"]) - p["low"] - 1)
    found = b(
        convolution, node.inputs[0], g, window_strides=a("rhs_dilation"), lhs_dilation=a("lhs_dilation"),
        rhs_dilation=a("window_strides"), padding_low=a("padding_low"), padding_high=tuple(high),
        window_reversal=(0,) * len(high), input_batch_dimension=a("input_feature_dimension"),
        input_feature_dimension=a("input_batch_dimension"), input_spatial_dimensions=a("input_spatial_dimensions"),
        kernel_input_feature_dimension=a("output_batch_dimension"), kernel_output_feature_dimension=a("output_feature_dimension"),
        kernel_spatial_dimensions=a("output_spatial_dimensions"), output_batch_dimension=a("kernel_input_feature_dimension"),
        output_feature_dimension=a("kernel_output_feature_dimension"), output_spatial_dimensions=a("kernel_spatial_dimensions"),
        feature_group_count=a("batch_group_count"), batch_group_count=a("feature_group_count"),
    )  # fmt: skip
    reversed_axes = tuple(axis for axis, r in zip(a("kernel_spatial_dimensions"), a("window_reversal"), strict=True) if r)
    return b(reverse, found, dimensions=reversed_axes) if reversed_axes else found


def _regrouped(b: Builder, x: Node, source: int, target: int, groups: int) -> Node:
    """The groups that are the major part of one axis made the major part of another."""
    if groups == 1:
        return x
    shape = as_tensor(x.type).shape
    split = [*shape[:source], groups, shape[source] // groups, *shape[source + 1 :]]
    rest = [k for k in range(len(split)) if k != source]
    order = (*rest[:target], source, *rest[target:])
    joined = [size // groups if k == source else size * groups if k == target else size for k, size in enumerate(shape)]
    return b(reshape, b(transpose, b(reshape, x, shape=tuple(split)), permutation=order), shape=tuple(joined))
