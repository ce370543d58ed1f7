"""Our partitioner beside XLA's: of the same programs under the same shardings on 8 devices, what each one's devices exchange.

Measured in bytes of the results of collectives on one device, those in loops once. Our programs are run, too, and every
collective has a reason.
"""

from __future__ import annotations

import math
import os
import random
import re
import warnings

import numpy as np
import pytest

import deepx_graph as dx
from deepx_graph.ir import Module
from deepx_graph.session.report.collectives import collective_rows, mesh_figures
from deepx_graph.sharding.annotations import needed_plan
from deepx_graph.sharding.partition import Partitioned, partition
from deepx_graph.sharding.plan import Plan
from deepx_graph.sharding.propagate import propagate
from deepx_graph.sharding.reasons import MeetingReason
from tests.support.jax_oracle import VARIABLE
from tests.support.partitioner_oracle import STANDARD, ask
from tests.support.sharded_programs import inputs, on_devices
from tests.support.sharded_texts import random_text

pytestmark = [pytest.mark.conformance,
              pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python with JAX")]  # fmt: skip

COUNT = 500
_COLLECTIVE = re.compile(r" = (.*?) (?:all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")
_SHAPE = re.compile(r"(pred|[a-z]+\d+\w*)\[([\d,]*)\]")


def exchanged(hlo: str) -> int:
    """Bytes of the results of the collectives of an HLO text."""
    total = 0
    for found in _COLLECTIVE.finditer(hlo):
        for dtype, dims in _SHAPE.findall(found[1]):
            size = 8 if dtype == "pred" else int(re.findall(r"\d+", dtype)[0])
            total += math.prod(int(n) for n in dims.split(",") if n) * size // 8
    return total


def partitioned(text: str) -> tuple[Module, Plan, Partitioned]:
    """Our program for one device, with what it is of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = dx.optimize(dx.loads(text, "stablehlo"), "inline,clean")
    plan = propagate(needed_plan(module))
    return module, plan, partition(module, plan)


def check_run(module: Module, plan: Plan, local: Partitioned) -> None:
    """All devices together find what the program finds whole, and every collective has a reason."""
    assert all(isinstance(r.reason, MeetingReason | str) and r.reason for r in collective_rows(local, plan))
    assert {m.collective for m in local.meetings} == {n for n in local.module.entry.nodes if n.op.exchange and n.inputs}
    arrays = inputs(module)
    whole = dx.compile(module, engine="numpy", optimize=False)(*arrays)
    for got, want in zip(on_devices(module, plan, arrays), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(want).max(initial=0))))


def test_random_programs_exchange_no_more_than_xlas() -> None:
    rng = random.Random(20)
    fewer = same = more = failed = 0
    for name, text, hlo in ask({f"{k}": random_text(rng) for k in range(COUNT)}):
        module, plan, local = partitioned(text)
        check_run(module, plan, local)
        if hlo is None:
            failed += 1
            continue
        ours, theirs = mesh_figures(local.module.entry)["collective_bytes"], exchanged(hlo)
        fewer, same, more = fewer + (ours < theirs), same + (ours == theirs), more + (ours > theirs)
        if ours > theirs:
            print("more", name, ours, theirs)
    print(f"fewer {fewer}, same {same}, more {more}, XLA failed on {failed}")
    assert more <= 0.05 * (COUNT - failed)


def test_standard_programs_exchange_no_more_than_xlas() -> None:
    strictly = {"fsdp_gradient", "k_split"}
    for name, text, hlo in ask(dict.fromkeys(STANDARD)):
        module, plan, local = partitioned(text)
        check_run(module, plan, local)
        assert hlo is not None
        ours, theirs = mesh_figures(local.module.entry)["collective_bytes"], exchanged(hlo)
        print(f"{name:25} {ours:>10,} {theirs:>10,}  {', '.join(sorted({str(m.reason.value) for m in local.meetings}))}")
        assert ours < theirs if name in strictly else ours <= theirs, name
