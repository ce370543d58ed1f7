"""Types with symbols: those that must agree, the arithmetic of dimensions, and what symbols are once the inputs are known.

Expressions over symbols (`?1*3`, `(?1+2)*?2`) have names, ints, `+`, `*`, brackets and the functions of `FUNCTIONS`, such as
`div(?1,2)`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph.errors import InferError
from deepx_graph.types.dtypes import ANY
from deepx_graph.types.kinds import Dim, Dims, TensorType, Type, VarType, is_static, tensor

# --- agreement ----------------------------------------------------------------------------------------------------


def same_dim(a: Dim, b: Dim) -> bool:
    """Whether the two may be equal: only two different ints are known not to be."""
    return not (isinstance(a, int) and isinstance(b, int)) or a == b


def merge_dims(a: Dims | None, b: Dims | None) -> Dims | None:
    """The more precise of two shapes that must agree. Raises InferError where they cannot."""
    if a is None or b is None:
        return b if a is None else a
    if a == b:
        return a
    if len(a) != len(b) or not all(map(same_dim, a, b)):
        raise InferError(f"shapes [{','.join(map(str, a))}] and [{','.join(map(str, b))}] differ")
    return tuple(y if isinstance(x, str) else x for x, y in zip(a, b, strict=True))


def merge_types(a: Type, b: Type) -> Type:
    """The more precise of two types that must agree, part by part. Raises InferError where they cannot."""
    if a == b:
        return a
    match a, b:
        case TensorType(), TensorType():
            if a.dtype is not b.dtype and ANY not in (a.dtype, b.dtype):
                raise InferError(f"dtypes {a.dtype} and {b.dtype} differ")
            return tensor(b.dtype if a.dtype is ANY else a.dtype, merge_dims(a.dims, b.dims))
        case VarType(), _:
            return b
        case _, VarType():
            return a
        case _ if type(a) is type(b) and len(a.parts) == len(b.parts) and a.with_parts(b.parts) == b:
            return a.with_parts(tuple(map(merge_types, a.parts, b.parts)))
    raise InferError(f"types {a} and {b} differ")


def compatible(a: Type, b: Type) -> bool:
    """Whether a value may have both types at once."""
    try:
        merge_types(a, b)
    except InferError:
        return False
    return True


# --- arithmetic ---------------------------------------------------------------------------------------------------

MAX_EXPRESSION = 4096
"""Characters of a dimension: sums and products of symbols double with each step that adds or multiplies one by itself."""


def _expression(sign: str, terms: list[str]) -> Dim:
    """The terms joined. Raises InferError, before they are, for an expression of more than `MAX_EXPRESSION`."""
    if sum(map(len, terms)) > MAX_EXPRESSION:
        raise InferError(f"a size that is an expression of more than {MAX_EXPRESSION} characters")
    return sign.join(terms)


def add_dims(*dims: Dim) -> Dim:
    """The sum of dimensions; symbolic where one is. Raises InferError for an expression that is too long."""
    known = sum(d for d in dims if isinstance(d, int))
    names = sorted(d for d in dims if isinstance(d, str))
    if not names:
        return known
    return _expression("+", names + ([str(known)] if known else []))


def mul_dims(dims: Sequence[Dim]) -> Dim:
    """The product of dimensions; symbolic where one is. Raises InferError for an expression that is too long."""
    known = math.prod(d for d in dims if isinstance(d, int))
    names = sorted(f"({d})" if "+" in d else d for d in dims if isinstance(d, str))
    if not names or known == 0:
        return known
    return _expression("*", names + ([str(known)] if known != 1 else []))


# --- sizes for symbols --------------------------------------------------------------------------------------------

Sizes = dict[str, Any]
"""What each symbol is: the size of a dimension, and of a type variable, under `$name`, the type."""

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_TOKEN = re.compile(r"[a-z]*\(|[)+*,]|[^()+*,]+")


def windows_along(size: int, window: int, stride: int, padding: int, base: int, dilation: int) -> int:
    """How many windows of `window` elements, `dilation` apart, fit along an axis of `size` elements, `base` apart, with padding."""
    extent = dilated(size, base) + padding
    reach = dilated(window, dilation)
    return 0 if extent < reach else (extent - reach) // stride + 1


def dilated(size: int, by: int) -> int:
    """The extent of elements that are `by` apart."""
    return (size - 1) * by + 1 if size else 0


def prime_factors(n: int) -> list[int]:
    """The prime factors of a size, in ascending order."""
    found, p = [], 2
    while p * p <= n:
        while n % p == 0:
            found.append(p)
            n //= p
        p += 1
    return [*found, n] if n > 1 else found


FUNCTIONS: dict[str, tuple[int, Callable[..., int]]] = {"window": (6, windows_along), "div": (2, lambda a, b: a // b)}
"""What an expression may call: how many arguments, and the size that it is."""


def call_dim(name: str, *args: Dim) -> Dim:
    """A function of sizes; symbolic where one is."""
    if all(isinstance(a, int) for a in args):
        return FUNCTIONS[name][1](*args)
    return f"{name}({','.join(map(str, args))})"


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
    calls = [_OpenCall("")]
    for token in _TOKEN.findall(dim):
        if token.endswith("("):
            calls.append(_OpenCall(token[:-1]))
        elif token == ",":
            calls[-1].sums.append([[]])
        elif token == "+":
            calls[-1].sums[-1].append([])
        elif token == ")":
            value = calls.pop().value()
            if not calls or value is None:
                return dim
            calls[-1].sums[-1][-1].append(value)
        elif token != "*":
            if token not in sizes and not _INTEGER.fullmatch(token):
                return dim
            calls[-1].sums[-1][-1].append(sizes[token] if token in sizes else int(token))
    found = calls[0].value() if len(calls) == 1 else None
    return dim if found is None else found


def symbols_of(dim: Dim) -> list[str]:
    """The symbols in a dimension, in order, as often as they stand there."""
    return [] if isinstance(dim, int) else [t for t in _TOKEN.findall(dim) if not (
        t.endswith("(") or t in (")", "+", "*", ",") or _INTEGER.fullmatch(t))]


class _OpenCall:
    """A bracket that is open: each argument is a sum of products; what it calls is a function, or nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sums: list[list[list[int]]] = [[[]]]

    def value(self) -> int | None:
        """The value once it is closed; None for what is no expression."""
        args = [sum(map(math.prod, terms)) for terms in self.sums]
        if not self.name:
            return args[0] if len(args) == 1 else None
        count, function = FUNCTIONS.get(self.name, (0, None))
        try:
            return function(*args) if function is not None and len(args) == count else None
        except ZeroDivisionError:
            return None


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
