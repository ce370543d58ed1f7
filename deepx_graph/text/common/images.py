"""Pictures, with explicit parameters: resizing, samples at computed places, blocks put back together.

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
from deepx_graph.text.common.known_steps import KnownSteps
from deepx_graph.types import BOOL, F32, I64

# --- resizing -------------------------------------------------------------------------------------------------------


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
        case "tf_half_pixel_for_nn":
            return (x + 0.5) / scale
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


def resized(c: KnownSteps, x: Node, mode: ResizeMode, sizes: Sequence[int], scales: Sequence[float],
            regions: Sequence[tuple[float, float]]) -> Node:
    """The operand in other sizes."""
    shape, dtype = c.shape_of(x), c.dtype_of(x)
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


# --- samples at computed places ---------------------------------------------------------------------------------------


def pixels(c: KnownSteps, x: Node, places: Sequence[Node], inside: Node | None) -> Node:
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


def placed(c: KnownSteps, x: Node, size: int, padding: str, corners: bool) -> tuple[Node, Node]:
    """Integer places (as floats) brought into an axis by the padding mode, and whether they were inside."""
    wide = c.cast(x, I64)
    if padding == "reflection":
        wide = c.cast(_reflected(c, x, size, corners), I64)
    inside = c(ops.and_, c(ops.compare, wide, c.like(0, wide), direction="GE"),
               c(ops.compare, wide, c.like(size - 1, wide), direction="LE"))
    return c(ops.clamp, c.like(0, wide), wide, c.like(size - 1, wide)), inside


def _reflected(c: KnownSteps, x: Node, size: int, corners: bool) -> Node:
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


def grid_sample(c: KnownSteps, x: Node, grid: Node, mode: str, padding: str, corners: bool) -> Node:
    """Elements at the places of a grid over [-1, 1]; `mode` is nearest, linear or cubic, `padding` zeros, border or reflection."""
    shape, spots = c.shape_of(x), c.shape_of(grid)
    rank = len(shape) - 2
    if spots[-1] != rank or len(spots) != rank + 2:
        raise InferError(f"operands {x.type} and {grid.type}", expected=f"places of {rank} numbers")
    wide = F32 if c.dtype_of(grid).bits < 32 else c.dtype_of(grid)
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
        if padding == "border" and mode != "cubic":
            place = c(ops.clamp, c.like(0, place), place, c.like(size - 1, place))
        elif padding == "reflection" and mode != "cubic":
            place = _reflected(c, place, size, corners)
        at.append(place)
    if mode == "nearest":
        spots_at = [placed(c, p, shape[2 + k], padding, corners) for k, p in enumerate(at)]
        return pixels(c, x, [p for p, _ in spots_at], all_of(c, [i for _, i in spots_at]) if padding == "zeros" else None)
    near = taps(c, at, (0, 1) if mode == "linear" else (-1, 0, 1, 2), mode)
    total = None
    for chosen in combinations(*near):
        spots_at = [placed(c, place, shape[2 + k], padding, corners) for k, (place, _) in enumerate(chosen)]
        found = pixels(c, x, [p for p, _ in spots_at], all_of(c, [i for _, i in spots_at]) if padding == "zeros" else None)
        weight = chosen[0][1]
        for _, w in chosen[1:]:
            weight = c(ops.multiply, weight, w)
        dims = c.shape_of(found)
        part = c(ops.multiply, c.cast(found, wide), c.along(weight, dims, (0, *range(2, len(dims)))))
        total = part if total is None else c(ops.add, total, part)
    assert total is not None
    return c.cast(total, c.dtype_of(x))


def all_of(c: KnownSteps, hits: Sequence[Node]) -> Node:
    made = hits[0]
    for h in hits[1:]:
        made = c(ops.and_, made, h)
    return made


def taps(c: KnownSteps, at: Sequence[Node], offsets: Sequence[int], mode: str) -> list[list[tuple[Node, Node]]]:
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


def _kernel(c: KnownSteps, d: Node, near: bool, mode: str) -> Node:
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


def affine_grid(c: KnownSteps, theta: Node, size: Sequence[int], corners: bool) -> Node:
    """Places of a grid over [-1, 1] moved by a matrix for each batch."""
    batch, spatial = size[0], tuple(size[2:])
    rank = len(spatial)
    if c.shape_of(theta) != (batch, rank, rank + 1):
        raise InferError(f"operand 0 is {theta.type}", operand=0, expected=f"[{batch},{rank},{rank + 1}]")
    lines = []
    for d in spatial:
        if corners:
            lines.append(np.linspace(-1, 1, d) if d > 1 else np.zeros(1) - 1)
        else:
            lines.append((np.arange(d) * 2 + 1) / d - 1)
    mesh = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*reversed(mesh), np.ones(spatial)], -1).reshape(-1, rank + 1)
    made = c(ops.dot_general, theta, c.constant(points, c.dtype_of(theta)), lhs_contracting_dimensions=(2,),
             rhs_contracting_dimensions=(1,))
    return c.shaped(c.transposed(made, (0, 2, 1)), (batch, *spatial, rank))


# --- blocks -----------------------------------------------------------------------------------------------------------


def col2im(c: KnownSteps, x: Node, image: Sequence[int], block: Sequence[int], strides: Sequence[int], dilations: Sequence[int],
           pads: Sequence[int]) -> Node:
    """Blocks put back where they were cut out, overlapping ones added up."""
    n = len(image)
    batch, rows, count = c.shape_of(x)
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
    total = c.full(0, c.type_of(x).with_dims((batch * channels, math.prod(padded))))
    made = c(ops.index_add, total, c.constant(flat.reshape(-1), I64), source, dim=1)
    made = c.shaped(made, (batch, channels, *padded))
    return c.sliced(made, (0, 0, *pads[:n]), (batch, channels, *(p + d for p, d in zip(pads[:n], image, strict=True))))
