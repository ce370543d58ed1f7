"""How near values are to others that they should be: results beside recorded ones, a program's beside another's.

All comparisons of computed values with others go through `compared`, which decides what rounding may explain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import UsageError, counted
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.progress import stage
from deepx_graph.runtime.compile import compile
from deepx_graph.session.inputs import random_inputs
from deepx_graph.types import DType, as_tensor


@dataclass(frozen=True)
class Comparison:
    """One output beside another one that it should be: the largest difference, where it is, and how much of one may be rounding.

    `finite` is false where no element of the other one is a finite number, so that little was compared.
    """

    name: str
    difference: float
    tolerance: float
    at: tuple[int, ...] = ()
    finite: bool = True

    @property
    def excess(self) -> float:
        """The difference as a multiple of what is allowed."""
        return self.difference / self.tolerance if self.tolerance else self.difference * float("inf") if self.difference else 0.0

    @property
    def agrees(self) -> bool:
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        return self.told("as recorded")

    def told(self, same: str) -> str:
        """A sentence in which `same` says that both are the same."""
        if self.difference == 0:
            return f"{self.name}: {same}{'' if self.finite else ', but no element is finite'}"
        where = f" at [{', '.join(map(str, self.at))}]" if self.at else ""
        word = f"{same} but for rounding" if self.agrees else f"not {same}, where {self.tolerance:.3g} is allowed"
        return f"{self.name}: {word}, the largest difference is {self.difference:.3g}{where}"


def compared(name: str, got: Array, want: Array, dtype: DType) -> Comparison:
    """Floats may differ by the root of their precision of the largest value, as sums may be taken in another order; others not."""
    if got.shape != want.shape:
        return Comparison(name, float("inf"), 0.0)
    wide = np.complex128 if dtype.kind == "complex" else np.float64 if dtype.is_float else object
    with np.errstate(all="ignore"):
        a, b = got.astype(wide), want.astype(wide)
        same = (a == b) | ((a != a) & (b != b))
        difference = np.where(same, 0, abs(a - b)).astype(np.float64)
    difference = np.where(np.isnan(difference), np.inf, difference)
    if not difference.size:
        return Comparison(name, 0.0, 0.0)
    at = np.unravel_index(int(difference.argmax()), difference.shape)
    finite = np.abs(b[np.isfinite(b)]) if dtype.is_differentiable else np.zeros(0)
    tolerance = _precision(dtype) ** 0.5 * max(1.0, float(finite.max(initial=0.0))) if dtype.is_differentiable else 0.0
    every = not dtype.is_differentiable or bool(finite.size)
    return Comparison(name, float(difference[at]), tolerance, tuple(map(int, at)), every)


def _precision(dtype: DType) -> float:
    """The distance between 1 and the next number."""
    import ml_dtypes

    found: Any = ml_dtypes.finfo(dtype.np)  # type: ignore[no-untyped-call]
    return float(found.eps)


def compared_runs(a: Module, b: Module, seed: int = 0, engine: str = "auto") -> list[Comparison]:
    """Runs two programs on the same generated inputs, given in order; compares each output of the second with that of the first.

    Raises UsageError where inputs or outputs are not of the same number and types, and what running raises.
    """
    first, second = (compile(m, engine=engine, seed=seed) for m in (a, b))
    for word, here, there in (("inputs", first.inputs, second.inputs), ("outputs", first.outputs, second.outputs)):
        if len(here) != len(there):
            raise UsageError(f"the programs have {counted(len(here), word[:-1])} and {len(there)}: values cannot be compared")
        for p, q in zip(here, there, strict=True):
            if p.type != q.type:
                raise UsageError(f"{word[:-1]} '{p.name}' is {p.type}, and '{q.name}' {q.type}: values cannot be compared")
    given = list(random_inputs(first.inputs, seed).values())
    stage("run the first")
    wanted = first(*given)
    stage("run the second")
    found = second(*given)
    return [compared(p.name, np.asarray(got), np.asarray(want), as_tensor(p.type).dtype)
            for p, got, want in zip(first.outputs, found, wanted, strict=True)]
