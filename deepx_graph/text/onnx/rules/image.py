"""Pictures: Resize and Upsample, GridSample, AffineGrid, regions of interest, Col2Im.

Resizing is separable: along each axis it is a product with a matrix of weights, which is made here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as combinations
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError, LimitError
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import taken
from deepx_graph.text.common.products import product
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.types import BOOL, F32, I64

# --- Resize ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ResizeMode:
    """How places of the result become places of the operand, and these values."""

    coordinates: str = "asymmetric"
    interpolation: str = "nearest"
    nearest: str = "floor"
    cubic: float = -0.75
    antialias: bool = False
    exclude_outside: bool = False
    extrapolation: float = 0.0


def coordinates(mode: ResizeMode, size: int, made: int, scale: float, region: tuple[float, float]) -> Any:
    """Where each element of the result lies in the operand, along an axis."""
    x = np.arange(made, dtype=np.float64)
    match mode.coordinates:
        case "half_pixel":
            return (x + 0.5) / scale - 0.5
        case "half_pixel_symmetric":
            exact = size * scale
            return size / 2 * (1 - made / exact) + (x + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (x + 0.5) / scale - 0.5 if made > 1 else np.zeros(made)
        case "align_corners":
            exact = size * scale
            return x * (size - 1) / (exact - 1) if exact != 1 else np.zeros(made)
        case "asymmetric":
            return x / scale
        case "tf_crop_and_resize":
            start, end = region
            if made > 1:
                return start * (size - 1) + x * (end - start) * (size - 1) / (made - 1)
            return np.full(made, 0.5 * (start + end) * (size - 1))
    raise InferError(f"coordinate_transformation_mode = '{mode.coordinates:.40}'", expected="half_pixel, align_corners, ...")


def weights(mode: ResizeMode, size: int, made: int, scale: float, region: tuple[float, float]) -> tuple[Any, Any]:
    """The matrix [made, size] of an axis, and which elements lie outside where that makes them the extrapolation value."""
    x = coordinates(mode, size, made, scale, region)
    outside = (x < 0) | (x > size - 1) if mode.coordinates == "tf_crop_and_resize" else np.zeros(made, bool)
    if mode.interpolation == "nearest":
        low = np.floor(x)
        match mode.nearest:
            case "round_prefer_floor":
                at = np.ceil(x - 0.5)
            case "round_prefer_ceil":
                at = np.floor(x + 0.5)
            case "floor":
                at = low
            case "ceil":
                at = np.ceil(x)
            case _:
                raise InferError(f"nearest_mode = '{mode.nearest:.40}'", expected="round_prefer_floor, floor, ceil, ...")
        matrix = np.zeros((made, size))
        matrix[np.arange(made), np.clip(at, 0, size - 1).astype(int)] = 1
        return matrix, outside
    stretch = min(scale, 1.0) if mode.antialias else 1.0
    reach = math.ceil((1 if mode.interpolation == "linear" else 2) / stretch)
    matrix = np.zeros((made, size))
    offsets = np.arange(-reach + 1, reach + 1) if mode.antialias else np.arange(1 - reach, reach + 1)
    base = np.floor(x)
    kernel = _triangle if mode.interpolation == "linear" else lambda d: _keys(d, mode.cubic)
    total = np.zeros((made, len(offsets)))
    for j, o in enumerate(offsets):
        at = base + o
        total[:, j] = kernel((at - x) * stretch)
        if mode.exclude_outside:
            total[:, j] *= (at >= 0) & (at < size)
    if mode.antialias or mode.exclude_outside:
        total /= total.sum(axis=1, keepdims=True)
    for j, o in enumerate(offsets):
        np.add.at(matrix, (np.arange(made), np.clip(base + o, 0, size - 1).astype(int)), total[:, j])
    return matrix, outside


def _triangle(d: Any) -> Any:
    return np.maximum(0, 1 - np.abs(d))


def _keys(d: Any, a: float) -> Any:
    """The cubic convolution kernel of Keys."""
    d = np.abs(d)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def resized(c: NodeContext, mode: ResizeMode, sizes: Sequence[int], scales: Sequence[float],
            regions: Sequence[tuple[float, float]]) -> Node:
    """The operand in other sizes."""
    x, shape, dtype = c.node(), c.shape(), c.dtype()
    if min((s for s in scales), default=1) <= 0 or min(sizes, default=1) < 0:
        raise InferError(f"sizes {list(sizes)} and scales {list(scales)}", expected="positive numbers")
    if any(s * d > c.limit for s, d in zip(sizes, shape, strict=True)):
        raise LimitError(f"resizing of {list(shape)} to {list(sizes)}")
    nearest = mode.interpolation == "nearest"
    wide = x if nearest else c.cast(x, F32) if dtype.bits < 32 or dtype.is_integer else x
    beyond = None
    for a, (size, made) in enumerate(zip(shape, sizes, strict=True)):
        if size == made and scales[a] == 1 and mode.coordinates != "tf_crop_and_resize":
            continue
        matrix, outside = weights(mode, size, made, scales[a], regions[a])
        if nearest:
            wide = taken(c, wide, a, matrix.argmax(axis=1))
        else:
            rank = len(shape)
            moved = c(ops.dot_general, wide, c.constant(matrix, c.dtype_of(wide)), lhs_contracting_dimensions=(a,),
                      rhs_contracting_dimensions=(1,))
            wide = c.transposed(moved, [*range(a), rank - 1, *range(a, rank - 1)])
        if outside.any():
            line = c.along(c.constant(outside, BOOL), tuple(sizes), (a,))
            beyond = line if beyond is None else c(ops.or_, beyond, line)
    if beyond is not None:
        wide = c(ops.select, beyond, c.full(mode.extrapolation, c.type_of(wide)), wide)
    return c.cast(wide, dtype)


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
            sizes[a] = math.floor(shape[a] * span * float(s))
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
    return resized(c, mode, sizes, scales, regions)


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
    return resized(c, mode, [math.floor(d * s) for d, s in zip(shape, scales, strict=True)], scales, [(0.0, 1.0)] * len(shape))


# --- samples at computed places ---------------------------------------------------------------------------------------


def pixels(c: NodeContext, x: Node, places: Sequence[Node], inside: Node | None) -> Node:
    """Elements [N, C, ...] of `x` at integer places [N, ...] along its spatial axes; zero where they are not inside."""
    shape = c.shape_of(x)
    spots = c.shape_of(places[0])
    rank = len(places)
    rows = c(ops.concatenate, *(c.add_axes(p, (len(spots),)) for p in places), dimension=len(spots))
    found = c(ops.gather, x, rows, offset_dims=(1,), collapsed_slice_dims=tuple(range(2, rank + 2)), operand_batching_dims=(0,),
              start_indices_batching_dims=(0,), start_index_map=tuple(range(2, rank + 2)), index_vector_dim=len(spots),
              slice_sizes=(1, shape[1], *(1,) * rank))
    if inside is None:
        return found
    dims = c.shape_of(found)
    return c(ops.select, c.along(inside, dims, (0, *range(2, len(dims)))), found, c.full(0, c.type_of(found)))


def _placed(c: NodeContext, x: Node, size: int, padding: str, corners: bool) -> tuple[Node, Node]:
    """Integer places (as floats) brought into an axis by the padding mode, and whether they were inside."""
    wide = c.cast(x, I64)
    if padding == "reflection":
        wide = c.cast(_reflected(c, x, size, corners), I64)
    inside = c(ops.and_, c(ops.compare, wide, c.like(0, wide), direction="GE"),
               c(ops.compare, wide, c.like(size - 1, wide), direction="LE"))
    return c(ops.clamp, c.like(0, wide), wide, c.like(size - 1, wide)), inside


def _reflected(c: NodeContext, x: Node, size: int, corners: bool) -> Node:
    """Places beyond the borders mirrored at them, as often as it takes."""
    low, high = (0.0, size - 1.0) if corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return c.full(0, c.type_of(x))
    off = c(ops.subtract, x, c.like(low, x))
    period = c(ops.subtract, off, c(ops.multiply, c(ops.floor, c(ops.divide, off, c.like(2 * span, x))), c.like(2 * span, x)))
    mirrored = c(ops.subtract, c.like(2 * span, x), period)
    folded = c(ops.select, c(ops.compare, period, c.like(span, x), direction="GT"), mirrored, period)
    return c(ops.add, folded, c.like(low, x))


def _grid_sample(c: NodeContext) -> Node:
    x, grid = c.node(), c.node(1)
    shape, spots = c.shape(), c.shape(1)
    rank, corners = len(shape) - 2, c.flag("align_corners")
    if spots[-1] != rank or len(spots) != rank + 2:
        raise InferError(f"operands {c.type()} and {c.type(1)}", expected=f"places of {rank} numbers")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(c.text("mode", "linear"), c.text("mode", "linear"))
    padding = c.one_of("padding_mode", "zeros", "zeros", "border", "reflection")
    wide = F32 if c.dtype(1).bits < 32 else c.dtype(1)
    at = []
    for k in range(rank):  # the grid counts axes from the last one
        axis = rank - 1 - k
        line = c.shaped(c.sliced(grid, (0,) * (rank + 1) + (axis,), (*spots[:-1], axis + 1)), spots[:-1])
        line, size = c.cast(line, wide), shape[2 + k]
        one, half = c.like(1, line), c.like(2, line)
        if corners:
            place = c(ops.multiply, c(ops.divide, c(ops.add, line, one), half), c.like(size - 1, line))
        else:
            place = c(ops.divide, c(ops.subtract, c(ops.multiply, c(ops.add, line, one), c.like(size, line)), one), half)
        if mode == "nearest":
            place = c(ops.round_nearest_even, place)
        if padding == "border":
            place = c(ops.clamp, c.like(0, place), place, c.like(size - 1, place))
        elif padding == "reflection" and mode != "cubic":
            place = _reflected(c, place, size, corners)
        at.append(place)
    if mode == "nearest":
        placed = [_placed(c, p, shape[2 + k], padding, corners) for k, p in enumerate(at)]
        return pixels(c, x, [p for p, _ in placed], _all(c, [i for _, i in placed]) if padding == "zeros" else None)
    taps = _taps(c, at, (0, 1) if mode == "linear" else (-1, 0, 1, 2), mode)
    total = None
    for chosen in combinations(*taps):
        placed = [_placed(c, place, shape[2 + k], padding, corners) for k, (place, _) in enumerate(chosen)]
        found = pixels(c, x, [p for p, _ in placed], _all(c, [i for _, i in placed]) if padding == "zeros" else None)
        weight = chosen[0][1]
        for _, w in chosen[1:]:
            weight = c(ops.multiply, weight, w)
        dims = c.shape_of(found)
        part = c(ops.multiply, c.cast(found, wide), c.along(weight, dims, (0, *range(2, len(dims)))))
        total = part if total is None else c(ops.add, total, part)
    assert total is not None
    return c.cast(total, c.dtype())


def _all(c: NodeContext, hits: Sequence[Node]) -> Node:
    made = hits[0]
    for h in hits[1:]:
        made = c(ops.and_, made, h)
    return made


def _taps(c: NodeContext, at: Sequence[Node], offsets: Sequence[int], mode: str) -> list[list[tuple[Node, Node]]]:
    """For each axis the neighbours of each place, and their weights."""
    found = []
    for place in at:
        base = c(ops.floor, place)
        rest = c(ops.subtract, place, base)
        row = []
        for o in offsets:
            d = c(ops.abs_, c(ops.subtract, rest, c.like(o, rest)))
            row.append((c(ops.add, base, c.like(o, base)), _kernel(c, d, abs(o - 0.5) < 1, mode)))
        found.append(row)
    return found


def _kernel(c: NodeContext, d: Node, near: bool, mode: str) -> Node:
    """The weight of a neighbour at a distance."""
    if mode == "linear":
        return c(ops.subtract, c.like(1, d), d)
    a = -0.75

    def polynomial(*factors: float) -> Node:
        made = c.like(factors[0], d)
        for f in factors[1:]:
            made = c(ops.add, c(ops.multiply, made, d), c.like(f, d))
        return made

    return polynomial(a + 2, -(a + 3), 0, 1) if near else polynomial(a, -5 * a, 8 * a, -4 * a)


def _affine_grid(c: NodeContext) -> Node:
    """Places of a grid over [-1, 1] moved by a matrix for each batch."""
    theta, size = c.node(), c.ints_at(1)
    batch, spatial = size[0], size[2:]
    corners, rank = c.flag("align_corners"), len(spatial)
    if c.shape() != (batch, rank, rank + 1):
        raise InferError(f"operand 0 is {c.type()}", operand=0, expected=f"[{batch},{rank},{rank + 1}]")
    lines = []
    for d in spatial:
        if corners:
            lines.append(np.linspace(-1, 1, d) if d > 1 else np.zeros(1) - 1)
        else:
            lines.append((np.arange(d) * 2 + 1) / d - 1)
    mesh = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*reversed(mesh), np.ones(spatial)], -1).reshape(-1, rank + 1)
    made = c(ops.dot_general, theta, c.constant(points, c.dtype()), lhs_contracting_dimensions=(2,),
             rhs_contracting_dimensions=(1,))
    return c.shaped(c.transposed(made, (0, 2, 1)), (batch, *spatial, rank))


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


def _col2im(c: NodeContext) -> Node:
    """Blocks put back where they were cut out, overlapping ones added up."""
    x, image, block = c.node(), c.ints_at(1), c.ints_at(2)
    n = len(image)
    strides, dilations, pads = c.ints("strides", (1,) * n), c.ints("dilations", (1,) * n), c.ints("pads", (0,) * 2 * n)
    batch, rows, count = c.shape()
    per = math.prod(block)
    if not per or rows % per:
        raise InferError(f"{rows} rows do not make blocks of {list(block)}")
    padded = [d + pads[k] + pads[n + k] for k, d in enumerate(image)]
    steps = [(d - (b - 1) * r - 1) // s + 1 for d, b, r, s in zip(padded, block, dilations, strides, strict=True)]
    if math.prod(steps) != count:
        raise InferError(f"{count} blocks", expected=str(math.prod(steps)))
    channels = rows // per
    cells = [np.arange(b)[:, None] * r + np.arange(t) * s for b, r, t, s in zip(block, dilations, steps, strides, strict=True)]
    flat: Any = np.zeros((1, 1), np.int64)
    for size, line in zip(padded, cells, strict=True):
        spread = flat[:, None, :, None] * size + line[None, :, None, :]
        flat = spread.reshape(spread.shape[0] * spread.shape[1], -1)
    source = c.shaped(x, (batch * channels, per * count))
    total = c.full(0, c.type().with_dims((batch * channels, math.prod(padded))))
    made = c(ops.index_add, total, c.constant(flat.reshape(-1), I64), source, dim=1)
    made = c.shaped(made, (batch, channels, *padded))
    return c.sliced(made, (0, 0, *pads[:n]), (batch, channels, *(p + d for p, d in zip(pads[:n], image, strict=True))))


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
            for chosen in combinations(*_taps(c, at, (0, 1), "linear")):
                placed = [_placed(c, place, spatial[k], "zeros", True) for k, (place, _) in enumerate(chosen)]
                found = pixels(c, part, [q for q, _ in placed], _all(c, [i for _, i in placed]))
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


IMAGE: Rules = {
    "Resize": _resize, "Upsample": _upsample, "GridSample": _grid_sample, "AffineGrid": _affine_grid, "RoiAlign": _roi_align,
    "MaxRoiPool": _max_roi_pool, "Col2Im": _col2im, "DeformConv": _deform_conv,
}  # fmt: skip
