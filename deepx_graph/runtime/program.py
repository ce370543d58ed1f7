"""A module made ready for one engine: every function that the entry may run, with its plan, prepared kernels and arenas.

Functions are planned callees first, so that a caller's peak holds what its calls need. Kernels are made once, here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from deepx_graph.analysis.components import components, on_cycles
from deepx_graph.analysis.schedule import schedule
from deepx_graph.errors import DeepxGraphError, Diagnostic, LimitError, RunError, is_interrupt
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import CALL, CALL_VALUE, PARTIAL, PROJ, callee_of, value_of
from deepx_graph.literal import Array
from deepx_graph.lowering.bytecode import Instruction, Run, alive_behind, reads, writes
from deepx_graph.ops.tensor.parallel import parallel_grid
from deepx_graph.runtime.engines.base import CONSUMES_FIRST, Engine, KernelFn
from deepx_graph.runtime.memory.alias import makes_memory
from deepx_graph.runtime.memory.assignment import BufferAssignment, CallNeeds, Scratch, always, of_eval, plan
from deepx_graph.runtime.memory.in_place import Overwrites, nothing
from deepx_graph.runtime.memory.pages import aligned
from deepx_graph.runtime.profile import Profile
from deepx_graph.types import TensorType, leaves

Outs = list[tuple[Array, ...] | None]


class Unit:
    """One function, ready to run. `kernels[at]` is the kernel of the instruction at that position, if it is one."""

    def __init__(self, function: Function, plan: BufferAssignment, engine: Engine, profile: Profile | None) -> None:
        self.function, self.plan, self.engine = function, plan, engine
        self.measured = profile is not None
        self.instructions = plan.code.instructions
        self.kernels: list[KernelFn | None] = [None] * len(self.instructions)
        for at, i in enumerate(self.instructions):
            if isinstance(i, Run) and is_kernel(i.node):
                kernel = prepared(engine, i.node)
                measure = profile is not None and makes_memory(i.node)
                self.kernels[at] = profile.measured(function.name, i.node, kernel, engine) if profile and measure else kernel
        self.taken = frozenset(_taken(self.kernels, self.instructions))
        """Positions of kernels that want their first operand to themselves, where it ends there."""
        self.frame: list[Any] = [None] * len(plan.code.slots)
        for slot, node in plan.code.constants:
            self.frame[slot] = value_of(node).array
        self._arenas: list[Outs] = []

    @cached_property
    def entering(self) -> Engine | None:
        """The engine, where nobody measures kernels one by one."""
        return None if self.measured else self.engine

    @cached_property
    def staging(self) -> Engine | None:
        """The engine, where it stages kernels and nobody measures them one by one."""
        return self.engine if self.engine.stages and not self.measured else None

    @cached_property
    def constants(self) -> dict[int, Node]:
        """The slots filled before the start."""
        return dict(self.plan.code.constants)

    @property
    def may_call_blas(self) -> bool:
        """Whether some kernel is not the engine's own, and neither a view, nor elementwise, nor an item of a tuple."""
        nodes = [i.node for i in self.instructions if isinstance(i, Run) and is_kernel(i.node)]
        others = [n for n in nodes if not n.op.view and not n.op.elementwise and n.op is not PROJ]
        return any(self.engine.lowering(n).partition(":")[0] in ("BLAS", "eval") for n in others)

    def take_outs(self) -> Outs:
        """Memory for one activation: for each position the arrays that its results go to, or None."""
        return self._arenas.pop() if self._arenas else self._make_outs()

    def give_back(self, outs: Outs) -> None:
        """Keeps the memory of a finished activation for the next; of many at once (recursion) only one stays."""
        if not self._arenas:
            self._arenas.append(outs)

    def _make_outs(self) -> Outs:
        memory = aligned(self.plan.shared_bytes)
        outs: Outs = [None] * len(self.instructions)
        for at, pieces in self.plan.of.items():
            outs[at] = tuple(_array(memory[p.offset :], p.node, p.leaf) for p in pieces)
        return outs


def _taken(kernels: Sequence[KernelFn | None], code: Sequence[Instruction]) -> Iterator[int]:
    """The positions of kernels whose first operand leaves the frame before the call, so that it may be written over."""
    first = {at: run.sources[0] for at, run in enumerate(code)
             if isinstance(run, Run) and getattr(kernels[at], CONSUMES_FIRST, False) and run.sources.count(run.sources[0]) == 1}
    bit = {slot: 1 << k for k, slot in enumerate(dict.fromkeys(first.values()))}
    if bit:
        alive = alive_behind(code, *([sum({bit.get(s, 0) for s in slots(i)}) for i in code] for slots in (reads, writes)))
        yield from (at for at, slot in first.items() if not alive[at] & bit[slot])


def _array(buffer: Array, node: Node, leaf: int) -> Array:
    type = leaves(node.type)[leaf]
    assert isinstance(type, TensorType) and type.dtype.np is not None
    return buffer[: type.nbytes].view(type.dtype.np).reshape(type.shape)


def is_kernel(node: Node) -> bool:
    """Whether an engine runs the node: not what calls functions or meets other devices."""
    return node.op.eval is not None and node.op.exchange is None


def prepared(engine: Engine, node: Node) -> KernelFn:
    """The engine's kernel for a node, held to its contract: never over an operand unawares."""
    kernel = engine.kernel(node)
    if node.op.view or not makes_memory(node) or engine.writes(node):
        return kernel

    def run(values: Sequence[Any], out: Sequence[Array] | None) -> Any:
        result = kernel(values, out)
        if isinstance(result, tuple):
            return tuple(_own(r, values) for r in result)
        return _own(result, values)

    return run


def _own(result: Any, values: Sequence[Any]) -> Any:
    """The result, copied when its memory may be that of an operand."""
    if not isinstance(result, np.ndarray):
        return result
    if result.base is None and not any(result is v for v in values):
        return result
    arrays = (v for v in values if isinstance(v, np.ndarray))
    return result.copy() if any(np.may_share_memory(result, v) for v in arrays) else result


def callees(function: Function) -> set[str]:
    """The functions that a function names."""
    return {callee_of(n) for n in function.nodes if n.op is CALL or n.op is PARTIAL}


def plan_functions(module: Module, writes: Callable[[Node], bool] = always, overwrites: Overwrites = nothing,
                   scratch: Scratch = of_eval) -> dict[str, BufferAssignment]:
    """The plans of the entry and every function it may run, callees first."""
    order, recursive = call_order(module)
    plans: dict[str, BufferAssignment] = {}
    closures = {callee_of(n) for name in order for n in module[name].nodes if n.op is PARTIAL}

    def call_needs(node: Node) -> CallNeeds:
        names = (callee_of(node),) if node.op is CALL else closures
        grid = parallel_grid(node)
        devices = 1 if grid is None else grid.count
        called = [plans[n] for n in names if n in plans]
        return CallNeeds(devices * max((p.value_bytes - p.output_bytes for p in called), default=0),
                         devices * max((p.peak_bytes - p.output_bytes for p in called), default=0))

    def fills(node: Node) -> bool:
        return is_kernel(node) and writes(node)

    for name in order:
        plans[name] = plan(schedule(module[name]), writes=fills, call_needs=call_needs, recursive=name in recursive,
                           overwrites=lambda n: overwrites(n) if fills(n) else (), scratch=scratch)
    return plans


def engine_plans(module: Module, engine: Engine, meeting: Callable[[Node], int] | None = None) -> dict[str, BufferAssignment]:
    """The plans of those functions by what the kernels of an engine need, and what a collective takes beside its results where
    `meeting` says that. Raises InferError where a size is not known."""
    def scratch(node: Node, loose: frozenset[int]) -> int:
        if node.op.exchange is not None:
            return meeting(node) if meeting is not None else 0
        return engine.scratch(node, loose)

    return plan_functions(module, engine.writes, engine.overwrites, scratch)


def call_order(module: Module) -> tuple[list[str], set[str]]:
    """The functions that the entry may run, callees first where no recursion is; and those that may come to run themselves."""
    graph = _call_graph(module)
    found = components(graph)
    return [name for component in found for name in reversed(component)], on_cycles(graph, found)


def _call_graph(module: Module) -> dict[str, list[str]]:
    """Function name to the names it may run; a closure may be run by whoever runs function values."""
    graph: dict[str, list[str]] = {}
    stack = [module.entry_name]
    while stack:
        name = stack.pop()
        if name not in graph:
            graph[name] = sorted(callees(module[name]))
            stack += graph[name]
    closures = sorted({callee_of(n) for name in graph for n in module[name].nodes if n.op is PARTIAL})
    for name, called in graph.items() if closures else ():
        if any(n.op is CALL_VALUE or parallel_grid(n) is not None for n in module[name].nodes):
            called += (c for c in closures if c not in called)
    return graph


FAULTS = (ArithmeticError, LookupError, ValueError, OSError)
"""What numpy, and the functions of a program's custom calls, raise for values that they do not take."""


def fail(error: Exception, node: Node | None) -> NoReturn:
    """Raises what an exception says of the node that ran: a RunError at its source position, a LimitError for want of memory.

    What comes from elsewhere goes on as it is: a deadline of the caller, an error of our own, whatever is raised between nodes.
    """
    if is_interrupt(error):
        raise error
    if isinstance(error, MemoryError):
        raise LimitError(Diagnostic("there is not enough memory for the result", node.span if node else None)) from None
    if node is None:
        raise error
    if isinstance(error, DeepxGraphError):
        raise type(error)(*(d if d.span else replace(d, span=node.span) for d in error.diagnostics)) from error
    if isinstance(error, FAULTS):
        raise RunError(Diagnostic(f"{node.op.name}: {error or type(error).__name__}", node.span)) from error
    raise error
