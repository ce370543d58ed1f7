"""Inside a process that is measured: batches of calls, memory, and the loop that answers questions."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.harness.threads import preemptions

RETRIES = 4
"""How often at most a batch is timed in which the kernel took a core away."""
LONG = 0.05
"""Batches longer than this many seconds are not timed again: some preemption is the rule in them."""


def per_call(call: Callable[[], object], count: int) -> float:
    """Seconds a call."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def undisturbed(batch: Callable[[], float], count: int, preempted: Callable[[], int] = preemptions) -> dict[str, Any]:
    """The seconds a call in a batch of `count` calls during which nobody took a core away; else in the least disturbed of some."""
    tries = []
    for _ in range(RETRIES):
        before = preempted()
        seconds = batch()
        tries.append((preempted() - before, seconds))
        if not tries[-1][0] or count * seconds > LONG:
            break
    times, seconds = min(tries)
    return {"seconds": seconds, "preempted": times}


def _status(field: str) -> int:
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(field))
    except (OSError, StopIteration):
        return 0


def resident_memory() -> int:
    """Bytes of this process in memory; 0 where the system does not tell."""
    return _status("VmRSS")


def peak_memory() -> int:
    """The most since `reset_peak`."""
    return _status("VmHWM")


def reset_peak() -> None:
    """Forgets it, where the system can."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers the questions that come on standard input, to the last."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception as e:  # what a contestant cannot do is a result, too
            found = {"fails": f"{type(e).__name__}: {e}"[:300]}
        answers.write(json.dumps(found) + "\n")
        answers.flush()
