"""Which core a thread runs on, and how often the kernel took one away. Does nothing where the system has no such calls.

Beside other busy processes the kernel may leave both workers of a pool on one core for whole time slices, and the batch shows these
instead of the library's time. OpenMP binds its threads by its own variables; the others are bound here.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TASKS = Path("/proc/self/task")
WATCHED = 0.1
"""Seconds of calls after which it is known which threads work."""


def preemptions() -> int:
    """How often a thread of this process lost its core against its will."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def environment(threads: int) -> dict[str, str]:
    """What tells libraries how many threads to use, and how: bound to cores, asleep soon when idle."""
    counts = ("BENCH", "OMP", "OPENBLAS", "MKL", "NUMEXPR", "NUMBA")
    bound = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores", "OPENBLAS_THREAD_TIMEOUT": "18"}
    return {f"{name}_{'THREADS' if name == 'BENCH' else 'NUM_THREADS'}": str(threads) for name in counts} | bound


class Cores:
    """The cores that this process may use."""

    def __init__(self) -> None:
        self.all: tuple[int, ...] = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
        self.spreads = False

    def spread(self, call: Callable[[], Any]) -> None:
        """Gives each thread that works in the call a core of its own, unless a library has bound this thread already."""
        if len(self.all) < 2 or len(os.sched_getaffinity(0)) < len(self.all) or not TASKS.exists():
            return
        main, before, end = os.getpid(), _run_times(), time.perf_counter() + WATCHED
        while time.perf_counter() < end:
            call()
        spent = {thread: t - before[thread] for thread, t in _run_times().items() if thread in before}
        working = [t for t in sorted(spent, key=lambda t: (t != main, t)) if spent[t] > max(spent.values()) / 10]
        if working == [main]:
            return  # threads that it starts later would all share its core
        self.spreads = True
        for k, thread in enumerate(working):
            os.sched_setaffinity(thread, {self.all[k % len(self.all)]})

    def release(self) -> None:
        """Lets threads run anywhere again, if they were spread."""
        if self.spreads:
            self.spreads = False
            for thread in _threads():
                os.sched_setaffinity(thread, self.all)


def _threads() -> list[int]:
    return [int(path.name) for path in TASKS.iterdir()]


def _run_times() -> dict[int, int]:
    """Nanoseconds that each thread has run."""
    found = {}
    for thread in _threads():
        try:
            found[thread] = int((TASKS / str(thread) / "schedstat").read_text().split()[0])
        except OSError:  # it has ended
            continue
    return found


def main() -> None:
    """`python -m bench.harness.threads N COMMAND ...`: runs the command on N cores."""
    count, *command = sys.argv[1:]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(count)])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
