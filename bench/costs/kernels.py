"""How good predictions of kernels are: what `run --profile` predicts beside what it measures, over programs of the race.

    python -m bench.costs.kernels [--size medium] [--every 1] [--threads 1]

Of each program the least time of each kernel is held against the prediction, as often as it was called. Prints the programs that
are off by most, and of all programs and all kernels the median factor between both, whichever is larger, and how many are within
two. Constants are those that `calibrate` stored, else the shipped ones.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence

import deepx_graph as dx
from bench.harness.markdown import markdown
from bench.race.program import Program, programs
from bench.race.store import stored_text
from deepx_graph.runtime.profile import KernelProfile

SECONDS, FEWEST, MOST = 0.15, 4, 300
"""A program runs for so long, and so many times at least and at most."""

COUNTED = 0.02
"""Kernels of a smaller share of their program are not counted one by one."""

SHOWN = 12


def rows(program: Program, threads: int) -> list[KernelProfile]:
    """The kernels of a program that has run, of which something is predicted."""
    f = dx.compile(dx.loads(stored_text(program)), threads=threads, profile=True)
    start, count = time.perf_counter(), 0
    while count < FEWEST or (count < MOST and time.perf_counter() - start < SECONDS):
        f(*program.inputs)
        count += 1
    assert f.profile is not None
    return [row for row in f.profile.rows() if row.predicted and row.minimum]


def ratio(found: Sequence[KernelProfile]) -> float:
    """What is predicted of kernels together, in units of what they took."""
    return sum((r.predicted or 0.0) * r.calls for r in found) / sum(r.minimum * r.calls for r in found)


def summary(what: str, ratios: Sequence[float]) -> str:
    """The median factor, and how many are within two."""
    factor = math.exp(statistics.median(abs(math.log(r)) for r in ratios))
    within = sum(0.5 <= r <= 2 for r in ratios)
    middle = statistics.median(ratios)
    return f"{what}: median factor {factor:.2f}, median ratio {middle:.2f}, within a factor of 2 {within} of {len(ratios)}"


def measured(size: str, every: int, threads: int) -> Iterator[tuple[str, list[KernelProfile]]]:
    """The programs of a size that have such kernels."""
    chosen = sorted((name, p) for name, p in programs().items() if name.endswith(f".{size}"))
    for name, program in chosen[::every]:
        if found := rows(program, threads):
            yield name, found


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("small", "medium"), default="medium")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(argv)
    found = [(ratio(rows), name, rows) for name, rows in measured(args.size, args.every, args.threads)]
    farthest = sorted(found, key=lambda f: -abs(math.log(f[0])))[:SHOWN]
    print(markdown(["program", "predicted / measured", "its longest kernel"],
                   [[name, f"{r:.3g}", f"{rows[0].kernel} [{rows[0].lowering}]"] for r, name, rows in farthest]))
    print(summary("programs", [r for r, _, _ in found]))
    print(summary("kernels", [ratio([row]) for _, _, rows in found for row in rows if row.share > COUNTED]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
