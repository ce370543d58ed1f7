"""Reading and writing slices at positions that are computed: one (dynamic_slice, dynamic_update_slice), or many (gather, scatter).

Start indices are clamped so that slices fit, as in XLA; scatter drops update elements that fall outside. Gather and scatter are
whole-array numpy: one index array per operand axis. Scatter combines updates into their positions in order where the body is a
monoid op, and in rounds over all positions at once where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from deepx_graph.errors import InferError, an
from deepx_graph.ir import Attr, Builder, Function, Node, Op, Operand, Relation
from deepx_graph.ir.constraint import (
    INTEGERS,
    NON_NEGATIVE,
    SCALAR,
    TENSOR,
    axes_of,
    combines,
    equally_many,
    one_for_each_axis,
    same_element_type,
    same_element_types,
    same_shape,
    some,
)
from deepx_graph.ir.evaluation import BLOCK, WORD, nothing, wide
from deepx_graph.ir.signature import MANY
from deepx_graph.literal import Array
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.ops.factors.index import DYNAMIC_SLICE, DYNAMIC_UPDATE_SLICE, GATHER, SCATTER
from deepx_graph.ops.helpers import loops_in, placed_by, staged_in, written_in
from deepx_graph.ops.interpret import combine, report_fallback
from deepx_graph.ops.math.elementwise import add, clamp, maximum, minimum, multiply
from deepx_graph.ops.tensor.layout import show_dims
from deepx_graph.types import F64, Dims, DType, TensorType, TupleType, Type, as_tensor, scalar

Axes = tuple[int, ...]
Index = np.ndarray[Any, np.dtype[np.int64]]

_STARTS = Operand("start_indices", variadic=True, type=INTEGERS & SCALAR)


def clamped_starts(starts: Sequence[Array], shape: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    found = []
    for start, whole, size in zip(starts, shape, sizes, strict=True):
        at = min(max(0, int(start)), whole - size)
        found.append(slice(at, at + size))
    return tuple(found)


def _dynamic_slice_type(types: Sequence[Type], slice_sizes: Axes) -> Type:
    operand = as_tensor(types[0], 0)
    for k, size in enumerate(slice_sizes):
        whole = operand.dims[k] if operand.dims is not None and k < len(operand.dims) else size
        if isinstance(whole, int) and size > whole:
            raise InferError(f"a slice of {size} from dimension {k} of {operand}", expected=f"0 to {whole}")
    return operand.with_dims(slice_sizes)


def _dynamic_slice_staged(types: Sequence[Type], result: Type, sizes: Axes) -> Callable[..., Any]:
    shape = as_tensor(types[0]).shape
    if len(shape) != 1:
        index = box_at(shape, sizes)
        return lambda x, *starts: x[index(starts)]
    whole = sizes[0]
    last = shape[0] - whole

    def run(x: Array, start: Any) -> Any:
        first = int(start)
        first = 0 if first < 0 else last if first > last else first
        return x[first : first + whole]

    return run


def box_at(shape: Axes, sizes: Axes) -> Callable[[Sequence[Any]], tuple[slice, ...]]:
    """What makes the index of a box of those sizes of start indices, clamped; axes that it has whole cost nothing."""
    moving = [(k, whole - size, size) for k, (whole, size) in enumerate(zip(shape, sizes, strict=True)) if whole != size]
    everywhere = [slice(None)] * len(shape)

    def place(starts: Sequence[Any]) -> tuple[slice, ...]:
        box = everywhere.copy()
        for k, last, size in moving:
            start = int(starts[k])
            start = 0 if start < 0 else last if start > last else start
            box[k] = slice(start, start + size)
        return tuple(box)

    return place


def _dynamic_slice_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    zeros = b.splat(0, as_tensor(node.inputs[0].type))
    return b(dynamic_update_slice, zeros, g, *node.inputs[1:]), *(None for _ in node.inputs[1:])


dynamic_slice: Op = Op(
    "dynamic_slice", "A box of the operand at computed start indices, moved inside where it would stick out.",
    operands=(Operand("operand", type=TENSOR), _STARTS), attrs=(Attr("slice_sizes", "ints", check=NON_NEGATIVE),),
    constraints=(equally_many("start_indices", "slice_sizes"), one_for_each_axis("operand", "start_indices")),
    sharding=DYNAMIC_SLICE,
    infer=_dynamic_slice_type, eval=lambda xs, sizes: xs[0][clamped_starts(xs[1:], xs[0].shape, sizes)], view=True,
    element=loops_in("index", "dynamic_slice_element"), staged=_dynamic_slice_staged, vjp=_dynamic_slice_vjp,
    assembly="operands, sizes = $slice_sizes",
    place=placed_by("dynamic_slice_place"), source="StableHLO dynamic_slice",
    samples=lambda rng: [((rng.random((4, 5)), np.int32(a), np.int32(b)), {"slice_sizes": sizes})
                         for a, b, sizes in ((1, 2, (2, 3)), (-3, 9, (2, 3)), (1, 1, (3, 1)))],
)  # fmt: skip


def _dynamic_update_type(types: Sequence[Type]) -> Type:
    operand, update = as_tensor(types[0], 0), as_tensor(types[1], 1)
    if operand.dims is not None and update.dims is not None:
        fits = len(operand.dims) == len(update.dims) and all(
            isinstance(d, str) or isinstance(u, str) or u <= d for d, u in zip(operand.dims, update.dims, strict=True)
        )
        if not fits:
            raise InferError(f"the update is {an(update)}", operand=1, expected=f"no larger than {operand}")
    return operand


def _dynamic_update(xs: Sequence[Array]) -> Array:
    out = xs[0].copy()
    out[clamped_starts(xs[2:], out.shape, xs[1].shape)] = xs[1]
    return out


def _dynamic_update_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    starts, update = node.inputs[2:], as_tensor(node.inputs[1].type)
    zeros = b.splat(0, update)
    return (b(dynamic_update_slice, g, zeros, *starts), b(dynamic_slice, g, *starts, slice_sizes=update.shape),
            *(None for _ in starts))  # fmt: skip


dynamic_update_slice: Op = Op(
    "dynamic_update_slice", "The operand with a box at computed start indices replaced; moved inside if it sticks out.",
    operands=(Operand("operand", type=TENSOR), Operand("update", type=TENSOR), _STARTS),
    constraints=(same_element_type("operand", "update"), one_for_each_axis("operand", "start_indices")),
    sharding=DYNAMIC_UPDATE_SLICE,
    algebraic=True, infer=_dynamic_update_type, eval=_dynamic_update, scratch=nothing, vjp=_dynamic_update_vjp,
    loops=loops_in("index", "dynamic_update_slice_loops"),
    place=placed_by("dynamic_update_slice_place"), source="StableHLO dynamic_update_slice",
    samples=lambda rng: [((rng.random((4, 5)), rng.random((2, 3)), np.int32(a), np.int32(b)), {}) for a, b in ((1, 2), (-3, 9))],
)  # fmt: skip


class BoxUpdate(NamedTuple):
    """A box of `whole`, from the start indices on, that is written over."""

    whole: Node
    box: Node
    starts: tuple[Node, ...]


def box_update(node: Node) -> BoxUpdate | None:
    """What a dynamic_update_slice does; None for any other node."""
    return BoxUpdate(node.inputs[0], node.inputs[1], node.inputs[2:]) if node.op is dynamic_update_slice else None


# --- many slices --------------------------------------------------------------------------------------------------


def _batch_shape(indices: Dims, index_vector_dim: int) -> Dims:
    return tuple(d for k, d in enumerate(indices) if k != index_vector_dim)


def _positions(indices: Array, shape: Sequence[int], index_map: Axes, vector_dim: int, batching: Axes,
               indices_batching: Axes) -> dict[int, Array]:
    """For each operand axis that is indexed: where each slice starts on it, in the shape of the batch; views of the indices."""
    vectors = indices[..., None] if vector_dim == indices.ndim else np.moveaxis(indices, vector_dim, -1)
    found: dict[int, Array] = {axis: vectors[..., k] for k, axis in enumerate(index_map)}
    batch_shape = vectors.shape[:-1]
    for axis, at in zip(batching, indices_batching, strict=True):
        at -= at > vector_dim
        found[axis] = np.broadcast_to(np.arange(batch_shape[at]).reshape([-1 if k == at else 1 for k in range(len(batch_shape))]),
                                      batch_shape)
    return found


def _full_index(starts: dict[int, Array], shape: Sequence[int], windows: dict[int, int], window_sizes: dict[int, int],
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
            at = at + starts[axis].astype(np.int64).reshape(spread)
        if axis in windows:
            at = at + np.arange(window_sizes[axis]).reshape([-1 if k == windows[axis] else 1 for k in range(rank)])
        full.append(at)
    return full


def _chunks(shape: Axes, batch_axes: Sequence[int]) -> Iterator[tuple[int, slice]]:
    """An axis of the batch and parts of it, one after the other, such that each has about a block of the elements of a result (or
    an update) of that shape, in their order. All of axis -1 where the first axis is no batch's."""
    axis = next((k for k, size in enumerate(shape) if size > 1), None)
    if axis is None or axis not in batch_axes or math.prod(shape) <= BLOCK:
        yield -1, slice(None)
        return
    rows = max(1, BLOCK // (math.prod(shape) // shape[axis]))
    for start in range(0, shape[axis], rows):
        yield axis, slice(start, start + rows)


def _cut(starts: dict[int, Array], batch_axes: Sequence[int], axis: int, part: slice) -> dict[int, Array]:
    """The starts of a chunk."""
    if axis < 0:
        return starts
    at = (slice(None),) * batch_axes.index(axis) + (part,)
    return {k: v[at] for k, v in starts.items()}


def _index_bytes(shape: Axes, windows: dict[int, int], rank: int, indexed: Sequence[int]) -> int:
    """What the index arrays of a chunk of that shape may take: one for each axis, with one before and one after it is added to."""
    batch = math.prod(size for k, size in enumerate(shape) if k not in windows.values())
    sizes = [(batch if axis in indexed else 1) * (shape[windows[axis]] if axis in windows else 1) for axis in range(rank)]
    return 2 * WORD * sum(sizes)


def _dimension_numbers(names: Sequence[str]) -> tuple[Attr, ...]:
    return (*(Attr(name, "ints", (), check=NON_NEGATIVE) for name in names), Attr("index_vector_dim", "int", 0, check=NON_NEGATIVE))


def _indexing(operand: str, indices: str, dropped: str, batching: str, indices_batching: str, index_map: str
              ) -> tuple[Relation, ...]:
    """What gather and scatter ask of their dimension numbers, named as each of them names them."""

    def vectors_fit(type: TensorType, vector_dim: int, axes: Axes) -> bool:
        size = None if type.dims is None else 1 if vector_dim == len(type.dims) else type.dims[vector_dim]
        return not isinstance(size, int) or size == len(axes)

    return (
        axes_of(operand, index_map, batching), axes_of(operand, dropped, batching), axes_of(indices, indices_batching),
        equally_many(batching, indices_batching),
        Relation(f"index_vector_dim to be an axis of {indices}, or the one after the last", (indices, "index_vector_dim"),
                 lambda type, k: type.rank is None or k <= type.rank),
        Relation(f"index vectors as long as {index_map}", (indices, "index_vector_dim", index_map), vectors_fit),
    )  # fmt: skip


_GATHER = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims", "start_index_map")


def _gather_type(types: Sequence[Type], offset: Axes, collapsed: Axes, batching: Axes, indices_batching: Axes, index_map: Axes,
                 vector_dim: int, sizes: Dims) -> Type:
    operand, indices = as_tensor(types[0], 0), as_tensor(types[1], 1)
    if operand.dims is None or indices.dims is None:
        return operand.with_dims(None)
    for k, size in enumerate(sizes):
        whole = operand.dims[k]
        if isinstance(size, str):
            continue
        if size < 0 or (isinstance(whole, int) and size > whole) or (k in collapsed + batching and size > 1):
            raise InferError(f"slice size {size} of dimension {k} of {operand}")
    kept = [s for k, s in enumerate(sizes) if k not in collapsed + batching]
    if len(kept) != len(offset):
        raise InferError(f"{len(offset)} offset dimensions {show_dims(offset)} for {len(kept)} kept slice dimensions")
    batch = iter(_batch_shape(indices.dims, vector_dim))
    total = len(offset) + len(indices.dims) - (vector_dim < len(indices.dims))
    if any(k >= total for k in offset):
        raise InferError(f"offset_dims {show_dims(offset)} of a result of rank {total}", expected=f"axes below {total}")
    window = dict(zip(offset, kept, strict=True))
    return operand.with_dims(window[k] if k in window else next(batch) for k in range(total))


def _gather(xs: Sequence[Array], offset: Axes, collapsed: Axes, batching: Axes, indices_batching: Axes, index_map: Axes,
            vector_dim: int, sizes: Axes) -> Array:
    operand, indices = xs
    starts = _positions(indices, operand.shape, index_map, vector_dim, batching, indices_batching)
    kept = [k for k in range(operand.ndim) if k not in collapsed + batching]
    windows = dict(zip(kept, offset, strict=True))
    rank = len(offset) + indices.ndim - (vector_dim < indices.ndim)
    batch = iter(_batch_shape(indices.shape, vector_dim))
    shape = tuple(sizes[kept[offset.index(k)]] if k in offset else int(next(batch)) for k in range(rank))
    if operand.size == 0 or 0 in shape:
        return np.zeros(shape, operand.dtype)
    batch_axes = [k for k in range(rank) if k not in offset]
    result = np.empty(shape, operand.dtype)
    for along, part in _chunks(shape, batch_axes):
        some = _cut(starts, batch_axes, along, part)
        for axis in index_map:
            some[axis] = np.clip(some[axis].astype(np.int64), 0, operand.shape[axis] - sizes[axis])
        full = _full_index(some, operand.shape, windows, {k: sizes[k] for k in kept}, rank)
        result[(slice(None),) * max(0, along) + (part,) if rank else ()] = operand[tuple(full)]
    return result


def _gather_scratch(types: Sequence[Type], result: Type, offset: Axes, collapsed: Axes, batching: Axes, indices_batching: Axes,
                    index_map: Axes, vector_dim: int, sizes: Axes) -> int:
    """Positions of the operand; of a chunk, which are few, where the first axis of the result is one of the batch."""
    shape, rank = as_tensor(result).shape, len(as_tensor(types[0]).shape)
    kept = [k for k in range(rank) if k not in collapsed + batching]
    return _chunked(shape, dict(zip(kept, offset, strict=True)), rank, (*index_map, *batching), as_tensor(result).dtype.itemsize)


def _chunked(shape: Axes, windows: dict[int, int], rank: int, indexed: Sequence[int], itemsize: int) -> int:
    """The bytes of the positions of the largest chunk, and of its elements."""
    batch_axes = [k for k in range(len(shape)) if k not in windows.values()]
    axis, part = next(_chunks(shape, batch_axes))
    if axis >= 0:
        shape = (*shape[:axis], min(shape[axis], part.stop), *shape[axis + 1 :])
    if math.prod(shape) <= 2 * BLOCK:
        return 0
    return _index_bytes(shape, windows, rank, indexed) + math.prod(shape) * (4 * WORD + 3 + 2 * itemsize)


def _gather_vjp(b: Builder, node: Node, g: Node) -> Sequence[Node | None]:
    offset, collapsed, batching, indices_batching, index_map, vector_dim, sizes = node.attrs
    operand = as_tensor(node.inputs[0].type)
    starts = _clamped_indices(b, node.inputs[1], operand.shape, index_map, vector_dim, sizes)
    return b(scatter, b.splat(0, operand), starts, g, update_window_dims=offset, inserted_window_dims=collapsed,
             input_batching_dims=batching, scatter_indices_batching_dims=indices_batching,
             scatter_dims_to_operand_dims=index_map, index_vector_dim=vector_dim,
             update_computation=monoid_body(add, operand.dtype)), None  # fmt: skip


def _clamped_indices(b: Builder, indices: Node, shape: Axes, index_map: Axes, vector_dim: int, sizes: Axes) -> Node:
    """Gather clamps where scatter drops: the transpose scatters to the clamped positions."""
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
    operands=(Operand("operand", type=TENSOR), Operand("start_indices", type=INTEGERS)),
    attrs=(*_dimension_numbers(_GATHER), Attr("slice_sizes", "dims")),
    constraints=(*_indexing("operand", "start_indices", *_GATHER[1:]), one_for_each_axis("operand", "slice_sizes")),
    sharding=GATHER, algebraic=True, infer=_gather_type, eval=_gather, staged=staged_in("tensor.index_staged", "gather_staged"),
    element=loops_in("index", "gather_element"), scratch=_gather_scratch, vjp=_gather_vjp,
    place=placed_by("gather_place"), source="StableHLO gather", samples=_gather_samples,
)  # fmt: skip


def gather_along(rank: int, axis: int) -> dict[str, Any]:
    """The attributes of a gather of single elements: for each index the one of that number along an axis, at the same place in the
    others (numpy's `take_along_axis`)."""
    others = tuple(k for k in range(rank) if k != axis)
    return {"collapsed_slice_dims": (axis,), "operand_batching_dims": others, "start_indices_batching_dims": others,
            "start_index_map": (axis,), "index_vector_dim": rank, "slice_sizes": (1,) * rank}


_SCATTER = ("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims",
            "scatter_dims_to_operand_dims")


def _scatter_type(types: Sequence[Type], window: Axes, inserted: Axes, batching: Axes, indices_batching: Axes, index_map: Axes,
                  vector_dim: int, body: Function) -> Type:
    count = len(types) // 2
    inputs, indices, updates = types[:count], as_tensor(types[count], count), types[count + 1 :]
    for k, (input, update) in enumerate(zip(inputs, updates, strict=True)):
        operand, given = as_tensor(input, k), as_tensor(update, count + 1 + k)
        if operand.dims is None or indices.dims is None or given.dims is None:
            continue
        kept = [d for axis, d in enumerate(operand.dims) if axis not in inserted + batching]
        batch = iter(_batch_shape(indices.dims, vector_dim))
        if len(given.dims) != len(window) + len(indices.dims) - (vector_dim < len(indices.dims)) or len(kept) != len(window):
            raise InferError(f"updates {k} are {an(given)}", operand=count + 1 + k, expected="batch and window dimensions")
        for axis, size in enumerate(given.dims):
            limit = kept[window.index(axis)] if axis in window else next(batch)
            known = isinstance(size, int) and isinstance(limit, int)
            if known and (size > limit if axis in window else size != limit):  # type: ignore[operator]
                raise InferError(f"dimension {axis} of updates {k}, {an(given)}", operand=count + 1 + k, expected=f"{limit}")
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
    batch_axes = [k for k in range(updates[0].ndim) if k not in window]
    results = tuple(np.array(x, order="C").reshape(-1) for x in inputs)
    if (rounds := _accumulator(body, inputs, updates[0].shape, batch_axes)) is not None:
        results = (results[0].astype(rounds),)
    for along, part in _chunks(updates[0].shape, batch_axes):
        index = (slice(None),) * max(0, along) + (part,) if updates[0].ndim else ()
        some = [u[index] for u in updates]
        full = _full_index(_cut(starts, batch_axes, along, part), shape, windows, sizes, updates[0].ndim)
        mask, positions = _flat_positions(full, shape, some[0].shape)
        _combine_at(results, positions, [u.reshape(-1)[mask] for u in some], body)
    shaped = tuple(r.reshape(x.shape).astype(x.dtype, copy=False) for r, x in zip(results, inputs, strict=True))
    return shaped[0] if count == 1 else shaped


def _accumulator(body: Function, inputs: Sequence[Array], updates: Axes, batch_axes: Sequence[int]) -> np.dtype[Any] | None:
    """The type in which one result is kept over several chunks, so that it is rounded once; None where its own does."""
    op = body.reducer if len(inputs) == 1 else None
    if op is None or op.monoid is None or next(_chunks(updates, batch_axes))[0] < 0:
        return None
    dtype: np.dtype[Any] = op.monoid.accumulator(inputs[0])
    return None if dtype == inputs[0].dtype else dtype


def _flat_positions(full: Sequence[Index], shape: Sequence[int], updates: Axes) -> tuple[Array, Index]:
    """Which of the updates fall inside, and their positions in the flat operand."""
    inside: Any = np.ones((1,) * len(updates), np.bool_)
    flat: Any = np.zeros((1,) * len(updates), np.int64)
    for at, size in zip(full, shape, strict=True):
        inside = inside & (at >= 0) & (at < size)
        flat = flat * size + at
    mask = np.broadcast_to(inside, updates).reshape(-1)
    return mask, np.broadcast_to(flat, updates).reshape(-1)[mask]


def _scatter_scratch(types: Sequence[Type], result: Type, window: Axes, inserted: Axes, batching: Axes, indices_batching: Axes,
                     index_map: Axes, vector_dim: int, body: Function) -> int:
    """Positions of the updates and the updates in order; of a chunk, which are few, where their first axis is one of the batch."""
    rank, updates = len(as_tensor(types[0]).shape), [as_tensor(t) for t in types[len(types) // 2 + 1 :]]
    kept = [k for k in range(rank) if k not in inserted + batching]
    each = sum(t.dtype.itemsize for t in updates) + (WORD if body.reducer is not None else 4 * WORD)
    return wide(result) + _chunked(updates[0].shape, dict(zip(kept, window, strict=True)), rank, (*index_map, *batching), each)


def _combine_at(results: Sequence[Array], positions: Index, updates: Sequence[Array], body: Function) -> None:
    """Each result at its positions combined with the updates, in order where the order matters."""
    if positions.size == 0:
        return
    if body.results == body.params[len(results) :]:  # the update replaces: the last one stays
        for result, update in zip(results, updates, strict=True):
            result[positions] = update
        return
    op = body.reducer if len(results) == 1 else None
    if op is not None and op.monoid is not None:
        op.monoid.at(results[0], positions, updates[0])
        return
    in_rounds(results, positions, updates, body)


def in_rounds(results: Sequence[Array], positions: Index, updates: Sequence[Array], body: Function) -> None:
    """The body applied to all positions at once, to the first update of each, then the second, and so on."""
    report_fallback("in rounds over all positions")
    order = np.argsort(positions, kind="stable")
    updates, sorted_positions = [u[order] for u in updates], positions[order]
    first = np.flatnonzero(np.r_[True, np.diff(sorted_positions) != 0])
    unique = sorted_positions[first]
    counts = np.diff(np.r_[first, updates[0].size])
    for nth in range(int(counts.max())):
        live = counts > nth
        at, pick = unique[live], first[live] + nth
        new = combine(body, [r[at] for r in results], [u[pick] for u in updates])
        for result, value in zip(results, new, strict=True):
            result[at] = value


def replacing(dtype: DType) -> Function:
    """The update computation of a scatter by which updates replace what was there: the last one stays."""
    t = scalar(dtype)
    return Builder().function("replace", (("old", t), ("new", t)), lambda old, new: [new], public=False)


def _scatter_samples(rng: Any) -> Any:
    names = (*_SCATTER, "index_vector_dim", "update_computation")
    bodies = (monoid_body(add, F64), replacing(F64), *(monoid_body(op, F64) for op in (multiply, maximum, minimum)))

    def scattered(body: Function, *attrs: Any) -> dict[str, Any]:
        return dict(zip(names, (*attrs, body), strict=True))

    x, doubled, outside = rng.random((4, 3)), np.array([[0], [2], [2]]), np.array([[0, 1], [3, 2], [-1, 0]], np.int32)
    found = [((x, doubled, rng.random((3, 3))), scattered(b, (1,), (0,), (), (), (0,), 1)) for b in bodies]
    found += [((x, outside, rng.random((3, 2, 2))), scattered(b, (1, 2), (), (), (), (0, 1), 1)) for b in bodies]
    found += [((x, np.array([2], np.uint8), rng.random(3)), scattered(b, (0,), (0,), (), (), (0,), 0)) for b in bodies]
    batched = scattered(bodies[0], (), (0,), (1,), (0,), (0,), 2)
    return [*found, ((x, np.array([[0, 2], [4, 1], [1, 1]]), rng.random((3, 2))), batched)]


scatter: Op = Op(
    "scatter", "The inputs with update slices combined into them at computed positions; elements that fall outside are dropped.",
    operands=(Operand("inputs", variadic=True, type=TENSOR), Operand("scatter_indices", type=INTEGERS),
              Operand("updates", variadic=True, type=TENSOR)),
    attrs=(*_dimension_numbers(_SCATTER), Attr("update_computation", "function", summary="(old..., update...) -> new...")),
    constraints=(
        some("inputs"), same_shape("inputs"), same_shape("updates"), same_element_types("inputs", "updates"),
        axes_of("updates", "update_window_dims"), *_indexing("inputs", "scatter_indices", *_SCATTER[1:]),
        combines("update_computation", "inputs"),
    ),
    sharding=SCATTER, algebraic=True, infer=_scatter_type, eval=_scatter, staged=staged_in("tensor.index_staged", "scatter_staged"),
    loops=loops_in("index", "scatter_loops"), scratch=_scatter_scratch,
    vjp=written_in("scatter", "scatter_vjp"),
    results=MANY, source="StableHLO scatter", samples=_scatter_samples,
)  # fmt: skip
