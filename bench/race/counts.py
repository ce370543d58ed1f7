"""What the programs of the race cost our native engine, in counts and not in time.

    python -m bench.race counts       # writes counts.md (`make counts`); a test holds a sample of it as upper bounds
    python -m bench.race steps        # prints the steps of every program, by any engine

- Python steps: what Python does beside the one call of machine code that a program would be at best (`Compiled.python_steps`); of a
  loop whose number of iterations is not known before it runs, those of one iteration (`x ?`); of branches, those of all sides.
- kernels and bytes: nodes that make memory, in all functions, and what they read and write, each once.

Counted at the small sizes, for two threads and vectors of 128 bits, which every machine has.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import deepx_graph as dx
from bench.harness.markdown import markdown
from bench.race.program import Program, programs
from bench.race.store import stored_text
from deepx_graph.ir import Node
from deepx_graph.ir.structure import STRUCTURAL
from deepx_graph.runtime.compile import Compiled
from deepx_graph.runtime.memory.alias import makes_memory
from deepx_graph.runtime.program import call_order, is_kernel
from deepx_graph.types import nbytes

GOLDEN = Path(__file__).with_name("counts.md")
HEAD = ("program", "Python steps", "kernels", "bytes", "most frequent steps")
FREQUENT = 3


def _makes(node: Node) -> bool:
    return is_kernel(node) and makes_memory(node) and not node.op.view and node.op not in STRUCTURAL


def python_steps(function: Compiled) -> Counter[str]:
    """The steps of one call of a compiled program, by what they are; none where it is one call of machine code."""
    steps: Counter[str] = Counter()
    for step in function.python_steps:
        steps[step.kind if step.times.is_known else f"{step.kind} x ?"] += step.times.count
    return +steps


def counts(p: Program) -> tuple[Counter[str], int, int]:
    """Python steps, kernels and bytes of a program."""
    function = dx.compile(dx.loads(stored_text(p)), engine="native", threads=2, vector_bits=128)
    module = function.lowered
    made = [n for name in call_order(module)[0] for n in module[name].nodes if _makes(n)]
    return python_steps(function), len(made), sum(nbytes(n.type) for k in made for n in (k, *k.inputs))


def told(p: Program, engine: str, threads: int) -> str:
    """A line that says of which steps a call consists."""
    steps = python_steps(dx.compile(dx.loads(stored_text(p)), engine=engine, threads=threads))
    return f"{p.name:34} {steps.total():6} {', '.join(f'{name} {count}' for name, count in steps.most_common())}".rstrip()


def row(p: Program) -> list[str]:
    """The cells of a program."""
    steps, kernels, moved = counts(p)
    most = ", ".join(f"{name} {count}" for name, count in steps.most_common(FREQUENT))
    return [p.name, str(steps.total()), str(kernels), str(moved), most]


def known() -> dict[str, tuple[int, int, int]]:
    """Python steps, kernels and bytes by program, as they stand in the file."""
    lines = [line.split(" | ") for line in GOLDEN.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    return {cells[0].removeprefix("| "): (int(cells[1]), int(cells[2]), int(cells[3])) for cells in lines[1:]}


def counted() -> list[Program]:
    """The programs of the table."""
    return [p for p in programs().values() if p.size == "small"]


def write() -> None:
    """Writes the table."""
    title = "# Counts of the race\n\nWritten by `python -m bench.race counts`; `bench/race/counts.py` says what is counted.\n\n"
    GOLDEN.write_text(f"{title}{markdown(HEAD, map(row, counted()))}\n", encoding="utf-8")
