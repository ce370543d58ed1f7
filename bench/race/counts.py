"""What the programs of the race cost our native engine, in counts and not in time.

    python -m bench.race counts       # writes counts.md (`make counts`); a test holds a sample of it as upper bounds
    python -m bench.race steps        # prints the steps of every program, by any engine

- Python steps: what Python does beside the one call of machine code that a program would be at best: instructions of the
  interpreter, those of every iteration of a loop, or the calls that a program without control flow is made of.
- kernels and bytes: nodes that make memory, in all functions, and what they read and write, each once.

Counted at the small sizes, for two threads and vectors of 128 bits, which every machine has.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import deepx_graph as dx
from bench.race.program import Program, programs
from bench.race.store import stored_text
from bench.table import markdown
from deepx_graph.ir import Node
from deepx_graph.runtime.bytecode import Instruction, Run
from deepx_graph.runtime.engines.base import Explains
from deepx_graph.runtime.memory.alias import makes_memory
from deepx_graph.runtime.program import Unit, is_kernel
from deepx_graph.runtime.straightline import NONE, KernelStep
from deepx_graph.types import nbytes

GOLDEN = Path(__file__).with_name("counts.md")
HEAD = ("program", "Python steps", "kernels", "bytes", "most frequent steps")
FREQUENT = 3


class _Watched(tuple[Instruction, ...]):
    """Instructions that are counted when they are fetched, by what they are."""

    steps: Counter[str]
    unit: Unit

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.steps[_label(found, self.unit)] += 1
        return found


def _label(instruction: Instruction, unit: Unit) -> str:
    if not isinstance(instruction, Run):
        return "control"
    node = instruction.node
    if not _makes(node):
        return node.op.name
    how = unit.engine.lowering(node) if isinstance(unit.engine, Explains) else "eval"
    return f"{node.op.name} by {re.split('[:,]', how)[0]}"


def _makes(node: Node) -> bool:
    return is_kernel(node) and makes_memory(node) and not node.op.view


def python_steps(function: Any, args: Sequence[Any]) -> Counter[str]:
    """The steps of one call of a compiled program, by what they are; none where it is one call of machine code."""
    for _ in range(2):  # what is joined is made for what has been called before
        function(*args)
    ready = function._latest()
    straight = ready.straight
    if straight is None:
        return _interpreted(ready.units.values(), function, args)
    if straight.entry() is not None:
        return Counter()
    return Counter(_label(Run(step.node, 0, ()), ready.unit) if isinstance(step, KernelStep) else "machine code"
                   for step in straight._program(NONE))


def _interpreted(units: Iterable[Unit], function: Any, args: Sequence[Any]) -> Counter[str]:
    steps: Counter[str] = Counter()
    kept = [(unit, unit.instructions) for unit in units]
    for unit, instructions in kept:
        watched = _Watched(instructions)
        watched.steps, watched.unit = steps, unit
        unit.instructions = watched
    try:
        function(*args)
    finally:
        for unit, instructions in kept:
            unit.instructions = instructions
    return steps


def counts(p: Program) -> tuple[Counter[str], int, int]:
    """Python steps, kernels and bytes of a program."""
    function = dx.compile(dx.optimize(dx.loads(stored_text(p))), engine="native", threads=2, vector_bits=128)
    steps = python_steps(function, p.inputs)
    nodes = [i.node for unit in function._latest().units.values() for i in unit.instructions if isinstance(i, Run)]
    made = [n for n in nodes if _makes(n)]
    return steps, len(made), sum(nbytes(n.type) for k in made for n in (k, *k.inputs))


def told(p: Program, engine: str, threads: int) -> str:
    """A line that says of which steps a call consists."""
    steps = python_steps(dx.compile(dx.optimize(dx.loads(stored_text(p))), engine=engine, threads=threads), p.inputs)
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
