"""Seeds of random tests: a few always, all of them in the long suites."""

from __future__ import annotations

import pytest


def seeds(sampled: int, count: int) -> list[object]:
    """The parameters of a test: numbers below `count`, of which those from `sampled` on are left to `make conformance`."""
    return [*range(sampled), *(pytest.param(seed, marks=pytest.mark.conformance) for seed in range(sampled, count))]
