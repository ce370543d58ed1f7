"""Gather, scatter, and slices at computed positions, as loop programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.ir import Function, Node
from deepx_graph.loops import Affine, LazyTensor, LoopBuilder, Scalar, call
from deepx_graph.loops.scalar import Index

Axes = tuple[int, ...]


def dynamic_slice_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """The element at the clamped start and the subscript."""
    starts = clamped_starts(b, xs[1:], xs[0].shape, node.attr("slice_sizes"))
    return xs[0].at(b, [s + i for s, i in zip(starts, at, strict=True)])


def clamped_starts(b: LoopBuilder, starts: Sequence[LazyTensor], shape: Axes, sizes: Axes) -> list[Affine]:
    """Where a box of those sizes begins, moved inside."""
    return [b.clamped(s.at(b, ()), 0, whole - size) for s, whole, size in zip(starts, shape, sizes, strict=True)]


def dynamic_update_slice_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """The update's element where the subscript is within the box, else the operand's."""
    x, update = xs[:2]
    starts = clamped_starts(b, xs[2:], x.shape, update.shape)
    inner = [i - s for i, s in zip(at, starts, strict=True)]
    inside = b.both(*(b.within(i, 0, size) for i, size in zip(inner, update.shape, strict=True)))
    return b.choose(inside, lambda: update.at(b, inner), lambda: x.at(b, at), x.dtype)


def dynamic_update_slice_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The operand, then the box over it."""
    x, update = xs[:2]
    b.copy(outs[0], x)
    with b.nest(update.shape) as at:
        starts = clamped_starts(b, xs[2:], x.shape, update.shape)
        b.put(outs[0], [s + i for s, i in zip(starts, at, strict=True)], update.at(b, at))


def gather_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """The operand's element at the clamped start of the slice, and the subscript within the slice."""
    offset, collapsed, batching, indices_batching, index_map, vector_dim, sizes = node.attrs
    x, indices = xs
    batch = [i for k, i in enumerate(at) if k not in offset]
    kept = [k for k in range(len(x.shape)) if k not in collapsed + batching]
    index: list[Affine] = [Affine()] * len(x.shape)
    for axis, k in zip(kept, offset, strict=True):
        index[axis] = at[k]
    for k, axis in enumerate(index_map):
        index[axis] = index[axis] + b.clamped(_start(b, indices, batch, vector_dim, k), 0, x.shape[axis] - sizes[axis])
    for axis, k in zip(batching, indices_batching, strict=True):
        index[axis] = batch[k - (k > vector_dim)]
    return x.at(b, index)


def _start(b: LoopBuilder, indices: LazyTensor, batch: Sequence[Affine], vector_dim: int, k: int) -> Any:
    """The k-th number of the index vector of a point of the batch."""
    if vector_dim == len(indices.shape):
        return indices.at(b, batch)
    return indices.at(b, [*batch[:vector_dim], Affine((), k), *batch[vector_dim:]])


def scatter_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The operands, then update after update in order; elements that fall outside are dropped."""
    window, inserted, batching, indices_batching, index_map, vector_dim, body = node.attrs
    count = len(xs) // 2
    indices, updates, shape = xs[count], xs[count + 1 :], outs[0].shape
    for out, x in zip(outs, xs[:count], strict=True):
        b.copy(out, x)
    kept = [k for k in range(len(shape)) if k not in inserted + batching]
    batch_axes = [k for k in range(len(updates[0].shape)) if k not in window]
    windows = [updates[0].shape[k] for k in window]
    with b.loops([updates[0].shape[k] for k in batch_axes]) as batch:
        starts: list[Affine] = [Affine()] * len(shape)
        for k, axis in enumerate(index_map):
            starts[axis] = b.position(_start(b, indices, batch, vector_dim, k))
        for axis, k in zip(batching, indices_batching, strict=True):
            starts[axis] = batch[k - (k > vector_dim)]
        extents = [windows[kept.index(axis)] if axis in kept else 1 for axis in range(len(shape))]
        whole = b.both(*(b.within(starts[axis], 0, shape[axis] - extents[axis] + 1) for axis in range(len(shape))))

        def write(checked: bool) -> None:
            with b.loops(windows) as inner:
                index = [starts[axis] + (inner[kept.index(axis)] if axis in kept else 0) for axis in range(len(shape))]
                place = dict(zip(window, inner, strict=True)) | dict(zip(batch_axes, batch, strict=True))
                at = [place[k] for k in range(len(updates[0].shape))]
                limits = zip(index, shape, strict=True) if checked else ()
                inside = b.both(*(b.within(i, 0, n) for i, n in limits))
                b.when(inside, lambda: combined(b, body, outs, index, [u.at(b, at) for u in updates]))

        single = all(n == 1 for n in windows)
        b.when(whole, lambda: write(False), lambda: None if single else write(True))


def combined(b: LoopBuilder, body: Function, outs: Sequence[LazyTensor], index: Index, updates: Sequence[Scalar]) -> None:
    """Results at a position, combined with one update for each."""
    if body.results == body.params[len(outs) :]:  # the update replaces
        new: Sequence[Any] = updates
    else:
        new = call(b, body, [*(b.fetch(out, index) for out in outs), *updates])
    for out, x in zip(outs, new, strict=True):
        b.put(out, index, x)


def index_add_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The operand, then slice after slice of the updates."""
    x, index, updates = xs
    dim = node.attr("dim")
    b.copy(outs[0], x)
    outer, inner = x.shape[:dim], x.shape[dim + 1 :]
    with b.loops(index.shape) as at:
        row = b.clamped(index.at(b, at), 0, max(0, x.shape[dim] - 1))
        with b.loops((*outer, *inner)) as rest:
            place = [*rest[:dim], row, *rest[dim:]]
            update = updates.at(b, [*rest[:dim], *at, *rest[dim:]])
            b.put(outs[0], place, b.apply("add", b.fetch(outs[0], place), update))
