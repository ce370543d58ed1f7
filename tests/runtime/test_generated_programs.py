"""Optimised equals the numpy reference, on programs that hypothesis draws and, where they fail, makes small."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deepx_graph as dx
from tests.runtime.test_random_programs import agree
from tests.support.generate import random_inputs, random_module
from tests.support.reference import same

QUIET = settings(deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=50)
programs = st.randoms(use_true_random=False)


def check(rng: random.Random, exact: bool) -> None:
    module = random_module(rng, max_ops=60, exact=exact)
    inputs = random_inputs(rng, module)
    wanted = dx.compile(module, engine="numpy")(*inputs)
    found = dx.compile(dx.optimize(module))(*inputs)
    equal = same if exact else agree
    wrong = [k for k, (a, b) in enumerate(zip(found, wanted, strict=True)) if not equal(np.asarray(a), np.asarray(b))]
    assert not wrong, f"results {wrong} differ:\n{dx.dumps(module, 'sea')}"


@QUIET
@given(programs)
def test_optimised_equals_the_reference_bit_for_bit(rng: random.Random) -> None:
    check(rng, exact=True)


@QUIET
@given(programs)
def test_optimised_equals_the_reference_within_rounding(rng: random.Random) -> None:
    check(rng, exact=False)


@pytest.mark.conformance
@settings(QUIET, max_examples=1000)
@given(programs)
def test_a_thousand_programs(rng: random.Random) -> None:
    check(rng, exact=True)
