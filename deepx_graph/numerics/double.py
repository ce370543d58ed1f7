"""A program in double precision: every float becomes f64, every complex number c128, in types, constants, attributes and bodies.

Integers stay. Operations on the bits of floats, and others whose rule for types does not allow it, no longer fit then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deepx_graph.errors import InferError, VerifyError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.rebuild import rebuild, rebuilt, replaced
from deepx_graph.ir.structure import PARAM
from deepx_graph.literal import Literal
from deepx_graph.ops.math.elementwise import convert
from deepx_graph.types import C128, F64, DType, TensorType, Type, tensor


def widened(module: Module) -> Module:
    """The module in double precision. Raises VerifyError, at the operation, where that is not possible."""
    return module.with_functions(map(_function, module.functions))


Adjust = Callable[[Node, Node, tuple[Node, ...]], Node]
"""What stands for a node in a shadow: `adjust(node, wide, inputs)`, of itself in double precision over those inputs."""


def shadow(function: Function, adjust: Adjust = lambda node, wide, inputs: wide) -> tuple[Function, dict[Node, Node]]:
    """The function in double precision, and what each of its nodes has become.

    What makes floats of no float, such as random bits, and what has no form in double precision is computed as it stands, between
    conversions: its result has the same value. Raises VerifyError for a tuple that would have to be converted.
    """
    new = rebuild(function.nodes, {}, lambda node, inputs: adjust(node, _shadow_node(node, inputs), inputs))
    return replaced(function, new), new


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
                return Literal.splat(splat.astype(wide.np), tensor(wide, value.type.dims))
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


def _shadow_node(node: Node, inputs: tuple[Node, ...]) -> Node:
    if node.inputs and isinstance(node.type, TensorType) and not any(wide_type(i.type) != i.type for i in node.inputs):
        return as_it_stands(node, inputs)
    try:
        wide = _node(node, inputs)
    except VerifyError:
        return as_it_stands(node, inputs)
    return wide if wide.type == wide_type(node.type) else as_it_stands(node, inputs)


def as_it_stands(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The node of its own types over inputs that are converted to them, its result converted to double precision.

    Raises VerifyError where a tuple would have to be converted.
    """
    b = Builder(origin=node.origin)
    narrow = [_converted(b, new, old.type) for new, old in zip(inputs, node.inputs, strict=True)]
    return _converted(b, Node(node.op, tuple(narrow), node.attrs, node.type, node.origin), wide_type(node.type))


def _converted(b: Builder, node: Node, type: Type) -> Node:
    return node if node.type == type or not isinstance(type, TensorType) else b(convert, node, dtype=type.dtype)
