"""A recorded run again: a snapshot has the values that XLA ran a program on, and mostly what came out, which our results are held
against.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, RunError, counted
from deepx_graph.literal import Array
from deepx_graph.text.common.options import Recorded
from deepx_graph.types import DType


@dataclass(frozen=True)
class Comparison:
    """One output beside what was recorded: the largest difference, where it is, and how much of one rounding may make."""

    name: str
    difference: float
    tolerance: float
    at: tuple[int, ...] = ()

    @property
    def excess(self) -> float:
        """The difference as a multiple of what is allowed."""
        return self.difference / self.tolerance if self.tolerance else self.difference * float("inf") if self.difference else 0.0

    @property
    def agrees(self) -> bool:
        return self.difference <= self.tolerance

    def __str__(self) -> str:
        if self.difference == 0:
            return f"{self.name}: as recorded"
        where = f" at [{', '.join(map(str, self.at))}]" if self.at else ""
        word = "as recorded but for rounding" if self.agrees else f"not as recorded, where {self.tolerance:.3g} is allowed"
        return f"{self.name}: {word}, the largest difference is {self.difference:.3g}{where}"


def recorded_inputs(recorded: Recorded, names: Sequence[str], devices: int) -> dict[str, Any]:
    """The recorded values by the names of inputs; lists of one for each device where there are several. Raises RunError."""
    partitions = recorded.arguments
    if len(partitions) not in (1, devices) or any(len(p) != len(names) for p in partitions):
        raise RunError(Diagnostic(f"the run was recorded with {counted(len(partitions[0]) if partitions else 0, 'value')} on "
                                  f"{counted(len(partitions), 'device')}, and the program has {counted(len(names), 'input')}",
                                  hint="--partitions says on how many devices to run"))
    arrays = [[literal.array for literal in p] for p in partitions]
    if len(arrays) == 1:
        return dict(zip(names, arrays[0], strict=True))
    return {name: [p[k] for p in arrays] for k, name in enumerate(names)}


def compare(recorded: Recorded, names: Sequence[str], outputs: Sequence[Array]) -> list[Comparison]:
    """Each output beside what was recorded; none where no result was. Raises RunError for another number of them."""
    if not recorded.results:
        return []
    if len(recorded.results) != len(outputs):
        raise RunError(f"{counted(len(recorded.results), 'result')} recorded, and the program gives {len(outputs)}")
    return [compared(name, np.asarray(got), want.array, want.dtype)
            for name, got, want in zip(names, outputs, recorded.results, strict=True)]


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
    return Comparison(name, float(difference[at]), tolerance, tuple(map(int, at)))


def _precision(dtype: DType) -> float:
    """The distance between 1 and the next number."""
    import ml_dtypes

    found: Any = ml_dtypes.finfo(dtype.np)  # type: ignore[no-untyped-call]
    return float(found.eps)
