"""Winograd's minimal filtering F(2x2, 3x3) as a schedule of a convolution: the plan, its price, and the transformed weights.

Results are computed in tiles of 2 x 2, each of 4 x 4 elements of the input. The tile and the 3 x 3 weights are transformed, to 16
numbers each; of each of these, products are summed up over the input's features; and the 16 sums are transformed to four results.
That takes 16 products in place of 36. The error of a result is of the size of that of a direct sum whose elements are all as large
as the largest that its tile sees. (A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural
Networks, CVPR 2016.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from deepx_graph.runtime.native.convolution import choice
from deepx_graph.runtime.native.convolution.plan import ConvolutionPlan, DirectPlan, Lanes, Method
from deepx_graph.runtime.native.convolution.problem import Problem, SpatialAxis
from deepx_graph.runtime.native.gemm.microkernel import Tile
from deepx_graph.runtime.native.llvm.builder import F4

RESULTS, TAPS, SEEN = 2, 3, 4
"""Along an axis: results of a tile, weights of a window, elements that the tile sees."""

POINTS = SEEN * SEEN
"""Transformed elements of a tile."""

WEIGHTS = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]])
"""The transform of the weights along an axis."""

APART = 16
"""Elements between the transformed ones of one number and the next: where they lie a power of two apart, they meet in a cache."""

INPUT_BYTES = 4 << 20
"""Of the transformed input of a block: it is read for each part of the features, and each block reads all weights."""

SUMS_BYTES = 256 << 10
"""Of the sums of a part of the features, at most where there can be several."""

INPUT_STEPS, RESULT_STEPS, WEIGHT_STEPS = 60, 70, 4
"""What transforming a vector of tiles costs, that of the sums, and reading a vector of weights for a block, in vector products."""

LEAST_GAIN = 0.85
"""A direct kernel is kept unless this takes less than such a part of its time."""


@dataclass(frozen=True)
class WinogradPlan(ConvolutionPlan):
    """Tiles along the last axis in the lanes. Blocks are some rows of tiles."""

    @property
    def tile_counts(self) -> tuple[int, ...]:
        """The tiles along each axis."""
        return tuple(-(-a.count // RESULTS) for a in self.problem.axes)

    @property
    def row_vectors(self) -> int:
        """Vectors of a row of tiles."""
        return -(-self.tile_counts[-1] // self.width)

    @property
    def groups_of_vectors(self) -> int:
        """How many tiles of the products there are in a block, at most."""
        return -(-(-(-self.tile_counts[0] // self.blocks[0]) * self.row_vectors) // self.method.tile.vectors)

    @cached_property
    def copy(self) -> DirectPlan:
        """How a block's input is copied: as what windows of the size of a tile see, with room for whole vectors of them."""
        axes = tuple(replace(a, window=SEEN, stride=RESULTS, count=n)
                     for a, n in zip(self.problem.axes, self.tile_counts, strict=True))
        method = Method(Lanes.WINDOWS, Tile(1, self.row_vectors))
        return DirectPlan(replace(self.problem, axes=axes), self.width, method, self.blocks, 1)

    @cached_property
    def products(self) -> DirectPlan:
        """The sums of products of a block: a convolution of single elements with a group for each number of a transformed one."""
        p, span = self.problem, self.span
        count = self.groups_of_vectors * span
        axis = SpatialAxis(size=count, window=1, count=count, stride=1, low=0, dilation=1, x=1, w=1, y=1)
        rows = count + APART
        panels = -(-self.panels // self.parts)
        problem = Problem(p.dtype, 1, POINTS * p.groups, p.inputs, p.outputs, (axis,),
                          (0, self.groups_of_vectors * span * p.inputs + APART, count), (p.outputs * p.inputs, p.inputs, 1),
                          (0, panels * self.panel * rows, rows))
        return DirectPlan(problem, self.width, self.method, (1,), self.parts)

    @property
    def input_start(self) -> int:
        """Where, in a thread's memory, the transformed input begins, in bytes."""
        return self.copy.list_start

    @property
    def sums_start(self) -> int:
        """Where the sums begin."""
        return self.input_start + POINTS * self.products.problem.x[1] * self.problem.dtype.itemsize

    @property
    def thread_bytes(self) -> int:
        return self.sums_start + POINTS * self.products.problem.y[1] * self.problem.dtype.itemsize

    def transformed(self, weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The weights `[groups * 16, outputs, inputs]` of the products, from those of the convolution."""
        p = self.problem
        steps = [weights.itemsize * step for step in (*(a.w for a in p.axes), *p.w)]
        first, shape = weights.reshape(-1)[p.begin[0] :], (TAPS, TAPS, p.groups, p.outputs, p.inputs)
        seen = np.lib.stride_tricks.as_strided(first, shape, steps)
        flat = np.kron(WEIGHTS, WEIGHTS) @ seen.reshape(TAPS * TAPS, -1)
        made = flat.reshape(POINTS, p.groups, p.outputs, p.inputs).swapaxes(0, 1)
        return np.ascontiguousarray(made.reshape(-1, p.outputs, p.inputs), p.dtype)


def plan(direct: DirectPlan, registers: int) -> ConvolutionPlan:
    """The cheapest plan of the same convolution, where it is much cheaper than the direct one; else that one."""
    axes = direct.problem.axes
    is_square = len(axes) == 2 and all(a.window == TAPS and a.stride == a.dilation == 1 for a in axes)
    if direct.problem.dtype != F4 or not is_square or axes[-1].y != 1:
        return direct
    found = [(span(p), k, p) for k, p in enumerate(plans(direct.problem, direct.width, registers))]
    _, _, best = min(found, default=(0, 0, None))
    return best if best is not None and price(best) < LEAST_GAIN * choice.price(direct) else direct


def plans(problem: Problem, width: int, registers: int) -> Iterator[WinogradPlan]:
    """The ways whose sums have room in registers, with the largest blocks that have room in a cache, and with an even number of
    them; each with as many parts as are good."""
    rows = -(-problem.axes[0].count // RESULTS)
    for vectors in (1, 2, 3):
        most = (registers - choice.BESIDE) // vectors
        for outputs in range(-(-most // 2), most + 1):
            method = Method(Lanes.WINDOWS, Tile(outputs, vectors), outputs)
            counts = sorted({-(-rows // length) for length in range(1, rows + 1)})
            found = (WinogradPlan(problem, width, method, (blocks, 1), 1) for blocks in counts)
            for whole in (p for p in found if p.sums_start <= INPUT_BYTES):
                yield _parted(whole)
                if whole.blocks[0] % 2 == 0:
                    break


def _parted(whole: WinogradPlan) -> WinogradPlan:
    """The plan with as many parts of the features as leave room for sums in a cache and are enough for workers."""
    sums = whole.thread_bytes - whole.sums_start
    parts = max(-(-sums // SUMS_BYTES), -(-choice.shares_for(price(whole)) // whole.shares))
    return choice.with_parts(whole, parts * whole.shares)


def price(plan: WinogradPlan) -> float:
    """What the whole convolution costs, in vector products."""
    p, tile = plan.problem, plan.method.tile
    lengths = choice.block_lengths(plan.tile_counts[0], plan.blocks[0])
    groups = sum(n * -(-length * plan.row_vectors // tile.vectors) for length, n in lengths)
    sums = tile.rows * tile.vectors
    step = max(sums, choice.LOAD_STEPS * (tile.rows + tile.vectors), choice.LEAST_STEPS) + 1
    products = POINTS * plan.panels * groups * (p.inputs * step + 16 + choice.STORE_STEPS * sums)
    results = _vectors(plan) * p.outputs * RESULT_STEPS
    weights = plan.blocks[0] * POINTS * p.outputs * p.inputs / plan.width * WEIGHT_STEPS
    return p.images * p.groups * (products + results + weights) + filling(plan)


def span(plan: WinogradPlan) -> float:
    """How long two workers take, each of which copies and transforms half of the blocks, and the one that both have."""
    blocks, filled = plan.shares // plan.parts, filling(plan)
    larger = -(-plan.shares // 2) * -(-plan.panels // plan.parts) / (blocks * plan.panels)
    return larger * (price(plan) - filled) + -(-blocks // 2) / blocks * filled


def filling(plan: WinogradPlan) -> float:
    """What copying and transforming the input of all blocks costs."""
    p = plan.problem
    return p.images * p.groups * _vectors(plan) * p.inputs * INPUT_STEPS + choice.copying(plan.copy)


def _vectors(plan: WinogradPlan) -> int:
    """Vectors of tiles of an image."""
    return plan.tile_counts[0] * plan.row_vectors
