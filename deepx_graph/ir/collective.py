"""Collectives: a grid of replicas and partitions, and the exchange that a collective operation declares.

Devices are numbered replica by replica: device = replica * partitions + partition. Nothing here knows how devices are run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from deepx_graph.literal import Array

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


class GroupNetwork(Protocol):
    """What a network does for a group whose members are all there, without an array of every member's operands on each of them."""

    size: int
    """How many members there are."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Memory for a result, with arbitrary contents."""

    def all_reduce(self, array: Array, body: Function) -> Array | None:
        """The arrays of all members, combined element by element; None where the network does not know how."""

    def all_gather(self, array: Array) -> Array:
        """The arrays of all members along a new first dimension, in the order of the group."""

    def all_to_all(self, parts: Array) -> Array:
        """Item k of the first dimension goes to member k; what comes lies in the order of the members."""


@dataclass(frozen=True)
class Exchange:
    """The meaning of a collective.

    `group(grid, device, *attrs)` gives the devices that meet there, in order; none when this one takes no part, and then its
    results are zeros like its operands. `combine(grid, group, values, *attrs)` takes the operands of every member and gives the
    results of every member. Both raise ValueError or LookupError with what is wrong.
    """

    group: Callable[..., Devices]
    combine: Callable[..., Sequence[Sequence[Any]]]
    network: Callable[..., list[Any] | None] | None = None
    """`network(network, values, *attrs)`: this member's results for its operands by a `GroupNetwork`; None where that cannot."""
    scratch: Callable[..., int] | None = None
    """`scratch(size, sizes, *attrs)`: the most bytes that `network` takes in a group of so many beside operands, of so many bytes
    each, and results."""
    reduction: Callable[..., Function] | None = None
    """`reduction(*attrs)`: what `network` has the network combine elements by; None where it asks it to move them alone."""

    def most_scratch(self, size: int, operands: Sequence[int], results: int, attrs: Sequence[Any], *,
                     knows: Callable[[Function], bool]) -> int:
        """The most bytes that a member of a group of so many takes beside its operands and results, of so many bytes. The network
        `knows` how to combine elements by some functions.

        Where it does not know how, a member has the operands of all members, and of the results a copy.
        """
        if size < 2:
            return 0
        if self.scratch is None or (self.reduction is not None and not knows(self.reduction(*attrs))):
            return size * sum(operands) + results
        return self.scratch(size, operands, *attrs)

    def alone(self, values: Sequence[Any], attrs: Sequence[Any]) -> Sequence[Any]:
        """The results on a grid of one device."""
        grid = Grid()
        group = self.group(grid, 0, *attrs)
        return self.combine(grid, group, [values], *attrs)[0] if group else nothing(values)


def nothing(values: Sequence[Any]) -> list[Any]:
    """The results of a device that takes no part: zeros."""
    return [np.zeros_like(v) for v in values]
