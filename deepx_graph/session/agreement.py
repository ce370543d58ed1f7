"""How near values are to others that they should be: results beside recorded ones, a program's beside another's.

All comparisons of computed values with others go through `compared`, which decides what rounding may explain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.literal import Array
from deepx_graph.types import DType


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
