"""The graph of a model, written from a function: names, nodes in order, graphs within nodes, constants as initialisers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from deepx_graph.analysis.scopes import Scope
from deepx_graph.errors import Diagnostic, InferError, VerifyError
from deepx_graph.ir import Function, Node, Op
from deepx_graph.ir.structure import (
    CONSTANT,
    LOOP_BEGIN,
    PARAM,
    PHI,
    PROJ,
    TUPLE,
    branches_of,
    index_of,
    projections,
    value_of,
)
from deepx_graph.literal import Literal
from deepx_graph.ops.data.deferred import deferred
from deepx_graph.text.common.regions import TextRegions
from deepx_graph.text.onnx.lower import DeferredNode
from deepx_graph.text.onnx.nested import LeanGraphs, graphs_of, nodes_within, resolved
from deepx_graph.text.onnx.printer.compose import ComposedOperator
from deepx_graph.text.onnx.printer.values import tensor_of, type_of
from deepx_graph.text.onnx.printer.versions import upgraded
from deepx_graph.text.onnx.schema import AttributeProto, GraphProto, NodeProto, TensorProto, ValueInfoProto
from deepx_graph.text.onnx.values import literal
from deepx_graph.types import BOOL, I64, Dim, Dims, DType, as_tensor, scalar

Info = Callable[[Node, str, bool], ValueInfoProto]
"""What is declared of a parameter, or (True) of a result, of that name."""

Say = Callable[["GraphWriter", Node], "str | Sequence[str]"]
"""Writes a node over operands that are written; gives the name of its value, or those of its results."""


class OutputNames:
    """Names of values, each given once."""

    def __init__(self) -> None:
        self.taken: set[str] = {""}
        self._count = 0

    def claim(self, wanted: str = "") -> str:
        """The name that is wanted, or one like it; a short one where none is."""
        name, k = wanted, 0
        while name in self.taken:
            k += 1
            name = f"{wanted}_{k}" if wanted else f"v{self._count}"
            self._count += not wanted
        self.taken.add(name)
        return name


def attribute(name: str, value: Any) -> AttributeProto:
    """An attribute of a plain value."""
    match value:
        case bool() | int():
            return AttributeProto(name, 2, i=int(value))
        case float():
            return AttributeProto(name, 1, f=value)
        case str():
            return AttributeProto(name, 3, s=value.encode())
        case GraphProto():
            return AttributeProto(name, 5, graph=value)
        case TensorProto():
            return AttributeProto(name, 4, tensor=value)
    if value and isinstance(value[0], float):
        return AttributeProto(name, 6, floats=list(value))
    return AttributeProto(name, 7, ints=[int(v) for v in value])


class GraphWriter:
    """Writes the entry of a module as a graph. Rules of operations emit nodes by `emit`; `problems` are what cannot be said."""

    def __init__(self, function: Function, version: int, say: Mapping[Op, Say]) -> None:
        self.function, self.version, self.say = function, version, say
        self.claims = OutputNames()
        self.names: dict[Node, str] = {}
        self.titles: set[str] = set()
        """Names of nodes: no two of a graph have one."""
        self.parts: dict[Node, Sequence[str]] = {}
        self.nodes: list[NodeProto] = []
        self.initializers: dict[Literal, TensorProto] = {}
        self.problems: list[Diagnostic] = []
        self.unsaid: set[Node] = set()
        """What could not be written, and what reads it."""

    # --- graphs

    def graph(self, info: Info) -> GraphProto:
        """The whole graph."""
        self._reserve()
        function = self.function
        inputs = []
        for k, p in enumerate(function.params):
            self.names[p] = self.claims.claim(p.name or f"x{k}")
            inputs.append(self._told(p, lambda p=p: info(p, self.names[p], False)))  # type: ignore[misc]
        results = [function.result_name(k) or f"y{k}" for k in range(len(function.results))]
        self.wanted: dict[Node, str] = {}
        given = set(self.names.values())
        for r, name in zip(function.results, results, strict=True):
            if r.op is not PARAM and r.op is not CONSTANT and name not in given and name not in self.wanted.values():
                self.wanted.setdefault(r, name)
        self.claims.taken.update(self.wanted.values())
        self.regions = TextRegions(function)
        self.scope(reversed(self.regions.root.nodes))
        outputs = []
        for k, (r, name) in enumerate(zip(function.results, results, strict=True)):
            if r.op is CONSTANT and r not in self.names:
                self.names[r] = self._told(r, lambda r=r, name=name: self.constant(value_of(r), name))  # type: ignore[misc]
            if self.names.get(r) != name:
                name = results[k] = name if self.wanted.get(r) == name else self.claims.claim(name)
                self._told(r, lambda r=r, name=name: self.node("Identity", [self.use(r)], [name]))  # type: ignore[misc]
            outputs.append(self._told(r, lambda r=r, name=name: info(r, name, True)))  # type: ignore[misc]
        nodes = _needed(self.nodes, results)
        read = {name for n in nodes_within(nodes) for name in n.inputs} | set(results)
        weights = [w for w in self.initializers.values() if w.name in read]
        return GraphProto(nodes, function.name, weights, inputs=inputs, outputs=outputs)

    def _reserve(self) -> None:
        """Takes the names that graphs of kept nodes give."""
        for n in self.function.nodes:
            if n.op is deferred and isinstance(n.attr("lowering"), DeferredNode):
                message = n.attr("lowering").node
                for inner in nodes_within([message]):
                    self.claims.taken.update(i.name for g in graphs_of(inner) for i in g.inputs)
                    self.claims.taken.update(w.name for g in graphs_of(inner) for w in g.initializers)
                    if inner is not message:
                        self.claims.taken.update(inner.outputs)

    def _told(self, node: Node, make: Callable[[], Any]) -> Any:
        """What `make` gives; what goes wrong is a problem of the node, unless it reads what already is one."""
        try:
            return make()
        except InferError as e:
            if not any(i in self.unsaid for i in (node, *node.inputs)):
                self.problems.append(e.diagnostic(node.span, f"ONNX: {node.op.name}: "))
        except VerifyError as e:
            self.problems += e.diagnostics
        self.unsaid.add(node)
        return None

    def scope(self, nodes: Iterable[Node]) -> None:
        """Writes nodes in order."""
        for node in nodes:
            if node.op not in (PARAM, CONSTANT, PHI, TUPLE, LOOP_BEGIN):
                self._told(node, lambda node=node: self._write(node))  # type: ignore[misc]

    def _write(self, node: Node) -> None:
        if node.op is PROJ:
            if node.inputs[0] in self.unsaid:
                self.unsaid.add(node)
            return
        if node.op is deferred and isinstance(node.attr("lowering"), DeferredNode):
            self._kept(node, node.attr("lowering"))
            return
        if node.op is deferred and isinstance(node.attr("lowering"), ComposedOperator):
            operator = node.attr("lowering")
            self.names[node] = self._named(self.emit(operator.op_type, *node.inputs, **operator.attributes), node)
            return
        rule = self.say.get(node.op)
        if rule is None:
            raise InferError("there is no such operation, nor others that make it")
        before = len(self.nodes)
        made = rule(self, node)
        if isinstance(made, str):
            self.names[node] = self._named(made, node) if len(self.nodes) > before else made  # else its operand
        else:
            self.parts[node] = made

    def _named(self, made: str, node: Node) -> str:
        """Gives the value that was written last the name of its node, where it may have it."""
        last = self.nodes[-1] if self.nodes else None
        if last is None or last.outputs != [made] or not made.startswith("v") or not (node in self.wanted or node.name):
            return made
        last.outputs = [self.wanted[node] if node in self.wanted else self.claims.claim(node.name)]
        return last.outputs[0]

    # --- values

    def use(self, node: Node) -> str:
        """The name of a value. Raises InferError for one that has none."""
        if node in self.names:
            if not self.names[node]:
                raise InferError(f"a size of {node.type} is that of no input")
            return self.names[node]
        if node.op is CONSTANT:
            self.names[node] = self.constant(value_of(node), node.name)
        elif node.op is PROJ or node.op is PHI:
            source, k = node.inputs[0], index_of(node)
            if source.op is not TUPLE and source not in self.parts:
                raise InferError(f"an item of {source.type} has no name in ONNX")
            self.names[node] = self.use(source.inputs[k]) if source.op is TUPLE else self.parts[source][k]
        else:
            raise InferError(f"a value of type {node.type} has no name in ONNX")
        return self.names[node]

    def constant(self, literal: Literal, wanted: str = "") -> str:
        """The name of an initialiser with that value."""
        if literal not in self.initializers:
            self.initializers[literal] = tensor_of(literal, self.claims.claim(wanted))
        return self.initializers[literal].name

    def ints(self, values: Sequence[int]) -> str:
        """An initialiser of integers."""
        return self.constant(Literal(np.asarray(values, np.int64)))

    def number(self, value: Any, dtype: DType) -> str:
        """An initialiser of one number."""
        return self.constant(Literal.splat(value, scalar(dtype)))

    def emit(self, op_type: str, *inputs: str | Node, **attributes: Any) -> str:
        """The value of one more node; a name of its own until the rule's node gives it its own."""
        name = self.claims.claim()
        self.node(op_type, [i if isinstance(i, str) else self.use(i) for i in inputs], [name], **attributes)
        return name

    def emit_many(self, op_type: str, count: int, *inputs: str | Node, **attributes: Any) -> list[str]:
        """The values of one more node with several results."""
        names = [self.claims.claim() for _ in range(count)]
        self.node(op_type, [i if isinstance(i, str) else self.use(i) for i in inputs], names, **attributes)
        return names

    def node(self, op_type: str, inputs: list[str], outputs: list[str], **attributes: Any) -> None:
        """One more node."""
        given = [attribute(k, v) for k, v in attributes.items() if v is not None]
        self.nodes.append(NodeProto(inputs, outputs, op_type=op_type, attributes=given))

    def shape(self, dims: Dims) -> str:
        """A shape as a value: an initialiser, or made of sizes of the inputs. Raises InferError for a size that none has."""
        if all(isinstance(d, int) for d in dims):
            return self.ints([int(d) for d in dims])
        return self.emit("Concat", *(self.ints([d]) if isinstance(d, int) else self._size(d) for d in dims), axis=0)

    def reshape(self, value: str | Node, dims: Sequence[Dim]) -> str:
        """The value in another shape, in which -1 is what is left, and 0 no other size. Raises as `shape`."""
        return self.emit("Reshape", value, self.shape(tuple(dims)), allowzero=1 if 0 in dims else None)

    def _size(self, symbol: str) -> str:
        """A size that is not known, as a vector of one element: that of an input."""
        for p in self.function.params:
            dims = as_tensor(p.type).dims or ()
            if symbol in dims:
                return self.emit("Shape", p, start=dims.index(symbol), end=dims.index(symbol) + 1)
        raise InferError(f"no input has the size {symbol}")

    # --- operators that were kept

    def _kept(self, node: Node, lowering: DeferredNode) -> None:
        """The operator as it was read, over the names of now."""
        template = lowering.template
        if any(isinstance(t, tuple) for t in template.values()):
            raise InferError("a sequence that is known item by item has no name in ONNX")
        names = {n: "" if t is None else self.use(node.inputs[t]) for n, t in template.items()}
        message = LeanGraphs(lambda tensor: self._lifted(tensor, lowering)).node(resolved(lowering.node, lowering.bound), names)
        message = upgraded(message, lowering.opsets.get("", self.version), self.version, lambda v: self.constant(Literal(v)))
        count = len(lowering.node.outputs)
        users = projections(self.function.users.get(node, ())) if count > 1 else {0: node}
        outputs = []
        for k, old in enumerate(lowering.node.outputs):
            value = users.get(k)
            name = "" if not old else self.wanted[value] if value in self.wanted else self.claims.claim(old)
            outputs.append(name)
            if value is not None:
                self.names[value] = name
        title = "" if message.name in self.titles else message.name  # that of a function's node, which stands here twice
        self.titles.add(message.name)
        self.nodes.append(replace(message, name=title, outputs=outputs[: len(message.outputs)]))

    def _lifted(self, tensor: TensorProto, lowering: DeferredNode) -> str:
        """The name of an initialiser of the whole graph with the value of a constant of a graph within it."""
        whole = lowering.whole
        return self.constant(literal(tensor, whole.source, whole.options.max_file_bytes), tensor.name)


def _needed(nodes: Sequence[NodeProto], results: Sequence[str]) -> list[NodeProto]:
    """The nodes without those that nothing reads: an operation may have taken in its operands."""
    read, found = set(results), []
    for node in reversed(nodes):
        if not read.isdisjoint(node.outputs):
            found.append(node)
            read.update(name for n in nodes_within([node]) for name in n.inputs)
            read.update(o.name for n in nodes_within([node]) for g in graphs_of(n) for o in g.outputs)
    return found[::-1]


# --- branches and loops, whose graphs see the values around them -----------------------------------------------------


def _within(w: GraphWriter, make: Callable[[], Sequence[str]], inputs: Iterable[ValueInfoProto] = ()) -> GraphProto:
    """A graph of the nodes that `make` writes, whose outputs it gives."""
    outer, w.nodes = w.nodes, []
    try:
        made = []
        results = make()
        own = {o for n in w.nodes for o in n.outputs}
        for name in results:  # an output is made within the graph, and is none of the others
            made.append(name if name in own and name not in made else w.emit("Identity", name))
        outputs = [ValueInfoProto(name=n) for n in made]
        return GraphProto(_needed(w.nodes, made), w.claims.claim("body"), inputs=list(inputs), outputs=outputs)
    finally:
        w.nodes = outer


def write_branch(w: GraphWriter, region: Node) -> Sequence[str]:
    """`If`; for an integer one within the other, the last branch for what is out of range."""
    selector, branches = region.inputs[0], branches_of(region)
    scopes = w.regions.branches[region]
    width = len(branches[0])

    def branch(k: int) -> Callable[[], Sequence[str]]:
        def make() -> Sequence[str]:
            before = dict(w.names)
            w.scope(reversed(scopes[k].nodes))
            made = [w.use(v) for v in branches[k]]
            w.names = before
            return made

        return make

    def rest(k: int) -> Sequence[str]:
        """The values of branch k or one after it."""
        if k == len(branches) - 1:
            return branch(k)()
        dtype = as_tensor(selector.type).dtype
        test = w.use(selector) if dtype is BOOL else w.emit("Equal", selector, w.number(k, dtype))
        yes, no = _within(w, branch(k)), _within(w, lambda: rest(k + 1))
        return w.emit_many("If", width, test, then_branch=yes, else_branch=no)

    return rest(0)


def write_loop(w: GraphWriter, end: Node) -> Sequence[str]:
    """`Loop` while a condition holds: it is computed once before the loop, and again after each iteration."""
    begin, condition, nexts = end.inputs[0], end.inputs[1], end.inputs[2:]
    phis = {n: index_of(n) for n in w.function.nodes if n.op is PHI and n.inputs[0] is begin}
    header, body = w.regions.headers[end], w.regions.bodies[end]
    first_values = [w.use(i) for i in begin.inputs]
    before = w.names

    def written(part: Scope, values: Sequence[str]) -> None:
        """Writes a part anew, over these values of the variables: nothing is left of how it was written before."""
        w.names = {**before, **{p: values[k] for p, k in phis.items()}}
        w.scope(w.regions.iteration(part))

    def test(values: Sequence[str]) -> str:
        written(header, values)
        return w.use(condition)

    first = test(first_values)
    states = [w.claims.claim() for _ in begin.inputs]

    def iteration() -> Sequence[str]:
        written(body, states)
        made = [w.use(v) for v in nexts]
        return [test(made), *made]

    inputs = [ValueInfoProto(w.claims.claim(n), type_of(scalar(t))) for n, t in (("i", I64), ("go", BOOL))]
    inputs += [ValueInfoProto(s, type_of(i.type)) for s, i in zip(states, begin.inputs, strict=True)]
    graph = _within(w, iteration, inputs)
    w.names = before
    return w.emit_many("Loop", len(nexts), "", first, *begin.inputs, body=graph)


