"""How Relay writes types and attribute values. The state of effects is not written: the reader finds it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, VerifyError
from deepx_graph.text.relay.reader.literals import NAMES
from deepx_graph.types import ANY, DataType, FunctionType, RefType, StateType, TensorType, TupleType, Type, VarType


def type_text(type: Type) -> str:
    """A type as Relay writes it; `_` for an unknown one. Raises VerifyError for a type that Relay has not."""
    match type:
        case TensorType(dtype, dims):
            return "_" if dtype is ANY or dims is None else _tensor_text(type)
        case TupleType(items):
            inner = ", ".join(map(type_text, items))
            return f"({inner},)" if len(items) == 1 else f"({inner})"
        case FunctionType(params, results):
            given, made = ([t for t in side if not isinstance(t, StateType)] for side in (params, results))
            return f"fn ({', '.join(map(type_text, given))}) -> {result_text(made)}"
        case RefType(item):
            return f"ref({type_text(item)})"
        case DataType(name, args):
            return f"{name}[{', '.join(map(type_text, args))}]" if args else name
        case VarType(name):
            return "_" if name.startswith("?") else name
    return "_"


def result_text(results: Sequence[Type]) -> str:
    """The type of a function's result; several are a tuple."""
    return type_text(results[0] if len(results) == 1 else TupleType(tuple(results)))


def _tensor_text(type: TensorType) -> str:
    name = NAMES.get(type.dtype)
    if name is None:
        raise VerifyError(Diagnostic(f"Relay has no element type {type.dtype}"))
    assert type.dims is not None
    if not type.dims:
        return name
    return f"Tensor[({', '.join('?' if isinstance(d, str) else str(d) for d in type.dims)}), {name}]"


def attribute_text(value: Any) -> str:
    """An attribute's value as Relay writes it."""
    match value:
        case None:
            return "None"
        case bool():
            return "True" if value else "False"
        case int():
            return str(value)
        case float():
            single = float(np.float32(value)) == value
            return f"{np.format_float_positional(np.float32(value), trim='-')}f" if single else f"{value!r}f64"
        case str():
            return json.dumps(value)
        case tuple() | list():
            return f"[{', '.join(map(attribute_text, value))}]"
    raise TypeError(f"no text form for {value!r}")


def variables(type: Type) -> list[str]:
    """The type variables of a type, in order of appearance, those that only stand for unknowns left out."""
    found: list[str] = []
    stack = [type]
    while stack:
        part = stack.pop()
        if isinstance(part, VarType) and part.name not in found and not part.name.startswith("?"):
            found.append(part.name)
        stack += reversed(part.parts)
    return found
