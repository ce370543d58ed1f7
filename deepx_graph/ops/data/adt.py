"""Values of algebraic data types: made, told apart, taken apart.

`match` is a region whose selector is `tag(value; cases)`: branch k for the k-th case, the last one for every other constructor;
the branches read `field`s. All but `match_failed` are total: a field of another constructor is some value of its type, so that the
schedule is free to read a field before it is known that it will be used. The declarations are in the module (`Module.datas`),
against which `verify` checks these nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, RunError, an
from deepx_graph.ir import Attr, Builder, Node, Op, Operand, Result, examples
from deepx_graph.ir.constraint import DATA_VALUE, NON_NEGATIVE, VALUE
from deepx_graph.literal import Array
from deepx_graph.types import I32, DataType, RefType, TensorType, TupleType, Type, scalar

ADT_SOURCE = "TVM Relay language: algebraic data types"


@dataclass(frozen=True, slots=True, eq=False)
class DataValue:
    """A value of an algebraic data type at run time: the constructor's name and its fields."""

    constructor: str
    fields: tuple[Any, ...] = ()


@dataclass(slots=True, eq=False)
class RefValue:
    """A reference at run time: what it holds now."""

    value: Any


def as_data(type: Type, operand: int = 0) -> DataType:
    """`type` itself. Raises InferError when it is no data type."""
    if not isinstance(type, DataType):
        raise InferError(f"operand {operand} is {an(type)}", operand=operand, expected="a value of a data type")
    return type


def _construct_type(types: Sequence[Type], constructor: str, type: Type) -> Type:
    return as_data(type)


construct: Op = Op(
    "construct", "A value of a data type, made by one of its constructors.", operands=(Operand("fields", variadic=True),),
    attrs=(Attr("constructor", "str"), Attr("type", "type", summary="the data type")), infer=_construct_type,
    eval=lambda xs, constructor, type: DataValue(constructor, tuple(xs)),
    foldable=False, example=examples.DATA, results=(Result(type=DATA_VALUE),), source=ADT_SOURCE,
)  # fmt: skip


def _tag_type(types: Sequence[Type], cases: tuple[str, ...]) -> Type:
    if len(set(cases)) < len(cases) or not all(isinstance(c, str) for c in cases):
        raise InferError("the cases are not distinct names of constructors")
    return scalar(I32)


def _tag(xs: Sequence[Any], cases: tuple[str, ...]) -> Array:
    made: str = xs[0].constructor
    return np.asarray(cases.index(made) if made in cases else len(cases), np.int32)


tag: Op = Op(
    "tag", "Which of the cases, counted from 0, made the value; their number when none of them did.",
    operands=(Operand("value", type=DATA_VALUE),), attrs=(Attr("cases", "any", summary="names of constructors"),),
    infer=_tag_type, eval=_tag,
    vjp=lambda b, node, g: (None,), foldable=False, example=examples.DATA, source=ADT_SOURCE,
)  # fmt: skip


def _field_type(types: Sequence[Type], constructor: str, index: int, type: Type) -> Type:
    return type


def _field(xs: Sequence[Any], constructor: str, index: int, type: Type) -> Any:
    value: DataValue = xs[0]
    return value.fields[index] if value.constructor == constructor else some_value(type)


def some_value(type: Type) -> Any:
    """A value of the type that nobody asks for: zeros; data of no constructor; no function."""
    match type:
        case TensorType() if type.is_static:
            return np.broadcast_to(np.zeros((), type.dtype.np), type.shape)
        case TupleType(items):
            return tuple(map(some_value, items))
        case DataType():
            return DataValue("")
        case RefType(item):
            return RefValue(some_value(item))
    return None


field: Op = Op(
    "field", "One field of a value, if that constructor made it; else some value of the type.",
    operands=(Operand("value", type=DATA_VALUE),),
    attrs=(Attr("constructor", "str"), Attr("index", "int", check=NON_NEGATIVE), Attr("type", "type", summary="the field's type")),
    infer=_field_type, eval=_field, foldable=False, example=examples.DATA, results=(Result(type=VALUE),), source=ADT_SOURCE,
)  # fmt: skip


def _fail(xs: Sequence[Any], message: str, type: Type) -> Any:
    raise RunError(message)


def _no_cotangent(b: Builder, node: Node, g: Any) -> Sequence[Node | None]:
    return (None,) * len(node.inputs)


match_failed: Op = Op(
    "match_failed", "No value: the end of a run that comes here, as no pattern of a partial match fits.",
    attrs=(Attr("message", "str", "no pattern of the match fits"), Attr("type", "type", summary="of the value that is not there")),
    infer=lambda types, message, type: type, eval=_fail, vjp=_no_cotangent, foldable=False, total=False,
    example=examples.DATA, results=(Result(type=VALUE),), source=ADT_SOURCE,
)  # fmt: skip
