"""How custom calls are split: by the rule that a text states of them (`sdy.sharding_rule`), as nobody else knows what they compute.

The function of the host is called with parts then, and gives parts, or parts of a sum where a factor of operands is reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.ir.factor_rule import FactorRule, Partitioning
from deepx_graph.ir.stated_rule import RULE, read_rule
from deepx_graph.ops.math.elementwise import add
from deepx_graph.types import TupleType, as_tensor


def _stated(node: Node) -> FactorRule | None:
    """The rule that the text states of the call; None where it states none."""
    said = dict(node.origin.notes).get(RULE)
    return None if said is None else read_rule(said)


def _local(node: Node, operands: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]]) -> tuple[Any, ...]:
    """The attributes on one device: the types of results are those of parts."""
    whole = node.attr("types")
    types = TupleType(tuple(as_tensor(t).with_dims(dims) for t, dims in zip(whole.items, results, strict=True)))
    return tuple(types if value is whole else value for value in node.attrs)


STATED = Partitioning(_stated, attrs=_local, combiner=lambda node: add)
