"""Our engine without a compiler beside what it is made of: it should never be slower.

    python -m bench.engines.uncompiled --every 10   # programs of the race, beside the engine that runs one operation at a time
    python -m bench.engines.uncompiled --only heat --rounds 7 --above 1.05
    python -m bench.engines.uncompiled --workloads    # beside numpy and numexpr as one writes them by hand

Microseconds of the processor a call, on one thread: the least over rounds in turns, whose order is reversed every round. A ratio is
ours over the other's. Results are compared first. Exits with 1 where a ratio is above `--above`.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: one thread for all

import numpy as np

import deepx_graph as dx
from bench.libraries.contestants import Numexpr, Numpy
from bench.libraries.ours import Numexpr as OurNumexpr
from bench.libraries.workloads import ALL
from bench.race.compare import fault
from bench.race.program import programs
from bench.race.report import geometric_mean
from bench.race.store import stored_text

Call = Callable[[], Any]
BATCH, LONG = 0.02, 0.5
"""Seconds of a batch of calls, and of a call beyond which it runs once a round."""


class Contest(NamedTuple):
    """A program by our engine, and by others; and what is wrong with results, where something is."""

    name: str
    ours: Call
    others: dict[str, Call]
    fault: str


def raced(only: str, every: int) -> Iterator[Contest]:
    """The programs of the race by our engine, and one operation after the other."""
    for p in [p for p in programs().values() if re.search(only, p.name)][::every]:
        module = dx.loads(stored_text(p))
        ours, numpy = (_run(dx.compile(module, engine=engine, threads=1), p.inputs) for engine in ("numexpr", "numpy"))
        yield Contest(p.name, ours, {"operations": numpy}, fault(*(list(map(np.asarray, f())) for f in (ours, numpy)), p.bound))


def by_hand(only: str, every: int) -> Iterator[Contest]:
    """The workloads by our engine, and in the words of numpy and numexpr, where there are any."""
    names = [(name, size) for name, w in ALL.items() for size in w.sizes if size != "large" and re.search(only, f"{name}.{size}")]
    for name, size in names[::every]:
        w = ALL[name]
        args = w.inputs(w.sizes[size], np.random.default_rng(0))
        subjects = {"ours": OurNumexpr(), "numpy": Numpy(), **({"numexpr": Numexpr()} if w.form("numexpr") else {})}
        calls = {key: subject.prepare(w, [a.copy() for a in args]) for key, subject in subjects.items()}
        yield Contest(f"{name}.{size}", calls.pop("ours"), calls, "")


def _run(function: Any, args: Sequence[Any]) -> Call:
    return lambda: function(*args)


def measured(contest: Contest, rounds: int) -> dict[str, float]:
    """The seconds a call of each side."""
    sides = {"ours": contest.ours, **contest.others}
    counts = {}
    for name, call in sides.items():
        call()
        seconds = _seconds(call, 1)
        counts[name] = 1 if seconds > LONG else max(1, round(BATCH / min(seconds, _seconds(call, 1))))
    found = dict.fromkeys(sides, float("inf"))
    for k in range(rounds):
        for name in list(sides)[:: -1 if k % 2 else 1]:
            found[name] = min(found[name], _seconds(sides[name], counts[name]))
    return found


def _seconds(call: Call, count: int) -> float:
    start = time.process_time()
    for _ in range(count):
        call()
    return max((time.process_time() - start) / count, 1e-9)


def main(arguments: Sequence[str] | None = None) -> int:
    layout = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="python -m bench.engines.uncompiled", description=__doc__, formatter_class=layout)
    p.add_argument("--only", default="", metavar="REGEX", help="programs in whose name (function.size) it is found")
    p.add_argument("--every", type=int, default=1, metavar="N", help="a sample: every Nth program")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--workloads", action="store_true", help="the workloads, beside what is written by hand")
    p.add_argument("--above", type=float, metavar="RATIO", help="exit with 1 when a ratio is above")
    options = p.parse_args(arguments)
    warnings.simplefilter("ignore")
    os.environ["BENCH_THREADS"] = "1"
    ratios: dict[str, float] = {}
    faults = 0
    for contest in (by_hand if options.workloads else raced)(options.only, options.every):
        seconds = measured(contest, options.rounds)
        own = {f"{contest.name} / {side}": seconds["ours"] / seconds[side] for side in contest.others}
        ratios, faults = ratios | own, faults + bool(contest.fault)
        times = "  ".join(f"{side} {1e6 * s:10.1f} us" for side, s in seconds.items())
        told = ", ".join(f"{r:.2f}" for r in own.values())
        print(f"{contest.name:34} {times}  ratio {told}  {contest.fault}".rstrip(), flush=True)
    slower = sorted(((r, name) for name, r in ratios.items() if r > 1), reverse=True)
    print(f"geometric mean {geometric_mean(ratios.values()):.2f} of {len(ratios)}, slower {len(slower)}, wrong {faults}")
    print("\n".join(f"  {r:.2f} {name}" for r, name in slower))
    return int(faults > 0 or (options.above is not None and any(r > options.above for r, _ in slower)))


if __name__ == "__main__":
    sys.exit(main())
