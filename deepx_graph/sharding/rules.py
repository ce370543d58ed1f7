"""The rule by which each node of a program is split over devices."""

from __future__ import annotations

from collections.abc import Iterator

from deepx_graph.ir import Function, Node
from deepx_graph.ir.factor_rule import POINTWISE, FactorRule, Partitioning
from deepx_graph.ir.structure import PARAM
from deepx_graph.types import TensorType, TupleType


def partitioning_of(node: Node) -> Partitioning | None:
    """How the operation of the node is split; None where it declares nothing."""
    return node.op.sharding or (POINTWISE if node.op.elementwise else None)


def factor_rule(node: Node) -> FactorRule | None:
    """The factors of the node; None where its operation declares none or a size is not known."""
    found = partitioning_of(node)
    if found is None or not all(map(_is_static, (node, *node.inputs))):
        return None
    return found.rule(node)


def makes_constants(node: Node) -> bool:
    """Whether the node has no operands and is no parameter: each device can make of it what each user needs."""
    return not node.inputs and node.op is not PARAM and isinstance(node.type, TensorType) and node.op.total


def _is_static(node: Node) -> bool:
    types = node.type.items if isinstance(node.type, TupleType) else (node.type,)
    return all(isinstance(t, TensorType) and t.is_static for t in types)


def factor_rules(function: Function) -> Iterator[tuple[Node, FactorRule]]:
    """The nodes of a function that have a rule, with it, in their order."""
    for node in function.nodes:
        if (rule := factor_rule(node)) is not None:
            yield node, rule
