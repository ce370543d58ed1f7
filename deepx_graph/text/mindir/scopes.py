"""What the graphs of a model use of each other: who calls whom, what a graph takes from its surroundings, which have effects.

A graph that reads names of others is a closure over them: they become its first parameters. Computed for all graphs at once, to a
fixed point, in time near-linear in the model.
"""

from __future__ import annotations

from collections.abc import Iterator

from deepx_graph.text.mindir.schema import CallMessage, Graph, Model
from deepx_graph.text.mindir.values import is_monad

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
        self.uses = {g.name: dict.fromkeys(r for r in self._read(g) if r in self.graphs) for g in self.graphs.values()}
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
        users: dict[str, list[str]] = {name: [] for name in self.graphs}
        for name, used in self.uses.items():
            for callee in used:
                users[callee].append(name)
        work = list(self.graphs)
        while work:
            callee = work.pop()
            for user in users[callee]:
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
        users: dict[str, list[str]] = {name: [] for name in self.graphs}
        for name, used in self.uses.items():
            for callee in used:
                users[callee].append(name)
        while work:
            for user in users[work.pop()]:
                if user not in found:
                    found.add(user)
                    work.append(user)
        return found


def is_constant(node: CallMessage) -> bool:
    """Whether a node holds a value and computes nothing."""
    return node.op_type == "Constant"


def holds_monad(node: CallMessage) -> bool:
    """Whether a constant is the beginning of an order of effects."""
    return is_constant(node) and is_monad(node.attribute("value"))
