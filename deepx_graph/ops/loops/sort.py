"""Sorting by a comparator and the greatest elements, as loop programs: a stable merge sort of each row, the comparator inlined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.loops import Affine, LazyTensor, LoopBuilder, Scalar, ScalarConst, call
from deepx_graph.loops.scalar import Index
from deepx_graph.loops.tensor import in_memory
from deepx_graph.types import BOOL, I32, I64

RUN = 16
"""Runs of so many elements are sorted by insertion."""

Rows = list[Callable[[Affine], list[Affine]]]
Less = Callable[[Sequence[Any], Sequence[Any]], Scalar]


def sort_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """Each row along the dimension, by the comparator."""
    shape, axis, comparator = xs[0].shape, node.attr("dimension"), node.attr("comparator")
    if not shape:
        for out, x in zip(outs, xs, strict=True):
            b.copy(out, x)
        return

    def less(x: Sequence[Any], y: Sequence[Any]) -> Scalar:
        pairs = [side for pair in zip(x, y, strict=True) for side in pair]
        found: Scalar = call(b, comparator, pairs)[0]
        return found

    spare = [in_memory(b.buffer(x.dtype, shape), x.dtype) for x in xs]
    with b.nest((*shape[:axis], *shape[axis + 1 :])) as at:
        _sort_row(b, lambda i: [*at[:axis], i, *at[axis:]], shape[axis], less, [xs, list(outs), spare])


def top_k_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The rows sorted with their positions, greatest first in the total order; then the first k."""
    (x,), k, shape = xs, node.attr("k"), xs[0].shape
    positions = LazyTensor(I32, shape, lambda b, at: b.cast(at[-1], I32))
    sources = [x, positions]
    first = [in_memory(b.buffer(s.dtype, shape), s.dtype) for s in sources]
    spare = [in_memory(b.buffer(s.dtype, shape), s.dtype) for s in sources]

    def less(one: Sequence[Any], other: Sequence[Any]) -> Scalar:
        found: Scalar = b.apply("gt", b.total_order(one[0]), b.total_order(other[0]))
        return found

    with b.nest(shape[:-1]) as at:
        _sort_row(b, lambda i: [*at, i], shape[-1], less, [sources, first, spare])
        with b.loop(k) as i:
            for out, y in zip(outs, first, strict=True):
                b.put(out, [*at, i], b.fetch(y, [*at, i]))


def _sort_row(b: LoopBuilder, row: Callable[[Affine], Index], n: int, less: Less, tensors: Sequence[Sequence[LazyTensor]]) -> None:
    """One row of the first tensors sorted into the second; the third are as large, and to work in."""
    sources, outs, spare = tensors
    widths: list[int] = []
    while RUN << len(widths) < n:
        widths.append(RUN << len(widths))
    here, there = (outs, spare) if len(widths) % 2 == 0 else (spare, outs)
    with b.loop(n) as i:
        for x, y in zip(sources, here, strict=True):
            b.put(y, row(i), x.at(b, row(i)))
    _sort_runs(b, row, n, less, here)
    for width in widths:
        _merge_runs(b, row, n, width, less, here, there)
        here, there = there, here


def _sort_runs(b: LoopBuilder, row: Callable[[Affine], Index], n: int, less: Less, rows: Sequence[LazyTensor]) -> None:
    """Insertion sort of each run."""
    with b.loop(-(-n // RUN)) as run:
        low = run * RUN
        high = b.index(b.apply("min", low + RUN, Affine((), n)))
        with b.loop(high, low + 1) as k:
            new = [b.fetch(x, row(k)) for x in rows]
            position = b.cell(I64, k)

            def goes_on() -> Scalar:
                at = b.index(b.get(position))
                found: Scalar = b.choose(b.less(low, at), lambda: less(new, [b.fetch(x, row(at - 1)) for x in rows]),
                                         lambda: ScalarConst(False, BOOL), BOOL)
                return found

            def shift() -> None:
                at = b.index(b.get(position))
                for x in rows:
                    b.put(x, row(at), b.fetch(x, row(at - 1)))
                b.set(position, at - 1)

            b.repeat(goes_on, shift)
            at = b.index(b.get(position))
            for x, value in zip(rows, new, strict=True):
                b.put(x, row(at), value)


def _merge_runs(b: LoopBuilder, row: Callable[[Affine], Index], n: int, width: int, less: Less, here: Sequence[LazyTensor],
                there: Sequence[LazyTensor]) -> None:
    """Pairs of sorted runs of a width merged, the left one first where neither precedes."""
    end = Affine((), n)
    with b.loop(-(-n // (2 * width))) as pair:
        low = pair * (2 * width)
        middle = b.index(b.apply("min", low + width, end))
        high = b.index(b.apply("min", low + 2 * width, end))
        left, right = b.cell(I64, low), b.cell(I64, middle)
        with b.loop(high, low) as k:
            i, j = b.index(b.get(left)), b.index(b.get(right))
            has_both = b.both(b.less(i, middle), b.less(j, high))
            takes_right = b.choose(
                has_both, lambda: less([b.fetch(x, row(j)) for x in here], [b.fetch(x, row(i)) for x in here]),
                lambda: b.less(j, high), BOOL)
            source = b.index(b.apply("where", takes_right, j, i))
            for x, y in zip(here, there, strict=True):
                b.put(y, row(k), b.fetch(x, row(source)))
            step = b.cast(takes_right, I64)
            b.set(right, b.apply("add", j, step))
            b.set(left, b.apply("add", i, b.apply("sub", Affine((), 1), step)))
