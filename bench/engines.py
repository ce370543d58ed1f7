"""The engines against each other and against plain numpy, on ten workloads, in one run.

    python bench/engines.py [--sizes small,medium,large] [--rounds 9] [--threads N] [--only NAME,...]

For every workload and size: the module is optimised by the default pipeline, compiled for each engine, compared with plain numpy,
and then timed in interleaved rounds, each a batch of calls of at least 5 ms; the medians and their ratios are printed as markdown.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from workloads import WORKLOADS, Workload

from deepx_graph.passes.manager import parse_pipeline, run_pipeline
from deepx_graph.runtime.compile import compile

BATCH_SECONDS = 0.005
ENGINES = ("numpy", "numexpr", "native")
Contestant = Callable[[], Any]


def contestants(w: Workload, args: Sequence[Any], pipeline: str, threads: int | None) -> dict[str, Contestant]:
    """Plain numpy, and the optimised module compiled for each engine. Raises RuntimeError when results differ."""
    module = run_pipeline(w.module(args), parse_pipeline(pipeline))
    found: dict[str, Contestant] = {"numpy by hand": lambda: w.numpy(*args)}
    want = w.numpy(*args)
    for engine in ENGINES:
        function = compile(module, engine=engine, threads=threads)
        for got, right in zip(function(*args), want, strict=True):
            error = float(np.abs(got - right).max() / max(1e-30, float(np.abs(right).max())))
            if not error < 1e-4:
                raise RuntimeError(f"{w.name} on {engine}: off by {error:.1e}")
        found[f"engine {engine}"] = lambda function=function: function(*args)  # type: ignore[misc]
    return found


def timed(runners: dict[str, Contestant], rounds: int) -> dict[str, float]:
    """Median seconds a call for each, the rounds interleaved and their order turned round every time."""
    batch = {name: _batch_size(run) for name, run in runners.items()}
    times: dict[str, list[float]] = {name: [] for name in runners}
    names = list(runners)
    for _ in range(rounds):
        names.reverse()
        for name in names:
            run, count = runners[name], batch[name]
            start = time.perf_counter()
            for _ in range(count):
                run()
            times[name].append((time.perf_counter() - start) / count)
    return {name: statistics.median(t) for name, t in times.items()}


def _batch_size(run: Contestant) -> int:
    run()
    start = time.perf_counter()
    run()
    return max(1, int(BATCH_SECONDS / max(1e-7, time.perf_counter() - start)))


def shown(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} us"
    return f"{seconds * 1e3:.1f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.2f} ms"


def report(sizes: Sequence[str], rounds: int, threads: int | None, only: Sequence[str], pipeline: str) -> None:
    """Prints the table as it is measured."""
    names = ["numpy by hand", *(f"engine {e}" for e in ENGINES)]
    print("| workload | size | " + " | ".join(names) + " | by hand / numexpr | numexpr / native |")
    print("|---|---|" + "---|" * (len(names) + 2))
    for w in WORKLOADS:
        for size in sizes:
            if size not in w.sizes or (only and not any(o in w.name for o in only)):
                continue
            args = w.make(w.sizes[size], np.random.default_rng(0))
            found = timed(contestants(w, args, pipeline, threads), rounds)
            by_hand, _, ours, native = (found[n] for n in names)
            cells = " | ".join(shown(found[n]) for n in names)
            print(f"| {w.name} | {size} | {cells} | {by_hand / ours:.2f} | {ours / native:.2f} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="small,medium", help="small, medium, large; separated by commas")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--pipeline", default="default")
    parser.add_argument("--only", default="", help="workloads whose name contains one of these, separated by commas")
    options = parser.parse_args()
    only = [o for o in options.only.split(",") if o]
    report(options.sizes.split(","), options.rounds, options.threads, only, options.pipeline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
