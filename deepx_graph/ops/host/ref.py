"""References: cells whose content changes. They are effects: each takes the state and gives it, so that their order is an edge.

At run time a reference is a `RefValue`; two references are never the same one unless one was copied from the other. A cell may hold
anything, functions and references too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Node, Op, Operand, Result, examples
from deepx_graph.ir.constraint import REF_VALUE, STATE_VALUE, VALUE
from deepx_graph.ops.data.adt import RefValue
from deepx_graph.types import STATE, RefType, TupleType, Type, compatible

REF_SOURCE = "TVM Relay language: references"
_STATE = Operand("state", "what happened before", type=STATE_VALUE)
_AFTER = Result("after", "the state after it", type=STATE_VALUE)


def _item(type: Type) -> Type:
    return type.item if isinstance(type, RefType) else type


def _write_type(types: Sequence[Type]) -> Type:
    if not compatible(_item(types[1]), types[2]):
        raise InferError(f"{an(types[2])} is written into {an(types[1])}", operand=2, expected=str(_item(types[1])))
    return STATE


def _write(xs: Sequence[Any]) -> Any:
    xs[1].value = xs[2]
    return xs[0]


ref_create: Op = Op(
    "ref_create", "A new reference that holds the value, and the state after it was made.",
    operands=(_STATE, Operand("value")), results=(Result("ref", type=REF_VALUE), _AFTER),
    infer=lambda types: TupleType((RefType(types[1]), STATE)), eval=lambda xs: (RefValue(xs[1]), xs[0]),
    foldable=False, example=examples.REFERENCES, source=REF_SOURCE,
)  # fmt: skip
ref_read: Op = Op(
    "ref_read", "What the reference holds, and the state after reading it.", operands=(_STATE, Operand("ref", type=REF_VALUE)),
    results=(Result(type=VALUE), _AFTER),
    infer=lambda types: TupleType((_item(types[1]), STATE)), eval=lambda xs: (xs[1].value, xs[0]), conceals="what references hold",
    foldable=False, example=examples.REFERENCES, source=REF_SOURCE,
)  # fmt: skip
ref_write: Op = Op(
    "ref_write", "The state after the reference was given a new value to hold.",
    operands=(_STATE, Operand("ref", type=REF_VALUE), Operand("value")), results=(_AFTER,), infer=_write_type,
    eval=_write, foldable=False,
    example=examples.REFERENCES, source=REF_SOURCE,
)  # fmt: skip


class Access(NamedTuple):
    """What a node does with a reference: `ref` is None where it makes it, `value` what the reference holds then; None when read."""

    ref: Node | None
    value: Node | None


def access_of(node: Node) -> Access | None:
    """How a node makes, reads or writes a reference; None for any other node."""
    if node.op is ref_create:
        return Access(None, node.inputs[1])
    if node.op is ref_read:
        return Access(node.inputs[1], None)
    return Access(node.inputs[1], node.inputs[2]) if node.op is ref_write else None
