"""Our engines beside the libraries that are installed: a table, a line of history, and the tables of a document.

    python -m bench                                                  # all sizes and workloads, what this Python has
    python -m bench --quick                                          # small and medium, our engines, numpy and numexpr, few rounds
    DEEPX_GRAPH_PEERS=/path/to/python python -m bench --hugepages    # and jax, torch, inductor, numba, pytensor of that Python
    python -m bench --only gelu,softmax --size large --rounds 15 --threads 1,2
    python -m bench --rounds 0 --table docs/performance.md           # only writes the tables, from the history
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.harness.process import ROOT, TIMEOUT, Process
from bench.libraries.contestants import ALLOCATES, HUGE, OURS, PEERS
from bench.libraries.measure import WORKER, contestants, installed, measure
from bench.libraries.tables import Record, rendered, rewrite
from bench.libraries.workloads import ALL, SIZES

HISTORY = Path(".benchmarks") / "history.jsonl"
QUICK_PEERS = ("numpy", "numexpr")


def machine() -> dict[str, Any]:
    """What a row may be compared within: processor and number of cores. No name of a machine."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        cpu = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.machine()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cpu": cpu, "cores": cores}


def commit() -> str:
    """The commit of the checkout; empty where git or its folder is not there."""
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--only", type=_names(ALL), default=list(ALL), help="workloads, separated by commas")
    p.add_argument("--size", type=_names(SIZES), default=list(SIZES), help="small, medium, large")
    p.add_argument("--engines", type=_names(OURS), default=["auto", "numexpr-engine"], help=f"of {', '.join(OURS)}")
    p.add_argument("--peers", type=_names(PEERS), default=list(PEERS), help=f"of {', '.join(PEERS)}")
    p.add_argument("--python", default=os.environ.get("DEEPX_GRAPH_PEERS", sys.executable),
                   help="the Python that has the peers; DEEPX_GRAPH_PEERS when left out, or this one")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--threads", type=_numbers, default=[min(2, os.cpu_count() or 1)], help="1,2 measures scaling, too")
    p.add_argument("--hugepages", action="store_true", help="large size: peers told to ask for huge pages, too")
    p.add_argument("--quick", action="store_true", help="small and medium, five rounds, no peers but numpy and numexpr")
    p.add_argument("--json", type=Path, default=HISTORY, metavar="FILE", help="the history, which gets a line more")
    p.add_argument("--table", type=Path, metavar="FILE", help="a document whose tables are written again, from the history")
    p.add_argument("--timeout", type=float, default=TIMEOUT, help="seconds that a contestant may take to compile or to answer")
    p.add_argument("--list", action="store_true", help="only print workloads and sizes")
    return p


def _names(known: Any) -> Any:
    def parse(text: str) -> list[str]:
        found = [n for n in text.split(",") if n]
        for name in found:
            if name not in known:
                raise argparse.ArgumentTypeError(f"no '{name}'; there are {', '.join(known)}")
        return found

    return parse


def _numbers(text: str) -> list[int]:
    found = [int(n) for n in text.split(",")]
    if min(found) < 1:
        raise argparse.ArgumentTypeError("at least one thread")
    return found


def limits(threads: Sequence[int]) -> dict[str, dict[str, float]]:
    """By number of threads; a printed line, and nothing, where they cannot be measured."""
    found = {}
    for count in threads:
        process = Process("limits", sys.executable, count, WORKER)
        answer = process.ask(limits=True)
        process.close()
        if "fails" in answer:
            print(f"limits of the machine: {answer['fails']}")
        else:
            found[str(count)] = answer
    return found


def run(options: argparse.Namespace) -> Record:
    """Measures, printing a line for each row, and gives the record, which is in the history even when this is interrupted."""
    versions, missing = installed(options.python, options.peers)
    for name, version in installed(sys.executable, [p for p in QUICK_PEERS if p in options.peers])[0].items():
        versions[name] = version  # these two run in our own Python
    print("\n".join(line for line in missing if line.partition(":")[0] not in versions))
    versions = {"python": platform.python_version(), "deepx-graph": importlib.metadata.version("deepx-graph"), **versions}
    record: Record = {"date": time.strftime("%Y-%m-%d"), "commit": commit(), "machine": machine(), "versions": versions, "rows": [],
                      "limits": limits(options.threads)}
    try:
        fill(record, options)
    finally:
        record["load"] = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        if record["rows"]:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            with open(options.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    return record


def fill(record: Record, options: argparse.Namespace) -> None:
    """Adds row after row."""
    versions = record["versions"]
    for threads in options.threads:
        huge = [p for p in ALLOCATES if p in versions] if options.hugepages else []
        peers = [p for p in options.peers if p in versions]
        processes = contestants(options.engines, peers, huge, options.python, threads, options.timeout)
        try:
            for name in options.only:
                for size in (s for s in options.size if s in ALL[name].sizes):
                    chosen = {n: p for n, p in processes.items() if size == "large" or not n.endswith(HUGE)}
                    record["rows"].append(measure(ALL[name], size, chosen, options.rounds, threads))
                    print(line(record["rows"][-1]), flush=True)
        finally:
            for process in processes.values():
                process.close()


def line(row: dict[str, Any]) -> str:
    """One row for the terminal: milliseconds, minimum / median, the fastest first."""
    times = sorted(row["times"].items(), key=lambda item: item[1]["min"])
    cells = [f"{name} {1e3 * t['min']:.3g} / {1e3 * t['median']:.3g}" for name, t in times]
    cells += [f"{name} fails ({why.splitlines()[0][:60]})" for name, why in row["fails"].items()]
    return f"{row['workload']} {row['size']}, {row['threads']} threads, ms: {'; '.join(cells)}"


def history(path: Path) -> list[Record]:
    """The records of a file; none where there is no file."""
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if options.list:
        print("\n".join(f"{w.name}: {', '.join(w.sizes)}" for w in ALL.values()))
        return 0
    if options.quick:
        options.size, options.peers, options.rounds = ["small", "medium"], list(QUICK_PEERS), min(options.rounds, 5)
    if options.rounds:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends contestants, and keeps what was measured
        print(f"\n{rendered([run(options)])}")
    if options.table:
        records = history(options.json)
        if not records:
            print(f"{options.json} has no measurements", file=sys.stderr)
            return 1
        rewrite(options.table, records)
    return 0


if __name__ == "__main__":
    sys.exit(main())
