"""Convolution, with any dimension numbers, strides, paddings, dilations and groups.

Windows are views of the padded operand, so a convolution is one matrix product per group, an image at a time where that stays
within a cache; a depthwise one is a sum of whole arrays.

The gradient by each operand is another convolution, in every configuration: by the input it is the cotangent, spread by the
strides, under the reversed kernel; by the kernel it is the input under the cotangent, with batch and features exchanged.
Feature groups become batch groups there and conversely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import blas
from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Builder, Node, Op, Relation
from deepx_graph.ir.constraint import (
    NON_NEGATIVE,
    POSITIVE,
    TENSOR,
    at_most,
    axes_of,
    equally_many,
    same_element_type,
)
from deepx_graph.ir.evaluation import WORD
from deepx_graph.ir.op import Cotangents
from deepx_graph.literal import Array
from deepx_graph.ops.contract.linear import products
from deepx_graph.ops.contract.window import window_attrs_of, window_count, windows_of
from deepx_graph.ops.factors.contract import CONVOLUTION
from deepx_graph.ops.helpers import is_int, loops_in, pair, staged_in, wider
from deepx_graph.ops.tensor.layout import reshape, reverse, transpose
from deepx_graph.ops.tensor.shape import spread_and_pad
from deepx_graph.types import Dim, TensorType, Type, as_tensor, dilated

Axes = tuple[int, ...]

_DIMS = ("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions", "kernel_input_feature_dimension",
         "kernel_output_feature_dimension", "kernel_spatial_dimensions", "output_batch_dimension", "output_feature_dimension",
         "output_spatial_dimensions")
_SPATIAL = ("window_strides", "padding_low", "padding_high", "lhs_dilation", "rhs_dilation", "window_reversal")


def _convolution_type(types: Sequence[Type], *attrs: Any) -> Type:
    lhs, rhs = as_tensor(types[0], 0), as_tensor(types[1], 1)
    strides, low, high, base, dilations, _, ib, ifeature, isp, ki, ko, ks, ob, of, osp, groups, batch_groups = attrs
    if lhs.dims is None or rhs.dims is None:
        return lhs.with_dims(None)
    _check_groups(lhs, rhs, lhs.dims[ifeature], rhs.dims[ki], rhs.dims[ko], lhs.dims[ib], groups, batch_groups)
    rank = len(isp)
    window = tuple(rhs.dims[k] for k in ks)
    dims: list[Dim] = [0] * len(lhs.dims)
    batch = lhs.dims[ib]
    dims[ob] = batch // batch_groups if isinstance(batch, int) else batch
    dims[of] = rhs.dims[ko]
    for k in range(rank):
        size = window[k]
        if not isinstance(size, int):
            raise InferError(f"the window of {rhs} is not known", operand=1)
        dims[osp[k]] = window_count(lhs.dims[isp[k]], size, strides[k], low[k], high[k], base[k], dilations[k])
    return lhs.with_dims(dims)


def _check_groups(lhs: TensorType, rhs: TensorType, features: Dim, per_group: Dim, outputs: Dim, batch: Dim, groups: int,
                  batch_groups: int) -> None:
    if isinstance(features, int) and isinstance(per_group, int) and features != per_group * groups:
        raise InferError(f"{features} input features of {lhs} for {groups} groups of {per_group} in {rhs}", operand=1)
    if isinstance(outputs, int) and (outputs % groups or outputs % batch_groups):
        raise InferError(f"{outputs} output features do not make {max(groups, batch_groups)} groups", operand=1)
    if isinstance(batch, int) and batch % batch_groups:
        raise InferError(f"a batch of {batch} does not make {batch_groups} groups", operand=0)


def _convolution(xs: Sequence[Array], *attrs: Any) -> Array:
    x, w = xs
    strides, low, high, base, dilations, reversal, ib, ifeature, isp, ki, ko, ks, ob, of, osp, groups, batch_groups = attrs
    rank = len(isp)
    images = np.transpose(x, (ib, ifeature, *isp))
    kernel = np.transpose(w, (ko, ki, *ks))
    flips = tuple(2 + k for k in range(rank) if reversal[k])
    kernel = np.flip(kernel, flips) if flips else kernel
    if x.dtype.itemsize < 4 and x.dtype.kind != "b" and not is_int(x):
        images, kernel = images.astype(np.float32), kernel.astype(np.float32)
    padded = spread_and_pad(images, 0, (0, 0, *low), (0, 0, *high), (1, 1, *base))
    view = windows_of(padded, (1, 1, *kernel.shape[2:]), (1, 1, *strides), (1, 1, *dilations))
    view = np.squeeze(view, (2 + rank, 3 + rank))
    total = _grouped(view, kernel, rank, groups, batch_groups)
    order = np.argsort((ob, of, *osp))
    return np.ascontiguousarray(np.transpose(total, order), dtype=x.dtype)


_MANY_WINDOWS = 64
"""From so many windows an image on, images are done one by one: their windows, laid out, stay in a cache."""

CACHED_BYTES = 4 << 20


def _grouped(view: Array, kernel: Array, rank: int, groups: int, batch_groups: int) -> Array:
    """view (n, c, windows..., sizes...) and kernel (o, c / groups, sizes...) to (n, o, windows...)."""
    n, outputs, per_group = view.shape[0], kernel.shape[0], kernel.shape[1]
    parts, out = groups * batch_groups, outputs // (groups * batch_groups)
    if groups > 1 and per_group == 1 and batch_groups == 1 and not is_int(view):
        return _depthwise(view, kernel, rank, groups)
    found = []
    for g in range(parts):
        rows = slice(g * n // batch_groups, (g + 1) * n // batch_groups) if batch_groups > 1 else slice(None)
        columns = slice(g * per_group, (g + 1) * per_group) if groups > 1 else slice(None)
        found.append(_one_group(view[rows, columns], kernel[g * out : (g + 1) * out], rank))
    return found[0] if parts == 1 else np.concatenate(found, axis=1)


def _one_group(view: Array, kernel: Array, rank: int) -> Array:
    """view (n, c, windows..., sizes...) and kernel (o, c, sizes...) to (n, o, windows...): one matrix product, or one an image."""
    n, channels, *spatial = view.shape[: 2 + rank]
    count, depth = math.prod(spatial), channels * math.prod(kernel.shape[2:])
    weights = kernel.reshape(len(kernel), depth)
    if count >= _MANY_WINDOWS and view.dtype.kind != "b" and depth:
        return _by_image(view, weights, rank)
    moved = np.moveaxis(view, 1, 1 + rank).reshape(n * count, depth)
    total = products(moved, weights.T).reshape(n, *spatial, len(kernel))
    return np.moveaxis(total, -1, 1)


def _by_image(view: Array, weights: Array, rank: int) -> Array:
    """Windows are laid out side by side, as many rows of them as a cache holds, and multiplied from the left."""
    n, _, *spatial = view.shape[: 2 + rank]
    outputs, depth = weights.shape
    rest = math.prod(spatial[1:])
    rows = max(1, min(spatial[0], CACHED_BYTES // max(1, depth * rest * wider(view.dtype).itemsize))) if spatial else 1
    laid = np.moveaxis(view, range(2, 2 + rank), range(-rank, 0))  # (n, c, sizes..., windows...)
    multiply = products if is_int(view) else blas.matmul
    total = np.empty((n, outputs, *spatial), view.dtype)
    wide = view.dtype if is_int(view) else wider(view.dtype)
    weights, buffer = weights.astype(wide), np.empty((*laid.shape[1 : 2 + rank], rows, *spatial[1:]), wide)
    for image in range(n):
        for start in range(0, spatial[0], rows):
            some = min(rows, spatial[0] - start)
            columns = buffer[(slice(None),) * (1 + rank) + (slice(some),)]
            at = (Ellipsis, slice(start, start + some)) + (slice(None),) * (rank - 1)
            columns[...] = laid[(image, *at)]
            total[(image, *at)] = multiply(weights, columns.reshape(depth, some * rest)).reshape(outputs, some, *spatial[1:])
    return total


def _depthwise(view: Array, kernel: Array, rank: int, groups: int) -> Array:
    """One input feature a group: a sum over the positions of the window, each of whole arrays."""
    n, _, *spatial = view.shape[: 2 + rank]
    out = kernel.shape[0] // groups
    total = np.zeros((n, groups, out, *spatial), wider(view.dtype))
    weights = kernel.reshape(groups, out, *kernel.shape[2:])
    for position in np.ndindex(*kernel.shape[2:]):
        factors = weights[(slice(None), slice(None), *position)].reshape((1, groups, out) + (1,) * rank)
        total += np.multiply(view[(Ellipsis, *position)][:, :, None], factors, dtype=total.dtype)
    return total.reshape(n, groups * out, *spatial).astype(view.dtype)


def conv_attrs(rank: int, **given: Any) -> dict[str, Any]:
    """The attributes of the plain convolution over so many axes: batch and features first; `given` instead where given."""
    spatial = tuple(range(2, 2 + rank))
    plain = {"window_strides": (1,) * rank, "padding_low": (0,) * rank, "padding_high": (0,) * rank, "lhs_dilation": (1,) * rank,
             "rhs_dilation": (1,) * rank, "window_reversal": (0,) * rank, "feature_group_count": 1, "batch_group_count": 1,
             **dict(zip(_DIMS, (0, 1, spatial, 1, 0, spatial, 0, 1, spatial), strict=True))}  # fmt: skip
    return {**plain, **given}


def _convolution_flops(types: Sequence[Type], result: Type, *attrs: Any) -> int:
    """A window of one output feature for every element of the result, what lies in the padding included."""
    kernel = as_tensor(types[1], 1)
    features: int = attrs[10]
    return 2 * as_tensor(result).size * (kernel.size // max(1, kernel.shape[features]))


def _convolution_scratch(types: Sequence[Type], result: Type, *attrs: Any) -> int:
    """Operands and result as they are computed with, the padded input, and windows laid out: a cacheful, or a row each."""
    lhs, rhs, out = as_tensor(types[0]), as_tensor(types[1]), as_tensor(result)
    _, low, high, base, _, _, ib, ifeature, isp, ki, _, ks, ob, _, osp, _, _ = attrs
    own, each = lhs.dtype.itemsize, max(WORD, lhs.dtype.itemsize)
    spatial = math.prod(max(0, dilated(lhs.shape[k], d) + lo + hi) for k, d, lo, hi in zip(isp, base, low, high, strict=True))
    padded = lhs.shape[ib] * lhs.shape[ifeature] * spatial
    depth, windows = rhs.shape[ki] * math.prod(rhs.shape[k] for k in ks), math.prod(out.shape[k] for k in osp)
    laid = depth * min(windows * out.shape[ob], max(_MANY_WINDOWS * out.shape[ob], CACHED_BYTES // max(1, depth * each), windows))
    return int(own * (lhs.size + 2 * rhs.size + padded + 2 * out.size) + each * (rhs.size + 2 * out.size + 2 * laid))


# --- gradients ----------------------------------------------------------------------------------------------------


def transposed_padding(size: int, window: int, stride: int, count: int, low: int, base: int, dilation: int) -> tuple[int, int]:
    """Padding, low and high, of a cotangent spread by `stride` whose windows, `base` apart, meet every operand element.

    `size` operand elements `base` apart gave `count` windows of `window` elements that are `dilation` apart.
    """
    reach = dilated(window, dilation)
    before = reach - low - 1
    return before, dilated(size, base) + reach - 1 - dilated(count, stride) - before


def _convolution_vjp(b: Builder, node: Node, g: Node) -> Cotangents:
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


convolution: Op = Op(
    "convolution", "Products of the kernel with every window of the input, summed over the window and the input features.",
    operands=pair(TENSOR),
    attrs=(
        *window_attrs_of(*_SPATIAL[:-1]),
        Attr("window_reversal", "ints", summary="1 for each spatial axis along which the kernel is reversed",
             check=NON_NEGATIVE & at_most(1), neutral=0),
        *(Attr(name, "ints" if name.endswith("s") else "int", check=NON_NEGATIVE) for name in _DIMS),
        Attr("feature_group_count", "int", 1, check=POSITIVE), Attr("batch_group_count", "int", 1, check=POSITIVE),
    ),
    constraints=(
        same_element_type("lhs", "rhs"), axes_of("lhs", *_DIMS[:3]), axes_of("rhs", *_DIMS[3:6]), axes_of("lhs", *_DIMS[6:]),
        equally_many(_DIMS[2], _DIMS[5], _DIMS[8], *_SPATIAL),
        *(Relation(f"a number for each axis of {operand} in {spatial}, beside the two others", (operand, spatial),
                   lambda type, axes: type.rank is None or type.rank == len(axes) + 2)
          for operand, spatial in (("lhs", _DIMS[2]), ("rhs", _DIMS[5]))),
        Relation("feature_group_count or batch_group_count to be 1", ("feature_group_count", "batch_group_count"),
                 lambda features, batch: 1 in (features, batch)),
    ),
    sharding=CONVOLUTION,
    algebraic=True, infer=_convolution_type, eval=_convolution,
    staged=staged_in("contract.convolution_staged", "convolution_staged"), element=loops_in("contract", "convolution_element"),
    scratch=_convolution_scratch, flops=_convolution_flops, vjp=_convolution_vjp,
    source="StableHLO convolution",
    samples=lambda rng: [
        ((rng.random((2, 4, 5, 6)), rng.random((6, 4, 2, 3))), conv_attrs(2)),
        ((rng.random((2, 4, 5, 6)), rng.random((6, 2, 2, 3))), conv_attrs(
            2, feature_group_count=2, padding_low=(1, -1), padding_high=(0, 2), window_strides=(2, 1))),
        ((rng.random((4, 3, 5)), rng.random((6, 3, 2))), conv_attrs(
            1, batch_group_count=2, lhs_dilation=(2,), window_reversal=(1,))),
        ((rng.random((2, 3, 4, 3)), rng.random((2, 2, 3, 5))), conv_attrs(2, rhs_dilation=(1, 2), **dict(zip(
            _DIMS, (0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2)), strict=True)))),
        ((rng.random((2, 3)), rng.random((4, 3))), conv_attrs(0)),
        ((rng.random((2, 4, 7)), rng.random((4, 2, 2))), conv_attrs(
            1, feature_group_count=2, window_strides=(2,), lhs_dilation=(3,), rhs_dilation=(2,),
            padding_low=(-2,), padding_high=(3,), window_reversal=(1,))),
        ((rng.random((5, 6, 4)), rng.random((3, 2, 4))), conv_attrs(
            1, batch_group_count=2, window_strides=(2,), padding_low=(1,),
            **dict(zip(_DIMS, (1, 2, (0,), 2, 1, (0,), 2, 0, (1,)), strict=True)))),
    ],
)  # fmt: skip
