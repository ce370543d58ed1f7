"""Plots in characters: values over time as columns of eighths, a histogram as bars."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from deepx_graph.session.run.statistics import Statistics
from deepx_graph.tui.formatting import bar

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def columns(values: Sequence[float], width: int, height: int) -> list[str]:
    """The values, the largest of each stretch, as columns `height` lines high; the first line is the top."""
    if not values or width < 1:
        return []
    top = max(values) or 1
    width = min(width, len(values))
    cuts = [len(values) * k // width for k in range(width + 1)]
    heights = [round(max(values[a:b]) / top * height * 8) for a, b in pairwise(cuts)]
    return ["".join(_EIGHTHS[max(0, min(8, h - 8 * line))] for h in heights) for line in range(height - 1, -1, -1)]


def histogram(figures: Statistics, width: int, lines: int = 16) -> list[str]:
    """The distribution of the finite elements, from low to high: range, bar, count."""
    counts = figures.counts
    if len(counts) < 2:
        return [f"all {figures.low:.6g}"] if counts else []
    each = max(1, len(counts) // lines)
    grouped = [sum(counts[k : k + each]) for k in range(0, len(counts), each)]
    most, step = max(grouped), (figures.high - figures.low) / len(grouped)
    return [f"{figures.low + k * step:>12.5g} {bar(n / most, width)} {n:,}" for k, n in enumerate(grouped)]
