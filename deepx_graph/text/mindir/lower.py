"""From the messages of MindIR to a module: one function for each func graph.

Function values stay symbolic (`Closure`, `Choice`) as long as they are only called: a call of a `Switch` over two graphs is a
branch with a call on each side. Those that travel become `partial` nodes. Effects follow the order of the nodes, on
one state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, InferError, LimitError, ParseError, Place, Source, Span, VerifyError, suggest
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ir.structure import CONSTANT, TUPLE
from deepx_graph.literal import Literal
from deepx_graph.text.common.cursor import whole
from deepx_graph.text.common.options import ReadOptions
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.mindir.control import SPECIAL, Choice, GraphClosure, call
from deepx_graph.text.mindir.rules import RULES, Args
from deepx_graph.text.mindir.schema import CallMessage, Graph, Model
from deepx_graph.text.mindir.scopes import GraphScopes, Signatures, is_constant
from deepx_graph.text.mindir.values import MONAD, Monad, constant, is_monad_info, literal, tensor_type
from deepx_graph.types import ANY, STATE, TupleType, Type, tensor


def place_of(domain: str) -> Place | None:
    """Where the user's program has it: `model.py:42` in a dump, the scope of the layers in a binary file."""
    file, _, line = domain.rpartition(":")
    number = whole(line)
    if file and number is not None:
        return Place(file, number)
    return Place(label=domain) if domain else None


def short(name: str) -> str:
    """A name without the graph that it belongs to and the number that makes it unlike others."""
    parts = [p for p in name.split(":") if p and not p.isdigit()]
    return parts[-1] if parts else name


def names_of(scopes: GraphScopes) -> dict[str, str]:
    """A name for each graph: its own, made of letters, digits and `_`; numbered where two would be alike."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in scopes.graphs:
        plain = "".join(c if c.isalnum() and c.isascii() else "_" for c in name).strip("_") or "graph"
        base, k = plain, 1
        while plain in taken:
            k += 1
            plain = f"{base}_{k}"
        taken.add(plain)
        found[name] = plain
    return found


class ModelLowering:
    """One model being lowered. Raises VerifyError or ParseError at the node that is wrong."""

    def __init__(self, source: Source, model: Model, options: ReadOptions) -> None:
        self.source, self.model, self.options = source, model, options
        count = sum(len(g.nodes) for g in (model.graph, *model.functions) if g is not None)
        if count > options.max_nodes:
            raise LimitError(f"the model has {count} nodes, more than the limit of {options.max_nodes}")
        self.scopes = GraphScopes(model)
        self.signatures = Signatures(self.scopes, self.fail)
        self.warnings = [Diagnostic(text, severity="warning") for text in model.elided]
        self.names = names_of(self.scopes)

    def fail(self, at: int, message: str, expected: str | None = None, hint: str | None = None) -> ParseError:
        return ParseError(Diagnostic(message, Span(self.source, at, at + 1), expected=expected, hint=hint))

    def module(self) -> Module:
        """The module: its entry is `main`."""
        entry = self.model.graph
        assert entry is not None
        functions = [GraphLowering(self, g, g is entry).function() for g in self.scopes.graphs.values()]
        return Module(tuple(functions), self.names[entry.name], source=self.source, format="mindir")


class GraphLowering:
    """One graph being lowered. `env` maps names to nodes, plain values, literals, monads, closures and choices."""

    def __init__(self, whole: ModelLowering, graph: Graph, is_entry: bool) -> None:
        self.whole, self.graph, self.is_entry = whole, graph, is_entry
        self.scopes = whole.scopes
        self.b = Builder()
        self.env: dict[str, Any] = {}
        self.state: Node | None = None

    def function(self) -> Function:
        """The function of the graph. Raises VerifyError or ParseError."""
        try:
            return self._function()
        except InferError as e:
            span = Span(self.whole.source, self.graph.at, self.graph.at + 1)
            raise VerifyError(e.diagnostic(span, f"'{self.graph.name}': ")) from None

    def _function(self) -> Function:
        """The function. Its first parameters are what the graph takes from around it, its last one the state, if it has effects."""
        params = self._parameters()
        self.b.origin = whole = Origin("", (Span(self.whole.source, self.graph.at, self.graph.at + 1),))
        nodes = [self.b.param(k, type, name) for k, (name, type) in enumerate(params)]
        free = () if self.is_entry else tuple(self.scopes.free[self.graph.name])
        own = [i.name for i in self.graph.inputs if not is_monad_info(i)]
        inputs = [w.name for w in self._weight_inputs()]
        self.env |= zip((*free, *own, *inputs), nodes, strict=False)
        self.env |= {i.name: MONAD for i in self.graph.inputs if is_monad_info(i)}
        if self.graph.name in self.scopes.effectful:
            self.state = nodes[-1]
            if self.is_entry:
                self._make_references()
        for node in self.graph.nodes:
            self._node(node)
        self.b.origin = whole
        results = self._results()
        if self.state is not None:
            results.append(self.state)
        name = self.whole.names[self.graph.name]
        return Function(name, tuple(nodes), tuple(results), public=self.is_entry, span=whole.spans[0])

    def _parameters(self) -> list[tuple[str, Type]]:
        signatures = self.whole.signatures
        params: list[tuple[str, Type]] = []
        if not self.is_entry:
            params += [(short(n), signatures.of_name(n)) for n in self.scopes.free[self.graph.name]]
        params += [(short(i.name), signatures.of_input(i)) for i in self.graph.inputs if not is_monad_info(i)]
        params += [(short(w.name), tensor_type(w, w.name)) for w in self._weight_inputs()]
        return [*params, ("state", STATE)] if self.graph.name in self.scopes.effectful else params

    def _weight_inputs(self) -> list[Any]:
        """Weights that are given from outside, where the options ask for it."""
        return self.graph.weights if self.is_entry and self.whole.options.weights == "inputs" else []

    def _make_references(self) -> None:
        for name in sorted(self.scopes.assigned & set(self.scopes.weights)):
            assert self.state is not None
            self.env[name], self.state = self.b.items(self.b(ops.ref_create, self.state, self._weight(name)))

    def _results(self) -> list[Node]:
        if not self.graph.outputs:
            raise self.whole.fail(self.graph.at, f"the graph '{self.graph.name}' has no output")
        found = [self.materialised(self.read(o.name, o.at)) for o in self.graph.outputs]
        if not self.is_entry:
            return [found[0] if len(found) == 1 else self.b.pack(*found)]
        return [leaf for node in found for leaf in self._leaves(node)]

    def _leaves(self, node: Node) -> list[Node]:
        if not isinstance(node.type, TupleType):
            return [node]
        items = node.inputs if node.op is TUPLE else self.b.items(node)
        return [leaf for item in items for leaf in self._leaves(item)]

    # --- values

    def read(self, name: str, at: int) -> Any:
        """The value of a name: a node's, a weight's, a graph's, a constant's that may stand in another graph."""
        if name in self.env:
            return self.env[name]
        if name in self.scopes.graphs:
            return GraphClosure(name, tuple(self.read(f, at) for f in self.scopes.free[name]))
        if name in self.scopes.weights:
            self.env[name] = self._weight(name)
            return self.env[name]
        if name in self.scopes.constants:
            self.env[name] = self._constant(self.scopes.constants[name])
            return self.env[name]
        if self.whole.model.is_dump:
            return self._unknown(name, at)
        hint = suggest(name, self.env)
        raise self.whole.fail(at, f"'{name}' is not defined before it is used, in the graph '{self.graph.name}'", hint=hint)

    def _unknown(self, name: str, at: int) -> Node:
        """A value that a dump names and does not define, for looking at."""
        span = Span(self.whole.source, at, at + 1)
        self.whole.warnings.append(Diagnostic(f"the dump does not say what '{name}' is", span, severity="warning"))
        made = self.env[name] = self.b(ops.opaque, name=short(name), type=tensor(ANY, None))
        return made

    def _weight(self, name: str) -> Node:
        data = self.scopes.weights[name]
        made = literal(data, self.whole.options.max_file_bytes)
        return Node(CONSTANT, (), (made,), made.type, Origin(short(name), (Span(self.whole.source, data.at, data.at + 1),)))

    def materialised(self, value: Any) -> Node:
        """A value as a node; function values become closures that can travel."""
        match value:
            case GraphClosure(graph, args):
                if graph in self.scopes.effectful:
                    raise InferError(f"'{graph}' has effects and is used as a value", expected="a call of it")
                signature = self.whole.signatures.of_graph(graph)
                return self.b.partial((self.whole.names[graph], signature), *map(self.materialised, args))
            case Choice(selector, values):
                return self.b.branch(selector, *([self.materialised(v)] for v in values))[0]
            case Monad():
                raise InferError("a monad is used as a value", expected="a tensor or a function")
        return Args(self.b, "value", (value,), {}).node(0)

    # --- nodes

    def _node(self, node: CallMessage) -> None:
        span = Span(self.whole.source, node.at, node.at + 1, place_of(node.domain))
        if not node.outputs:
            raise self.whole.fail(node.at, "a node has no name", "output: a name")
        self.b.origin = Origin(short(node.outputs[0]), (span,))
        try:
            self.env[node.outputs[0]] = self._value(node)
        except (InferError, VerifyError) as e:
            told = e.diagnostic(span, f"{self.scopes.type_of(node) or 'call'}: ") if isinstance(e, InferError) else e.diagnostics[0]
            if not self.whole.model.is_dump:
                raise VerifyError(told) from None
            self.whole.warnings.append(replace(told, severity="warning", hint="shown, and not run: a dump does not tell all"))
            self.env[node.outputs[0]] = self._shown(node)

    def _shown(self, node: CallMessage) -> Node:
        """A node that a dump does not tell enough of, for looking at."""
        given = [v for v in (self.env.get(n) for n in (self.scopes.callee(node), *node.inputs)) if isinstance(v, Node)]
        name = self.scopes.type_of(node) or "call"
        return self.b(ops.opaque, *given, name=name, type=self.whole.signatures.of_node(node))

    def _value(self, node: CallMessage) -> Any:
        if is_constant(node):
            return self._constant(node)
        inputs = [self.read(name, node.at) for name in node.inputs]
        callee = self.scopes.callee(node)
        if callee:
            return call(self, self.read(callee, node.at), inputs)
        name = self.scopes.type_of(node)
        special, least = SPECIAL.get(name, (None, 0))
        if special is not None:
            if len(inputs) < least:
                raise InferError(f"{len(inputs)} inputs", expected=f"at least {least}")
            return special(self, inputs)
        return self._primitive(node, name, inputs)

    def _constant(self, node: CallMessage) -> Any:
        """What a Constant node holds. Raises VerifyError at the node."""
        try:
            attribute = node.attribute("value")
            if attribute is None:
                raise InferError("a constant without a value")
            return constant(attribute, self.whole.options.max_file_bytes)
        except InferError as e:
            raise VerifyError(e.diagnostic(Span(self.whole.source, node.at, node.at + 1), "Constant: ")) from None

    def _primitive(self, node: CallMessage, name: str, inputs: Sequence[Any]) -> Node:
        plain = [self.materialised(v) if isinstance(v, (GraphClosure, Choice)) else v for v in inputs if not isinstance(v, Monad)]
        primitive = self.scopes.primitives.get(node.op_type[5:])
        attrs = {a.name: constant(a, 1 << 20) for a in primitive.attributes if a.type not in (0, 18)} if primitive else {}
        rule = RULES.get(name)
        if rule is not None:
            try:
                return rule(Args(self.b, name, plain, attrs))
            except Unsupported:
                pass
        given = [Args(self.b, name, (v,), {}).node(0) for v in plain if isinstance(v, (Node, Literal, bool, int, float))]
        text = ", ".join(f"{k} = {v!r}" for k, v in sorted(attrs.items()))
        return self.b(ops.opaque, *given, name=name, attributes=text, type=self.whole.signatures.of_node(node))
