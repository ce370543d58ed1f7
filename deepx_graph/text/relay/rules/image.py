"""Operators of Relay that treat tensors as pictures or sequences: upsampling, depth and space, local response, masks, triangles."""

from __future__ import annotations

from deepx_graph import ops
from deepx_graph.errors import InferError, an
from deepx_graph.ir import Node
from deepx_graph.text.relay.reader.context import Context, Operator, Unsupported, axis_of
from deepx_graph.text.relay.rules.window import averaged, layout_of, spread_over
from deepx_graph.types import I32


def _upsampling(c: Context) -> Node:
    """Each pixel repeated; other methods are not known here."""
    layout = layout_of(c, "layout", "NCHW", c.known().rank or 0)
    scale = {"H": c.real("scale_h", 1), "W": c.real("scale_w", 1)}
    if c.text("method", "nearest_neighbor") != "nearest_neighbor" or any(s != int(s) or s < 1 for s in scale.values()):
        raise Unsupported("upsampling by interpolation")
    x = c.args[0]
    dims = list(c.known().shape)
    for k, letter in enumerate(layout):
        times = int(scale.get(letter, 1))
        if times > 1:
            wide = (*dims[: k + 1], times, *dims[k + 1 :])
            spread = c.along(x, wide, [j for j in range(len(wide)) if j != k + 1])
            dims[k] *= times
            x = c.shaped(spread, dims)
    return x


def _depth_to_space(c: Context) -> Node:
    if c.text("layout", "NCHW") != "NCHW":
        raise Unsupported("depth_to_space in another layout")
    n, depth, height, width = c.known().shape
    size, mode = c.number("block_size"), c.text("mode", "DCR")
    if size < 1 or depth % (size * size):
        raise InferError(f"{depth} channels do not make blocks of {size} by {size}", operand=0)
    inner = depth // (size * size)
    if mode == "DCR":
        split, order = (n, size, size, inner, height, width), (0, 3, 4, 1, 5, 2)
    else:
        split, order = (n, inner, size, size, height, width), (0, 1, 4, 2, 5, 3)
    return c.shaped(c.turned(c.shaped(c.args[0], split), order), (n, inner, height * size, width * size))


def _space_to_depth(c: Context) -> Node:
    if c.text("layout", "NCHW") != "NCHW":
        raise Unsupported("space_to_depth in another layout")
    n, depth, height, width = c.known().shape
    size = c.number("block_size")
    if size < 1 or height % size or width % size:
        raise InferError(f"{height} by {width} does not split in blocks of {size} by {size}", operand=0)
    rows, columns = height // size, width // size
    split = c.shaped(c.args[0], (n, depth, rows, size, columns, size))
    return c.shaped(c.turned(split, (0, 3, 5, 1, 2, 4)), (n, depth * size * size, rows, columns))


def _lrn(c: Context) -> Node:
    """x / (bias + alpha * mean of the squares nearby, those beyond the edge being 0) ^ beta"""
    x, size = c.args[0], c.number("size", 5)
    rank = c.known().rank or 0
    axis = axis_of(c.number("axis", 1), rank)
    if size % 2 != 1:
        raise InferError(f"a window of size {size}", expected="an odd size")
    letters = "".join("W" if k == axis else "N" for k in range(rank))
    near = spread_over(letters, "W", (size,), (1,), (1,), (size // 2,), (size // 2,))
    mean = averaged(c, c(ops.multiply, x, x), near, True)
    base = c(ops.add, c(ops.multiply, mean, c.like(c.real("alpha", 1e-4), x)), c.like(c.real("bias", 2), x))
    return c(ops.divide, x, c(ops.power, base, c.like(c.real("beta", 0.75), x)))


def _triangle(c: Context) -> Node:
    dims = c.known().dims or ()
    if len(dims) < 2:
        raise InferError(f"operand 0 is {an(c.type())}", operand=0, expected="a matrix, or several")
    k = int(c.static(1).reshape(()).item()) if len(c.args) > 1 else c.number("k", 0)
    rows, columns = (c.places(I32, dims, len(dims) - 2 + j) for j in range(2))
    off = c(ops.subtract, columns, rows)
    kept = c(ops.compare, off, c.like(k, off), direction="GE" if c.flag("upper", True) else "LE")
    return c(ops.select, kept, c.args[0], c.like(0, c.args[0]))


def _sequence_mask(c: Context) -> Node:
    """Elements past the length of their sequence replaced; time on axis 0 or 1, the batch on the other."""
    dims = c.known().dims or ()
    axis = c.axis(len(dims), default=0)
    if axis > 1 or len(dims) < 2:
        raise InferError(f"axis {axis}", expected="0 or 1 of a tensor of rank 2 or more")
    lengths = c.along(c.cast(c.args[1], I32), dims, (1 - axis,))
    inside = c(ops.compare, c.places(I32, dims, axis), lengths, direction="LT")
    return c(ops.select, inside, c.args[0], c.like(c.real("mask_value", 0), c.args[0]))


def _set_diagonal(c: Context) -> Node:
    dims = c.known().dims or ()
    if c.attr("k1", 0) != 0 or c.attr("k2", 0) != 0 or len(dims) < 2 or dims[-1] != dims[-2]:
        raise Unsupported("matrix_set_diag of another diagonal")
    rows, columns = (c.places(I32, dims, len(dims) - 2 + j) for j in range(2))
    diagonal = c.along(c.args[1], dims, tuple(range(len(dims) - 1)))
    return c(ops.select, c(ops.compare, rows, columns, direction="EQ"), diagonal, c.args[0])


IMAGE: dict[str, Operator] = {
    "nn.upsampling": Operator(_upsampling), "nn.depth_to_space": Operator(_depth_to_space),
    "nn.space_to_depth": Operator(_space_to_depth),
    "nn.lrn": Operator(_lrn), "trilu": Operator(_triangle), "sequence_mask": Operator(_sequence_mask, 2),
    "matrix_set_diag": Operator(_set_diagonal, 2),
}  # fmt: skip
