"""Quantised types, `!quant.uniform<i8:f32:0, {0.1:-30, 0.5:-20}>`: what they say, and what operations on them mean.

A value of such a type stands in the graph as its storage integers. An operation on it means what StableHLO's interpreter does: the
values it stands for are computed ((stored - zero point) * scale), the operation is done on them, and its result is quantised
again (round to even, add the zero point, clamp to the storage's range). Nothing here is known outside the reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from deepx_graph import ops
from deepx_graph.ir import Builder, Node
from deepx_graph.text.stablehlo.syntax import Operation
from deepx_graph.types import DType, FunctionType, TensorType, Type, as_tensor, dtype_named

if TYPE_CHECKING:
    from deepx_graph.text.stablehlo.reader.context import OperationContext

_UNIFORM = re.compile(
    r"!quant\.uniform<\s*([iu]\d+)\s*(?:<\s*(-?\d+)\s*:\s*(-?\d+)\s*>)?\s*:\s*(\w+)\s*(?::\s*(\d+)\s*)?,\s*(\{[^{}]*\}|[^{}<>]+)>"
)
_STORED = frozenset({
    "stablehlo.bitcast_convert", "stablehlo.constant", "func.call", "stablehlo.tuple", "stablehlo.get_tuple_element",
    "stablehlo.optimization_barrier", "stablehlo.composite", "stablehlo.custom_call",
})  # fmt: skip
"""Operations that take the integers as they are; so do those with regions, whose bodies compute with quantised types again."""

KEY = "quantised"
"""Where an operation of the syntax tree keeps its types as they were written."""


@dataclass(frozen=True)
class Uniform:
    """Stored integers of `storage`, within [low, high], stand for (stored - zero point) * scale in `expressed`.

    One scale and zero point, or one for each index of `axis`.
    """

    storage: DType
    expressed: DType
    axis: int | None
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class QuantisedType(Type):
    """A tensor of stored integers, and what they stand for."""

    storage: TensorType
    uniform: Uniform


def parse_uniform(text: str) -> Uniform | None:
    """The element type of that text; None where it is none that is known here."""
    found = _UNIFORM.fullmatch(text.strip())
    if not found:
        return None
    try:
        storage, expressed = dtype_named(found[1]), dtype_named(found[4])
        pairs = [p.partition(":") for p in found[6].strip("{} ").split(",")]
        scales, zeros = tuple(float(p[0]) for p in pairs), tuple(int(p[2] or 0) for p in pairs)
    except (KeyError, ValueError):
        return None
    signed, count = storage.kind == "int", 1 << storage.bits
    low, high = (-(count // 2), count // 2 - 1) if signed else (0, count - 1)
    axis = int(found[5]) if found[5] else None
    if not storage.is_integer or not expressed.is_float or (axis is None and len(pairs) != 1):
        return None
    return Uniform(storage, expressed, axis, scales, zeros, int(found[2] or low), int(found[3] or high))


# --- the syntax tree: types of storage, what was written kept aside -----------------------------------------------


def set_aside(functions: Sequence[Operation]) -> None:
    """Every quantised type of the tree replaced by its storage's; operations keep theirs under `KEY`."""
    work = list(functions)
    while work:
        op = work.pop()
        types = (*op.operand_types, *op.result_types)
        if any(isinstance(t, QuantisedType) for t in types):
            op.extra[KEY] = (op.operand_types, op.result_types)
        op.operand_types, op.result_types = list(map(stored, op.operand_types)), list(map(stored, op.result_types))
        for name, value in op.attributes.items():
            if isinstance(value, FunctionType):
                op.attributes[name] = stored(value)
        for region in op.regions:
            for block in region:
                block.args = [a._replace(type=stored(a.type)) for a in block.args]
                work += block.operations


def stored(type: Type) -> Type:
    """The type with storage types for quantised ones."""
    return type.storage if isinstance(type, QuantisedType) else type.map(stored)


# --- meaning ------------------------------------------------------------------------------------------------------


def lowered(c: OperationContext, rule: Callable[[OperationContext], list[Node]]) -> list[Node]:
    """The results of an operation with quantised types, by the rule for the values that they stand for."""
    operands, results = c.op.extra[KEY]
    if c.op.regions or c.op.name in _STORED:
        return rule(c)
    if len(operands) == 1:
        operands = operands * len(c.inputs)
    c.op = replace(c.op, operand_types=list(map(_expressed, operands)), result_types=list(map(_expressed, results)))
    c.inputs = [_dequantise(c.b, x, t) for x, t in zip(c.inputs, operands, strict=True)]
    return [_quantise(c.b, y, t) for y, t in zip(rule(c), results, strict=True)]


def _expressed(type: Type) -> Type:
    return type.storage.with_dtype(type.uniform.expressed) if isinstance(type, QuantisedType) else type


def _dequantise(b: Builder, x: Node, type: Type) -> Node:
    if not isinstance(type, QuantisedType):
        return x
    u = type.uniform
    wide = b(ops.convert, x, dtype=u.expressed)
    return b(ops.multiply, b(ops.subtract, wide, _spread(b, u, u.zero_points, wide)), _spread(b, u, u.scales, wide))


def _quantise(b: Builder, y: Node, type: Type) -> Node:
    if not isinstance(type, QuantisedType):
        return y
    u = type.uniform
    if as_tensor(y.type).dtype is not u.expressed:
        y = b(ops.convert, y, dtype=u.expressed)
    steps = b(ops.round_nearest_even, b(ops.divide, y, _spread(b, u, u.scales, y)))
    moved = b(ops.add, steps, _spread(b, u, u.zero_points, y))
    return b(ops.convert, b(ops.clamp, b.like(u.low, y), moved, b.like(u.high, y)), dtype=u.storage)


def _spread(b: Builder, u: Uniform, values: Sequence[Any], like: Node) -> Node:
    """The scale or zero point of each element; a scalar where there is one for all."""
    if u.axis is None:
        return b.constant(np.asarray(values[0]).astype(u.expressed.np))
    row = b.constant(np.asarray(values).astype(u.expressed.np))
    return b(ops.broadcast_in_dim, row, shape=as_tensor(like.type).dims, broadcast_dimensions=(u.axis,))
