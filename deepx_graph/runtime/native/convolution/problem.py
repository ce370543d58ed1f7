"""A convolution in one form: its sizes and the element steps along every axis, of which neighbours are made one where they run on.

Where there are gaps between the elements of the input (a transposed convolution, the gradient of one with strides), results are
done by residue classes, each of which is a convolution without gaps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deepx_graph.ir import Node
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native.gemm.plan import steps_of
from deepx_graph.runtime.native.llvm.builder import F4, F8, DType
from deepx_graph.types import TensorType

MOST_CLASSES = 16
"""Residue classes of results, each with code of its own, of a convolution whose input has gaps between its elements."""


@dataclass(frozen=True)
class SpatialAxis:
    """A spatial axis: sizes, window parameters, and the element steps along it in input, weights and output."""

    size: int
    window: int
    count: int
    stride: int
    low: int
    dilation: int
    x: int
    w: int
    """Negative where windows are reversed."""
    y: int
    rows: tuple[int, int] | tuple[()] = ()
    """Where the input does not run on: how many elements do, and the step from one such row to the next."""

    @property
    def is_pointwise(self) -> bool:
        """Whether a result is of the element at its own place alone."""
        return self.window == self.stride == 1 and self.low == 0 and self.size == self.count

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
    begin: tuple[int, int] = (0, 0)
    """Where, in elements, its weights and its results begin: of some convolutions they are every so many-th."""

    @property
    def depth(self) -> int:
        """Products in one result."""
        return self.inputs * math.prod(a.window for a in self.axes)


def problems_of(node: Node) -> list[Problem]:
    """The form of a convolution node of static type: one for each residue class of results, of which there are several where
    elements of the input lie apart. Raises Declined."""
    x, w = (i.type for i in node.inputs)
    assert isinstance(x, TensorType) and isinstance(w, TensorType) and isinstance(node.type, TensorType)
    dtype = x.dtype.np
    if dtype not in (F4, F8) or dtype is None:
        raise Declined(f"no machine code for a convolution of {x.dtype}")
    a = node.attr
    if not a("input_spatial_dimensions"):
        raise Declined("a product")
    if 0 in (*x.shape, *w.shape, *node.type.shape):
        raise Declined("no elements")
    return _problems(node, dtype, x.shape, w.shape, node.type.shape)


def _problems(node: Node, dtype: DType, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...]) -> list[Problem]:
    a = node.attr
    xs, ws, ys = map(steps_of, (x, w, y))
    n, f, o = a("input_batch_dimension"), a("input_feature_dimension"), a("kernel_output_feature_dimension")
    c, yn, yf = a("kernel_input_feature_dimension"), a("output_batch_dimension"), a("output_feature_dimension")
    parts, batch_groups = a("feature_group_count"), a("batch_group_count")
    groups = parts * batch_groups
    images, inputs, outputs = x[n] // batch_groups, w[c], w[o] // groups
    group_step = images * xs[n] if batch_groups > 1 else inputs * xs[f]
    spatial = zip(a("input_spatial_dimensions"), a("kernel_spatial_dimensions"), a("output_spatial_dimensions"),
                  a("window_strides"), a("padding_low"), a("rhs_dilation"), a("window_reversal"), strict=True)
    found = [SpatialAxis(x[i], w[k], y[j], stride, low, dilation, xs[i], -ws[k] if is_reversed else ws[k], ys[j])
             for i, k, j, stride, low, dilation, is_reversed in spatial]
    begin = sum((axis.window - 1) * -axis.w for axis in found if axis.w < 0)
    classes = [residue_classes(axis, base) for axis, base in zip(found, a("lhs_dilation"), strict=True)]
    if math.prod(map(len, classes)) > MOST_CLASSES:
        raise Declined("elements of the input lie too far apart")

    def part(each: Sequence[ResidueClass]) -> Problem:
        seen = 1 if any(r.is_zero for r in each) else inputs
        axes = merged([r.axis for r in each], xs[f] if groups == 1 else 0)
        return Problem(dtype, images, groups, seen, outputs, axes, (xs[n], group_step, xs[f]), (outputs * ws[o], ws[o], ws[c]),
                       (ys[yn], outputs * ys[yf], ys[yf]), (begin + sum(r.w for r in each), sum(r.y for r in each)))

    return [part(each) for each in itertools.product(*classes)]


def merged(axes: Sequence[SpatialAxis], features: int) -> tuple[SpatialAxis, ...]:
    """The axes with neighbours made one where every result is of the element at its own place and both arrays run on. Two that are
    left are made one where the output alone runs on, and steps of the input's features are larger: it is picked when it is copied.

    Rows of a few elements are then no longer what tiles and vectors are cut from.
    """
    found: list[SpatialAxis] = []
    for axis in map(_picked, axes):
        if found and _runs_on(found[-1], axis) and found[-1].x == axis.size * axis.x:
            found[-1] = replace(axis, size=found[-1].size * axis.size, count=found[-1].size * axis.size)
        else:
            found.append(axis)
    if len(found) == 2 and _runs_on(*found) and max(a.x for a in found) < features:
        outer, inner = found
        size = outer.size * inner.size
        return (replace(inner, size=size, count=size, rows=(inner.size, outer.x)),)
    return tuple(found)


def _runs_on(outer: SpatialAxis, inner: SpatialAxis) -> bool:
    """Whether results of two axes lie one after another, each of the element at its own place."""
    return outer.is_pointwise and inner.is_pointwise and outer.y == inner.size * inner.y


def _picked(axis: SpatialAxis) -> SpatialAxis:
    """An axis whose windows are single elements, apart and all inside, as one of these elements alone."""
    if axis.window > 1 or axis.stride == 1 or axis.low or (axis.count - 1) * axis.stride >= axis.size:
        return axis
    return replace(axis, size=axis.count, stride=1, x=axis.stride * axis.x)


@dataclass(frozen=True)
class ResidueClass:
    """Every so many-th window of an axis, which all see elements by the same part of their taps. `w` and `y`: where, in elements,
    these weights and the results begin. Without such taps results are zeros: one tap then sees padding only."""

    axis: SpatialAxis
    w: int
    y: int
    is_zero: bool = False


def residue_classes(axis: SpatialAxis, base: int) -> list[ResidueClass]:
    """An axis whose elements lie `base` apart as axes of dense elements, one for each residue of window numbers."""
    period, taps = base // math.gcd(axis.stride, base), base // math.gcd(axis.dilation, base)
    return [_residue_class(axis, base, first, period, taps) for first in range(min(period, axis.count))]


def _residue_class(axis: SpatialAxis, base: int, first: int, period: int, apart: int) -> ResidueClass:
    """The windows from the `first` on that are `period` apart, whose taps on elements are `apart`."""
    count, stride = -(-(axis.count - first) // period), period * axis.stride // base
    begin = first * axis.stride - axis.low
    tap = next((t for t in range(min(apart, axis.window)) if (begin + t * axis.dilation) % base == 0), None)
    dense = replace(axis, count=count, stride=stride, y=period * axis.y)
    if tap is None:
        return ResidueClass(replace(dense, window=1, low=-axis.size, dilation=1), 0, first * axis.y, is_zero=True)
    window, low = -(-(axis.window - tap) // apart), -(begin + tap * axis.dilation) // base
    dense = replace(dense, window=window, low=low, dilation=apart * axis.dilation // base, w=apart * axis.w)
    return ResidueClass(dense, tap * axis.w, first * axis.y)
