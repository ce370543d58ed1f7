"""Gather, scatter, and slices at computed positions, as loop programs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from deepx_graph.ir import Function, Node
from deepx_graph.loops import Affine, LazyTensor, LoopBuilder, Scalar, call
from deepx_graph.loops.builder import computed_dtype
from deepx_graph.loops.fold import LONG_SUM, primitive_of
from deepx_graph.loops.scalar import Index
from deepx_graph.loops.tensor import in_memory
from deepx_graph.types import BOOL, F64

Axes = tuple[int, ...]

MOST_SHARES, WORTH, LEAST_SHARED = 8, 16, 1 << 15
"""Updates are combined in at most so many shares, of so many for each element of the operand; below the last none are shared."""

LINE = 128
"""Bytes of two cache lines, which processors fetch together."""


def dynamic_slice_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """The element at the clamped start and the subscript."""
    starts = clamped_starts(b, xs[1:], xs[0].shape, node.attr("slice_sizes"))
    return xs[0].at(b, [s + i for s, i in zip(starts, at, strict=True)])


def clamped_starts(b: LoopBuilder, starts: Sequence[LazyTensor], shape: Axes, sizes: Axes) -> list[Affine]:
    """Where a box of those sizes begins, moved inside."""
    return [b.clamped(s.at(b, ()), 0, whole - size) for s, whole, size in zip(starts, shape, sizes, strict=True)]


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


@dataclass(frozen=True)
class Updates:
    """Which element of the operands each element of the updates goes to. Axes are those of the updates."""

    indices: LazyTensor
    values: tuple[LazyTensor, ...]
    shape: Axes
    """Of an operand."""
    window: dict[int, int]
    """The operand's axis of each window axis."""
    batching: dict[int, int]
    """The operand's axis of each axis over which operands and updates go together."""
    batch: Axes
    """The other axes, all of which together count index vectors."""
    index_map: Axes
    vector_dim: int
    body: Function

    @staticmethod
    def of(node: Node, xs: Sequence[LazyTensor]) -> Updates:
        """Those of a scatter."""
        window, inserted, batching, indices_batching, index_map, vector_dim, body = node.attrs
        count, shape = len(xs) // 2, xs[0].shape
        kept = [k for k in range(len(shape)) if k not in inserted + batching]
        axes = [k for k in range(len(xs[-1].shape)) if k not in window]
        together = {axes[i - (i > vector_dim)]: axis for axis, i in zip(batching, indices_batching, strict=True)}
        return Updates(xs[count], tuple(xs[count + 1 :]), shape, dict(zip(window, kept, strict=True)), together,
                       tuple(k for k in axes if k not in together), index_map, vector_dim, body)

    @property
    def extents(self) -> Axes:
        return self.values[0].shape

    @property
    def alone(self) -> bool:
        """Whether there is one window, or one for each of what operands and updates go over together."""
        return all(self.extents[k] == 1 for k in self.batch)

    @property
    def apart(self) -> Axes:
        """Axes along which no two updates meet in one element."""
        return tuple(sorted((*self.batching, *(k for k, axis in self.window.items() if self.alone or axis not in self.index_map))))

    def starts(self, b: LoopBuilder, at: dict[int, Affine]) -> list[Affine]:
        """Where the window of an index vector begins; `at` are its batch subscripts."""
        found: list[Affine] = [Affine()] * len(self.shape)
        for k, axis in enumerate(self.index_map):
            found[axis] = b.position(_start(b, self.indices, [at[k] for k in sorted(at)], self.vector_dim, k))
        for k, axis in self.batching.items():
            found[axis] = at[k]
        return found

    @property
    def columns(self) -> int:
        """In how many parts, of whole cache lines, the last axis is cut: in halves where updates do not meet along it."""
        last = len(self.extents) - 1
        nbytes = self.extents[last] * self.values[0].dtype.itemsize if last in self.apart else 0
        return 1 if nbytes % (2 * LINE) or not nbytes else 2

    def write(self, b: LoopBuilder, outs: Sequence[LazyTensor], at: dict[int, Affine], *, into: Index = (),
              column: Affine | None = None) -> None:
        """The updates of an index vector and some window subscripts, one after the other; what falls outside is dropped. `into` are
        subscripts of the results before those of the operands; `column` is the part of the last axis, where that is cut."""
        starts = self.starts(b, {k: i for k, i in at.items() if k not in self.window})
        sizes = {axis: self.extents[k] for k, axis in self.window.items()}
        whole = b.both(*(b.within(starts[axis], 0, n - sizes.get(axis, 1) + 1) for axis, n in enumerate(self.shape)))
        inner, last = {k: self.extents[k] for k in self.window if k not in at}, len(self.extents) - 1

        def write(*, checked: bool) -> None:
            with b.loops([n // self.columns if column and k == last else n for k, n in inner.items()]) as rest:
                place = at | dict(zip(inner, rest, strict=True))
                if column is not None:
                    place[last] = place[last] + column * (self.extents[last] // self.columns)
                index = list(starts)
                for k, axis in self.window.items():
                    index[axis] = index[axis] + place[k]
                limits = zip(index, self.shape, strict=True) if checked else ()
                inside = b.both(*(b.within(i, 0, n) for i, n in limits))
                source = [place[k] for k in range(len(self.extents))]
                b.when(inside, lambda: combined(b, self.body, outs, [*into, *index], [u.at(b, source) for u in self.values]))

        may_cross = any(n > 1 and axis in self.index_map for axis, n in sizes.items())
        b.when(whole, lambda: write(checked=False), (lambda: write(checked=True)) if may_cross else lambda: None)


def scatter_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The operands, then update after update in order, by threads that do not meet; elements that fall outside are dropped."""
    updates = Updates.of(node, xs)
    for out, x in zip(outs, xs, strict=False):
        b.copy(out, x)
    shares, primitive = _shares(updates), primitive_of(updates.body, [x.dtype for x in outs])
    if shares > 1 and primitive is not None and computed_dtype(outs[0].dtype) is outs[0].dtype is not BOOL:
        _scatter_apart(b, updates, primitive, shares, outs[0])
        return
    last = len(updates.extents) - 1
    split = tuple(k for k in updates.apart if updates.alone or k != last)
    if len(split) > 1 and split[-1] == last:
        split = split[:-1]
    serial = [k for k in range(last + 1) if k not in updates.window and k not in split]
    if not split and updates.columns > 1 and math.prod(updates.extents) >= LEAST_SHARED:
        with b.loop(updates.columns, parallel=True) as column, b.loops([updates.extents[k] for k in serial]) as batch:
            updates.write(b, outs, dict(zip(serial, batch, strict=True)), column=column)
        return
    with b.nest([updates.extents[k] for k in split]) as outer, b.loops([updates.extents[k] for k in serial]) as batch:
        updates.write(b, outs, dict(zip(split, outer, strict=True)) | dict(zip(serial, batch, strict=True)))


def _shares(updates: Updates) -> int:
    """In how many shares updates are combined apart from each other: many for few elements of the operand."""
    count, size = math.prod(updates.extents), math.prod(updates.shape)
    most = max((updates.extents[k] for k in updates.batch), default=1)
    return min(MOST_SHARES, most, count // (WORTH * max(1, size))) if count >= LEAST_SHARED else 1


def _scatter_apart(b: LoopBuilder, updates: Updates, primitive: str, shares: int, out: LazyTensor) -> None:
    """Shares of the updates are combined each in memory of its own, and these with the operand."""
    own, reducer = in_memory(b.buffer(out.dtype, (shares, *out.shape)), out.dtype), updates.body.reducer
    assert reducer is not None
    split = max(updates.batch, key=lambda k: updates.extents[k])
    others = [k for k in range(len(updates.extents)) if k not in updates.window and k != split]
    with b.loop(shares, parallel=True) as share:
        with b.loops(out.shape) as at:
            b.put(own, [share, *at], b.const(reducer.identity_for(out.dtype), out.dtype))
        low, high = (b.quotient(s * updates.extents[split], shares) for s in (share, share + 1))
        with b.loop(high, low) as i, b.loops([updates.extents[k] for k in others]) as rest:
            updates.write(b, [own], {split: i} | dict(zip(others, rest, strict=True)), into=[share])
    with b.nest(out.shape) as at:
        total = b.fetch(out, at)
        for k in range(shares):
            total = b.apply(primitive, total, b.fetch(own, [Affine((), k), *at]))
        b.put(out, at, total)


def combined(b: LoopBuilder, body: Function, outs: Sequence[LazyTensor], index: Index, updates: Sequence[Scalar]) -> None:
    """Results at a position, combined with one update for each."""
    if body.results == body.params[len(outs) :]:  # the update replaces
        new: Sequence[Any] = updates
    else:
        new = call(b, body, [*(b.fetch(out, index) for out in outs), *updates])
    for out, x in zip(outs, new, strict=True):
        b.put(out, index, x)


def index_add_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The operand, then slice after slice of the updates; many of them are added up in double precision."""
    x, index, updates = xs
    dim, rounds = node.attr("dim"), x.dtype.is_float and math.prod(index.shape) > LONG_SUM
    total = in_memory(b.buffer(F64, x.shape), F64) if rounds else outs[0]
    if rounds:
        _converted(b, x, total)
    else:
        b.copy(total, x)
    outer, inner = x.shape[:dim], x.shape[dim + 1 :]
    with b.nest(outer) as at, b.loops(index.shape) as i:
        row = b.clamped(index.at(b, i), 0, max(0, x.shape[dim] - 1))
        with b.loops(inner) as rest:
            place, update = [*at, row, *rest], updates.at(b, [*at, *i, *rest])
            b.put(total, place, b.apply("add", b.fetch(total, place), b.cast(update, F64) if rounds else update))
    if rounds:
        _converted(b, total, outs[0])


def _converted(b: LoopBuilder, source: LazyTensor, target: LazyTensor) -> None:
    """All elements as those of another float type."""
    with b.nest(source.shape) as at:
        b.put(target, at, b.cast(source.at(b, at), computed_dtype(target.dtype)))
