"""Random numbers as loop programs: the block ciphers of `rng_bit_generator`, and the draws of `std::minstd_rand0`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from deepx_graph.ir import Node
from deepx_graph.loops import LazyTensor, LoopBuilder, ScalarConst
from deepx_graph.loops.builder import computed_dtype
from deepx_graph.loops.program import Cell
from deepx_graph.loops.scalar import Affine, Index, Scalar, affine
from deepx_graph.ops.math.bit_generator import PARITY, PHILOX_FACTORS, PHILOX_KEYS, ROTATIONS, split_axis
from deepx_graph.ops.math.random import MODULUS, MULTIPLIER, SPAN
from deepx_graph.types import F64, I64, U32, U64, DType, dtype_named

Operands = Sequence[LazyTensor]


def _number(value: Any, dtype: DType) -> ScalarConst:
    assert dtype.np is not None
    return ScalarConst(dtype.np.type(value), dtype)


# --- bits from counters -----------------------------------------------------------------------------------------------


def bit_generator_loops(b: LoopBuilder, node: Node, xs: Operands, outs: Operands) -> None:
    """The state that follows, and the bits."""
    (_three_fry if node.attr("rng_algorithm") == "THREE_FRY" else _philox)(b, xs[0], *outs)


def _words(b: LoopBuilder, x: Scalar) -> tuple[Any, Any]:
    """The low and the high half."""
    return b.cast(x, U32), b.cast(b.apply("lshr", x, _number(32, U64)), U32)


def _long(b: LoopBuilder, low: Scalar, high: Scalar) -> Any:
    return b.apply("or", b.cast(low, U64), b.apply("shl", b.cast(high, U64), _number(32, U64)))


def _put_bits(b: LoopBuilder, out: LazyTensor, at: Index, word: Scalar) -> None:
    """The low bits of a word as an element."""
    assert out.buffer is not None
    kept = b.cast(word, dtype_named(f"u{out.dtype.bits}"))
    b.store(out.buffer, at, kept if kept.dtype is out.dtype else b.apply("bitcast", kept, dtype=out.dtype))


def _state(b: LoopBuilder, state: LazyTensor, number: int) -> Any:
    return state.at(b, (Affine((), number),))


def _put_state(b: LoopBuilder, state: LazyTensor, number: int, value: Scalar) -> None:
    b.put(state, (Affine((), number),), value)


def _three_fry(b: LoopBuilder, state: LazyTensor, new_state: LazyTensor, out: LazyTensor) -> None:
    """A block for each element of 64 bits; of others, for two neighbours along an axis."""
    shape, wide = out.shape, out.dtype.bits == 64
    axis = None if wide or not shape else split_axis(shape)
    blocks = shape if axis is None else (*shape[:axis], -(-shape[axis] // 2), *shape[axis + 1 :])
    with b.nest(blocks) as at:
        flat = Affine()
        for i, size in zip(at, blocks, strict=True):
            flat = flat * size + i
        low, high = _three_fry_block(b, _words(b, _state(b, state, 0)),
                                     _words(b, b.apply("add", _state(b, state, 1), b.number(flat, U64))))
        if axis is None:
            _put_bits(b, out, at, _long(b, low, high) if wide else low)
        else:
            first, second = ((*at[:axis], at[axis] * 2 + k, *at[axis + 1 :]) for k in (0, 1))
            _put_bits(b, out, first, low)
            b.when(b.less(second[axis], shape[axis]), lambda: _put_bits(b, out, second, high))
    _put_state(b, new_state, 0, _state(b, state, 0))
    _put_state(b, new_state, 1, b.apply("add", _state(b, state, 1), _number(math.prod(blocks), U64)))


def _three_fry_block(b: LoopBuilder, key: tuple[Any, Any], counter: tuple[Any, Any]) -> tuple[Any, Any]:
    """ThreeFry-2x32 of 20 rounds."""
    keys = (*key, b.apply("xor", b.apply("xor", *key), _number(PARITY, U32)))
    x, y = (b.apply("add", c, k) for c, k in zip(counter, key, strict=True))
    for group in range(5):
        for distance in ROTATIONS[group % 2]:
            x = b.apply("add", x, y)
            left, right = b.apply("shl", y, _number(distance, U32)), b.apply("lshr", y, _number(32 - distance, U32))
            y = b.apply("xor", x, b.apply("or", left, right))
        x = b.apply("add", x, keys[(group + 1) % 3])
        y = b.apply("add", y, b.apply("add", keys[(group + 2) % 3], _number(group + 1, U32)))
    return x, y


def _philox(b: LoopBuilder, state: LazyTensor, new_state: LazyTensor, out: LazyTensor) -> None:
    """Four words or two longs of each block, in row-major order; of the last block what is needed."""
    size, wide = math.prod(out.shape), out.dtype.bits == 64
    each = 2 if wide else 4

    def fill(number: Affine, count: int) -> None:
        words = _philox_block(b, state, number)
        values = [_long(b, *words[:2]), _long(b, *words[2:])] if wide else words
        for k, value in enumerate(values[:count]):
            _put_bits(b, out, b.unflattened(number * each + k, out.shape), value)

    with b.nest((size // each,)) as (number,):
        fill(number, each)
    if size % each:
        fill(Affine((), size // each), size % each)
    start, count = _state(b, state, 1), _number(-(-size // each), U64)
    low = b.apply("add", start, count)
    _put_state(b, new_state, 0, _state(b, state, 0))
    _put_state(b, new_state, 1, low)
    if state.shape == (3,):
        _put_state(b, new_state, 2, b.apply("add", _state(b, state, 2), b.cast(b.apply("lt", low, start), U64)))


def _philox_block(b: LoopBuilder, state: LazyTensor, number: Affine) -> tuple[Any, ...]:
    """Philox-4x32 of 10 rounds."""
    start, top = _state(b, state, 1), _state(b, state, 2 if state.shape == (3,) else 0)
    low = b.apply("add", start, b.number(number, U64))
    high = b.apply("add", top, b.cast(b.apply("lt", low, start), U64))
    words = (*_words(b, low), *_words(b, high))
    key = _words(b, _state(b, state, 0))
    for k in range(10):
        first, second = (b.apply("add", half, _number(k * step & 0xFFFFFFFF, U32))
                         for half, step in zip(key, PHILOX_KEYS, strict=True))
        (low_a, high_a), (low_c, high_c) = (_words(b, b.apply("mul", b.cast(word, U64), _number(factor, U64)))
                                            for word, factor in zip(words[::2], PHILOX_FACTORS, strict=True))
        words = (b.apply("xor", b.apply("xor", high_c, words[1]), first), low_c,
                 b.apply("xor", b.apply("xor", high_a, words[3]), second), low_a)
    return words


# --- std::minstd_rand0 ------------------------------------------------------------------------------------------------

CHUNK = 1024
"""Draws are made in order in chunks of so many elements; each begins by a power of the multiplier."""


def uniform_loops(b: LoopBuilder, node: Node, xs: Operands, outs: Operands) -> None:
    """low + (high - low) u."""
    size, (out,) = math.prod(outs[0].shape), outs
    with b.nest((-(-size // CHUNK),)) as (chunk,):
        state = b.cell(U64, _after(b, _seed(b, xs[2]), chunk * (2 * CHUNK)))
        low, high = (b.cast(x.at(b, ()), F64) for x in xs[:2])
        with b.loop(CHUNK) as k:
            u = _canonical(b, state)
            value = b.apply("add", low, b.apply("mul", b.apply("sub", high, low), u))
            flat = chunk * CHUNK + k
            b.when(b.less(flat, size), lambda: _put(b, out, flat, value))


def normal_loops(b: LoopBuilder, node: Node, xs: Operands, outs: Operands) -> None:
    """Marsaglia's polar method, whose pairs are used second value first."""
    size, (out,) = math.prod(outs[0].shape), outs
    if not size:
        return
    state, have = b.cell(U64, _seed(b, xs[2])), b.cell(I64, _number(0, I64))
    mean, deviation = (b.cast(x.at(b, ()), F64) for x in xs[:2])
    one, two = _number(1, F64), _number(2, F64)

    def keep(position: Affine, value: Scalar) -> None:
        _put(b, out, position, b.apply("add", b.apply("mul", value, deviation), mean))

    def attempt() -> None:
        x, y = (b.apply("sub", b.apply("mul", two, _canonical(b, state)), one) for _ in range(2))
        square = b.apply("add", b.apply("mul", x, x), b.apply("mul", y, y))
        good = b.both(b.apply("le", square, one), b.apply("ne", square, _number(0, F64)))
        b.when(good, lambda: accept(x, y, square))

    def accept(x: Scalar, y: Scalar, square: Scalar) -> None:
        logarithm = b.apply("mul", _number(-2, F64), b.apply("log", square))
        scale = b.apply("sqrt", b.apply("div", logarithm, square))
        first = b.index(b.get(have), 0, size - 1)
        keep(first, b.apply("mul", y, scale))
        b.when(b.apply("lt", first + 1, affine(size)), lambda: keep(b.index(b.number(first + 1, I64), 0, size - 1),
                                                                    b.apply("mul", x, scale)))
        b.set(have, b.number(first + 2, I64))

    b.repeat(lambda: b.apply("lt", b.get(have), _number(size, I64)), attempt)


def _put(b: LoopBuilder, out: LazyTensor, flat: Affine, value: Scalar) -> None:
    b.put(out, b.unflattened(flat, out.shape), b.cast(value, computed_dtype(out.dtype)))


def _seed(b: LoopBuilder, seed: LazyTensor) -> Any:
    """The state before the first draw."""
    x = seed.at(b, ())
    whole = U64 if x.dtype is U64 else I64
    rest = b.cast(b.apply("floor_mod", b.cast(x, whole), _number(MODULUS, whole)), U64)
    return b.apply("where", b.apply("eq", rest, _number(0, U64)), _number(1, U64), rest)


def _next(b: LoopBuilder, state: Scalar, factor: Scalar) -> Any:
    return b.apply("modulo", b.apply("mul", state, factor), _number(MODULUS, U64))


def _canonical(b: LoopBuilder, state: Cell) -> Any:
    """A double in [0, 1) of the next two draws."""
    first = _next(b, b.get(state), _number(MULTIPLIER, U64))
    second = _next(b, first, _number(MULTIPLIER, U64))
    b.set(state, second)
    low, high = (b.apply("sub", b.cast(d, F64), _number(1, F64)) for d in (first, second))
    return b.apply("div", b.apply("add", low, b.apply("mul", high, _number(SPAN, F64))), _number(float(SPAN) * SPAN, F64))


def _after(b: LoopBuilder, state: Scalar, draws: Affine) -> Any:
    """The state so many draws later, by repeated squaring."""
    found, factor = b.cell(U64, state), b.cell(U64, _number(MULTIPLIER, U64))
    rest, one = b.cell(U64, b.number(draws, U64)), _number(1, U64)

    def step() -> None:
        left, power = b.get(rest), b.get(factor)
        b.when(b.apply("eq", b.apply("and", left, one), one), lambda: b.set(found, _next(b, b.get(found), power)))
        b.set(factor, _next(b, power, power))
        b.set(rest, b.apply("lshr", left, one))

    b.repeat(lambda: b.apply("ne", b.get(rest), _number(0, U64)), step)
    return b.get(found)
