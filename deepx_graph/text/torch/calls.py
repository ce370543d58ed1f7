"""The calls of a graph, lowered one by one by the rules of their operators, and what their names stand for meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError, LimitError, VerifyError
from deepx_graph.ir import Builder, Node, Origin
from deepx_graph.ops.known import NotKnown
from deepx_graph.text.common.cursor import deeper
from deepx_graph.text.common.known_steps import Defers
from deepx_graph.text.common.steps import Unsupported
from deepx_graph.text.torch.aliases import Aliases, written_back
from deepx_graph.text.torch.context import CallContext, Rule, SymbolicNumber, Value
from deepx_graph.text.torch.rules import RULES
from deepx_graph.text.torch.schema import ExportedGraph, ExportedNode, Name, NestedGraph, names_in
from deepx_graph.text.torch.tensors import TensorMeta
from deepx_graph.types import I64, Dims, TensorType, TupleType, Type, as_tensor, is_static, scalar, tensor

if TYPE_CHECKING:
    from deepx_graph.text.torch.lower import ProgramLowering

SIDE_EFFECTS = frozenset((
    "aten._assert_scalar.default", "aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default",
    "aten._assert_tensor_metadata.default", "aten._assert_async.msg", "aten._assert_async.default", "aten._print.default",
    "aten._functional_sym_constrain_range.default", "aten._functional_sym_constrain_range_for_size.default",
))  # fmt: skip
"""Calls that check what torch has made sure of, and give nothing."""

Damaged = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)
"""What numpy and Python say of arguments that make no sense together."""


def meta_of(graph: ExportedGraph, name: Any) -> TensorMeta:
    """What a graph says of a tensor. Raises InferError where it says nothing."""
    found = graph.tensors.get(name.text) if isinstance(name, Name) else None
    if found is None:
        raise InferError(f"the program does not say of which type '{getattr(name, 'text', name)!s:.60}' is")
    return found


def rule_of(operator: str) -> tuple[Rule | None, bool]:
    """The rule of an operator, and whether it writes its first argument: `aten.add_.Tensor` is `aten.add.Tensor` in place."""
    namespace, _, rest = operator.partition(".")
    packet = f"{namespace}.{rest.rpartition('.')[0] or rest}"
    in_place = packet.endswith("_") and not packet.endswith("__")
    overload = operator.removeprefix(packet)
    names = [operator, packet, *([packet[:-1] + overload, packet[:-1]] if in_place else [])]
    return next((RULES[n] for n in names if n in RULES), None), in_place


class CallLowering(Defers):
    """A graph being lowered by one builder."""

    def __init__(
        self, whole: ProgramLowering, b: Builder, known: Callable[[Node], Any], may_defer: bool = True, depth: int = 0
    ) -> None:
        self.whole, self.b, self.known = whole, b, known
        self.graph = whole.program.graph
        self.values: dict[str, Value] = {}
        self.aliases = Aliases()
        self.may_defer, self.depth = may_defer, depth

    # --- graphs

    def run(self, graph: ExportedGraph) -> list[Value]:
        """The values of the graph's outputs; its inputs have theirs."""
        self.graph = graph
        for node in graph.nodes:
            self.node(node)
        return [self.resolved(o) for o in graph.outputs]

    def body(self, nested: NestedGraph, args: Sequence[Value]) -> list[Value]:
        """What a graph within a node gives for its inputs."""
        names = names_in(nested.graph.inputs)
        if len(names) != len(args):
            raise InferError(f"the graph '{nested.name}' has {len(names)} inputs", expected=str(len(args)))
        inner = CallLowering(self.whole, self.b, self.known, False, deeper(self.depth, self.whole.options.max_depth))
        inner.values = dict(zip((n.text for n in names), args, strict=True))
        found = inner.run(nested.graph)
        if inner.aliases.written & set(inner.values.keys() & {n.text for n in names}):
            raise InferError(f"the graph '{nested.name}' writes to its inputs", expected="graphs that give new values")
        return found[0] if len(found) == 1 and isinstance(found[0], tuple) else found  # type: ignore[return-value]

    # --- values

    def resolved(self, value: Any) -> Value:
        """An argument with what its names stand for."""
        if isinstance(value, Name):
            return self.read(value.text)
        return tuple(map(self.resolved, value)) if isinstance(value, tuple) else value

    def read(self, name: str) -> Value:
        """What a name stands for now. Raises InferError for one that nothing has given yet."""
        if self.aliases.outdated(name):
            self.values[name] = self._again(name, *self.aliases.base[name])
        if name not in self.values:
            raise InferError(f"'{name:.60}' is read before anything gives it", expected="nodes in the order of their use")
        return self.values[name]

    def _again(self, name: str, base: str, call: ExportedNode | None) -> Value:
        """A view of what has been written to since, read anew."""
        if call is None:
            return self.read(base)
        names = names_in(call.outputs)
        found = self._flat(call, self._by_rule(call)[0])
        return found[[n.text for n in names].index(name)]

    def node_of(self, value: Value) -> Node:
        """A value as one node: lists as tuples, numbers as tensors without axes."""
        if isinstance(value, Node):
            return value
        if isinstance(value, SymbolicNumber):
            return value.node
        if isinstance(value, (bool, int, float, complex)):
            return self.b.constant(np.asarray(value))
        return self.b.pack(*(self.node_of(v) for v in value or ()))

    # --- nodes

    def node(self, node: ExportedNode) -> None:
        """Lowers a call. Raises VerifyError with its name and place."""
        before = self.b.origin
        self.b.origin = Origin(node.name, (self.whole.span(node),))
        try:
            if node.operator not in SIDE_EFFECTS:
                self._define(node, *self._by_rule(node))
        except NotKnown:
            raise
        except InferError as e:
            raise VerifyError(e.diagnostic(self.b.origin.span, f"{node.operator} '{node.name}': ")) from None
        finally:
            self.b.origin = before

    def _define(self, node: ExportedNode, results: Any, in_place: bool) -> None:
        """Gives the names of a call what it made; what is written in place also the name that is written to."""
        found = self._flat(node, results)
        names = names_in(node.outputs)
        target = next((v for _, _, v in node.arguments[:1] if isinstance(v, Name)), None)
        if in_place and target is not None:
            self.write(target.text, found[0])
            for name in names:
                self.aliases.add(name.text, target.text, None)
        for name, value in zip(names, found, strict=True):
            self.values[name.text] = value
            if not in_place and target is not None and self.aliases.is_view(node, self.graph, target):
                self.aliases.add(name.text, target.text, node)

    def write(self, name: str, value: Node) -> None:
        """A new value for a name, for what it is a view of, and for the other views of that."""
        path = {name}
        self.values[name] = value
        while name in self.aliases.base:
            base, call = self.aliases.base[name]
            if call is not None:
                k = [n.text for n in names_in(call.outputs)].index(name)
                value = written_back(self.context(call), self.node_of(self.read(base)), value, k)
            self.values[base] = value
            name = base
            path.add(name)
        self.aliases.wrote(name, path)

    def context(self, node: ExportedNode) -> CallContext:
        arguments = {name: self.resolved(v) for name, _, v in node.arguments}
        positional = [self.resolved(v) for _, by_name, v in node.arguments if not by_name]
        declared = [self.graph.tensors.get(n.text) for n in names_in(node.outputs)]
        return CallContext(self, node, arguments, positional, declared)

    def _by_rule(self, node: ExportedNode) -> tuple[Any, bool]:
        """What a call gives: by the rule of its operator, opaque where there is none; and whether it writes in place."""
        rule, in_place = rule_of(node.operator)
        c = self.context(node)
        if rule is None or (".out" in node.operator[-4:] and c.has("out") and in_place):
            return self._opaque(node, c), in_place
        leaves = list(leaves_of([*c.arguments.values()]))
        try:
            return rule(c), in_place
        except Unsupported:
            return self._opaque(node, c), in_place
        except LimitError:
            raise
        except NotKnown:
            if not self.may_defer:
                raise
            return self._deferred(node), in_place
        except (InferError, VerifyError, *Damaged) as e:
            if not all(is_static(x.type) for x in leaves):
                if not self.may_defer:
                    raise NotKnown(f"the sizes of the operands of {node.operator} '{node.name}' are not known") from None
                return self._deferred(node), in_place
            if isinstance(e, Damaged) and not isinstance(e, InferError):
                raise InferError(f"the arguments do not fit ({str(e) or type(e).__name__:.100})") from None
            raise

    # --- results

    def _flat(self, node: ExportedNode, results: Any) -> list[Value]:
        """The values of the names that a call gives, as the program declares them."""
        made = list(leaves(results))
        names = names_in(node.outputs)
        if len(made) < len(names):
            raise InferError(f"{len(made)} results", expected=f"{len(names)}, as the program names")
        # results that nobody asks for have no name, and are not the last ones only where the program says None for them
        slots = list(leaves(node.outputs))
        made = made[: len(slots)] if len(slots) <= len(made) else made
        paired = [(s, m) for s, m in zip(slots, made, strict=False) if isinstance(s, Name)]
        return [self._declared(name, value) for name, value in paired]

    def _declared(self, name: Name, value: Value) -> Value:
        """A result in the element type that the program says. Raises InferError where it has other sizes."""
        if name.size:
            size = self.graph.sizes.get(name.text)
            if isinstance(value, Node):
                value = SymbolicNumber(value)
            if isinstance(value, SymbolicNumber):
                found = self.known(value.node)
                return SymbolicNumber(value.node, size) if found is None else np.asarray(found).reshape(-1)[0].item()
            return value
        meta = meta_of(self.graph, name)
        if not isinstance(value, Node):
            raise InferError(f"'{name.text}' is no tensor")
        if isinstance(value.type, TensorType) and value.type.dims is not None and not _may_be(value.type.dims, meta.sizes):
            raise InferError(f"'{name.text}' is {value.type}", expected=f"{meta.type}, as the program says")
        if value.type != meta.type and not is_static(value.type) and value.op is not ops.deferred and as_tensor(value.type).dims:
            value = self.b(ops.ensure_type, value, type=meta.type.with_dtype(as_tensor(value.type).dtype))
        known = as_tensor(value.type).dtype
        if known is not meta.dtype and known.kind != "any":
            return CallContext(self, ExportedNode("", (), (), {}), {}, (), ()).to(value, meta.dtype)
        return value

    def _types(self, node: ExportedNode) -> list[Type]:
        names = names_in(node.outputs)
        return [scalar(I64) if n.size else tensor(meta_of(self.graph, n).dtype, meta_of(self.graph, n).sizes) for n in names]

    def _opaque(self, node: ExportedNode, c: CallContext) -> Sequence[Value]:
        """The call as it stands: drawn and printed, not run."""
        operands = list(dict.fromkeys(leaves_of([*c.arguments.values()])))
        types = self._types(node)
        type = types[0] if len(types) == 1 else TupleType(tuple(types))
        made = self.b(ops.opaque, *operands, name=node.operator, attributes=_shown(node), type=type, language="torch")
        return [made] if len(types) == 1 else self.b.items(made)

    def _deferred(self, node: ExportedNode) -> Sequence[Value]:
        """The call to be lowered once the inputs of the program are known."""
        names = dict.fromkeys(names_in(tuple(v for _, _, v in node.arguments)))
        values = {n.text: self.read(n.text) for n in names}
        flat = list(dict.fromkeys(leaves_of(list(values.values()))))
        place = {x: k for k, x in enumerate(flat)}
        template = {n: _template(v, place) for n, v in values.items()}
        types = self._types(node)
        type = types[0] if len(types) == 1 else TupleType(tuple(types))
        made = self.b(
            ops.deferred,
            *flat,
            name=node.operator,
            attributes=_shown(node),
            type=type,
            language="torch",
            lowering=DeferredCall(self.whole, self.graph, node, template),
        )
        return [made] if len(types) == 1 else self.b.items(made)


@dataclass(frozen=True, eq=False)
class DeferredCall:
    """The lowering of a call for operands that are known better than when the program was read."""

    whole: ProgramLowering
    graph: ExportedGraph
    node: ExportedNode
    template: Mapping[str, Any]
    """What the names of the call stand for: `(index of an operand, whether it is a number)`, or a plain value."""

    def __call__(self, b: Builder, operands: Sequence[Node], known: Callable[[Node], Any]) -> Node:
        """The node, or a tuple of its results. Raises InferError or VerifyError for what still is not known."""
        inner = CallLowering(self.whole, b, known, may_defer=False)
        inner.graph = self.graph
        for name, t in self.template.items():
            inner.values[name] = _filled(t, operands)
        try:
            made = [inner.node_of(v) for v in inner._flat(self.node, inner._by_rule(self.node)[0])]
        except InferError as e:
            raise VerifyError(e.diagnostic(self.whole.span(self.node), f"{self.node.operator} '{self.node.name}': ")) from None
        return made[0] if len(made) == 1 else b.pack(*made)


@dataclass(frozen=True)
class _Operand:
    index: int
    number: bool = False


def _template(value: Value, place: Mapping[Node, int]) -> Any:
    if isinstance(value, SymbolicNumber):
        return _Operand(place[value.node], True)
    if isinstance(value, Node):
        return _Operand(place[value])
    return tuple(_template(v, place) for v in value) if isinstance(value, tuple) else value


def _filled(template: Any, operands: Sequence[Node]) -> Value:
    if isinstance(template, _Operand):
        node = operands[template.index]
        return SymbolicNumber(node) if template.number else node
    return tuple(_filled(t, operands) for t in template) if isinstance(template, tuple) else template


def leaves(value: Any) -> Iterator[Any]:
    """The items of nested lists; None stays one."""
    if isinstance(value, (tuple, list)):
        for v in value:
            yield from leaves(v)
    else:
        yield value


def leaves_of(values: Any) -> Iterator[Node]:
    """The nodes in values."""
    for v in leaves(values):
        if isinstance(v, (Node, SymbolicNumber)):
            yield v if isinstance(v, Node) else v.node


def _may_be(made: Dims, declared: Dims) -> bool:
    """Whether two shapes may be the same: sizes that are symbols may be any."""
    return len(made) == len(declared) and all(
        a == b for a, b in zip(made, declared, strict=True) if isinstance(a, int) and isinstance(b, int)
    )


MAX_SHOWN = 200


def _shown(node: ExportedNode) -> str:
    """The arguments that are no tensors in short, to be looked at."""
    plain = [
        (n, v) for n, _, v in node.arguments if not names_in(v if isinstance(v, tuple) else (v,)) and not isinstance(v, NestedGraph)
    ]
    return ", ".join(f"{n} = {v}" for n, v in plain)[:MAX_SHOWN]
