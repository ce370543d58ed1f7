"""From the messages of MindIR to a module: one function for each func graph.

Function values stay symbolic (`Closure`, `Choice`) as long as they are only called: a call of a `Switch` over two graphs is a
branch with a call on each side. Those that travel become `partial` nodes. Effects follow the order of the nodes, on
one state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from deepx_graph import ops
from deepx_graph.errors import Diagnostic, InferError, LimitError, ParseError, Place, Source, Span, VerifyError, suggest
from deepx_graph.ir import Builder, Function, Module, Node, Origin
from deepx_graph.ir.structure import CONSTANT, TUPLE
from deepx_graph.literal import Literal
from deepx_graph.text.mindir.rules import RULES, Args
from deepx_graph.text.mindir.schema import Call, Graph, Model
from deepx_graph.text.mindir.scopes import Scopes, holds_monad, is_constant
from deepx_graph.text.mindir.signatures import Signatures
from deepx_graph.text.mindir.values import MONAD, Monad, constant, is_monad_info, literal, tensor_type
from deepx_graph.text.options import ReadOptions
from deepx_graph.text.relay.context import Unsupported
from deepx_graph.types import STATE, RefType, TupleType, Type


@dataclass(frozen=True)
class Closure:
    """A graph with its leading arguments given."""

    graph: str
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Choice:
    """The function value that a switch picks: the first when the condition holds; by number where it is an integer."""

    selector: Node
    values: tuple[Any, ...]


class Lowering:
    """One model being lowered. Raises VerifyError or ParseError at the node that is wrong."""

    def __init__(self, source: Source, model: Model, options: ReadOptions) -> None:
        self.source, self.model, self.options = source, model, options
        count = sum(len(g.nodes) for g in (model.graph, *model.functions) if g is not None)
        if count > options.max_nodes:
            raise LimitError(f"the model has {count} nodes, more than the limit of {options.max_nodes}")
        self.scopes = Scopes(model)
        self.signatures = Signatures(self.scopes, self.fail)
        self.warnings = [Diagnostic(text, severity="warning") for text in model.elided]
        self.names = _names(self.scopes)

    def fail(self, at: int, message: str, expected: str | None = None, hint: str | None = None) -> ParseError:
        return ParseError(Diagnostic(message, Span(self.source, at, at + 1), expected=expected, hint=hint))

    def module(self) -> Module:
        """The module: its entry is `main`."""
        entry = self.model.graph
        assert entry is not None
        functions = [_GraphLowering(self, g, g is entry).function() for g in self.scopes.graphs.values()]
        return Module(tuple(functions), self.names[entry.name], source=self.source, format="mindir")


class _GraphLowering:
    """One graph being lowered. `env` maps names to nodes, plain values, literals, monads, closures and choices."""

    def __init__(self, whole: Lowering, graph: Graph, is_entry: bool) -> None:
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
        results = self._results()
        if self.state is not None:
            results.append(self.state)
        name = self.whole.names[self.graph.name]
        span = Span(self.whole.source, self.graph.at, self.graph.at + 1)
        return Function(name, tuple(nodes), tuple(results), public=self.is_entry, span=span)

    def _parameters(self) -> list[tuple[str, Type]]:
        signatures = self.whole.signatures
        params: list[tuple[str, Type]] = []
        if not self.is_entry:
            params += [(_short(n), signatures.of_name(n)) for n in self.scopes.free[self.graph.name]]
        params += [(_short(i.name), signatures.of_input(i)) for i in self.graph.inputs if not is_monad_info(i)]
        params += [(_short(w.name), tensor_type(w, w.name)) for w in self._weight_inputs()]
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
        """The value of a name: a node's, a weight's, a graph's."""
        if name in self.env:
            return self.env[name]
        if name in self.scopes.graphs:
            return Closure(name, tuple(self.read(f, at) for f in self.scopes.free[name]))
        if name in self.scopes.weights:
            self.env[name] = self._weight(name)
            return self.env[name]
        hint = suggest(name, self.env)
        raise self.whole.fail(at, f"'{name}' is not defined before it is used, in the graph '{self.graph.name}'", hint=hint)

    def _weight(self, name: str) -> Node:
        data = self.scopes.weights[name]
        made = literal(data, self.whole.options.max_file_bytes)
        return Node(CONSTANT, (), (made,), made.type, Origin(_short(name), (Span(self.whole.source, data.at, data.at + 1),)))

    def materialised(self, value: Any) -> Node:
        """A value as a node; function values become closures that can travel."""
        match value:
            case Closure(graph, args):
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

    def _node(self, node: Call) -> None:
        span = Span(self.whole.source, node.at, node.at + 1, _place(node.domain))
        if not node.outputs:
            raise self.whole.fail(node.at, "a node has no name", "output: a name")
        self.b.origin = Origin(_short(node.outputs[0]), (span,))
        try:
            self.env[node.outputs[0]] = self._value(node)
        except (InferError, VerifyError) as e:
            told = e.diagnostic(span, f"{self.scopes.type_of(node) or 'call'}: ") if isinstance(e, InferError) else e.diagnostics[0]
            if not self.whole.model.is_dump:
                raise VerifyError(told) from None
            self.whole.warnings.append(replace(told, severity="warning", hint="shown, and not run: a dump does not tell all"))
            self.env[node.outputs[0]] = self._shown(node)

    def _shown(self, node: Call) -> Node:
        """A node that a dump does not tell enough of, for looking at."""
        given = [v for v in (self.env.get(n) for n in node.inputs) if isinstance(v, Node)]
        name = self.scopes.type_of(node) or "call"
        return self.b(ops.opaque, *given, name=name, type=self.whole.signatures.of_node(node))

    def _value(self, node: Call) -> Any:
        if is_constant(node):
            attribute = node.attribute("value")
            if attribute is None:
                raise InferError("a constant without a value")
            return MONAD if holds_monad(node) else constant(attribute, self.whole.options.max_file_bytes)
        inputs = [self.read(name, node.at) for name in node.inputs]
        callee = self.scopes.callee(node)
        if callee:
            return self.call(self.read(callee, node.at), inputs)
        name = self.scopes.type_of(node)
        special, least = _SPECIAL.get(name, (None, 0))
        if special is not None:
            if len(inputs) < least:
                raise InferError(f"{len(inputs)} inputs", expected=f"at least {least}")
            return special(self, inputs)
        return self._primitive(node, name, inputs)

    def _primitive(self, node: Call, name: str, inputs: Sequence[Any]) -> Node:
        plain = [self.materialised(v) if isinstance(v, (Closure, Choice)) else v for v in inputs if not isinstance(v, Monad)]
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

    # --- calls and control

    def call(self, function: Any, args: Sequence[Any]) -> Any:
        """The result of a function value, called."""
        match function:
            case Closure(graph, given):
                return self._call_graph(graph, [*given, *(a for a in args if not isinstance(a, Monad))])
            case Choice(selector, values):
                return self._call_choice(selector, values, args)
            case Node():
                plain = [self.materialised(a) for a in args if not isinstance(a, Monad)]
                return self.b.call_value(function, *plain)[0]
        raise InferError("what is called is no function")

    def _call_graph(self, graph: str, args: Sequence[Any]) -> Node:
        signature = self.whole.signatures.of_graph(graph)
        if not self.scopes.graphs[graph].outputs:
            raise InferError(f"the graph '{graph}' has no output")
        nodes = [self.materialised(a) for a in args]
        if graph in self.scopes.effectful:
            assert self.state is not None
            value, self.state = self.b.call((self.whole.names[graph], signature), *nodes, self.state)
            return value
        return self.b.call((self.whole.names[graph], signature), *nodes)[0]

    def _call_choice(self, selector: Node, values: Sequence[Any], args: Sequence[Any]) -> Node:
        before, sides = self.state, []
        for value in values:
            self.state = before
            made = self.materialised(self.call(value, args))
            sides.append([made] if self.state is None else [made, self.state])
        results = self.b.branch(selector, *sides)
        if before is not None:
            self.state = results[1]
        return results[0]

    def switch(self, inputs: Sequence[Any]) -> Any:
        """`Switch(condition, when true, when false)`: a function value, or a value."""
        condition, *values = inputs
        selector = self.materialised(condition)
        type = selector.type
        if isinstance(selector.type, TupleType) or not values:
            raise InferError(f"a switch on a {type}", expected="a bool and two values")
        selector = self._scalar(selector)
        if None in values:  # a side that the compiler found dead
            return next((v for v in values if v is not None), None)
        if all(isinstance(v, (Closure, Choice)) for v in values):
            return Choice(selector, tuple(values))
        return self.b.branch(selector, *([self.materialised(v)] for v in values))[0]

    def _scalar(self, selector: Node) -> Node:
        """A tensor of one element as a bool, or an integer, without axes."""
        type = selector.type
        dims = getattr(type, "dims", None)
        if dims and all(d == 1 for d in dims):
            selector = self.b(ops.reshape, selector, shape=())
        dtype = getattr(selector.type, "dtype", None)
        if dtype is not None and dtype.is_float:
            return self.b(ops.compare, selector, self.b.like(0, selector), direction="NE")
        return selector

    def switch_layer(self, inputs: Sequence[Any]) -> Any:
        """`SwitchLayer(index, functions)`: the function of that number."""
        index, functions = inputs[:2]
        values = functions if isinstance(functions, tuple) else ()
        if not values:
            raise InferError("the functions of a SwitchLayer are computed", expected="a tuple of graphs")
        return Choice(self._scalar(self.materialised(index)), tuple(values))

    def partial(self, inputs: Sequence[Any]) -> Any:
        """`Partial(function, arguments)`."""
        function, *args = inputs
        args = [a for a in args if not isinstance(a, Monad)]
        if isinstance(function, Closure):
            return Closure(function.graph, (*function.args, *args))
        if isinstance(function, Choice):
            return Choice(function.selector, tuple(self.partial([v, *args]) for v in function.values))
        raise InferError("Partial of a computed function", expected="a graph")

    def make_tuple(self, inputs: Sequence[Any]) -> Any:
        """A tuple; one of functions, or of plain values alone, stays as it is."""
        if inputs and not any(isinstance(v, Node) for v in inputs):
            return tuple(inputs)
        return self.b.pack(*map(self.materialised, inputs))

    def item(self, inputs: Sequence[Any]) -> Any:
        """`TupleGetItem(tuple, index)`."""
        whole, index = inputs[:2]
        if isinstance(index, Literal):
            index = int(index.array)
        if isinstance(whole, tuple) and isinstance(index, int) and -len(whole) <= index < len(whole):
            return whole[index]
        return RULES["TupleGetItem"](Args(self.b, "TupleGetItem", (self.materialised(whole), index), {}))

    # --- effects

    def load(self, inputs: Sequence[Any]) -> Any:
        """`Load(parameter, monad)`: its value now."""
        value = inputs[0]
        if not isinstance(value, Node) or not isinstance(value.type, RefType):
            return value
        assert self.state is not None
        made, self.state = self.b.items(self.b(ops.ref_read, self.state, value))
        return made

    def depend(self, inputs: Sequence[Any]) -> Any:
        """`Depend(value, what has to come before)`: the value; the order is that of the state."""
        return inputs[0]

    def update_state(self, inputs: Sequence[Any]) -> Any:
        return MONAD

    def assign(self, inputs: Sequence[Any]) -> Any:
        """`Assign(parameter, value)`: gives the value."""
        target, value = inputs[0], self.materialised(inputs[1])
        if not isinstance(target, Node) or not isinstance(target.type, RefType):
            raise InferError("what is assigned to is no parameter")
        assert self.state is not None
        self.state = self.b(ops.ref_write, self.state, target, value)
        return value

    def assign_add(self, inputs: Sequence[Any]) -> Any:
        return self._assign_with("Add", inputs)

    def assign_sub(self, inputs: Sequence[Any]) -> Any:
        return self._assign_with("Sub", inputs)

    def _assign_with(self, primitive: str, inputs: Sequence[Any]) -> Any:
        """What the parameter holds, joined with the value."""
        args = Args(self.b, primitive, (self.load(inputs), self.materialised(inputs[1])), {})
        return self.assign([inputs[0], RULES[primitive](args)])

    def print(self, inputs: Sequence[Any]) -> Any:
        """`Print(values)`: puts out the tensors among them."""
        for value in inputs:
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, (Node, Literal)):
                    assert self.state is not None
                    self.state = self.b(ops.print_, self.state, self.materialised(part), format="")
        return MONAD


_SPECIAL = {
    "Switch": (_GraphLowering.switch, 2), "switch": (_GraphLowering.switch, 2), "SwitchLayer": (_GraphLowering.switch_layer, 2),
    "Partial": (_GraphLowering.partial, 1), "MakeTuple": (_GraphLowering.make_tuple, 0), "TupleGetItem": (_GraphLowering.item, 2),
    "Load": (_GraphLowering.load, 1), "Depend": (_GraphLowering.depend, 1), "UpdateState": (_GraphLowering.update_state, 0),
    "Assign": (_GraphLowering.assign, 2), "AssignAdd": (_GraphLowering.assign_add, 2), "AssignSub": (_GraphLowering.assign_sub, 2),
    "Print": (_GraphLowering.print, 0),
}  # fmt: skip
"""Primitives of control, functions and effects, with the least number of their inputs."""


def _place(domain: str) -> Place | None:
    """Where the user's program has it: `model.py:42` in a dump, the scope of the layers in a binary file."""
    file, _, line = domain.rpartition(":")
    if file and line.isdigit():
        return Place(file, int(line))
    return Place(label=domain) if domain else None


def _short(name: str) -> str:
    """A name without the graph that it belongs to and the number that makes it unlike others."""
    parts = [p for p in name.split(":") if p and not p.isdigit()]
    return parts[-1] if parts else name


def _names(scopes: Scopes) -> dict[str, str]:
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


