"""The corpus of programs lowered by JAX, where it lies beside the checkout: files, inputs, and what XLA computed."""

from __future__ import annotations

import json
import sys
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from deepx_graph.errors import Source
from deepx_graph.ir import Module
from deepx_graph.text import read
from tests.support.paths import SHARED

JAX = SHARED / "corpus" / "jax"

needs_corpus = pytest.mark.skipif(not JAX.is_dir(), reason="the corpus ../shared/corpus/jax is not here")


def cases(grads: bool = False) -> list[dict[str, Any]]:
    """What the index says of each program; with `grads`, of those whose gradients are in the corpus."""
    return [c for c in _index() if c["grads"] or not grads]


@lru_cache
def _index() -> list[dict[str, Any]]:
    return json.loads((JAX / "corpus.json").read_text())["cases"] if JAX.is_dir() else []


def files(*suffixes: str) -> list[str]:
    """File names, every way that a program was printed."""
    return [p.name for s in suffixes for p in sorted(JAX.glob(f"*.{s}"))]


def load(name: str) -> Module:
    """The program of a file."""
    return read(Source(name, (JAX / name).read_text()), name.rpartition(".")[2]).module


def case_of(name: str) -> tuple[dict[str, Any], Any]:
    """What the index says of a file or program, and its stored arrays."""
    program = name.partition(".")[0]
    return next(c for c in _index() if c["name"] == program), np.load(JAX / f"{program}.npz")


def arguments(name: str, module: Module) -> list[Any]:
    """The stored inputs, in the types of the parameters."""
    stored = case_of(name)[1]
    return [stored[f"in{k}"].astype(p.type.dtype.np) for k, p in enumerate(module.entry.params)]


@lru_cache
def oracle() -> ModuleType:
    """The comparison that the corpus brings along, with a tolerance for every value."""
    sys.path.insert(0, str(JAX.parent))
    try:
        import evaluate
    finally:
        sys.path.pop(0)
    return evaluate


def mismatches(name: str, got: Any, what: str = "out") -> list[str]:
    """Where outputs (`out`) or gradients (`grad`) differ from those that XLA computed."""
    return oracle().mismatches(*case_of(name), got, what)
