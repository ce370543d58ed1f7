"""The words of the sea form: names, strings, numbers, types and dense literals, as text and back.

Printing and reading stand side by side, so that they stay inverse to each other. Strings and odd names are written as JSON strings,
in ASCII: nothing that came from a file can act on a terminal. This module knows no graph.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.literal import Array, Literal
from deepx_graph.types import (
    STRING,
    DataType,
    DType,
    FunctionType,
    RefType,
    StateType,
    TapeType,
    TensorType,
    TupleType,
    Type,
    VarType,
)

VERSION = 1

DENSE_LIMIT = 64
"""Literals of more elements than this are written as bytes."""

BARE_NAME = re.compile(r"[A-Za-z_][\w.$-]*", re.ASCII)
_FACTOR = r"\(*(?:\d+|[A-Za-z_?][\w?.]*)\)*"
_BARE_DIM = re.compile(rf"(?!\d+\Z){_FACTOR}(?:[+*]{_FACTOR})*", re.ASCII)


def is_bare_dim(text: str) -> bool:
    """Whether it is a symbol, or a sum or product of symbols and sizes, which needs no quotes."""
    depths = list(accumulate((c == "(") - (c == ")") for c in text))
    return bool(_BARE_DIM.fullmatch(text)) and min(depths) >= 0 and depths[-1] == 0


def quote(text: str) -> str:
    """A JSON string, all ASCII."""
    return json.dumps(text)


def name_text(name: str) -> str:
    """A name of a value, function or op: bare where it can be, else quoted."""
    return name if BARE_NAME.fullmatch(name) else quote(name)


# --- types --------------------------------------------------------------------------------------------------------


def type_text(type: Type) -> str:
    """`f32[2,?1]`, `(f32[], state)`, `(f32[]) -> (f32[])`, `ref(f32[])`, `@List<f32[]>`, `$A`, `state`."""
    match type:
        case TensorType(dtype, dims):
            return f"{dtype}[{'*' if dims is None else ','.join(map(_dim_text, dims))}]"
        case TupleType(items):
            return f"({', '.join(map(type_text, items))})"
        case FunctionType(params, results):
            return f"({', '.join(map(type_text, params))}) -> ({', '.join(map(type_text, results))})"
        case RefType(item):
            return f"ref({type_text(item)})"
        case DataType(name, args):
            return f"@{name_text(name)}" + (f"<{', '.join(map(type_text, args))}>" if args else "")
        case VarType(name):
            return f"${name_text(name)}"
        case StateType():
            return "state"
        case TapeType():
            return "tape"
    raise TypeError(f"no text form for the type {type}")


def _dim_text(dim: int | str) -> str:
    return str(dim) if isinstance(dim, int) or is_bare_dim(dim) else quote(dim)


# --- numbers ------------------------------------------------------------------------------------------------------


def float_text(value: float) -> str:
    """The shortest text that reads back as the same float; NaNs other than the usual one by their bits."""
    if math.isnan(value):
        bits = struct.pack(">d", value).hex()
        return "nan" if bits == "7ff8000000000000" else f"nan<0x{bits}>"
    return repr(value)


def float_of(text: str) -> float:
    """The float that `float_text` wrote. Raises ValueError."""
    if text.startswith("nan<"):
        return float(struct.unpack(">d", bytes.fromhex(text[6:-1]))[0])
    return float(text)


# --- dense literals -----------------------------------------------------------------------------------------------


def dense_text(literal: Literal) -> str:
    """`dense<1.5> : f32[2,3]` for equal elements, `dense<[[1, 2], [3, 4]]> : i32[2,2]`, or `dense<0x...>`: the bytes."""
    one = literal.splat_value
    array = literal.array if one is None else np.asarray(one)
    return f"dense<{_elements_text(array, literal.dtype)}> : {type_text(literal.type)}"


def _elements_text(array: Array, dtype: DType) -> str:
    if dtype is STRING:
        return re.sub("[<>]", lambda c: f"\\u{ord(c[0]):04x}", json.dumps(array.tolist()))
    if array.size <= DENSE_LIMIT:
        words = [_word(x, dtype) for x in array.reshape(-1)]
        try:
            same = _elements(words, dtype).tobytes() == np.ascontiguousarray(array).tobytes()
        except (ValueError, OverflowError):
            same = False
        if same:
            return _nested(words, array.shape)
    return "0x" + np.ascontiguousarray(array).tobytes().hex()


def _word(value: np.generic, dtype: DType) -> str:
    if dtype.kind == "bool":
        return "true" if value else "false"
    if dtype.is_integer:
        return str(int(value))
    return str(value).replace(" ", "").strip("()")


def _nested(words: Sequence[str], shape: tuple[int, ...]) -> str:
    """The words in brackets, one pair per dimension."""
    if not shape:
        return words[0]
    items = list(words)
    for extent in reversed(shape[1:] if items else ()):
        items = [f"[{', '.join(items[k : k + extent])}]" for k in range(0, len(items), extent)]
    return f"[{', '.join(items)}]"


_PARSE: dict[str, Callable[[str], object]] = {
    "bool": {"true": True, "false": False}.__getitem__, "int": int, "uint": int, "float": float, "complex": complex,
}  # fmt: skip


def _elements(words: Sequence[str], dtype: DType) -> Array:
    """Raises ValueError, KeyError or OverflowError for a word that is no element of the dtype."""
    values: list[Any] = list(map(_PARSE[dtype.kind], words))
    if dtype.is_integer:
        low, high = (-(1 << dtype.bits - 1), 1 << dtype.bits - 1) if dtype.kind == "int" else (0, 1 << dtype.bits)
        for v in values:
            if not low <= v < high:
                raise OverflowError(f"{v} is out of range")
        return np.array(values, np.uint64 if dtype.kind == "uint" else np.int64).astype(dtype.np)
    wide = {"bool": np.bool_, "complex": np.complex128}.get(dtype.kind, np.float64)
    with np.errstate(all="ignore"):
        return np.array(values, wide).astype(dtype.np)


def literal_of(body: str, type: TensorType) -> Literal:
    """The literal that `dense_text` wrote as `dense<body> : type`. Raises InferError with what is wrong."""
    try:
        array = _array_of(body, type)
    except (KeyError, ValueError, OverflowError) as e:
        raise InferError(f"these are not elements of {type}: {e}", expected=_example(type)) from None
    return Literal(array)


def _array_of(body: str, type: TensorType) -> Array:
    shape = type.shape
    if type.dtype is STRING:
        return _texts_of(body, shape)
    if body.startswith("0x"):
        data = bytes.fromhex(body[2:])
        whole = len(data) == type.nbytes
        if not whole and len(data) != type.dtype.itemsize:
            raise ValueError(f"{len(data)} bytes where {type.nbytes} are needed")
        array = np.frombuffer(data, type.dtype.np)
        return array.reshape(shape) if whole else np.broadcast_to(array.reshape(()), shape)
    if "[" not in body:
        return np.broadcast_to(_elements([body.strip()], type.dtype).reshape(()), shape)
    flat = body.replace("[", " ").replace("]", " ")
    words = [w.strip() for w in flat.split(",")] if flat.strip() else []
    if len(words) != type.size:
        raise ValueError(f"{len(words)} elements where {type.size} are needed")
    if re.sub(r"[^\[\],]", "", body) != _nested([""] * len(words), shape).replace(" ", ""):
        raise ValueError("the brackets do not follow the shape")
    return _elements(words, type.dtype).reshape(shape)


def _texts_of(body: str, shape: tuple[int, ...]) -> Array:
    """Texts in brackets. Raises ValueError for other values, and for as many as do not fit."""
    try:
        found = np.array(json.loads(body), np.object_)
    except RecursionError:
        raise ValueError("too many brackets") from None
    if found.shape != shape or not all(isinstance(t, str) for t in found.reshape(-1).tolist()):
        raise ValueError("no texts of that shape")
    return found


def _example(type: TensorType) -> str:
    shown = {"bool": "true", "complex": "1+2j", "float": "1.5", "text": '"a"'}.get(type.dtype.kind, "1")
    return f"dense<{shown}> for equal elements, or one per element in brackets"
