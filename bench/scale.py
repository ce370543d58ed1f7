"""Time and memory of the command line against the length of the program: is it near-linear, and within bounds?

    python bench/scale.py [--lengths 10000,100000] [--rounds 3]

Each round runs `deepx-graph opt FILE -o /dev/null` in a child process of its own and reads its peak memory; another child runs
the stages one by one. Prints a markdown table. Exit code 1 when 100 000 instructions take more than 20 s or 2 GB, or the ratio
to 10 000 is above 12.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from generate import program

ROOT = Path(__file__).resolve().parents[1]
MOST_SECONDS, MOST_BYTES, MOST_RATIO = 20.0, 2 << 30, 12.0


@dataclass(frozen=True)
class Run:
    """One child process: wall seconds and peak resident bytes."""

    seconds: float
    peak: int


def child(*command: str) -> Run:
    """Runs a command to its end. Raises RuntimeError, with what it said, when it fails."""
    with tempfile.TemporaryFile() as said:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}\n{said.read().decode()[-2000:]}")
    return Run(seconds, usage.ru_maxrss * 1024)


def one_command(path: Path) -> Run:
    """`deepx-graph opt` with the default pipeline, verified between passes, printed to nowhere."""
    return child(sys.executable, "-m", "deepx_graph.cli.main", "opt", str(path), "-o", os.devnull)


def stages(path: str) -> None:
    """Prints the seconds of every stage as JSON: run in a child of its own."""
    start = time.perf_counter()
    from deepx_graph.passes.manager import parse_pipeline, run_pipeline
    from deepx_graph.passes.observer import Timing
    from deepx_graph.runtime.schedule import schedule
    from deepx_graph.text import open_source, read, write
    from deepx_graph.verify import verify

    marks: dict[str, float] = {"import": time.perf_counter() - start}

    def lap(name: str) -> None:
        nonlocal start
        marks[name] = time.perf_counter() - start
        start = time.perf_counter()

    start = time.perf_counter()
    module = read(open_source(path)).module
    lap("read")
    verify(module)
    lap("verify")
    timing = Timing()
    before = sum(len(f.nodes) for f in module.functions)
    start = time.perf_counter()
    module = run_pipeline(module, parse_pipeline("default"), [timing])
    start = time.perf_counter()
    marks.update({f"pass {row.name}": row.seconds for row in timing.rows})
    after = sum(len(f.nodes) for f in module.functions)
    verify(module)
    lap("verify again")
    write(module, "sea")
    lap("print")
    schedule(module.entry)
    lap("schedule")
    json.dump({"seconds": marks, "nodes": [before, after]}, sys.stdout)


def measured_stages(path: Path) -> dict[str, float]:
    found = subprocess.run([sys.executable, __file__, "--stages", str(path)], capture_output=True, text=True, check=False)
    if found.returncode:
        return {}
    result: dict[str, float] = json.loads(found.stdout)["seconds"]
    return result


def report(lengths: list[int], rounds: int) -> bool:
    """Prints the tables. False when a bound is broken."""
    medians: dict[int, Run] = {}
    steps: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        paths = {n: Path(folder) / f"{n}.dx" for n in lengths}
        for n, path in paths.items():
            path.write_text(program(n))
        runs = [{n: one_command(path) for n, path in paths.items()} for _ in range(rounds)]
        for n, path in paths.items():
            medians[n] = Run(statistics.median(r[n].seconds for r in runs), max(r[n].peak for r in runs))
            steps[n] = measured_stages(path)
    print_tables(medians, steps)
    return within_bounds(medians)


def print_tables(medians: dict[int, Run], steps: dict[int, dict[str, float]]) -> None:
    first = min(medians)
    print("| instructions | opt, seconds | against the shortest | peak MB |\n|---|---|---|---|")
    for n, run in medians.items():
        print(f"| {n:,} | {run.seconds:.2f} | {run.seconds / medians[first].seconds:.1f} | {run.peak / 1e6:.0f} |")
    names = list(dict.fromkeys(name for s in steps.values() for name in s))
    if names:
        print("\n| stage, seconds | " + " | ".join(f"{n:,}" for n in medians) + " |\n|---|" + "---|" * len(medians))
        for name in names:
            print(f"| {name} | " + " | ".join(f"{steps[n].get(name, float('nan')):.3f}" for n in medians) + " |")


def within_bounds(medians: dict[int, Run]) -> bool:
    complaints = []
    long, short = medians.get(100_000), medians.get(10_000)
    if long and (long.seconds > MOST_SECONDS or long.peak > MOST_BYTES):
        complaints.append(f"100 000 instructions: more than {MOST_SECONDS:.0f} s or {MOST_BYTES >> 30} GB")
    if long and short and long.seconds > MOST_RATIO * short.seconds:
        complaints.append(f"100 000 instructions cost more than {MOST_RATIO:.0f} times 10 000")
    for complaint in complaints:
        print(complaint, file=sys.stderr)
    return not complaints


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lengths", default="1000,10000,100000", help="program lengths, separated by commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stages", metavar="FILE", help="only print the seconds of every stage for one file, as JSON")
    options = parser.parse_args()
    if options.stages:
        stages(options.stages)
        return 0
    return 0 if report([int(n) for n in options.lengths.split(",")], options.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
