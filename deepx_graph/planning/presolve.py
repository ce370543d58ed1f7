"""What can be told of a choice problem without a search: smaller problems with the same best choices, and bounds.

- A candidate goes where another one of its decision is no worse whatever its neighbours are (the dead-end elimination of Goldstein,
  Efficient rotamer elimination applied to protein side-chains, 1994), and holds no more at any moment.
- A decision with at most two neighbours goes where its candidates hold the same: its least cost for each pair of candidates of the
  neighbours becomes a cost between these (the reductions RI and RII of partitioned boolean quadratic problems: Scholz and Eckstein,
  Register allocation for irregular architectures, 2002).
- Costs are moved between decisions and edges so that the sum of all least costs, which no choice is below, grows: sequential
  reweighted message passing (Kolmogorov, A New Look at Reweighted Message Passing, 2015). Memory is priced by Lagrange multipliers,
  which subgradients move (Held, Wolfe, Crowder, Validation of Subgradient Optimization, 1974; the length of steps is Polyak's).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from deepx_graph.literal import Array
from deepx_graph.planning.choices import ChoiceProblem, least_seconds_apart

NEIGHBOURS = 2
"""Decisions with more are not taken out: what stood for them would bind too many others."""

PRICED = 4
"""Sweeps between changes of the prices of memory."""


@dataclass(frozen=True)
class _TakenOut:
    """A decision that follows from its neighbours: the best of its candidates for each choice of them."""

    decision: int
    neighbours: tuple[int, ...]
    best: Array


class Presolved:
    """What is left of a problem: the decisions of `problem` are those with the numbers `decisions`, and all choices cost
    `constant` seconds beside it."""

    def __init__(self, whole: ChoiceProblem) -> None:
        self._costs, self._held = dict(enumerate(whole.costs)), dict(enumerate(whole.held))
        self._fixed, self.constant = whole.fixed.copy(), 0.0
        self._alive = {d: np.arange(len(c)) for d, c in self._costs.items()}
        self._between: dict[int, dict[int, Array]] = {d: {} for d in self._costs}
        for (a, b), between in whole.edges.items():
            self._between[a][b], self._between[b][a] = between, between.T
        self._taken: list[_TakenOut] = []
        waiting = dict.fromkeys(self._costs)
        while waiting:
            d = next(iter(waiting))
            del waiting[d]
            if d in self._costs:
                waiting |= dict.fromkeys(self._simplified(d))
        self.decisions = list(self._costs)
        number = {d: k for k, d in enumerate(self.decisions)}
        edges = {(number[a], number[b]): m for a in self.decisions for b, m in self._between[a].items() if number[a] < number[b]}
        costs, held = ([table[d] for d in self.decisions] for table in (self._costs, self._held))
        self.problem = ChoiceProblem(costs, edges, held, self._fixed, whole.memory)

    def restored(self, choice: Sequence[int]) -> list[int]:
        """The choice of the whole problem that one of the rest stands for."""
        found = dict(zip(self.decisions, choice, strict=True))
        for step in reversed(self._taken):
            found[step.decision] = int(step.best[tuple(found[n] for n in step.neighbours)])
        return [int(self._alive[d][found[d]]) for d in sorted(found)]

    def _simplified(self, d: int) -> list[int]:
        """Takes out candidates of a decision, or all of it; gives the decisions for which that changes something."""
        near = list(self._between[d])
        if self._drop(d):
            return [d, *near]
        held = self._held[d]
        if len(near) > NEIGHBOURS or not (held == held[0]).all():
            return []
        table = self._costs.pop(d).reshape(-1, *[1] * len(near))
        for k, n in enumerate(near):
            between = self._between[d][n]
            table = table + between.reshape(len(between), *(between.shape[1] if k == axis else 1 for axis in range(len(near))))
            del self._between[n][d]
        self._fixed += self._held.pop(d)[0]
        del self._between[d]
        self._taken.append(_TakenOut(d, tuple(near), table.argmin(axis=0)))
        least = table.min(axis=0)
        if not near:
            self.constant += float(least)
        elif len(near) == 1:
            self._costs[near[0]] = self._costs[near[0]] + least
        else:
            a, b = near
            self._between[a][b] = self._between[a].get(b, 0.0) + least
            self._between[b][a] = self._between[a][b].T
        return near

    def _drop(self, d: int) -> bool:
        """Takes out the candidates of a decision than which another one is never worse; whether there were such."""
        costs, held = self._costs[d], self._held[d]
        worse = costs[None, :] - costs[:, None]  # by how much the second is worse than the first, at the least
        for between in self._between[d].values():
            worse = worse + (between[None, :, :] - between[:, None, :]).min(axis=2)
        holds_less = (held[:, None, :] <= held[None, :, :]).all(axis=2)
        goes = (worse >= 0) & holds_less
        np.fill_diagonal(goes, False)
        stay = np.ones(len(costs), bool)
        for c in range(len(costs)):
            stay[c] = not (goes[:, c] & stay).any()
        if stay.all():
            return False
        self._costs[d], self._held[d], self._alive[d] = costs[stay], held[stay], self._alive[d][stay]
        for n, between in self._between[d].items():
            self._between[d][n] = between[stay]
            self._between[n][d] = between[stay].T
        return True


class DualBound:
    """The bound so far, and the costs as they were moved."""

    def __init__(self, problem: ChoiceProblem) -> None:
        self.problem = problem
        self.nodes = [c.astype(float) for c in problem.costs]
        self.edges = {pair: c.astype(float) for pair, c in problem.edges.items()}
        self.prices = np.zeros(len(problem.fixed))
        near: list[list[tuple[int, Array]]] = [[] for _ in self.nodes]
        for (a, b), costs in self.edges.items():
            near[a].append((b, costs))
            near[b].append((a, costs.T))  # a view: both see what is moved
        self._before = [[(n, c) for n, c in rows if n < d] for d, rows in enumerate(near)]
        self._behind = [[(n, c) for n, c in rows if n > d] for d, rows in enumerate(near)]

    @property
    def seconds(self) -> float:
        """What no choice is below."""
        return least_seconds_apart(self.nodes, self.edges) - float(self.prices @ (self.problem.memory - self.problem.fixed))

    def sweeps(self) -> Iterator[list[int]]:
        """Sweeps forward and back without end, each with a choice that follows from it."""
        while True:
            self._sweep(range(len(self.nodes)), self._before, self._behind)
            yield self._sweep(range(len(self.nodes) - 1, -1, -1), self._behind, self._before)

    def _sweep(self, order: range, done: list[list[tuple[int, Array]]], coming: list[list[tuple[int, Array]]]) -> list[int]:
        """Each decision takes what its edges cost at the least, and gives it to those that come; and is the best with what
        was decided before it."""
        found = [0] * len(self.nodes)
        for d in order:
            costs = self.nodes[d]
            known = costs + sum(between[:, found[n]] for n, between in done[d])
            for _, between in coming[d]:
                known = known + between.min(axis=1)
            found[d] = int(known.argmin())
            for _, between in (*done[d], *coming[d]):
                least = between.min(axis=1)
                costs += least
                between -= least[:, None]
            if coming[d]:
                given = costs / max(len(coming[d]), len(done[d]))
                for _, between in coming[d]:
                    between += given[:, None]
                costs -= given * len(coming[d])
        return found

    def price(self, choice: list[int], best: float, sweep: int) -> None:
        """Makes memory dearer at the moments at which a choice needs more than there is, and cheaper where less, now and then."""
        if sweep % PRICED:
            return
        slope = self.problem.used(choice) - self.problem.memory
        slope[(slope < 0) & (self.prices == 0)] = 0.0
        length = float(slope @ slope)
        if length == 0.0:
            return
        prices = np.maximum(self.prices + max(0.0, best - self.seconds) / length * slope, 0.0)
        for costs, held in zip(self.nodes, self.problem.held, strict=True):
            costs += held @ (prices - self.prices)
        self.prices = prices

    def within(self, seconds: float) -> list[Array]:
        """For each decision, which candidates a choice of at most so many seconds may have."""
        spare = seconds - self.seconds
        found = []
        for costs, before, behind in zip(self.nodes, self._before, self._behind, strict=True):
            more = costs - costs.min()
            for _, between in (*before, *behind):
                more = more + between.min(axis=1) - between.min()
            found.append(more <= spare)
        return found
