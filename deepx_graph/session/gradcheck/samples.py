"""What gradients are checked at: a program in double precision, and random inputs at which its operations are defined.

Every float becomes f64 and every complex number c128, in types, constants, attributes and bodies; integers stay. The program
computes the same function but for rounding; operations on the bits of floats no longer fit then, and are reported.

Operations say which of their operands must not cross (`Op.ordered`, as the bounds of clamp). Where inputs are such operands they
are moved apart; where computed values cross nothing can be said, and the sample does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError, VerifyError
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import rebuilt
from deepx_graph.ir.structure import PARAM
from deepx_graph.literal import Array, Literal
from deepx_graph.types import C128, F64, DType, TensorType, Type, tensor

TRIES = 4
"""How often inputs are moved before a sample is given up."""

GAP = 0.1
"""How far apart bounds are put that crossed."""

Crossed = Mapping[Node, tuple[Array, Array]]
"""Nodes whose operands crossed, with the values of the lower and the upper one."""


def random_value(rng: np.random.Generator, type: Any) -> Array:
    """Numbers between -2 and 2, small integers, bools; a dimension that is not known is 3."""
    shape = tuple(d if isinstance(d, int) else 3 for d in type.dims)
    if type.dtype.kind == "bool":
        return np.asarray(rng.random(shape) < 0.5)
    if type.dtype.is_integer:
        return np.asarray(rng.integers(0, 4, shape)).astype(type.dtype.np)
    value = rng.uniform(-2, 2, shape) + (1j * rng.uniform(-2, 2, shape) if type.dtype.kind == "complex" else 0)
    return np.asarray(value).astype(type.dtype.np)


def crossing(node: Node, values: Sequence[Any]) -> tuple[Array, Array] | None:
    """The values of the operands of a node that should be in order, when they are not."""
    if not node.op.ordered:
        return None
    named = dict(zip(node.op.named(node.inputs), values, strict=True))
    low, high = (named[name] for name in node.op.ordered)
    return (low, high) if np.any(low > high) else None


def in_order(run: Callable[[Sequence[Array]], Crossed], args: list[Array], params: Sequence[Node]) -> tuple[list[Array], Crossed]:
    """The inputs, moved until nothing crosses in a run of the program, and what crosses even so; `params` are their nodes."""
    crossed = run(args)
    for _ in range(TRIES):
        if not crossed:
            break
        moved = list(args)
        for node, (low, high) in crossed.items():
            _move(moved, {p: k for k, p in enumerate(params)}, node, low, high)
        if all(x is y for x, y in zip(moved, args, strict=True)):
            break
        args, crossed = moved, run(moved)
    return args, crossed


def _move(args: list[Array], places: Mapping[Node, int], node: Node, low: Array, high: Array) -> None:
    """Puts the upper bound above the lower one where it is an input, else the lower one below the upper."""
    lower, upper = (node.op.named(node.inputs)[name] for name in node.op.ordered)
    if upper.op is PARAM and upper in places:
        k, wanted = places[upper], np.maximum(high, low + np.asarray(GAP, low.dtype))
        args[k] = np.asarray(wanted.max() if args[k].ndim == 0 else wanted, args[k].dtype)
    elif lower.op is PARAM and lower in places:
        k, wanted = places[lower], np.minimum(low, high - np.asarray(GAP, high.dtype))
        args[k] = np.asarray(wanted.min() if args[k].ndim == 0 else wanted, args[k].dtype)


# --- double precision -----------------------------------------------------------------------------------------------


def widened(module: Module) -> Module:
    """The module in double precision. Raises VerifyError, at the operation, where that is not possible."""
    return module.with_functions(map(_function, module.functions))


def wide_type(type: Type) -> Type:
    """The type with f64 for floats and c128 for complex numbers."""
    return tensor(_dtype(type.dtype), type.dims) if isinstance(type, TensorType) else type.map(wide_type)


def _dtype(dtype: DType) -> DType:
    return F64 if dtype.is_float else C128 if dtype.kind == "complex" else dtype


def _value(value: Any) -> Any:
    match value:
        case DType():
            return _dtype(value)
        case Type():
            return wide_type(value)
        case Literal():
            wide = _dtype(value.dtype)
            if wide is value.dtype:
                return value
            splat = value.splat_value
            if splat is not None:
                return Literal.splat(np.asarray(splat).astype(wide.np), tensor(wide, value.type.dims))
            return Literal(value.array.astype(wide.np))
        case Function():
            return _function(value)
    return value


def _function(function: Function) -> Function:
    return rebuilt(function, _node)


def _node(node: Node, inputs: tuple[Node, ...]) -> Node:
    attrs = tuple(map(_value, node.attrs))
    try:
        type = wide_type(node.type) if node.op is PARAM else node.op.infer([i.type for i in inputs], *attrs)
    except InferError as e:
        raise VerifyError(e.diagnostic(node.span, f"{node.op.name}: in double precision ")) from None
    return Node(node.op, inputs, attrs, type, node.origin)
