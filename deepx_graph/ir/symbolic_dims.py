"""Sizes for symbols: what `?1` is once the inputs are known, and expressions over symbols (`?1*3`, `(?1+2)*?2`) as ints.

The expressions are those that `types.add_dims` and `types.mul_dims` write: names, ints, `+`, `*` and brackets.
"""

from __future__ import annotations

import math
import re
from typing import Any

from deepx_graph.errors import InferError
from deepx_graph.types import (
    Dim,
    TensorType,
    Type,
    VarType,
    is_static,
    tensor,
)

Sizes = dict[str, Any]
"""What each symbol is: the size of a dimension, and of a type variable, under `$name`, the type."""

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_TOKEN = re.compile(r"[()+*]|[^()+*]+")


def bind_sizes(declared: Type, actual: Type, sizes: Sizes) -> None:
    """Adds what the symbols of a declared type are in an actual one. Raises InferError where one would have two sizes."""
    match declared, actual:
        case TensorType(), TensorType() if declared.dims is not None and actual.dims is not None:
            for symbol, size in zip(declared.dims, actual.dims, strict=False):
                if isinstance(symbol, str) and isinstance(size, int) and sizes.setdefault(symbol, size) != size:
                    raise InferError(f"size {symbol} is {sizes[symbol]} and {size}")
        case VarType(), _ if is_static(actual):
            known = sizes.setdefault(str(declared), actual)
            if known != actual:
                raise InferError(f"type {declared} is {known} and {actual}")
        case _ if type(declared) is type(actual):
            for x, y in zip(declared.parts, actual.parts, strict=False):
                bind_sizes(x, y, sizes)


def dim_value(dim: Dim, sizes: Sizes) -> Dim:
    """The size that a dimension is; itself when a symbol in it is not known."""
    if isinstance(dim, int) or dim in sizes:
        return dim if isinstance(dim, int) else sizes[dim]
    terms: list[list[list[int]]] = [[[]]]  # for each open bracket a sum of products
    for token in _TOKEN.findall(dim):
        if token == "(":
            terms.append([[]])
        elif token == "+":
            terms[-1].append([])
        elif token == ")":
            value = sum(map(math.prod, terms.pop()))
            if not terms:
                return dim
            terms[-1][-1].append(value)
        elif token != "*":
            if token not in sizes and not _INTEGER.fullmatch(token):
                return dim
            terms[-1][-1].append(sizes[token] if token in sizes else int(token))
    return sum(map(math.prod, terms[0])) if len(terms) == 1 else dim


def resolve(value: Any, kind: str, sizes: Sizes) -> Any:
    """An attribute value with its symbols replaced; `kind` is that of the attribute."""
    if kind == "dims":
        return tuple(dim_value(d, sizes) for d in value)
    return resolve_type(value, sizes) if kind == "type" else value


def resolve_type(type: Type, sizes: Sizes) -> Type:
    """A type with its symbols replaced where they are known."""
    match type:
        case TensorType(dims=dims) if dims is not None and not type.is_static:
            return tensor(type.dtype, tuple(dim_value(d, sizes) for d in dims))
        case VarType():
            known: Type = sizes.get(str(type), type)
            return known
    return type.map(lambda t: resolve_type(t, sizes))


