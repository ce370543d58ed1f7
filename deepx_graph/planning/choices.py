"""`ChoiceProblem`: one candidate for each decision, so that they and what stands between them cost least within a memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from deepx_graph.literal import Array

SLACK = 1e-6
"""What a solver may be beyond a bound, relative to it."""


@dataclass
class SearchLimit:
    """How long a search may take, from now on, by a clock of seconds: of the processor, unless it is another one."""

    seconds: float
    clock: Callable[[], float] = time.process_time
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def left(self, share: float = 1.0) -> float:
        """Seconds that are left of a share of the time."""
        return max(0.0, self.began + share * self.seconds - self.clock())


def least_seconds_apart(costs: Sequence[Array], edges: Mapping[tuple[int, int], Array]) -> float:
    """Seconds below which no choice is: the least of each decision and of each edge, taken apart."""
    return sum(float(c.min()) for c in (*costs, *edges.values()))


@dataclass
class ChoiceProblem:
    """`costs[d]` are the seconds of the candidates of decision d; `edges[a, b]`, a < b, those of each pair of two decisions.

    `held[d]`, candidates by moments, are the bytes that each candidate holds; `fixed` those that no decision changes; `memory` what
    there may be at every moment.
    """

    costs: Sequence[Array]
    edges: Mapping[tuple[int, int], Array]
    held: Sequence[Array]
    fixed: Array
    memory: float

    def __post_init__(self) -> None:
        self._neighbours: list[list[tuple[int, Array]]] = [[] for _ in self.costs]
        for (a, b), costs in self.edges.items():
            self._neighbours[a].append((b, costs.T))
            self._neighbours[b].append((a, costs))

    def seconds(self, choice: Sequence[int]) -> float:
        """What a choice costs."""
        own = sum(float(costs[k]) for costs, k in zip(self.costs, choice, strict=True))
        return own + sum(float(costs[choice[a], choice[b]]) for (a, b), costs in self.edges.items())

    def used(self, choice: Sequence[int]) -> Array:
        """The bytes that a choice holds at each moment."""
        used: Array = np.sum([self.fixed, *(held[k] for held, k in zip(self.held, choice, strict=True))], axis=0)
        return used

    def peak(self, choice: Sequence[int]) -> float:
        """The most that a choice holds."""
        return float(self.used(choice).max(initial=0.0))

    def fits(self, choice: Sequence[int]) -> bool:
        """Whether a choice fits into the memory."""
        return self.peak(choice) <= self.memory * (1 + SLACK)

    def among(self, candidates: Sequence[Array]) -> ChoiceProblem:
        """The same with these candidates of each decision alone."""
        edges = {(a, b): c[np.ix_(candidates[a], candidates[b])] for (a, b), c in self.edges.items()}
        costs, held = ([table[k] for table, k in zip(tables, candidates, strict=True)] for tables in (self.costs, self.held))
        return ChoiceProblem(costs, edges, held, self.fixed, self.memory)

    def improved(self, choice: Sequence[int], limit: SearchLimit) -> list[int]:
        """A choice that no other candidate of one decision improves: of those nearest to fitting the cheapest (iterated
        conditional modes: Besag, On the Statistical Analysis of Dirty Pictures, 1986)."""
        found = list(choice)
        used, goes_on = self.used(found), True
        while goes_on and limit.left():
            goes_on = False
            for d, held in enumerate(self.held):
                rest = used - held[found[d]]
                over = np.maximum(rest + held - self.memory, 0.0).max(axis=1, initial=0.0)
                costs = self.costs[d] + sum(costs[found[other]] for other, costs in self._neighbours[d])
                costs = np.where(over <= over.min(), costs, np.inf)
                best = int(costs.argmin())
                if costs[best] < costs[found[d]]:
                    found[d], goes_on = best, True
                    used = rest + held[best]
        return found
