"""Random programs before every judge of `tests/support/judges.py`; the seed that a failure names is the program and its inputs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.judges import JUDGES

CHUNK = 80


def chunks() -> list[Any]:
    """The seeds of every judge in runs; those beyond the sampled ones belong to the long suites."""
    return [
        pytest.param(name, start, marks=[pytest.mark.conformance] if start >= trials.sampled else [])
        for name, trials in JUDGES.items() for start in range(0, trials.whole, CHUNK)
    ]  # fmt: skip


@pytest.mark.parametrize(("name", "start"), chunks())
def test_seeds(name: str, start: int) -> None:
    trials = JUDGES[name]
    whole = trials.sampled if start < trials.sampled else trials.whole
    seeds = range(start, min(start + CHUNK, whole))
    count = 0
    for seed in seeds:
        try:
            count += trials.judge(random.Random(seed))
        except Exception as e:
            e.add_note(f"{name}: seed {seed}")
            raise
    assert count >= trials.counting * len(seeds), "too few cases say anything"


def drawn(name: str, cases: int) -> None:
    quiet = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck), max_examples=cases)

    @quiet
    @given(st.randoms(use_true_random=False))
    def judged(rng: random.Random) -> None:
        JUDGES[name].judge(rng)

    judged()


@pytest.mark.parametrize("name", [name for name, t in JUDGES.items() if t.drawn])
def test_programs_that_hypothesis_draws_and_makes_small(name: str) -> None:
    drawn(name, JUDGES[name].drawn)


@pytest.mark.conformance
@pytest.mark.parametrize("name", [name for name, t in JUDGES.items() if t.drawn_whole])
def test_many_programs_that_hypothesis_draws(name: str) -> None:
    drawn(name, JUDGES[name].drawn_whole)
