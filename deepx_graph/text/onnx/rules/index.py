"""Operators that read and write elements by index, and those whose extents depend on data: Gather, Scatter, NonZero, Unique."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import InferError
from deepx_graph.ir import Builder, Function, Node
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.text.common.elements import along_axis, wrapped
from deepx_graph.text.common.steps import axis_of
from deepx_graph.text.onnx.context import NodeContext, Rules
from deepx_graph.types import I64, DType, scalar


def _gather(c: NodeContext) -> Node:
    dims = c.dims()
    axis = c.axis(default=0)
    size = c.static((dims[axis],))[0]
    return c(ops.torch_index_select, c.node(), wrapped(c, c.node(1), size), dim=axis)


def _gather_elements(c: NodeContext) -> Node:
    axis = c.axis(default=0)
    shape, wanted = c.shape(), c.shape(1)
    if len(wanted) != len(shape):
        raise InferError(f"indices {c.type(1)} into {c.type()}", operand=1, expected="as many axes")
    x = c.sliced(c.node(), (0,) * len(shape), [d if k == axis else min(d, wanted[k]) for k, d in enumerate(shape)])
    return along_axis(c, x, wrapped(c, c.node(1), shape[axis]), axis)


def _wrapped_places(c: NodeContext, index: Node, sizes: tuple[int, ...]) -> Node:
    """Rows of indices, each of its own axis, counted from the end where they are negative."""
    limits = c.constant(np.asarray(sizes), c.dtype_of(index))
    whole = c.broadcast_to(limits, c.dims_of(index))
    return c(ops.select, c(ops.compare, index, c.like(0, index), direction="LT"), c(ops.add, index, whole), index)


def _gather_nd(c: NodeContext) -> Node:
    shape, places, batch = c.shape(), c.shape(1), c.number("batch_dims", 0)
    if not places or not 0 <= batch < min(len(shape), len(places)) or batch + places[-1] > len(shape):
        raise InferError(f"indices {c.type(1)} into {c.type()} with batch_dims {batch}", operand=1, expected="rows of indices")
    depth = places[-1]
    picked, batching = tuple(range(batch, batch + depth)), tuple(range(batch))
    index = _wrapped_places(c, c.node(1), shape[batch : batch + depth])
    rest = len(shape) - batch - depth
    offsets = tuple(range(len(places) - 1, len(places) - 1 + rest))
    sizes = tuple(1 if k in picked or k in batching else d for k, d in enumerate(shape))
    return c(ops.gather, c.node(), index, offset_dims=offsets, collapsed_slice_dims=picked, operand_batching_dims=batching,
             start_indices_batching_dims=batching, start_index_map=picked, index_vector_dim=len(places) - 1, slice_sizes=sizes)


# --- scatter --------------------------------------------------------------------------------------------------------


def _update(c: NodeContext, dtype: DType) -> Function:
    """What becomes of an element that is written to."""
    reduction = c.one_of("reduction", "none", "none", "add", "mul", "max", "min")
    op = {"add": ops.add, "mul": ops.multiply, "max": ops.maximum, "min": ops.minimum}.get(reduction)
    if op is not None:
        return monoid_body(op, dtype)
    t = scalar(dtype)
    return Builder().function("second", (("old", t), ("new", t)), lambda old, new: [new], public=False)


def _scatter_elements(c: NodeContext) -> Node:
    axis, rank = c.axis(default=0), c.rank()
    shape, given = c.shape(), c.shape(1)
    if len(given) != rank:
        raise InferError(f"indices {c.type(1)} into {c.type()}", operand=1, expected="as many axes")
    index = wrapped(c, c.node(1), shape[axis])
    if all(given[k] == shape[k] for k in range(rank) if k != axis):
        others = tuple(k for k in range(rank) if k != axis)
        return c(ops.scatter, c.node(), index, c.node(2), inserted_window_dims=(axis,), input_batching_dims=others,
                 scatter_indices_batching_dims=others, scatter_dims_to_operand_dims=(axis,), index_vector_dim=rank,
                 update_computation=_update(c, c.dtype()))
    index = c.cast(index, I64)
    columns = [c.add_axes(index if k == axis else c.indices(I64, given, k), (rank,)) for k in range(rank)]
    rows = c(ops.concatenate, *columns, dimension=rank) if rank > 1 else columns[0]
    every = tuple(range(rank))
    return c(ops.scatter, c.node(), rows, c.node(2), inserted_window_dims=every, scatter_dims_to_operand_dims=every,
             index_vector_dim=rank, update_computation=_update(c, c.dtype()))


def _scatter_nd(c: NodeContext) -> Node:
    shape, places = c.shape(), c.shape(1)
    if not places or places[-1] > len(shape):
        raise InferError(f"indices {c.type(1)} into {c.type()}", operand=1, expected="rows of indices")
    depth = places[-1]
    picked = tuple(range(depth))
    window = tuple(range(len(places) - 1, len(places) - 1 + len(shape) - depth))
    return c(ops.scatter, c.node(), _wrapped_places(c, c.node(1), shape[:depth]), c.node(2), update_window_dims=window,
             inserted_window_dims=picked, scatter_dims_to_operand_dims=picked, index_vector_dim=len(places) - 1,
             update_computation=_update(c, c.dtype()))


def _tensor_scatter(c: NodeContext) -> Node:
    """A cache with new rows written at a place of its own for each batch, around its end where it is circular."""
    cache, update = c.node(), c.node(1)
    axis = axis_of(c.number("axis", -2), c.rank())
    shape, given = c.shape(), c.shape(1)
    starts = c.along(c.cast(c.node(2), I64), given, (0,)) if c.has(2) else c.full(0, c.type(1).with_dtype(I64))
    places = c(ops.add, c.indices(I64, given, axis), starts)
    if c.one_of("mode", "linear", "linear", "circular") == "circular":
        places = c(ops.floor_mod, places, c.like(shape[axis], places))
    others = tuple(k for k in range(len(shape)) if k != axis)
    t = scalar(c.dtype())
    second = Builder().function("second", (("old", t), ("new", t)), lambda old, new: [new], public=False)
    return c(ops.scatter, cache, places, update, inserted_window_dims=(axis,), input_batching_dims=others,
             scatter_indices_batching_dims=others, scatter_dims_to_operand_dims=(axis,), index_vector_dim=len(shape),
             update_computation=second)


# --- extents that depend on data ------------------------------------------------------------------------------------


def _non_zero(c: NodeContext) -> Node:
    return c.constant(np.stack(np.nonzero(np.atleast_1d(c.value(0)))) if c.rank() else np.zeros((0, int(c.value(0) != 0))), I64)


def _compress(c: NodeContext) -> Node:
    hit = c.value(1).reshape(-1)
    x = c.node() if c.given("axis") else c.shaped(c.node(), (int(np.prod(c.shape())),))
    axis = c.axis() if c.given("axis") else 0
    places = np.flatnonzero(hit)
    if len(places) and places[-1] >= c.shape_of(x)[axis]:
        raise InferError(f"a condition of {len(hit)} elements for {c.type()}", operand=1)
    return c(ops.torch_index_select, x, c.constant(places, I64), dim=axis)


def _unique(c: NodeContext) -> list[Node]:
    value, by_order = c.value(0), c.flag("sorted", True)
    axis = c.axis() if c.given("axis") else None
    found, first, inverse, counts = np.unique(value, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not by_order:
        order = np.argsort(first)
        found = np.take(found, order, axis=0 if axis is None else axis)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return [c.constant(found, c.dtype()), *(c.constant(v, I64) for v in (first, inverse, counts))]


def _suppression(c: NodeContext) -> Node:
    """Boxes kept, best first, each unless it overlaps a better one too much; box by box, as those kept decide the result's size."""
    boxes, scores = c.value(0).astype(np.float64), c.value(1)
    most = int(c.number_at(2)) if c.has(2) else 0
    overlap = float(c.number_at(3)) if c.has(3) else 0.0
    least = float(c.number_at(4)) if c.has(4) else -np.inf
    if c.number("center_point_box", 0):
        x, y, w, h = np.moveaxis(boxes, -1, 0)
        corners = np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
    else:
        corners = np.concatenate([np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])], -1)
    found = []
    for batch, classes in enumerate(scores):
        for number, marks in enumerate(classes):
            kept: list[int] = []
            for k in np.argsort(-marks, kind="stable"):
                if len(kept) >= most or not marks[k] > least:
                    break
                if all(_overlap(corners[batch, k], corners[batch, j]) <= overlap for j in kept):
                    kept.append(int(k))
                    found.append((batch, number, int(k)))
    return c.constant(np.asarray(found, np.int64).reshape(-1, 3), I64)


def _overlap(a: Any, b: Any) -> float:
    """The area that two boxes share, as a part of what they cover."""
    height, width = (max(0.0, min(a[k + 2], b[k + 2]) - max(a[k], b[k])) for k in (0, 1))
    shared = height * width
    whole = sum(max(0.0, (x[2] - x[0]) * (x[3] - x[1])) for x in (a, b)) - shared
    return float(shared / whole) if whole > 0 else 0.0


INDEX: Rules = {
    "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd, "Scatter": _scatter_elements,
    "ScatterElements": _scatter_elements, "ScatterND": _scatter_nd, "TensorScatter": _tensor_scatter, "NonZero": _non_zero,
    "Compress": _compress, "Unique": _unique, "NonMaxSuppression": _suppression,
}  # fmt: skip
