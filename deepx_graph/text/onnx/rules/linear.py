"""Matrix products: MatMul, Gemm, Einsum, products of integers, determinants."""

from __future__ import annotations

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.products import determinant, einsum, product, scaled
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.types import I32, DType


def _matmul(c: NodeContext) -> Node:
    return product(c, c.node(), c.node(1))


def _gemm(c: NodeContext) -> Node:
    x, y = c.node(), c.node(1)
    if c.rank() != 2 or c.rank(1) != 2:
        raise InferError(f"operands {c.type()} and {c.type(1)}", expected="two matrices")
    made = c(ops.dot_general, x, y, lhs_contracting_dimensions=(0 if c.flag("transA") else 1,),
             rhs_contracting_dimensions=(1 if c.flag("transB") else 0,))
    alpha, beta = c.real("alpha", 1.0), c.real("beta", 1.0)
    made = scaled(c, made, alpha)
    if not c.has(2):
        return made
    bias = scaled(c, c.node(2), beta)
    return c(ops.add, made, c.broadcast_to(bias, c.dims_of(made)) if c.dims_of(bias) else bias)


# --- integers -------------------------------------------------------------------------------------------------------


def less_zero(c: NodeContext, x: Node, zero: Node | None, axis: int, dtype: DType = I32) -> Node:
    """The operand less its zero point, one number or one for each place along an axis, in a wider type."""
    wide = c.cast(x, dtype)
    if zero is None:
        return wide
    dims = c.dims_of(zero)
    offset = c.cast(zero, dtype)
    if len(dims) == 1 and dims[0] == 1:
        offset = c.shaped(offset, ())
    elif len(dims) == 1:
        offset = c.along(offset, c.dims_of(wide), (axis % len(c.dims_of(wide)),))
    elif dims:
        offset = c.broadcast_to(offset, c.dims_of(wide))
    return c(ops.subtract, wide, offset)


def _matmul_integer(c: NodeContext) -> Node:
    x = less_zero(c, c.node(), c.node(2) if c.has(2) else None, -2)
    y = less_zero(c, c.node(1), c.node(3) if c.has(3) else None, -1)
    return product(c, x, y)


# --- determinants ---------------------------------------------------------------------------------------------------


def _det(c: NodeContext) -> Node:
    """By elimination, the greatest element of a column first; the steps are as many as the matrix has rows."""
    shape = c.shape()
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise InferError(f"operand 0 is {c.type()}", operand=0, expected="square matrices")
    return determinant(c, c.node(), shape[-1], tuple(shape[:-2]))


LINEAR: Rules = {
    "MatMul": _matmul, "Gemm": _gemm, "MatMulInteger": _matmul_integer, "Det": _det,
    "Einsum": lambda c: einsum(c, c.text("equation"), c.nodes()),
}  # fmt: skip
