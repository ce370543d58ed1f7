"""Values of algebraic data types: made, told apart, taken apart.

`match` is a region whose selector is `tag(value; cases)`: branch k for the k-th case, the last one for every other constructor;
the branches read `field`s. All but `match_failed` are total: a field of another constructor is some value of its type, so that the
schedule is free to read a field before it is known that it will be used. The declarations are in the module (`Module.datas`),
against which `verify` checks these nodes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, InferError, RunError, an, suggest
from deepx_graph.ir import Attr, Module, Node, Op, Operand, Result, examples, problem
from deepx_graph.ir.constraint import DATA_VALUE, NON_NEGATIVE, VALUE
from deepx_graph.literal import Array
from deepx_graph.types import I32, DataType, RefType, TensorType, TupleType, Type, merge_types, scalar

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


# --- what holds in a module ---------------------------------------------------------------------------------------


def _fields(module: Module, node: Node, name: str, type: Type) -> Generator[Diagnostic, None, tuple[Type, ...] | None]:
    """The types of a constructor's fields, where it is known; yields what is wrong with its name."""
    if not isinstance(type, DataType):
        return None
    data = module.data_named.get(type.name)
    if data is None:
        yield problem(node, f"no data type '{type.name}' is declared", hint=suggest(type.name, module.data_named))
        return None
    constructor = data.constructor(name)
    if constructor is not None:
        return data.field_types(constructor, type.args)
    if not data.extern:
        names = [c.name for c in data.constructors]
        yield problem(node, f"'{name}' is no constructor of {data.name}", expected=" | ".join(names[:8]), hint=suggest(name, names))
    return None


def _construct_problems(module: Module, node: Node) -> Iterator[Diagnostic]:
    name = node.attr("constructor")
    types = yield from _fields(module, node, name, node.type)
    if types is not None and len(node.inputs) != len(types):
        yield problem(node, f"{name} has {len(types)} fields and is given {len(node.inputs)}")
    elif types is not None:
        for k, i in enumerate(node.inputs):
            yield from _misfit(node, k, types[k], i.type)


def _field_problems(module: Module, node: Node) -> Iterator[Diagnostic]:
    name, index = node.attr("constructor"), node.attr("index")
    types = yield from _fields(module, node, name, node.inputs[0].type)
    if types is not None and index >= len(types):
        yield problem(node, f"{name} has {len(types)} fields and no field {index}")
    elif types is not None:
        yield from _misfit(node, index, types[index], node.type)


def _misfit(node: Node, k: int, declared: Type, type: Type) -> Iterator[Diagnostic]:
    try:
        merge_types(declared, type)
    except InferError as e:
        yield problem(node, f"field {k} of {node.attr('constructor')}: {e.message}")


def _tag_problems(module: Module, node: Node) -> Iterator[Diagnostic]:
    for name in node.attr("cases"):
        yield from _fields(module, node, name, node.inputs[0].type)


# --- operations ---------------------------------------------------------------------------------------------------


construct: Op = Op(
    "construct", "A value of a data type, made by one of its constructors.", operands=(Operand("fields", variadic=True),),
    attrs=(Attr("constructor", "str"), Attr("type", "type", summary="the data type")),
    infer=lambda types, constructor, type: as_data(type),
    eval=lambda xs, constructor, type: DataValue(constructor, tuple(xs)), in_module=_construct_problems,
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
    infer=_tag_type, eval=_tag, in_module=_tag_problems,
    vjp=lambda b, node, g: (None,), foldable=False, example=examples.DATA, source=ADT_SOURCE,
)  # fmt: skip


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
    infer=lambda types, constructor, index, type: type, eval=_field, in_module=_field_problems, conceals="the fields of data",
    foldable=False, example=examples.DATA, results=(Result(type=VALUE),), source=ADT_SOURCE,
)  # fmt: skip


def _fail(xs: Sequence[Any], message: str, type: Type) -> Any:
    raise RunError(message)


match_failed: Op = Op(
    "match_failed", "No value: the end of a run that comes here, as no pattern of a partial match fits.",
    attrs=(Attr("message", "str", "no pattern of the match fits"), Attr("type", "type", summary="of the value that is not there")),
    infer=lambda types, message, type: type, eval=_fail,
    vjp=lambda b, node, g: (None,) * len(node.inputs), foldable=False, total=False,
    example=examples.DATA, results=(Result(type=VALUE),), source=ADT_SOURCE,
)  # fmt: skip
