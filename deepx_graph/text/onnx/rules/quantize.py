"""Quantisation: integers and narrow floats that stand for (x - zero point) * scale, and operators on them."""

from __future__ import annotations

from typing import Any

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Node
from deepx_graph.text.common.products import product
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.text.onnx.rules.elementwise import convert
from deepx_graph.text.onnx.rules.linear import less_zero
from deepx_graph.text.onnx.rules.window import convolution
from deepx_graph.text.onnx.values import dtype_numbered
from deepx_graph.types import F32, I32, U8, DType


def spread(c: NodeContext, x: Node, dims: tuple[int, ...], axis: int, block: int) -> Node:
    """A scale or zero point for each element: one number, one for each place along an axis, or one for each block of them."""
    own = c.shape_of(x)
    if own in ((), (1,)) and own != dims:
        return c.shaped(x, ())
    axis = axis_of(axis, len(dims))
    if (len(own) == 1 and len(dims) != 1) or (len(own) == 1 and own == dims):
        return c.along(x, dims, (axis,))
    if len(own) != len(dims) or any(a != b for k, (a, b) in enumerate(zip(own, dims, strict=True)) if k != axis):
        raise InferError(f"a scale {x.type} for a tensor of shape {list(dims)}")
    size = block or -(-dims[axis] // own[axis])
    wide = (*own[: axis + 1], size, *own[axis + 1 :])
    joined = c.shaped(c.along(x, wide, [k for k in range(len(wide)) if k != axis + 1]),
                      [d * size if k == axis else d for k, d in enumerate(own)])
    return c.sliced(joined, (0,) * len(dims), dims) if c.shape_of(joined) != dims else joined


def bounds(dtype: DType) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    return (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.kind == "int" else (0, (1 << dtype.bits) - 1)


def rounded(c: NodeContext, x: Node, zero: Node | None, dtype: DType) -> Node:
    """Quotients as integers: to the nearest, even ones of two, plus the zero point, within the bounds of the type."""
    wide = c.cast(x, F32) if c.dtype_of(x).bits < 32 else x
    whole = c(ops.round_nearest_even, wide)
    if zero is not None:
        offset = c.cast(c.cast(zero, I32) if c.dtype_of(zero).bits < 8 else zero, c.dtype_of(whole))
        whole = c(ops.add, whole, offset)
    low, high = bounds(dtype)
    held = c(ops.clamp, c.like(low, whole), whole, c.like(high, whole))
    return convert(c, c(ops.convert, held, dtype=I32), dtype)


def _quantize(c: NodeContext) -> Node:
    x, dims = c.node(), c.shape()
    axis, block = c.number("axis", 1), c.number("block_size", 0)
    scale = spread(c, c.node(1), dims, axis, block)
    zero = spread(c, c.node(2), dims, axis, block) if c.has(2) else None
    dtype = c.dtype(2) if c.has(2) else dtype_numbered(c.number("output_dtype", 0) or 2)
    working = dtype_numbered(c.number("precision", 0)) if c.number("precision", 0) else c.dtype_of(scale)
    working = working if working.is_float else F32
    found = c(ops.divide, c.cast(x, working), c.cast(scale, working))
    if dtype.is_integer:
        return rounded(c, found, zero, dtype)
    if zero is not None and dtype.bits < 8:
        found = c(ops.add, found, c.cast(zero, working))
    return convert(c, found, dtype, c.flag("saturate", True))


def _dequantize(c: NodeContext) -> Node:
    x, dims = c.node(), c.shape()
    axis, block = c.number("axis", 1), c.number("block_size", 0)
    scale = spread(c, c.node(1), dims, axis, block)
    dtype = dtype_numbered(c.number("output_dtype", 0)) if c.number("output_dtype", 0) else c.dtype(1)
    wide = I32 if c.dtype().is_integer else F32
    off = c.cast(x, wide)
    if c.has(2):
        off = c(ops.subtract, off, c.cast(spread(c, c.node(2), dims, axis, block), wide))
    working = F32 if c.dtype(1).bits < 32 else c.dtype(1)
    return c.cast(c(ops.multiply, c.cast(off, working), c.cast(scale, working)), dtype)


def _dynamic(c: NodeContext) -> list[Any]:
    """Into bytes, with the scale and the zero point for the range of the elements, of which zero is one."""
    x = c.node()
    every = tuple(range(c.rank()))
    zero = c.like(0, x)
    most = c(ops.maximum, ops.reduction(c.b, ops.maximum, x, every), zero)
    least = c(ops.minimum, ops.reduction(c.b, ops.minimum, x, every), zero)
    scale = c(ops.divide, c(ops.subtract, most, least), c.like(255, x))
    start = c(ops.subtract, zero, c(ops.divide, least, scale))
    point = c(ops.convert, c(ops.round_nearest_even, c(ops.clamp, zero, start, c.like(255, x))), dtype=U8)
    return [rounded(c, c(ops.divide, x, scale), point, U8), scale, point]


def _requantized(c: NodeContext, whole: Node, factor: Node, zero: int) -> Node:
    """Sums of products of integers times a factor, as integers of the type of operand `zero`."""
    found = c(ops.multiply, c.cast(whole, F32), factor)
    return rounded(c, found, c.shaped(c.node(zero), ()), c.dtype(zero))


def _factor(c: NodeContext, a: int, b: int, y: int) -> Node:
    """scale a * scale b / scale y, the second perhaps one for each place along an axis."""
    x, w, out = (c.cast(c.node(k), F32) for k in (a, b, y))
    x, out = c.shaped(x, ()) if c.shape_of(x) == (1,) else x, c.shaped(out, ())
    w = c.shaped(w, ()) if c.shape_of(w) == (1,) else w
    return c(ops.divide, c.each(ops.multiply, x, w), out)


def _matmul(c: NodeContext) -> Node:
    x, y = less_zero(c, c.node(), c.node(2), -2), less_zero(c, c.node(3), c.node(5), -1)
    made = product(c, x, y)
    factor = _factor(c, 1, 4, 6)
    return _requantized(c, made, c.broadcast_to(factor, c.dims_of(made)) if c.dims_of(factor) else factor, 7)


def _convolution(c: NodeContext) -> Node:
    x, w = less_zero(c, c.node(), c.node(2), 1), less_zero(c, c.node(3), c.node(5), 0)
    made = convolution(c, x, w)
    if c.has(8):
        made = c(ops.add, made, c.along(c.node(8), c.dims_of(made), (1,)))
    factor = _factor(c, 1, 4, 6)
    return _requantized(c, made, c.along(factor, c.dims_of(made), (1,)) if c.dims_of(factor) else factor, 7)


QUANTIZE: Rules = {
    "QuantizeLinear": _quantize, "DequantizeLinear": _dequantize, "DynamicQuantizeLinear": _dynamic, "QLinearMatMul": _matmul,
    "QLinearConv": _convolution,
}  # fmt: skip
