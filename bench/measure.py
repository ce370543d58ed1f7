"""Times contestants on a workload: a process for each, results compared first, rounds interleaved and their order turned round.

A batch lasts at least 4 ms, after one call that is not timed; a batch in which the kernel took a core away is timed again. The
first round only warms up. What fails is part of the report. Nothing is printed here.
"""

from __future__ import annotations

import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bench.contestants import HUGE, HUGE_PAGES, OURS, PEERS
from bench.threads import environment
from bench.workloads import Workload

ROOT = Path(__file__).resolve().parents[1]
BATCH_SECONDS, MOST_CALLS = 0.004, 2000
TIMEOUT = 150.0
"""Seconds that an answer may take; a compiler may need many."""

Row = dict[str, Any]
NONE: Mapping[str, str] = {}


class Process:
    """A contestant's process, started when it is first asked. `module` is what it runs, with its name as argument and `variables`
    in its environment."""

    def __init__(self, name: str, python: str, threads: int, timeout: float = TIMEOUT, module: str = "bench.worker",
                 variables: Mapping[str, str] = NONE) -> None:
        self.name, self._timeout = name, timeout
        self._command = [python, "-m", module, name]
        self._environment = os.environ | environment(threads) | {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
        self._environment |= HUGE_PAGES if name.endswith(HUGE) else {}
        self._environment |= variables
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        if threads < (os.cpu_count() or 1):  # some libraries take all cores that they see
            self._command = [sys.executable, "-m", "bench.threads", str(threads), *self._command]
        self._process: subprocess.Popen[str] | None = None

    def ask(self, **question: Any) -> dict[str, Any]:
        """The answer; `fails` says why there is none."""
        if self._process is None:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
                                             stderr=subprocess.DEVNULL, text=True, env=self._environment)
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
            ready = bool(select.select([process.stdout], [], [], self._timeout)[0])
            line = process.stdout.readline() if ready else ""
        except BrokenPipeError:
            ready, line = True, ""
        if line:
            return dict(json.loads(line))
        self.close()
        return {"fails": "its process ended" if ready else f"no answer in {self._timeout:.0f} s"}

    def close(self) -> None:
        """Ends the process, if there is one; the next question starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


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


def interleaved(processes: dict[str, Process], loaded: dict[str, dict[str, Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds a call in each round, by process. `loaded` has the seconds that a call takes about, and gets what fails."""
    times: dict[str, list[float]] = {name: [] for name in processes}
    calls = {n: max(1, min(MOST_CALLS, int(BATCH_SECONDS / max(1e-9, loaded[n]["seconds"])))) for n in processes}
    for turn in range(rounds + 1):
        for name in list(processes) if turn % 2 else list(processes)[::-1]:
            if "fails" in loaded[name]:
                continue
            answer = processes[name].ask(time=calls[name])
            if "fails" in answer:
                loaded[name]["fails"] = answer["fails"]
            elif turn:
                times[name].append(answer["seconds"])
                loaded[name]["preempted"] = loaded[name].get("preempted", 0) + (answer["preempted"] > 0)
    return {n: t for n, t in times.items() if "fails" not in loaded[n]}


def contestants(engines: Iterable[str], peers: Iterable[str], huge: Iterable[str], python: str, threads: int,
                timeout: float = TIMEOUT) -> dict[str, Process]:
    """A process for each: our engines and numpy's in this Python, the others in theirs."""
    here = (*OURS, "numpy", "numexpr")
    names = (*engines, *peers, *(f"{name}{HUGE}" for name in huge))
    return {name: Process(name, sys.executable if name in here else python, threads, timeout) for name in names}
