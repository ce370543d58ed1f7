"""`best_choice`: an anytime search for the best choice, with what it can at most be better than the one that is given.

From starting points, improved decision by decision; then bounds by message passing, which give better choices and take out
candidates that no better choice has; at last an integer program over what is left, for what is left of the time, by HiGHS through
scipy. That has a variable from 0 to 1 for each candidate, those of a decision are 1 together, and products of two decisions are
relaxed to the marginals of each edge, with one variable for all pairs of candidates that differ in nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, UsageError, sized
from deepx_graph.literal import Array
from deepx_graph.planning.choices import SLACK, ChoiceProblem, SearchLimit, least_seconds_apart
from deepx_graph.planning.presolve import DualBound, Presolved

GAP = 1e-4
"""A choice that is at most so much above the best, relative to its seconds, is as good."""

PASSING = 0.5
"""The share of the time that is left in which messages are passed."""

MOST_SWEEPS = 200

IN_STAGES = "in stages on so many devices: simulate FILE --devices N --batch INPUT,..."
"""Where to look for what no plan for one mesh has."""

_MICRO = 1e6
"""Costs are in microseconds for the solver, as it has absolute tolerances."""

_INFEASIBLE = 2
"""What scipy says of a program whose rows nothing keeps to."""


@dataclass(frozen=True)
class FoundChoice:
    """A candidate for each decision. `gap`: by how much of `seconds` at most the best choice is better; 1: nothing is known."""

    candidates: tuple[int, ...]
    seconds: float
    gap: float


def best_choice(problem: ChoiceProblem, starts: Sequence[Sequence[int]], limit: SearchLimit) -> FoundChoice:
    """The best choice that is found in time. Raises UsageError where none is found that fits, which says how much is missing."""
    search = _Search(problem, limit)
    search.start(starts)
    search.refine()
    gap = search.gap
    return FoundChoice(tuple(search.best), search.seconds, 0.0 if gap <= SLACK else gap)


class _Search:
    """The best choice so far, and a bound on all of them."""

    def __init__(self, problem: ChoiceProblem, limit: SearchLimit) -> None:
        self.problem, self.limit = problem, limit
        self.best: list[int] = []
        self.seconds, self.bound = np.inf, least_seconds_apart(problem.costs, problem.edges)

    @property
    def gap(self) -> float:
        """By how much of its seconds the best choice may be improved."""
        return max(0.0, (self.seconds - self.bound) / self.seconds) if self.seconds > 0 else 0.0

    def start(self, starts: Sequence[Sequence[int]]) -> None:
        """Improves starting points. Raises UsageError where nothing fits."""
        found = [self._offer(s) for s in starts]
        if self.best or not self.problem.costs:
            self._take([])
            return
        least, lower = least_memory(self.problem, self.limit)
        if lower > self.problem.memory * (1 + SLACK):
            raise self._too_large("the values of every plan take", lower)
        found += [] if least is None else [self._offer(least)]
        if not self.best:
            raise self._too_large(f"in {self.limit.seconds:g} s the least that was found takes", min(map(self.problem.peak, found)))

    def _offer(self, choice: Sequence[int]) -> list[int]:
        """A choice as it can be improved, which is taken where it is the best so far."""
        improved = self.problem.improved(choice, self.limit)
        self._take(improved)
        return improved

    def _take(self, choice: Sequence[int]) -> None:
        if len(choice) == len(self.problem.costs) and self.problem.fits(choice) and self.problem.seconds(choice) < self.seconds:
            self.best, self.seconds = list(choice), self.problem.seconds(choice)

    def refine(self) -> None:
        """Better choices and bounds, until the gap is closed or time is over."""
        rest = Presolved(self.problem)
        candidates = self._passed(rest)
        if self.gap <= GAP or not self.limit.left():
            return
        small = Presolved(rest.problem.among(candidates))
        found, lower = least_seconds(small.problem, self.limit)
        self.bound = max(self.bound, min(self.seconds, lower + small.constant + rest.constant))
        if found is not None:
            inner = [int(k[c]) for k, c in zip(candidates, small.restored(found), strict=True)]
            self._take(rest.restored(inner))

    def _passed(self, rest: Presolved) -> list[np.ndarray]:
        """Passes messages; gives the candidates that a better choice may have."""
        dual, time = DualBound(rest.problem), SearchLimit(self.limit.left(), self.limit.clock)
        for k, choice in enumerate(dual.sweeps()):
            self._offer(rest.restored(choice))
            self.bound = max(self.bound, dual.seconds + rest.constant)
            if self.gap <= GAP or k >= MOST_SWEEPS or not time.left(PASSING):
                break
            dual.price(choice, self.seconds - rest.constant, k)
        return [np.flatnonzero(able) for able in dual.within(self.seconds - rest.constant)]

    def _too_large(self, said: str, needed: float) -> UsageError:
        there, whole = int(self.problem.memory), math.ceil(needed * (1 - SLACK**2))  # solvers round
        note = f"{said} {sized(whole)} at the moment of most: {sized(max(1, whole - there))} more than there are"
        return UsageError(Diagnostic(f"no plan was found that fits into {sized(there)} of a device", notes=(note,),
                                     hint=f"allow more memory, or use more devices; {IN_STAGES}"))


# --- integer programs ----------------------------------------------------------------------------------------------------


def least_seconds(problem: ChoiceProblem, limit: SearchLimit) -> tuple[list[int] | None, float]:
    """The choice of least seconds that is found in time, None where there is none, and seconds below which none is that fits."""
    if not problem.costs:
        return [], 0.0
    program = _IntegerProgram(problem)
    cost = [np.concatenate(problem.costs)]
    for (a, b), costs in problem.edges.items():
        rows, row_of = np.unique(costs, axis=0, return_inverse=True)
        small, column_of = np.unique(rows, axis=1, return_inverse=True)
        cost.append(small.ravel())
        pairs = program.variables(small.size).reshape(small.shape)
        for decision, groups, lines in ((a, row_of, pairs), (b, column_of, pairs.T)):
            for g, line in enumerate(lines):
                members = program.offsets[decision] + np.flatnonzero(groups.ravel() == g)
                program.row(np.concatenate((line, members)), np.repeat((1.0, -1.0), (len(line), len(members))), 0.0, 0.0)
    for moment, fixed in enumerate(problem.fixed):
        program.row(*program.held_at(moment), -np.inf, 1.0 - fixed / problem.memory)
    found, lower = program.solved(np.concatenate(cost) * _MICRO, limit)
    return found, lower / _MICRO


def least_memory(problem: ChoiceProblem, limit: SearchLimit) -> tuple[list[int] | None, float]:
    """The choice that holds least at the moment of most, and bytes below which none is, as `least_seconds`."""
    program = _IntegerProgram(problem)
    peak = program.variables(1)
    for moment, fixed in enumerate(problem.fixed):
        columns, shares = program.held_at(moment)
        program.row(np.append(columns, peak), np.append(shares, -1.0), -np.inf, -fixed / problem.memory)
    cost = np.zeros(program.count)
    cost[peak] = 1.0
    found, lower = program.solved(cost, limit)
    return found, lower * problem.memory


class _IntegerProgram:
    """The variables, those of candidates first, and the rows that bind them."""

    def __init__(self, problem: ChoiceProblem) -> None:
        self.problem = problem
        self.offsets = np.cumsum([0, *map(len, problem.costs)])
        self.count = self.integral = int(self.offsets[-1])
        self._columns: list[Array] = []
        self._values: list[Array] = []
        self._bounds: list[tuple[float, float]] = []
        for start, end in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            self.row(np.arange(start, end), np.ones(end - start), 1.0, 1.0)

    def variables(self, count: int) -> Array:
        """The numbers of so many more variables, which need not be integral."""
        self.count += count
        return np.arange(self.count - count, self.count)

    def row(self, columns: Array, values: Array, low: float, high: float) -> None:
        """Bounds the sum of variables, each times a number."""
        self._columns.append(columns)
        self._values.append(values)
        self._bounds.append((low, high))

    def held_at(self, moment: int) -> tuple[Array, Array]:
        """The variables of candidates, and what each holds at a moment, of the memory that there is."""
        held = np.concatenate([h[:, moment] for h in self.problem.held])
        columns = np.flatnonzero(held)
        return columns, held[columns] / self.problem.memory

    def solved(self, cost: Array, limit: SearchLimit) -> tuple[list[int] | None, float]:
        """The candidate of each decision at the least cost that is found in time, if any, and a cost below which there is none:
        infinite where no candidates keep to the rows."""
        optimize, sparse = import_module("scipy.optimize"), import_module("scipy.sparse")
        rows = np.repeat(np.arange(len(self._columns)), [len(c) for c in self._columns])
        matrix = sparse.csr_matrix((np.concatenate(self._values), (rows, np.concatenate(self._columns))),
                                   shape=(len(self._columns), self.count))
        integral, high = np.zeros(self.count), np.full(self.count, np.inf)
        integral[: self.integral] = high[: self.integral] = 1
        low_bounds, high_bounds = np.array(self._bounds).T
        found: Any = optimize.milp(cost, integrality=integral, bounds=optimize.Bounds(0, high),
                                   constraints=optimize.LinearConstraint(matrix, low_bounds, high_bounds),
                                   options={"time_limit": limit.left()})
        lower = np.inf if found.status == _INFEASIBLE else -np.inf if found.mip_dual_bound is None else float(found.mip_dual_bound)
        if found.x is None:
            return None, lower
        return [int(np.argmax(piece)) for piece in np.split(found.x[: self.integral], self.offsets[1:-1])], lower
