"""Functions built anew: nodes over what their operands have become.

Nodes are frozen, so whatever changes a function makes its nodes again. `rebuild` goes through nodes in their order, `on_demand`
makes what is wanted and what that needs; a step says what a node becomes. What stays the same is shared between before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from deepx_graph.ir.builder import Builder, fresh_loop
from deepx_graph.ir.function import Function
from deepx_graph.ir.node import Node, Origin
from deepx_graph.ir.structure import LOOP_BEGIN, PARAM, PROJ, TUPLE, index_of

Step = Callable[[Node, tuple[Node, ...]], Node]
"""What a node becomes, given what its inputs have become."""

K = TypeVar("K")
"""What is made on demand: a node, or a node and where it is wanted."""


# --- steps


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The node over other inputs of the same types; itself when they are its own."""
    return node if inputs == node.inputs else node.over(inputs)


def new_item(node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """The item that a `proj` takes of what has become a tuple; None for any other node."""
    is_item = node.op is PROJ and inputs[0].op is TUPLE and node.inputs[0].op is not TUPLE
    return inputs[0].inputs[index_of(node)] if is_item else None


def copied(node: Node, inputs: tuple[Node, ...], origin: Origin | None = None) -> Node:
    """A new node over other inputs of the same types; the copy of a loop is a loop of its own."""
    if node.op is LOOP_BEGIN:
        return Node(node.op, inputs, (fresh_loop(),), node.type, origin or node.origin)
    return node.over(inputs, origin)


def made_by(b: Builder) -> Step:
    """The operation as the builder makes it, with the builder's origin."""
    return lambda node, inputs: b.make(node.op, inputs, node.attrs, node.type)


# --- many nodes


def rebuild(nodes: Iterable[Node], new: dict[Node, Node], step: Step = with_inputs) -> dict[Node, Node]:
    """Adds to `new`, and returns, what each of the nodes becomes; they come after their operands, and those that it has stay so."""
    for node in nodes:
        if node not in new:
            new[node] = step(node, tuple([new[i] for i in node.inputs]))
    return new


def rebuilt(function: Function, step: Step) -> Function:
    """The function with each node made anew by the step; itself when that changes nothing."""
    return replaced(function, rebuild(function.nodes, {}, step))


def inlined(body: Function, inputs: Sequence[Node], step: Step = with_inputs) -> list[Node]:
    """The results of a body over these inputs: a fusion opened, a call taken in."""
    new = rebuild(body.nodes, dict(zip(body.params, inputs, strict=True)), step)
    return [new[r] for r in body.results]


def opened(function: Function, inside: Callable[[Node], Function | None], step: Step = with_inputs) -> Function:
    """The function with nodes as the operations of the functions that `inside` gives for them; `step` makes all other nodes.

    Two nodes may be of one function: the loops of each are loops of their own."""

    def each(node: Node, inputs: tuple[Node, ...]) -> Node:
        if node.op is PARAM:
            return node
        item, body = new_item(node, inputs), inside(node)
        if item is not None or body is None:
            return item or step(node, inputs)
        results = inlined(body, inputs, lambda n, xs: copied(n, xs) if n.op is LOOP_BEGIN else step(n, xs))
        return results[0] if len(results) == 1 else Builder().pack(*results)

    return rebuilt(function, each)


def on_demand(wanted: Iterable[K], made: dict[K, Node], needs: Callable[[K], Sequence[K]],
              make: Callable[[K, tuple[Node, ...]], Node]) -> list[Node]:
    """The wanted nodes, as they stand in `made`; those missing there are made, given what has become of what they need."""
    wanted = list(wanted)
    stack = list(wanted)
    while stack:
        key = stack.pop()
        if key in made:
            continue
        needed = needs(key)
        missing = [k for k in needed if k not in made]
        if missing:
            stack += (key, *missing)
        else:
            made[key] = make(key, tuple([made[k] for k in needed]))
    return [made[k] for k in wanted]


# --- functions


def replaced(function: Function, new: dict[Node, Node]) -> Function:
    """The function of what its parameters and results have become, under their names; itself when they are what they were.

    A parameter that has become a value of another kind stays where it is; nothing reads it any more.
    """
    after = with_results(function, tuple([new[r] for r in function.results]))
    found = [new.get(p, p) for p in function.params]
    params = tuple([n if n.op is PARAM else p for n, p in zip(found, function.params, strict=True)])
    return after if params == function.params else after.with_(params=params)


def with_results(function: Function, results: tuple[Node, ...]) -> Function:
    """The function with other results under the same names; itself when they are the same nodes."""
    if all(a is b for a, b in zip(results, function.results, strict=True)):
        return function
    names = tuple(function.result_name(k) for k in range(len(results)))
    return function.with_(results=results, result_names=names)


def alone(node: Node) -> Function:
    """A function of just that node."""
    b = Builder()
    params = tuple(b.param(k, i.type) for k, i in enumerate(node.inputs))
    return Function(node.op.name, params, (Node(node.op, params, node.attrs, node.type),))
