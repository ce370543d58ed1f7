"""Random numbers of one device, which begins to draw where its part of the elements does.

The elements are split along their first axis, where they follow each other row by row. The generators of bits count blocks: every
device draws its rows, and those around them that share a block, and gives the state that follows all of them. Evenly distributed
numbers are two steps each of a multiplicative congruential generator, which jumps ahead by a power of its multiplier (L'Ecuyer,
"Random numbers for simulation", 1990). Normal ones are accepted or rejected one after the other, so no part begins at a known draw.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from deepx_graph.ir.builder import Builder
from deepx_graph.ir.factor_rule import Position, tensor_shape
from deepx_graph.ir.node import Node
from deepx_graph.ops.math.bit_generator import split_axis
from deepx_graph.ops.math.elementwise import add, compare, convert, divide, multiply, remainder, select
from deepx_graph.ops.tensor.index import dynamic_slice
from deepx_graph.ops.tensor.layout import reshape
from deepx_graph.ops.tensor.shape import concatenate, slice_
from deepx_graph.types import I32, I64, U64, as_tensor


def drawn(b: Builder, node: Node, operands: Sequence[Node], attrs: tuple[Any, ...], positions: Mapping[int, Position]) -> Node:
    """The state after all elements, and the elements of one part."""
    (position,) = positions.values()
    named = node.named_attrs
    shape, bits, is_three_fry = named["shape"], named["dtype"].bits, named["rng_algorithm"] == "THREE_FRY"
    dim = next(k for k, size in enumerate(shape) if size > 1)
    row = math.prod(shape[dim + 1 :])
    start = b(convert, position.start, dtype=U64)
    if is_three_fry and bits < 64:
        axis = split_axis(shape)
        if axis == dim:  # blocks are pairs of rows
            taken = 2 * (position.size // 2 + 1)
            first, skipped = b(multiply, _by(b, divide, start, 2), b.constant(row, U64)), _by(b, remainder, start, 2)
        else:  # blocks lie within rows; with an odd number of these the pairs are along the same axis
            taken = position.size | 1
            first, skipped = b(multiply, start, b.constant(row // shape[axis] * -(-shape[axis] // 2), U64)), b.constant(0, U64)
        found = (*shape[:dim], taken, *shape[dim + 1 :])
        total = math.prod(-(-n // 2) if k == axis else n for k, n in enumerate(shape))
    else:
        block = 1 if is_three_fry else 128 // max(bits, 32)
        at = b(multiply, start, b.constant(row, U64))
        first, skipped = _by(b, divide, at, block), _by(b, remainder, at, block)
        found = (position.size * row + block - 1,)
        total = -(-math.prod(shape) // block)
    state, flat = operands[0], not (is_three_fry and bits < 64)
    _, here = b.items(b(node.op, _advanced(b, state, first, not is_three_fry), **(named | {"shape": found})))
    sizes = (position.size * row,) if flat else (*shape[:dim], position.size, *shape[dim + 1 :])
    zero = b.constant(0, I32)
    begin = [b(convert, skipped, dtype=I32) if k == (0 if flat else dim) else zero for k in range(len(sizes))]
    part = b(dynamic_slice, here, *begin, slice_sizes=sizes)
    after = _advanced(b, state, b.constant(total, U64), tensor_shape(state.type)[0] == 3)
    return b.pack(after, b(reshape, part, shape=(*shape[:dim], position.size, *shape[dim + 1 :])))


def _by(b: Builder, op: Any, x: Node, number: int) -> Node:
    return b(op, x, b.constant(number, U64))


def _advanced(b: Builder, state: Node, blocks: Node, is_wide: bool) -> Node:
    """The state so many blocks on; a wide one has a counter of 128 bits, whose upper half is the key where it has none."""
    words = [b(slice_, state, start_indices=(k,), limit_indices=(k + 1,), strides=(1,)) for k in range(tensor_shape(state.type)[0])]
    low = b(add, words[1], blocks)
    if not is_wide:
        return b(concatenate, words[0], low, dimension=0)
    carry = b(convert, b(compare, low, words[1], direction="LT"), dtype=U64)
    return b(concatenate, words[0], low, b(add, words[-1] if len(words) == 3 else words[0], carry), dimension=0)


def drawn_evenly(b: Builder, node: Node, operands: Sequence[Node], attrs: tuple[Any, ...],
                 positions: Mapping[int, Position]) -> Node:
    """The numbers of one part, from the seed that the generator has come to where it begins."""
    from deepx_graph.ops.math.random import MODULUS, MULTIPLIER

    (position,) = positions.values()
    shape, dtype = attrs
    dim, whole = next((k, size) for k, size in enumerate(node.attr("shape")) if size > 1)
    row = math.prod(node.attr("shape")[dim + 1 :])
    starts = range(0, whole, position.size)
    ahead = b.constant([pow(MULTIPLIER, 2 * row * start, MODULUS) for start in starts], U64)
    jump = b(reshape, b(dynamic_slice, ahead, position.index, slice_sizes=(1,)), shape=())
    low, high, seed = operands
    reached = _by(b, remainder, b(multiply, _first_state(b, seed, MODULUS), jump), MODULUS)
    return b(node.op, low, high, b(convert, reached, dtype=I64), shape=shape, dtype=dtype)


def _first_state(b: Builder, seed: Node, modulus: int) -> Node:
    """A seed as the generator takes it: what is left by the modulus, never negative, and 1 for 0."""
    is_signed = as_tensor(seed.type).dtype.kind != "uint"
    kind = I64 if is_signed else U64
    left = b(remainder, b(convert, seed, dtype=kind), b.constant(modulus, kind))
    if is_signed:
        left = b(select, b(compare, left, b.constant(0, kind), direction="LT"), b(add, left, b.constant(modulus, kind)), left)
    is_none = b(compare, left, b.constant(0, kind), direction="EQ")
    return b(convert, b(select, is_none, b.constant(1, kind), left), dtype=U64)
