"""The operators of a model kept as they are, as a program of their own beside their lowering.

The lowering of a model, with equal nodes built once, numbers its values by what they mean. An operator is kept unless that tells
better: where its results are values that there are already (it computes again what another one does, or changes nothing), where
they are known and take no more room than what they are made of, or where it is a call or a branch whose own operators are kept;
a loop is kept unless one operator does what it does, and what runtimes look for to compute in integers always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Node, Origin
from deepx_graph.ir.structure import CONSTANT, PARAM, value_of
from deepx_graph.literal import Literal
from deepx_graph.ops.known import KnownValues
from deepx_graph.ops.known_sizes import known_array
from deepx_graph.text.common.protobuf_writer import encode
from deepx_graph.text.onnx.nested import nodes_within
from deepx_graph.text.onnx.printer.values import tensor_of
from deepx_graph.text.onnx.schema import SCHEMA, GraphProto, NodeProto
from deepx_graph.text.onnx.scope import domain_of
from deepx_graph.types import Dims, TensorType, TupleType, Type, is_static, nbytes

if TYPE_CHECKING:
    from deepx_graph.text.onnx.context import Value

SMALL = 64
"""Bytes of a constant that always take the place of an operator: its own message has about as many."""


MATCHED = frozenset({"DequantizeLinear"})
"""What runtimes look for around an operator, to run both as one of integers: constants in its place would be run in floats."""


class KeptOperators:
    """The operators of one graph as nodes, by the values of the lowering that they give."""

    def __init__(self, graph: GraphProto, opsets: Mapping[str, int], known: KnownValues) -> None:
        self.opsets, self.known = opsets, known
        self.count = 0
        self.uses = Counter(name for n in nodes_within(graph.nodes) for name in n.inputs)
        self.uses.update(o.name for o in graph.outputs)
        self._found: dict[Value, Node] = {}
        self._builder = Builder()
        self._room: dict[str, int] = {}
        """By the name of a value, bytes of what gives it and is read by nothing else."""

    def value(self, lowered: Value) -> Node:
        """The value of the kept program that is this one of the lowering. Raises InferError where there is none."""
        found = self.find(lowered)
        if found is None:
            raise InferError("an operator around here cannot be kept", hint="read the model with its operators lowered")
        return found

    def find(self, lowered: Value) -> Node | None:
        """The same; None where there is none."""
        if isinstance(lowered, Node) and lowered not in self._found and lowered.op in (PARAM, CONSTANT):
            return lowered
        return self._found.get(lowered)

    def record(self, node: NodeProto, origin: Origin, inputs: Mapping[str, Value], results: Sequence[Value],
               lowering: Callable[[Mapping[str, int | None]], Any], since: int) -> None:
        """Keeps an operator that was lowered; `since` is how many had been kept before those within it."""
        again = all(self.find(r) is not None and not self._grows(r) for r in results)
        most = 1 if node.op_type == "Loop" else sum(1 for _ in nodes_within([node]))
        if again and self.count - since <= most:
            return
        if self._fold(node, origin, inputs, results):
            return
        operands = {n: None if v is None else self.find(v) for n, v in inputs.items()}
        operands |= self._stated(node, origin, inputs, results)
        if any(o is None and inputs[n] is not None for n, o in operands.items()):
            return  # it depends on what a loop around it counts: the loop is kept, with all that is in it
        flat = list(dict.fromkeys(o for o in operands.values() if o is not None))
        place = {o: k for k, o in enumerate(flat)}
        template = {n: None if o is None else place[o] for n, o in operands.items()}
        self._builder.origin = origin
        types = [_type_of(r) for r in results[: len(node.outputs)]]
        made = self._builder(ops.deferred, *flat, name=f"onnx.{node.op_type}", language="onnx", lowering=lowering(template),
                             type=types[0] if len(types) == 1 else TupleType(tuple(types)))
        self.count += 1
        for k, (r, name) in enumerate(zip(results, node.outputs, strict=False)):
            self._builder.origin = replace(origin, name=name)
            value = made if len(types) == 1 else self._builder.proj(made, k)
            if r is not None and (since < self.count - 1 or self.find(r) is None or self._grows(r)):
                self._found[r] = value

    def _stated(self, node: NodeProto, origin: Origin, inputs: Mapping[str, Value], results: Sequence[Value]) -> dict[str, Node]:
        """The operand that says the shape of the result, as a constant where that says the same."""
        state = SHAPES.get(node.op_type) if domain_of(node.domain) == "" and len(node.inputs) > 1 else None
        if state is None:
            return {}
        (x, name), (result, *_) = node.inputs[:2], results
        given = inputs.get(name)
        before, after = (v.type.dims if isinstance(v, Node) and isinstance(v.type, TensorType) else None
                         for v in (inputs.get(x), result))
        if not isinstance(given, Node) or given.op is CONSTANT or before is None or after is None or any(
                a.name == "allowzero" and a.i for a in node.attributes):
            return {}
        shape = state(before, after)
        if shape is None:
            return {}
        self._builder.origin = replace(origin, name=name)
        return {name: self._builder.literal(Literal(np.asarray(shape, np.int64)))}

    def _grows(self, lowered: Value) -> bool:
        """Whether a value is a constant that an operator makes, which may take less room than it."""
        return isinstance(lowered, Node) and lowered.op is CONSTANT and lowered not in self._found and (
            value_of(lowered).is_splat and nbytes(lowered.type) > SMALL)

    def _fold(self, node: NodeProto, origin: Origin, inputs: Mapping[str, Value], results: Sequence[Value]) -> bool:
        """Makes the results constants where they are known and take no more room than the operators and constants behind them
        that nothing else reads."""
        if node.op_type in MATCHED:
            return False
        room = sum(map(len, encode(node, SCHEMA))) + sum(self._behind(n, v) for n, v in inputs.items())
        if len(node.outputs) == 1:
            self._room[node.outputs[0]] = room
        values: list[Literal] = []
        for r, name in zip(results, node.outputs, strict=False):
            if not isinstance(r, Node) or isinstance(r.type, TupleType) or not is_static(r.type) or nbytes(r.type) > 8 * room:
                return False
            found = value_of(r) if r.op is CONSTANT else known_array(r, self.known)
            if found is None:
                return False
            if not isinstance(found, Literal):
                self.known.tell(r, found)
            values.append(found if isinstance(found, Literal) else Literal(np.asarray(found)))
            room -= sum(map(len, encode(tensor_of(values[-1], name), SCHEMA)))
        if room < 0:
            return False
        for r, value, name in zip(results, values, node.outputs, strict=False):
            self._builder.origin = replace(origin, name=name)
            self._found[r] = self._builder.literal(value)
            self._room[name] = nbytes(value.type)
        return True

    def _behind(self, name: str, value: Value) -> int:
        """Bytes of what gives a value and goes when it is no longer read by the one operator that reads it."""
        if self.uses[name] != 1:
            return 0
        given = nbytes(value.type) if isinstance(value, Node) and value.op is CONSTANT else 0
        return self._room.get(name, given)


def reshaped(before: Dims, after: Dims) -> list[int] | None:
    """The shape that Reshape takes: a size that stays at its place is 0, one that nothing tells -1; None where there are more."""
    made = [d if isinstance(d, int) else 0 if before[k : k + 1] == (d,) else -1 for k, d in enumerate(after)]
    return None if made.count(-1) > 1 or 0 in after else made


def _expanded(before: Dims, after: Dims) -> list[int] | None:
    """The shape that Expand takes: a size that stays is 1; None where one is not known."""
    wide = (1,) * (len(after) - len(before)) + before
    if any(isinstance(d, str) and d != old for d, old in zip(after, wide, strict=True)):
        return None
    return [d if isinstance(d, int) else 1 for d in after]


SHAPES: dict[str, Callable[[Dims, Dims], list[int] | None]] = {"Reshape": reshaped, "Expand": _expanded}
"""How operators whose second operand is a shape say that of their result as a constant, by the sizes before and after."""


def _type_of(value: Value) -> Type:
    return value.type if isinstance(value, Node) else TupleType(tuple(_type_of(v) for v in value or ()))
