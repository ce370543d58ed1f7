"""Windows as loop programs: pooling, running results, and what a selection within each window scatters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from deepx_graph.ir import Function, Node
from deepx_graph.loops import Affine, LazyTensor, LoopBuilder, NotExpressible, Scalar, call, fold
from deepx_graph.loops.builder import computed_dtype
from deepx_graph.loops.fold import ROW, RowFold, row_fold, tiles
from deepx_graph.loops.scalar import FALSE, TRUE, Index, affine
from deepx_graph.ops.contract.window import running_axis
from deepx_graph.types import BOOL, I32, I64, dilated

LEAST_ROW = 8
"""Fewer neighbours along the last axis are no row."""

FEW_ROWS = 16
"""So many scans along the last axis go on side by side."""

SHORT_WINDOW = 16
"""A window of so many elements along the last axis is written out."""

EDGE_WINDOWS = 4
"""So many windows of a row that have elements outside are written out one by one."""


LEAST_SELECTED, MOST_MET = 4, 32
"""So many windows side by side select elements together, if they have no more elements than that."""

MOST_SELECTED, LEAST_MET = 2048, 6
"""Where they share elements so many at most, and windows of so many elements: rows are then not read in order."""


@dataclass(frozen=True)
class WindowAxis:
    """The windows along an axis of `size` elements, which lie `base` apart; those of a window are `dilation` apart."""

    size: int
    window: int
    stride: int
    low: int
    base: int = 1
    dilation: int = 1

    def position(self, number: Affine, element: Affine) -> Affine:
        """Where an element of a window lies, among elements and the gaps between them."""
        return number * self.stride + element * self.dilation - self.low

    def is_padded(self, count: int) -> bool:
        """Whether one of so many windows has an element outside."""
        return self.low > 0 or self.position(affine(count - 1), affine(self.window - 1)).constant >= self.size

    def element(self, b: LoopBuilder, number: Affine, element: Affine) -> tuple[Scalar, Affine]:
        """Whether an element of a window is one of the operand's, and its subscript if it is."""
        at = self.position(number, element)
        inside = b.within(at, 0, dilated(self.size, self.base))
        if self.base == 1:
            return inside, at
        on_element = b.apply("eq", b.apply("modulo", at, affine(self.base)), affine(0))
        return b.both(inside, on_element), b.quotient(at, self.base)

    def inner(self, b: LoopBuilder, number: Affine, count: int) -> tuple[Affine, Affine]:
        """Which elements of a window lie inside, from and up to; of elements without gaps."""
        start = b.known(number, 0, count - 1) * self.stride - self.low
        first = b.quotient(b.greatest(-start + (self.dilation - 1), 0), self.dilation)
        last = b.quotient(b.greatest(-start + (self.size + self.dilation - 1), 0), self.dilation)
        return b.least(first, self.window), b.least(last, self.window)

    def windows(self, b: LoopBuilder, element: Affine, first: Affine, width: Affine, most: int) -> tuple[Affine, Affine]:
        """Of which windows, counted from `first`, an element lies inside, from and up to at most `width`."""
        start = element * self.dilation - self.low + first * self.stride
        low = b.quotient(b.greatest(-start + (self.stride - 1), 0), self.stride)
        high = b.quotient(b.greatest(-start + (self.size + self.stride - 1), 0), self.stride)
        return b.least(low, most), b.lesser(b.least(high, most), width)


def _axes(node: Node, shape: Sequence[int]) -> list[WindowAxis]:
    names = ("window_dimensions", "window_strides", "padding_low", "base_dilations", "window_dilations")
    return [WindowAxis(*numbers) for numbers in zip(shape, *map(node.attr, names), strict=True)]


def reduce_window_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """A fold over the window, the initial value standing for what is outside."""
    half = len(xs) // 2
    axes, starts = _axes(node, xs[0].shape), [x.at(b, ()) for x in xs[half:]]

    def elements(inner: Index) -> list[Any]:
        found = [axis.element(b, i, w) for axis, i, w in zip(axes, at, inner, strict=True)]
        inside, index = b.both(*(inside for inside, _ in found)), [i for _, i in found]
        return [b.choose(inside, lambda x=x: x.at(b, index), lambda start=start: start)  # type: ignore[misc]
                for x, start in zip(xs[:half], starts, strict=True)]

    totals = fold(b, node.attr("body"), starts, [x.dtype for x in xs[:half]], [a.window for a in axes], elements)
    return totals[0] if half == 1 else totals


def reduce_window_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """Running results as scans; other windows position by position, neighbours along the last axis side by side."""
    sizes, strides, base, dilations, low, high, _ = node.attrs
    shape = xs[0].shape
    axis = running_axis(shape, sizes, (strides, base, dilations), low, high)
    if axis is not None:
        _scan(b, node, xs, outs, axis, backwards=high[axis] > 0)
    elif not shape or set(base) - {1} or outs[0].shape[-1] < min(LEAST_ROW, sizes[-1]):
        raise NotExpressible("windows that have no neighbours along the last axis, or lie among gaps")
    else:
        _rows(b, node, xs, outs)


def _neutral(b: LoopBuilder, body: Function, starts: Sequence[Any]) -> Scalar:
    """Whether initial values make no difference among themselves, as identities do: then padding is left out."""
    return b.both(*(b.apply("eq", x, y) for x, y in zip(call(b, body, [*starts, *starts]), starts, strict=True)))


def _rows(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """Tiles of the results; where there is padding that matters, element by element."""
    axes, counts = _axes(node, xs[0].shape), outs[0].shape
    padded = any(a.is_padded(n) for a, n in zip(axes, counts, strict=True))
    with tiles(b, counts) as (outer, first, width):
        starts = [x.at(b, ()) for x in xs[len(outs) :]]

        def slow() -> None:
            with b.loop(width) as k:
                _put_element(b, node, xs, outs, (*outer, first + k))

        neutral = _neutral(b, node.attr("body"), starts) if padded else TRUE
        b.when(neutral, lambda: _pool(b, node, xs, outs, starts, (outer, first, width)), slow, usual=True)


def _pool(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor], starts: Sequence[Any],
          tile: tuple[Index, Affine, Affine]) -> None:
    """A tile of the results by all elements that a window has inside, one after the other."""
    operands, counts, axes = xs[: len(outs)], outs[0].shape, _axes(node, xs[0].shape)
    (outer, first, width), last = tile, axes[-1]
    most, padded = min(ROW, counts[-1]), last.is_padded(counts[-1])
    row = row_fold(b, node.attr("body"), [x.dtype for x in operands], math.prod(a.window for a in axes), most)
    with b.loop(width) as k:
        row.put(k, starts)

    def over(start: Affine, end: Affine, elements: Sequence[Index]) -> None:
        """Combines elements of each window from one up to another."""
        with b.loop(end, start) as k:
            totals = row.at(k)
            for inner in elements:
                at = [a.position(i, w) for a, i, w in zip(axes, (*outer, first + k), inner, strict=True)]
                totals = list(row.combine(totals, [x.at(b, at) for x in operands]))
            row.put(k, totals)

    def add(*elements: Index) -> None:
        """Combines those of each window: all of them at once where none is outside. With a stride, where they are chosen from the
        same vectors, that pays also without the windows at the edges."""
        if not padded:
            over(Affine(), width, elements)
            return
        ranges = [last.windows(b, e[-1], first, width, most) for e in elements]
        whole = _whole_windows(ranges, most) if last.stride > 1 else None
        if whole is None:
            for (start, end), e in zip(ranges, elements, strict=True):
                over(start, end, [e])
            return
        for k in (k for k in range(most) if k not in whole):
            inside = [e for (start, end), e in zip(ranges, elements, strict=True) if start.constant <= k < end.constant]
            over(affine(k), affine(k + 1), inside)
        over(affine(whole.start), affine(whole.stop), elements)

    with b.boxes([a.inner(b, i, n) for a, i, n in zip(axes, outer, counts, strict=False)]) as inner:
        if last.window <= SHORT_WINDOW:
            add(*((*inner, affine(w)) for w in range(last.window)))
        else:
            with b.loop(last.window) as axis:
                add((*inner, axis))
    with b.loop(width) as k:
        row.store(k, outs, (*outer, first + k))


def _whole_windows(ranges: Sequence[tuple[Affine, Affine]], count: int) -> range | None:
    """Of so many windows those that have all elements inside, where that is known and few have not."""
    if any(end.terms for ends in ranges for end in ends):
        return None
    whole = range(max(start.constant for start, _ in ranges), min(end.constant for _, end in ranges))
    return whole if count - EDGE_WINDOWS <= len(whole) else None


def _put_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor], at: Index) -> None:
    found = reduce_window_element(b, node, xs, at)
    for out, x in zip(outs, found if isinstance(found, tuple) else (found,), strict=True):
        b.put(out, at, x)


def _scan(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor], axis: int, *, backwards: bool) -> None:
    """Running results along an axis: those of neighbours along the last axis, or of some rows, side by side; windows that hold
    nothing come first."""
    shape, half, body = outs[0].shape, len(outs), node.attr("body")
    rank, n, empty = len(shape), xs[0].shape[axis], shape[axis] - xs[0].shape[axis]
    lane = rank - 1 if axis < rank - 1 else rank - 2
    lanes = (shape[lane], ROW if lane > axis else FEW_ROWS) if rank > 1 else (1, 1)
    others = [k for k in range(rank) if k not in (axis, lane)]
    with tiles(b, (*(shape[k] for k in others), lanes[0]), lanes[1]) as (outer, first, width):
        starts = [x.at(b, ()) for x in xs[half:]]

        def index(i: Affine, k: Affine) -> list[Affine]:
            at = dict(zip(others, outer, strict=True)) | ({lane: first + k} if rank > 1 else {}) | {axis: i}
            return [at[j] for j in range(rank)]

        def quick() -> None:
            row = row_fold(b, body, [x.dtype for x in xs[:half]], n, min(*lanes))
            row = _backwards(row, min(*lanes)) if backwards else row
            with b.loop(width) as k:
                row.put(k, starts)
            if empty:
                with b.loop(empty) as step, b.loop(width) as k:
                    row.store(k, outs, index(n + step if backwards else step, k))
            with b.loop(n) as step, b.loop(width) as k:
                at = n - 1 - step if backwards else step
                row.add(k, [x.at(b, index(at, k)) for x in xs[:half]])
                row.store(k, outs, index(at if backwards else at + empty, k))

        def slow() -> None:
            with b.loop(n + empty) as step, b.loop(width) as k:
                _put_element(b, node, xs, outs, index(step, k))

        b.when(_neutral(b, body, starts), quick, slow, usual=True)


def _backwards(row: RowFold, width: int) -> RowFold:
    """Totals of what is met going backwards: each element stands before those that were met by then."""
    def combine(totals: Sequence[Any], found: Sequence[Any]) -> Sequence[Any]:
        return row.combine([row.b.converted(x, d) for x, d in zip(found, row.dtypes, strict=True)], totals)

    return RowFold(row.b, row.dtypes, width, combine)


def select_and_scatter_loops(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], outs: Sequence[LazyTensor]) -> None:
    """The initial value everywhere; then window after window, axes that have none of more than an element being independent."""
    operand, source, init = xs
    sizes, strides, low, high, _, _ = node.attrs
    if operand.dtype.kind == "complex":
        raise NotExpressible("selection among complex numbers")
    with b.nest(operand.shape) as at:
        b.put(outs[0], at, init.at(b, ()))
    moving = [k for k in range(len(sizes)) if (sizes[k], strides[k], low[k], high[k]) != (1, 1, 0, 0)]
    still = [k for k in range(len(sizes)) if k not in moving]
    if _are_rows(node, source.shape, len(sizes) - 1 in moving):
        _scatter_selected_rows(b, node, xs, outs[0], moving)
        return
    outer = [k for k in still if k < min(moving, default=len(sizes))]
    if math.prod(source.shape[k] for k in outer) == 1:
        outer = still
    rest = [*moving, *(k for k in still if k not in outer)]
    with b.nest([source.shape[k] for k in outer]) as before, b.loops([source.shape[k] for k in rest]) as behind:
        places = dict(zip((*outer, *rest), (*before, *behind), strict=True))
        _scatter_selected(b, node, xs, outs[0], [places[k] for k in range(len(sizes))], moving)


def _are_rows(node: Node, shape: Sequence[int], is_shared: bool) -> bool:
    """Whether the windows along the last axis, which may share elements there, select theirs together."""
    sizes, _, low, high, _, _ = node.attrs
    met, count = math.prod(sizes), shape[-1] if shape else 0
    if count < LEAST_SELECTED or met > MOST_MET:
        return False
    return not is_shared or (met >= LEAST_MET and count <= MOST_SELECTED and low[-1] == high[-1] == 0)


@contextmanager
def _rows_of_windows(b: LoopBuilder, shape: Sequence[int], is_shared: bool) -> Iterator[tuple[tuple[Affine, ...], Affine, Affine]]:
    """Rows of windows along the last axis, which threads share: by tiles, unless they share elements; as `tiles` gives them."""
    if not is_shared:
        with tiles(b, shape) as found:
            yield found
        return
    with b.nest(shape[:-1]) as outer:
        yield outer, Affine(), Affine((), shape[-1])


def _scatter_selected_rows(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], out: LazyTensor, moving: Sequence[int]) -> None:
    """The same for windows that lie side by side along the last axis: a row of what they select, and of its number in the window;
    then each element of the windows is met again, and those that it was selected in are combined into it."""
    operand, source, _ = xs
    sizes, strides, low, _, select, scatter = node.attrs
    last = len(sizes) - 1
    outer = [k for k in range(last) if k not in moving and k < min(moving, default=last)]
    rest = [k for k in range(last) if k not in outer]

    def better(selected: Sequence[Any], met: Sequence[Any]) -> Sequence[Any]:
        keep = b.both(b.apply("ge", selected[1], b.const(0, I32)), call(b, select, [selected[0], met[0]])[0])
        return [b.apply("where", keep, old, new) for old, new in zip(selected, met, strict=True)]

    with _rows_of_windows(b, [*(source.shape[k] for k in outer), source.shape[-1]], last in moving) as (before, first, width):
        row = RowFold(b, [operand.dtype, I32], source.shape[-1] if last in moving else min(ROW, source.shape[-1]), better)
        with b.loops([source.shape[k] for k in rest]) as behind:
            at = dict(zip((*outer, *rest), (*before, *behind), strict=True))

            def windows(element: Callable[[Index, Index, Any, Affine], None], backwards: bool) -> None:
                """Every element of the windows: its place, its window, its number there, and its position in the row. Backwards
                along the last axis, the first of the windows that share an element meets it first."""
                with b.loops([sizes[k] for k in moving]) as inner:
                    within = {k: sizes[k] - 1 - w if k == last and backwards else w for k, w in zip(moving, inner, strict=True)}
                    place = {k: at[k] * strides[k] + w - low[k] for k, w in within.items() if k != last}
                    number = Affine()
                    for k, w in within.items():
                        number = number * sizes[k] + w

                    def along() -> None:
                        with b.loop(width) as k:
                            window = [*(at[i] for i in range(last)), first + k]
                            index = [*(place.get(i, at[i]) for i in range(last)),
                                     window[-1] * strides[last] + within.get(last, Affine())]
                            element(index, window, b.number(number, I32), k)

                    b.when(b.both(*(b.within(i, 0, operand.shape[k]) for k, i in place.items())), along)

            def combine(index: Index, window: Index, number: Any, k: Affine) -> None:
                old, is_it = b.fetch(out, index), b.apply("eq", row.at(k)[1], number)
                b.put(out, index, b.apply("where", is_it, call(b, scatter, [old, source.at(b, window)])[0], old))

            with b.loop(width) as k:
                row.put(k, [b.const(0, operand.dtype), b.const(-1, I32)])
            windows(lambda index, window, number, k: row.add(k, [operand.at(b, index), number]), False)
            windows(combine, True)


def _scatter_selected(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], out: LazyTensor, at: Index,
                      moving: Sequence[int]) -> None:
    """The source's element of one window, combined into the position that the window selects."""
    operand, source, _ = xs
    sizes, strides, low, _, select, scatter = node.attrs
    best, has_one = b.cell(computed_dtype(operand.dtype), b.const(0, operand.dtype)), b.cell(BOOL, FALSE)
    chosen = {k: b.cell(I64, Affine()) for k in moving}
    with b.loops([sizes[k] for k in moving]) as inner:
        index, inside = list(at), list[Scalar]()
        for k, w in zip(moving, inner, strict=True):
            index[k] = at[k] * strides[k] + w - low[k]
            inside.append(b.within(index[k], 0, operand.shape[k]))

        def consider() -> None:
            value, old = operand.at(b, index), b.get(best)
            keep = b.both(b.get(has_one), call(b, select, [old, value])[0])
            b.set(best, b.apply("where", keep, old, value))
            for k, cell in chosen.items():
                b.set(cell, b.apply("where", keep, b.get(cell), index[k]))
            b.set(has_one, TRUE)

        b.when(b.both(*inside), consider)

    def combine() -> None:
        position = [b.index(b.get(chosen[k]), 0, operand.shape[k] - 1) if k in chosen else at[k] for k in range(len(at))]
        b.put(out, position, call(b, scatter, [b.fetch(out, position), source.at(b, at)])[0])

    b.when(b.get(has_one), combine)
