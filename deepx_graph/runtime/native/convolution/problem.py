"""A convolution in one form, whatever its layout: sizes, and the element steps of every axis in input, weights and output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deepx_graph.ir import Node
from deepx_graph.runtime.native.llvm.builder import F4, F8, DType
from deepx_graph.types import TensorType


@dataclass(frozen=True)
class SpatialAxis:
    """A spatial axis: sizes, window parameters, and the element steps along it in input, weights and output."""

    size: int
    window: int
    count: int
    stride: int
    low: int
    base: int
    dilation: int
    is_reversed: bool
    x: int
    w: int
    y: int

    def reach(self, windows: int) -> int:
        """How many elements of the padded input so many neighbouring windows see."""
        return (windows - 1) * self.stride + (self.window - 1) * self.dilation + 1


@dataclass(frozen=True)
class Problem:
    """A convolution in one form: images, groups, features of a group, and the element steps of each in the three arrays."""

    dtype: DType
    images: int
    groups: int
    inputs: int
    outputs: int
    axes: tuple[SpatialAxis, ...]
    x: tuple[int, int, int]
    """Steps of images, groups, input features."""
    w: tuple[int, int, int]
    """Steps of groups, output features, input features."""
    y: tuple[int, int, int]
    """Steps of images, groups, output features."""

    @property
    def depth(self) -> int:
        """Products in one result."""
        return self.inputs * math.prod(a.window for a in self.axes)


def problem_of(node: Node) -> Problem | str:
    """The form of a convolution node of static type, or why it has none."""
    x, w = (i.type for i in node.inputs)
    assert isinstance(x, TensorType) and isinstance(w, TensorType) and isinstance(node.type, TensorType)
    dtype = x.dtype.np
    if dtype not in (F4, F8) or dtype is None:
        return f"no machine code for a convolution of {x.dtype}"
    a = node.attr
    if not a("input_spatial_dimensions"):
        return "a product"
    if 0 in (*x.shape, *w.shape, *node.type.shape):
        return "no elements"
    return _problem(node, dtype, x.shape, w.shape, node.type.shape)


def _problem(node: Node, dtype: DType, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...]) -> Problem:
    a = node.attr
    xs, ws, ys = map(steps_of, (x, w, y))
    n, f, o = a("input_batch_dimension"), a("input_feature_dimension"), a("kernel_output_feature_dimension")
    c, yn, yf = a("kernel_input_feature_dimension"), a("output_batch_dimension"), a("output_feature_dimension")
    parts, batch_groups = a("feature_group_count"), a("batch_group_count")
    groups = parts * batch_groups
    images, inputs, outputs = x[n] // batch_groups, w[c], w[o] // groups
    spatial = zip(a("input_spatial_dimensions"), a("kernel_spatial_dimensions"), a("output_spatial_dimensions"),
                  a("window_strides"), a("padding_low"), a("lhs_dilation"), a("rhs_dilation"), a("window_reversal"), strict=True)
    axes = tuple(SpatialAxis(x[i], w[k], y[j], stride, low, base, dilation, bool(is_reversed), xs[i], ws[k], ys[j])
                 for i, k, j, stride, low, base, dilation, is_reversed in spatial)
    group_step = images * xs[n] if batch_groups > 1 else inputs * xs[f]
    return Problem(dtype, images, groups, inputs, outputs, axes, (xs[n], group_step, xs[f]), (outputs * ws[o], ws[o], ws[c]),
                   (ys[yn], outputs * ys[yf], ys[yf]))


def steps_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Element steps of an array in C order."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
