"""Pictures: sampling up and down, samples at the places of a grid."""

from __future__ import annotations

import math

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Node
from deepx_graph.text.common.elements import taken
from deepx_graph.text.common.images import ResizeMode, affine_grid, grid_sample, resized
from deepx_graph.text.torch.context import CallContext, Rule, Rules

METHODS = ("linear", "nearest", "cubic")
"""Of grid_sampler, by number."""
PADDINGS = ("zeros", "border", "reflection")


def _wanted(c: CallContext, n: int) -> tuple[list[int], list[float]]:
    """The sizes of the result, and the scales that coordinates are computed with: given ones, or the ratio of the sizes."""
    shape = c.shape_of(c.node())[-n:]
    given = c.get("scale_factors")
    names = ("scales",) if n == 1 else ("scales_d", "scales_h", "scales_w")[-n:]
    factors = [float(f) for f in given] if isinstance(given, tuple) else [c.real(name, 0.0) for name in names]
    if c.has("output_size"):
        sizes = list(c.ints("output_size"))
        factors = [0.0] * n if isinstance(given, tuple) else factors
    else:
        sizes = [math.floor(d * f) for d, f in zip(shape, factors, strict=True)]
    return sizes, [f if f > 0 else m / d for m, d, f in zip(sizes, shape, factors, strict=True)]


def _nearest(n: int, exact: bool) -> Rule:
    """The places in single precision, as torch computes them."""

    def build(c: CallContext) -> Node:
        x = c.node()
        sizes, scales = _wanted(c, n)
        rank = len(c.dims_of(x))
        for k, (made, scale) in enumerate(zip(sizes, scales, strict=True)):
            size = c.shape_of(x)[rank - n + k]
            step = np.float32(size / made if abs(scale * size - made) < 1e-9 else 1 / scale)
            line = np.arange(made, dtype=np.float32)
            places = np.floor((line + np.float32(0.5)) * step if exact else line * step)
            x = taken(c, x, rank - n + k, np.clip(places, 0, size - 1).astype(np.int64))
        return x

    return build


def _interpolated(n: int, method: str, smooth: bool = False) -> Rule:
    def build(c: CallContext) -> Node:
        x = c.node()
        sizes, scales = _wanted(c, n)
        corners, shape = c.flag("align_corners"), c.shape_of(x)
        if corners:
            scales = [m / d for m, d in zip(sizes, shape[-n:], strict=True)]
        cubic = -0.5 if smooth else -0.75
        mode = ResizeMode(
            "align_corners" if corners else "half_pixel", method, cubic=cubic, antialias=smooth, exclude_outside=smooth
        )
        outer = len(shape) - n
        return resized(c, x, mode, [*shape[:outer], *sizes], [1.0] * outer + scales, [(0.0, 1.0)] * len(shape))

    return build


def _grid(c: CallContext) -> Node:
    method, padding = METHODS[c.number("interpolation_mode")], PADDINGS[c.number("padding_mode")]
    return grid_sample(c, c.node(0), c.node(1), method, padding, c.flag("align_corners"))


def _affine_grid(c: CallContext) -> Node:
    return affine_grid(c, c.node(0), c.ints("size"), c.flag("align_corners"))


def _cross(c: CallContext) -> Node:
    x, y = c.pair()
    axis = c.axis("dim", -1, x)
    turn = [taken(c, v, axis, np.array(p)) for v in (x, y) for p in ([1, 2, 0], [2, 0, 1])]
    return c(ops.subtract, c(ops.multiply, turn[0], turn[3]), c(ops.multiply, turn[1], turn[2]))


IMAGE: Rules = {
    **{f"upsample_nearest{n}d": _nearest(n, False) for n in (1, 2, 3)},
    **{f"_upsample_nearest_exact{n}d": _nearest(n, True) for n in (1, 2, 3)}, "upsample_linear1d": _interpolated(1, "linear"),
    "upsample_bilinear2d": _interpolated(2, "linear"), "upsample_trilinear3d": _interpolated(3, "linear"),
    "upsample_bicubic2d": _interpolated(2, "cubic"), "_upsample_bilinear2d_aa": _interpolated(2, "linear", True),
    "_upsample_bicubic2d_aa": _interpolated(2, "cubic", True),
    **dict.fromkeys(("grid_sampler", "grid_sampler_2d", "grid_sampler_3d"), _grid), "affine_grid_generator": _affine_grid,
    "linalg_cross": _cross, "cross": _cross,
}  # fmt: skip
