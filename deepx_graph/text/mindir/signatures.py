"""The types of graphs and names, as the model declares them: what a call needs to know of a graph that is not lowered yet."""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph.errors import InferError, ParseError
from deepx_graph.text.mindir.schema import Attribute, CallMessage, ValueInfo
from deepx_graph.text.mindir.scopes import GraphScopes
from deepx_graph.text.mindir.values import (
    GRAPH_CLOSURE,
    LIST,
    PARTIAL_CLOSURE,
    TUPLE,
    UNION,
    info_type,
    is_monad_info,
    plain_type,
    tensor_type,
)
from deepx_graph.types import ANY, STATE, FunctionType, RefType, TupleType, Type, tensor

MAX_DEPTH = 100
"""How deeply functions may take and give functions."""

MAX_ITEMS = 10_000
"""How many items a tuple of function values may have."""


class Signatures:
    """Types by name, each worked out once. Raises what `fail` makes where a type is missing."""

    def __init__(self, scopes: GraphScopes, fail: Callable[..., ParseError]) -> None:
        self.scopes, self.fail = scopes, fail
        self._graphs: dict[str, FunctionType] = {}
        self._inputs: dict[str, ValueInfo] = {i.name: i for g in scopes.graphs.values() for i in g.inputs}
        self._known: dict[tuple[str, int], FunctionType] = {}
        self._depth = 0

    def of_graph(self, name: str) -> FunctionType:
        """The type of a graph's function: what it takes from around it, its own parameters, the state if it has effects."""
        if name not in self._graphs:
            params = [self.of_name(n) for n in self.scopes.free[name]]
            whole = self._remaining(name, len(params))
            state = (STATE,) if name in self.scopes.effectful else ()
            self._graphs[name] = FunctionType((*params, *whole.params, *state), (*whole.results, *state))
        return self._graphs[name]

    def _remaining(self, name: str, given: int) -> FunctionType:
        """The type of a graph once so many leading arguments are given; their types are not looked at: they may be of this type."""
        if (name, given) in self._known:
            return self._known[name, given]
        graph, free = self.scopes.graphs[name], list(self.scopes.free[name])
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.fail(graph.at, f"functions of functions nest more than {MAX_DEPTH} deep, in '{name}'")
        inputs = [i for i in graph.inputs if not is_monad_info(i)]
        params = [self.of_name(n) for n in free[given:]] + [self.of_input(i) for i in inputs[max(0, given - len(free)) :]]
        results = [self._of_output(o) for o in graph.outputs[:1]]
        self._depth -= 1
        made = self._known[name, given] = FunctionType(tuple(params), tuple(results))
        return made

    def of_input(self, info: ValueInfo) -> Type:
        """The type of a parameter."""
        if info.tensors:
            return self._told(lambda: info_type(info), info.at, info.name)
        return self._told(lambda: self._type(info.info, info.name), info.at, info.name)

    def of_name(self, name: str) -> Type:
        """The type of a parameter, weight or node."""
        if name in self._inputs:
            return self.of_input(self._inputs[name])
        if name in self.scopes.weights:
            type = tensor_type(self.scopes.weights[name], name)
            return RefType(type) if name in self.scopes.assigned else type
        return self.of_node(self.scopes.nodes[name])

    def of_node(self, node: CallMessage) -> Type:
        """The type that a node declares; an unknown tensor where it declares none."""
        attribute = node.attribute("shape") or node.attribute("value")
        return self._told(lambda: self._type(attribute, node.name), node.at, node.name)

    def _told(self, find: Callable[[], Type | None], at: int, name: str) -> Type:
        """What `find` gives, an unknown tensor for None; its complaint with the place."""
        try:
            found = find()
        except InferError as e:
            raise self.fail(at, f"'{name}': {e.message}") from None
        return found if found is not None else tensor(ANY, None)

    def _of_output(self, info: ValueInfo) -> Type:
        declared = info_type(info) or self._type(info.info, info.name)
        if declared is not None:
            return declared
        return self.of_name(info.name) if self._knows(info.name) else tensor(ANY, None)

    def _knows(self, name: str) -> bool:
        return name in self._inputs or name in self.scopes.weights or name in self.scopes.nodes

    def _type(self, attribute: Attribute | None, name: str) -> Type | None:
        """The type that an attribute describes, function values and tuples with such in them too; None where it does not say."""
        if attribute is None:
            return None
        if attribute.type in (TUPLE, LIST) and len(attribute.values) <= MAX_ITEMS:
            items = [self._type(v, f"{name}_{k}") for k, v in enumerate(attribute.values)]
            return TupleType(tuple(i for i in items if i is not None)) if None not in items else None
        return plain_type(attribute, name) or self._closure(attribute)

    def _closure(self, attribute: Attribute) -> Type | None:
        """The type of a function value; None where it does not say which."""
        name = attribute.s or (attribute.strings or [""])[0]
        if attribute.type == GRAPH_CLOSURE and name in self.scopes.graphs:
            return self._remaining(name, len(self.scopes.free[name]))
        if attribute.type == PARTIAL_CLOSURE and name in self.scopes.nodes:
            node = self.scopes.nodes[name]
            if node.inputs and node.inputs[0] in self.scopes.graphs:
                graph = node.inputs[0]
                return self._remaining(graph, len(self.scopes.free[graph]) + len(node.inputs) - 1)
        if attribute.type == UNION and attribute.values:
            return self._closure(attribute.values[0])
        return None
