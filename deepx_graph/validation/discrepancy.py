"""How two results differ, in the words in which a compiler's fault is described.

Integers, bools and shapes are exact. Floats may differ by rounding, which is at most `slack`: what is known of the error that
rounding can make of each element (infinite: it decides even whether that is a number), or (None) the root of the precision of the
element type, relative to the largest finite value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import ml_dtypes
import numpy as np

from deepx_graph.literal import Array

Kind = Literal["wrong type", "wrong element", "NaN lost", "NaN made", "overflow folded", "overflow made",
               "underflow folded", "sign of zero", "precision kept", "rounding"]  # fmt: skip

HARMLESS: tuple[Kind, ...] = ("rounding", "precision kept")
"""Kinds that a compiler may give by its own rules, and that are not looked for unless asked."""

SEVERITY: dict[Kind, int] = {"wrong type": 0, "wrong element": 1, "NaN made": 2, "NaN lost": 3, "overflow made": 4,
                             "overflow folded": 5, "underflow folded": 6, "sign of zero": 7,
                             "precision kept": 8, "rounding": 9}  # fmt: skip


@dataclass(frozen=True)
class Discrepancy:
    """What differs between two arrays: in how many of the elements, and the first of the worst kind."""

    kind: Kind
    count: int
    size: int
    at: tuple[int, ...]
    want: Any
    got: Any
    exact: bool

    def __str__(self) -> str:
        if self.kind == "wrong type":
            return f"{self.got} instead of {self.want}"
        where = f"first at [{', '.join(map(str, self.at))}] " if self.at else ""
        measure = "integers: exact" if self.exact else self.kind
        return f"{self.count} of {self.size} elements; {where}{self.got} instead of {self.want} ({measure})"

    @property
    def harmless(self) -> bool:
        """Whether a compiler may do so by its own rules."""
        return self.kind in HARMLESS


def discrepancy(want: Array, got: Array, slack: Array | None = None, narrowest: Any = None) -> Discrepancy | None:
    """What `got` has that `want` has not; None where every bit that counts is the same.

    NaN equals NaN. `narrowest` is the narrowest float type that the program rounds to on its way: a difference within its
    precision is "precision kept".
    """
    want, got = np.asarray(want), np.asarray(got)
    if want.shape != got.shape or want.dtype != got.dtype:
        return Discrepancy("wrong type", want.size, want.size, (), _type(want), _type(got), False)
    if want.dtype.kind in "biu" or not _is_float(want.dtype):
        wrong = want != got
        return _first("wrong element", np.asarray(wrong), want, got, exact=True) if wrong.any() else None
    kinds = _kinds(want, got, slack, narrowest)
    found = [(SEVERITY[kind], kind, where) for kind, where in kinds if where.any()]
    if not found:
        return None
    _, kind, where = min(found, key=lambda f: f[0])
    return _first(kind, where, want, got, exact=False)


def beyond(want: Array, got: Array, slack: Array | None, narrowest: Any, allowed: Sequence[Kind] = HARMLESS) -> Array:
    """The elements of arrays of one shape and element type that differ otherwise than is allowed."""
    if want.dtype.kind in "biu" or not _is_float(want.dtype):
        return np.asarray(want != got)
    kinds = [where for kind, where in _kinds(want, got, slack, narrowest) if kind not in allowed]
    return np.asarray(np.any(kinds, axis=0))


def worst(found: Sequence[Discrepancy | None]) -> tuple[int, Discrepancy] | None:
    """The number of the output that differs most, with its difference; None where nothing differs."""
    differing = [(SEVERITY[d.kind], k, d) for k, d in enumerate(found) if d is not None]
    return None if not differing else min(differing, key=lambda d: d[:2])[1:]


def _kinds(want: Array, got: Array, slack: Array | None, narrowest: Any) -> list[tuple[Kind, Array]]:
    """Each kind of difference with the elements that have it."""
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, b = want.astype(wide), got.astype(wide)
        nan_a, nan_b, inf_a, inf_b = np.isnan(a), np.isnan(b), np.isinf(a), np.isinf(b)
        both = np.isfinite(a) & np.isfinite(b)
        apart = np.where(both, np.abs(a - b), 0.0)
        allowed = rounding_of(want) if slack is None else np.maximum(slack, _ulp(want, a))
        beyond = both & ~(apart <= allowed)
        kept = np.zeros_like(both)
        if narrowest is not None and _eps(narrowest) > _eps(want.dtype):
            kept = beyond & (apart <= 8 * _eps(narrowest) * np.maximum(np.abs(a), np.abs(b)))
        small = beyond & (a == 0) & (np.abs(b) <= 2 * _tiny(want.dtype) ** 0.5)
        zero = (both & (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b))) if want.dtype.kind != "c" else kept & False
    kinds: list[tuple[Kind, Array]] = [
        ("wrong element", (beyond & ~kept & ~small) | (inf_a & inf_b & (a != b))), ("NaN made", nan_b & ~nan_a & ~inf_a),
        ("NaN lost", nan_a & np.isfinite(b)), ("overflow made", inf_b & np.isfinite(a)),
        ("overflow folded", (inf_a & ~inf_b) | (nan_a & inf_b)), ("underflow folded", small),
        ("sign of zero", zero), ("precision kept", kept),
        ("rounding", (apart > 0) & ~beyond),
    ]  # fmt: skip
    if slack is None or not np.isinf(slack).any():
        return kinds
    is_open = np.isinf(np.broadcast_to(slack, want.shape))  # rounding decides even whether these are numbers
    return [(kind, where if kind == "rounding" else where & ~is_open) for kind, where in kinds]


def rounding_of(want: Array) -> float:
    """What may be rounding where nothing else is known: the root of the precision, relative to the largest finite value."""
    finite = np.abs(want[np.isfinite(want)]).astype(np.float64)
    return float(_eps(want.dtype) ** 0.5 * max(1.0, float(finite.max(initial=0.0))))


def _ulp(want: Array, wide: Array) -> Any:
    return 4 * _eps(want.dtype) * np.abs(wide)


def _eps(dtype: Any) -> float:
    """The distance between 1 and the next number of a float or complex type."""
    part = {"complex64": np.float32, "complex128": np.float64}.get(np.dtype(dtype).name, dtype)
    return float(ml_dtypes.finfo(part).eps)  # type: ignore[no-untyped-call]


def _tiny(dtype: Any) -> float:
    """The smallest normal number of a float or complex type."""
    part = {"complex64": np.float32, "complex128": np.float64}.get(np.dtype(dtype).name, dtype)
    return float(ml_dtypes.finfo(part).tiny)  # type: ignore[no-untyped-call]


def _is_float(dtype: Any) -> bool:
    try:
        return _eps(dtype) > 0
    except (ValueError, TypeError):
        return False


def _first(kind: Kind, where: Array, want: Array, got: Array, *, exact: bool) -> Discrepancy:
    at = tuple(int(k) for k in np.argwhere(where)[0])
    return Discrepancy(kind, int(np.count_nonzero(where)), int(where.size), at, want[at], got[at], exact)


def _type(array: Array) -> str:
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"
