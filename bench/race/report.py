"""What a race tells: lines for the terminal, and the tables of `docs/performance.md`. Pure text from rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from bench.harness.markdown import markdown, replaced
from bench.race.contest import STARTS, Row

BEGIN, END = "<!-- race: written by `python -m bench.race --table`, not by hand -->", "<!-- end of race -->"
TIE = 1.05
WORST = 25


def geometric_mean(ratios: Iterable[float]) -> float:
    """Not a number for none."""
    logs = np.log(list(ratios))
    return float(np.exp(logs.mean())) if logs.size else math.nan


def line(row: Row) -> str:
    """One row for the terminal."""
    if "fails" in row:
        return f"{row['name']:34} fails: {row['fails']}"
    sides = [(side, row[side]["times"]) for side in ("ours", "xla") if side in row]
    times = (f"{side} {1e6 * min(t):10.1f} / {1e6 * median(t):10.1f} us" for side, t in sides)
    ratios = f"  ratio {ratio(row):7.2f} / {ratio(row, median):7.2f}" if "xla" in row else ""
    return f"{row['name']:34} {'  '.join(times)}{ratios}"


def ratio(row: Row, of: Callable[[Sequence[float]], float] = min) -> float:
    """Our time over XLA's."""
    return of(row["ours"]["times"]) / of(row["xla"]["times"])


def by_kind(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows with both sides, by kind in the order of the alphabet; and all of them."""
    raced = [row for row in rows if "fails" not in row and "xla" in row]
    found = {kind: [row for row in raced if row["kind"] == kind] for kind in sorted({row["kind"] for row in raced})}
    return found | {"all": raced}


def summary(rows: Sequence[Row]) -> str:
    """Geometric means of each kind and of all, how long compiling took beside XLA, and how many failed."""
    means = {kind: [ratio(row) for row in raced] for kind, raced in by_kind(rows).items()}
    lines = [f"{kind:14} geometric mean {geometric_mean(found):6.2f} of {len(found)}, slower than XLA {_slower(found)}"
             for kind, found in means.items() if found]
    compiling = [_starts(raced)] if (raced := by_kind(rows)["all"]) else []
    return "\n".join([*lines, *compiling, f"failed: {sum('fails' in row for row in rows)}"])


def _starts(raced: Sequence[Row]) -> str:
    found = {how: [row["ours"][start] / row["xla"][start] for row in raced] for start, how in STARTS.items()}
    parts = (f"{how} {median(ratios):.2f} of XLA's time in the median and {geometric_mean(ratios):.2f} by geometric mean, "
             f"longer for {_slower(ratios)} of {len(ratios)} programs" for how, ratios in found.items())
    return f"Compiling and the first call, imports done and nothing in a cache, take {'; '.join(parts)}."


def _slower(ratios: Sequence[float]) -> int:
    return sum(r > TIE for r in ratios)


def rendered(rows: Sequence[Row]) -> str:
    """The tables: means of kinds, with the ratio of each program at each size, and the rows in which we are furthest behind."""
    groups = by_kind(rows)
    kinds = ([kind, *_means(raced), ", ".join(_programs(raced)) if kind != "all" else ""] for kind, raced in groups.items())
    worst = sorted(groups["all"], key=ratio, reverse=True)[:WORST]
    furthest = ([row["name"], *(f"{1e6 * of(row[side]['times']):.1f}" for side in ("ours", "xla") for of in (min, median)),
                 _shown(ratio(row)), _shown(ratio(row, median))] for row in worst)
    failed = [f"- {row['name']}: {row['fails']}" for row in rows if "fails" in row]
    return "\n\n".join([
        markdown(("kind", "geometric mean", "small", "medium", "slower than XLA", "ratio of each program, small / medium"), kinds),
        _starts(groups["all"]),
        f"The {len(worst)} rows in which we are furthest behind, microseconds a call:",
        markdown(("program", "ours", "median", "XLA", "median", "ratio", "of medians"), furthest),
        *(["Failed:", "\n".join(failed)] if failed else []),
    ])  # fmt: skip


def _means(raced: Sequence[Row]) -> list[str]:
    sizes = [[ratio(row) for row in raced if size in row["name"]] for size in ("", ".small", ".medium")]
    return [*(_shown(geometric_mean(found)) for found in sizes), f"{_slower(sizes[0])} of {len(sizes[0])}"]


def _programs(raced: Sequence[Row]) -> list[str]:
    """Each function with its ratios."""
    ratios: dict[str, list[str]] = {}
    for row in raced:
        ratios.setdefault(row["name"].rpartition(".")[0], []).append(_shown(ratio(row)))
    return [f"{name} {' / '.join(found)}" for name, found in ratios.items()]


def _shown(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}" if value < 0.1 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def rewrite(path: Path, rows: Sequence[Row]) -> None:
    """Puts the tables between the markers of a file. Raises ValueError when it has none."""
    path.write_text(replaced(path, BEGIN, END, rendered(rows)), encoding="utf-8")
