"""What Python does in a call of a compiled program beside one call of machine code, and why it is not machine code.

A program without control flow takes one step for each kernel that Python calls and each view between them. Any other is
interpreted: one step for each instruction and iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.analysis.work import NEVER, ONCE, UNKNOWN, Times
from deepx_graph.ir import Module, Node
from deepx_graph.lowering.bytecode import Code, Instruction, Run, Test
from deepx_graph.runtime.cost.counts import function_times
from deepx_graph.runtime.memory.alias import makes_memory
from deepx_graph.runtime.program import Unit, is_kernel
from deepx_graph.runtime.unit_code import UnitCode

CONTROL = "control"


@dataclass(frozen=True)
class PythonStep:
    """One thing that Python does in a call.

    `kind` is an operation and how it runs (`sort by eval`, or `fusion by machine code`: a kernel that Python calls), a view or
    projection (`reshape`), or `control` for a jump, a test or a move of the interpreter, which have no node. `reason` says why the
    step is not machine code, or else why the function is not one kernel; empty where the engine does not say. One call of the
    program takes the step `times`, all sides of branches counted.
    """

    kind: str
    function: str
    node: Node | None
    reason: str
    times: Times


def total(steps: tuple[PythonStep, ...]) -> Times:
    """How many steps a call takes."""
    return sum((s.times for s in steps), NEVER)


def python_steps(module: Module, units: Mapping[str, Unit], code: UnitCode | None) -> tuple[PythonStep, ...]:
    """The steps of one call of a module made ready; `code` is its entry where that is a function of Python."""
    if code is not None and code.is_straight:
        unit = units[module.entry_name]
        return tuple(_step(unit, s, ONCE) for s in code.steps)
    calls = function_times(module)
    return tuple(_step(unit, i, times * calls.get(name, NEVER))
                 for name, unit in units.items() for i, times in _instruction_times(unit.plan.code))


def _step(unit: Unit, what: Instruction, times: Times) -> PythonStep:
    apart = unit.engine.why_apart(unit.function)
    if not isinstance(what, Run):
        return PythonStep(CONTROL, unit.function.name, None, apart, times)
    node = what.node
    if not is_kernel(node) or not makes_memory(node) or node.op.view:
        return PythonStep(node.op.name, unit.function.name, node, apart, times)
    lowering, _, reason = unit.engine.lowering(node).partition(": ")
    return PythonStep(f"{node.op.name} by {lowering.partition(',')[0]}", unit.function.name, node,
                      reason if reason and lowering == "eval" else apart, times)


def _instruction_times(code: Code) -> Iterator[tuple[Instruction, Times]]:
    """The instructions, with how often one call of the function runs each. That of a `once` block counts for every iteration."""
    tests = {i.node: at for at, i in enumerate(code.instructions) if isinstance(i, Test)}
    spans = [(span, tests[end], trip_count(end)) for end, span in code.loops.items()]
    for at, instruction in enumerate(code.instructions):
        times = ONCE
        for span, test, trips in spans:
            if span.start <= at < span.end:
                times *= UNKNOWN if trips is None else Times(trips + (at <= test))
        yield instruction, times
