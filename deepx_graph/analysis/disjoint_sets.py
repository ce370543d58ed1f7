"""Disjoint sets (union-find, with path halving): which of many things belong together, told pair by pair."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class DisjointSets(Generic[T]):
    """Sets of things, each at first in one of its own."""

    def __init__(self) -> None:
        self._parent: dict[T, T] = {}

    def find(self, thing: T) -> T:
        """The thing that stands for the set."""
        parent = self._parent
        while (up := parent.get(thing, thing)) != thing:
            parent[thing] = thing = parent.get(up, up)
        return thing

    def union(self, a: T, b: T) -> None:
        """Makes one set of the two, for which what stood for the second stands."""
        a, b = self.find(a), self.find(b)
        if a != b:
            self._parent[a] = b
