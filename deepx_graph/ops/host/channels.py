"""What leads out of a running program and between the devices that run it: infeed, outfeed, channels and probes.

A `Channels` belongs to one device of one compiled program; devices that run side by side share their channels. `Waiting` is not an
error but says that an operation cannot proceed before another device has: the operation is tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, RunError, an
from deepx_graph.ir.collective import Grid
from deepx_graph.literal import Array
from deepx_graph.types import TensorType, type_of_array

Pairs = tuple[tuple[int, ...], ...]


class Waiting(Exception):
    """What an operation waits for, in words."""


class Feed:
    """What an infeed reads: arrays, or tuples of arrays, one after the other. `taken` counts arrays."""

    def __init__(self, items: Iterable[Any]) -> None:
        self._rest = _arrays(items)
        self.taken = 0

    def take(self, type: TensorType) -> Array:
        """The next array. Raises RunError when there is none, or it is not of the type."""
        value = next(self._rest, None)
        if value is None:
            raise RunError(Diagnostic(f"the infeed has ended after {self.taken} arrays", expected=str(type),
                                      hint="give more with infeed= or --infeed"))
        self.taken += 1
        try:
            found = type_of_array(value)
        except KeyError:
            raise RunError(Diagnostic(f"array {self.taken - 1} of the infeed is of {value.dtype}", expected=str(type))) from None
        if found != type:
            raise RunError(Diagnostic(f"array {self.taken - 1} of the infeed is {an(found)}", expected=str(type)))
        return np.array(value, order="C")


def _arrays(items: Iterable[Any]) -> Iterator[Array]:
    for item in items:
        if isinstance(item, (tuple, list)):
            yield from _arrays(item)
        else:
            yield np.asarray(item)


@dataclass(eq=False)
class Channels:
    """`infeed` is None when nothing feeds the program. `channels` holds what was sent and not received yet."""

    infeed: Feed | None = None
    outfeed: list[tuple[Array, ...]] = field(default_factory=list)
    channels: dict[tuple[int, int], deque[tuple[Array, ...]]] = field(default_factory=dict)
    probes: dict[str, list[Array]] = field(default_factory=dict)
    device: int = 0
    grid: Grid | None = None
    """The grid that the device is one of, inside `run_parallel`."""
    counters: dict[int, int] = field(default_factory=dict)
    """How far each rng_get_and_update_state has counted."""

    def count(self, index: int, start: int, delta: int) -> int:
        """The value of a 128-bit counter, which advances by `delta`."""
        value = self.counters.get(index, start)
        self.counters[index] = (value + delta) % (1 << 128)
        return value

    def feed(self, types: Sequence[TensorType]) -> tuple[Array, ...]:
        """The next arrays of the infeed. Raises RunError."""
        if self.infeed is None:
            raise RunError(NO_INFEED)
        return tuple(self.infeed.take(t) for t in types)

    def send(self, channel: int, values: Sequence[Array], pairs: Pairs) -> None:
        """Puts values on a channel: for whoever receives, or for the devices that `pairs` (source, target) name."""
        copies = tuple(np.array(v) for v in values)
        for target in [t for s, t in pairs if s == self.device] if pairs else [-1]:
            self.channels.setdefault((channel, target), deque()).append(copies)

    def receive(self, channel: int, types: Sequence[TensorType], pairs: Pairs) -> tuple[Array, ...]:
        """What was sent first; zeros for a device that `pairs` do not name. Raises Waiting, and RunError for another type."""
        if pairs and all(t != self.device for _, t in pairs):
            return tuple(np.zeros(t.shape, t.dtype.np) for t in types)
        queue = self.channels.get((channel, self.device if pairs else -1))
        if not queue:
            raise Waiting(f"something on channel {channel}")
        values = queue.popleft()
        found = [type_of_array(v) for v in values]
        if found != list(types):
            raise RunError(Diagnostic(f"channel {channel} brings {_listed(found)}", expected=_listed(types)))
        return values


def _listed(types: Sequence[TensorType]) -> str:
    return ", ".join(map(str, types)) or "nothing"


NO_INFEED = "the program reads an infeed, and none is given"
"""What keeps a program with an infeed from starting."""
