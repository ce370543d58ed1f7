"""Loops that iterate a known few times, written out (`unroll`); loops of one iteration at most; variables that are always equal.

Unrolling copies the body once for each iteration. Nothing is evaluated, and nothing here recurses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from deepx_graph.analysis.trip_count import is_variable, trip_count
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import new_item, rebuild, rebuilt, replaced, with_inputs
from deepx_graph.ir.structure import LOOP_BEGIN, LOOP_END, PHI, PROJ, TUPLE, index_of
from deepx_graph.rewrite.base import Pass, RewriteControl
from deepx_graph.types import TupleType


@dataclass(frozen=True)
class NaturalLoop:
    """A loop of a function: its ends, and the nodes inside, oldest first."""

    begin: Node
    end: Node
    inside: tuple[Node, ...]

    @property
    def holds_loops(self) -> bool:
        return any(n.op in (LOOP_BEGIN, LOOP_END) for n in self.inside)


def loops(function: Function) -> list[NaturalLoop]:
    """The loops of a function, inner ones before those around them."""
    if not any(n.op is LOOP_END for n in function.nodes):
        return []
    found = []
    depends: dict[Node, frozenset[Node]] = {}
    inside: dict[Node, list[Node]] = {}
    none: frozenset[Node] = frozenset()
    for node in function.nodes:
        around = none.union(*(depends[i] for i in node.inputs)) if node.inputs else none
        if node.op is LOOP_END:
            found.append(NaturalLoop(node.inputs[0], node, tuple(inside[node.inputs[0]])))
            around -= {node.inputs[0]}
        depends[node] = around
        for begin in around:
            inside[begin].append(node)
        if node.op is LOOP_BEGIN:
            depends[node] = around | {node}
            inside[node] = []
    return found


@dataclass(frozen=True)
class Unroll(Pass):
    """Writes out loops that run a known, small number of times and hold no other loop."""

    name: ClassVar[str] = "unroll"
    max_trips: int = 8
    max_nodes: int = 1000

    def run_under(self, module: Module, control: RewriteControl) -> Module:
        return module.with_functions(
            unroll(f, control, lambda loop, count: count <= self.max_trips and count * len(loop.inside) <= self.max_nodes)
            for f in module.functions)


def unroll(function: Function, control: RewriteControl, fits: Callable[[NaturalLoop, int], bool], rule: str = "unroll") -> Function:
    """The function with the loops that fit, by their iterations, written out; inner loops first, so an outer one sees them done."""
    while True:
        chosen: dict[Node, tuple[NaturalLoop, int]] = {}
        for loop in loops(function):
            count = trip_count(loop.end)
            if count is None or not fits(loop, count) or (loop.holds_loops and count > 1) or any(n in chosen for n in loop.inside):
                continue
            if control.permit(rule, loop.end, loop.end):
                chosen[loop.end] = (loop, count)
        if not chosen:
            return function
        function = _written_out(function, chosen)
        if control.exhausted:
            return function


def _written_out(function: Function, chosen: dict[Node, tuple[NaturalLoop, int]]) -> Function:
    new: dict[Node, Node] = {}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node not in chosen:
            return new_item(node, inputs) or with_inputs(node, inputs)
        values = _after(*chosen[node], new)
        return Node(TUPLE, tuple(values), (), TupleType(tuple(v.type for v in values)), node.origin)

    return replaced(function, rebuild(function.nodes, new, step))


def _after(loop: NaturalLoop, count: int, outside: dict[Node, Node]) -> list[Node]:
    """The loop's variables after `count` iterations; `outside` are the nodes that the loop reads."""
    variables = [outside[i] for i in loop.begin.inputs]
    for _ in range(count):
        here = {n: variables[index_of(n)] for n in loop.inside if n.op is PHI and n.inputs[0] is loop.begin}
        for node in loop.inside:
            if node not in here:
                here[node] = with_inputs(node, tuple([here[i] if i in here else outside[i] for i in node.inputs]))
        variables = [here[n] if n in here else outside[n] for n in loop.end.inputs[2:]]
    return variables


def once(function: Function, control: RewriteControl) -> Function:
    """The function without loops that iterate at most once."""
    return unroll(function, control, lambda loop, count: count <= 1, "loop-once")


# --- variables that are always equal --------------------------------------------------------------------------------


def merge_equal_variables(function: Function, control: RewriteControl) -> Function:
    """The function with loop variables that start equal and go on equal as one; the others are then unused."""
    instead: dict[Node, dict[int, int]] = {}
    for loop in loops(function):
        if len(set(loop.begin.inputs)) == len(loop.begin.inputs) or control.exhausted:
            continue
        same = {k: first for k, first in enumerate(_classes(loop)) if first != k and _is_used(loop, k)}
        if same and control.permit("equal-variables", loop.end, loop.end):
            instead |= {loop.begin: same, loop.end: same}
    return _with_first_variables(function, instead) if instead else function


def _is_used(loop: NaturalLoop, k: int) -> bool:
    """Whether anything but its own next value asks for the variable inside the loop."""
    return any(is_variable(n, loop.begin, k) for n in loop.inside)


def _classes(loop: NaturalLoop) -> list[int]:
    """For each variable the first one that it always equals: assumed of all that start equal, until an iteration tells them
    apart."""
    first = [loop.begin.inputs.index(i) for i in loop.begin.inputs]
    while True:
        numbers: dict[Any, int] = {}
        number: dict[Node, Any] = {}
        for node in loop.inside:
            if node.op is PHI and node.inputs[0] is loop.begin:
                number[node] = ("variable", first[index_of(node)])
            elif node.op is LOOP_BEGIN or not node.op.total:
                number[node] = node
            else:
                key = (node.op, tuple([number.get(i, i) for i in node.inputs]), node.attrs, node.type)
                number[node] = numbers.setdefault(key, len(numbers))
        after = [(f, number.get(n, n)) for f, n in zip(first, loop.end.inputs[2:], strict=True)]
        refined = [after.index(a) for a in after]
        if refined == first:
            return first
        first = refined


def _with_first_variables(function: Function, instead: dict[Node, dict[int, int]]) -> Function:
    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        k = instead.get(node.inputs[0], {}).get(index_of(node)) if node.op in (PHI, PROJ) else None
        return with_inputs(node, inputs) if k is None else Node(node.op, inputs, (k,), node.type, node.origin)

    return rebuilt(function, step)
