"""Operators of Relay that pick elements by index or by order: take, gather, one_hot, sort, argsort, topk, masks."""

from __future__ import annotations

from deepx_graph import ops
from deepx_graph.errors import InferError, an
from deepx_graph.ir import Node
from deepx_graph.ops.tensor.index import gather_along
from deepx_graph.text.common.steps import Unsupported, axis_of, comparator
from deepx_graph.text.relay.rules.context import Context, Operator
from deepx_graph.types import I32, as_tensor, mul_dims


def _take(c: Context) -> Node:
    x, index = c.args[0], c.args[1]
    if c.number("batch_dims", 0) != 0:
        raise Unsupported("take with batch_dims")
    dims = c.known().dims or ()
    if c.attr("axis") is None:
        x, dims, at = c.shaped(x, (mul_dims(dims),)), (mul_dims(dims),), 0
    else:
        at = c.axis(len(dims))
    if c.text("mode", "clip") == "wrap":
        index = c(ops.floor_mod, index, c.like(dims[at], index))
    return c(ops.torch_index_select, x, index, dim=at)


def _gather(c: Context) -> Node:
    rank = c.known().rank or 0
    return c(ops.gather, c.args[0], c.args[1], **gather_along(rank, c.axis(rank)))


def _gather_nd(c: Context) -> Node:
    shape, places = c.known().shape, c.known(1).shape
    if c.number("batch_dims", 0) != 0 or not places or places[0] > len(shape):
        raise Unsupported("gather_nd with batch_dims")
    depth = places[0]
    picked = tuple(range(depth))
    offsets = tuple(range(len(places) - 1, len(places) - 1 + len(shape) - depth))
    return c(ops.gather, c.args[0], c.args[1], offset_dims=offsets, collapsed_slice_dims=picked, start_index_map=picked,
             index_vector_dim=0, slice_sizes=(1,) * depth + shape[depth:])


def _one_hot(c: Context) -> Node:
    dims = c.known().dims or ()
    depth, dtype = c.number("depth"), c.dtype()
    at = axis_of(c.number("axis", -1), len(dims) + 1)
    shape = (*dims[:at], depth, *dims[at:])
    spread = c.along(c.args[0], shape, [k for k in range(len(shape)) if k != at])
    classes = c.indices(c.type().dtype, shape, at)
    hot = c(ops.compare, classes, spread, direction="EQ")
    on, off = (c.along(c.cast(c.args[k], dtype), shape, ()) for k in (1, 2))
    return c(ops.select, hot, on, off)


# --- order --------------------------------------------------------------------------------------------------------


def _direction(c: Context) -> str:
    return "LT" if c.flag("is_ascend", True) else "GT"


def _sort(c: Context) -> Node:
    at = c.axis(c.known().rank or 0, default=-1)
    return c(ops.sort, c.args[0], dimension=at, comparator=comparator((c.type().dtype,), _direction(c)))


def sorted_indices(c: Context, at: int, direction: str) -> Node:
    """The operand sorted, and the places where its elements were."""
    places = c.indices(I32, c.known().shape, at)
    return c(ops.sort, c.args[0], places, dimension=at, comparator=comparator((c.type().dtype, I32), direction))


def _argsort(c: Context) -> Node:
    at = c.axis(c.known().rank or 0, default=-1)
    return c.cast(c.b.proj(sorted_indices(c, at, _direction(c)), 1), c.dtype(default=I32))


def _topk(c: Context) -> Node:
    shape = c.known().shape
    at = c.axis(len(shape), default=-1)
    k = c.number("k", 1)
    k = min(k, shape[at]) if k >= 1 else shape[at]
    dtype, kind = c.dtype(default=I32), c.text("ret_type", "both")
    if at == len(shape) - 1 and not c.flag("is_ascend", False):
        whole = c(ops.top_k, c.args[0], k=k)
        if kind == "both" and dtype is I32:
            return whole
    else:
        whole = sorted_indices(c, at, "LT" if c.flag("is_ascend", False) else "GT")
    limit = [k if j == at else d for j, d in enumerate(shape)]
    wanted = {"both": (0, 1), "values": (0,), "indices": (1,)}.get(kind)
    if wanted is None:
        raise InferError(f"ret_type '{kind}'", expected="both, values or indices")
    found = []
    for j in wanted:
        item = c.b.proj(whole, j)
        item = item if as_tensor(item.type).shape == tuple(limit) else c.sliced(item, (0,) * len(shape), limit)
        found.append(c.cast(item, dtype) if j else item)
    return c.b.pack(*found) if kind == "both" else found[0]


# --- triangles and masks --------------------------------------------------------------------------------------------


def _triangle(c: Context) -> Node:
    dims = c.known().dims or ()
    if len(dims) < 2:
        raise InferError(f"operand 0 is {an(c.type())}", operand=0, expected="a matrix, or several")
    k = int(c.static(1).reshape(()).item()) if len(c.args) > 1 else c.number("k", 0)
    rows, columns = (c.indices(I32, dims, len(dims) - 2 + j) for j in range(2))
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
    inside = c(ops.compare, c.indices(I32, dims, axis), lengths, direction="LT")
    return c(ops.select, inside, c.args[0], c.like(c.real("mask_value", 0), c.args[0]))


def _set_diagonal(c: Context) -> Node:
    dims = c.known().dims or ()
    if c.attr("k1", 0) != 0 or c.attr("k2", 0) != 0 or len(dims) < 2 or dims[-1] != dims[-2]:
        raise Unsupported("matrix_set_diag of another diagonal")
    rows, columns = (c.indices(I32, dims, len(dims) - 2 + j) for j in range(2))
    diagonal = c.along(c.args[1], dims, tuple(range(len(dims) - 1)))
    return c(ops.select, c(ops.compare, rows, columns, direction="EQ"), diagonal, c.args[0])


SELECT: dict[str, Operator] = {
    "take": Operator(_take, 2), "gather": Operator(_gather, 2), "gather_nd": Operator(_gather_nd, 2),
    "one_hot": Operator(_one_hot, 3),
    "sort": Operator(_sort), "argsort": Operator(_argsort), "topk": Operator(_topk), "trilu": Operator(_triangle),
    "sequence_mask": Operator(_sequence_mask, 2), "matrix_set_diag": Operator(_set_diagonal, 2),
}  # fmt: skip
