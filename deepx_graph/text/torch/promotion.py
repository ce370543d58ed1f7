"""Which element type operands are brought to. Source: "Type promotion", torch/docs/source/tensor_attributes.rst.

Tensors with axes decide; those without, and then Python's numbers, only raise the kind: bool, integer, float, complex.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.types import BOOL, C64, C128, F32, I16, I64, DType, as_tensor


def kind_of(dtype: DType) -> int:
    """Bool, integer, float, complex, in the order in which one raises the other."""
    return 0 if dtype is BOOL else 1 if dtype.is_integer else 2 if dtype.is_float else 3


def promoted(a: DType, b: DType) -> DType:
    """The type that holds both. Raises InferError for narrow floats that torch does not bring together."""
    if a is b:
        return a
    low, high = sorted((a, b), key=kind_of)
    if kind_of(low) != kind_of(high):
        return _complex_of(low) if high is C64 and low.is_float else high
    if a.bits != b.bits and (a.kind == b.kind):
        wide = max(a, b, key=lambda d: d.bits)
        if wide.is_float and min(a.bits, b.bits) < 16:
            raise InferError(f"operands of the types {a} and {b}", expected="equal types")
        return wide
    if high.is_float:
        return F32  # f16 and bf16
    unsigned, signed = sorted((a, b), key=lambda d: d.kind == "int")
    if signed.bits > unsigned.bits:
        return signed
    if unsigned.bits == 8:
        return I16
    raise InferError(f"operands of the types {a} and {b}", expected="equal types")


def _complex_of(real: DType) -> DType:
    return C128 if real.bits > 32 else C64


def number_type(value: Any) -> DType:
    """The type of a number of Python."""
    return BOOL if isinstance(value, bool) else I64 if isinstance(value, int) else F32 if isinstance(value, float) else C64


def result_type(values: Iterable[Any]) -> DType:
    """The type that tensors and numbers are brought to."""
    tiers: list[list[DType]] = [[], [], []]
    for v in values:
        if isinstance(v, Node):
            type = as_tensor(v.type)
            tiers[0 if type.dims != () else 1].append(type.dtype)
        elif isinstance(v, (bool, int, float, complex)):
            tiers[2].append(number_type(v))
        elif v is not None:  # a number that is not known yet
            dtype = as_tensor(v.node.type).dtype
            tiers[2].append(F32 if dtype.is_float else dtype)
    found: DType | None = None
    for tier in tiers:
        if tier:
            joint = reduce(promoted, tier)
            if found is None:
                found = joint
            elif kind_of(joint) > kind_of(found):
                found = _complex_of(found) if joint.kind == "complex" and found.is_float else joint
    if found is None:
        raise InferError("there is no operand", expected="tensors or numbers")
    return found
