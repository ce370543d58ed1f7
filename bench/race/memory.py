"""The most memory that calls have beside their arguments: what our plans state, what a call is seen to have, and what XLA states.

    python -m bench.race memory                  # all programs; XLA of DEEPX_GRAPH_PEERS, or of this Python

Ours is `BufferAssignment.peak_bytes`, which `info`, `--profile` and the header of `build` state, too. XLA's is that of
`memory_analysis()`: temporaries and results. Neither counts what is held from call to call whatever the arguments are.
As a module this is one side in a process of its own: `python -m bench.race.memory ours|xla`, asked as `bench.libraries.worker` is.
"""

from __future__ import annotations

import math
import os
import sys
import tracemalloc
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.harness.child import serve
from bench.harness.process import Process
from bench.race.contest import TIMEOUT, Row
from bench.race.program import Program, programs
from bench.race.report import geometric_mean
from bench.race.store import stored_text

STEADY = 512 << 10
"""Objects of Python that a first call makes, in bytes; results are rounded up, too."""

UNSTORED = {"DEEPX_GRAPH_CACHE_LIMIT": "0"}
"""No machine code is stored: now and then that lists all that is, which may take more than a small program has."""


def ours(p: Program, engine: str) -> dict[str, Any]:
    """The peak that our plan states, and the bytes that were there at once during the first call, which makes all memory: all but
    those that do not grow with tensors."""
    import deepx_graph as dx
    from deepx_graph.runtime.memory.pool import GRAIN, RESULTS

    function = dx.compile(dx.loads(stored_text(p)), engine=engine, threads=int(os.environ["BENCH_THREADS"]))
    args = p.inputs
    RESULTS.clear()
    others = RESULTS.use().in_use  # results of programs before, which nobody has thrown away yet
    tracemalloc.start()
    try:
        results = function(*args)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    pool = RESULTS.use()
    held += pool.in_use - others + pool.free - STEADY - GRAIN * len(results)
    return {"bytes": function.plan.peak_bytes, "held": max(0, held)}


def xla(p: Program, engine: str) -> dict[str, Any]:
    """What XLA's executable states; `engine` says nothing to it."""
    from bench.race.side import executable

    stats = executable(stored_text(p)).get_compiled_memory_stats()
    return {"bytes": stats.temp_size_in_bytes + stats.output_size_in_bytes}


SIDES = {"ours": ours, "xla": xla}


def memory(chosen: Iterable[Program], python: str | None, engine: str, threads: int) -> Iterator[Row]:
    """A row for each program: bytes of each side, or why it `fails`."""
    pythons = {"ours": sys.executable} | ({"xla": python} if python is not None else {})
    sides = {name: Process(name, command, threads, "bench.race.memory", TIMEOUT, UNSTORED) for name, command in pythons.items()}
    try:
        for p in chosen:
            row = {name: side.ask(program=p.name, engine=engine) for name, side in sides.items()}
            fails = "; ".join(f"{name}: {answer['fails']}" for name, answer in row.items() if "fails" in answer)
            yield {"name": p.name, "kind": p.kind, **row, **({"fails": fails} if fails else {})}
    finally:
        for side in sides.values():
            side.close()


def share(row: Row) -> float:
    """Our bytes over XLA's; 1 where neither has any."""
    ours, xla = row["ours"]["bytes"], row["xla"]["bytes"]
    return ours / xla if xla else 1.0 if not ours else math.inf


def line(row: Row) -> str:
    """One row for the terminal; a call that has more than the plan states is told of."""
    if "fails" in row:
        return f"{row['name']:34} fails: {row['fails']}"
    ratio = f"{row['xla']['bytes']:12} {share(row):7.3f}" if "xla" in row else ""
    more = "" if is_held(row) else f"  a call has {row['ours']['held']}"
    return f"{row['name']:34} {row['ours']['bytes']:12} {ratio}{more}".rstrip()


def is_held(row: Row) -> bool:
    """Whether a call has no more than the plan states."""
    return bool(row["ours"]["held"] <= row["ours"]["bytes"])


def summary(rows: Sequence[Row]) -> str:
    """The rows by ratio, how many have at most XLA's bytes, and how many states were not held."""
    known = [row for row in rows if "fails" not in row]
    both = sorted((row for row in known if "xla" in row), key=share)
    table = [f"{'program':34} {'ours':>12} {'XLA':>12} {'ratio':>7}", *map(line, both)] if both else []
    most = sum(share(row) <= 1 for row in both)
    mean = geometric_mean(share(row) for row in both if 0 < share(row) < math.inf)
    total = [f"at most XLA's: {most} of {len(both)}, geometric mean of ratios {mean:.2f}"] if both else []
    more = sum(not is_held(row) for row in known)
    return "\n".join([*table, *total, f"more than stated: {more}; failed: {len(rows) - len(known)}"])



class Side:
    """Answers with the bytes of a program."""

    def __init__(self, name: str) -> None:
        self.state = SIDES[name]

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        return self.state(programs()[question["program"]], question["engine"])


if __name__ == "__main__":
    serve(Side(sys.argv[1]).answer)
