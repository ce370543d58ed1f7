"""Pictures: Resize and Upsample, GridSample, AffineGrid, regions of interest, Col2Im, files of pictures.

Resizing is separable: along each axis it is a product with a matrix of weights, which is made here.
"""

from __future__ import annotations

import io
import math
from importlib import import_module
from itertools import product as combinations
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, InferError, LimitError, UsageError
from deepx_graph.ir import Node
from deepx_graph.literal import Literal
from deepx_graph.text.common.elements import taken
from deepx_graph.text.common.images import ResizeMode, affine_grid, all_of, col2im, grid_sample, pixels, placed, resized, taps
from deepx_graph.text.common.products import product
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.onnx.context import NodeContext, Rules

# --- Resize ---------------------------------------------------------------------------------------------------------


def _resize(c: NodeContext) -> Node:
    shape = c.shape()
    rank = len(shape)
    axes = [axis_of(a, rank) for a in c.ints("axes", tuple(range(rank)))]
    operands = (None, 1, None) if c.version < 11 else (1, 2, 3)
    region_at, scales_at, sizes_at = operands
    mode = ResizeMode(
        c.text("coordinate_transformation_mode", "asymmetric" if c.version < 11 else "half_pixel"), c.one_of(
            "mode", "nearest", "nearest", "linear", "cubic"),
        c.text("nearest_mode", "floor" if c.version < 11 else "round_prefer_floor"), c.real("cubic_coeff_a", -0.75),
        c.flag("antialias"), c.flag("exclude_outside"), c.real("extrapolation_value", 0.0))
    scales, sizes = [1.0] * rank, list(shape)
    given = c.value(scales_at).reshape(-1).astype(np.float64) if c.has(scales_at) else np.zeros(0)
    regions = [(0.0, 1.0)] * rank
    if region_at is not None and c.has(region_at) and mode.coordinates == "tf_crop_and_resize":
        roi = c.value(region_at).reshape(-1)
        for k, a in enumerate(axes):
            regions[a] = (float(roi[k]), float(roi[len(axes) + k]))
    if given.size:
        for a, s in zip(axes, given, strict=True):
            scales[a] = float(s)
            span = regions[a][1] - regions[a][0] if mode.coordinates == "tf_crop_and_resize" else 1.0
            sizes[a] = _scaled(shape[a], float(s), span)
    elif sizes_at is not None and c.has(sizes_at):
        wanted = dict(zip(axes, c.ints_at(sizes_at), strict=True))
        policy = c.one_of("keep_aspect_ratio_policy", "stretch", "stretch", "not_larger", "not_smaller")
        if policy != "stretch":
            ratios = [w / shape[a] for a, w in wanted.items()]
            ratio = min(ratios) if policy == "not_larger" else max(ratios)
            wanted = {a: math.floor(ratio * shape[a] + 0.5) for a in wanted}
            scales = [ratio if a in wanted else 1.0 for a in range(rank)]
        else:
            scales = [wanted[a] / shape[a] if a in wanted and shape[a] else 1.0 for a in range(rank)]
        sizes = [wanted.get(a, d) for a, d in enumerate(shape)]
    else:
        raise InferError("neither scales nor sizes are given", expected="one of them")
    return resized(c, c.node(), mode, sizes, scales, regions)


def _scaled(size: int, scale: float, span: float = 1.0) -> int:
    """In single precision, as ONNX infers shapes: 6 times 1.6666666 is 10."""
    return math.floor(np.float32(size) * np.float32(span) * np.float32(scale))


def _upsample(c: NodeContext) -> Node:
    shape = c.shape()
    if c.version < 7:
        scales = [1.0, 1.0, c.real("height_scale"), c.real("width_scale")]
    else:
        scales = list(c.reals("scales")) if c.version < 9 else [float(s) for s in c.value(1).reshape(-1)]
    if len(scales) != len(shape):
        raise InferError(f"{len(scales)} scales of {c.type()}", expected=str(len(shape)))
    method = {"bilinear": "linear"}.get(c.text("mode", "nearest"), c.text("mode", "nearest"))
    mode = ResizeMode(interpolation=method)
    sizes = list(map(_scaled, shape, scales))
    return resized(c, c.node(), mode, sizes, scales, [(0.0, 1.0)] * len(shape))


# --- samples at computed places ---------------------------------------------------------------------------------------


def _roi_align(c: NodeContext) -> Node:
    """Means or greatest values over samples of boxes; the number of samples follows from the boxes where it is not given."""
    x, shape = c.node(), c.shape()
    rois, batches = c.value(1).astype(np.float64), c.value(2).astype(np.int64)
    height, width = c.number("output_height", 1), c.number("output_width", 1)
    ratio, scale = c.number("sampling_ratio", 0), c.real("spatial_scale", 1.0)
    coordinates_mode = c.text("coordinate_transformation_mode", "half_pixel" if c.version >= 16 else "output_half_pixel")
    half = coordinates_mode == "half_pixel"
    best = c.one_of("mode", "avg", "avg", "max") == "max"
    parts = []
    for roi, batch in zip(rois, batches, strict=True):
        x1, y1, x2, y2 = roi * scale - (0.5 if half else 0.0)
        w, h = x2 - x1, y2 - y1
        if not half:
            w, h = max(w, 1.0), max(h, 1.0)
        bh, bw = h / height, w / width
        gh, gw = (ratio, ratio) if ratio > 0 else (max(1, math.ceil(bh)), max(1, math.ceil(bw)))
        if height * width * gh * gw > c.limit >> 6:
            raise LimitError(f"{gh} by {gw} samples of each of {height} by {width} bins")
        ys = y1 + (np.arange(height)[:, None] + (np.arange(gh) + 0.5) / gh) * bh
        xs = x1 + (np.arange(width)[:, None] + (np.arange(gw) + 0.5) / gw) * bw
        rows, columns = _line(ys.reshape(-1), shape[2]), _line(xs.reshape(-1), shape[3])
        parts.append(_bins(c, x, int(batch), rows, columns, (height, gh, width, gw), best))
    if not parts:
        return c.full(0, c.type().with_dims((0, shape[1], height, width)))
    return c(ops.concatenate, *parts, dimension=0) if len(parts) > 1 else parts[0]


def _line(at: Any, size: int) -> Any:
    """Two neighbours of each place along an axis, and their weights; none for a place far outside."""
    inside = (at >= -1) & (at <= size)
    at = np.clip(at, 0, None)
    low = np.minimum(at.astype(int), size - 1)
    high = np.minimum(low + 1, size - 1)
    rest = np.where(low >= size - 1, 0.0, at - low)
    return low, high, (1 - rest) * inside, rest * inside


def _bins(c: NodeContext, x: Node, batch: int, rows: Any, columns: Any, grid: tuple[int, int, int, int], best: bool) -> Node:
    height, gh, width, gw = grid
    picture = c.sliced(x, (batch, 0, 0, 0), (batch + 1, *c.shape_of(x)[1:]))
    samples = []
    for r, rw in ((rows[0], rows[2]), (rows[1], rows[3])):
        for k, kw in ((columns[0], columns[2]), (columns[1], columns[3])):
            found = taken(c, taken(c, picture, 2, r), 3, k)
            weight = c.constant(np.multiply.outer(rw, kw), c.dtype_of(x))
            samples.append(c(ops.multiply, found, c.broadcast_to(weight, c.dims_of(found))))
    split = (1, c.shape_of(x)[1], height, gh, width, gw)
    if best:
        made = samples[0]
        for s in samples[1:]:
            made = c(ops.maximum, made, s)
        return ops.reduction(c.b, ops.maximum, c.shaped(made, split), (3, 5))
    made = samples[0]
    for s in samples[1:]:
        made = c(ops.add, made, s)
    total = ops.reduction(c.b, ops.add, c.shaped(made, split), (3, 5))
    return c(ops.divide, total, c.like(gh * gw, total))


def _max_roi_pool(c: NodeContext) -> Node:
    x, shape = c.node(), c.shape()
    rois, (height, width) = c.value(1), c.ints("pooled_shape")
    scale = c.real("spatial_scale", 1.0)
    parts = []
    for batch, *box in rois:
        x1, y1, x2, y2 = (round(float(v) * scale) for v in box)
        h, w = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i, j in combinations(range(height), range(width)):
            top, bottom = (min(max(v + y1, 0), shape[2]) for v in (math.floor(i * h / height), math.ceil((i + 1) * h / height)))
            left, right = (min(max(v + x1, 0), shape[3]) for v in (math.floor(j * w / width), math.ceil((j + 1) * w / width)))
            cut = c.sliced(x, (int(batch), 0, top, left), (int(batch) + 1, shape[1], max(bottom, top), max(right, left)))
            found = ops.reduction(c.b, ops.maximum, cut, (2, 3)) if bottom > top and right > left else c.full(
                0, c.type().with_dims((1, shape[1])))
            parts.append(c.add_axes(found, (2,)))
    made = c(ops.concatenate, *parts, dimension=2) if len(parts) > 1 else parts[0]
    made = c.shaped(made, (shape[1], len(rois), height, width))
    return c.transposed(made, (1, 0, 2, 3))


def _deform_conv(c: NodeContext) -> Node:
    """A convolution whose kernel reads at places that operands move, between elements by interpolation."""
    x, w, offset = (c.node(k) for k in range(3))
    (batch, channels, *spatial), (outputs, inner, *kernel) = c.shape(), c.shape(1)
    n = len(spatial)
    strides, dilations = c.ints("strides", (1,) * n), c.ints("dilations", (1,) * n)
    pads, groups, parts = c.ints("pads", (0,) * 2 * n), c.number("group", 1), c.number("offset_group", 1)
    sizes = c.shape(2)[2:]
    points = math.prod(kernel)
    moves = c.shaped(offset, (batch, parts, points, n, *sizes))
    each = channels // parts
    columns = []
    for g in range(parts):
        part = c.sliced(x, (0, g * each, *(0,) * n), (batch, (g + 1) * each, *spatial))
        for p, cell in enumerate(np.ndindex(*kernel)):
            at = []
            for k in range(n):
                base = np.arange(sizes[k]) * strides[k] - pads[k] + cell[k] * dilations[k]
                line = c.along(c.constant(base, c.dtype()), (batch, *sizes), (1 + k,))
                move = c.shaped(c.sliced(moves, (0, g, p, k, *(0,) * n), (batch, g + 1, p + 1, k + 1, *sizes)), (batch, *sizes))
                at.append(c(ops.add, line, move))
            total = None
            for chosen in combinations(*taps(c, at, (0, 1), "linear")):
                spots = [placed(c, place, spatial[k], "zeros", True) for k, (place, _) in enumerate(chosen)]
                found = pixels(c, part, [q for q, _ in spots], all_of(c, [i for _, i in spots]))
                weight = chosen[0][1]
                for _, v in chosen[1:]:
                    weight = c(ops.multiply, weight, v)
                term = c(ops.multiply, found, c.along(weight, c.dims_of(found), (0, *range(2, n + 2))))
                total = term if total is None else c(ops.add, total, term)
            assert total is not None
            if c.has(4):
                mask = c.shaped(c.node(4), (batch, parts, points, *sizes))
                mask = c.shaped(c.sliced(mask, (0, g, p, *(0,) * n), (batch, g + 1, p + 1, *sizes)), (batch, *sizes))
                total = c(ops.multiply, total, c.along(mask, c.dims_of(total), (0, *range(2, n + 2))))
            columns.append(c.add_axes(total, (2,)))
    # [batch, channels, points, ...]: the points of each part together, then the parts one after the other
    rows = [c(ops.concatenate, *columns[g * points : (g + 1) * points], dimension=2) for g in range(parts)]
    whole = c(ops.concatenate, *rows, dimension=1) if parts > 1 else rows[0]
    place = math.prod(sizes)
    grouped = c.shaped(whole, (batch, groups, inner * points, place))
    kernels = c.shaped(w, (groups, outputs // groups, inner * points))
    made = product(c, c.along(kernels, (batch, groups, outputs // groups, inner * points), (1, 2, 3)), grouped)
    made = c.shaped(made, (batch, outputs, *sizes))
    return c(ops.add, made, c.along(c.node(3), c.dims_of(made), (1,))) if c.has(3) else made


def _grid_sample(c: NodeContext) -> Node:
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(c.text("mode", "linear"), c.text("mode", "linear"))
    padding = c.one_of("padding_mode", "zeros", "zeros", "border", "reflection")
    return grid_sample(c, c.node(), c.node(1), mode, padding, c.flag("align_corners"))


def _affine_grid(c: NodeContext) -> Node:
    return affine_grid(c, c.node(), c.ints_at(1), c.flag("align_corners"))


def _col2im(c: NodeContext) -> Node:
    image, block = c.ints_at(1), c.ints_at(2)
    ones = (1,) * len(image)
    pads = c.ints("pads", (0,) * 2 * len(image))
    return col2im(c, c.node(), image, block, c.ints("strides", ones), c.ints("dilations", ones), pads)


# --- files of pictures, decoded by Pillow (the extra `images`) ---------------------------------------------------------

FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""What the standard lists, by the names of Pillow; no other decoder sees the bytes."""

MAX_PIXELS = 1 << 26
"""Pixels of a picture that is decoded."""


def _decoded(c: NodeContext) -> Node:
    """Height, width and channels, as bytes. The size of a picture stands in its bytes, so these must be known."""
    form, data = c.one_of("pixel_format", "RGB", "RGB", "BGR", "Grayscale"), c.value(0)
    if data.dtype != np.uint8 or data.ndim != 1:
        raise InferError(f"the operand is {c.type()}", operand=0, expected="the bytes of a picture")
    try:
        pictures: Any = import_module("PIL.Image")
    except ImportError:
        raise UsageError(Diagnostic("ImageDecoder needs Pillow", hint="install deepx-graph[images]")) from None
    picture: Any
    try:
        with pictures.open(io.BytesIO(data.tobytes()), formats=FORMATS) as picture:
            width, height = picture.size
            if width * height > MAX_PIXELS:
                raise LimitError(f"a picture of {width} x {height} pixels; at most {MAX_PIXELS} are decoded")
            values = np.asarray(picture.convert("L" if form == "Grayscale" else "RGB"))
    except (OSError, ValueError, SyntaxError, pictures.DecompressionBombError) as e:
        raise InferError(f"the bytes are no picture: {e}", operand=0, expected=" | ".join(FORMATS)) from None
    values = values[..., None] if values.ndim == 2 else values
    return c.b.literal(Literal(np.ascontiguousarray(values[..., ::-1] if form == "BGR" else values)))


IMAGE: Rules = {
    "Resize": _resize, "Upsample": _upsample, "GridSample": _grid_sample, "AffineGrid": _affine_grid, "RoiAlign": _roi_align,
    "MaxRoiPool": _max_roi_pool, "Col2Im": _col2im, "DeformConv": _deform_conv, "ImageDecoder": _decoded,
}  # fmt: skip
