"""How often each node of a function runs in one call, and each function in one run of the program: what costs are multiplied by.

A loop whose text fixes the number of its iterations runs its body so often and its test once more. Where the number is not known,
one iteration is counted, and the count says so; the same goes for recursion and calls of function values. Branches count all sides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from deepx_graph.analysis.schedule import Block, Eval, IfStep, LoopStep, Once, schedule
from deepx_graph.analysis.trip_count import trip_count
from deepx_graph.errors import DeepxGraphError
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.structure import CALL, LOOP_END, PARTIAL, callee_of
from deepx_graph.ops import run_parallel
from deepx_graph.runtime.program import call_order


@dataclass(frozen=True, slots=True)
class Times:
    """So many times; `is_known` is false where it is so many for each iteration or call of an unknown number."""

    count: int
    is_known: bool = True

    def __mul__(self, other: Times) -> Times:
        return Times(self.count * other.count, self.is_known and other.is_known)

    def __add__(self, other: Times) -> Times:
        return Times(self.count + other.count, self.is_known and other.is_known)

    def __str__(self) -> str:
        return f"{self.count:,}" if self.is_known else f"{self.count:,} x ?"


NEVER, ONCE, UNKNOWN = Times(0), Times(1), Times(1, False)


def node_times(function: Function) -> dict[Node, Times]:
    """How often each node runs in one call of its function; what is not in it never runs."""
    try:
        return dict(_times(schedule(function).root))
    except DeepxGraphError:  # what has no schedule is still drawn and counted
        return dict.fromkeys(function.nodes, ONCE)


def _times(root: Block) -> Iterator[tuple[Node, Times]]:
    of_loop: dict[Node, Times] = {}
    stack = [(root, ONCE)]
    while stack:
        block, times = stack.pop()
        for step in block.steps:
            match step:
                case Eval(node):
                    yield node, times
                case Once():
                    stack.append((step.block, of_loop[step.loop] if times.count else NEVER))
                case IfStep():
                    yield step.node, times
                    stack += ((b.block, times) for b in step.branches)
                case LoopStep():
                    yield step.node, times
                    of_loop[step.node] = times
                    stack += _inside(step, times)


def _inside(step: LoopStep, times: Times) -> list[tuple[Block, Times]]:
    trips = trip_count(step.node)
    if trips is None:
        return [(step.header, times * UNKNOWN), (step.body, times * UNKNOWN)]
    return [(step.header, times * Times(trips + 1)), (step.body, times * Times(trips))]


def open_loops(function: Function) -> list[Node]:
    """The loops, each by its loop_end, that run an unknown number of iterations."""
    return [n for n in function.nodes if n.op is LOOP_END and trip_count(n) is None]


def is_open(node: Node) -> bool:
    """Whether one run of a node has a loop of an unknown number of iterations in its body."""
    return any(isinstance(v, Function) and open_loops(v) for v in node.attrs)


def function_times(module: Module) -> dict[str, Times]:
    """How often each function that the entry reaches runs, the entry once."""
    order, recursive = call_order(module)
    found = {name: UNKNOWN if name in recursive else NEVER for name in order}
    found[module.entry_name] = UNKNOWN if module.entry_name in recursive else ONCE
    for name in reversed(order):
        for callee, times in _calls(module[name]):
            if name not in recursive or callee not in recursive:
                found[callee] += found[name] * times
    return found


def _calls(function: Function) -> Iterator[tuple[str, Times]]:
    times: Mapping[Node, Times] | None = None
    for node in function.nodes:
        if node.op is CALL or node.op is PARTIAL:
            times = node_times(function) if times is None else times
            yield callee_of(node), times.get(node, NEVER) * (ONCE if node.op is CALL else _uses(function, node))


def _uses(function: Function, closure: Node) -> Times:
    """How often a closure is called for each time that it is made: once on each device, else not known."""
    users = function.users[closure]
    if not users or any(u.op is not run_parallel for u in users):
        return UNKNOWN
    return Times(sum(u.attr("replicas") * u.attr("partitions") for u in users))
