"""Random programs on every engine, as built and optimised, against a plain evaluator that shares nothing with the runtime.

Integers and bool must be equal; floats of programs that only rearrange and compare too; others within rounding. A failure prints
the seed, which is the program.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from deepx_graph.ir import Module
from deepx_graph.passes.manager import parse_pipeline, run_pipeline
from deepx_graph.runtime.compile import compile
from tests.generate import random_inputs, random_module
from tests.reference import evaluate, same

CHUNK = 50
SAMPLED = range(0, 200, CHUNK)
WHOLE = range(200, 1200, CHUNK)


def seeds(starts: range) -> list[Any]:
    return [pytest.param(s, marks=pytest.mark.conformance) if starts is WHOLE else s for s in starts]


every_seed = pytest.mark.parametrize("start", seeds(SAMPLED) + seeds(WHOLE))


def agree(found: Any, wanted: Any) -> bool:
    """Equal; floats within rounding of each other, NaN equal to NaN."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.kind != "f":
        return np.array_equal(found, wanted)
    loose = 1e-12 if found.dtype == np.float64 else 1e-5
    return np.allclose(found, wanted, rtol=loose, atol=loose, equal_nan=True)


def check(start: int, *, engine: str, optimised: bool, exact: bool) -> None:
    for seed in range(start, start + CHUNK):
        rng = random.Random(seed)
        module = random_module(rng, exact=exact)
        inputs = random_inputs(rng, module)
        wanted = evaluate(module, inputs)
        found = compile(optimise(module) if optimised else module, engine=engine)(*inputs)
        equal = same if exact else agree
        wrong = mismatches(found, wanted, equal)
        assert not wrong, f"seed {seed}: results {wrong} differ"


def optimise(module: Module) -> Module:
    return run_pipeline(module, parse_pipeline("default"))


def mismatches(found: Sequence[Any], wanted: Sequence[Any], equal: Any) -> list[int]:
    return [k for k, (a, b) in enumerate(zip(found, wanted, strict=True)) if not equal(a, b)]


@every_seed
def test_the_reference_engine_gives_what_the_definition_says(start: int) -> None:
    check(start, engine="numpy", optimised=False, exact=True)


@every_seed
@pytest.mark.parametrize("engine", ["numpy", "numexpr", "auto"])
def test_optimised_programs_mean_the_same(start: int, engine: str) -> None:
    check(start, engine=engine, optimised=True, exact=True)


@every_seed
@pytest.mark.parametrize("engine", ["numpy", "numexpr", "auto"])
def test_optimised_programs_with_rounding(start: int, engine: str) -> None:
    check(start, engine=engine, optimised=True, exact=False)
