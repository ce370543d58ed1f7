"""Dimensions and types that must agree, and the arithmetic of dimensions that may be symbols."""

from __future__ import annotations

import math
from collections.abc import Sequence

from deepx_graph.errors import InferError
from deepx_graph.types.dtypes import ANY
from deepx_graph.types.kinds import DataType, Dim, Dims, FunctionType, RefType, TensorType, TupleType, Type, VarType, tensor


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
    """The more precise of two types that must agree. Raises InferError where they cannot."""
    if a == b:
        return a
    match a, b:
        case TensorType(), TensorType():
            if a.dtype is not b.dtype and ANY not in (a.dtype, b.dtype):
                raise InferError(f"dtypes {a.dtype} and {b.dtype} differ")
            return tensor(b.dtype if a.dtype is ANY else a.dtype, merge_dims(a.dims, b.dims))
        case TupleType(x), TupleType(y) if len(x) == len(y):
            return TupleType(tuple(map(merge_types, x, y)))
        case FunctionType(p, r), FunctionType(q, s) if len(p) == len(q) and len(r) == len(s):
            return FunctionType(tuple(map(merge_types, p, q)), tuple(map(merge_types, r, s)))
        case RefType(x), RefType(y):
            return RefType(merge_types(x, y))
        case DataType(), DataType() if a.name == b.name and len(a.args) == len(b.args):
            return DataType(a.name, tuple(map(merge_types, a.args, b.args)))
        case VarType(), _:
            return b
        case _, VarType():
            return a
    raise InferError(f"types {a} and {b} differ")


def compatible(a: Type, b: Type) -> bool:
    """Whether a value may have both types at once."""
    try:
        merge_types(a, b)
    except InferError:
        return False
    return True


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
