"""How near values are to others that they should be: results beside recorded ones, a program's beside another's.

All comparisons of computed values with others go through `compared`. What rounding may explain follows from the program that they
are of (`numerics/noise.py`), element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deepx_graph.errors import UsageError, counted
from deepx_graph.ir import Module
from deepx_graph.literal import Array
from deepx_graph.numerics.noise import slacks
from deepx_graph.progress import stage
from deepx_graph.runtime.compile import compile
from deepx_graph.session.inputs import random_inputs
from deepx_graph.types import resolve_type


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


def compared(name: str, got: Array, want: Array, slack: Array | None) -> Comparison:
    """Elements may differ by what rounding can make of them (`slack`, see `slacks`) and by one in the last place; None: not at all.

    The element that differs most for what is allowed is the one that is told of.
    """
    if got.shape != want.shape:
        return Comparison(name, float("inf"), 0.0)
    kind = want.dtype.kind
    wide = np.complex128 if kind == "c" else object if kind in "biuO" else np.float64
    with np.errstate(all="ignore"):
        a, b = got.astype(wide), want.astype(wide)
        same = (a == b) | ((a != a) & (b != b))
        difference = np.where(same, 0, abs(a - b)).astype(np.float64)
        difference = np.where(np.isnan(difference), np.inf, difference)
        allowed = np.zeros(want.shape) if slack is None else np.fmax(slack, _precision(want) * np.abs(b)).astype(np.float64)
        excess = np.where(difference > allowed, difference / allowed, 0.0)
    if not difference.size:
        return Comparison(name, 0.0, 0.0)
    at = np.unravel_index(int((excess if excess.any() else difference).argmax()), difference.shape)
    finite = wide is object or bool(np.isfinite(b).any())
    return Comparison(name, float(difference[at]), float(allowed[at]), tuple(map(int, at)), finite)


def _precision(array: Array) -> float:
    """The distance between 1 and the next number of its element type."""
    import ml_dtypes

    part = {"complex64": np.float32, "complex128": np.float64}.get(array.dtype.name, array.dtype)
    return float(ml_dtypes.finfo(part).eps)  # type: ignore[no-untyped-call]


def compared_runs(a: Module, b: Module, seed: int = 0, engine: str = "auto",
                  sizes: Mapping[str, int] | None = None) -> list[Comparison]:
    """Runs two programs on the same generated inputs, given in order; compares each output of the second with that of the first.
    `sizes` has those that types of inputs leave open, by their symbols.

    Raises UsageError where inputs or outputs are not of the same number and types, and what running raises.
    """
    first, second = (compile(m, engine=engine, seed=seed) for m in (a, b))
    for word, here, there in (("inputs", first.inputs, second.inputs), ("outputs", first.outputs, second.outputs)):
        if len(here) != len(there):
            raise UsageError(f"the programs have {counted(len(here), word[:-1])} and {len(there)}: values cannot be compared")
        for p, q in zip(here, there, strict=True):
            if p.type != q.type:
                raise UsageError(f"{word[:-1]} '{p.name}' is {p.type}, and '{q.name}' {q.type}: values cannot be compared")
    ports = [replace(p, type=resolve_type(p.type, dict(sizes or {}))) for p in first.inputs]
    given = list(random_inputs(ports, seed).values())
    stage("run the first")
    wanted = first(*given)
    stage("run the second")
    found = tuple(map(np.asarray, second(*given)))
    return compared_all([p.name for p in first.outputs], found, tuple(map(np.asarray, wanted)),
                        lambda: slacks(a, dict(zip([p.name for p in first.inputs], given, strict=True)), seed=seed))


def compared_all(names: Sequence[str], got: Sequence[Array], want: Sequence[Array],
                 bound: Callable[[], Sequence[Array | None]]) -> list[Comparison]:
    """Each output beside the one that it should be; `bound` says, where there is a difference, what rounding may make of them."""
    exactly = [compared(*each, None) for each in zip(names, got, want, strict=True)]
    if all(c.agrees for c in exactly):
        return exactly
    return [compared(*each) for each in zip(names, got, want, bound(), strict=True)]
