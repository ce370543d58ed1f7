"""Random programs of integers in known ranges, one for each rule that asks for ranges; and any, to hold ranges against values."""

from __future__ import annotations

from collections.abc import Callable

from deepx_graph.ir import Node
from deepx_graph.ops import (
    abs_,
    add,
    and_,
    broadcast_in_dim,
    clamp,
    compare,
    concatenate,
    convert,
    count_leading_zeros,
    divide,
    dynamic_slice,
    dynamic_update_slice,
    floor_mod,
    iota,
    maximum,
    minimum,
    multiply,
    negate,
    not_,
    or_,
    pad,
    popcnt,
    remainder,
    reshape,
    reverse,
    select,
    shift_left,
    shift_right_arithmetic,
    shift_right_logical,
    slice_,
    subtract,
    xor,
)
from deepx_graph.types import BOOL, I8, I16, I32, I64, U8, U32, DType, as_tensor
from tests.support.data_movement import Draw

SIZE = 7
DIRECTIONS = ("LT", "LE", "GT", "GE", "EQ", "NE")


def number(d: Draw, dtype: DType) -> Node:
    low, high = (0, 255) if dtype.kind == "uint" else (-128, 127)
    return d.b.constant(d.one(0, 1, 2, 3, 8, 100, high, d.int(low, high)), dtype)


def leaf(d: Draw, dtype: DType) -> Node:
    narrow = d.one(U8, BOOL, I8)
    return d.one(lambda: d.param((SIZE,), dtype), lambda: d.b(convert, d.param((SIZE,), narrow), dtype=dtype),
                 lambda: d.b(iota, dtype=dtype, shape=(SIZE,), iota_dimension=0),
                 lambda: d.b(broadcast_in_dim, number(d, dtype), shape=(SIZE,), broadcast_dimensions=()))()


def integers(d: Draw, dtype: DType, depth: int = 3) -> Node:
    """Integers of all operations of which ranges know something, and of some of which they know nothing."""
    if depth == 0:
        return leaf(d, dtype)
    x, y = integers(d, dtype, depth - 1), d.one(lambda: number(d, dtype), lambda: integers(d, dtype, depth - 1))()
    of_two = (add, subtract, multiply, divide, remainder, floor_mod, maximum, minimum, and_, or_, xor, shift_left,
              shift_right_logical, shift_right_arithmetic)
    return d.one(lambda: d.b(d.one(*of_two), x, y), lambda: d.b(d.one(negate, abs_, not_, popcnt, count_leading_zeros), x),
                 lambda: d.b(clamp, number(d, dtype), x, number(d, dtype)), lambda: chosen(d, x, y), lambda: moved(d, x),
                 lambda: d.b(convert, d.b(convert, x, dtype=d.one(I8, U8, I16, I64)), dtype=dtype))()


def chosen(d: Draw, x: Node, y: Node) -> Node:
    """A number by a comparison of it, also as indices from the end are."""
    less = d.b(compare, x, y, direction=d.one(*DIRECTIONS))
    z = number(d, as_tensor(x.type).dtype)
    return d.b(select, less, *d.one((x, d.b(add, x, z)), (d.b(add, x, z), x), (d.b(subtract, x, z), x), (d.b(add, x, x), x)))


def moved(d: Draw, x: Node) -> Node:
    n = SIZE - d.int(0, 3)
    part = d.b(slice_, x, start_indices=(SIZE - n,), limit_indices=(SIZE,), strides=(1,))
    rest = d.b(slice_, x, start_indices=(0,), limit_indices=(SIZE - n,), strides=(1,))
    at, zero = number(d, I32), number(d, as_tensor(x.type).dtype)
    row = d.b(reshape, x, shape=(1, SIZE))
    return d.one(lambda: d.b(reverse, x, dimensions=(0,)),
                 lambda: d.b(concatenate, part, rest, dimension=0),
                 lambda: d.b(pad, part, zero, low=(SIZE - n,), high=(0,), interior=(0,)),
                 lambda: d.b(dynamic_update_slice, x, part, at),
                 lambda: d.b(reshape, d.b(dynamic_slice, row, at, at, slice_sizes=(1, SIZE)), shape=(SIZE,)))()


def whole(d: Draw) -> DType:
    return d.one(I32, I8, U8, U32)


def pair(d: Draw) -> tuple[Node, Node]:
    dtype = whole(d)
    return integers(d, dtype, d.int(0, 2)), d.one(lambda: number(d, dtype), lambda: integers(d, dtype, 1))()


def compared(d: Draw) -> Node:
    return d.b(compare, *pair(d), direction=d.one(*DIRECTIONS))


def clamped(d: Draw) -> Node:
    x, y = pair(d)
    return d.b(clamp, d.one(y, d.b.like(0, x)), d.one(d.b(and_, x, d.b.like(7, x)), x), d.b.like(d.int(0, 9), x))


def divided(d: Draw) -> Node:
    dtype = whole(d)
    x = integers(d, dtype, d.int(0, 2))
    x = d.one(lambda: x, lambda: d.b(and_, x, d.b.like(d.int(0, 127), x)))()
    return d.b(d.one(divide, remainder, floor_mod), x, d.b.like(d.one(1, 2, 3, 5, 8, 64, d.int(0, 127)), x))


def of_divisor_sign(d: Draw) -> Node:
    x = integers(d, whole(d), d.int(0, 2))
    c = d.b.like(d.one(1, 2, 3, 8, 64, d.int(0, 127)), x)
    rest = d.b(remainder, x, c)
    return d.b(select, d.b(compare, rest, d.b.like(0, x), direction="LT"), d.b(add, rest, c), rest)


PROGRAMS: dict[str, Callable[[Draw], Node]] = {
    "comparison-of-known-ranges": compared,
    "extreme-of-known-ranges": lambda d: d.b(d.one(maximum, minimum), *pair(d)),
    "clamp-of-known-range": clamped,
    "remainder-of-less": divided,
    "remainder-of-less-than-twice": divided,
    "remainder-by-power-of-two": divided,
    "floor-mod-by-power-of-two": of_divisor_sign,
    "quotient-by-power-of-two": divided,
}
