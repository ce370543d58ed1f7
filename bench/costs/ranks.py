"""Two processes of MPI with a thread each beside one process with two threads, on the same step of data parallel training.

    python -m bench.costs.ranks [--rounds 15] [--rows 512,2048]

The step is the gradient of a layer of two products, 256-1024-256. All cases are measured in turns by the same two processes, the
other one asleep where one computes alone; what is printed is the median over rounds of the ratio of both. Needs the extra `mpi`.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import deepx_graph as dx
from bench.harness.markdown import markdown
from deepx_graph.ir.collective import Grid
from deepx_graph.session.cluster.calibration import wait_for_all
from deepx_graph.session.cluster.launch import environment, find_mpiexec, threads_of
from deepx_graph.session.cluster.sharded import mpi_transport
from deepx_graph.session.cluster.training import compile_part
from deepx_graph.session.plans import planned
from deepx_graph.session.programs import optimise
from deepx_graph.sharding.partition import partition

DATA = 'mesh <["d"=2]>\nx: [{"d"}, {}]\n'
WIDTH, HIDDEN = 256, 1024
CALLS = 3
"""Calls in a row of which the least counts for a round, after one that is not timed."""

Run = Callable[[], object]


@dataclass(frozen=True)
class RankCase:
    """A program as `sea` text with its inputs: under a plan on two processes, or alone on the first one with so many threads."""

    text: str
    arrays: Sequence[np.ndarray]
    plan: str | None = None
    threads: int = 1


def layers(rows: int, width: int, hidden: int, depth: int) -> dx.Module:
    """The gradient of layers of two products each, with the parameters x, w0, v0, w1, v1, ..."""

    def loss(x: Any, *weights: Any) -> Any:
        for k in range(depth):
            x = dx.xp.tanh(x @ weights[2 * k]) @ weights[2 * k + 1]
        return dx.xp.sum(x * x)

    types = [f"f32[{rows},{width}]", *(t for _ in range(depth) for t in (f"f32[{width},{hidden}]", f"f32[{hidden},{width}]"))]
    names = ["x", *(f"{name}{k}" for k in range(depth) for name in "wv")]
    module = dx.trace(loss, *types)
    text = dx.dumps(module, "stablehlo")
    for p, name in zip(module.entry.params, names, strict=True):
        text = text.replace(f"%{p.name}:", f"%{name}:").replace(f"%{p.name},", f"%{name},").replace(f"%{p.name})", f"%{name})")
    return optimise(dx.loads(text, "stablehlo"), "grad,clean").module


def small_inputs(module: dx.Module) -> list[np.ndarray]:
    """Small numbers, so that nothing overflows."""
    rng = np.random.default_rng(0)
    return [np.asarray(rng.standard_normal(p.type.shape) * 0.05, "f4") for p in module.entry.params]


def on_two(cases: Sequence[RankCase], rounds: int) -> list[list[float]]:
    """Seconds of each case in each round, of the slower process. Ends the program where there is no mpiexec."""
    mpiexec = find_mpiexec()
    if mpiexec is None:
        sys.exit("mpiexec is not found: pip install 'deepx-graph[mpi]'")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases"
        path.write_bytes(pickle.dumps(list(cases)))
        command = [mpiexec, "-n", "2", sys.executable, "-m", "mpi4py", "-m", "bench.costs.ranks", "--rank", str(path),
                   "--rounds", str(rounds)]
        done = subprocess.run(command, env={**os.environ, **environment(2)}, stdout=subprocess.PIPE, text=True, check=True)
    found: list[list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


# --- in each process


def rank(path: Path, rounds: int) -> None:
    """Measures the cases of a file, and prints what was found from the first process."""
    cases: list[RankCase] = pickle.loads(path.read_bytes())
    first, plan = next((dx.loads(case.text, "sea"), case.plan) for case in cases if case.plan is not None)
    transport = mpi_transport(Grid(1, planned(first, plan)[1].mesh.count))
    ready = [(_compiled(case, transport), case.plan is None) for case in cases]
    found: list[list[float]] = [[] for _ in cases]
    for _ in range(rounds):
        for (run, is_alone), times in zip(ready, found, strict=True):
            wait_for_all(transport)
            seconds = 0.0 if is_alone and transport.device else _least(run, None if is_alone else transport.comm.Barrier)
            wait_for_all(transport)
            times.append(max(transport.comm.allgather(seconds)))
    if transport.device == 0:
        print(json.dumps(found))


def _compiled(case: RankCase, transport: Any) -> Run:
    """What runs a case, once run."""
    module = dx.loads(case.text, "sea")
    if case.plan is None:
        if transport.device:
            return lambda: None
        f, arrays = dx.compile(module, threads=case.threads), list(case.arrays)
    else:
        inlined, plan = planned(module, case.plan)
        local = partition(inlined, plan)
        f = compile_part(local, transport, {"threads": threads_of(transport.neighbours), "prepare": lambda m: optimise(m).module})
        arrays = local.cut(case.arrays, transport.device)
    f(*arrays)
    return lambda: f(*arrays)


def _least(run: Run, barrier: Run | None) -> float:
    """The least seconds of some calls in a row, each begun together."""
    run()
    found = []
    for _ in range(CALLS):
        if barrier is not None:
            barrier()
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


# --- the comparison


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--rows", default="512,2048", help="rows of the batch, separated by commas")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.rank:
        rank(Path(args.rank), args.rounds)
        return 0
    rows = [int(n) for n in args.rows.split(",")]
    cases = []
    for n in rows:
        module = layers(n, WIDTH, HIDDEN, 1)
        text, arrays = dx.dumps(module, "sea"), small_inputs(module)
        cases += [RankCase(text, arrays, threads=1), RankCase(text, arrays, threads=2), RankCase(text, arrays, DATA)]
    found = on_two(cases, args.rounds)
    shown = []
    for k, n in enumerate(rows):
        one, two, ranks = found[3 * k : 3 * k + 3]
        ratio = statistics.median(a / b for a, b in zip(ranks, two, strict=True))
        shown.append([str(n), *(f"{statistics.median(times) * 1e3:.2f}" for times in (one, two, ranks)), f"{ratio:.2f}"])
    print(markdown(["rows", "one thread, ms", "two threads, ms", "two processes, ms", "processes / threads"], shown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
