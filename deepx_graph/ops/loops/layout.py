"""Elements of operations that put elements elsewhere, repeat, choose or fold them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.loops import Affine, LazyTensor, LoopBuilder, Scalar, call
from deepx_graph.loops.elements import settled
from deepx_graph.loops.program import Statement
from deepx_graph.loops.progression import nth_of
from deepx_graph.loops.scalar import Index, affine
from deepx_graph.types import dilated


def reshape_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """Axes of equal size at both ends keep their subscripts; those between are counted in the order of C."""
    old, new = xs[0].shape, node.attr("shape")
    if not old:
        return xs[0].at(b, ())
    front = next((k for k, (p, q) in enumerate(zip(old, new, strict=False)) if p != q), min(len(old), len(new)))
    most = min(len(old), len(new)) - front
    back = next((k for k, (p, q) in enumerate(zip(reversed(old), reversed(new), strict=False)) if p != q or k == most), most)
    flat = Affine()
    for i, size in zip(at[front : len(new) - back], new[front : len(new) - back], strict=True):
        flat = flat * size + i
    middle = b.unflattened(flat, old[front : len(old) - back])
    return xs[0].at(b, (*at[:front], *middle, *at[len(new) - back :]))


def broadcast_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    dims = node.attr("broadcast_dimensions")
    return xs[0].at(b, [at[d] if n > 1 else Affine() for n, d in zip(xs[0].shape, dims, strict=True)])


def concatenate_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """The element of the operand in whose range the subscript lies: where these are neighbouring windows, at a subscript that
    says which; else found by bisection."""
    axis = node.attr("dimension")
    if (found := _window_element(b, axis, xs, at)) is not None:
        return found
    ends = list(accumulate(x.shape[axis] for x in xs))
    parts = [(end - x.shape[axis], end, x) for end, x in zip(ends, xs, strict=True) if x.shape[axis]]

    def among(low: int, high: int) -> Any:
        if high - low == 1:
            start, _, x = parts[low]
            return x.at(b, [*at[:axis], at[axis] - start, *at[axis + 1 :]])
        middle = (low + high) // 2
        first = b.less(at[axis], parts[middle][0])
        return b.choose(first, lambda: among(low, middle), lambda: among(middle, high))

    return among(0, len(parts)) if parts else b.const(0, xs[0].dtype)


def _window_element(b: LoopBuilder, axis: int, xs: Sequence[LazyTensor], at: Index) -> Any | None:
    """The element of a concatenation of windows of one size, each a step from the one before; None for other operands."""
    size = xs[0].shape[axis]
    if size == 0 or any(x.shape[axis] != size for x in xs):
        return None
    body: list[Statement] = []
    with b.block(body):
        number = b.quotient(at[axis], size)
        within = [*at[:axis], at[axis] - number * size, *at[axis + 1 :]]
        found = nth_of(b, number, [partial(x.at, b, within) for x in xs])
    for s in body if found is not None else ():
        b.emit(s)
    return found


def pad_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """The operand's element where the subscript is one of its own, else the value."""
    inside: list[Scalar] = []
    index: list[Affine] = []
    for i, low, gap, size in zip(at, node.attr("edge_padding_low"), node.attr("interior_padding"), xs[0].shape, strict=True):
        spread = i - low
        inside.append(b.within(spread, 0, dilated(size, gap + 1)))
        if gap and size > 1:
            inside.append(b.apply("eq", b.apply("modulo", spread, affine(gap + 1)), affine(0)))
        index.append(b.quotient(spread, gap + 1) if gap else spread)
    return b.choose(b.both(*inside), lambda: xs[0].at(b, index), lambda: xs[1].at(b, ()))


def iota_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    dtype = node.attr("dtype")
    return settled(b, b.number(at[node.attr("iota_dimension")], dtype), dtype)


def take_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    dim, (x, index) = node.attr("dim"), xs
    rank = len(index.shape)
    row = b.clamped(index.at(b, at[dim : dim + rank]), 0, max(0, x.shape[dim] - 1))
    return x.at(b, [*at[:dim], row, *at[dim + rank :]])


def map_element(b: LoopBuilder, node: Node, xs: Sequence[LazyTensor], at: Index) -> Any:
    """The function of the operands' elements."""
    return call(b, node.attr("computation"), [x.at(b, at) for x in xs])[0]
