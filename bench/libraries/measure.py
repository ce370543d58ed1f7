"""Times contestants on a workload: a process for each, results compared first.

A batch in which the kernel took a core away is timed again. Nothing is printed here.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from bench.harness.process import TIMEOUT, Process, interleaved
from bench.libraries.contestants import HUGE, HUGE_PAGES, OURS, PEERS
from bench.libraries.workloads import Workload

Row = dict[str, Any]
WORKER = "bench.libraries.worker"
"""The module that a contestant's process runs."""
NO_CACHES: Mapping[str, str] = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}


def installed(python: str, names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """The versions of the peers' packages that a Python has, by peer, and a line for each peer that it lacks."""
    packages = {name: PEERS[name].package for name in names}
    code = ("import importlib.metadata as m, importlib.util as u, json, sys\n"
            "print(json.dumps({p: m.version(p) for p in sys.argv[1:] if u.find_spec(p)}))")
    try:
        done = subprocess.run([python, "-c", code, *packages.values()], capture_output=True, text=True, check=False)
        found = dict(json.loads(done.stdout)) if done.returncode == 0 else {}
    except OSError:
        found = {}
    there = {name: found[package] for name, package in packages.items() if package in found}
    return there, [f"{name}: {python} has no {package}" for name, package in packages.items() if name not in there]


def measure(w: Workload, size: str, processes: dict[str, Process], rounds: int, threads: int) -> Row:
    """The row of a workload and size: traffic, and the times and failures of every contestant."""
    with tempfile.TemporaryDirectory() as folder:
        row, question = _laid_out(w, size, folder)
        loaded = {name: process.ask(**question) for name, process in processes.items()}
        _check(w, loaded)
        times = interleaved({n: p for n, p in processes.items() if "fails" not in loaded[n]}, loaded, rounds)
    for name, process in processes.items():
        end = process.ask(free=True)
        if "fails" not in loaded[name]:
            loaded[name]["memory"] = max(0, end.get("peak", 0) - loaded[name].pop("held"))
    row["threads"] = threads
    row["times"] = {n: {**loaded[n], "min": min(t), "median": statistics.median(t)} for n, t in times.items() if t}
    row["fails"] = {n: answer["fails"] for n, answer in loaded.items() if "fails" in answer}
    return row


def _laid_out(w: Workload, size: str, folder: str) -> tuple[Row, dict[str, Any]]:
    """Inputs and reference as files; the row without times, and the question that loads them."""
    args = w.inputs(w.sizes[size], np.random.default_rng(0))
    wanted = w.reference(args)
    for kind, arrays in (("in", args), ("out", wanted)):
        for k, a in enumerate(arrays):
            np.save(f"{folder}/{kind}{k}.npy", a)
    row = {"workload": w.name, "size": size, "elements": max(a.size for a in args), "flops": w.flops,
           "read": sum(a.nbytes for a in args), "written": sum(r.nbytes for r in wanted)}
    return row, {"load": w.name, "folder": folder, "inputs": len(args), "outputs": len(wanted)}


def _check(w: Workload, loaded: dict[str, dict[str, Any]]) -> None:
    for answer in loaded.values():
        if "fails" not in answer and not answer["error"] <= w.tolerance:
            answer["fails"] = f"wrong results, off by {answer['error']:.1e}"


def contestants(engines: Iterable[str], peers: Iterable[str], huge: Iterable[str], python: str, threads: int,
                timeout: float = TIMEOUT) -> dict[str, Process]:
    """A process for each: our engines and numpy's in this Python, the others in theirs."""
    here = (*OURS, "numpy", "numexpr")
    names = (*engines, *peers, *(f"{name}{HUGE}" for name in huge))
    return {name: Process(name, sys.executable if name in here else python, threads, WORKER, timeout,
                          {**NO_CACHES, **HUGE_PAGES} if name.endswith(HUGE) else NO_CACHES) for name in names}
