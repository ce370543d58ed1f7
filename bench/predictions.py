"""How good predictions of steps are: `simulate` beside runs, alone and on two processes of MPI.

    python -m bench.predictions [--rounds 7] [--only layers-512]

Programs are gradients of layers of several sizes, each under several plans over two devices, and whole on one. A step is measured
as the least of rounds, of the slower process; machine and network go by what `calibrate` and `calibrate --network` stored. Prints a
table, the median and the largest error, and Kendall's tau of the order of plans of each program. Needs the extra `mpi`.
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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import deepx_graph as dx
from bench.table import markdown
from deepx_graph.session.cluster.launch import environment, find_mpiexec, threads_of
from deepx_graph.session.cluster.simulation import simulate
from deepx_graph.session.cluster.training import compile_part
from deepx_graph.session.programs import optimise
from deepx_graph.session.sharded import mpi_transport, planned
from deepx_graph.sharding.partition import partition

SIZES = {"layers-128": (512, 128, 512, 4), "layers-256": (1024, 256, 1024, 2), "layers-512": (256, 512, 2048, 2),
         "wide-1024": (128, 1024, 1024, 3)}  # fmt: skip
"""Rows of the batch, width, hidden width, layers."""

PLANS = {"data": 'x: [{"d"}, {}]\n', "model": 'w{k}: [{}, {"d"}]\nv{k}: [{"d"}, {}]\n',
         "sharded": 'x: [{"d"}, {}]\nw{k}: [{"d"}, {}]\nv{k}: [{"d"}, {}]\n'}  # fmt: skip
"""Data parallel; Megatron's; data parallel with weights that are split, too. `{k}` stands for each layer."""


@dataclass(frozen=True)
class PredictedRun:
    """Seconds of a step of a program under a plan, predicted and measured."""

    program: str
    plan: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return abs(self.predicted - self.measured) / self.measured


def program(rows: int, width: int, hidden: int, depth: int) -> dx.Module:
    """The gradient of layers of two products each."""

    def loss(x: Any, *weights: Any) -> Any:
        for k in range(depth):
            x = dx.xp.tanh(x @ weights[2 * k]) @ weights[2 * k + 1]
        return dx.xp.sum(x * x)

    types = [f"f32[{rows},{width}]", *(t for _ in range(depth) for t in (f"f32[{width},{hidden}]", f"f32[{hidden},{width}]"))]
    names = ["x", *(f"{name}{k}" for k in range(depth) for name in "wv")]
    module = dx.trace(loss, *types)
    entry = module.entry.with_(params=module.entry.params)
    renamed = dx.loads(_named(dx.dumps(module.with_functions([entry]), "stablehlo"), module, names), "stablehlo")
    return optimise(renamed, "grad,clean").module


def _named(text: str, module: dx.Module, names: Sequence[str]) -> str:
    """The text with other names for the parameters."""
    for p, name in zip(module.entry.params, names, strict=True):
        text = text.replace(f"%{p.name}:", f"%{name}:").replace(f"%{p.name},", f"%{name},").replace(f"%{p.name})", f"%{name})")
    return text


def plan_text(name: str, depth: int) -> str:
    """The text of a plan over two devices."""
    lines = "".join(line.replace("{k}", str(k)) + "\n" for line in PLANS[name].splitlines()
                    for k in range(depth if "{k}" in line else 1))
    return f'mesh <["d"=2]>\n{lines}'


def inputs(module: dx.Module) -> list[np.ndarray]:
    """Small numbers, so that nothing overflows."""
    rng = np.random.default_rng(0)
    return [np.asarray(rng.standard_normal(p.type.shape) * 0.05, "f4") for p in module.entry.params]


def least(run: Any, rounds: int, barrier: Any = lambda: None) -> float:
    """The least seconds of a call."""
    run()
    found = []
    for _ in range(rounds):
        barrier()
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def rank(path: Path, rounds: int) -> None:
    """In a process of MPI: measures the cases of a file, and prints them from the first one."""
    found = []
    for text, plan in pickle.loads(path.read_bytes()):
        inlined, whole = planned(dx.loads(text, "sea"), plan)
        transport = mpi_transport(whole)
        local = partition(inlined, whole)
        f = compile_part(local, transport, {"threads": threads_of(transport.neighbours), "prepare": lambda m: optimise(m).module})
        part = local.cut(inputs(inlined), transport.device)
        seconds = least(lambda f=f, part=part: f(*part), rounds, transport.comm.Barrier)
        found.append(max(transport.comm.allgather(seconds)))
    if transport.device == 0:
        print(json.dumps(found))


def on_two(cases: Sequence[tuple[str, str]], rounds: int) -> list[float]:
    """Seconds of each case on two processes."""
    mpiexec = find_mpiexec()
    if mpiexec is None:
        sys.exit("mpiexec is not found: pip install 'deepx-graph[mpi]'")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases"
        path.write_bytes(pickle.dumps(list(cases)))
        command = [mpiexec, "-n", "2", sys.executable, "-m", "mpi4py", "-m", "bench.predictions", "--rank", str(path),
                   "--rounds", str(rounds)]
        done = subprocess.run(command, env={**os.environ, **environment(2)}, stdout=subprocess.PIPE, text=True, check=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def runs(names: Sequence[str], rounds: int) -> Iterator[PredictedRun]:
    """Every program, alone and under each plan."""
    for name in names:
        module = program(*SIZES[name])
        alone, one = planned(module, 'mesh <["d"=1]>\nx: [{}, {}]\n')
        f, arrays = dx.compile(module, threads=1), inputs(module)
        predicted = simulate(alone, one, threads=1).step.seconds
        yield PredictedRun(name, "one process", predicted, least(lambda f=f, a=arrays: f(*a), rounds))
        plans = {p: plan_text(p, SIZES[name][3]) for p in PLANS}
        measured = on_two([(dx.dumps(module, "sea"), text) for text in plans.values()], rounds)
        for (plan, text), seconds in zip(plans.items(), measured, strict=True):
            yield PredictedRun(name, plan, simulate(*planned(module, text)).step.seconds, seconds)


def kendall(found: Sequence[PredictedRun]) -> float:
    """Tau of the order of plans within each program, over all pairs of plans of the same program."""
    pairs = [(a, b) for a, b in combinations(found, 2) if a.program == b.program]
    agree = [np.sign(a.predicted - b.predicted) * np.sign(a.measured - b.measured) for a, b in pairs]
    return float(np.mean(agree)) if agree else 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default=",".join(SIZES), help="programs, separated by commas")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.rank:
        rank(Path(args.rank), args.rounds)
        return 0
    found = list(runs(args.only.split(","), args.rounds))
    print(markdown(["program", "plan", "predicted ms", "measured ms", "error"], [
        [r.program, r.plan, f"{r.predicted * 1e3:.2f}", f"{r.measured * 1e3:.2f}", f"{r.error:.0%}"] for r in found]))
    errors = [r.error for r in found]
    print(f"median error {statistics.median(errors):.0%}, largest {max(errors):.0%}; Kendall's tau {kendall(found):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
