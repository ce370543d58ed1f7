"""References: cells whose content changes. They are effects: each takes the state and gives it, so that their order is an edge.

At run time a reference is a `Cell`; two references are never the same one unless one was copied from the other. A cell may hold
anything, functions and references too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.errors import InferError
from deepx_graph.ir import Op, Operand
from deepx_graph.ops.adt import Cell
from deepx_graph.types import STATE, RefType, StateType, TupleType, Type, VarType, compatible

REF_SOURCE = "TVM Relay language: references"
_STATE = Operand("state", "what happened before")


def _needs_state(types: Sequence[Type]) -> None:
    if not isinstance(types[0], StateType):
        raise InferError(f"operand 0 is a {types[0]}", operand=0, expected="the state")


def _create_type(types: Sequence[Type]) -> Type:
    _needs_state(types)
    return TupleType((RefType(types[1]), STATE))


def _item(type: Type) -> Type:
    if isinstance(type, VarType):
        return type
    if not isinstance(type, RefType):
        raise InferError(f"operand 1 is a {type}", operand=1, expected="a reference")
    return type.item


def _read_type(types: Sequence[Type]) -> Type:
    _needs_state(types)
    return TupleType((_item(types[1]), STATE))


def _write_type(types: Sequence[Type]) -> Type:
    _needs_state(types)
    if not compatible(_item(types[1]), types[2]):
        raise InferError(f"a {types[2]} is written into a {types[1]}", operand=2, expected=str(_item(types[1])))
    return STATE


def _create(xs: Sequence[Any]) -> tuple[Cell, Any]:
    return Cell(xs[1]), xs[0]


def _read(xs: Sequence[Any]) -> tuple[Any, Any]:
    return xs[1].value, xs[0]


def _write(xs: Sequence[Any]) -> Any:
    xs[1].value = xs[2]
    return xs[0]


ref_create: Op = Op(
    "ref_create", "A new reference that holds the value, and the state after it was made.",
    operands=(_STATE, Operand("value")), infer=_create_type, eval=_create, foldable=False, source=REF_SOURCE,
)  # fmt: skip
ref_read: Op = Op(
    "ref_read", "What the reference holds, and the state after reading it.", operands=(_STATE, Operand("ref")),
    infer=_read_type, eval=_read, foldable=False, source=REF_SOURCE,
)  # fmt: skip
ref_write: Op = Op(
    "ref_write", "The state after the reference was given a new value to hold.",
    operands=(_STATE, Operand("ref"), Operand("value")), infer=_write_type, eval=_write, foldable=False, source=REF_SOURCE,
)  # fmt: skip

REF: tuple[Op, ...] = (ref_create, ref_read, ref_write)
