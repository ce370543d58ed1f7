"""The programs of the race: small JAX functions, each with the inputs of its cases.

A module of `programs/` is a kind of programs. Inputs are made by numpy from a fixed seed, so that a program can be run from its
stored text where JAX is not installed; the functions themselves are called only to lower them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np

try:
    import jax
    from jax import lax
    from jax import numpy as jnp
except ImportError:
    jax = jnp = lax = None

Array = np.ndarray[Any, Any]
Maker = Callable[[np.random.Generator], Array]

BF16 = ml_dtypes.bfloat16


@dataclass(frozen=True)
class Case:
    """Inputs of a program, and the keyword arguments of its function that decide how much it computes."""

    makers: tuple[Maker, ...]
    static: dict[str, Any]


def case(*makers: Maker, **static: Any) -> Case:
    return Case(makers, static)


@dataclass(frozen=True)
class Program:
    """A function at one size. `bound` replaces the bounds of dtypes where errors grow, as in long loops; of integers it is the
    part that may differ (ties of what was rounded)."""

    kind: str
    function: Callable[..., Any] = field(repr=False)
    size: str
    case: Case = field(repr=False)
    x64: bool = False
    bound: float | None = None

    @property
    def name(self) -> str:
        """The function's and the size."""
        return f"{self.function.__name__}.{self.size}"

    @cached_property
    def inputs(self) -> list[Array]:
        """The same ones in every process."""
        rng = np.random.default_rng(0)
        return [maker(rng) for maker in self.case.makers]


_programs: dict[str, Program] = {}


def program(*, x64: bool = False, bound: float | None = None, **cases: Case) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares a function as a program of its module's kind, with a case for each size."""

    def declare(function: Callable[..., Any]) -> Callable[..., Any]:
        for size, each in cases.items():
            p = Program(function.__module__.rpartition(".")[2], function, size, each, x64, bound)
            assert p.name not in _programs, p.name
            _programs[p.name] = p
        return function

    return declare


def programs() -> dict[str, Program]:
    """All programs by name, kind after kind."""
    folder = importlib.import_module("bench.race.programs")
    for module in pkgutil.iter_modules(folder.__path__):
        importlib.import_module(f"{folder.__name__}.{module.name}")
    return _programs


# --- inputs


def normal(*shape: int, scale: float = 1.0, dtype: Any = np.float32) -> Maker:
    return lambda rng: np.asarray(scale * rng.standard_normal(shape)).astype(dtype)


def uniform(low: float, high: float, *shape: int, dtype: Any = np.float32) -> Maker:
    return lambda rng: np.asarray(rng.uniform(low, high, shape)).astype(dtype)


def integers(low: int, high: int, *shape: int, dtype: Any = np.int32) -> Maker:
    return lambda rng: np.asarray(rng.integers(low, high, shape)).astype(dtype)


def ordered(n: int, dtype: Any = np.float32) -> Maker:
    """Ascending numbers from 0 to 1."""
    return lambda rng: np.sort(rng.uniform(0, 1, n)).astype(dtype)


def permuted(n: int) -> Maker:
    """The numbers below `n` in some order."""
    return lambda rng: rng.permutation(n).astype(np.int32)


def positive_definite(n: int, dtype: Any = np.float32) -> Maker:
    """A symmetric matrix of eigenvalues not far from 1."""

    def make(rng: np.random.Generator) -> Array:
        a = rng.standard_normal((n, n)) / np.sqrt(n)
        return np.asarray(a @ a.T / 4 + np.eye(n)).astype(dtype)

    return make


def weights(*shapes: tuple[int, ...], dtype: Any = np.float32) -> tuple[Maker, ...]:
    """Matrices and kernels whose products keep the scale of what they are multiplied with; vectors are small."""
    return tuple(normal(*s, scale=1 / np.sqrt(np.prod(s[:-1])) if len(s) > 1 else 0.1, dtype=dtype) for s in shapes)


def key() -> Maker:
    """A key of JAX's default generator."""
    return lambda rng: np.array([0, 42], np.uint32)
