"""Numbers, element types, types and values of attributes as Relay writes them: `-42i16`, `1.5f`, `Tensor[(2, 3), float32]`.

A number without suffix is int32, or int64 where it needs to be; `f` alone is float32. Out-of-range numbers are errors, as in TVM.
The state of effects is not written: the reader finds it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import chain, count
from typing import Any

import numpy as np

from deepx_graph.errors import Diagnostic, InferError, VerifyError
from deepx_graph.ir import Node
from deepx_graph.literal import Literal
from deepx_graph.types import (
    ANY,
    BF16,
    BOOL,
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DataType,
    DType,
    FunctionType,
    RefType,
    StateType,
    TensorType,
    TupleType,
    Type,
    VarType,
)

DTYPES: dict[str, DType] = {
    "bool": BOOL, "int8": I8, "int16": I16, "int32": I32, "int64": I64, "uint8": U8, "uint16": U16, "uint32": U32, "uint64": U64,
    "float16": F16, "bfloat16": BF16, "float32": F32, "float64": F64,
}  # fmt: skip
"""Relay's name of each element type that it has."""

NAMES: dict[DType, str] = {d: n for n, d in DTYPES.items()}

_ALIASES = {"int": "int32", "uint": "uint32", "float": "float32", "uint1": "bool"}
_NUMBER = re.compile(r"(\d+)((?:\.\d+)?(?:[eE][+-]?\d+)?)([fiu]?)(\d*)")


def dtype_of_name(name: str) -> DType | None:
    """The element type of that name, if it is one."""
    return DTYPES.get(_ALIASES.get(name, name))


def number(text: str, negative: bool = False) -> Literal:
    """The scalar that a number means. Raises InferError when it is out of range or its suffix names no type."""
    found = _NUMBER.fullmatch(text)
    assert found is not None
    whole, rest, letter, bits = found.groups()
    sign = "-" if negative else ""
    if letter == "f" or (not letter and rest):
        return _float(sign + whole + rest, bits)
    if rest:
        raise InferError(f"'{text}' is no integer", expected="a suffix f16, f32 or f64, or none")
    return _integer(int(sign + whole), letter, bits)


def _float(text: str, bits: str) -> Literal:
    dtype = DTYPES.get(f"float{bits or 32}")
    if dtype is None or dtype.np is None:
        raise InferError(f"no element type float{bits}", expected="f16, f32 or f64")
    value = float(text)
    greatest = float(np.finfo(dtype.np).max)
    if abs(value) > greatest:
        raise InferError(f"{text} is out of range for float{bits or 32}", expected=f"at most {greatest:g}")
    return Literal(np.asarray(value, dtype.np))


def _integer(value: int, letter: str, bits: str) -> Literal:
    name = f"{'u' if letter == 'u' else ''}int{bits or 32}"
    if not bits and not letter and not -(1 << 31) <= value < 1 << 31:
        name = "int64"
    dtype = DTYPES.get(name)
    if dtype is None:
        raise InferError(f"no element type {name}", expected="i8, i16, i32 or i64")
    low, high = (0, (1 << dtype.bits) - 1) if dtype.kind == "uint" else (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1)
    if not low <= value <= high:
        raise InferError(f"{value} is out of range for {name}", expected=f"{low} to {high}")
    return Literal(np.asarray(value, dtype.np))


_SUFFIX = {I8: "i8", I16: "i16", I32: "", I64: "i64", F16: "f16", F32: "f", F64: "f64"}


def number_text(literal: Literal) -> str | None:
    """A scalar as Relay writes it; None when no number of the text means exactly this one."""
    value: Any = literal.splat_value
    if value is None:
        return None
    if literal.dtype is BOOL:
        return "True" if value else "False"
    suffix = _SUFFIX.get(literal.dtype)
    if suffix is None or not np.isfinite(value):
        return None
    if literal.dtype.is_integer:
        text = str(int(value))
    elif 1e-4 <= abs(float(value)) < 1e16 or value == 0:
        text = np.format_float_positional(value, trim="-")
    else:
        text = str(value)
    body = text.lstrip("-")
    plain = number(body + suffix, text.startswith("-"))
    return text + suffix if plain.array.tobytes() == np.asarray(value).tobytes() else None


# --- types and attributes -------------------------------------------------------------------------------------------


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


# --- names and calls ------------------------------------------------------------------------------------------------

def unused(name: str, taken: set[str], mark: str = ".") -> str:
    """The name, with a number behind it where it is taken; taken from now on."""
    found = next(n for n in chain((name,), (f"{name}{mark}{k}" for k in count(1))) if n not in taken)
    taken.add(found)
    return found


Text = Sequence[str | Node]
"""A node's expression: words, and the nodes whose names stand between them."""


def listed(items: Iterable[str | Node]) -> list[str | Node]:
    """The items with commas between them."""
    return [part for item in items for part in (", ", item)][1:]


def call(name: str | Node, *args: Node | str, **attrs: Any) -> list[str | Node]:
    """`name(args, attr=value)` as a text."""
    return [name, "(", *listed([*args, *(f"{k}={attribute_text(v)}" for k, v in attrs.items())]), ")"]
