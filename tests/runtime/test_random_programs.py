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

from deepx_graph.ir import Module, Node
from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
from deepx_graph.runtime.compile import compile
from deepx_graph.runtime.engines.base import KernelFn
from deepx_graph.runtime.engines.numpy_engine import NumpyEngine
from tests.support.generate import random_inputs, random_module
from tests.support.reference import evaluate, same

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


class Nudging(NumpyEngine):
    """The reference with every float result wrong by up to four units in the last place, as a fast engine's may be."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def kernel(self, node: Node) -> KernelFn:
        inner = super().kernel(node)

        def run(values: Sequence[Any], out: Any) -> Any:
            value = inner(values, out)
            if not isinstance(value, (np.ndarray, np.generic)) or value.dtype.kind != "f":
                return value
            ulps = self.rng.integers(-4, 5, np.shape(value)).astype(value.dtype)
            return np.asarray(value + ulps * np.abs(value) * np.finfo(value.dtype).eps)

        return run


def beyond_rounding(module: Module, inputs: Sequence[Any], found: Sequence[Any], wanted: Sequence[Any]) -> list[int]:
    """The numbers of the results that differ by more than what rounding in every operation can make of them."""
    nudged = [compile(module, engine=Nudging(k))(*inputs) for k in range(8)]
    wrong = []
    for k, (f, w) in enumerate(zip(found, wanted, strict=True)):
        others = [np.asarray(n[k]) for n in nudged]
        if f.dtype.kind == "f":
            with np.errstate(all="ignore"):
                slack = 4 * np.max([np.abs(o.astype(np.float64) - w) for o in others], axis=0)
                near = np.abs(f.astype(np.float64) - w) <= slack
            explained = bool(np.all(near | (f == w) | (np.isnan(f) & np.isnan(w)) | np.isnan(slack) | np.isinf(slack)))
        else:
            explained = any(np.array_equal(o, f) for o in others)
        if not agree(f, w) and not explained:
            wrong.append(k)
    return wrong


def check(start: int, *, engine: str, optimised: bool, exact: bool) -> None:
    for seed in range(start, start + CHUNK):
        rng = random.Random(seed)
        module = random_module(rng, exact=exact)
        inputs = random_inputs(rng, module)
        wanted = evaluate(module, inputs)
        found = compile(optimise(module) if optimised else module, engine=engine)(*inputs)
        equal = same if exact else agree
        wrong = mismatches(found, wanted, equal)
        if wrong and not exact:  # rounding that the program makes larger
            wrong = beyond_rounding(module, inputs, found, wanted)
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
