"""Time and memory of the command line against the length of the program: is it near-linear, and within bounds?

    python -m bench.scaling.length [--lengths 10000,100000] [--rounds 3] [--formats deepx,hlo,stablehlo]

Each round runs `deepx-graph opt FILE -o /dev/null` in a child process of its own and reads its peak memory; another child runs the
stages one by one, in seconds of the processor. Prints markdown tables. Exit code 1 when 100 000 instructions take more than 20 s
(deepx) or 25 s, 8 s to read, 2 GB, or 12 times as long as 10 000.
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

from bench.harness.markdown import markdown
from bench.harness.process import ROOT
from bench.models.texts import TEXTS

MOST_SECONDS = {"deepx": 20.0, "hlo": 25.0, "stablehlo": 25.0}
MOST_READING, MOST_BYTES, MOST_RATIO = 8.0, 2 << 30, 12.0
Key = tuple[str, int]
"""Format and instructions."""


@dataclass(frozen=True)
class Run:
    """One child process: wall seconds and peak resident bytes."""

    seconds: float
    peak: int


def one_command(path: Path) -> Run:
    """`deepx-graph opt` with the default pipeline, verified between passes, printed to nowhere.

    Raises RuntimeError, with what it said, when it fails.
    """
    command = [sys.executable, "-m", "deepx_graph.cli.main", "opt", str(path), "-o", os.devnull]
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


def stages(path: str) -> None:
    """Prints the seconds of every stage as JSON: run in a child of its own."""
    from deepx_graph.analysis.schedule import schedule
    from deepx_graph.passes.observer import Timing
    from deepx_graph.passes.pipeline import parse_pipeline, run_pipeline
    from deepx_graph.text import open_source, read, write
    from deepx_graph.verify import verify

    marks: dict[str, float] = {}
    start = time.process_time()

    def lap(name: str) -> None:
        nonlocal start
        marks[name] = time.process_time() - start
        start = time.process_time()

    module = read(open_source(path)).module
    lap("read")
    verify(module)
    lap("verify")
    timing = Timing()
    module = run_pipeline(module, parse_pipeline("default"), [timing])
    marks.update({f"pass {row.name}": row.seconds for row in timing.rows})
    start = time.process_time()
    write(module, "sea")
    lap("write")
    schedule(module.entry)
    lap("schedule")
    json.dump(marks, sys.stdout)


def measured_stages(path: Path) -> dict[str, float]:
    """The seconds of every stage; none where the child failed."""
    command = [sys.executable, "-m", "bench.scaling.length", "--stages", str(path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    return {} if found.returncode else dict(json.loads(found.stdout))


def report(formats: list[str], lengths: list[int], rounds: int) -> bool:
    """Prints the tables. False when a bound is broken."""
    runs: dict[Key, Run] = {}
    steps: dict[Key, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for key in ((form, n) for form in formats for n in lengths):
            path = Path(folder) / f"{key[1]}.{key[0]}"
            path.write_text(TEXTS[key[0]](key[1]))
            found = [one_command(path) for _ in range(rounds)]
            runs[key] = Run(statistics.median(r.seconds for r in found), max(r.peak for r in found))
            steps[key] = measured_stages(path)
    print(f"{tables(runs, steps)}\n")
    broken = complaints(runs, steps)
    print("\n".join(broken), file=sys.stderr)
    return not broken


def tables(runs: dict[Key, Run], steps: dict[Key, dict[str, float]]) -> str:
    """Seconds, growth and memory; and the seconds of the stages."""
    first = {form: run for (form, _), run in reversed(runs.items())}
    lines = [[form, f"{n:,}", f"{run.seconds:.2f}", f"{run.seconds / first[form].seconds:.1f}", f"{run.peak / 1e6:.0f}"]
             for (form, n), run in runs.items()]
    names = dict.fromkeys(name for found in steps.values() for name in found)
    inside = [[name, *(f"{found[name]:.3f}" if name in found else "-" for found in steps.values())] for name in names]
    heads = [f"{form} {n:,}" for form, n in steps]
    return "\n\n".join((markdown(["format", "instructions", "opt, seconds", "against the shortest", "peak MB"], lines),
                        markdown(["stage, seconds", *heads], inside)))


def complaints(runs: dict[Key, Run], steps: dict[Key, dict[str, float]]) -> list[str]:
    """A line for each broken bound."""
    found = []
    for (form, n), run in runs.items():
        if n != 100_000:
            continue
        short = runs.get((form, n // 10))
        if run.seconds > MOST_SECONDS[form] or steps[form, n].get("read", 0.0) > MOST_READING:
            found.append(f"{form}: 100 000 instructions took more than {MOST_SECONDS[form]:.0f} s, or {MOST_READING:.0f} s to read")
        if run.peak > MOST_BYTES:
            found.append(f"{form}: 100 000 instructions took more than {MOST_BYTES >> 30} GB")
        if short and run.seconds > MOST_RATIO * short.seconds:
            found.append(f"{form}: 100 000 instructions cost more than {MOST_RATIO:.0f} times 10 000")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", default="1000,10000,100000", help="program lengths, separated by commas")
    parser.add_argument("--formats", default=",".join(TEXTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stages", metavar="FILE", help="only print the seconds of every stage for one file, as JSON")
    options = parser.parse_args()
    if options.stages:
        stages(options.stages)
        return 0
    return 0 if report(options.formats.split(","), [int(n) for n in options.lengths.split(",")], options.rounds) else 1


if __name__ == "__main__":
    sys.exit(main())
