"""One contestant in a process of its own: `python -m bench.worker NAME`, questions as lines of JSON on standard input.

`{"load": workload, "folder": f, "inputs": n, "outputs": m}` makes the workload ready on the arrays `f/in0.npy`, ..., compares its
first results with `f/out0.npy`, ... and tells the seconds of the first call and of a later one. `{"time": calls}` tells the seconds
a call. `{"free": true}` lets go of everything. `{"limits": true}` measures the machine. What fails is an answer, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench import limits
from bench.contestants import Call, contestant
from bench.threads import Cores, preemptions
from bench.workloads import ALL, Array, Workload

RETRIES = 4
"""How often at most a batch is timed in which the kernel took a core away."""
LONG = 0.05
"""Batches longer than this many seconds are not timed again: some preemption is the rule in them."""


def per_call(call: Call, count: int) -> float:
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


class Worker:
    """The state between questions."""

    def __init__(self, name: str) -> None:
        self.name, self.cores = name, Cores()
        self.call: Call | None = None
        self.warm = False

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if "load" in question:
            return self.load(ALL[question["load"]], question["folder"], question["inputs"], question["outputs"])
        if "time" in question:
            return self.time(question["time"])
        if "limits" in question:
            return limits.measure(int(os.environ["BENCH_THREADS"]))
        self.call = None
        return {"peak": peak_memory()}

    def load(self, w: Workload, folder: str, inputs: int, outputs: int) -> dict[str, Any]:
        """Memory is that of the process beyond what it had before it read the inputs, and beyond these."""
        self.call = None
        self.cores.release()
        subject = contestant(self.name)
        if not self.warm:
            self.warm = True
            warm_up(subject)
        give_back()
        before = resident_memory()
        args = [np.array(np.load(f"{folder}/in{k}.npy", mmap_mode="r")) for k in range(inputs)]
        held = before + sum(a.nbytes for a in args)
        start = time.perf_counter()
        call = subject.prepare(w, args)
        results = call()
        first = time.perf_counter() - start
        got = [np.array(r) for r in subject.outputs(results)]
        del results, args
        self.cores.spread(call)
        error = worst_error(w, got, [np.load(f"{folder}/out{k}.npy", mmap_mode="r") for k in range(outputs)])
        del got
        seconds = min(per_call(call, 1) for _ in range(3))
        reset_peak()
        self.call = call
        return {"first": first, "error": error, "seconds": seconds, "held": held}

    def time(self, count: int) -> dict[str, Any]:
        call = self.call
        assert call is not None, "load first"

        def batch() -> float:
            call()  # wakes workers and caches
            return per_call(call, count)

        return undisturbed(batch, count)


def warm_up(subject: Any) -> None:
    """Makes the process one that has worked for a while: the library is imported, and a block of 31 MiB was freed.

    glibc then keeps freed memory up to that size. Without it every result of some megabytes costs a page fault for every 4 KiB, or
    none, by the accident of what was freed before.
    """
    np.empty(31 << 20, np.uint8)
    small = ALL["axpy"]
    subject.prepare(small, small.inputs(small.sizes["small"], np.random.default_rng(0)))()


def give_back() -> None:
    """Lets the system have the memory that earlier workloads left, so that what follows is counted from there."""
    gc.collect()
    if "deepx_graph" in sys.modules:
        sys.modules["deepx_graph"].memory(free=True)
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def worst_error(w: Workload, got: list[Array], want: list[Array]) -> float:
    """Of all results; infinite where one is missing."""
    if len(got) != len(want):
        return float("inf")
    return max(w.error(g.reshape(r.shape), r) for g, r in zip(got, want, strict=True))


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


if __name__ == "__main__":
    serve(Worker(sys.argv[1]).answer)
