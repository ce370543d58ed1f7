"""The plan of a convolution: the axis in the lanes, the tile in registers, the shares, and their memory.

The input of a share is copied into scratch memory and padded, so that tiles read it without a test. Everything here follows from
shapes alone; nothing is emitted and nothing is computed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from deepx_graph.runtime.native.convolution.problem import Problem
from deepx_graph.runtime.native.gemm.microkernel import Tile


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
    """What is computed at once: rows of vectors, some features at some neighbouring positions in the order of the output's axes,
    wherever a row of it ends. A position is a window; with windows in the lanes, as many neighbours as a row has lanes."""

    lanes: Lanes
    tile: Tile
    outputs: int = 1
    """Features that are not in the lanes."""

    @property
    def positions(self) -> int:
        """How many positions there are in the rows."""
        return self.tile.rows // self.outputs

    @property
    def spread(self) -> int:
        """Elements that are spread over the lanes for one product of each sum."""
        return self.outputs if self.lanes is Lanes.WINDOWS else self.tile.rows

    @property
    def read(self) -> int:
        """Vectors that are read for one product of each sum; with groups in the lanes, of weights."""
        return self.tile.vectors * (self.positions if self.lanes is Lanes.WINDOWS else 1)


@dataclass(frozen=True)
class Term:
    """An axis of the sums, spatial by number or the input's features: its size, and the element steps along it in the copied input,
    in the weights as they are, and as they are packed."""

    axis: int
    size: int
    x: int
    w: int
    packed: int


IMAGES, FEATURES, ELEMENTS = -1, -2, -3
"""Axes of the output, beside spatial ones by number; features are one of the scratch memory, too, of which the last are all."""


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
    def groups(self) -> int:
        """How many groups have shares of their own."""
        return 1 if self.method.lanes is Lanes.GROUPS else self.problem.groups

    @property
    def shares(self) -> int:
        return self.problem.images * self.groups * math.prod(self.blocks) * self.parts

    @property
    def longest(self) -> tuple[int, ...]:
        """The most windows of a block along each axis."""
        return tuple(-(-a.count // b) for a, b in zip(self.problem.axes, self.blocks, strict=True))

    # --- lanes and panels

    @property
    def span(self) -> int:
        """Lanes of a tile."""
        return self.method.tile.vectors * self.width

    @property
    def lane_step(self) -> int:
        """The step in the output from one lane to the next."""
        p = self.problem
        return {Lanes.OUTPUTS: p.y[2], Lanes.GROUPS: p.y[1], Lanes.WINDOWS: p.axes[-1].y}[self.method.lanes]

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

    def positions(self, windows: Sequence[int]) -> int:
        """How many positions there are of so many windows along each axis."""
        *outer, last = windows
        return math.prod(outer) * (-(-last // self.span) if self.method.lanes is Lanes.WINDOWS else last)

    @property
    def has_room(self) -> bool:
        """Whether every block has the positions of a tile, and the windows of its lanes unless there are fewer in all; every part
        a panel."""
        counts = [a.count for a in self.problem.axes]
        least = [n // b for n, b in zip(counts, self.blocks, strict=True)]
        lanes = min(self.span, counts[-1]) if self.method.lanes is Lanes.WINDOWS else 1
        is_whole = 0 not in least and least[-1] >= lanes and self.positions(least) >= self.method.positions
        return is_whole and self.parts <= self.most_parts

    # --- sums and weights

    @property
    @abstractmethod
    def products(self) -> DirectPlan:
        """The plan whose tiles read the packed weights."""

    @property
    def panel_size(self) -> int:
        """Elements of a panel of weights."""
        return self.panel * self.problem.depth

    @property
    def packed_size(self) -> int:
        """Elements of packed weights: panels of all groups."""
        return self.groups * self.panels * self.panel_size

    # --- rows for an epilogue

    @property
    def extents(self) -> tuple[Extent, ...]:
        """The output's axes in the order of its memory."""
        p = self.problem
        found = [(p.y[0], Extent(IMAGES, p.images, p.images > 1)),
                 (p.y[2], Extent(FEATURES, p.groups * p.outputs, self.groups > 1 or self.parts > 1))]
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
    @abstractmethod
    def thread_bytes(self) -> int:
        """All memory of a thread."""


class DirectPlan(ConvolutionPlan):
    """Tiles sum up the windows of the input as they are."""

    @property
    def products(self) -> DirectPlan:
        return self

    @property
    def thread_bytes(self) -> int:
        """A position takes two words."""
        return self.list_start + 16 * self.positions(self.longest)

    @property
    def terms(self) -> list[Term]:
        """The axes of the sums, outermost first: as in the memory of the weights."""
        p, steps = self.problem, scratch_steps(self)
        found = [(k, a.window, a.dilation * steps[k], a.w) for k, a in enumerate(p.axes)]
        found = sorted([(FEATURES, p.inputs, steps[FEATURES], p.w[2]), *found], key=lambda term: -abs(term[3]))
        inside = [self.panel * math.prod(size for _, size, *_ in found[k + 1 :]) for k in range(len(found))]
        return [Term(*term, packed) for term, packed in zip(found, inside, strict=True)]

    @property
    def scratch_bytes(self) -> int:
        """The scratch memory of a share's input."""
        return scratch_steps(self)[ELEMENTS] * self.problem.dtype.itemsize

    @property
    def list_start(self) -> int:
        """Where the list of positions begins: behind the scratch memory, and room for a vector that begins in it."""
        return -(-self.scratch_bytes // 64) * 64 + 64

    @property
    def has_packed_spans(self) -> bool:
        """Whether windows are single elements, and those of a feature lie together in the input: those of a position are kept
        together, as tiles share none of them."""
        *outer, last = self.problem.axes
        return self.method.lanes is Lanes.WINDOWS and not outer and last.is_pointwise and last.x < self.problem.x[2]

    @property
    def phases(self) -> int:
        """How many rows the last axis is kept as, with windows in the lanes: one for each remainder by its stride, so that elements
        of neighbouring windows are neighbours."""
        return self.problem.axes[-1].stride if self.method.lanes is Lanes.WINDOWS else 1

    @property
    def phase_columns(self) -> int:
        """Elements of one of these rows, with windows in the lanes: room for whole vectors."""
        last = self.problem.axes[-1]
        return max(self.longest[-1], self.span) + ((last.window - 1) * last.dilation) // last.stride + 1

    def phase(self, offset: int) -> int:
        """Where an element of the last axis is kept."""
        return offset % self.phases * self.phase_columns + offset // self.phases


def scratch_steps(plan: DirectPlan) -> dict[int, int]:
    """The element step of each axis of the scratch memory: spatial axes by number, the features (or groups) of an image, the whole.

    They stand outermost first: as in the input's memory, but for the axis in the lanes, which is innermost. Of spans that are kept
    together the step of the spatial axis is that between positions.
    """
    p, lanes = plan.problem, plan.method.lanes
    if plan.has_packed_spans:
        return {0: p.inputs * plan.span, FEATURES: plan.span, ELEMENTS: p.inputs * plan.span * plan.positions(plan.longest)}
    extents = {k: a.reach(n) for k, (a, n) in enumerate(zip(p.axes, plan.longest, strict=True))}
    extents[FEATURES] = plan.panels * plan.span if lanes is Lanes.GROUPS else p.inputs
    steps = {k: a.x for k, a in enumerate(p.axes)} | {FEATURES: p.x[1] if lanes is Lanes.GROUPS else p.x[2]}
    order = sorted(extents, key=lambda k: (-steps[k], k))
    inner = {Lanes.OUTPUTS: order[-1], Lanes.WINDOWS: len(p.axes) - 1, Lanes.GROUPS: FEATURES}[lanes]
    if lanes is Lanes.WINDOWS:
        extents[inner] = plan.phase_columns * plan.phases
    order = [*(k for k in order if k != inner), inner]
    found = {k: math.prod(extents[j] for j in order[n + 1 :]) for n, k in enumerate(order)}
    return found | {ELEMENTS: math.prod(extents.values())}
