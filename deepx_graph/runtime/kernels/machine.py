"""Small arithmetic by numexpr: a program becomes an expression of numexpr, which that compiles for its virtual machine.

Expressions are made as objects: no text is evaluated. One object of the machine has one set of registers, so no two threads
may run it at once; who finds all of them taken makes another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from deepx_graph.runtime.cost import file as cost_file
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.program import Array, KernelProgram, Step, StepFunction

MACHINE = "machine"
"""The primitive of a step that is a whole program in numexpr's machine."""

KINDS: dict[np.dtype[Any], str] = {
    np.dtype(np.bool_): "bool", np.dtype(np.int32): "int", np.dtype(np.int64): "long", np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
}  # fmt: skip
_NUMBERS, _FLOATS, _BITS = frozenset("ilfd"), frozenset("fd"), frozenset("bil")
_NAMES: dict[str, tuple[str, frozenset[str]]] = {
    "add": ("add", _NUMBERS), "sub": ("sub", _NUMBERS), "mul": ("mul", _NUMBERS), "div": ("div", _FLOATS), "neg": ("neg", _NUMBERS),
    "sqrt": ("sqrt", _FLOATS), "where": ("where", _NUMBERS | _BITS), "and": ("and", _BITS), "or": ("or", _BITS),
    "xor": ("xor", _BITS), "not": ("invert", _BITS), "eq": ("eq", _NUMBERS | _BITS), "ne": ("ne", _NUMBERS | _BITS),
    "lt": ("gt", _NUMBERS), "le": ("ge", _NUMBERS), "gt": ("gt", _NUMBERS), "ge": ("ge", _NUMBERS), "abs": ("absolute", _FLOATS),
    "floor": ("floor", _FLOATS), "ceil": ("ceil", _FLOATS),
}  # fmt: skip
"""Numexpr's name of a primitive, and the type codes of operands for which it gives the very bits that numpy gives; of two zeros its
maximum and minimum are either."""


def in_machine(program: KernelProgram) -> KernelProgram | None:
    """The program as one step of the machine; None where that has not all of the steps, or is not faster."""
    registers, steps, c = program.registers, program.steps, cost_file.constants()
    if len(program.results) != 1 or not all(_is_known(s, program) for s in steps):
        return None
    own, elements = {s.target for s in steps}, max(r.size for r in registers)
    inputs = sorted({s for step in steps for s in step.sources if s not in own and not _is_scalar(s, program)})
    size: dict[int, int] = {}
    for step in steps:
        size[step.target] = 1 + sum(size.get(s, 0) for s in step.sources)
    if not 0 < len(inputs) <= costs.VM_INPUTS or not 1 < elements <= costs.VM_ELEMENTS or max(size.values()) > costs.VM_STEPS:
        return None
    if cost.vm_ns(c, len(steps), len(inputs), elements) >= len(steps) * cost.ufunc_ns(c, elements):
        return None
    machine = Machine(inputs, program)
    return replace(program, steps=(Step(program.results[0], tuple(inputs), StepFunction(machine.into, machine), MACHINE),))


def _is_scalar(register: int, program: KernelProgram) -> bool:
    return register in program.constants and program.registers[register].shape == ()


def _is_known(step: Step, program: KernelProgram) -> bool:
    """Whether the machine has the step."""
    types = [program.registers[r].dtype for r in (step.target, *step.sources)]
    return step.primitive in _NAMES and all(t in KINDS for t in types) and KINDS[types[-1]][0] in _NAMES[step.primitive][1]


class Machine:
    """A program as numexpr runs it."""

    def __init__(self, inputs: Sequence[int], program: KernelProgram) -> None:
        from numexpr import interpreter

        expressions: Any = import_module("numexpr.expressions")
        compiler: Any = import_module("numexpr.necompiler")
        self.steps = len(program.steps)

        def kind(r: int) -> str:
            return KINDS[program.registers[r].dtype]

        nodes: dict[int, Any] = {r: expressions.VariableNode(f"v{r}", kind(r)) for r in inputs}
        for step in program.steps:
            for s in step.sources:
                if s not in nodes:
                    nodes[s] = expressions.ConstantNode(program.constants[s].item())
                    nodes[s].astKind = kind(s)
            operands = [nodes[s] for s in step.sources]
            if step.primitive in ("lt", "le"):
                operands.reverse()
            nodes[step.target] = expressions.OpNode(_NAMES[step.primitive][0], operands, kind(step.target))
        types = [(f"v{r}", compiler.kind_to_type[kind(r)]) for r in inputs]
        code, signature, temporaries, constants, names = compiler.precompile(nodes[program.results[0]], types)
        parts = signature.encode(), temporaries.encode(), compiler.compileThreeAddrForm(code), constants, names
        self._make: Callable[[], Any] = lambda: interpreter.NumExpr(*parts)
        self._spare = [self._make()]

    def __call__(self, *sources: Any, **out: Any) -> Any:
        """The result."""
        try:
            run = self._spare.pop()
        except IndexError:
            run = self._make()
        found = run(*sources, ex_uses_vml=False, **out)
        self._spare.append(run)
        return found

    def into(self, *args: Array) -> None:
        """The same, put into the last argument."""
        self(*args[:-1], out=args[-1])
