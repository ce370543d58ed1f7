"""Processes that are measured: each answers questions, and their rounds are interleaved, their order turned round.

A batch lasts at least 4 ms, after one call that is not timed. The first round only warms up. What fails is part of the report.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.harness.threads import environment

ROOT = Path(__file__).resolve().parents[2]
BATCH_SECONDS, MOST_CALLS = 0.004, 2000
TIMEOUT = 150.0
"""Seconds that an answer may take; a compiler may need many."""

NONE: Mapping[str, str] = {}


class Process:
    """A contestant's process, started when it is first asked. `module` is what it runs, with its name as argument and `variables`
    in its environment."""

    def __init__(self, name: str, python: str, threads: int, module: str, timeout: float = TIMEOUT,
                 variables: Mapping[str, str] = NONE) -> None:
        self.name, self._timeout = name, timeout
        self._command = [python, "-m", module, name]
        self._environment = os.environ | environment(threads) | variables
        self._environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        if threads < (os.cpu_count() or 1):  # some libraries take all cores that they see
            self._command = [sys.executable, "-m", "bench.harness.threads", str(threads), *self._command]
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
