"""Loops as Relay has them: a local function that calls itself with the next values while the condition holds.

The function's first parameters are what the loop uses and does not change, the others its variables, a state last. Loops within the
body of a loop stay there, and become functions within the function in their turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from deepx_graph.ir import Builder, Function, Module, Node, Origin, reachable
from deepx_graph.ir.rebuild import rebuild
from deepx_graph.ir.structure import CONSTANT, LOOP_BEGIN, LOOP_END, PHI, PROJ, index_of
from deepx_graph.text.relay.words import unused
from deepx_graph.types import FunctionType, TupleType, is_state


def without_loops(module: Module) -> Module:
    """The module with a function for each loop; itself when there is none."""
    if not any(n.op is LOOP_END for f in module.functions for n in f.nodes):
        return module
    taken = {f.name for f in module.functions}
    done: list[Function] = []
    todo = list(reversed(module.functions))
    while todo:
        function = todo.pop()
        made: list[Function] = []
        done.append(_outlined(function, taken, made.append))
        todo += reversed(made)
    return module.with_functions(done)


def _outlined(function: Function, taken: set[str], give: Callable[[Function], None]) -> Function:
    """The function with its outermost loops outlined; `give` gets what they become."""
    bodies: dict[Node, list[Node]] = {}
    inside: set[Node] = set()
    for end in reversed(function.nodes):
        if end.op is LOOP_END and end not in inside:
            bodies[end] = _body(function, end)
            inside.update(bodies[end])
    if not bodies:
        return function
    b, new = Builder(), dict[Node, Node]()
    for node in function.nodes:
        if node in inside or node.op is LOOP_BEGIN:
            continue
        b.origin = node.origin
        if node in bodies:
            new[node] = _called(b, function, node, bodies[node], new, taken, give)
        elif node.op is PROJ and node.inputs[0] in bodies:
            new[node] = new[node.inputs[0]].inputs[index_of(node)]
        else:
            inputs = tuple(new[i] for i in node.inputs)
            new[node] = node if inputs == node.inputs else b.make(node.op, inputs, node.attrs, node.type)
    return function.with_(results=tuple(new[r] for r in function.results))


def _body(function: Function, end: Node) -> list[Node]:
    """The nodes that an iteration computes, in order: those that the condition and the next values need and that the variables
    change.

    What may fail or not end, and only the loop needs, is among them: before the loop it would be computed without being asked for.
    """
    changed: set[Node] = set()
    stack = [u for u in function.users[end.inputs[0]] if u.op is PHI]
    needed = [n for n in reachable(end.inputs[1:]) if not n.op.total]
    if needed:
        outside = _outside(function, end)
        stack += (n for n in needed if n not in outside)
    while stack:
        node = stack.pop()
        if node not in changed and node is not end:
            changed.add(node)
            stack += function.users[node]
            if node.op is LOOP_END:  # an inner loop: all its variables change, whatever they start as
                stack += function.users[node.inputs[0]]
    return [n for n in reachable(end.inputs[1:]) if n in changed or (n.op is LOOP_BEGIN and n is not end.inputs[0] and (
        any(u in changed for u in function.users[n])))]


def _outside(function: Function, end: Node) -> set[Node]:
    """What is needed otherwise than by the iterations of a loop."""
    seen: set[Node] = set()
    stack = list(function.results)
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack += end.inputs[0].inputs if node is end else node.inputs
    return seen


def _called(b: Builder, function: Function, end: Node, body: list[Node], new: dict[Node, Node], taken: set[str],
            give: Callable[[Function], None]) -> Node:
    """Makes the function of a loop. Returns the tuple of the variables at the end."""
    begin = end.inputs[0]
    assert isinstance(begin.type, TupleType)
    types = begin.type.items
    order = sorted(range(len(types)), key=lambda k: is_state(types[k]))
    own = set(body)
    uses = [*(i for n in body if n.op is not PHI for i in n.inputs), *end.inputs[1:]]
    captured = list(dict.fromkeys(i for i in uses if i not in own and i.op is not CONSTANT and i.op is not LOOP_BEGIN))
    results = tuple(types[k] for k in order)
    signature = FunctionType((*(c.type for c in captured), *results), results)
    name = unused(f"{function.name}.loop", taken)
    give(_function(name, signature, end, body, captured, order))
    kept = b.origin
    b.origin = Origin("loop", kept.spans)
    closure = b.partial((name, signature), *(new[c] for c in captured))
    b.origin = Origin("", kept.spans)
    found = b.call_value(closure, *(new[begin.inputs[k]] for k in order))
    return b.pack(*(found[order.index(k)] for k in range(len(types))))


def _function(name: str, signature: FunctionType, end: Node, body: list[Node], captured: Sequence[Node],
              order: Sequence[int]) -> Function:
    """`(captured, vars) -> if (cond) { again(captured, nexts) } else { vars }`."""
    b, begin = Builder(), end.inputs[0]
    names = [c.name for c in captured]
    phis = {index_of(n): n for n in body if n.op is PHI and n.inputs[0] is begin}
    names += [phis[k].name if k in phis else "" for k in order]
    params = [b.param(k, t, n) for k, (t, n) in enumerate(zip(signature.params, names, strict=True))]
    variables = {k: params[len(captured) + j] for j, k in enumerate(order)}
    new = dict(zip(captured, params, strict=False)) | {phi: variables[k] for k, phi in phis.items()}

    def step(node: Node, inputs: tuple[Node, ...]) -> Node:
        b.origin = node.origin
        return node if node.op is CONSTANT else b.make(node.op, inputs, node.attrs, node.type)

    rebuild((*(i for i in reachable(end.inputs[1:]) if i.op is CONSTANT), *body), new, step)
    b.origin = end.origin
    again = b.call((name, signature), *params[: len(captured)], *(new[end.inputs[2 + k]] for k in order))
    results = b.branch(new[end.inputs[1]], list(again), params[len(captured) :])
    return Function(name, tuple(params), results, public=False, span=end.span)
