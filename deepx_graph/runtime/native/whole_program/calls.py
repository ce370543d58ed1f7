"""Functions that call one another as one plan: every function stands in the code once, and a call is a jump.

A function that calls itself, through others or not, has an activation record on a stack for each call: its values are there, and
what the words say of the call before. Any other has memory of its own, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import rebuilt, with_inputs
from deepx_graph.ir.structure import CALL, callee_of
from deepx_graph.runtime.bytecode import Code, Instruction, Jump, Move, Select, Skip, Test
from deepx_graph.runtime.engines.base import Declined
from deepx_graph.runtime.engines.outline import as_kernel
from deepx_graph.runtime.native.call_image import rounded
from deepx_graph.runtime.native.whole_program.plan import CalledFunction, MachineOf, ProgramPlan, on_storages
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
    recursive = [name in reached(f, functions) for name, f in called.items()]
    own = planned(body, machine_of, most_bytes, numbers)
    others = [planned(f, machine_of, most_bytes, numbers, is_function=True, is_recursive=r)
              for f, r in zip(called.values(), recursive, strict=True)]
    return _joined([own, *others], list(called), recursive) if called else own


def _joined(plans: Sequence[ProgramPlan], names: Sequence[str], recursive: Sequence[bool]) -> ProgramPlan:
    """The plans one after the other, that of the body first."""
    positions = list(itertools.accumulate((len(p.code.instructions) for p in plans), initial=0))
    slots = list(itertools.accumulate((len(p.code.slots) for p in plans), initial=0))
    storages = list(itertools.accumulate((len(p.storages) for p in plans), initial=0))
    first = plans[0]
    code = Code(first.code.schedule, tuple(_moved(i, at, slot) for p, at, slot in zip(plans, positions, slots, strict=False)
                                      for i in p.code.instructions),
                tuple(s for p in plans for s in p.code.slots), first.code.params, first.code.constants, first.code.loops)
    whole = ProgramPlan(code, [s for p in plans for s in p.storages], results=first.results, exchanged=first.exchanged,
                        in_place=first.in_place)
    for plan, at, base, is_recursive in zip(plans, positions, storages, (False, *recursive), strict=False):
        whole.actions += [[on_storages(a, base.__add__) for a in actions] for actions in plan.actions]
        whole.tested |= {at + k: base + s for k, s in plan.tested.items()}
        start = 0 if is_recursive else whole.nbytes
        whole.homes |= {base + k: replace(h, offset=h.offset + (start if h.result is None else 0)) for k, h in plan.homes.items()}
        whole.workspaces += [tuple(map(whole.nbytes.__add__, starts)) for starts in plan.workspaces]
        whole.nbytes += rounded(plan.nbytes)
    for k, (name, plan) in enumerate(zip(names, plans[1:], strict=True), 1):
        params = {s.param: storages[k] + n for n, s in enumerate(plan.storages) if s.param is not None}
        whole.functions.append(CalledFunction(
            name, positions[k], positions[k + 1], storages[k], storages[k + 1], tuple(params[p] for p in range(len(params))),
            tuple(storages[k] + s for s in plan.results), recursive[k - 1], plan.record_bytes))
    return whole


def _moved(i: Instruction, at: int, slot: int) -> Instruction:
    """An instruction with its positions and marks so much further on."""
    match i:
        case Jump(to):
            return Jump(to + at)
        case Select(to=to):
            return replace(i, to=[t + at for t in to])
        case Test(to=to):
            return replace(i, to=to + at)
        case Skip(mark, to):
            return Skip(mark + slot, to + at)
        case Move(clears=clears):
            return replace(i, clears=tuple(c + slot for c in clears))
    return i
