"""What the measured programs cost, in counts and not in time: kernels, bytes, buffers, and what a second call allocates.

    python -m bench.engines.counts            # writes counts.md, which a test compares with what it counts itself

The numbers follow from optimiser, plan and engine alone, so a change of fusion or of memory shows in the difference of that
file, and is looked at. Counted for the threads of `THREADS`, and for native for each width of vectors: code of widths that this
machine has not is compiled and not run, and what a second call allocates is kept as it stands there. Of loops the kernels of one
turn count.
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import deepx_graph as dx
from bench.harness.markdown import markdown
from bench.libraries.ours import PROGRAMS
from bench.libraries.workloads import ALL
from deepx_graph.lowering.bytecode import Run
from deepx_graph.runtime.memory.alias import makes_memory
from deepx_graph.runtime.native import WIDTHS
from deepx_graph.types import nbytes

GOLDEN = Path(__file__).with_name("counts.md")
TABLES: dict[str, tuple[str, int | None]] = {
    "numexpr": ("numexpr", None), **{f"native, {bits} bits": ("native", bits) for bits in reversed(WIDTHS)}}
"""Heading to engine and width of vectors."""
THREADS = {"native": 2, "numexpr": 1}
"""How many each engine has: one where each thread takes memory for its blocks when it begins, which may be after another ended."""

GRAIN = 256 << 10
"""Bytes below which an allocation does not count: such memory numpy's own allocator keeps."""
HEAD = ("program", "kernels", "bytes moved", "bytes shared", "bytes of results", "bytes at the peak", "allocated again")


def allocated(call: Callable[[], Any]) -> int:
    """Bytes that a call takes from the system or from Python, at its peak, in multiples of 256 KiB. It has been called before."""
    call()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return (tracemalloc.get_traced_memory()[1] - before) // GRAIN * GRAIN
    finally:
        tracemalloc.stop()


def counts(function: Any) -> tuple[int, ...]:
    """Of the entry: kernels, bytes they read and write, bytes of shared memory, bytes of results, bytes alive at the peak.

    Inputs are counted as moved, not as alive.
    """
    plan = function.plan
    runs = [i for i in plan.code.instructions if isinstance(i, Run) and makes_memory(i.node) and not i.node.op.view]
    moved = sum(nbytes(n.type) for run in runs for n in (run.node, *run.node.inputs))
    return len(runs), moved, plan.shared_bytes, plan.output_bytes, plan.peak_bytes


def row(path: Path, engine: str, vector_bits: int | None, again: str) -> list[str]:
    """The cells of a program; `again` is what a second call allocates, asked of small programs where it is empty."""
    name, size, _ = path.name.split(".")
    function = dx.compile(dx.load(path), engine=engine, threads=THREADS[engine], vector_bits=vector_bits)
    if not again and size != "large":
        w = ALL[name]
        args = w.inputs(w.sizes[size], np.random.default_rng(0))
        function(*args)
        again = str(allocated(lambda: function(*args)))
    return [f"{name}, {size}", *map(str, counts(function)), again or "-"]


def table(heading: str) -> str:
    """A table: all programs, in the order of their names and sizes."""
    engine, bits = TABLES[heading]
    paths = sorted(PROGRAMS.glob("*.stablehlo"))
    if can_run(heading):
        rows = [row(path, engine, bits, "") for path in paths]
    else:
        last = [line.split("|")[-2].strip() for line in known(heading).splitlines() if line.startswith("|")][2:]
        with compiled_only():
            rows = [row(path, engine, bits, again) for path, again in zip(paths, last, strict=True)]
    return f"## {heading}\n\n{markdown(HEAD, rows)}\n"


def known(heading: str) -> str:
    """That table as it stands in the file."""
    _, found, rest = GOLDEN.read_text(encoding="utf-8").partition(f"## {heading}\n")
    return found + rest.partition("\n## ")[0]


def can_run(heading: str) -> bool:
    """Whether this machine has vectors so wide."""
    bits = TABLES[heading][1]
    if bits is None:
        return True
    from deepx_graph.runtime.native.llvm.target import Target

    return bits <= 8 * Target().register_bytes


@contextmanager
def compiled_only() -> Iterator[None]:
    """Code for vectors that this machine has not is compiled inside. It must not be called."""
    from deepx_graph.runtime.native.llvm import target

    def processor(bits: int | None = None) -> target.Processor:
        widest = bits or max(WIDTHS)
        return replace(here(), cpu=target.LEVELS[widest], features="", vector_bits=widest)

    here = target.Processor.here
    with patch.object(target.Processor, "here", staticmethod(processor)), patch.object(target, "_target", cache(target.Target)):
        yield


def main() -> int:
    os.environ["DEEPX_GRAPH_COSTS"] = ""  # by the shipped constants, as in tests
    title = "# Counts\n\nWritten by `make counts`; `bench/engines/counts.py` says what is counted.\n"
    GOLDEN.write_text("\n".join([title, *map(table, TABLES)]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
