"""An order of the units (kernels and single nodes) that stays topological while kernels merge.

After D. Pearce and P. Kelly, "A Dynamic Topological Sort Algorithm for Directed Acyclic Graphs": only what lies between the two
merged units is looked at, and moved. A search stops after `REACH` units, so that every question has a bounded price.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

REACH = 100
"""How many units a search visits before it gives up."""

U = TypeVar("U")


class Blocked(Exception):
    """Two units cannot merge. `through` is the unit on a path between them; None when the search gave up."""

    def __init__(self, through: object | None) -> None:
        super().__init__()
        self.through = through


class Order(Generic[U]):
    """`position[unit]` increases along every edge. Units are compared by identity."""

    def __init__(self, before: Callable[[U], Iterable[U]], after: Callable[[U], Iterable[U]]) -> None:
        self.position: dict[U, int] = {}
        self._before, self._after = before, after

    def append(self, unit: U) -> None:
        """Puts a unit last."""
        self.position[unit] = len(self.position)

    def merge(self, first: U, second: U) -> int:
        """The position for the union of two units, `first` standing before `second`; others may move.

        The caller puts the union there and removes the two. Raises Blocked when a path leads from the one to the other
        through a third, and then nothing has changed.
        """
        low, high = self.position[first], self.position[second]
        if all(u is first or self.position[u] < low for u in self._before(second)):
            return low
        if all(u is second or self.position[u] > high for u in self._after(first)):
            return high
        behind = self._between(second, first, self._before)
        ahead = self._between(first, second, self._after)
        if behind is None or ahead is None:
            raise Blocked(None)
        return self._arrange(behind, ahead, first, second)

    def _between(self, start: U, goal: U, step: Callable[[U], Iterable[U]]) -> list[U] | None:
        """The units reached from `start` on this side of `goal`, which may be met at the first step only; None for too many."""
        low, high = sorted((self.position[start], self.position[goal]))
        found = {u: None for u in step(start) if u is not goal and low < self.position[u] < high}
        stack = list(found)
        while stack:
            unit = stack.pop()
            for u in step(unit):
                if u is goal:
                    raise Blocked(unit)
                if u not in found and low < self.position[u] < high:
                    found[u] = None
                    stack.append(u)
            if len(found) > REACH:
                return None
        return sorted(found, key=self.position.__getitem__)

    def _arrange(self, behind: list[U], ahead: list[U], first: U, second: U) -> int:
        """What the union needs goes before it, what needs it after."""
        pool = sorted(self.position[u] for u in (*behind, *ahead, first, second))
        for unit, place in zip(behind, pool, strict=False):
            self.position[unit] = place
        for unit, place in zip(reversed(ahead), reversed(pool), strict=False):
            self.position[unit] = place
        return pool[len(behind)]

    def replace(self, old: Iterable[U], new: U, position: int) -> None:
        """`new` stands at `position`, for the `old` units."""
        for unit in old:
            self.position.pop(unit, None)
        self.position[new] = position
