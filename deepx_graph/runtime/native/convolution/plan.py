"""A convolution by direct kernels: the axis in the lanes, the tile in registers, the shares.

The input of a share is copied into scratch memory and padded, so that tiles read it without a test. Everything here follows from
shapes alone; nothing is emitted and nothing is computed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.native.convolution.problem import Problem
from deepx_graph.runtime.native.gemm.microkernel import Tile

SCRATCH_BYTES = 256 << 10
"""Of the input of a share: a quarter of a usual second-level cache, since weights and results want to be there too."""

MOST_SCRATCH = 4 << 20

SHARES, SHARE_STEPS = 64, 200_000
"""So many shares, or fewer where each would have fewer vector products than this: they must cost more than handing them out."""

STORE_STEPS, TRANSPOSE_STEPS, SCATTER_STEPS = 1, 150, 24
"""What storing costs, in vector products: a vector as it is, a square of vectors transposed, or a vector element by element."""

NEAR_BYTES, NEAR_STEPS = 12 << 10, 2.8
"""The vectors of a tile's sums beyond so many bytes do not stay in a first-level cache: reading one takes so many products. With
windows in the lanes neighbours of a row lie across lines of the cache: half a vector more for each row."""

PANEL_BYTES, FAR_STEPS = 400 << 10, 3
"""Beyond so many bytes they do not stay in a second-level cache either: each costs so many products more."""

BESIDE = 4
"""Registers that are not for sums, at least."""

MOST_PLANS = 8
"""Methods that are cut into shares before one is chosen."""

LEAST_USE = 0.15
"""Where fewer than this part of the lanes have anything to do, a product of windows laid out is faster."""


class Lanes(Enum):
    """The axis whose neighbours lie in the lanes of a vector."""

    OUTPUTS = "outputs"
    """Output features of a group: a window's element is spread, and meets a vector of weights."""
    WINDOWS = "windows"
    """Windows along the last spatial axis: a vector of input elements meets a weight that is spread."""
    GROUPS = "groups"
    """Groups of one input and one output feature: vectors of both."""


@dataclass(frozen=True)
class Method:
    """What is computed at once. `box` is the tile's extent along output features (with windows in the lanes) and each axis."""

    lanes: Lanes
    tile: Tile
    outputs: int
    box: tuple[int, ...]
    is_contiguous: bool
    """The rows are neighbours in the output: with output features in the lanes, the tile can be transposed and stored."""

    @property
    def spread(self) -> int:
        """Elements that are spread over the lanes for one product of each sum."""
        return self.outputs if self.lanes is Lanes.WINDOWS else self.tile.rows

    @property
    def read(self) -> int:
        """Vectors that are read for one product of each sum; with groups in the lanes, of weights."""
        return self.tile.vectors * (self.tile.rows // self.outputs if self.lanes is Lanes.WINDOWS else 1)


IMAGES, FEATURES = -1, -2
"""Axes of the output, beside spatial ones by number."""


@dataclass(frozen=True)
class Extent:
    """An axis of the output with more than one element, and whether shares have only a part of it."""

    axis: int
    size: int
    is_cut: bool


@dataclass(frozen=True)
class ConvolutionPlan:
    """A method, and its shares: each has all windows of one block of one image, for a part of the panels of lanes."""

    problem: Problem
    width: int
    """Lanes of a vector."""
    method: Method
    blocks: tuple[int, ...]
    """How many parts each spatial axis is cut into."""
    parts: int
    """How many parts the panels of a group are shared among."""

    @property
    def shares(self) -> int:
        groups = 1 if self.method.lanes is Lanes.GROUPS else self.problem.groups
        return self.problem.images * groups * math.prod(self.blocks) * self.parts

    @property
    def span(self) -> int:
        """Lanes of a tile."""
        return self.method.tile.vectors * self.width

    @property
    def in_lanes(self) -> int:
        """How long the axis in the lanes is."""
        return in_lanes(self.problem, self.method.lanes)

    @property
    def tile_windows(self) -> int:
        """How many windows along the last axis a tile has."""
        return self.span if self.method.lanes is Lanes.WINDOWS else self.method.box[-1]

    @property
    def has_packed_tiles(self) -> bool:
        """Whether windows along the last axis are single elements, next to each other in the input: tiles share none of them."""
        last = self.problem.axes[-1]
        return last.is_pointwise and last.x < self.problem.x[2] and self.method.lanes is not Lanes.GROUPS

    @property
    def features(self) -> int:
        """The output features of a group, or all groups where they are in the lanes: what panels of weights are cut from."""
        return self.problem.groups if self.method.lanes is Lanes.GROUPS else self.problem.outputs

    @property
    def panel(self) -> int:
        """How many of the features a tile has, and so a panel of packed weights."""
        return self.method.outputs if self.method.lanes is Lanes.WINDOWS else self.span

    @property
    def panels(self) -> int:
        """How many panels the features take."""
        return -(-self.features // self.panel)

    @property
    def most_parts(self) -> int:
        """How many parts there can be."""
        return 1 if self.method.lanes is Lanes.GROUPS else self.panels

    @property
    def has_panel_rows(self) -> bool:
        """Whether the results of a panel are whole rows, which an epilogue that follows it finds in the nearest cache."""
        p = self.problem
        return self.method.lanes is not Lanes.GROUPS and any(a.count > 1 and a.y < p.y[2] for a in p.axes)

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The output's axes in the order of its memory."""
        p, grouped = self.problem, self.method.lanes is not Lanes.GROUPS and self.problem.groups > 1
        found = [(p.y[0], Extent(IMAGES, p.images, p.images > 1)),
                 (p.y[2], Extent(FEATURES, p.groups * p.outputs, grouped or self.parts > 1 or self.has_panel_rows))]
        found += ((a.y, Extent(k, a.count, b > 1)) for k, (a, b) in enumerate(zip(p.axes, self.blocks, strict=True)))
        return tuple(extent for _, extent in sorted(found, key=lambda item: -item[0]) if extent.size > 1)

    @property
    def apart(self) -> int:
        """How many of the extents number rows: those up to the last one that is cut, of which a share has the others whole; but a
        row is never less than along the last one."""
        return min(max((k + 1 for k, extent in enumerate(self.extents) if extent.is_cut), default=0), max(0, len(self.extents) - 1))

    @property
    def cuts_rows(self) -> bool:
        """Whether a share has only a part of each row."""
        return any(extent.is_cut for extent in self.extents[-1:])

    @property
    def longest(self) -> tuple[int, ...]:
        """The most windows of a block along each axis."""
        return tuple(-(-a.count // b) for a, b in zip(self.problem.axes, self.blocks, strict=True))


def in_lanes(problem: Problem, lanes: Lanes) -> int:
    """The length of the axis in the lanes."""
    of = {Lanes.OUTPUTS: problem.outputs, Lanes.GROUPS: problem.groups, Lanes.WINDOWS: problem.axes[-1].count}
    return of[lanes]


def lane_step(problem: Problem, lanes: Lanes) -> int:
    """The step in the output from one lane to the next."""
    return {Lanes.OUTPUTS: problem.y[2], Lanes.GROUPS: problem.y[1], Lanes.WINDOWS: problem.axes[-1].y}[lanes]


def plan(problem: Problem, register_bytes: int, registers: int) -> ConvolutionPlan:
    """The cheapest plan for so many registers. Raises Declined."""
    width = register_bytes // problem.dtype.itemsize
    whole = (1,) * len(problem.axes)
    found = sorted((_price(problem, m, width, whole), k, m) for k, m in enumerate(_methods(problem, width, registers)))
    if not found:
        raise Declined("no direct kernel for this layout")
    plans = [_shared(ConvolutionPlan(problem, width, method, whole, 1), steps) for steps, _, method in found[:MOST_PLANS]]
    steps, _, shared = min((_price(problem, p.method, width, p.blocks), k, p) for k, p in enumerate(plans))
    useful = problem.depth * math.prod(a.count for a in problem.axes) * problem.outputs * problem.images * problem.groups / width
    if useful < LEAST_USE * steps:
        raise Declined("too few features for the lanes")
    if scratch_bytes(shared) > MOST_SCRATCH:
        raise Declined("windows too large for a cache")
    return shared


# --- methods


def _methods(problem: Problem, width: int, registers: int) -> Iterator[Method]:
    """The ways whose sums have room in registers, beside the elements that stay there and one of the other operand."""
    for method in _all_methods(problem, width, registers - BESIDE):
        if method.tile.rows * method.tile.vectors + min(method.spread, method.read) < registers or method.lanes is Lanes.GROUPS:
            yield method


def _all_methods(problem: Problem, width: int, sums: int) -> Iterator[Method]:
    last = problem.axes[-1]
    if problem.groups > 1 and problem.inputs == problem.outputs == 1:
        if problem.y[1] == 1:
            for vectors in range(1, min(4, -(-problem.groups // width)) + 1):
                yield from _boxes(problem, Lanes.GROUPS, vectors, sums)
    else:
        for vectors in range(1, min(4, -(-problem.outputs // width)) + 1):
            yield from _boxes(problem, Lanes.OUTPUTS, vectors, sums)
    if (last.y == 1 or last.y < problem.y[2]) and last.stride <= 4:
        for vectors in range(1, max(1, min(8, last.count // width)) + 1):
            yield from _boxes(problem, Lanes.WINDOWS, vectors, sums)


def _boxes(problem: Problem, lanes: Lanes, vectors: int, sums: int) -> Iterator[Method]:
    """Methods with so many vectors in a row: a box of one or two axes, with whole rows of the last where there are two."""
    most = sums // vectors
    *_, last = problem.axes
    outer = (1,) * (len(problem.axes) - 2)
    if lanes is Lanes.WINDOWS:
        other = problem.axes[-2].count if len(problem.axes) > 1 else 1
        for outputs, rows in itertools.product(range(1, min(problem.outputs, most) + 1), range(1, min(other, most) + 1)):
            if outputs * rows <= most:
                box = (*outer, rows, 1) if len(problem.axes) > 1 else (1,)
                yield Method(lanes, Tile(outputs * rows, vectors), outputs, box, is_contiguous=False)
        return
    for columns in range(1, min(last.count, most) + 1):
        high = problem.axes[-2].count if columns == last.count and len(problem.axes) > 1 else 1
        for rows in range(1, min(high, most // columns) + 1):
            box = (*outer, rows, columns) if len(problem.axes) > 1 else (columns,)
            neighbours = last.y == 1 and (rows == 1 or problem.axes[-2].y == columns)
            yield Method(lanes, Tile(rows * columns, vectors), 1, box, neighbours)


def _price(problem: Problem, method: Method, width: int, blocks: Sequence[int]) -> float:
    """Vector products, and what takes as long, of the whole convolution, with each axis in so many blocks."""
    tile, lanes = method.tile, method.lanes
    span = tile.vectors * width
    box = (*method.box[:-1], span) if lanes is Lanes.WINDOWS else method.box
    tiles = math.prod(n * math.ceil(math.ceil(a.count / n) / b) for a, n, b in zip(problem.axes, blocks, box, strict=True))
    tiles *= math.ceil(problem.outputs / method.outputs) if lanes is Lanes.WINDOWS else math.ceil(in_lanes(problem, lanes) / span)
    tiles *= problem.images * (1 if lanes is Lanes.GROUPS else problem.groups)
    loads = (tile.rows + 1) * tile.vectors if lanes is Lanes.GROUPS else method.spread + method.read
    panel = method.read * width * problem.depth * problem.dtype.itemsize
    across = tile.rows // method.outputs / 2 if lanes is Lanes.WINDOWS else 0
    far = NEAR_STEPS * (method.read + across) if panel > NEAR_BYTES else 0
    step = max(tile.rows * tile.vectors, loads, 8, far) + 0.5 + loads / 32 + far / 64
    if lanes is Lanes.OUTPUTS and panel > PANEL_BYTES:
        step += tile.vectors * FAR_STEPS
    vectors = tile.rows * tile.vectors
    store = (STORE_STEPS * vectors if lane_step(problem, lanes) == 1 else SCATTER_STEPS * vectors if not method.is_contiguous else
             TRANSPOSE_STEPS * tile.vectors * -(-tile.rows // width))
    return tiles * (problem.depth * step + 16 + store)


# --- shares


def _shared(plan: ConvolutionPlan, steps: float) -> ConvolutionPlan:
    """The plan cut into shares: blocks small enough for a cache and enough of them, and parts of the panels.

    Each block reads all weights and each part the whole block: whatever is larger is cut first.
    """
    wanted = max(1, min(SHARES, int(steps / SHARE_STEPS)))
    axes = plan.problem.axes
    weights = plan.problem.outputs * plan.problem.depth * np.dtype(plan.problem.dtype).itemsize
    if weights > scratch_bytes(plan):
        plan = replace(plan, parts=min(plan.most_parts, -(-wanted // plan.shares)))
    for k, axis in enumerate(axes):
        in_vectors = plan.method.lanes is Lanes.WINDOWS and k == len(axes) - 1
        tile = plan.span if in_vectors else plan.method.box[k]
        most = max(1, axis.count // tile)
        while plan.blocks[k] < most and scratch_bytes(plan) > SCRATCH_BYTES:
            plan = _cut(plan, k, plan.blocks[k] + 1)
        least = blocks = plan.blocks[k]
        if plan.shares < wanted and (k < len(axes) - 1 or (in_vectors and weights <= scratch_bytes(plan))):
            blocks = -(-wanted * blocks // plan.shares)
        plan = _cut(plan, k, _even(axis.count, blocks, most, least, tile))
    if plan.parts == 1 and plan.shares < wanted:
        plan = replace(plan, parts=min(plan.most_parts, -(-wanted // plan.shares)))
    return plan


def _cut(plan: ConvolutionPlan, axis: int, blocks: int) -> ConvolutionPlan:
    return replace(plan, blocks=tuple(blocks if k == axis else b for k, b in enumerate(plan.blocks)))


def _even(count: int, wanted: int, most: int, least: int, tile: int) -> int:
    """About so many blocks, at most `most`: such as leave blocks of whole tiles of one size, if there are."""
    found = range(max(least, min(wanted, most) * 2 // 3), min(most, wanted * 3 // 2) + 1)
    return min(found, key=lambda b: (b * math.ceil(math.ceil(count / b) / tile), abs(b - wanted)), default=least)


def scratch_steps(plan: ConvolutionPlan) -> dict[int, int]:
    """The element step of each axis of the scratch memory: spatial axes by number, -1 the features (or groups) of an image.

    They stand outermost first: as in the input's memory, but for the axis in the lanes, which is innermost. A last axis of windows
    with a stride is kept as that many rows, one for each remainder, so that the windows' elements are neighbours. One of single
    elements is kept by tiles, each of which is read from its begin to its end: the step is from one tile to the next.
    """
    p, lanes = plan.problem, plan.method.lanes
    if plan.has_packed_tiles:
        outer = sorted(range(len(p.axes) - 1), key=lambda k: (-p.axes[k].x, k))
        order = [*outer, len(p.axes) - 1, -1]
        sizes = [p.axes[k].reach(plan.longest[k]) for k in outer] + [-(-plan.longest[-1] // plan.tile_windows), p.inputs]
        each = [plan.tile_windows * math.prod(sizes[k + 1 :]) for k in range(-1, len(sizes))]
        return dict(zip(order, each[1:], strict=True)) | {SIZE: each[0]}
    extents = {k: a.reach(n) for k, (a, n) in enumerate(zip(p.axes, plan.longest, strict=True))}
    extents[-1] = plan.panels * plan.span if lanes is Lanes.GROUPS else p.inputs
    steps = {k: a.x for k, a in enumerate(p.axes)} | {-1: p.x[1] if lanes is Lanes.GROUPS else p.x[2]}
    order = sorted(extents, key=lambda k: (-steps[k], k))
    inner = {Lanes.OUTPUTS: order[-1], Lanes.WINDOWS: len(p.axes) - 1, Lanes.GROUPS: -1}[lanes]
    if lanes is Lanes.WINDOWS:
        extents[inner] = phase_columns(plan) * p.axes[-1].stride
    order = [k for k in order if k != inner] + [inner]
    found, step = {}, 1
    for k in reversed(order):
        found[k] = step
        step *= extents[k]
    return {k: found[k] for k in order} | {SIZE: step}


SIZE = -2
"""The key under which `scratch_steps` tells the elements of the whole."""


def phase_columns(plan: ConvolutionPlan) -> int:
    """Elements of one remainder of the last axis, with windows in the lanes: room for whole vectors."""
    last = plan.problem.axes[-1]
    windows = max(plan.longest[-1], plan.span)
    return windows + ((last.window - 1) * last.dilation) // last.stride + 1


def scratch_bytes(plan: ConvolutionPlan) -> int:
    """The scratch memory of a thread."""
    return scratch_steps(plan)[SIZE] * np.dtype(plan.problem.dtype).itemsize
