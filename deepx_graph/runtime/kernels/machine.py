"""Small arithmetic by numexpr: trees of steps become expressions of numexpr, which it compiles for its virtual machine.

The expressions are made as objects: no text is evaluated. One object of the machine has one set of registers, so no two threads
may run it at once; who finds all of them taken makes another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from deepx_graph.runtime.cost import file as cost_file
from deepx_graph.runtime.cost import model as cost
from deepx_graph.runtime.kernels import costs
from deepx_graph.runtime.kernels.program import Array, KernelProgram, Step, StepFunction

MACHINE = "machine"
"""The primitive of steps that numexpr's machine does."""

KINDS: dict[np.dtype[Any], str] = {
    np.dtype(np.bool_): "bool", np.dtype(np.int32): "int", np.dtype(np.int64): "long", np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
}  # fmt: skip
_NUMBERS, _FLOATS, _BITS = frozenset("ilfd"), frozenset("fd"), frozenset("bil")
_NAMES: dict[str, tuple[str, frozenset[str]]] = {
    "add": ("add", _NUMBERS), "sub": ("sub", _NUMBERS), "mul": ("mul", _NUMBERS), "div": ("div", _FLOATS), "neg": ("neg", _NUMBERS),
    "sqrt": ("sqrt", _FLOATS), "where": ("where", _NUMBERS | _BITS), "and": ("and", _BITS), "or": ("or", _BITS),
    "xor": ("xor", _BITS), "not": ("invert", _BITS), "eq": ("eq", _NUMBERS | _BITS), "ne": ("ne", _NUMBERS | _BITS),
    "lt": ("gt", _NUMBERS), "le": ("ge", _NUMBERS), "gt": ("gt", _NUMBERS), "ge": ("ge", _NUMBERS), "max": ("maximum", _FLOATS),
    "min": ("minimum", _FLOATS), "abs": ("absolute", _FLOATS), "floor": ("floor", _FLOATS), "ceil": ("ceil", _FLOATS),
}  # fmt: skip
"""Numexpr's name of a primitive, and the type codes of operands for which it gives the very bits that numpy gives."""


def grouped(program: KernelProgram) -> KernelProgram:
    """The program with trees of steps that the machine does faster replaced by one step each."""
    registers = program.registers
    if not program.steps or max(r.size for r in registers) > costs.VM_ELEMENTS:
        return program
    uses = Counter([*program.results, *(s for step in program.steps for s in step.sources)])
    trees: dict[int, list[Step]] = {}
    for step in program.steps:
        tree = [step]
        if _is_known(step, program):
            for s in step.sources:
                inner = trees.get(s, [])
                joined = [*inner, *tree]
                if (inner and uses[s] == 1 and _is_known(inner[-1], program) and len(joined) <= costs.VM_STEPS
                        and registers[s].shape == registers[step.target].shape
                        and len(_inputs(joined, program.constants)) <= costs.VM_INPUTS):
                    tree = joined
                    del trees[s]
        trees[step.target] = tree
    return replace(program, steps=tuple(s for tree in trees.values() for s in _replaced(tree, program)))


def _is_known(step: Step, program: KernelProgram) -> bool:
    """Whether the machine has the step."""
    types = [program.registers[r].dtype for r in (step.target, *step.sources)]
    return (step.primitive in _NAMES and program.registers[step.target].shape != () and all(t in KINDS for t in types)
            and KINDS[types[-1]][0] in _NAMES[step.primitive][1])


def _inputs(tree: Sequence[Step], constants: Mapping[int, Array]) -> list[int]:
    """The registers that a tree reads, without its own and constants of one element."""
    own = {s.target for s in tree}
    return sorted({r for s in tree for r in s.sources if r not in own and not (r in constants and constants[r].ndim == 0)})


def _replaced(tree: list[Step], program: KernelProgram) -> list[Step]:
    """A tree as one step of the machine, where that is faster."""
    inputs, root = _inputs(tree, program.constants), tree[-1]
    elements, c = program.registers[root.target].size, cost_file.constants()
    if not inputs or cost.vm_ns(c, len(tree), len(inputs), elements) >= len(tree) * cost.ufunc_ns(c, elements):
        return tree
    machine = Machine(tree, inputs, program)
    return [Step(root.target, tuple(inputs), StepFunction(machine.into, machine), MACHINE)]


class Machine:
    """A tree as numexpr runs it."""

    def __init__(self, tree: Sequence[Step], inputs: Sequence[int], program: KernelProgram) -> None:
        from numexpr import interpreter

        expressions: Any = import_module("numexpr.expressions")
        compiler: Any = import_module("numexpr.necompiler")
        self.steps = len(tree)

        def kind(r: int) -> str:
            return KINDS[program.registers[r].dtype]

        nodes: dict[int, Any] = {r: expressions.VariableNode(f"v{r}", kind(r)) for r in inputs}
        for step in tree:
            for s in step.sources:
                if s not in nodes:
                    nodes[s] = expressions.ConstantNode(program.constants[s].item())
                    nodes[s].astKind = kind(s)
            operands = [nodes[s] for s in step.sources]
            if step.primitive in ("lt", "le"):
                operands.reverse()
            nodes[step.target] = expressions.OpNode(_NAMES[step.primitive][0], operands, kind(step.target))
        types = [(f"v{r}", compiler.kind_to_type[kind(r)]) for r in inputs]
        code, signature, temporaries, constants, names = compiler.precompile(nodes[tree[-1].target], types)
        parts = signature.encode(), temporaries.encode(), compiler.compileThreeAddrForm(code), constants, names
        self._make: Callable[[], Any] = lambda: interpreter.NumExpr(*parts)
        self._spare = [self._make()]

    def __call__(self, *sources: Any, **out: Any) -> Any:
        """What the tree gives."""
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
