"""Collectives: a grid of replicas and partitions, and the exchange that a collective operation declares.

Devices are numbered replica by replica: device = replica * partitions + partition. Nothing here knows how devices are run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from deepx_graph.ir.function import Function

Devices = tuple[int, ...]


@dataclass(frozen=True)
class Grid:
    """So many replicas of so many partitions each."""

    replicas: int = 1
    partitions: int = 1

    @property
    def count(self) -> int:
        """The number of devices."""
        return self.replicas * self.partitions

    def device(self, replica: int, partition: int) -> int:
        """The number of a device. Raises LookupError for one outside the grid."""
        if not (0 <= replica < self.replicas and 0 <= partition < self.partitions):
            raise LookupError(f"there is no replica {replica}, partition {partition} in {self}")
        return replica * self.partitions + partition

    def replica(self, device: int) -> int:
        return device // self.partitions

    def partition(self, device: int) -> int:
        return device % self.partitions

    def __str__(self) -> str:
        return f"{self.replicas} replica{'s' * (self.replicas != 1)} of {self.partitions} partition{'s' * (self.partitions != 1)}"


@dataclass(frozen=True)
class Exchange:
    """The meaning of a collective.

    `group(grid, device, *attrs)` gives the devices that meet there, in order; none when this one takes no part, and then its
    results are zeros like its operands. `combine(grid, group, values, *attrs)` takes the operands of every member and gives the
    results of every member. Both raise ValueError or LookupError with what is wrong.
    """

    group: Callable[..., Devices]
    combine: Callable[..., Sequence[Sequence[Any]]]
    body: Callable[..., Function] | None = None
    """`body(*attrs)`: by what elements are combined where every member gets all of that, which a network may do itself."""

    def alone(self, values: Sequence[Any], attrs: Sequence[Any]) -> Sequence[Any]:
        """The results on a grid of one device."""
        grid = Grid()
        group = self.group(grid, 0, *attrs)
        return self.combine(grid, group, [values], *attrs)[0] if group else nothing(values)


def nothing(values: Sequence[Any]) -> list[Any]:
    """The results of a device that takes no part: zeros."""
    return [np.zeros_like(v) for v in values]
