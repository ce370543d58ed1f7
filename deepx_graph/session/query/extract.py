"""A part of a function as a program of its own that runs: chosen nodes, with parameters for what they read from outside.

Constants come along. A value of a branch or loop needs its region or loop, and a loop needs all that goes round with it: these are
added. Results are the chosen nodes that somebody outside reads, or nobody at all. The state of effects is the last parameter and
the last result, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from deepx_graph.errors import UsageError
from deepx_graph.ir import Function, Module, Node, Origin
from deepx_graph.ir.rebuild import copied, rebuild
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PARAM, PHI, REGION
from deepx_graph.types import StateType


def cut(module: Module, function: Function, nodes: Iterable[Node]) -> Module:
    """The module whose entry computes the chosen nodes of `function`; other functions stay for its calls.

    Raises UsageError when nothing is chosen, or when what is chosen needs two states at once.
    """
    chosen = closed(function, nodes)
    if not any(n.op is not CONSTANT and n.op is not PARAM for n in chosen):
        raise UsageError("nothing is cut out: no operation is chosen")
    own = [n for n in function.nodes if n in chosen and n.op is not PARAM]
    outside = [i for i in dict.fromkeys(i for n in own for i in n.inputs) if i not in chosen or i.op is PARAM]
    params = _params(outside, function)
    made = rebuild(own, dict(params), copied)
    read = [n for n in own if _is_read_outside(function, n, chosen)]
    results = sorted(read, key=lambda n: isinstance(n.type, StateType))
    states = sum(isinstance(n.type, StateType) for n in results)
    if states > 1:
        raise UsageError("the part that is cut out gives more than one state")
    if not states and any(isinstance(p.type, StateType) for p in params.values()):
        raise UsageError("the part that is cut out takes a state and gives none: it needs the effects on the way")
    entry = Function(function.name, tuple(params.values()), tuple(made[n] for n in results), tuple(n.name for n in results))
    others = (f for f in module.functions if f.name != function.name)
    return Module((entry, *others), entry.name, module.source, module.format)


def closed(function: Function, nodes: Iterable[Node]) -> set[Node]:
    """The nodes, with the constants that they read and the control that they cannot be without."""
    chosen: set[Node] = set()
    stack = list(nodes)
    ends = {n.inputs[0]: n for n in function.nodes if n.op is LOOP_END}
    while stack:
        n = stack.pop()
        if n in chosen:
            continue
        chosen.add(n)
        stack += (i for i in n.inputs if i.op is CONSTANT or n.op is PHI)
        if n.op is LOOP_BEGIN and n in ends:
            stack.append(ends[n])
        elif n.op is LOOP_END:
            stack += _turning(function, n)
        if n.op is LOOP_END or n.op is REGION:  # its values leave it one by one
            stack += function.users[n]
    return chosen


def _turning(function: Function, end: Node) -> set[Node]:
    """What lies between the head of a loop and its end: what goes round with it."""
    below = {end.inputs[0]}
    for n in function.nodes:
        if n.serial > end.inputs[0].serial and not below.isdisjoint(n.inputs):
            below.add(n)
    found: set[Node] = set()
    stack = [end]
    while stack:
        n = stack.pop()
        if n not in found and n in below:
            found.add(n)
            stack += n.inputs
    return found


def _params(outside: list[Node], function: Function) -> dict[Node, Node]:
    """A parameter for each value from outside, the state last, each with a name of its own."""
    number = {n: k for k, n in enumerate(function.nodes)}
    ordered = sorted(outside, key=lambda n: (isinstance(n.type, StateType), number[n]))
    if sum(isinstance(n.type, StateType) for n in ordered) > 1:
        raise UsageError("the part that is cut out takes more than one state")
    names: dict[str, None] = {}
    made: dict[Node, Node] = {}
    for k, n in enumerate(ordered):
        name = n.name if n.name and n.name not in names else f"v{number[n]}"
        names[name] = None
        made[n] = Node(PARAM, (), (k, n.type), n.type, Origin(name, n.origin.spans))
    return made


def _is_read_outside(function: Function, node: Node, chosen: set[Node]) -> bool:
    if node.op in (CONSTANT, LOOP_BEGIN) or (node.op is PHI and node.inputs[0].op is LOOP_BEGIN):
        return False
    users = function.users[node]
    return node in function.results or not users or any(u not in chosen for u in users)
