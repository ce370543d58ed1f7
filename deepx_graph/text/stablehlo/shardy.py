"""Shardy's meshes and shardings, as far as programs carry them: which part of a tensor each device of a mesh has.

A mesh is a grid of named axes, its devices numbered row by row. A sharding says for each dimension of a tensor along which axes it
is split, the first axis outermost. Nothing here knows a graph.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

_AXIS = re.compile(r'"([^"]*)"\s*=\s*(\d+)')
_SHARDING = re.compile(r"<\s*@\"?([\w$.\-]+)\"?\s*,\s*\[((?:[^\[\]])*)\]")
_DIMENSION = re.compile(r"\{([^{}]*)\}")
_NAME = re.compile(r'"([^"]*)"(:\()?')

Split = tuple[tuple[str, ...], ...]
"""The axes along which each dimension is split."""


@dataclass(frozen=True)
class Mesh:
    """Axes with their sizes, in order."""

    axes: tuple[tuple[str, int], ...]

    @property
    def count(self) -> int:
        """The number of devices."""
        return math.prod(size for _, size in self.axes)

    def shards(self, axes: Sequence[str]) -> int:
        """Into how many parts axes split a dimension. Raises KeyError for an unknown axis."""
        sizes = dict(self.axes)
        return math.prod(sizes[a] for a in axes)

    def parts(self, device: int, split: Split) -> tuple[int, ...]:
        """The number of the part that a device has, in each dimension."""
        at: dict[str, int] = {}
        for name, size in reversed(self.axes):
            device, at[name] = divmod(device, size)
        sizes = dict(self.axes)
        found = []
        for axes in split:
            part = 0
            for a in axes:
                part = part * sizes[a] + at[a]
            found.append(part)
        return tuple(found)

    def owners(self, split: Split) -> dict[tuple[int, ...], int]:
        """For each part the first device that has it."""
        found: dict[tuple[int, ...], int] = {}
        for device in range(self.count):
            found.setdefault(self.parts(device, split), device)
        return found


def parse_mesh(text: str) -> Mesh:
    """`<["a"=2, "b"=2]>`. Raises ValueError for devices in another order than theirs."""
    axes = tuple((name, int(size)) for name, size in _AXIS.findall(text.partition("device_ids")[0]))
    mesh = Mesh(axes)
    given = re.search(r"device_ids\s*=\s*\[([\d,\s]*)\]", text)
    order = [int(n) for n in given[1].split(",")] if given and axes else []
    if order and (len(order) != mesh.count or order != list(range(mesh.count))):
        raise ValueError("a mesh of devices in an order of their own")
    return mesh


def parse_shardings(text: str) -> list[tuple[str, Split]]:
    """`[<@mesh, [{"a"}, {}]>, ...]`: the mesh and the split of each. Raises ValueError for parts of axes."""
    found = []
    for mesh, inner in _SHARDING.findall(text):
        names = [_NAME.findall(d) for d in _DIMENSION.findall(inner)]
        if any(part for d in names for _, part in d):
            raise ValueError("a dimension that is split along part of an axis")
        found.append((mesh, tuple(tuple(name for name, _ in d) for d in names)))
    return found
