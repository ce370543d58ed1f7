"""Our engines beside the peers that are installed, on the StableHLO texts of `programs/`: a markdown table, and a line of history.

    python bench/peers.py                                            # our engines and numpy
    DEEPX_GRAPH_PEERS=/path/to/python python bench/peers.py          # and jax, torch, inductor, where that python has them
    python bench/peers.py --sizes small,medium --only gelu,softmax --rounds 7 --history .benchmarks/peers.jsonl

One process a contestant, results compared before anything is timed, rounds interleaved and their order turned round each time. The
limit is the time that the machine needs to read and write as many bytes (every input once, every output once), measured in the
same rounds by adding two arrays into a third that is used again.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from peer_programs import PROGRAMS, per_call

import deepx_graph as dx

HERE = Path(__file__).parent
OURS = ("native", "numexpr")
PEERS = {"jax": "jax", "torch": "torch", "inductor": "torch"}
"""Contestant and the package that it needs."""
SECONDS, TIMEOUT, TOLERANCE = 0.01, 120.0, 1e-4


class Worker:
    """A contestant's process."""

    def __init__(self, name: str, python: str, threads: int) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))}
        command = [python, str(HERE / "peer_worker.py"), name, str(threads)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=environment)

    def ask(self, **question: Any) -> dict[str, Any]:
        """The answer, or `fails`."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            ready = select.select([self.process.stdout], [], [], TIMEOUT)[0]
            line = self.process.stdout.readline() if ready else ""
        except BrokenPipeError:
            line = ""
        if not line:
            self.process.kill()
        return dict(json.loads(line)) if line else {"fails": "no answer"}

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def contestants() -> dict[str, str]:
    """Every contestant that can run here, and its Python."""
    found = dict.fromkeys((*OURS, "numpy"), sys.executable)
    python = os.environ.get("DEEPX_GRAPH_PEERS")
    for name, package in PEERS.items() if python else ():
        probe = f"import importlib.util as u, sys; sys.exit(u.find_spec({package!r}) is None)"
        if subprocess.run([python, "-c", probe], check=False, stderr=subprocess.DEVNULL).returncode == 0:
            found[name] = str(python)
    return found


def arrays(module: dx.Module) -> list[np.ndarray]:
    """Inputs of the module's entry, the same each time."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(p.type.shape).astype(p.type.dtype.np) * np.float32(0.5) for p in module.entry.params]


def limit(nbytes: int, threads: int) -> Any:
    """A call that moves so many bytes in large strides, into memory that is used again."""
    text = "HloModule m\nENTRY e {{\n x = f32[{0}]{{0}} parameter(0)\n y = f32[{0}]{{0}} parameter(1)\n" \
           " ROOT z = f32[{0}]{{0}} add(x, y)\n}}\n"
    count = max(1, nbytes // 12)
    f = dx.compile(dx.loads(text.format(count)), engine="auto", threads=threads)
    x = np.ones(count, np.float32)
    y = x.copy()
    return lambda: f(x, y)


def measure(name: str, size: str, workers: dict[str, Worker], rounds: int, threads: int) -> dict[str, Any]:
    """Minimum and median seconds of every contestant on one text, and of the limit."""
    module = dx.load(HERE / "programs" / f"{name}.{size}.stablehlo")
    args = arrays(module)
    wanted = dx.compile(module, engine="numpy")(*args)
    move = limit(sum(a.nbytes for a in (*args, *wanted)), threads)
    times: dict[str, list[float]] = {"limit": []}
    report: dict[str, Any] = {"workload": name, "size": size, "fails": {}}
    with tempfile.TemporaryDirectory() as folder:
        for k, a in enumerate(args):
            np.save(f"{folder}/in{k}.npy", a)
        for who, worker in workers.items():
            answer = worker.ask(load=name, size=size, folder=folder)
            answer = answer if "fails" in answer else _compared(f"{folder}/{who}.npz", wanted)
            if "fails" in answer:
                report["fails"][who] = answer["fails"]
            else:
                times[who] = []
    for k in range(rounds + 1):
        for who in list(times) if k % 2 else list(times)[::-1]:
            answer = {"seconds": per_call(move, SECONDS)} if who == "limit" else workers[who].ask(seconds=SECONDS)
            if k:  # the first round warms up
                times[who].append(answer["seconds"])
    report["seconds"] = {who: {"min": min(t), "median": float(np.median(t))} for who, t in times.items() if t}
    return report


def _compared(path: str, wanted: tuple[Any, ...]) -> dict[str, Any]:
    with np.load(path) as found:
        for got, want in zip(found.values(), wanted, strict=True):
            if not np.allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE * float(np.abs(want).max())):
                return {"fails": "its results differ"}
    return {}


def table(reports: list[dict[str, Any]], names: list[str]) -> str:
    """Markdown: milliseconds, minimum / median, and the ratios of our best to the best peer and to the limit, by minimum."""
    lines = [f"| workload | size | {' | '.join(names)} | ours / best peer | ours / limit |", "|---" * (len(names) + 4) + "|"]
    for r in reports:
        seconds = r["seconds"]
        cells = [f"{1e3 * seconds[n]['min']:.3g} / {1e3 * seconds[n]['median']:.3g}" if n in seconds else "fails" for n in names]
        mine = min((seconds[n]["min"] for n in OURS if n in seconds), default=float("nan"))
        best = min((seconds[n]["min"] for n in names if n not in OURS and n in seconds), default=float("nan"))
        ratio = "-" if r["workload"] == "mlp_fwd" else f"{mine / seconds['limit']['min']:.2f}"  # bound by arithmetic
        lines.append(f"| {r['workload']} | {r['size']} | {' | '.join(cells)} | {mine / best:.2f} | {ratio} |")
    return "\n".join(lines)


def report(sizes: list[str], names: list[str], rounds: int, threads: int, history: str | None) -> None:
    """Measures and prints; adds a line to the file `history`."""
    pythons = contestants()
    workers = {name: Worker(name, python, threads) for name, python in pythons.items()}
    reports = []
    try:
        for name in names:
            for size in sizes:
                if (HERE / "programs" / f"{name}.{size}.stablehlo").exists():
                    reports.append(measure(name, size, workers, rounds, threads))
    finally:
        for worker in workers.values():
            worker.close()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"{table(reports, list(pythons))}\n\nMilliseconds, minimum / median; {threads} threads, load {load:.1f}")
    for r in reports:
        for who, why in r["fails"].items():
            print(f"{who} on {r['workload']} {r['size']}: {why}")
    if history:
        Path(history).parent.mkdir(parents=True, exist_ok=True)
        with open(history, "a", encoding="utf-8") as file:
            file.write(json.dumps({"time": time.time(), "load": load, "threads": threads, "reports": reports}) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", default="small,medium,large")
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--history", help="a file that gets one line of JSON more")
    a = parser.parse_args()
    report(a.sizes.split(","), a.only.split(","), a.rounds, a.threads, a.history)
    return 0


if __name__ == "__main__":
    sys.exit(main())
