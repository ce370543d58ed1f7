"""Operators that read and write elements by index, and those whose extents depend on data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from deepx_graph import ops
from deepx_graph.errors import LimitError
from deepx_graph.ir import Builder, Function, Node, Op
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.text.common.elements import along_axis, part_of, running, taken, total, wrapped
from deepx_graph.text.torch.context import CallContext, Rules
from deepx_graph.text.torch.rules.elementwise import chosen
from deepx_graph.types import BOOL, F32, I64, Dim, DType, as_tensor, scalar, tensor

# --- read -----------------------------------------------------------------------------------------------------------


def _index_select(c: CallContext) -> Node:
    x, index = c.node(), c.shaped(c.node("index"), (math.prod(c.shape_of(c.node("index"))),))
    if not c.dims_of(x):
        return x
    axis = c.axis("dim")
    return c(ops.torch_index_select, x, wrapped(c, c.cast(index, I64), c.static((c.dims_of(x)[axis],))[0]), dim=axis)


def _embedding(c: CallContext) -> Node:
    return c(ops.torch_index_select, c.node(0), c.node(1), dim=0)


def _embedding_bag(c: CallContext) -> list[Node]:
    """Sums, means or greatest values over bags of rows; bags begin at offsets that must be known."""
    weight, index = c.node(0), c.node(1)
    starts = c.known(c.node(2)).reshape(-1)
    mode = c.number("mode", 0)
    rows = taken_rows(c, weight, index)
    if c.has("per_sample_weights"):
        rows = c(ops.multiply, rows, c.along(c.node("per_sample_weights"), c.dims_of(rows), (0,)))
    ends = [*starts[1:], c.shape_of(index)[0]]
    if c.flag("include_last_offset"):
        starts, ends = starts[:-1], ends[:-1]
    if len(starts) > MOST:
        raise LimitError(f"{len(starts)} bags")
    found = []
    for a, b in zip(map(int, starts), map(int, ends), strict=True):
        part = part_of(c, rows, 0, a, max(a, b))
        made = (
            total(c, ops.maximum if mode == 2 else ops.add, part, (0,))
            if b > a
            else c.full(0, as_tensor(rows.type).with_dims(c.dims_of(rows)[1:]))
        )
        found.append(c.add_axes(c(ops.divide, made, c.like(b - a, made)) if mode == 1 and b > a else made, (0,)))
    whole = c(ops.concatenate, *found, dimension=0) if len(found) > 1 else found[0]
    sizes = [m.sizes if m is not None else (0,) for m in c.declared[1:4]]
    return [whole, *(c.full(0, tensor(I64, c.static(s, "the result"))) for s in sizes)]


MOST = 4096
"""Bags of an embedding, and rows of a result that is put together one by one."""


def taken_rows(c: CallContext, x: Node, index: Node) -> Node:
    return c(ops.torch_index_select, x, index, dim=0)


def _gather(c: CallContext) -> Node:
    x, index, axis = c.node(), c.node("index"), c.axis("dim")
    if not c.dims_of(x):
        return c.filled(x, c.dims_of(index))
    shape, given = c.shape_of(x), c.shape_of(index)
    wanted = given
    if not wanted:
        index, wanted = c.shaped(index, (1,)), (1,)
    x = c.sliced(x, (0,) * len(shape), [d if k == axis else min(d, wanted[k]) for k, d in enumerate(shape)])
    return c.shaped(along_axis(c, x, index, axis), given)


def _take(c: CallContext) -> Node:
    x, size = c.node(), math.prod(c.shape_of(c.node()))
    return c(ops.torch_index_select, c.shaped(x, (size,)), wrapped(c, c.node(1), size), dim=0)


def _put(c: CallContext) -> Node:
    """Elements by their place in the order of all."""
    x, value = c.node(), c.node("source")
    dims = c.shape_of(x)
    size = math.prod(dims)
    count = math.prod(c.shape_of(value))
    index = wrapped(c, c.shaped(c.node("index"), (count,)), size)
    body = monoid_body(ops.add, c.dtype_of(x)) if c.flag("accumulate") else second(c.dtype_of(x))
    return c.shaped(scattered(c, c.shaped(x, (size,)), 0, index, c.shaped(value, (count,)), body), dims)


def _max_unpool(c: CallContext) -> Node:
    """The greatest elements of windows put back where they were, in each of the planes; zeros elsewhere."""
    x, index, size = c.node(0), c.node(1), tuple(c.ints(2))
    *leading, _, _ = c.shape_of(x)
    planes, inner, outer = math.prod(leading), math.prod(c.shape_of(x)[-2:]), math.prod(size)
    start = c.full(0, as_tensor(x.type).with_dims((planes, outer)))
    flat = (planes, inner)
    made = scattered(c, start, 1, c.shaped(index, flat), c.shaped(x, flat), second(c.dtype_of(x)))
    return c.shaped(made, (*leading, *size))


def _take_along(c: CallContext) -> Node:
    x, index = c.node(), c.node(1)
    if not c.has("dim"):
        return _take(c)
    axis = c.axis("dim")
    dims = [max(a, b) if k != axis else b for k, (a, b) in enumerate(zip(c.shape_of(x), c.shape_of(index), strict=True))]
    x = c.broadcast_to(x, tuple(c.shape_of(x)[k] if k == axis else d for k, d in enumerate(dims)))
    return along_axis(c, x, wrapped(c, c.broadcast_to(index, tuple(dims)), c.shape_of(x)[axis]), axis)


# --- general indices ------------------------------------------------------------------------------------------------


def places_of(c: CallContext, x: Node, indices: Sequence[Any]) -> tuple[list[int], list[Node], tuple[int, ...]]:
    """The axes that are indexed, an index for each, all of one shape, and that shape. Masks are places that must be known."""
    axes: list[int] = []
    found: list[Node] = []
    shape, axis = c.shape_of(x), 0
    for index in indices:
        if index is None:
            axis += 1
        elif c.dtype_of(index) is BOOL or c.dtype_of(index).kind == "uint":
            for line in np.nonzero(c.known(index)):
                axes.append(axis)
                found.append(c.constant(line, I64))
                axis += 1
        else:
            axes.append(axis)
            found.append(wrapped(c, c.cast(index, I64), shape[axis]))
            axis += 1
    joint = np.broadcast_shapes(*(c.shape_of(n) for n in found))
    return axes, [c.filled(n, joint) for n in found], tuple(int(d) for d in joint)


def _index(c: CallContext) -> Node:
    """As numpy's advanced indexing: new axes stand where the indexed ones are, in front where these are apart."""
    x = c.node()
    axes, places, joint = places_of(c, x, c.get("indices"))
    shape = c.shape_of(x)
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    if len(axes) == 1:
        return c(ops.torch_index_select, x, places[0], dim=axes[0])
    index = c(ops.concatenate, *(c.add_axes(p, (len(joint),)) for p in places), dimension=len(joint))
    rest = [k for k in range(len(shape)) if k not in axes]
    at = len([k for k in rest if k < axes[0]]) if together else 0
    offsets = tuple(k for k in range(len(rest) + len(joint)) if not at <= k < at + len(joint))
    return c(
        ops.gather,
        x,
        index,
        offset_dims=offsets,
        collapsed_slice_dims=tuple(axes),
        start_index_map=tuple(axes),
        index_vector_dim=len(joint),
        slice_sizes=tuple(1 if k in axes else d for k, d in enumerate(shape)),
    )


def second(dtype: DType) -> Function:
    """Of an old and a new element the new one."""
    t = scalar(dtype)
    return Builder().function("second", (("old", t), ("new", t)), lambda old, new: [new], public=False)


def _index_put(c: CallContext) -> Node:
    x = c.node()
    axes, places, joint = places_of(c, x, c.get("indices"))
    shape, value = c.shape_of(x), c.to(c.node("values"), c.dtype_of(x))
    rest = [k for k in range(len(shape)) if k not in axes]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    at = len([k for k in rest if k < axes[0]]) if together else 0
    window = tuple(k for k in range(len(rest) + len(joint)) if not at <= k < at + len(joint))
    sizes = iter(shape[k] for k in rest)
    wanted = tuple(next(sizes) if k in window else joint[k - at] for k in range(len(rest) + len(joint)))
    index = (
        c(ops.concatenate, *(c.add_axes(p, (len(joint),)) for p in places), dimension=len(joint))
        if len(places) > 1
        else (c.add_axes(places[0], (len(joint),)))
    )
    body = monoid_body(ops.add, c.dtype_of(x)) if c.flag("accumulate") else second(c.dtype_of(x))
    return c(
        ops.scatter,
        x,
        index,
        c.filled(value, wanted),
        update_window_dims=window,
        inserted_window_dims=tuple(axes),
        scatter_dims_to_operand_dims=tuple(axes),
        index_vector_dim=len(joint),
        update_computation=body,
    )


# --- write ----------------------------------------------------------------------------------------------------------


def scattered(c: CallContext, x: Node, axis: int, index: Node, value: Node, body: Function) -> Node:
    """Elements written at the places that an index has along an axis, and its own place along the others."""
    shape = c.shape_of(x)
    if not shape:
        return c.shaped(scattered(c, c.shaped(x, (1,)), 0, c.shaped(index, (1,)), c.shaped(value, (1,)), body), ())
    rank, given = len(shape), c.shape_of(index)
    value = c.sliced(value, (0,) * rank, given) if c.shape_of(value) != given else value
    index = c.cast(index, I64)
    if all(given[k] == shape[k] for k in range(rank) if k != axis):
        others = tuple(k for k in range(rank) if k != axis)
        return c(
            ops.scatter,
            x,
            index,
            value,
            inserted_window_dims=(axis,),
            input_batching_dims=others,
            scatter_indices_batching_dims=others,
            scatter_dims_to_operand_dims=(axis,),
            index_vector_dim=rank,
            update_computation=body,
        )
    columns = [c.add_axes(index if k == axis else c.indices(I64, given, k), (rank,)) for k in range(rank)]
    rows = c(ops.concatenate, *columns, dimension=rank) if rank > 1 else columns[0]
    every = tuple(range(rank))
    return c(
        ops.scatter,
        x,
        rows,
        value,
        inserted_window_dims=every,
        scatter_dims_to_operand_dims=every,
        index_vector_dim=rank,
        update_computation=body,
    )


def _value_for(c: CallContext, index: Node) -> Node:
    """What is written: a tensor, or one number everywhere."""
    found = c.get("src", c.get("value"))
    dtype = c.dtype_of(c.node())
    made = c.as_node(found, dtype)
    return made if isinstance(found, Node) and "src" in c.arguments else c.filled(c.shaped(made, ()), c.dims_of(index))


def _scatter(c: CallContext) -> Node:
    x, index = c.node(), c.node("index")
    op = {"add": ops.add, "multiply": ops.multiply}.get(c.text("reduce", ""))
    body = second(c.dtype_of(x)) if op is None else monoid_body(op, c.dtype_of(x))
    return scattered(c, x, c.axis("dim"), index, _value_for(c, index), body)


def _scatter_add(c: CallContext) -> Node:
    x, index = c.node(), c.node("index")
    return scattered(c, x, c.axis("dim"), index, _value_for(c, index), monoid_body(ops.add, c.dtype_of(x)))


REDUCTIONS: dict[str, Op] = {"sum": ops.add, "mean": ops.add, "prod": ops.multiply, "amax": ops.maximum, "amin": ops.minimum}


def _scatter_reduce(c: CallContext) -> Node:
    index = c.node("index")
    return _reduced_into(c, index, _value_for(c, index))


def _index_reduce(c: CallContext) -> Node:
    value = c.to(c.node("source"), c.dtype_of(c.node()))
    return _reduced_into(c, _spread_line(c, value), value)


def _reduced_into(c: CallContext, index: Node, value: Node) -> Node:
    """The elements of `value` taken together with those of the operand that the index names along an axis."""
    x, dtype = c.node(), c.dtype_of(c.node())
    word, axis = c.one_of("reduce", "", *REDUCTIONS), c.axis("dim")
    op, counts = REDUCTIONS[word], None
    if word == "mean" or not c.flag("include_self", True):
        ones = c.full(1, as_tensor(index.type).with_dtype(I64))
        zeros = c.full(0, as_tensor(x.type).with_dtype(I64))
        counts = scattered(c, zeros, axis, index, ones, monoid_body(ops.add, I64))
    start = x
    if not c.flag("include_self", True):
        assert counts is not None
        hit = c(ops.compare, counts, c.like(0, counts), direction="GT")
        start = chosen(c, hit, c.full(op.identity_for(dtype), as_tensor(x.type)), x)
    made = scattered(c, start, axis, index, value, monoid_body(op, dtype))
    if word != "mean":
        return made
    assert counts is not None
    if c.flag("include_self", True):
        counts = c(ops.add, counts, c.like(1, counts))
    return c(ops.divide, made, c.to(c(ops.maximum, counts, c.like(1, counts)), dtype))


def _spread_line(c: CallContext, value: Node) -> Node:
    """A line of indices along an axis, one for each slice of `value`, as an index for each of its elements."""
    index, axis = c.node("index"), c.axis("dim")
    line = c.shaped(index, (math.prod(c.shape_of(index)),))
    return c.along(wrapped(c, c.cast(line, I64), c.shape_of(c.node())[axis]), c.shape_of(value), (axis,))


def _along_lines(c: CallContext, value: Node, body: Function) -> Node:
    """Slices of `value` written at the places of a line of indices along an axis."""
    return scattered(c, c.node(), c.axis("dim"), _spread_line(c, value), value, body)


def _index_add(c: CallContext) -> Node:
    value, alpha = c.to(c.node("source"), c.dtype_of(c.node())), c.get("alpha", 1)
    if alpha != 1:
        value = c(ops.multiply, value, c.as_node(alpha, c.dtype_of(value)))
    return _along_lines(c, value, monoid_body(ops.add, c.dtype_of(value)))


def _index_copy(c: CallContext) -> Node:
    value = c.to(c.node("source"), c.dtype_of(c.node()))
    return _along_lines(c, value, second(c.dtype_of(value)))


def _index_fill(c: CallContext) -> Node:
    x, count = c.node(), math.prod(c.shape_of(c.node("index")))
    dims = tuple(count if k == c.axis("dim") else d for k, d in enumerate(c.shape_of(x)))
    value = c.filled(c.shaped(c.as_node(c.get("value"), c.dtype_of(x)), ()), dims)
    return _along_lines(c, value, second(c.dtype_of(x)))


def _masked_scatter(c: CallContext) -> Node:
    """Elements of a source, in order, where the mask is true."""
    x = c.node()
    hit = c.filled(c.to(c.node(1), BOOL), c.shape_of(x))
    size = math.prod(c.shape_of(x))
    flat = c.cast(c.shaped(hit, (size,)), I64)
    order = c(ops.subtract, running(c, ops.add, flat, 0), c.like(1, flat))
    source = c.node(2)
    count = math.prod(c.shape_of(source))
    place = c(ops.clamp, c.like(0, order), order, c.like(max(count - 1, 0), order))
    found = c(ops.torch_index_select, c.shaped(c.to(source, c.dtype_of(x)), (count,)), place, dim=0)
    return chosen(c, hit, c.shaped(found, c.shape_of(x)), x)


def _one_hot(c: CallContext) -> Node:
    index, classes = c.node(), c.number(1, -1)
    depth: Dim = int(c.known(index).max()) + 1 if classes < 0 else classes
    dims = (*c.dims_of(index), depth)
    hit = c(
        ops.compare, c.indices(I64, dims, len(dims) - 1), c.along(c.cast(index, I64), dims, range(len(dims) - 1)), direction="EQ"
    )
    return c.cast(hit, I64)


# --- extents that depend on data ------------------------------------------------------------------------------------


def _nonzero(c: CallContext) -> Node:
    found = c.known(c.node())
    return c.constant(np.stack(np.nonzero(found), 1) if found.ndim else np.zeros((int(found != 0), 0)), I64)


def _nonzero_lists(c: CallContext) -> list[Node]:
    return [c.constant(line, I64) for line in np.nonzero(np.atleast_1d(c.known(c.node())))]


def _masked_select(c: CallContext) -> Node:
    x, hit = c.node(), c.known(c.node(1))
    shape = np.broadcast_shapes(c.shape_of(x), hit.shape)
    places = np.flatnonzero(np.broadcast_to(hit, shape))
    return taken(c, c.shaped(c.filled(x, tuple(int(d) for d in shape)), (math.prod(shape),)), 0, places)


def _unique(c: CallContext) -> list[Node]:
    values, inverse, counts = np.unique(c.known(c.node()), return_inverse=True, return_counts=True)
    return [
        c.constant(values, c.dtype_of(c.node())),
        c.constant(inverse.reshape(c.shape_of(c.node())), I64),
        c.constant(counts, I64),
    ]


def _bincount(c: CallContext) -> Node:
    x, least = c.known(c.node()), c.number("minlength", 0)
    weights = c.known(c.node("weights")) if c.has("weights") else None
    return c.constant(np.bincount(x, weights, least), c.result_type() if c.declared else F32)


INDEX: Rules = {
    "index_select": _index_select, "embedding": _embedding, "_embedding_bag": _embedding_bag, "embedding_bag": _embedding_bag,
    "_embedding_bag_forward_only": _embedding_bag, "gather": _gather, "take": _take, "put": _put, "max_unpool2d": _max_unpool,
    "take_along_dim": _take_along,
    **dict.fromkeys(("index", "_unsafe_index"), _index),
    **dict.fromkeys(("index_put", "_unsafe_index_put", "_index_put_impl"), _index_put), "scatter": _scatter,
    "scatter_add": _scatter_add, "scatter_reduce": _scatter_reduce, "index_reduce": _index_reduce, "index_add": _index_add,
    "index_copy": _index_copy, "index_fill": _index_fill, "masked_scatter": _masked_scatter, "one_hot": _one_hot,
    "nonzero": _nonzero, "nonzero_numpy": _nonzero_lists, "masked_select": _masked_select,
    "_unique2": _unique, "bincount": _bincount,
}  # fmt: skip
