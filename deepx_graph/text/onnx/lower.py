"""Graphs of ONNX models: functions of the model and subgraphs become nodes of one function.

`Deferred` is what a node leaves behind whose rule waits for the inputs of a run: it is lowered again when the module is
specialised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deepx_graph import ops
from deepx_graph.errors import InferError, LimitError, ParseError, Source, Span, VerifyError
from deepx_graph.ir import Builder, Node, Origin
from deepx_graph.ops.known import NotKnown
from deepx_graph.text.common.cursor import deeper
from deepx_graph.text.common.known_steps import Defers
from deepx_graph.text.common.modules import place_in_model
from deepx_graph.text.common.protobuf import Decoder
from deepx_graph.text.common.protobuf_writer import encode
from deepx_graph.text.common.stand_ins import types_by_stand_ins
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.onnx.context import NodeContext, Value, rule_since
from deepx_graph.text.onnx.keep import KeptOperators
from deepx_graph.text.onnx.nested import resolved
from deepx_graph.text.onnx.rules import RULES
from deepx_graph.text.onnx.schema import (
    SCHEMA,
    AttributeProto,
    FunctionProto,
    GraphProto,
    NodeProto,
)
from deepx_graph.text.onnx.scope import UNKNOWN, GraphNames, captured, domain_of, filled, leaves_of, template_of, versions
from deepx_graph.text.onnx.values import dense, literal
from deepx_graph.types import TupleType, Type, is_static

if TYPE_CHECKING:
    from deepx_graph.text.onnx.model import OnnxLowering

Damaged = (ArithmeticError, LookupError, TypeError, ValueError)
"""What numpy and Python say of attributes and constants that make no sense together."""


class OnnxGraphLowering(Defers):
    """Nodes being lowered by one builder, in one operator set; `bound` are the attributes of the function that they stand in."""

    def __init__(self, whole: OnnxLowering, b: Builder, known: Callable[[Node], Any], opsets: Mapping[str, int],
                 bound: Mapping[str, AttributeProto] | None = None, may_defer: bool = True, depth: int = 0,
                 kept: KeptOperators | None = None) -> None:
        self.kept = kept
        self.whole, self.b, self.known, self.opsets, self.bound = whole, b, known, opsets, bound
        self.scope = GraphNames()
        self.may_defer, self.depth = may_defer, depth

    # --- graphs

    def run(self, graph: GraphProto, scope: GraphNames) -> list[Value]:
        """The values of the graph's outputs; what it reads is in the scope, or becomes so here."""
        whole, before = self.whole, self.scope
        for w in graph.initializers:
            if w.name in scope.waiting:
                whole.warn(w.at, f"the initialiser '{w.name}' is given twice: the last one is taken, as runtimes do")
            if w.name not in scope.values:
                scope.waiting[w.name] = lambda w=w: self._weight(w)  # type: ignore[misc]
        for s in graph.sparse_initializers:
            if s.values is not None:
                value = dense(s, whole.source, whole.options.max_file_bytes)
                scope.define(s.values.name, self.b.literal(value))
        self.scope = scope
        try:
            for node in graph.nodes:
                self._node(node)
            return [self._read(o.name, o.at) for o in graph.outputs]
        finally:
            self.scope = before

    def body(self, graph: GraphProto, args: Sequence[Value]) -> list[Value]:
        """The outputs of a graph within a node, for its inputs. Names of what is around it are seen within."""
        if len(graph.inputs) != len(args):
            raise InferError(f"the graph '{graph.name}' has {len(graph.inputs)} inputs", expected=str(len(args)))
        with self._deeper():
            scope = GraphNames(self.scope)
            for info, value in zip(graph.inputs, args, strict=True):
                scope.define(info.name, value)
            return self.run(graph, scope)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self.depth = deeper(self.depth, self.whole.options.max_depth, "graphs and functions")
        try:
            yield
        finally:
            self.depth -= 1

    def _weight(self, data: Any) -> Node:
        before, self.b.origin = self.b.origin, Origin(data.name, (self.whole.span(data.at),))
        try:
            return self.b.literal(literal(data, self.whole.source, self.whole.options.max_file_bytes))
        finally:
            self.b.origin = before

    def node_of(self, value: Value) -> Node:
        """A value as one node: sequences as tuples, what is left out as an empty one."""
        if isinstance(value, Node):
            return value
        return self.b.pack(*(self.node_of(v) for v in value or ()))

    # --- nodes

    def _read(self, name: str, at: int) -> Value:
        if not name:
            return None
        try:
            return self.scope[name]
        except KeyError:
            raise self.whole.fail(at, f"'{name}' is read before anything gives it", "nodes in the order of their use",
                                  "a cycle, or a name that nothing has") from None

    def _node(self, node: NodeProto) -> None:
        whole = self.whole
        whole.left -= 1
        if whole.left < 0:
            raise LimitError(f"more than {whole.options.max_nodes} nodes, those of functions each time they are called")
        shown = next(filter(None, node.outputs), node.name)
        notes = tuple((f"metadata {e.key}", e.value) for e in node.metadata)
        notes = (("doc_string", node.doc_string), *notes) if node.doc_string else notes
        before = self.b.origin
        place = place_in_model(node.name, node.op_type, {e.key: e.value for e in node.metadata})
        self.b.origin = Origin(shown, (Span(whole.source, node.at, node.at + 1, place),), (), notes)
        since = 0 if self.kept is None else self.kept.count
        try:
            results = self._results(node)
            if self.kept is not None:
                self._keep(self.kept, node, results, since)
            for k, name in enumerate(node.outputs):
                if not name:
                    continue
                if name in self.scope.values:
                    raise InferError(f"'{name}' is given twice", expected="a name of its own for each value")
                if k >= len(results):
                    raise InferError(f"{len(results)} results", expected=f"{len(node.outputs)}, as the node names")
                self.scope.define(name, results[k])
        except NotKnown:
            raise
        except InferError as e:
            raise VerifyError(e.diagnostic(self.b.origin.span, f"{_label(node)}: ")) from None
        except (ParseError, VerifyError) as e:  # of what is around it, the name too
            told = replace(e.diagnostics[0], message=f"{_label(node)}: {e.diagnostics[0].message}")
            raise (ParseError if isinstance(e, ParseError) else VerifyError)(told, *e.diagnostics[1:]) from None
        finally:
            self.b.origin = before

    def _keep(self, kept: KeptOperators, node: NodeProto, results: Sequence[Value], since: int) -> None:
        """Keeps the operator too, which was lowered."""
        names = dict.fromkeys(n for n in (*node.inputs, *captured(node)) if n and n in self.scope)
        if any(self.opsets.get(d) != v for d, v in self.whole.opsets.items()):
            raise InferError("a function of the model has operators of other versions than its graph")
        plain = resolved(node, self.bound)
        kept.record(node, self.b.origin, {n: self.scope[n] for n in names}, results,
                    lambda template: DeferredNode(self.whole, dict(self.opsets), None, plain, template), since)

    def _results(self, node: NodeProto) -> Sequence[Value]:
        """What a node gives: by a function of the model, by the rule of its operator, opaque where there is none."""
        domain = domain_of(node.domain)
        inputs = [self._read(n, node.at) for n in node.inputs]
        while inputs and inputs[-1] is None:
            inputs.pop()
        function = self.whole.functions.get((domain, node.op_type, node.overload))
        if function is not None:
            return self._inlined(function, node, inputs)
        version = self.opsets.get(domain, 1)
        entry = RULES.get((domain, node.op_type))
        rule = None if entry is None else rule_since(entry, version)
        if rule is None:
            return self._opaque(node, inputs)
        unknown = not all(is_static(leaf.type) for leaf in leaves_of(inputs))
        try:
            call = NodeContext(self, node, inputs, self._attributes(node), version)
            found = rule(call)
        except Unsupported:
            return self._opaque(node, inputs)
        except LimitError:
            raise
        except NotKnown:
            if not self.may_defer:
                raise
            return self._deferred(node)
        except (InferError, VerifyError, *Damaged) as e:
            if unknown:
                if not self.may_defer:
                    raise NotKnown(f"the shapes of the operands of {_label(node)} are not known") from None
                return self._deferred(node)
            if isinstance(e, Damaged) and not isinstance(e, InferError):
                raise InferError(f"operands and attributes do not fit ({str(e) or type(e).__name__})") from None
            raise
        return [found] if isinstance(found, Node) else list(found)

    def _attributes(self, node: NodeProto) -> dict[str, Any]:
        found = {}
        for a in node.attributes:
            actual = a
            if a.reference:
                if self.bound is None or a.reference not in self.bound:
                    continue
                actual = self.bound[a.reference]
            found[a.name] = self._attribute(actual)
        return found

    def _attribute(self, a: AttributeProto) -> Any:
        """An attribute as a plain value."""
        most, source = self.whole.options.max_file_bytes, self.whole.source
        match a.type or _kind(a):
            case 1:
                return a.f
            case 2:
                return a.i
            case 3:
                return str(a.s, "utf-8", "replace")
            case 4 if a.tensor is not None:
                return literal(a.tensor, source, most)
            case 5 if a.graph is not None:
                return a.graph
            case 6:
                return tuple(a.floats)
            case 7:
                return tuple(a.ints)
            case 8:
                return tuple(str(s, "utf-8", "replace") for s in a.strings)
            case 9:
                return tuple(literal(t, source, most) for t in a.tensors)
            case 10:
                return tuple(a.graphs)
            case 11 if a.sparse is not None:
                return dense(a.sparse, source, most)
            case 13:
                return a.type_info
        raise InferError(f"the attribute '{a.name}' has the kind {a.type}, and no value of it")

    def _inlined(self, function: FunctionProto, node: NodeProto, inputs: Sequence[Value]) -> list[Value]:
        """The results of a function of the model, its nodes put here."""
        if len(inputs) > len(function.inputs):
            raise InferError(f"{len(inputs)} operands", expected=f"at most {len(function.inputs)}")
        bound = {a.name: a for a in function.attribute_defaults}
        for a in node.attributes:
            given = a if not a.reference else (self.bound or {}).get(a.reference)
            if given is not None:
                bound[a.name] = given
        opsets = {**self.whole.opsets, **versions(function.opsets)}
        inner = OnnxGraphLowering(self.whole, self.b, self.known, opsets, bound, self.may_defer, self.depth, self.kept)
        for k, name in enumerate(function.inputs):
            inner.scope.define(name, inputs[k] if k < len(inputs) else None)
        with inner._deeper():
            for n in function.nodes:
                inner._node(n)
        return [inner._read(name, function.at) for name in function.outputs]

    def _opaque(self, node: NodeProto, inputs: Sequence[Value]) -> Sequence[Value]:
        """The node as it stands: drawn and printed, not run."""
        name = ".".join(filter(None, (domain_of(node.domain) or "onnx", node.op_type)))
        operands = [self.node_of(v) for v in inputs if v is not None]
        whole = self.b(ops.opaque, *operands, name=name, attributes=_shown(node), type=_unknown(node), language="onnx")
        return [whole] if len(node.outputs) == 1 else self.b.items(whole)

    def _deferred(self, node: NodeProto) -> Sequence[Value]:
        """The node to be lowered once the inputs of the program are known."""
        names = dict.fromkeys(n for n in (*node.inputs, *captured(node)) if n and n in self.scope)
        operands = {n: self.scope[n] for n in names}
        flat: list[Node] = list(dict.fromkeys(leaves_of(list(operands.values()))))
        place = {x: k for k, x in enumerate(flat)}
        template = {n: template_of(v, place) for n, v in operands.items()}
        lowering = DeferredNode(self.whole, dict(self.opsets), self.bound, node, template)
        made = self.b(ops.deferred, *flat, name=f"onnx.{node.op_type}", attributes=_shown(node),
                      type=self._type_of(node, lowering, flat), language="onnx", lowering=lowering)
        return [made] if len(node.outputs) == 1 else self.b.items(made)


    def _type_of(self, node: NodeProto, lowering: DeferredNode, operands: Sequence[Node]) -> Type:
        """The type of a deferred node; with symbols where the model is to be written back and they tell what shapes are made of."""
        types = None
        if self.kept is not None:
            types = types_by_stand_ins(lowering, operands, self.known)
        if types is None or len(types) != len(node.outputs):
            return _unknown(node)
        return types[0] if len(types) == 1 else TupleType(types)


@dataclass(frozen=True, eq=False)
class DeferredNode:
    """The lowering of a node for operands that are known better than when the model was read."""

    whole: OnnxLowering
    opsets: Mapping[str, int]
    bound: Mapping[str, AttributeProto] | None
    node: NodeProto
    template: Mapping[str, Any]
    """What the names of the node stand for: the index of an operand, a tuple of such, or None."""

    def __reduce__(self) -> tuple[Any, ...]:
        """As the bytes of its messages, which may be views of a file."""
        bound = self.bound if self.bound is None else {name: _bytes_of(NodeProto(attributes=[a])) for name, a in self.bound.items()}
        return _deferred_again, (self.whole, dict(self.opsets), bound, _bytes_of(self.node), self.node.at, dict(self.template))

    def __call__(self, b: Builder, operands: Sequence[Node], known: Callable[[Node], Any]) -> Node:
        """The node, or a tuple of its results. Raises InferError or VerifyError for what still is not known."""
        inner = OnnxGraphLowering(self.whole, b, known, self.opsets, self.bound, may_defer=False)
        for name, t in self.template.items():
            inner.scope.define(name, filled(t, operands))
        inner._node(self.node)
        results = [inner.scope[o] if o else b.pack() for o in self.node.outputs]
        return inner.node_of(results[0]) if len(results) == 1 else b.pack(*map(inner.node_of, results))


def _bytes_of(node: NodeProto) -> bytes:
    return b"".join(encode(node, SCHEMA))


def _deferred_again(whole: OnnxLowering, opsets: Mapping[str, int], bound: Mapping[str, bytes] | None, node: bytes, at: int,
                    template: Mapping[str, Any]) -> DeferredNode:
    """A pickled lowering in this process."""

    def message(data: bytes) -> NodeProto:
        return Decoder(Source("<node>", data=memoryview(data)), SCHEMA, whole.options).whole(NodeProto)

    attributes = None if bound is None else {name: message(data).attributes[0] for name, data in bound.items()}
    return DeferredNode(whole, opsets, attributes, replace(message(node), at=at), template)


def _label(node: NodeProto) -> str:
    return f"{node.op_type} '{node.name}'" if node.name else node.op_type


def _unknown(node: NodeProto) -> Type:
    return UNKNOWN if len(node.outputs) == 1 else TupleType((UNKNOWN,) * len(node.outputs))


def _kind(a: AttributeProto) -> int:
    """The kind of an attribute that does not say it, by the field that it has."""
    fields = ((4, a.tensor), (5, a.graph), (6, a.floats), (7, a.ints), (8, a.strings), (9, a.tensors), (3, a.s), (2, a.i), (1, a.f))
    return next((number for number, value in fields if value), 2)


MAX_SHOWN = 60


def _shown(node: NodeProto) -> str:
    """The attributes in short, to be looked at."""
    parts = []
    for a in node.attributes:
        kind = a.type or _kind(a)
        value: Any = {1: a.f, 2: a.i, 3: str(a.s, "utf-8", "replace"), 6: a.floats, 7: a.ints}.get(kind, "...")
        parts.append(f"{a.name} = {value!s:.{MAX_SHOWN}}")
    return ", ".join(parts)
