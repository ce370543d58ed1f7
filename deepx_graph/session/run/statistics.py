"""What there is to say of an array: statistics, a histogram, a slice as text.

Everything is bounded: statistics take one pass, a slice shows so many elements and says what it leaves out. NaN and infinities are
counted and otherwise left out of the figures.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from deepx_graph.errors import Diagnostic, Source, Span, UsageError
from deepx_graph.literal import Array

BINS = 32
MAX_ELEMENTS = 1 << 24
"""Elements above which statistics are those of evenly spaced ones; NaN and infinities are counted in all."""


@dataclass(frozen=True)
class Statistics:
    """Figures of the finite elements, and how many others there are. `counts` are those of `BINS` equal steps from low to high."""

    elements: int
    nans: int = 0
    infs: int = 0
    zeros: int = 0
    low: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    deviation: float = 0.0
    counts: tuple[int, ...] = ()

    @property
    def odd(self) -> int:
        """Elements that are no finite number."""
        return self.nans + self.infs


def statistics(array: Array) -> Statistics:
    """The figures of an array; of a complex one those of its absolute values."""
    flat = np.asarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        flat = np.abs(flat)
    if flat.dtype.kind in "biu":
        return _finite(flat.size, flat[:: _stride(flat.size)].astype(np.float64), 0, 0)
    if flat.dtype.itemsize < 4:  # the small floats of ml_dtypes have no isnan of their own in every case
        flat = flat.astype(np.float32)
    finite = np.isfinite(flat)
    odd = flat.size - int(np.count_nonzero(finite))
    nans = int(np.count_nonzero(np.isnan(flat))) if odd else 0
    step = _stride(flat.size)
    chosen = flat[::step] if not odd else flat[::step][finite[::step]]
    return _finite(flat.size, chosen.astype(np.float64), nans, odd - nans)


def _stride(size: int) -> int:
    return max(1, -(-size // MAX_ELEMENTS))


def _finite(elements: int, flat: Array, nans: int, infs: int) -> Statistics:
    if flat.size == 0:
        return Statistics(elements, nans, infs)
    low, high = float(flat.min()), float(flat.max())
    with np.errstate(all="ignore"):
        spread = high - low
        if spread > 0 and np.isfinite(spread):
            bins = np.minimum(((flat - low) * (BINS / spread)).astype(np.int64), BINS - 1)
            counts = tuple(np.bincount(bins, minlength=BINS).tolist())
        else:
            counts = (flat.size,)
        mean, deviation = float(flat.mean()), float(flat.std())
    zeros = int(np.count_nonzero(flat == 0))
    return Statistics(elements, nans, infs, zeros, low, high, mean, deviation, counts)


_INDEX = re.compile(r"\s*(?:(-?\d+)|(-?\d*)\s*:\s*(-?\d*)(?:\s*:\s*(-?\d*))?|(\.\.\.))\s*")


def parse_slice(text: str) -> tuple[int | slice | ellipsis, ...]:  # noqa: F821  a name that type checkers know
    """An index such as `0, 2:8, ..., ::2`. Raises UsageError, pointing at what is none."""
    if not text.strip():
        return ()
    found: list[int | slice | ellipsis] = []  # noqa: F821
    at = 0
    for part in text.split(","):
        m = _INDEX.fullmatch(part)
        if m is None or (m[4] and int(m[4]) == 0):
            raise UsageError(Diagnostic("this is no index", Span(Source("<slice>", text), at, at + len(part)),
                                        expected="numbers, ranges a:b:step and ..., with commas between them"))
        if m[1]:
            found.append(int(m[1]))
        elif m[5]:
            found.append(...)
        else:
            found.append(slice(*(int(g) if g else None for g in (m[2], m[3], m[4]))))
        at += len(part) + 1
    return tuple(found)


def slice_text(array: Array, text: str, width: int = 78, elements: int = 600) -> str:
    """The part of an array that an index names, as numpy prints it. Raises UsageError for an index that does not fit."""
    try:
        part = array[parse_slice(text)]
    except (IndexError, ValueError) as e:
        raise UsageError(Diagnostic(f"the index does not fit: {e}", expected=f"one for the shape {array.shape}")) from None
    return np.array2string(np.asarray(part), threshold=elements, edgeitems=3, precision=5, max_line_width=width)
