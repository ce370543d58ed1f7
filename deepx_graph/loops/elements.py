"""From nodes to tensors of loop programs: the elements that declarations state, over the elements of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.ir import Function, Node
from deepx_graph.ir.structure import CONSTANT, PROJ, TUPLE, index_of, value_of
from deepx_graph.literal import Literal
from deepx_graph.loops.builder import LoopBuilder, computed_dtype, memory
from deepx_graph.loops.complex import RULES as COMPLEX_RULES
from deepx_graph.loops.complex import Complex
from deepx_graph.loops.complex import apply as apply_complex
from deepx_graph.loops.scalar import Affine, NotExpressible
from deepx_graph.loops.storage import widened
from deepx_graph.loops.tensor import LazyTensor, in_memory
from deepx_graph.types import DType, TensorType, TupleType, is_static

Value = Any
"""Of a node: a LazyTensor, or a tuple of the values of a tuple's items."""


def constant(b: LoopBuilder, literal: Literal) -> LazyTensor:
    """A constant: a number where all elements are equal, else memory, in which what is broadcast stands once."""
    dtype = literal.type.dtype
    if (value := literal.splat_value) is not None:
        return LazyTensor(dtype, literal.type.shape, lambda b, at: b.const(value, dtype))
    repeated = [stride == 0 for stride in literal.array.strides]
    array = literal.array[tuple(slice(0, 1) if r else slice(None) for r in repeated)]
    buffer = memory(f"c{len(b.constants)}", dtype, array.shape, "constant", array)
    b.constants.append(buffer)
    stored = in_memory(buffer, dtype)
    if not any(repeated):
        return stored
    return LazyTensor(dtype, literal.type.shape,
                      lambda b, at: stored.at(b, tuple(Affine() if r else i for r, i in zip(repeated, at, strict=True))))


def value(b: LoopBuilder, node: Node, operands: Sequence[Value]) -> Value:
    """The value of a node whose elements are computed where they are read. Raises NotExpressible where its declaration has none."""
    if node.op is CONSTANT:
        return constant(b, value_of(node))
    if node.op is PROJ:
        return operands[0][index_of(node)]
    if node.op is TUPLE:
        return tuple(operands)
    if isinstance(node.type, TupleType):
        types = [tensor_type(t) for t in node.type.items]
        return tuple(_part(node, operands, k, t) for k, t in enumerate(types))
    type = tensor_type(node.type)
    return LazyTensor(type.dtype, type.shape, lambda b, at: element(b, node, operands, at))


def _part(node: Node, operands: Sequence[Value], number: int, type: TensorType) -> LazyTensor:
    key = (node, tuple(map(id, operands)))
    return LazyTensor(type.dtype, type.shape,
                  lambda b, at: b.shared((*key, at), lambda: element(b, node, operands, at))[number])


def element(b: LoopBuilder, node: Node, operands: Sequence[LazyTensor], at: tuple[Affine, ...]) -> Any:
    """One element of a node's result; of an op with several results a tuple."""
    if node.op.element is not None:
        return node.op.element(b, node, operands, at)
    tree = node.op.kernel(*node.attrs) if node.op.elementwise and node.op.kernel is not None else None
    if tree is None:
        raise NotExpressible(f"{node.op.name} has no element")
    values = scalars(b, operands, at)
    if node.op.name in COMPLEX_RULES and any(isinstance(v, Complex) for v in values):
        return apply_complex(b, node.op.name, values)
    dtype = tensor_type(node.type).dtype
    found = b.expression(tree, values, dtype)
    return settled(b, found, dtype)


def scalars(b: LoopBuilder, operands: Sequence[LazyTensor], at: Sequence[Affine]) -> list[Any]:
    """The elements of the operands of an elementwise op: those of rank 0 stand for all."""
    return [x.at(b, at if x.shape else ()) for x in operands]


def settled(b: LoopBuilder, x: Any, dtype: DType) -> Any:
    """A computed element, rounded as if it had been stored and loaded."""
    return x if isinstance(x, Complex) or computed_dtype(dtype) is dtype else widened(b, b.rounded(x, dtype), dtype)


def has_element(node: Node) -> bool:
    """Whether the declaration says what an element is."""
    op = node.op
    return op.element is not None or (op.elementwise and op.kernel is not None and op.kernel(*node.attrs) is not None)


def call(b: LoopBuilder, function: Function, scalars: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a function of rank-0 tensors for these scalars. Raises NotExpressible for one that is more than elements."""
    values: dict[Node, Value] = {}
    for param, scalar in zip(function.params, scalars, strict=True):
        values[param] = LazyTensor(tensor_type(param.type).dtype, (), lambda b, at, scalar=scalar: scalar)  # type: ignore[misc]
    fill(b, function, values)
    return tuple(values[r].at(b, ()) for r in function.results)


def fill(b: LoopBuilder, function: Function, values: dict[Node, Value]) -> None:
    """Adds the values of all nodes of a function, whose parameters have theirs."""
    for node in function.nodes:
        if node not in values:
            values[node] = value(b, node, [values[i] for i in node.inputs])


def tensor_type(type: Any) -> TensorType:
    """A type, which must be that of a tensor of known sizes. Raises NotExpressible for another."""
    if not isinstance(type, TensorType) or not is_static(type):
        raise NotExpressible(f"a value of type {type}")
    return type
