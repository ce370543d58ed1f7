"""Computations by hand that leave axes to a partitioner: split along these, they give what devices give that repeat the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.session.plans import planned
from deepx_graph.sharding.partition import partition
from tests.support.partly_by_hand import partly_by_hand
from tests.support.sharded_programs import inputs, results_on_devices

COUNT = 500
SAMPLED = 40


def check(seed: int) -> None:
    module = dx.loads(partly_by_hand(random.Random(seed)), "stablehlo")
    arrays, (split, plan) = inputs(module), planned(module)
    assert {n.op.name for n in split.entry.nodes} >= {"manual_operand", "manual_part", "manual_whole"}
    local = partition(split, plan)
    assert {m.collective for m in local.meetings} == {n for n in local.module.entry.nodes if n.op.exchange and n.inputs}
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    for got, want in zip(results_on_devices(local, arrays), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(want).max(initial=0))))


@pytest.mark.parametrize("seed", range(SAMPLED))
def test_sampled(seed: int) -> None:
    check(seed)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(SAMPLED, COUNT))
def test_all(seed: int) -> None:
    check(seed)
