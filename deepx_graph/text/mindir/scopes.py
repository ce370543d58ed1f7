"""What the graphs of a model use of each other: who calls whom, what a graph takes from its surroundings, which have effects.

A graph that reads names of others is a closure over them: they become its first parameters. Computed for all graphs at once, to a
fixed point, in time near-linear in the model. The types of graphs and names are those that the model declares: what a call needs to
know of a graph that is not lowered yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from deepx_graph.errors import InferError, ParseError
from deepx_graph.text.mindir.schema import Attribute, CallMessage, Graph, Model, ValueInfo
from deepx_graph.text.mindir.values import (
    GRAPH_CLOSURE,
    LIST,
    PARTIAL_CLOSURE,
    TUPLE,
    UNION,
    is_monad_info,
    plain_type,
    tensor_type,
)
from deepx_graph.types import ANY, STATE, FunctionType, RefType, TupleType, Type, tensor

EFFECTS = frozenset(("Assign", "AssignAdd", "AssignSub", "Print"))
"""Primitives that change something beside their result."""

REFERENCE = "REF::"


class GraphScopes:
    """Facts about the graphs of a model, by their names."""

    def __init__(self, model: Model) -> None:
        assert model.graph is not None
        self.graphs: dict[str, Graph] = {g.name: g for g in (model.graph, *model.functions)}
        self.primitives = {p.name: p for p in model.primitives}
        self.weights = {w.name: w for g in self.graphs.values() for w in g.weights}
        self.nodes = {o: n for g in self.graphs.values() for n in g.nodes for o in n.outputs}
        self.constants = {name: n for name, n in self.nodes.items() if is_constant(n)}
        """Values written once and read by name in any graph, whichever they stand in."""
        self.assigned = {n.inputs[0] for n in self.nodes.values() if self.type_of(n) in EFFECTS - {"Print"} and n.inputs}
        """Weights that change."""
        self.own = {g.name: self._own(g) for g in self.graphs.values()}
        self.users: dict[str, list[str]] = {name: [] for name in self.graphs}
        for g in self.graphs.values():
            for callee in dict.fromkeys(r for r in self._read(g) if r in self.graphs):
                self.users[callee].append(g.name)
        self.free = self._free()
        self.effectful = self._effectful()

    def type_of(self, node: CallMessage) -> str:
        """The primitive of a node; empty where it calls a graph or a value."""
        if not node.op_type.startswith(REFERENCE):
            return node.op_type
        found = self.primitives.get(node.op_type[len(REFERENCE) :])
        return found.op_type or found.name if found is not None else ""

    def callee(self, node: CallMessage) -> str:
        """The graph or value that a node calls; empty where it is a primitive."""
        name = node.op_type[len(REFERENCE) :]
        return "" if not node.op_type.startswith(REFERENCE) or name in self.primitives else name

    def _own(self, graph: Graph) -> set[str]:
        return {o for n in graph.nodes for o in n.outputs} | {i.name for i in graph.inputs}

    def _read(self, graph: Graph) -> Iterator[str]:
        for node in graph.nodes:
            yield from node.inputs
            if callee := self.callee(node):
                yield callee
        for output in graph.outputs:
            yield output.name

    def _free(self) -> dict[str, dict[str, None]]:
        """The names that each graph takes from around it, in order; those of the graphs that it uses among them."""
        fixed = {w for w in self.weights if w not in self.assigned} | set(self.constants)
        known = {n for own in self.own.values() for n in own} | set(self.weights)
        free: dict[str, dict[str, None]] = {
            g.name: {r: None for r in self._read(g) if r in known and r not in self.own[g.name] and r not in fixed}
            for g in self.graphs.values()
        }
        work = list(self.graphs)
        while work:
            callee = work.pop()
            for user in self.users[callee]:
                new = [r for r in free[callee] if r not in self.own[user] and r not in free[user]]
                if new:
                    free[user].update(dict.fromkeys(new))
                    work.append(user)
        return free

    def _has_effect(self, node: CallMessage) -> bool:
        """Whether a node changes something, or reads what changes."""
        kind = self.type_of(node)
        return kind in EFFECTS or (kind == "Load" and bool(node.inputs) and node.inputs[0] in self.assigned)

    def _effectful(self) -> set[str]:
        found = {g.name for g in self.graphs.values() if any(map(self._has_effect, g.nodes))}
        work = list(found)
        while work:
            for user in self.users[work.pop()]:
                if user not in found:
                    found.add(user)
                    work.append(user)
        return found


def is_constant(node: CallMessage) -> bool:
    """Whether a node holds a value and computes nothing."""
    return node.op_type == "Constant"


# --- types ----------------------------------------------------------------------------------------------------------

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
        return self._told(lambda: self._declared(info), info.at, info.name)

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
        declared = self._declared(info)
        if declared is not None:
            return declared
        known = any(info.name in names for names in (self._inputs, self.scopes.weights, self.scopes.nodes))
        return self.of_name(info.name) if known else tensor(ANY, None)

    def _declared(self, info: ValueInfo) -> Type | None:
        return tensor_type(info.tensors[0], info.name) if info.tensors else self._type(info.info, info.name)

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
