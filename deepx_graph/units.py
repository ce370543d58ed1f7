"""Sizes and counts in few characters, the same in every report."""

from __future__ import annotations

from collections.abc import Sequence

BYTES = (" B", " KiB", " MiB", " GiB", " TiB")
COUNTS = ("", "K", "M", "G", "T")


def sized(number: float | None) -> str:
    """Bytes to three digits, in units of 1024 each: `999 B`, `1.5 KiB`, `12 MiB`; `?` for what is not known."""
    return _scaled(number, 1024, BYTES)


def human(number: float | None) -> str:
    """A count to three digits, in units of 1000 each: `999`, `1.5K`, `12M`; `?` for what is not known."""
    return _scaled(number, 1000, COUNTS)


def _scaled(number: float | None, base: int, units: Sequence[str]) -> str:
    if number is None:
        return "?"
    for unit in units:
        if abs(number) < base - 0.5 or unit is units[-1]:  # what would round to `base` is 1 of the next unit
            break
        number /= base
    return f"{number:.3g}{unit}" if abs(number) < 99.95 else f"{number:.0f}{unit}"
