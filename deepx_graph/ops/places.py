"""Where elements come from, for operations that only move them (`ir/place.py`), written from the documents that define them.

`s` is the arithmetic; then come the shapes of the operands, the attributes in declared order, and the subscripts of an element of
the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepx_graph.ir.place import Arithmetic, Either, Element, Place, clamped

Shapes = Sequence[tuple[Any, ...]]
Index = Sequence[Any]


def same_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """The element of the same subscripts."""
    return Element(0, tuple(at))


def reshape_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """The element of the same number in row-major order."""
    (shape,) = attrs
    number: Any = 0
    for i, size in zip(at, shape, strict=True):
        number = number * size + i
    index = []
    for size in reversed(shapes[0]):
        index.append(s.remainder(number, size))
        number = s.quotient(number, size)
    return Element(0, tuple(reversed(index)))


def transpose_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """Result axis k is operand axis permutation[k]."""
    index = list(at)
    for k, axis in enumerate(attrs[0]):
        index[axis] = at[k]
    return Element(0, tuple(index))


def reverse_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """Counted from the other end along the axes that are named."""
    return Element(0, tuple(n - 1 - i if k in attrs[0] else i for k, (n, i) in enumerate(zip(shapes[0], at, strict=True))))


def broadcast_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """The subscript of the axis that it became; 0 of an axis of size 1."""
    return Element(0, tuple(s.choose(n == 1, 0, at[axis]) for n, axis in zip(shapes[0], attrs[1], strict=True)))


def slice_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """Strides away from the start."""
    start, _, strides = attrs
    return Element(0, tuple(low + step * i for low, step, i in zip(start, strides, at, strict=True)))


def pad_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """Element j of an axis stands at low + j * (interior + 1)."""
    low, _, interior = attrs
    index, inside = [], []
    for n, before, gap, i in zip(shapes[0], low, interior, at, strict=True):
        j = s.quotient(i - before, gap + 1)
        index.append(j)
        inside += [j >= 0, j < n, s.remainder(i - before, gap + 1) == 0]
    return Either(s.both(*inside), Element(0, tuple(index)), Element(1, ()))


def concatenate_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """The first operand that reaches so far."""
    (axis,) = attrs
    before: Any = 0
    found = []
    for k, shape in enumerate(shapes):
        end = before + shape[axis]
        found.append((at[axis] < end, Element(k, (*at[:axis], at[axis] - before, *at[axis + 1 :]))))
        before = end
    place: Place = found[-1][1]
    for reaches, element in reversed(found[:-1]):
        place = Either(reaches, element, place)
    return place


def dynamic_slice_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """Away from the start, which is clamped so that the slice lies inside."""
    starts = [clamped(s, s.value(k + 1, ()), 0, n - size) for k, (n, size) in enumerate(zip(shapes[0], attrs[0], strict=True))]
    return Element(0, tuple(start + i for start, i in zip(starts, at, strict=True)))


def dynamic_update_slice_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """The update's element where it lies, at a start that is clamped likewise; else the operand's."""
    starts = [clamped(s, s.value(k + 2, ()), 0, n - size) for k, (n, size) in enumerate(zip(shapes[0], shapes[1], strict=True))]
    inside = [c for start, size, i in zip(starts, shapes[1], at, strict=True) for c in (start <= i, i < start + size)]
    return Either(s.both(*inside), Element(1, tuple(i - start for i, start in zip(at, starts, strict=True))), Element(0, tuple(at)))


def take_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """The row that the index names, which is clamped."""
    (axis,) = attrs
    rank = len(shapes[1])
    row = clamped(s, s.value(1, at[axis : axis + rank]), 0, shapes[0][axis] - 1)
    return Element(0, (*at[:axis], row, *at[axis + rank :]))


def gather_place(s: Arithmetic, shapes: Shapes, attrs: Sequence[Any], at: Index) -> Place:
    """StableHLO's `operand_index = full_start_index + full_batching_index + full_offset_index`."""
    offset_dims, collapsed, batching, indices_batching, index_map, vector_dim, sizes = attrs
    batch = [i for k, i in enumerate(at) if k not in offset_dims]
    offsets = iter([at[k] for k in offset_dims])
    index: list[Any] = []
    for k, n in enumerate(shapes[0]):
        start: Any = 0
        if k in index_map:
            where = list(batch)
            if vector_dim < len(shapes[1]):
                where.insert(vector_dim, index_map.index(k))
            start = clamped(s, s.value(1, where), 0, n - sizes[k])
        if k in batching:
            axis = indices_batching[batching.index(k)]
            start = batch[axis - (vector_dim < axis)]
        index.append(start if k in collapsed or k in batching else start + next(offsets))
    return Element(0, tuple(index))
