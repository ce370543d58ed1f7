"""Reading and writing slices at positions that are computed: dynamic slices, gather and scatter.

Start indices are clamped so that slices fit, as in XLA; scatter drops update elements that fall outside. Both are whole-array
numpy: one index array per operand axis. Scatter combines updates of one place by sorting them together where the body is a
monoid op, and in rounds over all places at once where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from deepx_graph.errors import InferError
from deepx_graph.ir import Attr, Builder, Function, Node, Op, Operand
from deepx_graph.literal import Array
from deepx_graph.ops.declare import check_kind
from deepx_graph.ops.elementwise import add, and_, clamp, maximum, minimum, multiply, or_
from deepx_graph.ops.evaluate import combine
from deepx_graph.ops.layout import check_axes, show_dims
from deepx_graph.ops.reduce import monoid_body
from deepx_graph.types import F64, Dims, TupleType, Type, as_tensor, merge_types, tensor

Axes = tuple[int, ...]
Index = np.ndarray[Any, np.dtype[np.int64]]


# --- dynamic slices -----------------------------------------------------------------------------------------------


def _check_starts(types: Sequence[Type], first: int, rank: int | None) -> None:
    for k, t in enumerate(types[first:], start=first):
        start = as_tensor(t, k)
        check_kind(start, ("int", "uint"), k)
        if start.rank not in (0, None):
            raise InferError(f"start index {k - first} is a {start}", operand=k, expected="a scalar")
    if rank is not None and len(types) - first != rank:
        raise InferError(f"{len(types) - first} start indices", expected=f"one for each of {rank} dimensions")


def _clamped_starts(starts: Sequence[Array], shape: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    found = []
    for start, whole, size in zip(starts, shape, sizes, strict=True):
        at = min(max(0, int(start)), whole - size)
        found.append(slice(at, at + size))
    return tuple(found)


def _dynamic_slice_type(types: Sequence[Type], slice_sizes: Axes) -> Type:
    operand = as_tensor(types[0], 0)
    _check_starts(types, 1, operand.rank)
    for k, size in enumerate(slice_sizes):
        whole = operand.dims[k] if operand.dims is not None and k < len(operand.dims) else size
        if size < 0 or (isinstance(whole, int) and size > whole):
            raise InferError(f"a slice of {size} from dimension {k} of {operand}", expected=f"0 to {whole}")
    if len(slice_sizes) != len(types) - 1:
        raise InferError(f"{len(slice_sizes)} slice sizes", expected=f"one for each of {len(types) - 1} dimensions")
    return operand.with_dims(slice_sizes)


def _dynamic_slice_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    zeros = b.splat(0, as_tensor(node.inputs[0].type))
    return b(dynamic_update_slice, zeros, g, *node.inputs[1:]), *(None for _ in node.inputs[1:])


dynamic_slice: Op = Op(
    "dynamic_slice", "A box of the operand at computed start indices, moved inside where it would stick out.",
    operands=(Operand("operand"), Operand("start_indices", variadic=True)), attrs=(Attr("slice_sizes", "ints"),),
    infer=_dynamic_slice_type, eval=lambda xs, sizes: xs[0][_clamped_starts(xs[1:], xs[0].shape, sizes)], view=True,
    vjp=_dynamic_slice_vjp, source="StableHLO dynamic_slice",
    samples=lambda rng: [((rng.random((4, 5)), np.int32(a), np.int32(b)), {"slice_sizes": (2, 3)}) for a, b in ((1, 2), (-3, 9))],
)  # fmt: skip


def _dynamic_update_type(types: Sequence[Type]) -> Type:
    operand, update = as_tensor(types[0], 0), as_tensor(types[1], 1)
    _check_starts(types, 2, operand.rank)
    if update.dtype is not operand.dtype and "any" not in (update.dtype.kind, operand.dtype.kind):
        raise InferError(f"the update is a {update}", operand=1, expected=f"{operand.dtype}")
    if operand.dims is not None and update.dims is not None:
        fits = len(operand.dims) == len(update.dims) and all(
            isinstance(d, str) or isinstance(u, str) or u <= d for d, u in zip(operand.dims, update.dims, strict=True)
        )
        if not fits:
            raise InferError(f"the update is a {update}", operand=1, expected=f"no larger than {operand}")
    return operand


def _dynamic_update(xs: Sequence[Array]) -> Array:
    out = xs[0].copy()
    out[_clamped_starts(xs[2:], out.shape, xs[1].shape)] = xs[1]
    return out


def _dynamic_update_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    starts, update = node.inputs[2:], as_tensor(node.inputs[1].type)
    zeros = b.splat(0, update)
    return (b(dynamic_update_slice, g, zeros, *starts), b(dynamic_slice, g, *starts, slice_sizes=update.shape),
            *(None for _ in starts))  # fmt: skip


dynamic_update_slice: Op = Op(
    "dynamic_update_slice", "The operand with a box at computed start indices replaced; moved inside if it sticks out.",
    operands=(Operand("operand"), Operand("update"), Operand("start_indices", variadic=True)), infer=_dynamic_update_type,
    eval=_dynamic_update, vjp=_dynamic_update_vjp, source="StableHLO dynamic_update_slice",
    samples=lambda rng: [((rng.random((4, 5)), rng.random((2, 3)), np.int32(a), np.int32(b)), {}) for a, b in ((1, 2), (-3, 9))],
)  # fmt: skip


# --- gather and scatter -------------------------------------------------------------------------------------------


def _batch_shape(indices: Dims, index_vector_dim: int) -> Dims:
    return tuple(d for k, d in enumerate(indices) if k != index_vector_dim)


def _check_index_maps(rank: int, indices: Dims, index_map: Axes, vector_dim: int, batching: Axes, indices_batching: Axes) -> None:
    if not 0 <= vector_dim <= len(indices):
        raise InferError(f"index_vector_dim {vector_dim}", expected=f"0 to {len(indices)}")
    vector = 1 if vector_dim == len(indices) else indices[vector_dim]
    if isinstance(vector, int) and vector != len(index_map):
        raise InferError(f"index vectors of {vector} for a map of {len(index_map)} dimensions", operand=1)
    check_axes(index_map + batching, rank, "indexed dimension")
    if len(batching) != len(indices_batching):
        raise InferError("the operand and the indices have different numbers of batching dimensions")
    check_axes(indices_batching, len(indices), "batching dimension of the indices")


def _positions(indices: Array, shape: Sequence[int], index_map: Axes, vector_dim: int, batching: Axes,
               indices_batching: Axes) -> dict[int, Index]:
    """For each operand axis that is indexed: where each slice starts on it, in the shape of the batch."""
    vectors = indices.astype(np.int64)
    vectors = vectors[..., None] if vector_dim == indices.ndim else np.moveaxis(vectors, vector_dim, -1)
    found: dict[int, Index] = {axis: vectors[..., k] for k, axis in enumerate(index_map)}
    batch_shape = vectors.shape[:-1]
    for axis, at in zip(batching, indices_batching, strict=True):
        at -= at > vector_dim
        found[axis] = np.broadcast_to(np.arange(batch_shape[at]).reshape([-1 if k == at else 1 for k in range(len(batch_shape))]),
                                      batch_shape)
    return found


def _full_index(starts: dict[int, Index], shape: Sequence[int], windows: dict[int, int], window_sizes: dict[int, int],
                rank: int) -> list[Index]:
    """One index array per operand axis, all broadcasting to the result (or update) of that rank.

    `windows` maps an operand axis to the result axis along which its slice lies.
    """
    batch_axes = [k for k in range(rank) if k not in windows.values()]
    full = []
    for axis in range(len(shape)):
        at: Any = np.zeros((1,) * rank, np.int64)
        if axis in starts:
            spread = [1] * rank
            for k, size in zip(batch_axes, starts[axis].shape, strict=True):
                spread[k] = size
            at = at + starts[axis].reshape(spread)
        if axis in windows:
            at = at + np.arange(window_sizes[axis]).reshape([-1 if k == windows[axis] else 1 for k in range(rank)])
        full.append(at)
    return full


_GATHER = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map")


def _gather_type(types: Sequence[Type], offset: Axes, collapsed: Axes, batching: Axes, indices_batching: Axes, index_map: Axes,
                 vector_dim: int, sizes: Axes) -> Type:
    operand, indices = as_tensor(types[0], 0), as_tensor(types[1], 1)
    check_kind(indices, ("int", "uint"), 1)
    if operand.dims is None or indices.dims is None:
        return operand.with_dims(None)
    rank = len(operand.dims)
    _check_index_maps(rank, indices.dims, index_map, vector_dim, batching, indices_batching)
    if len(sizes) != rank:
        raise InferError(f"{len(sizes)} slice sizes for {operand}", expected=f"{rank}")
    for k, size in enumerate(sizes):
        whole = operand.dims[k]
        if size < 0 or (isinstance(whole, int) and size > whole) or (k in collapsed + batching and size > 1):
            raise InferError(f"slice size {size} of dimension {k} of {operand}")
    kept = [s for k, s in enumerate(sizes) if k not in collapsed + batching]
    if len(kept) != len(offset):
        raise InferError(f"{len(offset)} offset dimensions {show_dims(offset)} for {len(kept)} kept slice dimensions")
    batch = iter(_batch_shape(indices.dims, vector_dim))
    total = len(offset) + len(indices.dims) - (vector_dim < len(indices.dims))
    check_axes(offset, total, "offset dimension")
    window = dict(zip(offset, kept, strict=True))
    return operand.with_dims(window[k] if k in window else next(batch) for k in range(total))


def _gather(xs: Sequence[Array], offset: Axes, collapsed: Axes, batching: Axes, indices_batching: Axes, index_map: Axes,
            vector_dim: int, sizes: Axes) -> Array:
    operand, indices = xs
    starts = _positions(indices, operand.shape, index_map, vector_dim, batching, indices_batching)
    for axis in index_map:
        starts[axis] = np.clip(starts[axis], 0, operand.shape[axis] - sizes[axis])
    kept = [k for k in range(operand.ndim) if k not in collapsed + batching]
    windows = dict(zip(kept, offset, strict=True))
    rank = len(offset) + indices.ndim - (vector_dim < indices.ndim)
    full = _full_index(starts, operand.shape, windows, {k: sizes[k] for k in kept}, rank)
    batch = iter(_batch_shape(indices.shape, vector_dim))
    shape = tuple(sizes[kept[offset.index(k)]] if k in offset else int(next(batch)) for k in range(rank))
    if operand.size == 0 or 0 in shape:
        return np.zeros(shape, operand.dtype)
    return np.broadcast_to(operand[tuple(full)], shape) if full else np.broadcast_to(operand, shape)


def _gather_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    offset, collapsed, batching, indices_batching, index_map, vector_dim, sizes = node.attrs
    operand = as_tensor(node.inputs[0].type)
    starts = _clamped_indices(b, node.inputs[1], operand.shape, index_map, vector_dim, sizes)
    return b(scatter, b.splat(0, operand), starts, g, update_window_dims=offset, inserted_window_dims=collapsed,
             input_batching_dims=batching, scatter_indices_batching_dims=indices_batching,
             scatter_dims_to_operand_dims=index_map, index_vector_dim=vector_dim,
             update_computation=monoid_body(add, operand.dtype)), None  # fmt: skip


def _clamped_indices(b: Builder, indices: Node, shape: Axes, index_map: Axes, vector_dim: int, sizes: Axes) -> Node:
    """Gather clamps where scatter drops: the transpose scatters to the clamped places."""
    limits = [shape[axis] - sizes[axis] for axis in index_map]
    index_type = as_tensor(indices.type)
    most = (1 << (index_type.dtype.bits - (index_type.dtype.kind == "int"))) - 1
    spread = [1] * len(index_type.shape)
    if vector_dim < len(spread):
        spread[vector_dim] = len(limits)
    high = np.broadcast_to(np.minimum(limits, most).reshape(spread), index_type.shape)
    return b(clamp, b.like(0, indices), indices, b.constant(high, index_type.dtype))


def _gather_samples(rng: Any) -> Any:
    x = rng.random((4, 5, 3))
    rows = dict(zip((*_GATHER, "index_vector_dim", "slice_sizes"), ((1, 2), (0,), (), (), (0,), 1, (1, 5, 3)), strict=True))
    boxes = dict(zip((*_GATHER, "index_vector_dim", "slice_sizes"), ((0, 2), (1,), (), (), (1, 0), 1, (2, 1, 3)), strict=True))
    batched = dict(zip((*_GATHER, "index_vector_dim", "slice_sizes"), ((2,), (1,), (0,), (0,), (1,), 2, (1, 1, 3)), strict=True))
    return [((x, np.array([0, 3, 9])), rows), ((x, np.array([[0, 1], [4, 9]])), boxes),
            ((x, np.array([[0, 1], [4, 2], [0, 0], [3, -1]])), batched)]


gather: Op = Op(
    "gather", "Slices of the operand at computed start indices, which are clamped so that each slice fits.",
    operands=(Operand("operand"), Operand("start_indices")),
    attrs=(*(Attr(name, "ints", ()) for name in _GATHER), Attr("index_vector_dim", "int", 0), Attr("slice_sizes", "ints")),
    infer=_gather_type, eval=_gather, vjp=_gather_vjp, source="StableHLO gather", samples=_gather_samples,
)  # fmt: skip

_SCATTER = ("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
            "scatter_dims_to_operand_dims")


def _scatter_type(types: Sequence[Type], window: Axes, inserted: Axes, batching: Axes, indices_batching: Axes, index_map: Axes,
                  vector_dim: int, body: Function) -> Type:
    count = len(types) // 2
    inputs, indices, updates = types[:count], as_tensor(types[count], count), types[count + 1 :]
    check_kind(indices, ("int", "uint"), count)
    for k, (input, update) in enumerate(zip(inputs, updates, strict=True)):
        operand, given = as_tensor(input, k), as_tensor(update, count + 1 + k)
        if operand.dims is None or indices.dims is None or given.dims is None:
            continue
        _check_index_maps(len(operand.dims), indices.dims, index_map, vector_dim, batching, indices_batching)
        kept = [d for axis, d in enumerate(operand.dims) if axis not in inserted + batching]
        batch = iter(_batch_shape(indices.dims, vector_dim))
        if len(given.dims) != len(window) + len(indices.dims) - (vector_dim < len(indices.dims)) or len(kept) != len(window):
            raise InferError(f"updates {k} are a {given}", operand=count + 1 + k, expected="batch and window dimensions")
        check_axes(window, len(given.dims), "window dimension")
        for axis, size in enumerate(given.dims):
            limit = kept[window.index(axis)] if axis in window else next(batch)
            wrong = size > limit if axis in window else size != limit  # type: ignore[operator]
            if isinstance(size, int) and isinstance(limit, int) and wrong:
                raise InferError(f"dimension {axis} of updates {k}, a {given}", operand=count + 1 + k, expected=f"{limit}")
        merge_types(tensor(operand.dtype), tensor(given.dtype))
    if len(body.params) != 2 * count or len(body.results) != count:
        raise InferError(f"the body takes {len(body.params)} and gives {len(body.results)} values")
    return inputs[0] if count == 1 else TupleType(tuple(inputs))


def _scatter(xs: Sequence[Array], window: Axes, inserted: Axes, batching: Axes, indices_batching: Axes, index_map: Axes,
             vector_dim: int, body: Function) -> Any:
    count = len(xs) // 2
    inputs, indices, updates = xs[:count], xs[count], xs[count + 1 :]
    shape = inputs[0].shape
    starts = _positions(indices, shape, index_map, vector_dim, batching, indices_batching)
    kept = [k for k in range(len(shape)) if k not in inserted + batching]
    windows = dict(zip(kept, window, strict=True))
    sizes = {axis: updates[0].shape[windows[axis]] for axis in kept}
    full = _full_index(starts, shape, windows, sizes, updates[0].ndim)
    inside: Any = np.ones((1,) * updates[0].ndim, np.bool_)
    flat: Any = np.zeros((1,) * updates[0].ndim, np.int64)
    for at, size in zip(full, shape, strict=True):
        inside = inside & (at >= 0) & (at < size)
        flat = flat * size + at
    mask = np.broadcast_to(inside, updates[0].shape).reshape(-1)
    places = np.broadcast_to(flat, updates[0].shape).reshape(-1)[mask]
    results = tuple(x.reshape(-1).copy() for x in inputs)
    _combine_at(results, places, [u.reshape(-1)[mask] for u in updates], body)
    shaped = tuple(r.reshape(x.shape) for r, x in zip(results, inputs, strict=True))
    return shaped[0] if count == 1 else shaped


def _combine_at(results: Sequence[Array], places: Index, updates: Sequence[Array], body: Function) -> None:
    """Each result at its places combined with the updates, in order where the order matters."""
    if places.size == 0:
        return
    if body.results == body.params[len(results) :]:  # the update replaces: the last one stays
        for result, update in zip(results, updates, strict=True):
            result[places] = update
        return
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    first = np.flatnonzero(np.r_[True, np.diff(sorted_places) != 0])
    unique = sorted_places[first]
    op = body.reducer if len(results) == 1 else None
    if op is not None and op.eval is not None and (ufunc := _REDUCEAT.get(op)) is not None:
        total = ufunc(updates[0][order], first, results[0].dtype)
        results[0][unique] = op.eval([results[0][unique], total])
        return
    in_rounds(results, unique, first, [u[order] for u in updates], body)


def in_rounds(results: Sequence[Array], unique: Index, first: Index, updates: Sequence[Array], body: Function) -> None:
    """The body applied to all places at once, to the first update of each, then the second, and so on."""
    counts = np.diff(np.r_[first, updates[0].size])
    for turn in range(int(counts.max())):
        live = counts > turn
        at, pick = unique[live], first[live] + turn
        new = combine(body, [r[at] for r in results], [u[pick] for u in updates])
        for result, value in zip(results, new, strict=True):
            result[at] = value


def _reduceat(function: np.ufunc) -> Callable[[Array, Index, Any], Array]:
    def reduce(values: Array, first: Index, dtype: Any) -> Array:
        narrow = values.dtype.itemsize < 4 and values.dtype.kind not in "biu"
        wide = values.astype(np.float32) if narrow else values
        return np.asarray(function.reduceat(wide, first), dtype=dtype)

    return reduce


_REDUCEAT: dict[Op, Callable[[Array, Index, Any], Array]] = {
    add: _reduceat(np.add), multiply: _reduceat(np.multiply), maximum: _reduceat(np.maximum), minimum: _reduceat(np.minimum),
    and_: _reduceat(np.bitwise_and), or_: _reduceat(np.bitwise_or),
}  # fmt: skip


def _scatter_samples(rng: Any) -> Any:
    names = (*_SCATTER, "index_vector_dim", "update_computation")
    body = monoid_body(add, F64)
    rows = dict(zip(names, ((1,), (0,), (), (), (0,), 1, body), strict=True))
    return [((rng.random((4, 3)), np.array([[0], [2], [2]]), rng.random((3, 3))), rows)]


scatter: Op = Op(
    "scatter", "The inputs with update slices combined into them at computed places; elements that fall outside are dropped.",
    operands=(Operand("inputs", variadic=True), Operand("scatter_indices"), Operand("updates", variadic=True)),
    attrs=(*(Attr(name, "ints", ()) for name in _SCATTER), Attr("index_vector_dim", "int", 0),
           Attr("update_computation", "function", summary="(old..., update...) -> new...")),
    infer=_scatter_type, eval=_scatter, source="StableHLO scatter", samples=_scatter_samples,
)  # fmt: skip

INDEX: tuple[Op, ...] = (dynamic_slice, dynamic_update_slice, gather, scatter)
