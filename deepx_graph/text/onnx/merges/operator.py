"""Kept operators as merges look at them: operands and attributes by their places in the standard, and who reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from deepx_graph.ir import Node, Origin
from deepx_graph.ir.structure import CONSTANT, value_of
from deepx_graph.literal import Array, Literal
from deepx_graph.ops.data.deferred import deferred
from deepx_graph.text.onnx.lower import DeferredNode
from deepx_graph.text.onnx.schema import AttributeProto, NodeProto
from deepx_graph.types import TensorType

FLOATS = (np.float32, np.float64)
"""Constants of these types are computed with."""


@dataclass(frozen=True)
class KeptOperator:
    """A kept operator that is looked at: its operands by position, None where one is left out, and its plain attributes."""

    node: Node
    lowering: DeferredNode

    @property
    def name(self) -> str:
        """The operator of the standard; empty for one of another domain."""
        message = self.lowering.node
        return message.op_type if message.domain in ("", "ai.onnx") else ""

    @property
    def operands(self) -> list[Node | None]:
        places = [self.lowering.template.get(n) if n else None for n in self.lowering.node.inputs]
        return [None if k is None else self.node.inputs[k] for k in places]

    @property
    def attributes(self) -> dict[str, AttributeProto]:
        return {a.name: a for a in self.lowering.node.attributes}

    def ints(self, name: str, default: Sequence[int] = ()) -> list[int]:
        found = self.attributes.get(name)
        return list(default) if found is None else list(found.ints)

    def number(self, name: str, default: int = 0) -> int:
        found = self.attributes.get(name)
        return default if found is None else found.i

    def constant(self, k: int) -> Array | None:
        """Operand k where it is a constant of plain floats."""
        operands = self.operands
        x = operands[k] if k < len(operands) else None
        if x is None or x.op is not CONSTANT or value_of(x).array.dtype not in FLOATS:
            return None
        return value_of(x).array

    def again(self, operands: Sequence[Node | None], attributes: Mapping[str, AttributeProto] | None = None,
              op_type: str | None = None) -> Node:
        """The operator over other operands, or another one with the same result."""
        old = self.lowering
        names = ["" if x is None else f"x{k}" for k, x in enumerate(operands)]
        flat = list(dict.fromkeys(x for x in operands if x is not None))
        template = {n: flat.index(x) for n, x in zip(names, operands, strict=True) if x is not None}
        given = self.attributes if attributes is None else attributes
        message = NodeProto(names, list(old.node.outputs), old.node.name, op_type or old.node.op_type, list(given.values()),
                            old.node.doc_string, metadata=old.node.metadata, at=old.node.at)
        lowering = DeferredNode(old.whole, old.opsets, None, message, template)
        attrs = tuple(lowering if a.name == "lowering" else f"onnx.{message.op_type}" if a.name == "name" else v
                      for a, v in zip(deferred.attrs, self.node.attrs, strict=True))
        return Node(deferred, tuple(flat), attrs, self.node.type, self.node.origin)


def operator(node: Node | None) -> KeptOperator | None:
    """The kept operator that a node is."""
    if node is None or node.op is not deferred or not isinstance(node.attr("lowering"), DeferredNode):
        return None
    return KeptOperator(node, node.attr("lowering"))


Merge = Callable[["Uses", KeptOperator], Node | None]


@dataclass
class Uses:
    """How often each node of a function is read."""

    counts: dict[Node, int] = field(default_factory=dict)

    def single(self, node: Node | None, *names: str) -> KeptOperator | None:
        """The kept operator of one of these names with one result, which nothing else reads."""
        found = operator(node)
        if found is None or found.name not in names or self.counts.get(found.node, 2) > 1 or not isinstance(
                found.node.type, TensorType):
            return None
        return found


def literal(array: Array, like: Node | None = None, name: str = "") -> Node:
    value = Literal(array)
    return Node(CONSTANT, (), (value,), value.type, Origin(name or (like.name if like is not None else "")))
