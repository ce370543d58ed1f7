"""Races our engines against XLA, or prepares that.

    python -m bench.race                              # all programs; XLA of DEEPX_GRAPH_PEERS, or of this Python
    python -m bench.race --kind sorting,grids --size small --rounds 3
    python -m bench.race --only 'heat|life' --alone   # without XLA: our times, results compared with stored ones
    python -m bench.race --every 10 --below 1.5 --worst 20
    python -m bench.race --size large                 # networks of some depth, arrays that no cache holds
    python -m bench.race --rows A.json B.json --table docs/performance.md
    python -m bench.race texts FOLDER                 # the StableHLO texts as files
    python -m bench.race steps --kind sorting         # what Python does in a call
    python -m bench.race counts                       # that, kernels and bytes, in counts.md
    python -m bench.race memory --size medium         # the most memory of a call beside XLA's
    PYTHON_WITH_JAX -m bench.race lower               # lower the programs again and store them

Times are microseconds a call, minimum and median over rounds; a ratio is ours / XLA, below 1 where we are ahead.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.race import memory
from bench.race.contest import Row, has_xla, race, together
from bench.race.program import Program, jax, programs
from bench.race.report import by_kind, geometric_mean, line, ratio, rewrite, summary
from bench.race.store import lower, unpack

NO_XLA = "no XLA, so we run alone: python3 -m venv .peers && .peers/bin/pip install jax; DEEPX_GRAPH_PEERS=.peers/bin/python"

USUAL = ("small", "medium")
"""The sizes that are raced where none is asked for."""


def parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    p = argparse.ArgumentParser(prog="python -m bench.race", description=__doc__, formatter_class=layout)
    p.add_argument("command", nargs="?", choices=("run", "lower", "texts", "steps", "counts", "memory"), default="run")
    p.add_argument("folder", nargs="?", type=Path, default=Path("out") / "race", help="where `texts` writes")
    p.add_argument("--only", default="", metavar="REGEX", help="programs in whose name (function.size) it is found")
    p.add_argument("--kind", type=lambda text: text.split(","), help="kinds of programs, separated by commas")
    p.add_argument("--size", choices=(*USUAL, "large"), help="small and medium when left out")
    p.add_argument("--every", type=int, default=1, metavar="N", help="a sample: every Nth program")
    p.add_argument("--engine", default="auto")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    p.add_argument("--python", default=os.environ.get("DEEPX_GRAPH_PEERS", sys.executable), help="the Python that has JAX")
    p.add_argument("--alone", action="store_true", help="without XLA")
    p.add_argument("--json", type=Path, metavar="FILE", help="write the rows")
    p.add_argument("--rows", type=Path, nargs="+", metavar="FILE", help="measure nothing: take the rows of such files together")
    p.add_argument("--table", type=Path, metavar="FILE", help="a document whose tables are written again")
    p.add_argument("--below", type=float, metavar="RATIO", help="exit with 1 when the geometric mean of ratios is above")
    p.add_argument("--worst", type=float, metavar="RATIO", help="exit with 1 when a ratio is above")
    return p


def chosen(options: argparse.Namespace) -> list[Program]:
    """The programs that are asked for."""
    found = [p for p in programs().values() if re.search(options.only, p.name)
             and p.size in ((options.size,) if options.size else USUAL) and (options.kind is None or p.kind in options.kind)]
    return found[::options.every]


def run(options: argparse.Namespace) -> int:
    """Races the programs and prints; 1 where one fails or a bound is exceeded."""
    rows = raced(options) if not options.rows else together(json.loads(f.read_text(encoding="utf-8")) for f in options.rows)
    print(summary(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    if options.table:
        rewrite(options.table, rows)
    ratios = [ratio(row) for row in by_kind(rows)["all"]]
    bounds = ((options.below, geometric_mean(ratios)), (options.worst, max(ratios, default=0.0)))
    above = any(bound is not None and found > bound for bound, found in bounds)
    return int(above or any("fails" in row for row in rows))


def with_xla(options: argparse.Namespace) -> str | None:
    """The Python that runs XLA; None, which is said, where there is none."""
    if options.alone or has_xla(options.python):
        return None if options.alone else str(options.python)
    print(NO_XLA)
    return None


def compare_memory(options: argparse.Namespace) -> int:
    """Prints the memory of the programs; 1 where one fails, or has more than the plan states."""
    rows = list(memory.memory(chosen(options), with_xla(options), options.engine, options.threads))
    print(memory.summary(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return int(any("fails" in row or not memory.is_held(row) for row in rows))


def raced(options: argparse.Namespace) -> list[Row]:
    """The rows of a race, each printed when it is there."""
    rows = []
    for row in race(chosen(options), with_xla(options), options.engine, options.rounds, options.threads):
        rows.append(row)
        print(line(row), flush=True)
    return rows


def count(options: argparse.Namespace) -> None:
    """Prints the steps of programs, or writes the table of counts."""
    from bench.race import counts  # needs our package, which need not be where programs are lowered

    if options.command == "counts":
        counts.write()
    else:
        for p in chosen(options):
            print(counts.told(p, options.engine, options.threads), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.command == "lower" and jax is None:
        print("this Python has no JAX", file=sys.stderr)
        return 2
    if options.command == "lower":
        lower(chosen(options))
    elif options.command == "texts":
        unpack(chosen(options), options.folder)
    elif options.command in ("steps", "counts"):
        count(options)
    if options.command == "memory":
        return compare_memory(options)
    return run(options) if options.command == "run" else 0


if __name__ == "__main__":
    sys.exit(main())
