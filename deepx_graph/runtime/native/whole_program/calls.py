"""Functions that call one another as one plan: every function stands in the code once, and a call is a jump.

A function that calls itself, through others or not, has an activation record on a stack for each call: its values are there, and
what the words say of the call before. Any other has memory of its own, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.ir.structure import CALL, callee_of
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.whole_function import as_kernel
from deepx_graph.runtime.native.whole_program.plan import CalledFunction, MachineOf, ProgramPlan
from deepx_graph.runtime.native.whole_program.planner import planned


@dataclass(frozen=True)
class CallLimits:
    """How deeply calls may nest, and how many bytes their records may take."""

    max_depth: int
    max_bytes: int


TAG = "#"
"""What tells functions of one name in several modules apart: a number follows."""


def calls_of(function: Function) -> Iterator[Node]:
    """The calls in a function."""
    return (n for n in function.nodes if n.op is CALL)


def reached(function: Function, functions: Mapping[str, Function]) -> dict[str, Function]:
    """The functions that a function calls, through others or not. Raises Declined for one that is not there."""
    found: dict[str, Function] = {}
    pending = [function]
    while pending:
        for node in calls_of(pending.pop()):
            name = callee_of(node)
            if name not in functions:
                raise Declined(f"a call of '{name}', which is not there", node)
            if name not in found:
                found[name] = functions[name]
                pending.append(functions[name])
    return found


def with_callees(function: Function, names: Mapping[str, str]) -> Function:
    """The function, which calls functions by other names."""
    def renamed(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node.op is not CALL:
            return with_inputs(node, inputs)
        attrs = tuple(names[callee_of(node)] if name == "callee" else value for name, value in node.named_attrs.items())
        return Node(CALL, inputs, attrs, node.type, node.origin)

    return rebuilt(function, renamed)


class CalledFunctions:
    """The functions that the kernels of an engine call, by names of which each stands for one function, and the limits of calls."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.limits = CallLimits(1 << 62, 1 << 62)
        self._count = itertools.count()

    def compiled(self, module: Module, limits: CallLimits, arranged: Callable[[Function], Function],
                 build: Callable[[Function], None]) -> Module:
        """The module with its entry as one kernel, its functions being `arranged` in it; itself where it calls none, or where
        `build`, which makes the kernel, raises Declined."""
        try:
            called = reached(module.entry, {f.name: f for f in module.functions})
            if not called:
                return module
            names = {name: f"{name}{TAG}{next(self._count)}" for name in called}
            self.functions |= {names[name]: with_callees(arranged(f), names) for name, f in called.items()}
            self.limits = limits
            entry = as_kernel(with_callees(arranged(module.entry), names), build)
        except Declined:
            return module
        return module.with_functions(entry if f is module.entry else f for f in module.functions)


def planned_with_calls(body: Function, functions: Mapping[str, Function], machine_of: MachineOf, most_bytes: int) -> ProgramPlan:
    """The plan of a body and of the functions that it calls. Raises Declined."""
    called = reached(body, functions)
    numbers = {name: k for k, name in enumerate(called)}
    plan = planned(body, machine_of, most_bytes, numbers)
    for name, function in called.items():
        is_recursive = name in reached(function, functions)
        own = planned(function, machine_of, most_bytes, numbers, is_function=True, is_recursive=is_recursive)
        plan.functions.append(CalledFunction(own, is_recursive))
    return plan
