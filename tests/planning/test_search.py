"""The search for the best choice: as good as looking at all of them, never over the memory, and ended by its clock."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import UsageError
from deepx_graph.planning import search
from deepx_graph.planning.choices import ChoiceProblem, SearchLimit
from deepx_graph.planning.presolve import DualBound, Presolved
from deepx_graph.planning.search import best_choice


class Clock:
    """Seconds that pass with each look at them."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def problem(seed: int, memory: float = 1e9) -> ChoiceProblem:
    """Up to seven decisions of up to four candidates, half of the pairs bound, at three moments; some candidates are equal."""
    rng = random.Random(seed)
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(1, 7))]
    costs = [np.array([float(rng.randint(0, 5)) for _ in range(n)]) for n in sizes]
    pairs = [p for p in itertools.combinations(range(len(sizes)), 2) if rng.random() < 0.5]
    edges = {(a, b): np.array([[float(rng.choice([0, 0, 1, 3, 7])) for _ in range(sizes[b])] for _ in range(sizes[a])])
             for a, b in pairs}
    held = [np.array([[float(rng.choice([0, 4, 8])) for _ in range(3)] for _ in range(n)]) for n in sizes]
    return ChoiceProblem(costs, edges, held, np.array([1.0, 0.0, 2.0]), memory)


def every(p: ChoiceProblem) -> Iterator[tuple[int, ...]]:
    return itertools.product(*(range(len(c)) for c in p.costs))


def least(p: ChoiceProblem) -> float | None:
    return min((p.seconds(c) for c in every(p) if p.fits(c)), default=None)


def patient() -> SearchLimit:
    return SearchLimit(60, Clock(0.0))


@pytest.mark.parametrize("seed", range(60))
def test_the_best_of_all_choices_is_found(seed: int) -> None:
    roomy = problem(seed)
    peaks = sorted({roomy.peak(c) for c in every(roomy)})
    for memory in (peaks[-1], peaks[len(peaks) // 2], peaks[0]):
        p = problem(seed, memory)
        found = best_choice(p, [[0] * len(p.costs)], patient())
        assert p.fits(found.candidates) and found.seconds == p.seconds(found.candidates) == pytest.approx(least(p), rel=1e-4)
        assert found.gap <= 1e-4


@pytest.mark.parametrize("seed", range(60))
def test_presolving_keeps_the_best_choice(seed: int) -> None:
    roomy = problem(seed)
    p = problem(seed, float(np.median([roomy.peak(c) for c in every(roomy)])))
    rest = Presolved(p)
    for choice in every(rest.problem):
        whole = rest.restored(choice)
        assert p.seconds(whole) == pytest.approx(rest.problem.seconds(choice) + rest.constant)
        np.testing.assert_allclose(p.used(whole), rest.problem.used(choice))
    assert least(rest.problem) == pytest.approx((least(p) or 0.0) - rest.constant)


@pytest.mark.parametrize("seed", range(60))
def test_bounds_are_below_every_choice_that_fits_and_keep_those_that_are_better(seed: int) -> None:
    roomy = problem(seed)
    p = problem(seed, float(np.median([roomy.peak(c) for c in every(roomy)])))
    best, dual = least(p), DualBound(p)
    assert best is not None
    for k, choice in zip(range(12), dual.sweeps(), strict=False):
        assert dual.seconds <= best + 1e-9
        able = dual.within(best + 2.0 + 1e-9)
        for c in every(p):
            if p.fits(c) and p.seconds(c) <= best + 2.0:
                assert all(able[d][n] for d, n in enumerate(c))
        dual.price(choice, best + 2.0, k)


@pytest.mark.parametrize("seed", range(20))
def test_an_error_says_how_much_is_missing(seed: int) -> None:
    roomy = problem(seed)
    needed = min(roomy.peak(c) for c in every(roomy))
    p = problem(seed, needed - 1)
    with pytest.raises(UsageError, match=f"every plan take {needed:g} B at the moment of most: 1 B more"):
        best_choice(p, [[0] * len(p.costs)], patient())


@pytest.mark.parametrize("step", [0.01, 0.3, 2.0, 100.0])
def test_the_clock_ends_the_search_with_the_best_so_far(monkeypatch: pytest.MonkeyPatch, step: float) -> None:
    """The solver is asked for no more than what is left, and for nothing when nothing is."""
    from scipy import optimize

    asked: list[float] = []
    real = optimize.milp

    def milp(*args: Any, options: dict[str, float], **kwargs: Any) -> object:
        asked.append(options["time_limit"])
        return real(*args, options=options, **kwargs)

    monkeypatch.setattr(search, "import_module", lambda name: SimpleNamespace(**{**vars(optimize), "milp": milp})
                        if name == "scipy.optimize" else __import__(name, fromlist=["_"]))
    for seed in range(20):
        p, clock = problem(seed), Clock(step)
        found = best_choice(p, [[len(c) - 1 for c in p.costs], [0] * len(p.costs)], SearchLimit(10, clock))
        best = least(p)
        assert best is not None and best <= found.seconds <= p.seconds([0] * len(p.costs))
        assert found.seconds * (1 - found.gap) <= best + 1e-9
    assert all(0 < limit <= 10 for limit in asked) and (not asked or step < 10)


def test_a_solver_without_time_leaves_a_choice_that_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    p = problem(3)
    none = SimpleNamespace(x=None, status=1, mip_dual_bound=None)
    monkeypatch.setattr(search, "import_module", lambda name: SimpleNamespace(
        milp=lambda *args, **kwargs: none, Bounds=lambda *args: None, LinearConstraint=lambda *args: None)
        if name == "scipy.optimize" else __import__(name, fromlist=["_"]))
    assert best_choice(p, [[0] * len(p.costs)], patient()).seconds <= p.seconds([0] * len(p.costs))
