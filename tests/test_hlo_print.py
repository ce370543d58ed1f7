"""HLO text that is written: it reads back as the same function, is written the same again, and XLA takes it."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text import ReadOptions
from deepx_graph.text.hlo import read, write
from deepx_graph.verify import verify
from tests.generate import random_inputs, random_module
from tests.reference import evaluate, same

SHARED = Path(__file__).parents[2] / "shared"
JAX = SHARED / "corpus" / "jax"
VARIANTS = ("", ".long", ".operand_shapes", ".optimised")


def corpus() -> list[str]:
    if not JAX.is_dir():
        return []
    names = [c["name"] for c in json.loads((JAX / "corpus.json").read_text())["cases"]]
    return [n + v for n in names for v in VARIANTS if (JAX / f"{n}{v}.hlo").exists()]


def load(text: str, name: str = "t.hlo") -> Module:
    module = read(Source(name, text), ReadOptions()).module
    verify(module)
    return module


def flat(values: Any) -> list[Any]:
    return [leaf for v in values for leaf in (flat(v) if isinstance(v, tuple) else [v])]


@pytest.mark.skipif(not JAX.is_dir(), reason="the corpus ../shared/corpus/jax is not here")
@pytest.mark.parametrize("name", corpus())
def test_real_programs_mean_the_same_when_written_and_read_again(name: str) -> None:
    sys.path.insert(0, str(JAX.parent))
    try:
        from evaluate import mismatches
    finally:
        sys.path.pop(0)
    base = name.split(".")[0]
    case = next(c for c in json.loads((JAX / "corpus.json").read_text())["cases"] if c["name"] == base)
    text = write(load((JAX / f"{name}.hlo").read_text()))
    again = load(text)
    stored = np.load(JAX / f"{base}.npz")
    args = [stored[f"in{k}"].astype(p.type.dtype.np) for k, p in enumerate(again.entry.params)]
    assert mismatches(case, stored, evaluate(again, args)) == []
    assert write(again) == text


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_mean_the_same_when_written_and_read_again(seed: int) -> None:
    rng = random.Random(seed)
    module = random_module(rng, rng.choice((5, 20, 60)), exact=True)
    args = random_inputs(rng, module)
    again = load(write(module))
    want, got = flat(evaluate(module, args)), flat(evaluate(again, args))
    assert len(want) == len(got)
    assert all(map(same, want, got))
    text = write(again)
    assert write(load(text)) == text
