"""What a workload is: inputs for a size, one formula over a module like numpy, and where an expert would write something else for a
library, that form.

Everything here needs numpy alone, because the interpreters of other libraries read it, too. The formula on float64 inputs is the
reference; it is never timed itself, except where a library has no form of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
F = np.float32

ELEMENTS = {"small": 1_000, "medium": 1_000_000, "large": 30_000_000}
ROWS = {"small": 1, "medium": 1_000, "large": 30_000}
"""Rows of 1024 elements."""
ONE_SIZE = {"medium": 1}


class Workload:
    """A computation to be timed.

    A form for a library is a method `by_numpy(*args)`, `by_numexpr(ne, *args)`, `by_torch(torch, *args)`, `by_jax(jax, *args)`,
    `by_pytensor(pt, *args)` or `by_numba(nb)`; the last gives a compiled function of the arguments.
    """

    name = ""
    sizes: dict[str, int] = ELEMENTS
    dtype: Any = np.float32
    inplace: tuple[int, ...] = ()
    """The arguments that a call overwrites; its results are then their new values, in this order."""
    tolerance = 2e-5
    """The largest `error` of a right result."""
    flops = 0
    """Floating-point operations of the matrix products, where they bound the time."""

    limited = True
    """Whether memory or products could bound the time."""

    def inputs(self, n: int, rng: np.random.Generator) -> list[Array]:
        """The arguments for a size."""
        raise NotImplementedError

    def formula(self, xp: Any, *args: Any) -> Any:
        """The computation in the words of numpy: one result or a tuple."""
        raise NotImplementedError

    def reference(self, args: Sequence[Array]) -> list[Array]:
        """The results in float64, rounded to the workload's own type."""
        with np.errstate(all="ignore"):
            return [np.asarray(r, self.dtype) for r in listed(self.formula(np, *(a.astype(np.float64) for a in args)))]

    def error(self, got: Array, want: Array) -> float:
        """The largest difference, relative to the largest magnitude of the reference; infinite where anything is NaN."""
        if got.shape != want.shape:
            return float("inf")
        worst = float(np.max(np.abs(got - want))) / (float(np.max(np.abs(want))) or 1.0)
        return worst if worst == worst else float("inf")

    def form(self, library: str) -> Any:
        """The form for a library, or None."""
        return getattr(self, f"by_{library}", None)


def listed(results: Any) -> list[Any]:
    """One result, or several, as a list."""
    return list(results) if isinstance(results, (tuple, list)) else [results]


def normal(rng: np.random.Generator, *shapes: Any) -> list[Array]:
    """Standard normal float32 arrays."""
    return [rng.standard_normal(shape, dtype=F) for shape in shapes]


def parallel(nb: Any) -> Any:
    """numba's decorator for parallel over two cores."""
    return nb.njit(parallel=True, fastmath=True)
