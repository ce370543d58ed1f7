"""One contestant in a process of its own: `python -m bench.libraries.worker NAME`, questions as lines of JSON on standard input.

`{"load": workload, "folder": f, "inputs": n, "outputs": m}` makes the workload ready on the arrays `f/in0.npy`, ..., compares its
first results with `f/out0.npy`, ... and tells the seconds of the first call and of a later one. `{"time": calls}` tells the seconds
a call. `{"free": true}` lets go of everything. `{"limits": true}` measures the machine. What fails is an answer, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import time
from typing import Any

import numpy as np

from bench.harness import limits
from bench.harness.child import peak_memory, per_call, reset_peak, resident_memory, serve, undisturbed
from bench.harness.threads import Cores
from bench.libraries.contestants import Call, contestant
from bench.libraries.workloads import ALL, Array, Workload


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


if __name__ == "__main__":
    serve(Worker(sys.argv[1]).answer)
