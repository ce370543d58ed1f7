"""The plan of a convolution by direct kernels: the axis in the lanes, the tile in registers, the shares, and their memory.

The input of a share is copied into scratch memory and padded, so that tiles read it without a test. Everything here follows from
shapes alone; nothing is emitted and nothing is computed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum

import numpy as np

from deepx_graph.runtime.native.convolution.problem import Problem
from deepx_graph.runtime.native.gemm.microkernel import Tile

SCRATCH_BYTES = 256 << 10
"""Of the input of a share: a quarter of a usual second-level cache, since weights and results want to be there too."""


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
    """What is computed at once: rows of vectors. With windows in the lanes rows are output features and neighbours along the last
    axis but one; else they are neighbouring windows in the order of the output's axes, wherever a row of it ends."""

    lanes: Lanes
    tile: Tile
    outputs: int = 1
    """Features that are not in the lanes."""

    @property
    def windows(self) -> int:
        """How many windows there are in the rows."""
        return self.tile.rows // self.outputs

    @property
    def spread(self) -> int:
        """Elements that are spread over the lanes for one product of each sum."""
        return self.outputs if self.lanes is Lanes.WINDOWS else self.tile.rows

    @property
    def read(self) -> int:
        """Vectors that are read for one product of each sum; with groups in the lanes, of weights."""
        return self.tile.vectors * (self.windows if self.lanes is Lanes.WINDOWS else 1)


IMAGES, FEATURES = -1, -2
"""Axes of the output, beside spatial ones by number."""


@dataclass(frozen=True)
class Extent:
    """An axis of the output with more than one element, and whether shares have only a part of it."""

    axis: int
    size: int
    is_cut: bool


@dataclass(frozen=True)
class ConvolutionPlan(ABC):
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
    def read_bytes(self) -> int:
        """The vectors that a tile reads."""
        return self.method.read * self.width * self.problem.depth * self.problem.dtype.itemsize

    @property
    def tiles(self) -> tuple[int, ...]:
        """The most tiles of a panel that follow each other along each axis, or along all of them."""
        if self.method.lanes is not Lanes.WINDOWS:
            return (ceil_div(math.prod(self.longest), self.method.windows),)
        sizes = [*(1,) * (len(self.longest) - 2), *(self.method.windows, self.span)[-len(self.longest) :]]
        return tuple(map(ceil_div, self.longest, sizes))

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
        p = self.problem
        return {Lanes.OUTPUTS: p.outputs, Lanes.GROUPS: p.groups, Lanes.WINDOWS: p.axes[-1].count}[self.method.lanes]

    @property
    def lane_step(self) -> int:
        """The step in the output from one lane to the next."""
        p = self.problem
        return {Lanes.OUTPUTS: p.y[2], Lanes.GROUPS: p.y[1], Lanes.WINDOWS: p.axes[-1].y}[self.method.lanes]

    @property
    def tile_windows(self) -> int:
        """How many neighbouring windows a tile has."""
        return self.span if self.method.lanes is Lanes.WINDOWS else self.method.windows

    @property
    def has_packed_tiles(self) -> bool:
        """Whether windows are single elements, and those of a feature lie together in the input: tiles share none of them, and are
        kept one after another."""
        *outer, last = self.problem.axes
        return not outer and last.is_pointwise and last.x < self.problem.x[2] and self.method.lanes is not Lanes.GROUPS

    @property
    @abstractmethod
    def products(self) -> ConvolutionPlan:
        """The plan whose tiles read the packed weights."""

    @property
    @abstractmethod
    def thread_bytes(self) -> int:
        """All memory of a thread."""

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


class DirectPlan(ConvolutionPlan):
    """Tiles sum up the windows of the input as they are."""

    @property
    def products(self) -> ConvolutionPlan:
        return self

    @property
    def thread_bytes(self) -> int:
        return offsets_start(self) + 8 * offsets_of(self)


# --- the memory of a thread


def scratch_steps(plan: ConvolutionPlan) -> dict[int, int]:
    """The element step of each axis of the scratch memory: spatial axes by number, -1 the features (or groups) of an image.

    They stand outermost first: as in the input's memory, but for the axis in the lanes, which is innermost. A last axis of windows
    with a stride is kept as that many rows, one for each remainder, so that the windows' elements are neighbours. Where tiles share
    no elements, they are kept tile after tile, each of which is read from its begin to its end; steps are those between tiles.
    """
    p, lanes = plan.problem, plan.method.lanes
    if plan.has_packed_tiles:
        tile = p.inputs * plan.tile_windows
        return {0: tile, -1: plan.tile_windows, SIZE: tile * ceil_div(plan.longest[0], plan.tile_windows)}
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


def offsets_of(plan: ConvolutionPlan) -> int:
    """How many words of a thread tell where windows of a block are: in scratch memory, behind them in the output."""
    return 0 if plan.method.lanes is Lanes.WINDOWS else 2 * math.prod(plan.longest)


def offsets_start(plan: ConvolutionPlan) -> int:
    """Where they begin: behind the scratch memory, and room for a vector that begins in it."""
    return ceil_div(scratch_bytes(plan), 64) * 64 + 64


def ceil_div(a: int, b: int) -> int:
    """A quotient rounded up."""
    return -(-a // b)


def scratch_bytes(plan: ConvolutionPlan) -> int:
    """The scratch memory of a share's input."""
    return scratch_steps(plan)[SIZE] * np.dtype(plan.problem.dtype).itemsize
