"""Calls, control, function values and effects of func graphs: what the lowering of a graph does that no rule of a primitive can.

`SPECIAL` has the functions by their primitives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deepx_graph import ops
from deepx_graph.errors import InferError, an
from deepx_graph.ir import Node
from deepx_graph.literal import Literal
from deepx_graph.text.mindir.rules import RULES, Args
from deepx_graph.text.mindir.values import MONAD, Monad
from deepx_graph.types import RefType, TupleType

if TYPE_CHECKING:
    from deepx_graph.text.mindir.lower import GraphLowering


Special = Callable[["GraphLowering", Sequence[Any]], Any]
"""What a primitive gives in the graph that is being lowered, for the inputs of its call."""


@dataclass(frozen=True)
class GraphClosure:
    """A graph with its leading arguments given."""

    graph: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Choice:
    """The function value that a switch picks: the first when the condition holds; by number where it is an integer."""

    selector: Node
    values: tuple[Any, ...]


# --- calls and control ---------------------------------------------------------------------------------------------


def call(g: GraphLowering, function: Any, args: Sequence[Any]) -> Any:
    """The result of a function value, called."""
    match function:
        case GraphClosure(graph, given):
            return _call_graph(g, graph, [*given, *(a for a in args if not isinstance(a, Monad))])
        case Choice(selector, values):
            return _call_choice(g, selector, values, args)
        case Node():
            plain = [g.materialised(a) for a in args if not isinstance(a, Monad)]
            return g.b.call_value(function, *plain)[0]
    raise InferError("what is called is no function")


def _call_graph(g: GraphLowering, graph: str, args: Sequence[Any]) -> Node:
    signature = g.whole.signatures.of_graph(graph)
    if not g.scopes.graphs[graph].outputs:
        raise InferError(f"the graph '{graph}' has no output")
    nodes = [g.materialised(a) for a in args]
    if graph in g.scopes.effectful:
        assert g.state is not None
        value, g.state = g.b.call((g.whole.names[graph], signature), *nodes, g.state)
        return value
    return g.b.call((g.whole.names[graph], signature), *nodes)[0]


def _call_choice(g: GraphLowering, selector: Node, values: Sequence[Any], args: Sequence[Any]) -> Node:
    before, sides = g.state, []
    for value in values:
        g.state = before
        made = g.materialised(call(g, value, args))
        sides.append([made] if g.state is None else [made, g.state])
    results = g.b.branch(selector, *sides)
    if before is not None:
        g.state = results[1]
    return results[0]


def switch(g: GraphLowering, inputs: Sequence[Any]) -> Any:
    """`Switch(condition, when true, when false)`: a function value, or a value."""
    condition, *values = inputs
    selector = g.materialised(condition)
    type = selector.type
    if isinstance(selector.type, TupleType) or not values:
        raise InferError(f"a switch on {an(type)}", expected="a bool and two values")
    selector = _scalar(g, selector)
    if None in values:  # a side that the compiler found dead
        return next((v for v in values if v is not None), None)
    if all(isinstance(v, (GraphClosure, Choice)) for v in values):
        return Choice(selector, tuple(values))
    return g.b.branch(selector, *([g.materialised(v)] for v in values))[0]


def _scalar(g: GraphLowering, selector: Node) -> Node:
    """A tensor of one element as a bool, or an integer, without axes."""
    type = selector.type
    dims = getattr(type, "dims", None)
    if dims and all(d == 1 for d in dims):
        selector = g.b(ops.reshape, selector, shape=())
    dtype = getattr(selector.type, "dtype", None)
    if dtype is not None and dtype.is_float:
        return g.b(ops.compare, selector, g.b.like(0, selector), direction="NE")
    return selector


def switch_layer(g: GraphLowering, inputs: Sequence[Any]) -> Any:
    """`SwitchLayer(index, functions)`: the function of that number."""
    index, functions = inputs[:2]
    values = functions if isinstance(functions, tuple) else ()
    if not values:
        raise InferError("the functions of a SwitchLayer are computed", expected="a tuple of graphs")
    return Choice(_scalar(g, g.materialised(index)), tuple(values))


def partial(g: GraphLowering, inputs: Sequence[Any]) -> Any:
    """`Partial(function, arguments)`."""
    function, *args = inputs
    args = [a for a in args if not isinstance(a, Monad)]
    if isinstance(function, GraphClosure):
        return GraphClosure(function.graph, (*function.args, *args))
    if isinstance(function, Choice):
        return Choice(function.selector, tuple(partial(g, [v, *args]) for v in function.values))
    raise InferError("Partial of a computed function", expected="a graph")


def make_tuple(g: GraphLowering, inputs: Sequence[Any]) -> Any:
    """A tuple; one of functions, or of plain values alone, stays as it is."""
    if inputs and not any(isinstance(v, Node) for v in inputs):
        return tuple(inputs)
    return g.b.pack(*map(g.materialised, inputs))


def item(g: GraphLowering, inputs: Sequence[Any]) -> Any:
    """`TupleGetItem(tuple, index)`."""
    whole, index = inputs[:2]
    if isinstance(index, Literal):
        index = index.bounded().tolist()
    if isinstance(whole, tuple) and isinstance(index, int) and -len(whole) <= index < len(whole):
        return whole[index]
    return RULES["TupleGetItem"](Args(g.b, "TupleGetItem", (g.materialised(whole), index), {}))


# --- effects ------------------------------------------------------------------------------------------------------


def load(g: GraphLowering, inputs: Sequence[Any]) -> Any:
    """`Load(parameter, monad)`: its value now."""
    value = inputs[0]
    if not isinstance(value, Node) or not isinstance(value.type, RefType):
        return value
    assert g.state is not None
    made, g.state = g.b.items(g.b(ops.ref_read, g.state, value))
    return made


def assign(g: GraphLowering, inputs: Sequence[Any]) -> Any:
    """`Assign(parameter, value)`: gives the value."""
    target, value = inputs[0], g.materialised(inputs[1])
    if not isinstance(target, Node) or not isinstance(target.type, RefType):
        raise InferError("what is assigned to is no parameter")
    assert g.state is not None
    g.state = g.b(ops.ref_write, g.state, target, value)
    return value


def _assign_with(primitive: str) -> Special:
    """`AssignAdd(parameter, value)` and its like: what the parameter holds, joined with the value."""

    def assign_joined(g: GraphLowering, inputs: Sequence[Any]) -> Any:
        args = Args(g.b, primitive, (load(g, inputs), g.materialised(inputs[1])), {})
        return assign(g, [inputs[0], RULES[primitive](args)])

    return assign_joined


def print_(g: GraphLowering, inputs: Sequence[Any]) -> Any:
    """`Print(values)`: puts out the tensors among them."""
    for value in inputs:
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, (Node, Literal)):
                assert g.state is not None
                g.state = g.b(ops.print_, g.state, g.materialised(part), format="")
    return MONAD


SPECIAL: dict[str, tuple[Special, int]] = {
    "Switch": (switch, 2), "switch": (switch, 2), "SwitchLayer": (switch_layer, 2), "Partial": (partial, 1),
    "MakeTuple": (make_tuple, 0), "TupleGetItem": (item, 2), "Load": (load, 1), "Depend": (lambda g, inputs: inputs[0], 1),
    "UpdateState": (lambda g, inputs: MONAD, 0), "Assign": (assign, 2), "AssignAdd": (_assign_with("Add"), 2),
    "AssignSub": (_assign_with("Sub"), 2), "Print": (print_, 0),
}  # fmt: skip
"""Primitives of control, functions and effects, with the least number of their inputs; effects are in the order of the nodes."""
