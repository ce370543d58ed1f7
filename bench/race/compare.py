"""Whether results are those that XLA computed: as arrays, or as the few numbers of them that are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.race.program import Array

BOUNDS = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "float16": 1e-2, "bfloat16": 4e-2}
"""How far results may be apart by dtype, in parts of the largest; others are equal."""
SAMPLES = 16


def error(got: Array, want: Array) -> float:
    """The largest difference in parts of the largest number; of integers the part that differs. Infinite for other shapes or
    dtypes, and where only one side is finite or not a number."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if not got.size:
        return 0.0
    if want.dtype.name not in BOUNDS:
        return float(np.mean(got != want))
    a, b = (x if x.dtype.kind == "c" else x.astype(np.float64) for x in (got, want))
    finite = np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(a[finite]).all():
        return float("inf")
    a, b = a[finite], b[finite]
    return float(np.abs(a - b).max(initial=0.0) / (np.abs(b).max(initial=0.0) or 1.0))


def fault(got: Sequence[Array], want: Sequence[Array], bound: float | None = None) -> str:
    """What is wrong with results; empty where each is within `bound`, or that of its dtype."""
    if len(got) != len(want):
        return f"{len(got)} results, not {len(want)}"
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        allowed = BOUNDS.get(w.dtype.name, 0.0) if bound is None else bound
        if not (apart := error(g, w)) <= allowed:
            return f"result {k} ({g.dtype.name} {g.shape}, XLA {w.dtype.name} {w.shape}) is off by {apart:.1e}, over {allowed:.0e}"
    return ""


def digest(result: Array) -> dict[str, Any]:
    """A result in few numbers: the mean of its magnitudes, and elements that lie evenly over it, the last among them."""
    numbers = np.asarray(result).ravel()
    wide = numbers.astype(np.complex128 if numbers.dtype.kind == "c" else np.float64)
    some = wide[np.linspace(0, max(numbers.size - 1, 0), min(SAMPLES, numbers.size)).astype(int)]
    finite = np.abs(wide[np.isfinite(wide)])
    parts = [some.real, some.imag] if some.dtype.kind == "c" else [some]
    return {"dtype": result.dtype.name, "shape": list(result.shape), "mean": float(finite.mean()) if finite.size else 0.0,
            "largest": float(finite.max(initial=0.0)), "some": [float(f"{x:.17g}") for part in parts for x in part]}


def digest_fault(got: Sequence[Array], want: Sequence[dict[str, Any]], bound: float | None = None) -> str:
    """The same for results of which only digests are known."""
    if len(got) != len(want):
        return f"{len(got)} results, not {len(want)}"
    for k, (g, w) in enumerate(zip(map(digest, got), want, strict=True)):
        if (g["dtype"], g["shape"]) != (w["dtype"], w["shape"]):
            return f"result {k} is {g['dtype']} {g['shape']}, not {w['dtype']} {w['shape']}"
        integers = w["dtype"] not in BOUNDS
        allowed = bound if bound is not None else BOUNDS.get(w["dtype"], 0.0)
        mine, theirs = (np.array([*d["some"], d["mean"], d["largest"]]) for d in (g, w))
        same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
        with np.errstate(invalid="ignore"):
            apart = np.abs(mine - theirs)[~same] / (w["largest"] or 1.0)
        if integers and bound:
            apart = np.full(1, np.mean(~same[:-2]))
        if apart.size and not apart.max() <= allowed:
            return f"result {k} ({w['dtype']} {w['shape']}) is off by {apart.max():.1e}, over {allowed:.0e}"
    return ""
