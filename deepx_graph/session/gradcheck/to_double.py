"""A program in double precision: what finite differences need.

Every float becomes f64 and every complex number c128, in types, constants, attributes and bodies; integers stay. The program
computes the same function but for rounding; operations on the bits of floats no longer fit then, and are reported.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deepx_graph.errors import InferError, VerifyError
from deepx_graph.ir import Function, Module, Node
from deepx_graph.ir.rebuild import rebuilt
from deepx_graph.ir.structure import PARAM
from deepx_graph.literal import Literal
from deepx_graph.types import C128, F64, DType, TensorType, Type, tensor


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
