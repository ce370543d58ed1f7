"""The documented generator: values from the C++ standard's own definition, written here one step at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deepx_graph.ops.math.random import MODULUS, canonical, derive_seed, minstd, standard_normal


class Minstd:
    """std::minstd_rand0 and what libstdc++ draws from it, step by step."""

    def __init__(self, seed: int) -> None:
        self.x = seed % MODULUS or 1
        self.saved: float | None = None

    def next(self) -> int:
        self.x = self.x * 16807 % MODULUS
        return self.x

    def canonical(self) -> float:
        first, second = self.next() - 1, self.next() - 1
        return (first + second * 2147483646.0) / (2147483646.0 * 2147483646.0)

    def normal(self) -> float:
        if self.saved is not None:
            value, self.saved = self.saved, None
            return value
        while True:
            x, y = 2.0 * self.canonical() - 1.0, 2.0 * self.canonical() - 1.0
            square = x * x + y * y
            if square <= 1.0 and square != 0.0:
                break
        scale = math.sqrt(-2 * math.log(square) / square)
        self.saved = x * scale
        return y * scale


def test_the_standard_says_what_draw_10000_is() -> None:
    """[rand.predef]: the 10000th invocation of a default-constructed minstd_rand0 gives 1043618065."""
    assert int(minstd(1, 9999, 1)[0]) == 1043618065
    assert int(minstd(1, 0, 10000)[-1]) == 1043618065


def test_uniform_agrees_with_the_recorded_executor() -> None:
    np.testing.assert_allclose(canonical(42, 0, 4), [0.524587, 0.263306, 0.196286, 0.512318], atol=5e-7)


@pytest.mark.parametrize("seed", [0, 1, 42, MODULUS, 4224950425])
def test_uniform_and_normal_step_by_step(seed: int) -> None:
    one, two = Minstd(seed), Minstd(seed)
    np.testing.assert_array_equal(canonical(seed, 0, 100), [one.canonical() for _ in range(100)])
    np.testing.assert_allclose(standard_normal(seed, 101), [two.normal() for _ in range(101)], rtol=1e-14)


def test_any_part_of_the_sequence_is_the_same_part() -> None:
    np.testing.assert_array_equal(minstd(7, 0, 50)[13:40], minstd(7, 13, 27))
    assert minstd(7, 3, 0).size == standard_normal(7, 0).size == 0


def test_derived_seeds_differ() -> None:
    seeds = {derive_seed(s, k) for s in range(30) for k in range(30)}
    assert len(seeds) == 900
    assert all(0 < s < MODULUS for s in seeds)
