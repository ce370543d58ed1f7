"""Operators that give what there is already: by neutral elements, defaults of operands, or as another one does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.ir.structure import CONSTANT, PROJ, index_of, value_of
from deepx_graph.text.common.protobuf_writer import encode
from deepx_graph.text.onnx.merges.operator import KeptOperator, Uses, operator
from deepx_graph.text.onnx.rules.random import RANDOM
from deepx_graph.text.onnx.schema import SCHEMA, NodeProto
from deepx_graph.types import nbytes

NEUTRAL: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "Add": (0, (0, 1)), "Sub": (0, (1,)), "Mul": (1, (0, 1)), "Div": (1, (1,)), "Pow": (1, (1,)),
}
"""The number that changes nothing, and the operands that it may be. (A sum with 0 turns -0 into 0, which is left out with it.)"""


def neutral(_u: Uses, outer: KeptOperator) -> Node | None:
    """The other operand, where one is neutral and the result has its type."""
    number, places = NEUTRAL[outer.name]
    for k in places:
        x, other = outer.operands[k], outer.operands[1 - k]
        if other is not None and other.type == outer.node.type and _is_all(x, number) and outer.lowering.opsets.get("", 1) >= 7:
            return other
    return None


def _is_all(node: Node | None, number: int) -> bool:
    if node is None or node.op is not CONSTANT:
        return False
    value = value_of(node).splat_value
    return value is not None and bool(value == number)


STATES = 5
"""Where the operands of recurrences begin that are zeros where they are left out."""

MOVING = ("Slice", "Expand", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Tile", "Gather", "Split", "Identity")
"""Operators whose elements are those of their first operand."""


def without_states(_u: Uses, outer: KeptOperator) -> Node | None:
    """A recurrence without initial states that are zeros, as they are where none are given."""
    operands = outer.operands
    left = [None if STATES <= k < STATES + 2 and _is_zero(x) else x for k, x in enumerate(operands)]
    if left == operands:
        return None
    while left and left[-1] is None:
        left.pop()
    return outer.again(left)


def _is_zero(node: Node | None) -> bool:
    """Whether all elements are zero, whatever the shape is."""
    while node is not None:
        if node.op is PROJ:
            node = node.inputs[0]
        if _is_all(node, 0):
            return True
        found = operator(node)
        if found is None:
            return False
        if found.name == "ConstantOfShape":
            given = found.attributes.get("value")
            return given is None or given.tensor is None or not any(bytes(given.tensor.raw or b""))
        node = found.operands[0] if found.name in MOVING else None
    return False


MOST_HASHED = 1 << 20
"""Bytes of a constant that is looked at whole."""


def key_of(node: Node) -> Any:
    """What two nodes have in common that give the same values; None for one that may give others each time, or is large."""
    if node.op is CONSTANT:
        return (CONSTANT, value_of(node)) if nbytes(node.type) <= MOST_HASHED else None
    if node.op is PROJ:
        return PROJ, index_of(node), node.inputs
    found = operator(node)
    if found is None or not found.name or found.name in RANDOM or found.name == "Dropout":
        return None
    message = found.lowering.node
    if any(a.graph is not None or a.graphs for a in message.attributes):
        return None
    attributes = b"".join(encode(NodeProto(attributes=sorted(message.attributes, key=lambda a: a.name)), SCHEMA))
    given = tuple(bool(n) for n in message.outputs)
    return message.op_type, attributes, given, node.type, tuple(found.operands)


def shortest_named(constants: Iterable[Node]) -> dict[Any, Node]:
    """Of constants that are equal the one of the shortest name, which stands at every use of it."""
    found: dict[Any, Node] = {}
    for node in constants:
        if key := key_of(node):
            found[key] = min(found.get(key, node), node, key=lambda n: len(n.origin.name))
    return found
