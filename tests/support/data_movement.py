"""Random programs that move data, one for each rule whose operands need shapes that fit each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import reject
from hypothesis import strategies as st

from deepx_graph.errors import VerifyError
from deepx_graph.ir import Builder, Function, Module, Node
from deepx_graph.ir.structure import CONSTANT, PARAM
from deepx_graph.ops import (
    add,
    and_,
    broadcast_in_dim,
    compare,
    concatenate,
    convert,
    convolution,
    dot_general,
    dynamic_slice,
    dynamic_update_slice,
    gather,
    iota,
    maximum,
    minimum,
    multiply,
    negate,
    or_,
    pad,
    reduce,
    reduce_window,
    reshape,
    reverse,
    scatter,
    select,
    slice_,
    sort,
    subtract,
    transpose,
)
from deepx_graph.ops.contract.reduce import monoid_body
from deepx_graph.rewrite.engine import InterningBuilder
from deepx_graph.types import BF16, BOOL, F16, F32, F64, I8, I32, U8, DType, scalar, tensor
from tests.support.reference import evaluate


class Draw:
    """Draws a small program: shapes, numbers, operands."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.b = InterningBuilder()
        self.params: list[Node] = []

    def int(self, low: int, high: int) -> int:
        return self.data.draw(st.integers(low, high))

    def one(self, *choices: Any) -> Any:
        return self.data.draw(st.sampled_from(choices))

    def shape(self, low: int = 0, high: int = 3, sizes: tuple[int, int] = (0, 4)) -> tuple[int, ...]:
        return tuple(self.data.draw(st.lists(st.integers(*sizes), min_size=low, max_size=high)))

    def axes(self, count: int) -> tuple[int, ...]:
        return tuple(self.data.draw(st.permutations(range(count))))

    def some(self, items: Any) -> tuple[int, ...]:
        return tuple(i for i in items if self.data.draw(st.booleans()))

    def each(self, shape: tuple[int, ...], low: int, high: int) -> tuple[int, ...]:
        return tuple(self.int(low, high) for _ in shape)

    def param(self, shape: tuple[int, ...], dtype: DType = F32) -> Node:
        node = self.b.param(len(self.params), tensor(dtype, shape), f"x{len(self.params)}")
        self.params.append(node)
        return node

    def dtype(self) -> DType:
        return self.one(F32, I32, BOOL)


def with_ones(d: Draw, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with axes of size 1 put in and taken out."""
    kept = [s for s in shape if s != 1 or d.one(True, False)]
    for _ in range(d.int(0, 2)):
        kept.insert(d.int(0, len(kept)), 1)
    return tuple(kept)


def broadcast(d: Draw, x: Node) -> Node:
    dims = x.type.shape  # type: ignore[attr-defined]
    rank = len(dims) + d.int(0, 2)
    at = d.axes(rank)[: len(dims)]
    shape = [d.int(0, 3) for _ in range(rank)]
    for size, place in zip(dims, at, strict=True):
        shape[place] = size if size != 1 else d.one(1, shape[place])
    return d.b(broadcast_in_dim, x, shape=tuple(shape), broadcast_dimensions=at)


def squeezed(d: Draw) -> Node:
    x = d.param(d.shape(1, 3, (1, 2)), d.dtype())
    return broadcast(d, d.b(reshape, x, shape=tuple(s for s in x.type.shape if s != 1)))  # type: ignore[attr-defined]


def reshaped_broadcast(d: Draw) -> Node:
    x = d.param(d.shape(0, 2, (1, 3)), d.dtype())
    wide = broadcast(d, x)
    return d.b(reshape, wide, shape=with_ones(d, wide.type.shape))  # type: ignore[attr-defined]


def between_reshapes(d: Draw) -> Node:
    shape = d.shape(1, 3)
    x, y = d.param(shape), d.param(shape)
    new = d.one((int(np.prod(shape)),), shape[::-1], (*shape, 1))
    flat = d.b(reshape, x, shape=new)
    return d.one(lambda: d.b(negate, flat), lambda: d.b(multiply, flat, d.b(reshape, y, shape=new)),
                 lambda: d.b(add, d.b.like(2, x), flat), lambda: d.b(convert, flat, dtype=I32))()  # fmt: skip


def stacked(d: Draw) -> Node:
    rows, rest = d.int(2, 4), d.shape(1, 2)
    stack = d.b(concatenate, *(d.param((1, *rest)) for _ in range(rows)), dimension=0)
    return d.one(lambda: d.b(negate, stack), lambda: d.b(multiply, stack, d.param((rows, *rest))),
                 lambda: d.b(add, d.b.like(2, stack), stack), lambda: d.b(multiply, stack, stack))()  # fmt: skip


def reduced_stack(d: Draw) -> Node:
    rest, dtype = d.shape(1, 2), d.one(F32, I32, U8)
    axis = d.int(0, len(rest))
    parts = [d.param((*rest[:axis], 1, *rest[axis:]), dtype) for _ in range(d.int(2, 4))]
    op = d.one(maximum, minimum) if dtype is F32 else d.one(maximum, minimum, and_, or_, add)
    init = d.one(d.param((), dtype), d.b.constant(d.int(0, 3), dtype))
    return d.b(reduce, d.b(concatenate, *parts, dimension=axis), init, dimensions=(axis,), body=monoid_body(op, dtype))


def moved_iota(d: Draw) -> Node:
    shape = d.shape(1, 3)
    steps = d.b(iota, dtype=d.one(F32, I32, I8), shape=shape, iota_dimension=d.int(0, len(shape) - 1))
    return d.one(lambda: broadcast(d, steps), lambda: d.b(transpose, steps, permutation=d.axes(len(shape))),
                 lambda: d.b(reshape, steps, shape=with_ones(d, shape)))()  # fmt: skip


def converted_iota(d: Draw) -> Node:
    steps = d.b(iota, dtype=d.one(F32, I32, I8, U8, F16, BF16), shape=(d.one(3, 127, 129, 256, 300, 2049),), iota_dimension=0)
    return d.b(convert, steps, dtype=d.one(F64, I32, I8, U8, F16, BF16))


def twice_reversed(d: Draw) -> Node:
    shape = d.shape(1, 3)
    x = d.param(shape)
    return d.b(reverse, d.b(reverse, x, dimensions=d.some(range(len(shape)))), dimensions=d.some(range(len(shape))))


def reversed_broadcast(d: Draw) -> Node:
    wide = broadcast(d, d.param(d.shape(0, 2)))
    return d.b(reverse, wide, dimensions=d.some(range(len(wide.type.shape))))  # type: ignore[attr-defined]


def joined(d: Draw) -> tuple[Node, int]:
    shape = d.shape(1, 3, (1, 3))
    axis = d.int(0, len(shape) - 1)
    parts = [d.param((*shape[:axis], d.int(0, 3), *shape[axis + 1 :])) for _ in range(d.int(2, 4))]
    return d.b(concatenate, *parts, dimension=axis), axis


def cut(d: Draw, x: Node, strides: int = 2) -> Node:
    dims = x.type.shape  # type: ignore[attr-defined]
    limit = tuple(d.int(0, s) for s in dims)
    start = tuple(d.int(0, s) for s in limit)
    return d.b(slice_, x, start_indices=start, limit_indices=limit, strides=d.each(dims, 1, strides))


def neighbours(d: Draw) -> Node:
    shape, step = d.shape(1, 3, (1, 8)), d.one(1, 1, 2)
    axis, x = d.int(0, len(shape) - 1), d.param(shape)
    ends = sorted([0, shape[axis], *(d.int(0, shape[axis]) for _ in range(2))])
    parts = [d.b(slice_, x, start_indices=tuple(a if k == axis else 0 for k in range(len(shape))),
                 limit_indices=tuple(e if k == axis else s for k, s in enumerate(shape)),
                 strides=tuple(step if k == axis else 1 for k in range(len(shape))))
             for a, e in itertools.pairwise(ends)]  # fmt: skip
    return d.b(concatenate, *parts[d.int(0, 1) :], dimension=axis)


def padded(d: Draw, x: Node, value: Node, low: int = -2, gap: int = 2) -> Node:
    shape = x.type.shape  # type: ignore[attr-defined]
    return d.b(pad, x, value, edge_padding_low=d.each(shape, low, 2), edge_padding_high=d.each(shape, low, 2),
               interior_padding=d.each(shape, 0, gap))


def padded_twice(d: Draw) -> Node:
    value = d.param(())
    return padded(d, padded(d, d.param(d.shape(1, 2, (1, 3))), value), value, gap=0)


def padded_alike(d: Draw, count: int, value: Callable[[], Node]) -> list[Node]:
    """Tensors of one shape, padded alike."""
    dtype, shape = d.one(F32, I32), d.shape(1, 2, (0, 3))
    low, high, gap = (d.each(shape, bottom, 2) for bottom in (-1, -1, 0))
    return [d.b(pad, d.param(shape, dtype), d.b(convert, value(), dtype=dtype), edge_padding_low=low, edge_padding_high=high,
                interior_padding=gap) for _ in range(count)]


def combined_padded(d: Draw) -> Node:
    return d.b(d.one(add, subtract, maximum), *padded_alike(d, 2, lambda: d.param(())))


def sum_of_padded(d: Draw) -> Node:
    """Sums of tensors of which some are padded alike, at places apart and not, with zeros of either sign."""
    n, size = d.int(2, 5), d.int(1, 2)

    def part(at: int) -> Node:
        return d.b(pad, d.param((size, 2)), d.b.constant(d.one(0.0, -0.0), F32), edge_padding_low=(at, 0),
                   edge_padding_high=(n - at, 0), interior_padding=(0, 0))

    at, other = d.int(0, n), d.int(0, n)
    x = d.one(part(other), d.b(add, part(other), part(d.int(0, n))))
    inner = d.one((x, part(at)), (part(at), x))
    return d.b(add, *d.one((d.b(add, *inner), part(at)), (part(at), d.b(add, *inner))))


def cut_padded(d: Draw) -> Node:
    return cut(d, padded(d, d.param(d.shape(1, 2, (1, 3))), d.param(()), gap=d.one(0, 1)), strides=d.one(1, 2))


def boxes(d: Draw) -> Node:
    shape = d.shape(1, 3, (1, 4))
    starts = [d.one(d.b.constant(d.int(-2, 5), I32), d.param((), I32)) for _ in shape]
    return d.b(dynamic_slice, d.param(shape), *starts, slice_sizes=tuple(d.int(0, s) for s in shape))


def updated(d: Draw) -> Node:
    shape = d.shape(0, 2, (1, 3))
    return d.b(dynamic_update_slice, d.param(shape), d.param(shape), *(d.param((), I32) for _ in shape))


def window(d: Draw, x: Node, init: Node, **given: Any) -> Node:
    shape, dtype = x.type.shape, x.type.dtype  # type: ignore[attr-defined]
    one = (1,) * len(shape)
    attrs = {"window_dimensions": d.each(shape, 1, 2), "window_strides": d.each(shape, 1, 2), "base_dilations": d.each(shape, 1, 2),
             "window_dilations": d.each(shape, 1, 2), "padding_low": d.each(shape, 0, 1), "padding_high": d.each(shape, 0, 1)}
    given.setdefault("body", monoid_body(d.one(add, maximum), dtype))
    return d.b(reduce_window, x, init, **{**attrs, **{k: one if v is None else v for k, v in given.items()}})


def padded_window(d: Draw) -> Node:
    init = d.param(())
    x = padded(d, d.param(d.shape(1, 2, (1, 3))), init, low=d.one(-1, 0))
    return window(d, x, init, base_dilations=d.one(None, (1,) * len(x.type.shape)))  # type: ignore[attr-defined]


def small_window(d: Draw) -> Node:
    shape, dtype = d.shape(1, 3, (1, 3)), d.one(F32, I32)
    zero = (0,) * len(shape)
    init = d.one(d.param((), dtype), d.b.constant(0, dtype), d.b.constant(-0.0 if dtype is F32 else 0, dtype))
    return window(d, d.param(shape, dtype), init, window_dimensions=None, window_strides=None, base_dilations=None,
                  padding_low=zero, padding_high=zero)


def whole_window(d: Draw) -> Node:
    shape, dtype = d.shape(1, 3, (1, 3)), d.one(F32, I32)
    zero = (0,) * len(shape)
    all_ = d.some(range(len(shape)))
    found = window(d, d.param(shape, dtype), d.param((), dtype), base_dilations=None, window_dilations=None, window_strides=None,
                   padding_low=zero, padding_high=zero, window_dimensions=tuple(s if k in all_ else 1 for k, s in enumerate(shape)))
    return d.b(reshape, found, shape=(int(np.prod(found.type.shape)),))  # type: ignore[attr-defined]


def padded_convolution(d: Draw) -> Node:
    x = d.param((2, 3, d.int(1, 4), d.int(1, 4)))
    zero = d.b.constant(d.one(0.0, 0.0, -0.0), F32)
    spatial = [d.int(d.one(-1, 0), 2) for _ in range(4)]
    wide = d.b(pad, x, zero, edge_padding_low=(0, d.one(0, 0, 1), *spatial[:2]), edge_padding_high=(0, 0, *spatial[2:]),
               interior_padding=(0, 0, d.int(0, 1), d.int(0, 1)))
    names = ("input_batch_dimension", "input_feature_dimension", "input_spatial_dimensions", "kernel_input_feature_dimension",
             "kernel_output_feature_dimension", "kernel_spatial_dimensions", "output_batch_dimension", "output_feature_dimension",
             "output_spatial_dimensions")
    at = (0, 1, (2, 3), 1, 0, (2, 3), 0, 1, (2, 3))
    kernel = d.param((2, wide.type.shape[1], 2, 1))  # type: ignore[attr-defined]
    return d.b(convolution, wide, kernel, window_strides=(1, d.int(1, 2)),
               padding_low=(d.int(0, 1), 0), padding_high=(0, d.int(0, 1)), lhs_dilation=(d.one(1, 1, 2), 1), rhs_dilation=(1, 1),
               window_reversal=(0, 0), **dict(zip(names, at, strict=True)))


def transposed_dot(d: Draw) -> Node:
    n, m, k, t = (d.int(0, 4) for _ in range(4))
    sides = []
    for shape in ((t, n, k), (t, k, m)):
        order = d.axes(3)
        base = tuple(shape[order.index(a)] for a in range(3))
        sides.append(d.b(transpose, d.param(base, I32), permutation=order))
    return d.b(dot_general, *sides, lhs_batching_dimensions=(0,), rhs_batching_dimensions=(0,), lhs_contracting_dimensions=(2,),
               rhs_contracting_dimensions=(1,))


def dot_transposed(d: Draw) -> Node:
    n, m, k = (d.int(0, 4) for _ in range(3))
    dot = d.b(dot_general, d.param((n, k), I32), d.param((k, m), I32), lhs_contracting_dimensions=(1,),
              rhs_contracting_dimensions=(0,))
    return d.b(transpose, dot, permutation=d.axes(2))


def taken(d: Draw) -> Node:
    shape = d.shape(1, 3, (1, 4))
    x, axes = d.param(shape), d.axes(len(shape))[: d.int(1, len(shape))]
    index = d.b.constant(np.array([d.int(-2, 5) for _ in axes]), I32)
    return d.b(gather, x, index, offset_dims=tuple(range(len(shape))), start_index_map=axes, index_vector_dim=0,
               slice_sizes=tuple(d.int(0, s) for s in shape))


def row(d: Draw) -> Node:
    shape = d.shape(1, 3, (1, 4))
    axis = d.int(0, len(shape) - 1)
    index = d.b(reshape, d.param((), I32), shape=(1,))
    return d.b(gather, d.param(shape), index, offset_dims=tuple(range(len(shape) - 1)), collapsed_slice_dims=(axis,),
               start_index_map=(axis,), index_vector_dim=0, slice_sizes=tuple(1 if k == axis else s for k, s in enumerate(shape)))


def put(d: Draw) -> Node:
    shape = d.shape(1, 3, (1, 4))
    axes = d.axes(len(shape))[: d.int(1, len(shape))]
    b = Builder()
    body = b.function("put", [("a", scalar(F32)), ("b", scalar(F32))], lambda x, y: (y,), public=False)
    index = d.b.constant(np.array([d.int(-1, 3) for _ in axes]), I32)
    return d.b(scatter, d.param(shape), index, d.param(tuple(d.int(0, s) for s in shape)),
               update_window_dims=tuple(range(len(shape))),
               scatter_dims_to_operand_dims=axes, index_vector_dim=0, update_computation=body)


def ordered(d: Draw, shape: tuple[int, ...]) -> Node:
    t = scalar(I32)
    direction = d.one("LT", "GT", "LE", "GE")
    b = Builder()
    by = b.function("by", [("a", t), ("b", t)], lambda x, y: (b(compare, x, y, direction=direction),), public=False)
    axis = d.int(0, len(shape) - 1)
    once = d.b(sort, d.param(shape, I32), dimension=axis, comparator=by)
    return d.b(sort, once, dimension=axis, comparator=by)


def first_ordered(d: Draw) -> Node:
    dtype, size = d.one(F32, I32, BOOL), d.int(8, 20)
    direction, t, b = d.one("LT", "GT", "LE"), scalar(dtype), Builder()
    by = b.function("by", [("a", t), ("b", t)], lambda x, y: (b(compare, x, y, direction=direction),), public=False)
    shape = (*d.shape(0, 1, (1, 3)), size)
    put = d.b(sort, d.param(shape, dtype), dimension=len(shape) - 1, comparator=by)
    return d.b(slice_, put, start_indices=(0,) * len(shape), limit_indices=(*shape[:-1], d.int(1, 3)), strides=(1,) * len(shape))


def compared_twice(d: Draw) -> Node:
    dtype = d.one(F32, I32, U8)
    x, y = d.param((5,), dtype), d.param((5,), dtype)
    first, second = (d.b(compare, x, y, direction=d.one("EQ", "NE", "LT", "LE", "GT", "GE")) for _ in range(2))
    if d.one(True, False):
        second = d.b(compare, y, x, direction=second.attrs[0])
    return d.b(d.one(and_, or_), first, second)


def selected_equal(d: Draw) -> Node:
    dtype = d.one(F32, I32)
    x, y = d.param((5,), dtype), d.param((5,), dtype)
    equal = d.b(compare, x, y, direction=d.one("EQ", "NE"))
    return d.b(select, equal, *d.one((x, y), (y, x)))

PROGRAMS: dict[str, Callable[[Draw], Node]] = {
    "broadcast-of-squeeze": squeezed,
    "reshape-of-broadcast": reshaped_broadcast,
    "reshape-sinks": between_reshapes,
    "elementwise-of-stack": stacked,
    "reduce-of-stack": reduced_stack,
    "iota-in-shape": moved_iota,
    "convert-of-iota": converted_iota,
    "reverse-twice": twice_reversed,
    "reverse-of-repeated": reversed_broadcast,
    "slice-of-some-parts": lambda d: cut(d, joined(d)[0]),
    "concatenate-of-neighbours": neighbours,
    "first-of-sorted": first_ordered,
    "pad-twice": padded_twice,
    "elementwise-of-padded": combined_padded,
    "sum-with-padded": sum_of_padded,
    "slice-of-padded": cut_padded,
    "dynamic-slice-at-known": boxes,
    "update-everything": updated,
    "window-of-padded": padded_window,
    "window-of-ones": small_window,
    "window-of-everything": whole_window,
    "convolution-of-padded": padded_convolution,
    "dot-of-transposed": transposed_dot,
    "transpose-of-dot": dot_transposed,
    "gather-at-known": taken,
    "gather-of-one": row,
    "scatter-at-known": put,
    "sort-twice": lambda d: ordered(d, d.shape(1, 2, (2, 5))),
    "comparisons-of-the-same": compared_twice,
    "select-of-equal": selected_equal,
    "sort-of-ones": lambda d: ordered(d, (1, d.int(1, 3))),
}


def size(d: Draw, result: Node) -> int:
    """How many nodes the result takes, those given and constants left out."""
    return sum(n.op not in (PARAM, CONSTANT) for n in Function("f", tuple(d.params), (result,)).nodes)


WILD = {"float": [0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, 3e38, 1e-40],
        "int": [0, 1, -1, 7, -128, 127], "bool": [True, False], "uint": [0, 1, 255]}  # fmt: skip


def drawn(data: st.DataObject, program: Callable[[Draw], Node]) -> tuple[Draw, Node]:
    """A program of one result; numbers that make none are drawn again."""
    d = Draw(data)
    try:
        return d, program(d)
    except VerifyError:
        reject()


def run(d: Draw, result: Node, args: list[Any]) -> Any:
    """What a value of a program is."""
    return evaluate(Module((Function("f", tuple(d.params), (result,)),), "f"), args)[0]


def values(node: Node, rng: np.random.Generator) -> Any:
    dtype = node.type.dtype  # type: ignore[attr-defined]
    picked = rng.choice(np.array(WILD[dtype.kind], dtype=object), node.type.shape)  # type: ignore[attr-defined]
    with np.errstate(all="ignore"):
        return np.asarray(picked, dtype=np.float64 if dtype.kind == "float" else object).astype(dtype.np)
